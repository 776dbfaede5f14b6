//! Why a client could not connect, or could not hand its session over.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

use super::config::ConfigError;
use super::failure::ConnectionFailure;
use super::operation::OpError;
use super::target::Refusal;
use crate::abridged::Abridged;
use crate::types::SessionId;

/// Why a session could not be handed over.
#[derive(Clone, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum HandOverError {
    /// There is no session, or it was handed over before.
    #[error("there is no session to hand over")]
    NoSession,
    /// The client's runtime did not run: it is blocked, or nobody drives it. If it had not begun to
    /// hand the session over, the client goes on when the runtime runs again; otherwise the session
    /// expires.
    #[error(
        "the session is not handed over, because the runtime in which the client was built did not \
         run in that time; it has to run as long as the client is used"
    )]
    RuntimeStopped,
    /// Recipes still use the session, so znodes would stay that nobody can delete. The client goes
    /// on as before.
    #[error(
        "the session is not handed over, because after {within:?} recipes still use it at {}, or \
         have not yet found out there what a lost request has left; release locks and leases, leave \
         groups and barriers, end what waits for them, and try again while a server answers",
        listed(.paths)
    )]
    Unfinished {
        /// How long the client waits for recipes.
        within: Duration,
        /// Paths of the recipes.
        paths: Vec<String>,
    },
}

jute_codec::debug_by_message!(HandOverError);

/// Why a client could not connect.
#[derive(Clone, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ConnectError {
    /// A server refused the credentials.
    #[error("a server refused the credentials of the client; check its `auth` and `sasl`")]
    AuthFailed,
    /// The chroot is missing and could not be created.
    #[error("cannot create the chroot {path:?}: {}", AtServer(.error), path = Abridged(.path))]
    Chroot {
        /// Path of the chroot on the server.
        path: String,
        /// Why it could not be created.
        error: OpError,
    },
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The session of the ticket has ended, or the ticket is not valid for it. The client is closed.
    #[error(
        "the session {session} cannot be resumed: it has ended, or the ticket is not valid for it"
    )]
    NotResumed {
        /// The session.
        session: SessionId,
    },
    /// The client stopped before it was connected. Either the session expired and the client may
    /// not open another ([`renew_after_expiry`](crate::ClientBuilder::renew_after_expiry)), or the
    /// transport panicked in the session's task, or the runtime shut down.
    #[error("the client stopped before it was connected to {hosts}{}", and_failure(.hosts, .last_failure.as_ref()))]
    Stopped {
        /// The hosts of the connect string.
        hosts: String,
        /// The last failure.
        last_failure: Option<ConnectionFailure>,
    },
    /// No server completed the connection in time.
    #[error("no server of {hosts} answered within {waited:?}{}", and_failure(.hosts, .last_failure.as_ref()))]
    TimedOut {
        /// The hosts of the connect string.
        hosts: String,
        /// How long the client waited.
        waited: Duration,
        /// The last failure, or how far the only attempt has progressed.
        last_failure: Option<ConnectionFailure>,
    },
}

jute_codec::debug_by_message!(ConnectError);

/// The end of a message that begins with the hosts. It names the host that failed, unless it is the
/// only one.
fn and_failure(hosts: &str, failure: Option<&ConnectionFailure>) -> String {
    match failure {
        None => String::new(),
        Some(ConnectionFailure { host, cause }) if host.to_string() == hosts => {
            format!(" (last failure: {cause})")
        }
        Some(failure) => format!(" (last failure: {failure})"),
    }
}

/// An error whose path is that on the servers.
struct AtServer<'a>(&'a OpError);

impl fmt::Display for AtServer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(error) = self;
        if let OpError::Server { code, target } = error {
            write!(f, "{}", Refusal { code: *code, target, place: None, is_at_server: true })
        } else {
            write!(f, "{error}")
        }
    }
}

fn listed(paths: &[String]) -> String {
    let paths: Vec<_> = paths.iter().map(|path| Abridged(path).to_string()).collect();
    paths.join(", ")
}
