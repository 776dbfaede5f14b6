//! The names of the metrics that a client exports.
//!
//! Recipes describe theirs with the same types; see [`describe`].

use metrics::Unit;

/// A metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: MetricKind,
    /// Its meaning, and its unit unless it counts something.
    pub description: &'static str,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MetricKind {
    /// A number that only grows, in bytes.
    Bytes,
    /// A number that only grows.
    Counter,
    /// A number that grows and shrinks.
    Gauge,
    /// A distribution of times in seconds.
    Seconds,
}

/// Describes metrics to the recorder that is installed now.
pub fn describe(all: &[Metric]) {
    for Metric { name, kind, description, .. } in all.iter().copied() {
        match kind {
            MetricKind::Bytes => metrics::describe_counter!(name, Unit::Bytes, description),
            MetricKind::Counter => metrics::describe_counter!(name, Unit::Count, description),
            MetricKind::Gauge => metrics::describe_gauge!(name, Unit::Count, description),
            MetricKind::Seconds => metrics::describe_histogram!(name, Unit::Seconds, description),
        }
    }
}

macro_rules! metrics {
    ($($constant:ident = $name:literal, $kind:ident, $description:literal;)*) => {
        $(
            pub(crate) const $constant: Metric = Metric {
                name: $name,
                kind: MetricKind::$kind,
                description: $description,
            };
        )*

        /// All metrics of a client.
        pub(crate) const ALL: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    CLIENTS = "zk_clients", Gauge,
        "Clients of this process whose task runs.";
    CLIENTS_CONNECTED = "zk_clients_connected", Gauge,
        "Clients that have a session and a connection.";
    REQUESTS = "zk_requests_total", Counter,
        "Requests that have ended. The result is completed, refused (by the server), lost (with \
         the connection) or unusable (a reply too long or malformed).";
    REQUEST_SECONDS = "zk_request_seconds", Seconds,
        "Time from the sending of a request to its reply.";
    PENDING = "zk_requests_pending", Gauge,
        "Operations that wait or are in flight.";
    BYTES_SENT = "zk_sent_bytes_total", Bytes,
        "Bytes that the transport has accepted.";
    BYTES_RECEIVED = "zk_received_bytes_total", Bytes,
        "Bytes received.";
    ATTEMPTS = "zk_connect_attempts_total", Counter,
        "Attempts to connect to a server.";
    CONNECTIONS = "zk_connections_total", Counter,
        "Attempts that succeeded: a session was opened or resumed.";
    CONNECTIONS_LOST = "zk_connections_lost_total", Counter,
        "Connections that were lost after they had been made.";
    OUTAGE_SECONDS = "zk_outage_seconds", Seconds,
        "Time without a connection, recorded when the outage ends.";
    SESSIONS = "zk_sessions_total", Counter,
        "Sessions that were opened.";
    SESSIONS_LOST = "zk_sessions_lost_total", Counter,
        "Sessions that expired, or must have expired. Closed sessions do not count.";
    WATCHES = "zk_watches", Gauge,
        "Watches that are registered.";
    WATCH_EVENTS = "zk_watch_events_total", Counter,
        "Watch events that were delivered.";
}
