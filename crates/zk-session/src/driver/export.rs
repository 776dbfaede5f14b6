//! Exports what a client does through the `metrics` facade.

use std::collections::BTreeMap;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use super::round::Round;
use crate::machine::sample::{Fate, Sample};
use crate::machine::{SessionMachine, SessionState};
use crate::metrics as names;
use crate::operations::Facts;

/// The metrics of one client. All clients of a process share the same metrics, so a gauge is the
/// sum over all clients.
pub(super) struct Export {
    requests: BTreeMap<&'static str, RequestMetrics>,
    bytes_sent: Counter,
    bytes_received: Counter,
    attempts: Counter,
    connections: Counter,
    connections_lost: Counter,
    outage: Histogram,
    sessions: Counter,
    sessions_lost: Counter,
    watch_events: Counter,
    clients: Level,
    connected: Level,
    watches: Level,
    pending: Level,
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
        let result = |result: &'static str| counter!(names::REQUESTS.name, "operation" => operation, "result" => result);
        Self {
            latency: histogram!(names::REQUEST_SECONDS.name, "operation" => operation),
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
    share: f64,
}

impl Level {
    fn new(gauge: Gauge) -> Self {
        Self { gauge, share: 0.0 }
    }

    fn set(&mut self, share: f64) {
        // These are whole numbers, so they can be compared.
        let difference = share - std::mem::replace(&mut self.share, share);
        if difference != 0.0 {
            self.gauge.increment(difference);
        }
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.set(0.0);
    }
}

impl Export {
    /// Describes and registers the metrics with the recorder that is installed now.
    pub(super) fn new() -> Self {
        names::describe(names::ALL);
        let mut export = Self {
            requests: BTreeMap::new(),
            bytes_sent: counter!(names::BYTES_SENT.name),
            bytes_received: counter!(names::BYTES_RECEIVED.name),
            attempts: counter!(names::ATTEMPTS.name),
            connections: counter!(names::CONNECTIONS.name),
            connections_lost: counter!(names::CONNECTIONS_LOST.name),
            outage: histogram!(names::OUTAGE_SECONDS.name),
            sessions: counter!(names::SESSIONS.name),
            sessions_lost: counter!(names::SESSIONS_LOST.name),
            watch_events: counter!(names::WATCH_EVENTS.name),
            clients: Level::new(gauge!(names::CLIENTS.name)),
            connected: Level::new(gauge!(names::CLIENTS_CONNECTED.name)),
            watches: Level::new(gauge!(names::WATCHES.name)),
            pending: Level::new(gauge!(names::PENDING.name)),
        };
        export.clients.set(1.0);
        export
    }

    #[expect(clippy::cast_precision_loss, reason = "no client has 2^52 watches or requests")]
    pub(super) fn set_levels(&mut self, machine: &SessionMachine) {
        let is_connected = machine.status().state == SessionState::Connected;
        self.connected.set(f64::from(u8::from(is_connected)));
        self.watches.set(machine.watch_count() as f64);
        self.pending.set(machine.outstanding() as f64);
    }

    pub(super) fn round(&mut self, round: &Round, samples: &[Sample]) {
        let Round {
            bytes_sent,
            bytes_received,
            attempts,
            connections,
            connections_lost,
            sessions,
            sessions_lost,
            watch_events,
            outage,
        } = round;
        self.bytes_sent.increment(*bytes_sent);
        self.bytes_received.increment(*bytes_received);
        self.attempts.increment(*attempts);
        self.connections.increment(*connections);
        self.connections_lost.increment(*connections_lost);
        self.sessions.increment(*sessions);
        self.sessions_lost.increment(*sessions_lost);
        self.watch_events.increment(*watch_events);
        if let Some(outage) = outage {
            self.outage.record(*outage);
        }
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
