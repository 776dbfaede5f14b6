//! Counters of a client.

use std::fmt;
use std::time::Duration;

use jute_codec::OpCode;

use crate::latency::Latencies;
use crate::operations::Facts;

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
pub struct Stats {
    /// Bytes that the transport has accepted.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Attempts to connect to a server.
    pub attempts: u64,
    /// Attempts that succeeded: a session was opened or resumed.
    pub connections: u64,
    /// Connections that were lost after that.
    pub connections_lost: u64,
    /// Sessions that were opened.
    pub sessions: u64,
    /// Sessions that expired, or must have expired. Closed sessions do not count.
    pub sessions_lost: u64,
    /// Total time without a connection since the first one. The current outage is included once it
    /// ends.
    pub disconnected: Duration,
    /// Watch events that were delivered to watchers and locks.
    pub watch_events: u64,
    /// Watches that are registered now.
    pub watches: usize,
    /// Operations that wait or are in flight now.
    pub pending: usize,
    /// The requests by operation, in the order of the first request of each.
    pub requests: Vec<RequestStats>,
}

impl Stats {
    /// Returns the counters of an operation, such as `get_data` or `multi`; see
    /// [`RequestStats::operation`]. Returns `None` if no such request has ended yet.
    pub fn request(&self, operation: &str) -> Option<&RequestStats> {
        self.requests.iter().find(|requests| requests.operation == operation)
    }

    pub(crate) fn of(&mut self, op: OpCode) -> &mut RequestStats {
        let operation = Facts::of(op).name;
        // There are about twenty operations, and most clients use few of them.
        let known = self.requests.iter().position(|requests| requests.operation == operation);
        let index = known.unwrap_or_else(|| {
            // Most sessions use few operations.
            self.requests.reserve_exact(1);
            self.requests.push(RequestStats::new(operation));
            self.requests.len() - 1
        });
        self.requests.get_mut(index).expect("the index is valid")
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
