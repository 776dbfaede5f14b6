//! Counters of a client.

use std::fmt;
use std::time::Duration;

use jute_codec::OpCode;

use crate::operation::table::Facts;
use crate::report::latency::Latencies;

crate::figures! {
    /// A snapshot of what a client has done since it was built; see
    /// [`Client::stats`](crate::Client::stats).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
    /// # let address = server.listen("127.0.0.1:0").await?;
    /// use zk_session::Client;
    ///
    /// let client = Client::connect(address.to_string()).await?;
    /// client.get_data("/zookeeper").await?;
    /// let stats = client.stats();
    /// let reads = stats.request("get_data").expect("there was one");
    /// assert_eq!(reads.completed, 1);
    /// println!("99 % of the reads took at most {:?}", reads.latency(0.99));
    /// # Ok(()) }
    /// ```
    #[derive(Clone, Debug, Default, Eq, PartialEq)]
    #[non_exhaustive]
    pub struct Stats
    counts {
        /// Bytes that the transport has accepted.
        bytes_sent = Bytes "zk_sent_bytes_total"
            "Bytes that the transport has accepted.";
        /// Bytes received.
        bytes_received = Bytes "zk_received_bytes_total"
            "Bytes received.";
        /// Attempts to connect to a server.
        attempts = Counter "zk_connect_attempts_total"
            "Attempts to connect to a server.";
        /// Attempts that succeeded: a session was opened or resumed.
        connections = Counter "zk_connections_total"
            "Attempts that succeeded: a session was opened or resumed.";
        /// Connections that were lost after that.
        connections_lost = Counter "zk_connections_lost_total"
            "Connections that were lost after they had been made.";
        /// Sessions that were opened.
        sessions = Counter "zk_sessions_total"
            "Sessions that were opened.";
        /// Sessions that expired, or must have expired. Closed sessions do not count.
        sessions_lost = Counter "zk_sessions_lost_total"
            "Sessions that expired, or must have expired. Closed sessions do not count.";
        /// Watch events that were delivered to watchers and locks.
        watch_events = Counter "zk_watch_events_total"
            "Watch events that were delivered.";
    }
    times {
        /// Total time without a connection since the first one. The current outage is included once
        /// it ends.
        disconnected = "zk_outage_seconds"
            "Time without a connection, recorded when the outage ends.";
    }
    levels {
        /// Watches that are registered now.
        watches = "zk_watches"
            "Watches that are registered.";
        /// Operations that wait or are in flight now.
        pending = "zk_requests_pending"
            "Operations that wait or are in flight.";
    }
    gauges {
        clients = "zk_clients"
            "Clients of this process whose task runs.";
        connected = "zk_clients_connected"
            "Clients that have a session and a connection.";
    }
    others {
        /// The requests by operation, in the order of the first request of each.
        requests: Vec<RequestStats>;
    }
}

impl Stats {
    /// Returns the counters of an operation, such as `get_data` or `multi`; see
    /// [`RequestStats::operation`]. Returns `None` if no such request has ended yet.
    pub fn request(&self, operation: &str) -> Option<&RequestStats> {
        self.requests.iter().find(|requests| requests.operation == operation)
    }
}

/// The requests of one operation that have ended.
#[derive(Clone, Eq, PartialEq)]
#[non_exhaustive]
pub struct RequestStats {
    /// The operation, named like the method of [`Client`](crate::Client) where there is one.
    /// `set_watches` restores watches after a reconnect, and `close` ends the session.
    pub operation: &'static str,
    /// Requests that a server has executed.
    pub completed: u64,
    /// Requests that a server has refused, for example with `NO_NODE`.
    pub refused: u64,
    /// Requests that were sent, at least in part, and whose connection was lost before the reply.
    pub lost: u64,
    /// Requests whose reply was too long or could not be decoded.
    pub unusable: u64,
    pub(crate) latencies: Latencies,
}

impl RequestStats {
    /// Finds the counters of an operation, or adds them.
    pub(crate) fn of(all: &mut Vec<Self>, op: OpCode) -> &mut Self {
        let operation = Facts::of(op).name;
        // There are about twenty operations, and most clients use few of them.
        let known = all.iter().position(|requests| requests.operation == operation);
        let index = known.unwrap_or_else(|| {
            // Most sessions use few operations.
            all.reserve_exact(1);
            all.push(Self::new(operation));
            all.len() - 1
        });
        all.get_mut(index).expect("the index is valid")
    }

    fn new(operation: &'static str) -> Self {
        let latencies = Latencies::default();
        Self { operation, completed: 0, refused: 0, lost: 0, unusable: 0, latencies }
    }

    /// Returns the latency that this share of the requests with a reply did not exceed: 0.5 is the
    /// median. The value is at most a fifth above or below the true one. Returns zero if no reply
    /// has arrived.
    ///
    /// The latency is the time between handing the last byte of a request to the transport and its
    /// reply. It does not include the time for which a request waited for a connection, or behind
    /// others on a slow link.
    pub fn latency(&self, share: f64) -> Duration {
        self.latencies.quantile(share)
    }

    /// Returns the mean latency of the requests with a reply, or zero if there are none.
    pub fn mean_latency(&self) -> Duration {
        self.latencies.mean()
    }

    /// Returns the longest latency of the requests with a reply.
    pub fn longest_latency(&self) -> Duration {
        self.latencies.longest()
    }
}

impl fmt::Debug for RequestStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestStats")
            .field("operation", &self.operation)
            .field("completed", &self.completed)
            .field("refused", &self.refused)
            .field("lost", &self.lost)
            .field("unusable", &self.unusable)
            .field("p50", &self.latency(0.5))
            .field("p99", &self.latency(0.99))
            .field("longest", &self.longest_latency())
            .finish()
    }
}
