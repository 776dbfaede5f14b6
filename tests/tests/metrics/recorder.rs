//! A recorder that keeps every metric in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

/// A description: the kind of the metric, its unit, and its meaning.
type Description = (&'static str, String, String);

/// A metric as a recorder knows it.
pub(crate) struct Exported {
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) unit: String,
    /// The keys of its labels.
    pub(crate) labels: Vec<String>,
    pub(crate) meaning: String,
}

/// Keeps descriptions by name, and values by name and labels.
#[derive(Default)]
pub(crate) struct Memory {
    descriptions: Mutex<BTreeMap<String, Description>>,
    values: Mutex<BTreeMap<String, Arc<Value>>>,
}

/// The value of a counter or gauge, or the number and sum of the values of a histogram.
#[derive(Default)]
struct Value(Mutex<(u64, f64)>);

impl Value {
    fn change(&self, change: impl FnOnce(f64) -> f64) {
        let mut value = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *value = (value.0 + 1, change(value.1));
    }
}

impl CounterFn for Value {
    fn increment(&self, value: u64) {
        self.change(|old| old + value as f64);
    }

    fn absolute(&self, _: u64) {
        panic!("counters are incremented");
    }
}

impl GaugeFn for Value {
    fn increment(&self, value: f64) {
        self.change(|old| old + value);
    }

    fn decrement(&self, value: f64) {
        self.change(|old| old - value);
    }

    fn set(&self, _: f64) {
        panic!("a gauge is the sum over all clients, so nobody may set it");
    }
}

impl HistogramFn for Value {
    fn record(&self, value: f64) {
        self.change(|old| old + value);
    }
}

impl Memory {
    /// Returns the value of a counter or gauge, or the sum of a histogram. A series is a name,
    /// followed by its labels: `zk_requests_total operation=create result=completed`.
    pub(crate) fn value(&self, series: &str) -> f64 {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let value = values.get(series).unwrap_or_else(|| panic!("{series} is not registered"));
        value.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    /// Returns how many values a histogram has, or how often a counter or gauge was set.
    pub(crate) fn count(&self, series: &str) -> u64 {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let value = values.get(series).unwrap_or_else(|| panic!("{series} is not registered"));
        value.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// Returns all series.
    pub(crate) fn series(&self) -> Vec<String> {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values.keys().cloned().collect()
    }

    /// Returns all metrics that are described, in the order of their names.
    pub(crate) fn metrics(&self) -> Vec<Exported> {
        let descriptions = self.descriptions.lock().unwrap_or_else(PoisonError::into_inner);
        let series = self.series();
        let exported = |(name, (kind, unit, meaning)): (&String, &Description)| {
            let of_it = |series: &&String| series.split(' ').next() == Some(name);
            let mut labels = Vec::new();
            for label in series.iter().filter(of_it).flat_map(|series| series.split(' ').skip(1)) {
                let key = label.split('=').next().unwrap_or_default().to_owned();
                if !labels.contains(&key) {
                    labels.push(key);
                }
            }
            let (name, meaning) = (name.clone(), meaning.clone());
            Exported { name, kind, unit: unit.clone(), labels, meaning }
        };
        descriptions.iter().map(exported).collect()
    }

    fn describe(&self, kind: &'static str, name: KeyName, unit: Option<Unit>, text: SharedString) {
        let unit = unit.map(|unit| unit.as_str().to_owned()).unwrap_or_default();
        let mut descriptions = self.descriptions.lock().unwrap_or_else(PoisonError::into_inner);
        descriptions.insert(name.as_str().to_owned(), (kind, unit, text.into_owned()));
    }

    fn register(&self, key: &Key) -> Arc<Value> {
        let mut series = key.name().to_owned();
        for label in key.labels() {
            series.push_str(&format!(" {}={}", label.key(), label.value()));
        }
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(values.entry(series).or_default())
    }
}

impl Recorder for Memory {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe("counter", name, unit, text);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe("gauge", name, unit, text);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe("histogram", name, unit, text);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.register(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.register(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.register(key))
    }
}
