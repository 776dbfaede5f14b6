//! The metrics that clients and locks export, and the files that use their names.
//!
//! The tests know the numbers from their declarations, so a new one needs no line here, unless the
//! scenes do not have the event that changes it.

#![expect(clippy::unwrap_used, reason = "helpers fail by a panic, as the tests they serve do")]

mod dashboard;
mod recorder;
mod scenes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use zk_session::metrics::{Metric, MetricKind};
use zk_tests::page;
use zk_tests::world::{World, run};

use crate::recorder::{Exported, Memory};
use crate::scenes::{EXCLUSIVE, FAIR, Shown, eventful};

const ALERTS: &str = "observability/alerts.yml";
const DASHBOARD: &str = "observability/grafana.json";

/// Runs the scenes, and returns what the counters have shown and what a recorder has received.
fn recorded() -> (Shown, Memory) {
    let memory = Memory::default();
    let guard = metrics::set_default_local_recorder(&memory);
    let shown = run(async {
        let world = World::new();
        eventful(&world).await
    });
    drop(guard);
    (shown, memory)
}

#[test]
fn each_number_changes_with_its_event() {
    let (shown, memory) = recorded();
    // It is enough if a number changes for the locks of one kind.
    let of_locks = |numbers: &BTreeSet<(&str, &'static str)>| -> BTreeSet<(bool, &str)> {
        numbers.iter().map(|(label, field)| (label.is_empty(), *field)).collect()
    };
    let (known, changed) = (of_locks(&shown.known), of_locks(&shown.changed));
    let unchanged: Vec<_> = known.difference(&changed).map(|(_, field)| field).collect();
    assert!(unchanged.is_empty(), "never counted, or no scene has the event: {unchanged:?}");
    for Exported { name, kind, .. } in memory.metrics() {
        let of_it = |series: &String| series.split(' ').next() == Some(&*name);
        let changed = memory.series().into_iter().filter(of_it).any(|series| match kind {
            "counter" => memory.value(&series) > 0.0,
            _ => memory.count(&series) > 0,
        });
        assert!(changed, "{name} is never exported, or no scene has the event");
    }
}

#[test]
fn the_exported_numbers_are_those_of_the_counters() {
    let (shown, memory) = recorded();
    let declared = |series: &str| -> Metric {
        let name = series.split(' ').next().unwrap();
        *shown.metrics.iter().find(|metric| metric.name == name).unwrap()
    };
    assert!(shown.exported.len() >= 20, "{:?}", shown.exported);
    for (series, counted) in &shown.exported {
        let exported = memory.value(series);
        match declared(series).kind {
            MetricKind::Bytes | MetricKind::Counter => {
                assert_eq!(exported, *counted, "{series}");
            }
            // The counters are in microseconds.
            MetricKind::Seconds => assert!((exported - counted).abs() < 1e-3, "{series}"),
            MetricKind::Gauge => {}
        }
    }
    assert_eq!(memory.value("zk_requests_total operation=delete result=refused"), 1.0);
    assert_eq!(memory.value("zk_requests_total operation=get_acl result=lost"), 1.0);
    assert_eq!(memory.value("zk_requests_total operation=close result=completed"), 3.0);
    assert_eq!(memory.value("zk_sessions_total"), 4.0);
    assert_eq!(memory.value("zk_sessions_lost_total"), 1.0);
    assert!(memory.value("zk_outage_seconds") >= 2.0);
    assert_eq!(memory.value(&format!("zk_locks_lost_total{EXCLUSIVE}")), 1.0);
    assert_eq!(memory.count(&format!("zk_lock_hold_seconds{EXCLUSIVE}")), 1);
    assert!(memory.value(&format!("zk_lock_at_risk_seconds{FAIR}")) >= 1.9);
    assert!(memory.value(&format!("zk_lock_hold_seconds{FAIR}")) >= 3.0);
    let kinds: BTreeMap<_, _> =
        memory.metrics().into_iter().map(|metric| (metric.name, metric.kind)).collect();
    for series in memory.series() {
        if kinds[series.split(' ').next().unwrap()] == "gauge" {
            assert_eq!(memory.value(&series), 0.0, "{series} at the end");
        }
    }
}

#[test]
fn the_page_lists_all_metrics_and_the_dashboard_and_the_alerts_use_no_others() {
    let (_, memory) = recorded();
    let metrics = memory.metrics();
    let registered: BTreeSet<_> =
        memory.series().iter().map(|it| it.split(' ').next().unwrap().to_owned()).collect();
    let described: BTreeSet<_> = metrics.iter().map(|metric| metric.name.clone()).collect();
    assert_eq!(described, registered, "every metric is described and registered");

    let mut text = String::new();
    for Exported { name, kind, unit, labels, meaning } in &metrics {
        let unit = if unit == "count" { "" } else { &format!(" in {unit}") };
        let by = if labels.is_empty() { "" } else { &format!(" by {}", labels.join(", ")) };
        writeln!(text, "{name}\n    {kind}{unit}{by}").unwrap();
        for line in wrapped(meaning, 44) {
            writeln!(text, "    {line}").unwrap();
        }
    }
    page::check("metrics.md", "metrics", &text);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let read = |file: &str| std::fs::read_to_string(docs.join(file)).unwrap();
    page::check_file(DASHBOARD, &dashboard::completed(&read(DASHBOARD), &metrics));

    for file in [ALERTS, DASHBOARD] {
        let text = read(file);
        let used: BTreeSet<&str> = text
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .filter(|word| word.starts_with("zk_"))
            .map(|word| {
                let histogram =
                    ["_bucket", "_sum", "_count"].iter().find_map(|it| word.strip_suffix(it));
                let is_one = |name: &&str| {
                    metrics.iter().any(|it| it.name == *name && it.kind == "histogram")
                };
                histogram.filter(is_one).unwrap_or(word)
            })
            .collect();
        assert!(used.len() >= 5, "{file} uses metrics");
        for name in used {
            assert!(described.contains(name), "{file} uses {name}, which does not exist");
        }
    }
}

#[test]
fn a_metric_that_the_dashboard_does_not_show_gets_a_panel() {
    let (_, memory) = recorded();
    let metrics = memory.metrics();
    let empty = "{\n \"panels\": [\n  {\n   \"gridPos\": {}\n  }\n ]\n}\n";
    let completed = dashboard::completed(empty, &metrics);
    let parsed: serde_json::Value = serde_json::from_str(&completed).unwrap();
    assert_eq!(parsed["panels"].as_array().unwrap().len(), metrics.len() + 1);
    for metric in &metrics {
        assert!(dashboard::shows(&completed, &metric.name), "{}", metric.name);
        assert!(!dashboard::shows(empty, &metric.name), "{}", metric.name);
    }
    let panel = &parsed["panels"][1];
    assert_eq!(panel["title"], "Clients");
    assert_eq!(panel["gridPos"], serde_json::json!({"x": 8, "y": 0, "w": 8, "h": 8}));
    let query = "sum by (instance) (zk_clients{instance=~\"$instance\"})";
    assert_eq!(panel["targets"][0]["expr"], query);
    assert_eq!(dashboard::completed(&completed, &metrics), completed);
}

/// Breaks a text into lines.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().unwrap();
        if !line.is_empty() && line.len() + 1 + word.len() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}
