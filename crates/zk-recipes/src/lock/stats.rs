//! Counters of a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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
    /// Unfinished duties of the client's janitor: locks that are held, attempts, and removals in
    /// progress. The number covers the whole client, not this lock alone.
    pub janitor_backlog: usize,
}

/// The counters behind [`LockStats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) attempts: AtomicU64,
    pub(crate) acquired: AtomicU64,
    pub(crate) at_risk: AtomicU64,
    pub(crate) lost: AtomicU64,
    waited_us: AtomicU64,
    held_us: AtomicU64,
    replays: AtomicU64,
    duplicates: AtomicU64,
    watches_missed: AtomicU64,
}

impl Counters {
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn waited(&self, time: Duration) {
        self.waited_us.fetch_add(micros(time), Ordering::Relaxed);
    }

    pub(crate) fn held(&self, time: Duration) {
        self.held_us.fetch_add(micros(time), Ordering::Relaxed);
    }

    pub(crate) fn replays(&self, count: u64) {
        self.replays.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, tally: Tally) {
        self.replays(tally.replays);
        self.duplicates.fetch_add(tally.duplicates, Ordering::Relaxed);
        self.watches_missed.fetch_add(tally.watches_missed, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self, janitor_backlog: usize) -> LockStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LockStats {
            attempts: read(&self.attempts),
            acquired: read(&self.acquired),
            at_risk: read(&self.at_risk),
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

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
