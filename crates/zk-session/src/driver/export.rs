//! Exports what a client does through the `metrics` facade.

use std::collections::BTreeMap;

use metrics::{Counter, Gauge, Histogram, Label};

use super::round::Round;
use crate::machine::sample::{Fate, Sample};
use crate::operation::table::Facts;
use crate::report::metrics::{Metric, MetricKind, counter, describe, gauge, histogram};
use crate::report::stats::{Counts, Gauges, Levels, Times};

const REQUESTS: Metric = Metric {
    name: "zk_requests_total",
    kind: MetricKind::Counter,
    description: "Requests that have ended. The result is completed, refused (by the server), lost \
                  (with the connection) or unusable (a reply too long or malformed).",
};
const REQUEST_SECONDS: Metric = Metric {
    name: "zk_request_seconds",
    kind: MetricKind::Seconds,
    description: "Time from the sending of a request to its reply.",
};

/// The metrics of one client. All clients of a process share the same metrics, so a gauge is the
/// sum over all clients.
pub(super) struct Export {
    counts: Counts<Counter>,
    times: Times<Histogram>,
    levels: Levels<Level>,
    gauges: Gauges<Level>,
    requests: BTreeMap<&'static str, RequestMetrics>,
}

struct RequestMetrics {
    latency: Histogram,
    completed: Counter,
    refused: Counter,
    lost: Counter,
    unusable: Counter,
}

impl RequestMetrics {
    fn new(operation: &'static str) -> Self {
        let operation = Label::from_static_parts("operation", operation);
        let result = |result| {
            let result = Label::from_static_parts("result", result);
            counter(Some(REQUESTS), &[operation.clone(), result])
        };
        Self {
            latency: histogram(Some(REQUEST_SECONDS), std::slice::from_ref(&operation)),
            completed: result("completed"),
            refused: result("refused"),
            lost: result("lost"),
            unusable: result("unusable"),
        }
    }
}

/// The share of this client in a gauge. It is taken back when the client ends.
struct Level {
    gauge: Gauge,
    share: usize,
}

impl Level {
    fn new(gauge: Gauge) -> Self {
        Self { gauge, share: 0 }
    }

    #[expect(clippy::cast_precision_loss, reason = "no client has 2^52 watches or requests")]
    fn set(&mut self, share: usize) {
        let before = std::mem::replace(&mut self.share, share);
        if share != before {
            self.gauge.increment(share as f64 - before as f64);
        }
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl Export {
    /// Describes and registers the metrics with the recorder that is installed now.
    pub(super) fn new() -> Self {
        describe(REQUESTS);
        describe(REQUEST_SECONDS);
        let level = |metric: &_| Level::new(gauge(*metric, &[]));
        let mut export = Self {
            counts: Counts::METRICS.map(|metric| counter(*metric, &[])),
            times: Times::METRICS.map(|metric| histogram(*metric, &[])),
            levels: Levels::METRICS.map(level),
            gauges: Gauges::METRICS.map(level),
            requests: BTreeMap::new(),
        };
        export.gauges.clients.set(1);
        export
    }

    pub(super) fn round(
        &mut self,
        round: &Round,
        samples: &[Sample],
        levels: &Levels<usize>,
        gauges: &Gauges<usize>,
    ) {
        if *round != Round::default() {
            let Round { counts, times } = round;
            self.counts.pairs(counts).for_each(|(counter, count)| counter.increment(*count));
            for (histogram, time) in self.times.pairs(times) {
                time.iter().for_each(|time| histogram.record(*time));
            }
        }
        self.levels.pairs(levels).for_each(|(level, share)| level.set(*share));
        self.gauges.pairs(gauges).for_each(|(level, share)| level.set(*share));
        for Sample { op, fate, latency } in samples {
            let operation = Facts::of(*op).name;
            let metrics =
                self.requests.entry(operation).or_insert_with(|| RequestMetrics::new(operation));
            match fate {
                Fate::Completed => metrics.completed.increment(1),
                Fate::Refused => metrics.refused.increment(1),
                Fate::Lost => metrics.lost.increment(1),
                Fate::Unusable => metrics.unusable.increment(1),
            }
            if *fate != Fate::Lost {
                metrics.latency.record(*latency);
            }
        }
    }
}
