//! Why a lock was not obtained, or is not held any more.

use jute_codec::ErrorCode;
use thiserror::Error;
use zk_session::{ConfigError, OpError};

/// Why a lock was not obtained, or is not held any more.
///
/// After any of these nothing is held, and no contender znode stays behind: it is removed as soon
/// as a server is reachable, at the latest by the end of the session. If the servers refuse even
/// the removal, the path is logged.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum LockError {
    /// The credentials were refused.
    #[error("authentication failed")]
    AuthFailed,
    /// The client could not take the request, or could not read the answer.
    #[error("the client failed: {0}")]
    Client(OpError),
    /// The client was closed.
    #[error("client closed")]
    Closed,
    /// The lock is not held any more, or the place in the queue was lost too often.
    #[error("lock lost: {0}")]
    Lost(LostReason),
    /// A lock of another kind, or with other names, shares the directory. The two would not see
    /// each other's holders.
    #[error("{name:?} in the lock's directory is a lock of another kind")]
    MixedKinds {
        /// Name of its znode.
        name: String,
    },
    /// The directory's counter has come to its end (2^31 - 1 znodes were created in it). Delete
    /// the directory when it is empty, or use another one.
    #[error("the sequence counter of {directory:?} is exhausted")]
    QueueExhausted {
        /// The directory.
        directory: String,
    },
    /// A server refused an operation that the lock needs.
    #[error("the server refused to {operation} {path:?}: {code}")]
    Refused {
        /// Why.
        code: ErrorCode,
        /// What was to be done.
        operation: &'static str,
        /// Where.
        path: String,
    },
    /// The lock was not obtained in time.
    #[error("timed out")]
    TimedOut,
    /// The list of contenders is longer than the client's limit for replies, or the identity is
    /// longer than its limit for requests.
    #[error("a request or reply is too large: {0}")]
    TooLarge(OpError),
    /// An option cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// How a lock was lost.
#[derive(Clone, Copy, Debug, Eq, Error, Hash, PartialEq)]
#[non_exhaustive]
pub enum LostReason {
    /// The lock was at risk, and was to be treated as lost then; see
    /// [`AtRiskPolicy`](crate::AtRiskPolicy).
    #[error("the lock was at risk")]
    AtRisk,
    /// The client was closed.
    #[error("the client was closed")]
    Closed,
    /// No server has acknowledged the session for so long that it may have expired.
    #[error("no server has acknowledged the session within its timeout")]
    DeadlinePassed,
    /// The session has expired.
    #[error("the session has expired")]
    SessionExpired,
    /// Somebody deleted the contender znode.
    #[error("the contender znode is gone")]
    ZnodeDeleted,
}

/// Why a body was stopped before its end; see `Guard::run`.
#[derive(Clone, Copy, Debug, Eq, Error, Hash, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "complete by definition")]
pub enum Stopped {
    /// The lock is at risk, and the body was to be stopped then. It is still ours, as far as
    /// anybody knows.
    #[error("the lock is at risk")]
    AtRisk,
    /// The lock is lost.
    #[error("lock lost: {0}")]
    Lost(LostReason),
}

impl From<Stopped> for LockError {
    /// A body that was stopped because the lock was at risk is reported as
    /// [`LostReason::AtRisk`], although the guard may still hold the lock.
    fn from(stopped: Stopped) -> Self {
        Self::Lost(match stopped {
            Stopped::AtRisk => LostReason::AtRisk,
            Stopped::Lost(reason) => reason,
        })
    }
}

impl LockError {
    /// A definite failure of an operation that the lock needs.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is told apart by its code")]
    pub(crate) fn definite(error: OpError, operation: &'static str, path: &str) -> Self {
        match error {
            OpError::AuthFailed => Self::AuthFailed,
            OpError::Closed(_) => Self::Closed,
            OpError::RequestTooLarge { .. } | OpError::ResponseTooLarge(_) => Self::TooLarge(error),
            OpError::SessionExpired(_) => Self::Lost(LostReason::SessionExpired),
            _ => match error.server_code() {
                Some(code) => Self::Refused { code, operation, path: path.to_owned() },
                None => Self::Client(error),
            },
        }
    }
}
