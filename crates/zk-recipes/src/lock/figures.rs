//! Numbers that many tasks change, and that are also exported with the feature `metrics`. Locks of the
//! same recipe share a metric, whose label is the name of the recipe. The metrics of queues have none.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[cfg(feature = "metrics")]
use metrics::{Counter, Gauge, Histogram, Label};
use zk_session::metrics::Metric;
#[cfg(feature = "metrics")]
use zk_session::metrics::{counter, gauge, histogram};

/// A number that only grows.
#[derive(Debug)]
pub(crate) struct Count {
    sum: AtomicU64,
    #[cfg(feature = "metrics")]
    exported: Counter,
}

impl Count {
    pub(crate) fn new(metric: Option<Metric>, recipe: Option<&'static str>) -> Self {
        #[cfg(not(feature = "metrics"))]
        let _ = (metric, recipe);
        Self {
            sum: AtomicU64::new(0),
            #[cfg(feature = "metrics")]
            exported: counter(metric, &label(recipe)),
        }
    }

    pub(crate) fn add(&self, count: u64) {
        self.sum.fetch_add(count, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        self.exported.increment(count);
    }

    pub(crate) fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }
}

/// A time that is measured again and again.
#[derive(Debug)]
pub(crate) struct Time {
    sum_us: AtomicU64,
    #[cfg(feature = "metrics")]
    exported: Histogram,
}

impl Time {
    pub(crate) fn new(metric: Option<Metric>, recipe: Option<&'static str>) -> Self {
        #[cfg(not(feature = "metrics"))]
        let _ = (metric, recipe);
        Self {
            sum_us: AtomicU64::new(0),
            #[cfg(feature = "metrics")]
            exported: histogram(metric, &label(recipe)),
        }
    }

    pub(crate) fn add(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        self.exported.record(time);
    }

    pub(crate) fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_us.load(Ordering::Relaxed))
    }
}

/// A number that grows and shrinks, and is only exported.
#[derive(Debug)]
pub(crate) struct Level {
    #[cfg(feature = "metrics")]
    exported: Gauge,
}

impl Level {
    pub(crate) fn new(metric: Option<Metric>, recipe: Option<&'static str>) -> Self {
        #[cfg(not(feature = "metrics"))]
        let _ = (metric, recipe);
        Self {
            #[cfg(feature = "metrics")]
            exported: gauge(metric, &label(recipe)),
        }
    }

    #[cfg_attr(
        not(feature = "metrics"),
        expect(clippy::unused_self, reason = "only metrics have a gauge")
    )]
    pub(crate) fn change(&self, by: f64) {
        #[cfg(not(feature = "metrics"))]
        let _ = by;
        #[cfg(feature = "metrics")]
        self.exported.increment(by);
    }
}

#[cfg(feature = "metrics")]
fn label(recipe: Option<&'static str>) -> Vec<Label> {
    recipe.map(|recipe| Label::from_static_parts("recipe", recipe)).into_iter().collect()
}
