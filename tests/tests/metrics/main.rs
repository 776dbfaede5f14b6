//! The metrics that clients and locks export, and the files that use their names.

#![expect(clippy::unwrap_used, reason = "helpers fail by a panic, as the tests they serve do")]

mod recorder;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use zk_recipes::{ExclusiveLock, FairLock};
use zk_session::{CreateMode, OpError, SessionState};
use zk_tests::page;
use zk_tests::world::{World, run, sleep_ms};

use crate::recorder::Memory;

/// Files that name metrics.
const USERS: [&str; 2] = ["observability/alerts.yml", "observability/grafana.json"];

/// Runs a client and its locks through everything that has a metric.
async fn eventful(world: &World) {
    let client = world.client(1).await;
    let other = world.client(2).await;
    let fair = FairLock::new(&client, "/fair").unwrap();
    let exclusive = ExclusiveLock::new(&client, "/exclusive").unwrap();

    let guard = fair.acquire().await.unwrap();
    sleep_ms(500).await;
    client.create("/znode", "", CreateMode::Persistent).await.unwrap();
    client.delete("/missing", None).await.unwrap_err();
    let (_, mut watcher) = client.get_data_and_watch("/znode").await.unwrap();
    other.set_data("/znode", "new", None).await.unwrap();
    watcher.changed().await.unwrap();

    // The connection is lost for two seconds, with a request in flight.
    let pending = client.get_acl("/znode");
    world.server.refuse_for(std::time::Duration::from_secs(2));
    world.server.disconnect_all();
    assert!(matches!(pending.await, Err(OpError::ConnectionLoss { .. })));
    let mut states = client.states();
    while states.current().state != SessionState::Connected {
        states.next().await.unwrap();
    }
    sleep_ms(500).await;
    assert_eq!(fair.stats().at_risk, 1);
    guard.release().await.unwrap();

    // The session expires while a lock is held.
    let guard = exclusive.acquire().await.unwrap();
    world.server.expire(client.session_id().unwrap());
    guard.lost().await;
    while client.session_id().is_none() {
        states.next().await.unwrap();
    }
    client.sync("/").await.unwrap();

    let stats = client.stats();
    assert_eq!(stats.request("delete").unwrap().refused, 1);
    assert!(stats.request("create").unwrap().completed >= 1);
    assert_eq!(stats.request("get_acl").unwrap().lost, 1);
    assert_eq!((stats.sessions, stats.sessions_lost), (2, 1));
    assert_eq!((stats.connections, stats.connections_lost), (3, 2));
    assert!(stats.attempts >= stats.connections);
    assert!(stats.disconnected.as_millis() >= 2_000, "{:?}", stats.disconnected);
    assert!(stats.watch_events >= 1);
    let risk = fair.stats().risk;
    assert!(risk.as_millis() >= 1_900, "{risk:?}");
    assert_eq!(exclusive.stats().lost, 1);
    drop(guard);
    client.close().await;
    other.close().await;
}

#[test]
fn the_exported_numbers_are_those_of_the_counters() {
    let memory = Memory::default();
    let guard = metrics::set_default_local_recorder(&memory);
    run(async {
        let world = World::new();
        eventful(&world).await;
        // The task takes its shares of the gauges back when it ends.
        sleep_ms(1_000).await;
    });
    drop(guard);
    assert_eq!(memory.value("zk_requests_total operation=delete result=refused"), 1.0);
    assert_eq!(memory.value("zk_requests_total operation=get_acl result=lost"), 1.0);
    assert_eq!(memory.value("zk_requests_total operation=close result=completed"), 2.0);
    assert_eq!(memory.value("zk_sessions_total"), 3.0);
    assert_eq!(memory.value("zk_sessions_lost_total"), 1.0);
    assert!(memory.value("zk_outage_seconds") >= 2.0);
    assert_eq!(memory.value("zk_locks_lost_total recipe=exclusive"), 1.0);
    assert_eq!(memory.value("zk_lock_attempts_total recipe=fair"), 1.0);
    assert_eq!(memory.count("zk_lock_hold_seconds recipe=fair"), 1);
    assert!(memory.value("zk_lock_at_risk_seconds recipe=fair") >= 1.9);
    assert!(memory.value("zk_lock_hold_seconds recipe=fair") >= 3.0);
    let (sent, received) = ("zk_sent_bytes_total", "zk_received_bytes_total");
    assert!(memory.value(sent) > 100.0 && memory.value(received) > 100.0);
    let gauges = memory.descriptions.lock().unwrap();
    for (series, value) in memory.series() {
        let name = series.split(' ').next().unwrap();
        if gauges[name].0 == "gauge" {
            assert_eq!(value, 0.0, "{series} at the end");
        }
    }
}

#[test]
fn the_page_lists_all_metrics_and_the_dashboard_and_the_alerts_use_no_others() {
    let memory = Memory::default();
    let guard = metrics::set_default_local_recorder(&memory);
    run(async {
        let world = World::new();
        eventful(&world).await;
    });
    drop(guard);
    let mut labels = BTreeMap::new();
    for (series, _) in memory.series() {
        let mut words = series.split(' ');
        let name = words.next().unwrap().to_owned();
        let keys: Vec<_> = words.map(|label| label.split('=').next().unwrap().to_owned()).collect();
        labels.insert(name, keys.join(", "));
    }
    let descriptions = memory.descriptions.lock().unwrap();
    let described: BTreeSet<_> = descriptions.keys().collect();
    assert_eq!(described, labels.keys().collect(), "every metric is described and registered");

    let mut text = String::new();
    for (name, (kind, unit, meaning)) in &*descriptions {
        let unit = if unit == "count" { "" } else { &format!(" in {unit}") };
        let labels = labels[name].as_str();
        let by = if labels.is_empty() { "" } else { &format!(" by {labels}") };
        writeln!(text, "{name}\n    {kind}{unit}{by}").unwrap();
        for line in wrapped(meaning, 44) {
            writeln!(text, "    {line}").unwrap();
        }
    }
    page::check("metrics.md", "metrics", &text);

    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    for file in USERS {
        let text = std::fs::read_to_string(docs.join(file)).unwrap();
        let used: BTreeSet<&str> = text
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .filter(|word| word.starts_with("zk_"))
            .map(|word| {
                ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|suffix| word.strip_suffix(suffix))
                    .filter(|name| descriptions.get(*name).is_some_and(|d| d.0 == "histogram"))
                    .unwrap_or(word)
            })
            .collect();
        assert!(used.len() >= 5, "{file} uses metrics");
        for name in used {
            assert!(descriptions.contains_key(name), "{file} uses {name}, which does not exist");
        }
    }
    let dashboard = std::fs::read(docs.join("observability/grafana.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_slice(&dashboard).unwrap();
    let shown = dashboard["panels"].to_string();
    for name in descriptions.keys() {
        assert!(shown.contains(name.as_str()), "the dashboard does not show {name}");
    }
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
