//! Until when the session can be trusted, by our own clock: its acknowledgements, its lease, and the
//! guard deadline that follows from them.
//!
//! **Before the first lease** of a session that has been idle, there is not enough proof. Until
//! then the guard deadline is provisional: it assumes that the leader is not paused. That is enough
//! to grant a lock, but not enough to report it as held.
//!
//! **Without locks** nothing is written. The lease runs out, and this does not count as a lapse.

use std::time::Duration;

use super::lease::{Lease, LeaseClock, SlowCommits};
use super::timer::{Timer, Timers};
use crate::time::Time;

/// Shortest interval between acknowledgements that the machine expects of a server, because any
/// server may be busy for that long.
const ACKNOWLEDGEMENT_INTERVAL_MIN: Duration = Duration::from_millis(500);

/// What the replies have proven about the session.
#[derive(Debug)]
pub(super) struct Validity {
    lease: LeaseClock,
    /// When a lock began to need the lease. From then on, writes must renew it.
    needed_since: Option<Time>,
    /// When the newest acknowledged request was sent.
    acknowledged: Option<Time>,
    /// Session timeout that applies to the acknowledged request. A resume may negotiate a longer
    /// timeout, but proves nothing.
    acknowledged_timeout: Duration,
    /// The guard deadline for which the timer was last set. This deadline may have passed.
    guarded_until: Option<Time>,
    lapses: u64,
}

impl Validity {
    /// Creates the validity of a session that has this timeout and is not open yet.
    pub(super) fn new(lease: Option<Lease>, timeout: Duration) -> Self {
        Self {
            lease: LeaseClock::new(lease),
            needed_since: None,
            acknowledged: None,
            acknowledged_timeout: timeout,
            guarded_until: None,
            lapses: 0,
        }
    }

    /// Records that the session was created by a request that was sent at `sent`.
    pub(super) fn created(&mut self, sent: Time, now: Time, timeout: Duration) {
        self.lease.created(sent, now, timeout);
    }

    /// Records that the session continues one with this timeout, of another client.
    pub(super) fn inherited(&mut self, timeout: Duration) {
        self.acknowledged_timeout = timeout;
    }

    /// Records a resume, which proves nothing by itself: a deposed leader grants it too. So the
    /// resume acknowledges no request and extends no deadline. But from now on the server may use a
    /// shorter timeout.
    pub(super) fn resumed(&mut self, sent: Time, now: Time, timeout: Duration) {
        self.acknowledged_timeout = self.acknowledged_timeout.min(timeout);
        let lease_before = self.lease.deadline();
        self.lease.resumed(sent, now, timeout);
        debug_assert!(self.lease.deadline() <= lease_before, "a resume extends no lease");
    }

    /// Records that a request sent at `sent` was acknowledged, in a session with this timeout. The
    /// send time counts, not the time of the reply: the server may have processed the request at any
    /// time in between.
    pub(super) fn acknowledge(&mut self, sent: Time, now: Time, timeout: Duration) {
        self.lease.acknowledged(sent, now);
        if self.acknowledged.is_none_or(|newest| newest < sent) {
            self.acknowledged = Some(sent);
            self.acknowledged_timeout = timeout;
        }
    }

    /// Records that a write sent at `sent` was committed.
    pub(super) fn committed(&mut self, sent: Time, now: Time) {
        self.lease.committed(sent, now);
    }

    /// Records the reply to a sync that was sent at `sent`.
    pub(super) fn synced(&mut self, sent: Time, now: Time) {
        self.lease.synced(sent, now);
    }

    /// Records the end of the session. The next one may have this lease.
    pub(super) fn session_ended(&mut self, lease: Option<Lease>) {
        self.lease = LeaseClock::new(lease);
        self.guarded_until = None;
        self.acknowledged = None;
    }

    /// Records that the session that is about to begin can have no lease.
    pub(super) fn forgo_lease(&mut self) {
        self.lease = LeaseClock::new(None);
    }

    /// Records whether a lock needs the lease. Returns true if that has changed.
    pub(super) fn need(&mut self, now: Time, is_needed: bool) -> bool {
        if is_needed == self.is_needed() {
            return false;
        }
        self.needed_since = is_needed.then_some(now);
        if is_needed {
            self.lease.needed(now);
        }
        true
    }

    /// Returns true if a lock needs the lease.
    pub(super) fn is_needed(&self) -> bool {
        self.needed_since.is_some()
    }

    /// Returns when a lock began to need the lease.
    pub(super) fn needed_since(&self) -> Option<Time> {
        self.needed_since
    }

    /// Returns why a lock that needs a lease has none. While no lock needs it, no write renews it, so
    /// its absence says nothing about commits.
    pub(super) fn slow_commits(&self) -> Option<SlowCommits> {
        self.lease.slow_commits().filter(|_| self.is_needed())
    }

    /// Returns the lease.
    pub(super) fn lease(&self) -> &LeaseClock {
        &self.lease
    }

    /// Returns when the newest acknowledged request was sent.
    pub(super) fn acknowledged(&self) -> Option<Time> {
        self.acknowledged
    }

    /// Returns how often the guard deadline has passed.
    pub(super) fn lapses(&self) -> u64 {
        self.lapses
    }

    /// Returns the time at which the servers may end the session, as far as acknowledgements tell.
    pub(super) fn session_deadline(&self) -> Option<Time> {
        self.acknowledged.map(|sent| sent + self.acknowledged_timeout)
    }

    /// Returns the time from which the session's ephemeral znodes must no longer be trusted; see
    /// [`Status::guard_deadline`](crate::machine::Status::guard_deadline).
    pub(super) fn guard_deadline(&self) -> Option<Time> {
        match self.lease.deadline() {
            Some(deadline) if self.is_needed() => Some(deadline),
            // Writes have not established a lease yet, or no lock needs the lease and it is running
            // out.
            // If commits are too slow for that, the deadline is the one without a lease.
            _ if self.lease.is_written() => {
                let provisional = self.lease.provisional_deadline();
                if self.lease.is_too_slow() {
                    provisional.max(self.session_deadline())
                } else {
                    provisional
                }
            }
            deadline => deadline.or_else(|| self.session_deadline()),
        }
    }

    /// Returns until when a lock may rely on the lease. If no lock needs the lease yet, that is the
    /// time until which a lock may begin to need it.
    pub(super) fn leased_until(&self) -> Option<Time> {
        match self.needed_since {
            Some(_) => self.lease.deadline(),
            None => self.lease.begin_deadline(),
        }
    }

    /// Sets the timer after the guard deadline may have moved. A deadline that was already past when
    /// it was computed does not count as another lapse.
    pub(super) fn arm_guard(&mut self, timers: &mut Timers, now: Time) {
        // No lock relies on this lease, so it may run out without counting as a lapse.
        if self.lease.is_written() && !self.is_needed() {
            self.guarded_until = None;
            timers.stop(Timer::Guard);
            return;
        }
        let Some(deadline) = self.guard_deadline() else { return };
        if self.guarded_until == Some(deadline) {
            return;
        }
        self.guarded_until = Some(deadline);
        if deadline > now || timers.is_set(Timer::Guard) {
            timers.set(Timer::Guard, deadline);
        }
    }

    /// Records that the guard deadline has passed.
    pub(super) fn lapse(&mut self, now: Time) {
        debug_assert!(
            self.guarded_until.is_some_and(|until| until <= now),
            "the guard deadline has passed"
        );
        self.lapses += 1;
        self.lease.lapse();
    }

    /// Returns the maximum time without a byte of the server while the lease is kept. A lease kept
    /// by pings exists in all sessions. Writes keep a lease only where it is needed.
    pub(super) fn silence_max(&self) -> Option<Duration> {
        let is_kept = self.is_needed() || !self.lease.is_written();
        self.lease.silence_max().filter(|_| is_kept)
    }

    /// Returns the time from which an acknowledgement is overdue: two intervals after the newest
    /// acknowledged request was sent. An interval is the maximum time between two acknowledgements if
    /// the server replies promptly.
    pub(super) fn overdue_from(&self) -> Option<Time> {
        let acknowledged = self.acknowledged?;
        let of_pings = self.acknowledged_timeout / 3;
        let interval = match self.lease.interval() {
            Some(interval) if !self.lease.is_written() => interval,
            Some(interval) if self.is_needed() => {
                // A renewal waits for the last commit, and then for its own.
                let commit = self.lease.commit_time();
                interval.max(ACKNOWLEDGEMENT_INTERVAL_MIN).max(commit + commit / 4)
            }
            Some(_) | None => of_pings,
        };
        let overdue = acknowledged + interval * 2;
        // No write was due before a lock began to need the lease: until then, pings sufficed.
        let since_need = self.needed_since.map_or(overdue, |since| since + interval * 2);
        Some(overdue.max(since_need.min(acknowledged + of_pings * 2)))
    }
}
