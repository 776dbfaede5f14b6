//! What an operator asks first about a client.

use std::fmt;
use std::time::Duration;

use crate::driver::shared::Shared;
use crate::ensemble::ConfigVersion;
use crate::error::ConnectionFailure;
use crate::host::Host;
use crate::machine::SessionState;
use crate::types::SessionId;

/// A snapshot of a client for probes and operators; see [`Client::health`](crate::Client::health).
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
/// # let address = server.listen("127.0.0.1:0").await?;
/// use zk_session::Client;
///
/// let client = Client::connect(address.to_string()).await?;
/// let health = client.health();
/// assert!(health.is_ready());
/// println!("{health}");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Health {
    /// The state of the session.
    pub state: SessionState,
    /// The session, if there is one.
    pub session: Option<SessionId>,
    /// The server of the connection, if the session is connected.
    pub server: Option<Host>,
    /// How long the session has been connected or, if it is not, without a connection. `None`
    /// before the first connection.
    pub since: Option<Duration>,
    /// Time since the newest acknowledged request was sent. It grows to a third of the session
    /// timeout while the client is idle.
    pub acknowledged: Option<Duration>,
    /// The session timeout in force.
    pub timeout: Duration,
    /// How long no other session can own this session's locks, whatever happens. `None` if there is
    /// no lease: it is disabled, or the session timeout is too short. Zero if it is over, for example
    /// because no lock has needed one for a while.
    pub lease: Option<Duration>,
    /// The version of the configuration of the ensemble whose servers the client uses. `None` unless
    /// it [follows the ensemble](crate::ClientBuilder::follow_ensemble), and before it uses such a
    /// list.
    pub config: Option<ConfigVersion>,
    /// Number of operations that wait or are in flight.
    pub pending: usize,
    /// Why the last connection was lost or could not be opened. A later connection does not clear
    /// this value.
    pub last_failure: Option<ConnectionFailure>,
    is_prompt: bool,
}

impl Health {
    pub(crate) fn of(shared: &Shared) -> Self {
        let status = shared.status();
        let view = shared.ends.connection.borrow().clone();
        let now = shared.clock.now();
        let is_connected =
            matches!(status.state, SessionState::Connected | SessionState::ConnectedReadOnly);
        Self {
            state: status.state,
            session: status.session,
            server: view.server().filter(|_| is_connected).cloned(),
            since: view.changed.map(|changed| now.saturating_since(changed)),
            acknowledged: status.acknowledged.map(|sent| now.saturating_since(sent)),
            timeout: status.timeout,
            lease: status.lease_deadline().map(|deadline| deadline.saturating_since(now)),
            config: shared.followed(),
            pending: shared.ends.queued.total(),
            last_failure: shared.last_failure(),
            is_prompt: status.overdue_from.is_some_and(|overdue| now < overdue),
        }
    }

    /// Returns true if the session is connected and the server acknowledges requests in time.
    ///
    /// A chroot that is missing does not matter, although all operations fail then. This is what a
    /// readiness probe asks. Do not use it for a liveness probe: a process that is
    /// restarted because ZooKeeper does not answer loses its session, and is no healthier than
    /// before.
    pub fn is_ready(&self) -> bool {
        self.state == SessionState::Connected && self.is_prompt
    }
}

/// One line, for logs and status pages.
impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.server, self.since) {
            (Some(server), _) if self.state == SessionState::ConnectedReadOnly => {
                write!(f, "connected to {server}, which is read-only")?;
            }
            (Some(server), Some(since)) => write!(f, "connected to {server} for {since:.1?}")?,
            (_, Some(since)) => write!(f, "{:?} for {since:.1?}", self.state)?,
            (_, None) => write!(f, "{:?}, never connected", self.state)?,
        }
        if let Some(session) = self.session {
            write!(f, ", session {session} with timeout {:?}", self.timeout)?;
        }
        if let Some(acknowledged) = self.acknowledged {
            write!(f, ", last acknowledged {acknowledged:.1?} ago")?;
        }
        if let Some(lease) = self.lease {
            if lease.is_zero() {
                f.write_str(", lease over")?;
            } else {
                write!(f, ", leased for {lease:.1?}")?;
            }
        }
        if let Some(version) = self.config {
            write!(f, ", configuration {version}")?;
        }
        write!(f, ", {} pending", self.pending)?;
        match &self.last_failure {
            Some(failure) if self.server.is_none() => write!(f, ", last failure: {failure}"),
            _ => Ok(()),
        }
    }
}
