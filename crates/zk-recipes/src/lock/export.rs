//! Exports the counters of locks through the `metrics` facade.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use zk_session::metrics::{Metric, MetricKind, describe};

/// The metrics of a lock and its clones. Locks of the same recipe share them.
#[derive(Debug)]
pub(super) struct Export {
    pub(super) attempts: Counter,
    pub(super) waited: Histogram,
    pub(super) held: Histogram,
    pub(super) held_now: Gauge,
    pub(super) at_risk: Histogram,
    pub(super) lost: Counter,
    pub(super) replays: Counter,
    pub(super) watches_missed: Counter,
}

const ATTEMPTS: Metric = Metric {
    name: "zk_lock_attempts_total",
    kind: MetricKind::Counter,
    description: "Attempts to acquire. An acquire starts another one when its session ends.",
};
const WAIT: Metric = Metric {
    name: "zk_lock_wait_seconds",
    kind: MetricKind::Seconds,
    description: "Time from the start of an acquire to its grant. Acquires that fail do not count.",
};
const HOLD: Metric = Metric {
    name: "zk_lock_hold_seconds",
    kind: MetricKind::Seconds,
    description: "Time from the grant of a lock to its release or loss, recorded at the end.",
};
const HELD: Metric = Metric {
    name: "zk_locks_held",
    kind: MetricKind::Gauge,
    description: "Locks that are held, certainly or at risk.",
};
const AT_RISK: Metric = Metric {
    name: "zk_lock_at_risk_seconds",
    kind: MetricKind::Seconds,
    description: "Time for which a lock that was held was at risk, recorded at the end.",
};
const LOST: Metric = Metric {
    name: "zk_locks_lost_total",
    kind: MetricKind::Counter,
    description: "Locks that were lost while they were held.",
};
const REPLAYS: Metric = Metric {
    name: "zk_lock_replays_total",
    kind: MetricKind::Counter,
    description: "Requests that were repeated or verified after a lost connection.",
};
const WATCHES_MISSED: Metric = Metric {
    name: "zk_lock_watches_missed_total",
    kind: MetricKind::Counter,
    description: "Changes that no watch has reported. This number should stay 0.",
};
const ALL: &[Metric] = &[ATTEMPTS, WAIT, HOLD, HELD, AT_RISK, LOST, REPLAYS, WATCHES_MISSED];

impl Export {
    /// Describes and registers the metrics with the recorder that is installed now.
    pub(super) fn new(recipe: &'static str) -> Self {
        describe(ALL);
        Self {
            attempts: counter!(ATTEMPTS.name, "recipe" => recipe),
            waited: histogram!(WAIT.name, "recipe" => recipe),
            held: histogram!(HOLD.name, "recipe" => recipe),
            held_now: gauge!(HELD.name, "recipe" => recipe),
            at_risk: histogram!(AT_RISK.name, "recipe" => recipe),
            lost: counter!(LOST.name, "recipe" => recipe),
            replays: counter!(REPLAYS.name, "recipe" => recipe),
            watches_missed: counter!(WATCHES_MISSED.name, "recipe" => recipe),
        }
    }
}
