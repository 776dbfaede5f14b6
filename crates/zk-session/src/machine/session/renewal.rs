//! Keeping the lease: the guard deadline, the writes that renew the lease, and abandoning a
//! connection that cannot renew it.
//!
//! **Writes.** While a lock needs the lease, the session commits a write in each interval, unless
//! another write on the same connection was committed in that interval. The write is a `multi` that
//! only checks the root. A ping precedes the write in the same bytes: the lease is based on a
//! request that is followed by another request, and the ping and the write form such a pair. The
//! next renewal is never sent before the last one is complete: a bridge needs a reply in its
//! middle, and a slow server must not get more requests.
//!
//! **Before the first lease** of a session that has been idle, there is not enough proof. Until
//! then the guard deadline is provisional: it assumes that the leader is not paused. That is enough
//! to grant a lock, but not enough to report it as held.
//!
//! **Without locks** nothing is written. The lease runs out, and this does not count as a lapse.

use tracing::warn;

use super::{Phase, SessionMachine};
use crate::machine::cause::DisconnectCause;
use crate::machine::inflight::{Purpose, write_of_nothing};
use crate::machine::status::Change;
use crate::machine::timer::Timer;
use crate::time::Time;

impl SessionMachine {
    /// Sets whether any lock is held or waited for. If so, a silent connection, or one that has let
    /// the lease run out, is abandoned early. Otherwise the connection gets as much time as in any
    /// other client.
    pub fn set_relied_on(&mut self, now: Time, is_relied_on: bool) {
        self.advance(now);
        self.is_relied_on = is_relied_on;
        self.give_up_without_lease();
        self.rearm_read();
    }

    /// Sets whether a lock is held or may be granted next. If so, writes renew the lease, provided
    /// that the lease is one that writes keep.
    pub fn set_lease_needed(&mut self, now: Time, is_needed: bool) {
        self.advance(now);
        if is_needed == self.lease_needed_since.is_some() {
            return;
        }
        self.lease_needed_since = is_needed.then_some(now);
        if is_needed {
            self.lease.needed(now);
            // Wait for one interval: a lock that is soon released needs no writes besides its own.
            self.link.pace.restart(now);
        }
        self.arm_guard();
        self.arm_renewal();
        self.rearm_read();
    }

    /// Returns the time from which the session's ephemeral znodes must no longer be trusted; see
    /// [`Status::guard_deadline`](crate::machine::Status::guard_deadline).
    pub(super) fn guard_deadline(&self) -> Option<Time> {
        let by_acknowledgement = || self.acknowledged.map(|sent| sent + self.acknowledged_timeout);
        match self.lease.deadline() {
            Some(deadline) if self.lease_needed_since.is_some() => Some(deadline),
            // Writes have not established a lease yet, or no lock needs the lease and it is running
            // out.
            // If commits are too slow for that, the deadline is the one without a lease.
            _ if self.lease.is_written() => {
                let provisional = self.lease.provisional_deadline();
                if self.lease.is_too_slow() {
                    provisional.max(by_acknowledgement())
                } else {
                    provisional
                }
            }
            deadline => deadline.or_else(by_acknowledgement),
        }
    }

    /// Returns until when a lock may rely on the lease. If no lock needs the lease yet, that is the
    /// time until which a lock may begin to need it.
    pub(super) fn leased_until(&self) -> Option<Time> {
        match self.lease_needed_since {
            Some(_) => self.lease.deadline(),
            None => self.lease.begin_deadline(),
        }
    }

    /// Updates the timer after the guard deadline may have moved. A deadline that was already past
    /// when it was computed does not count as another lapse.
    pub(super) fn arm_guard(&mut self) {
        // No lock relies on this lease, so it may run out without counting as a lapse.
        if self.lease.is_written() && self.lease_needed_since.is_none() {
            self.guarded_until = None;
            self.timers.stop(Timer::Guard);
            return;
        }
        let Some(deadline) = self.guard_deadline() else { return };
        if self.guarded_until == Some(deadline) {
            return;
        }
        self.guarded_until = Some(deadline);
        if deadline > self.now || self.timers.is_set(Timer::Guard) {
            self.timers.set(Timer::Guard, deadline);
        }
    }

    /// Handles a guard deadline that has passed.
    pub(super) fn lapse(&mut self) {
        let Some(session) = self.session_id() else { return };
        debug_assert!(
            self.guarded_until.is_some_and(|until| until <= self.now),
            "the guard deadline has passed"
        );
        self.lapses += 1;
        self.emit(Change::Lapsed { session });
        self.lease.lapse();
        self.arm_guard();
        self.arm_renewal();
        self.give_up_without_lease();
    }

    /// Drops a connection that takes longer to establish a lease than a new connection would: pings
    /// alone need a long time, while a resume and a committed write establish a lease at once.
    pub(super) fn give_up_without_lease(&mut self) {
        if self.is_relied_on
            && !self.link.is_read_only()
            && self.lease.is_beyond_repair(self.now)
            && matches!(self.link.phase, Phase::Established | Phase::Authenticating(_))
        {
            self.drop_connection(DisconnectCause::LeaseEnded);
        }
    }

    /// Returns true if a write may be sent to renew the lease.
    fn may_renew(&self) -> bool {
        self.lease_needed_since.is_some()
            && self.link.phase == Phase::Established
            && !self.link.is_read_only()
            && !self.is_closing
            && !self.link.pace.is_renewing()
    }

    /// Schedules the next write that renews the lease.
    pub(super) fn arm_renewal(&mut self) {
        match self.lease.write_interval(self.now).filter(|_| self.may_renew()) {
            Some(interval) => {
                let at = self.link.pace.next(self.now, interval);
                self.timers.set(Timer::Renew, at);
            }
            None => self.timers.stop(Timer::Renew),
        }
    }

    /// Sends a write that renews the lease.
    pub(super) fn renew(&mut self) {
        debug_assert!(self.may_renew(), "the timer is stopped when a renewal becomes impossible");
        debug_assert!(self.lease.is_written(), "only writes are scheduled");
        self.ping();
        self.send_internal(&write_of_nothing(), Purpose::Renewal);
        self.link.pace.sent();
    }

    /// Handles the reply to a renewing write that was sent at `sent`.
    pub(super) fn handle_renewal_reply(&mut self, is_committed: bool, sent: Time) {
        self.link.pace.completed();
        if is_committed {
            self.handle_committed_write(sent);
        } else {
            self.link.pace.refused(self.now);
            self.arm_renewal();
        }
    }

    /// Logs once that commits take too long for a lease that a lock needs.
    fn warn_of_slow_commits(&mut self) {
        let Some(slow) = self.lease.slow_commits() else { return };
        if self.lease_needed_since.is_none()
            || std::mem::replace(&mut self.has_warned_of_slow_commits, true)
        {
            return;
        }
        warn!(
            commit = ?slow.commit,
            timeout = ?slow.timeout,
            needed = ?slow.needed,
            "there is no lease, because commits take too long for the session timeout: locks are \
             at risk, and acquires that treat this as lost fail; request a longer timeout"
        );
    }

    /// Records that a write on this connection, sent at `sent`, was committed.
    pub(super) fn handle_committed_write(&mut self, sent: Time) {
        self.lease.committed(sent, self.now);
        self.warn_of_slow_commits();
        self.link.pace.committed(sent);
        self.arm_guard();
        self.arm_renewal();
    }
}
