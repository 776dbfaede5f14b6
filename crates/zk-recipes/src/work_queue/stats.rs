//! Counters of a work queue.

use std::time::Duration;

use crate::lock::figures::{Count, Level, Time};

/// The name in metrics of the locks of a queue: the turn of its takers, and the leases of its items.
pub(super) const METRIC: &str = "work_queue";

zk_session::figures! {
    /// A snapshot of the counters of a work queue and its clones, since the queue was built. They show
    /// what this client has done, and not what the queue contains; see
    /// [`length`](crate::WorkQueue::length).
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    #[non_exhaustive]
    pub struct QueueStats
    counts {
        /// Items that were put. A put whose caller did not wait for its end is not counted.
        put = Counter "zk_queue_items_put_total" "Items that were put into queues.";
        /// Items that were leased.
        taken = Counter "zk_queue_items_taken_total" "Items that were leased.";
        /// Items that were acknowledged.
        acknowledged = Counter "zk_queue_items_acknowledged_total"
            "Items that were acknowledged.";
        /// Items that were leased and not acknowledged, as far as this client knows: they were given
        /// back or dropped, their lease was lost, or their acknowledgement has failed.
        returned = Counter "zk_queue_items_returned_total"
            "Items that were leased and not acknowledged: they were given back or dropped, their lease was lost, or their acknowledgement has failed.";
    }
    times {
        /// Total time from the lease of an item to its acknowledgement or return.
        leased = "zk_queue_lease_seconds"
            "Time from the lease of an item to its acknowledgement or return, recorded at the end.";
    }
    levels {
        /// Items that cannot be delivered to this client, as [`blocked`](crate::WorkQueue::blocked)
        /// returns them.
        blocked;
    }
    gauges {
        leased_now = "zk_queue_items_leased" "Items that are leased, and neither acknowledged nor returned.";
    }
    others {}
}

/// The counters behind [`QueueStats`].
#[derive(Debug)]
pub(super) struct Counters {
    counts: Counts<Count>,
    times: Times<Time>,
    gauges: Gauges<Level>,
}

impl Counters {
    /// Creates counters, all 0.
    pub(super) fn new() -> Self {
        Self {
            counts: Counts::METRICS.map(|metric| Count::new(*metric, None)),
            times: Times::METRICS.map(|metric| Time::new(*metric, None)),
            gauges: Gauges::METRICS.map(|metric| Level::new(*metric, None)),
        }
    }

    /// Counts items that were put.
    pub(super) fn put(&self, items: usize) {
        self.counts.put.add(u64::try_from(items).unwrap_or(u64::MAX));
    }

    /// Records that an item is leased from now on.
    pub(super) fn began(&self) {
        self.counts.taken.add(1);
        self.gauges.leased_now.change(1.0);
    }

    /// Records that an item that was leased for this time is not leased any more.
    pub(super) fn ended(&self, is_acknowledged: bool, leased: Duration) {
        let count = if is_acknowledged { &self.counts.acknowledged } else { &self.counts.returned };
        count.add(1);
        self.times.leased.add(leased);
        self.gauges.leased_now.change(-1.0);
    }

    pub(super) fn snapshot(&self, blocked: usize) -> QueueStats {
        let (counts, times) = (self.counts.map(Count::sum), self.times.map(Time::sum));
        QueueStats::of(&counts, &times, &Levels { blocked })
    }
}
