//! Keeping the lease: the guard deadline, the writes that renew the lease, and abandoning a
//! connection that cannot renew it.
//!
//! **Writes.** While a lock needs the lease, the session commits a write in each interval, unless
//! another write on the same connection was committed in that interval. The write is a `multi` that
//! only checks the root. A ping precedes the write in the same bytes: the lease is based on a
//! request that is followed by another request, and the ping and the write form such a pair. The
//! next renewal is never sent before the last one is complete: a bridge needs a reply in its
//! middle, and a slow server must not get more requests.

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
    pub(crate) fn set_relied_on(&mut self, now: Time, is_relied_on: bool) {
        self.advance(now);
        self.is_relied_on = is_relied_on;
        self.give_up_without_lease();
        self.rearm_read();
    }

    /// Sets whether a lock is held or may be granted next. If so, writes renew the lease, provided
    /// that the lease is one that writes keep.
    pub(crate) fn set_lease_needed(&mut self, now: Time, is_needed: bool) {
        self.advance(now);
        if !self.validity.need(now, is_needed) {
            return;
        }
        if is_needed {
            // Wait for one interval: a lock that is soon released needs no writes besides its own.
            self.link.pace.restart(now);
        }
        self.arm_guard();
        self.arm_renewal();
        self.rearm_read();
    }

    /// Updates the timer after the guard deadline may have moved.
    pub(super) fn arm_guard(&mut self) {
        self.validity.arm_guard(&mut self.timers, self.now);
    }

    /// Handles a guard deadline that has passed.
    pub(super) fn lapse(&mut self) {
        let Some(session) = self.session_id() else { return };
        self.validity.lapse(self.now);
        self.emit(Change::Lapsed { session });
        self.arm_guard();
        self.arm_renewal();
        self.give_up_without_lease();
    }

    /// Drops a connection that takes longer to establish a lease than a new connection would: pings
    /// alone need a long time, while a resume and a committed write establish a lease at once.
    pub(super) fn give_up_without_lease(&mut self) {
        if self.is_relied_on
            && !self.link.is_read_only()
            && self.validity.lease().is_beyond_repair(self.now)
            && matches!(self.link.phase, Phase::Established | Phase::Authenticating(_))
        {
            self.drop_connection(DisconnectCause::LeaseEnded);
        }
    }

    /// Returns true if a write may be sent to renew the lease.
    fn may_renew(&self) -> bool {
        self.validity.is_needed()
            && self.link.phase == Phase::Established
            && !self.link.is_read_only()
            && !self.is_closing
            && !self.link.pace.is_renewing()
            && !self.link.probes.is_probing()
    }

    /// Schedules the next write that renews the lease.
    pub(super) fn arm_renewal(&mut self) {
        // The interval is not computed for each write of a session without locks.
        let interval =
            if self.may_renew() { self.validity.lease().write_interval(self.now) } else { None };
        match interval {
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
        debug_assert!(self.validity.lease().is_written(), "only writes are scheduled");
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

    /// Records that a write on this connection, sent at `sent`, was committed.
    pub(super) fn handle_committed_write(&mut self, sent: Time) {
        self.validity.committed(sent, self.now);
        if let Some(slow) = self.validity.slow_commits() {
            self.lease_warnings.slow_commits(slow);
        }
        self.link.pace.committed(sent);
        self.arm_guard();
        self.arm_renewal();
    }
}
