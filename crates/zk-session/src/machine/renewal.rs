//! Keeping the lease: the guard deadline, the writes that renew it, and the connection that is given
//! up for it.
//!
//! **Writes.** While a lock needs the lease, the session commits a write each interval, unless
//! somebody else's write on the same connection was committed meanwhile. It is a `multi` that holds
//! nothing but a check of the root, so it changes nothing, and is proposed and committed as any
//! write is; whether the check passes does not matter. A ping goes ahead of it in the same bytes:
//! the lease counts from a request before another, and the two are such a pair. The next one is
//! never sent before the last one is answered, because a bridge needs an answer in its middle, and
//! because a server that is slow shall not get more of them.
//!
//! **Before the first lease** on a session that has been idle there is nothing that proves enough.
//! The guard deadline is provisional then: it assumes that the leader does not stand still. That is
//! enough to grant a lock, but not to say that it is held.
//!
//! **Nobody needs it**: then nothing is written, the lease runs out, and that is no lapse.

use jute_codec::{CheckRequest, MultiOp, Request};

use super::inflight::Purpose;
use super::timer::Timer;
use super::{Change, DisconnectCause, Phase, Session};
use crate::time::Time;

impl Session {
    /// Whether there are locks, held or waited for. Then a connection that is silent, or that has
    /// let the lease run out, is given up early; otherwise it is given the time that any client
    /// gives it.
    pub fn set_relied_on(&mut self, now: Time, is_relied_on: bool) {
        self.advance(now);
        self.is_relied_on = is_relied_on;
        self.give_up_without_lease();
        if matches!(self.phase, Phase::Established | Phase::Authenticating(_)) {
            self.rearm_read();
        }
    }

    /// Whether a lock is held, or may be granted next. Then writes renew the lease, if it is one
    /// that writes keep.
    pub fn set_lease_needed(&mut self, now: Time, is_needed: bool) {
        self.advance(now);
        if is_needed == self.lease_needed.is_some() {
            return;
        }
        self.lease_needed = is_needed.then_some(now);
        if is_needed {
            self.lease.needed(now);
            // A lock that is free again in a moment needs no more than its own writes.
            self.renewed = Some(now);
        }
        self.arm_guard();
        self.arm_renewal();
        if matches!(self.phase, Phase::Established | Phase::Authenticating(_)) {
            self.rearm_read();
        }
    }

    /// When the session's ephemerals must no longer be trusted; see `Status::guard_deadline`.
    pub(super) fn guard_deadline(&self) -> Option<Time> {
        let by_answers = || self.acknowledged.map(|sent| sent + self.acknowledged_timeout);
        match self.lease.deadline() {
            Some(deadline) if self.lease_needed.is_some() => Some(deadline),
            _ if self.lease.is_written() => self.lease.provisional_deadline(),
            deadline => deadline.or_else(by_answers),
        }
    }

    /// The guard deadline may have moved. One that has passed counts once.
    pub(super) fn arm_guard(&mut self) {
        if self.lease.is_written() && self.lease_needed.is_none() {
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

    /// The guard deadline has passed.
    pub(super) fn lapse(&mut self) {
        let Some(session) = self.session_id() else { return };
        self.lapses += 1;
        self.emit(Change::Lapsed { session });
        self.lease.lapse();
        self.arm_guard();
        self.arm_renewal();
        self.give_up_without_lease();
    }

    /// Without a lease no lock can be obtained, and pings alone take long to make a new one. A
    /// resume and a committed write make one at once.
    pub(super) fn give_up_without_lease(&mut self) {
        if self.is_relied_on
            && self.lease.is_beyond_repair(self.now)
            && matches!(self.phase, Phase::Established | Phase::Authenticating(_))
        {
            self.drop_connection(DisconnectCause::LeaseEnded);
        }
    }

    /// Sets the time of the next renewing write.
    pub(super) fn arm_renewal(&mut self) {
        let may_renew = self.lease_needed.is_some()
            && self.phase == Phase::Established
            && !self.closing
            && !self.is_renewing;
        match self.lease.write_interval(self.now).filter(|_| may_renew) {
            Some(interval) => {
                let since = *self.renewed.get_or_insert(self.now);
                self.timers.set(Timer::Renew, since + interval);
            }
            None => self.timers.stop(Timer::Renew),
        }
    }

    /// Sends the write that renews the lease.
    pub(super) fn renew(&mut self) {
        self.ping();
        let check = CheckRequest { path: "/".into(), version: -1 };
        let request = Request::Multi(vec![MultiOp::Check(check)]);
        let xid = self.take_xid();
        self.send_internal(xid, &request, Some(Purpose::Renewal));
        self.is_renewing = true;
    }

    /// A renewing write was answered. One that was refused is not repeated at once.
    pub(super) fn renewed(&mut self, is_committed: bool, sent: Time) {
        self.is_renewing = false;
        if is_committed {
            self.committed(sent);
        } else {
            self.renewed = Some(self.now);
            self.arm_renewal();
        }
    }

    /// A write on this connection, sent then, was committed.
    pub(super) fn committed(&mut self, sent: Time) {
        self.lease.committed(sent, self.now);
        self.renewed = Some(sent);
        self.arm_guard();
        self.arm_renewal();
    }
}
