//! Counters of a lock.

use std::time::Duration;

use super::figures::{Count, Level, Time};
use super::outcome::Tally;

zk_session::figures! {
    /// A snapshot of the counters of a lock and its clones, since the lock was built.
    ///
    /// Programs do not need these counters to use a lock. They show operators how contended the lock
    /// is, and how reliable the network is.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    #[non_exhaustive]
    pub struct LockStats
    counts {
        /// Number of attempts that were started. An acquire starts another attempt when its session
        /// ends or its znode is deleted while it waits.
        attempts = Counter "zk_lock_attempts_total"
            "Attempts to acquire. An acquire starts another one when its session ends.";
        /// Locks that were obtained.
        acquired;
        /// How often a lock that was held became at risk. Very short risks may not be counted.
        at_risk;
        /// Locks that were lost.
        lost = Counter "zk_locks_lost_total"
            "Locks that were lost while they were held.";
        /// Requests that were issued again, or verified by a read, because a lost connection had left
        /// their outcome open.
        replays = Counter "zk_lock_replays_total"
            "Requests that were repeated or verified after a lost connection.";
        /// Contender znodes that a lost create had left behind and that the client found and removed.
        duplicates_removed;
        /// Changes that no watch had reported and that the periodic check found. This number should
        /// stay 0.
        watches_missed = Counter "zk_lock_watches_missed_total"
            "Changes that no watch has reported. This number should stay 0.";
    }
    times {
        /// Total time for which locks that were held were at risk. A risk is added when it ends.
        risk = "zk_lock_at_risk_seconds"
            "Time for which a lock that was held was at risk, recorded at the end.";
        /// Total time between the start of an acquire and its grant, over all locks that were
        /// obtained.
        waited = "zk_lock_wait_seconds"
            "Time from the start of an acquire to its grant. Acquires that fail do not count.";
        /// Total time between the grant of a lock and its release or loss.
        held = "zk_lock_hold_seconds"
            "Time from the grant of a lock to its release or loss, recorded at the end.";
    }
    levels {
        /// Removals that are due and not complete: of locks that were released or lost, of acquires
        /// that were cancelled or have failed, of memberships that have ended. Neither locks that are
        /// held nor acquires that wait are counted. The number covers the whole client, not this lock
        /// alone.
        ///
        /// It is zero on a healthy client, except for moments. If it stays above zero while the client
        /// is connected, servers refuse the removals, and others may wait for the znodes: raise an
        /// alarm.
        janitor_backlog;
    }
    gauges {
        held_now = "zk_locks_held"
            "Locks that are held, certainly or at risk.";
    }
    others {}
}

/// The counters behind [`LockStats`].
#[derive(Debug)]
pub(crate) struct Counters {
    counts: Counts<Count>,
    times: Times<Time>,
    gauges: Gauges<Level>,
}

impl Counters {
    /// Creates counters, all 0. `recipe` is the name of the recipe in metrics.
    pub(crate) fn new(recipe: &'static str) -> Self {
        Self {
            counts: Counts::METRICS.map(|metric| Count::new(*metric, Some(recipe))),
            times: Times::METRICS.map(|metric| Time::new(*metric, Some(recipe))),
            gauges: Gauges::METRICS.map(|metric| Level::new(*metric, Some(recipe))),
        }
    }

    /// Counts the start of an attempt.
    pub(crate) fn attempted(&self) {
        self.counts.attempts.add(1);
    }

    /// Counts an acquire that has obtained the lock after this time.
    pub(crate) fn acquired(&self, waited: Duration) {
        self.counts.acquired.add(1);
        self.times.waited.add(waited);
    }

    /// Records that a lock is held from now on.
    pub(crate) fn began(&self) {
        self.gauges.held_now.change(1.0);
    }

    /// Records that a lock was released or lost after this time.
    pub(crate) fn ended(&self, held: Duration) {
        self.gauges.held_now.change(-1.0);
        self.times.held.add(held);
    }

    /// Counts a lock that has become at risk.
    pub(crate) fn at_risk(&self) {
        self.counts.at_risk.add(1);
    }

    /// Records that a lock is no longer at risk, or no longer held, after this time at risk.
    pub(crate) fn was_at_risk(&self, time: Duration) {
        self.times.risk.add(time);
    }

    /// Counts a lock that is lost.
    pub(crate) fn lost(&self) {
        self.counts.lost.add(1);
    }

    pub(crate) fn replays(&self, count: u64) {
        self.counts.replays.add(count);
    }

    pub(crate) fn add(&self, tally: Tally) {
        self.replays(tally.replays.into());
        self.counts.duplicates_removed.add(tally.duplicates.into());
        self.counts.watches_missed.add(tally.watches_missed.into());
    }

    pub(crate) fn snapshot(&self, janitor_backlog: usize) -> LockStats {
        let (counts, times) = (self.counts.map(Count::sum), self.times.map(Time::sum));
        LockStats::of(&counts, &times, &Levels { janitor_backlog })
    }
}
