//! Counters of a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[cfg(feature = "metrics")]
use super::export::Export;
use super::outcome::Tally;

/// A snapshot of the counters of a lock and its clones, since the lock was built.
///
/// Programs do not need these counters to use a lock. They show operators how contended the lock
/// is, and how reliable the network is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct LockStats {
    /// Number of attempts that were started. An acquire starts another attempt when its session
    /// ends or its znode is deleted while it waits.
    pub attempts: u64,
    /// Locks that were obtained.
    pub acquired: u64,
    /// How often a lock that was held became at risk. Very short risks may not be counted.
    pub at_risk: u64,
    /// Total time for which locks that were held were at risk. A risk is added when it ends.
    pub risk: Duration,
    /// Locks that were lost.
    pub lost: u64,
    /// Total time between the start of an acquire and its grant, over all locks that were obtained.
    pub waited: Duration,
    /// Total time between the grant of a lock and its release or loss.
    pub held: Duration,
    /// Requests that were issued again, or verified by a read, because a lost connection had left
    /// their outcome open.
    pub replays: u64,
    /// Contender znodes that a lost create had left behind and that the client found and removed.
    pub duplicates_removed: u64,
    /// Changes that no watch had reported and that the periodic check found. This number should
    /// stay 0.
    pub watches_missed: u64,
    /// Removals that are due and not complete: of locks that were released or lost, of acquires that
    /// were cancelled or have failed, of memberships that have ended. Neither locks that are held
    /// nor acquires that wait are counted. The number covers the whole client, not this lock alone.
    ///
    /// It is zero on a healthy client, except for moments. If it stays above zero while the client
    /// is connected, servers refuse the removals, and others may wait for the znodes: raise an alarm.
    pub janitor_backlog: usize,
}

/// The counters behind [`LockStats`].
#[derive(Debug)]
pub(crate) struct Counters {
    attempts: AtomicU64,
    acquired: AtomicU64,
    at_risk: AtomicU64,
    risk_us: AtomicU64,
    lost: AtomicU64,
    waited_us: AtomicU64,
    held_us: AtomicU64,
    replays: AtomicU64,
    duplicates: AtomicU64,
    watches_missed: AtomicU64,
    #[cfg(feature = "metrics")]
    export: Export,
}

impl Counters {
    /// Creates counters, all 0. `recipe` is the name of the recipe in metrics.
    pub(crate) fn new(recipe: &'static str) -> Self {
        #[cfg(not(feature = "metrics"))]
        let _ = recipe;
        Self {
            attempts: AtomicU64::new(0),
            acquired: AtomicU64::new(0),
            at_risk: AtomicU64::new(0),
            risk_us: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            waited_us: AtomicU64::new(0),
            held_us: AtomicU64::new(0),
            replays: AtomicU64::new(0),
            duplicates: AtomicU64::new(0),
            watches_missed: AtomicU64::new(0),
            #[cfg(feature = "metrics")]
            export: Export::new(recipe),
        }
    }

    /// Counts the start of an attempt.
    pub(crate) fn attempted(&self) {
        add(&self.attempts, 1);
        #[cfg(feature = "metrics")]
        self.export.attempts.increment(1);
    }

    /// Counts an acquire that has obtained the lock after this time.
    pub(crate) fn acquired(&self, waited: Duration) {
        add(&self.acquired, 1);
        add(&self.waited_us, micros(waited));
        #[cfg(feature = "metrics")]
        self.export.waited.record(waited);
    }

    /// Records that a lock is held from now on.
    #[cfg_attr(
        not(feature = "metrics"),
        expect(clippy::unused_self, reason = "only metrics have a gauge")
    )]
    pub(crate) fn began(&self) {
        #[cfg(feature = "metrics")]
        self.export.held_now.increment(1.0);
    }

    /// Records that a lock was released or lost after this time.
    pub(crate) fn ended(&self, held: Duration) {
        add(&self.held_us, micros(held));
        #[cfg(feature = "metrics")]
        {
            self.export.held_now.decrement(1.0);
            self.export.held.record(held);
        }
    }

    /// Counts a lock that has become at risk.
    pub(crate) fn at_risk(&self) {
        add(&self.at_risk, 1);
    }

    /// Records that a lock is no longer at risk, or no longer held, after this time at risk.
    pub(crate) fn was_at_risk(&self, time: Duration) {
        add(&self.risk_us, micros(time));
        #[cfg(feature = "metrics")]
        self.export.at_risk.record(time);
    }

    /// Counts a lock that is lost.
    pub(crate) fn lost(&self) {
        add(&self.lost, 1);
        #[cfg(feature = "metrics")]
        self.export.lost.increment(1);
    }

    pub(crate) fn replays(&self, count: u64) {
        add(&self.replays, count);
        #[cfg(feature = "metrics")]
        self.export.replays.increment(count);
    }

    pub(crate) fn add(&self, tally: Tally) {
        self.replays(tally.replays.into());
        add(&self.duplicates, tally.duplicates.into());
        add(&self.watches_missed, tally.watches_missed.into());
        #[cfg(feature = "metrics")]
        self.export.watches_missed.increment(tally.watches_missed.into());
    }

    pub(crate) fn snapshot(&self, janitor_backlog: usize) -> LockStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LockStats {
            attempts: read(&self.attempts),
            acquired: read(&self.acquired),
            at_risk: read(&self.at_risk),
            risk: Duration::from_micros(read(&self.risk_us)),
            lost: read(&self.lost),
            waited: Duration::from_micros(read(&self.waited_us)),
            held: Duration::from_micros(read(&self.held_us)),
            replays: read(&self.replays),
            duplicates_removed: read(&self.duplicates),
            watches_missed: read(&self.watches_missed),
            janitor_backlog,
        }
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
