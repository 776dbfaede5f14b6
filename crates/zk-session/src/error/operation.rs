//! Why an operation returned no result, or a watch no event.

use std::fmt;

use jute_codec::{DecodeError, ErrorCode};
use thiserror::Error;

use super::config::PathDefect;
use super::failure::ConnectionFailure;
use super::target::{Label, Refusal, Target};
use crate::abridged::Abridged;

/// What is known about the effect of an operation that failed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Outcome {
    /// The operation had no effect and will have none: the server refused it, or this process did
    /// not send the complete request.
    NotApplied,
    /// The operation may have taken effect, may take effect later, or may never take effect.
    Unknown,
}

/// Why an operation returned no result.
///
/// Check [`outcome`](Self::outcome) before you repeat a write. The client never repeats one.
#[derive(Clone, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum OpError {
    /// A server refused the credentials. The client has stopped, and its session will expire.
    #[error("a server refused the credentials of the client; check its `auth` and `sasl`")]
    AuthFailed,
    /// The chroot of the connect string does not exist on the servers: somebody has deleted it, or
    /// the client was built not to create it. Or it is the root of a handle that does not exist; see
    /// [`Client::rooted_at`](crate::Client::rooted_at).
    #[error("{}", MissingChroot { chroot, path })]
    ChrootMissing {
        /// The path of the chroot on the servers.
        chroot: String,
        /// The path of the znode that could not be created, as the client sees it.
        path: String,
    },
    /// The client was closed, or the runtime in which it was built has ended, and the session's task
    /// with it. An operation that is called afterwards, or that was not sent before, is
    /// [`NotApplied`](Outcome::NotApplied).
    #[error(
        "{}the client is closed, or the runtime in which it was built has ended; the operation \
         {outcome}",
        Label(.target)
    )]
    Closed {
        /// What is known about its effect.
        outcome: Outcome,
        /// The operation and its path.
        target: Target,
    },
    /// The connection was lost before the reply arrived.
    ///
    /// The session, its ephemeral znodes and its watches survive until the session timeout.
    #[error(
        "{}the connection was lost before the reply arrived; the operation {outcome}",
        Label(.target)
    )]
    ConnectionLoss {
        /// What is known about its effect.
        outcome: Outcome,
        /// The operation and its path.
        target: Target,
    },
    /// The path is not a valid absolute path of a znode. Nothing was sent.
    #[error("invalid path {path:?}: {defect}", path = Abridged(.path))]
    InvalidPath {
        /// The path as given.
        path: String,
        /// Why it is invalid.
        defect: PathDefect,
    },
    /// Too many requests are waiting or in flight. Nothing was sent.
    #[error(
        "{}{waiting} requests are already waiting; await some of them, or raise \
         `outstanding_limit`",
        Label(.target)
    )]
    QueueFull {
        /// Number of requests that are waiting or in flight.
        waiting: usize,
        /// The operation and its path.
        target: Target,
    },
    /// The caller withdrew the request before it was sent.
    #[error("{}the request was withdrawn before it was sent", Label(.target))]
    Recalled {
        /// The operation and its path.
        target: Target,
    },
    /// The request exceeds the limit. Nothing was sent.
    #[error(
        "{}the request has {length} bytes, and the limit is {limit}; store less data, or raise \
         `request_limit` here and `jute.maxbuffer` on the servers",
        Label(.target)
    )]
    RequestTooLarge {
        /// Length of the request in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
        /// The operation and its path. All operations of a [`Flight`](crate::recipe::Flight) fail
        /// with the first one that is too large.
        target: Target,
    },
    /// The reply exceeded the limit and was skipped. The server executed the operation regardless; a
    /// write has taken effect unless the server refused it.
    #[error(
        "{}the reply has {length} bytes, which is longer than the limit; raise `response_limit`. \
         The server executed the operation",
        Label(.target)
    )]
    ResponseTooLarge {
        /// Length of the reply in bytes.
        length: usize,
        /// The operation and its path.
        target: Target,
    },
    /// The server refused the operation.
    #[error("{}", Refusal { code: *code, target, place: None, is_at_server: false })]
    Server {
        /// The error code of the server.
        code: ErrorCode,
        /// The operation and its path.
        target: Target,
    },
    /// The deadline of the operation passed, and the client's runtime did not run: nobody drives it,
    /// or it is blocked. The operation may have been sent before; otherwise it is never sent.
    #[error(
        "{}the deadline of the operation has passed, and the runtime in which the client was built \
         did not run in that time; it has to run as long as the client is used. The operation may \
         have been applied",
        Label(.target)
    )]
    RuntimeStopped {
        /// The operation and its path.
        target: Target,
    },
    /// The session has expired. Its ephemeral znodes are deleted, or soon will be. The client may
    /// already have opened another session.
    #[error("{}the session has expired; the operation {outcome}", Label(.target))]
    SessionExpired {
        /// What is known about its effect.
        outcome: Outcome,
        /// The operation and its path.
        target: Target,
    },
    /// The deadline of the operation passed. This does not affect the connection.
    #[error(
        "{}the deadline of the operation has passed; the operation {outcome}{}",
        Label(.target),
        Unconnected(.failure.as_deref())
    )]
    TimedOut {
        /// What is known about its effect.
        outcome: Outcome,
        /// Why the client has no connection, if it has none. It is boxed, so that other errors are
        /// not larger because of it.
        failure: Option<Box<ConnectionFailure>>,
        /// The operation and its path.
        target: Target,
    },
    /// The reply could not be decoded. This does not affect the connection.
    #[error(
        "{}the reply cannot be decoded ({error}); the operation may have been applied",
        Label(.target)
    )]
    Undecodable {
        /// Why not. It is boxed, so that other errors are not larger because of it.
        error: Box<DecodeError>,
        /// The operation and its path.
        target: Target,
    },
    /// The server does not know the operation, or the operation is disabled.
    #[error("{}the server does not know the operation, or it is disabled there", Label(.target))]
    Unsupported {
        /// The operation and its path.
        target: Target,
    },
}

jute_codec::debug_by_message!(OpError);

/// Evaluates to the target of an error, as a reference of the same kind as the argument.
macro_rules! target_of {
    ($error:expr) => {
        match $error {
            OpError::AuthFailed | OpError::ChrootMissing { .. } | OpError::InvalidPath { .. } => {
                None
            }
            OpError::Closed { target, .. }
            | OpError::ConnectionLoss { target, .. }
            | OpError::QueueFull { target, .. }
            | OpError::Recalled { target }
            | OpError::RequestTooLarge { target, .. }
            | OpError::ResponseTooLarge { target, .. }
            | OpError::RuntimeStopped { target }
            | OpError::Server { target, .. }
            | OpError::SessionExpired { target, .. }
            | OpError::TimedOut { target, .. }
            | OpError::Undecodable { target, .. }
            | OpError::Unsupported { target } => Some(target),
        }
    };
}

/// The constructors create errors whose operation and path are not known yet, or are named by the
/// error that will contain this one; [`about`](Self::about) adds them.
impl OpError {
    /// Creates the error of a closed client.
    pub const fn closed(outcome: Outcome) -> Self {
        Self::Closed { outcome, target: Target::UNKNOWN }
    }

    /// Creates the error of a lost connection.
    pub const fn connection_loss(outcome: Outcome) -> Self {
        Self::ConnectionLoss { outcome, target: Target::UNKNOWN }
    }

    /// Creates the error of a refusal.
    pub const fn server(code: ErrorCode) -> Self {
        Self::Server { code, target: Target::UNKNOWN }
    }

    /// Creates the error of a deadline that has passed.
    pub const fn timed_out(outcome: Outcome) -> Self {
        Self::TimedOut { outcome, failure: None, target: Target::UNKNOWN }
    }

    /// Creates the error of an expired session.
    pub const fn session_expired(outcome: Outcome) -> Self {
        Self::SessionExpired { outcome, target: Target::UNKNOWN }
    }

    /// Replaces the operation and the path that the error is about. Has no effect on an error that
    /// does not concern a single operation, or names its path anyway.
    #[must_use]
    pub fn about(mut self, target: Target) -> Self {
        if let Some(old) = self.target_mut() {
            *old = target;
        }
        self
    }

    /// Returns the operation and the path that the error is about. `None` if the error does not
    /// concern a single operation, or names its path in another way.
    pub fn target(&self) -> Option<&Target> {
        target_of!(self)
    }

    /// Like [`target`](Self::target), to change it.
    pub(crate) fn target_mut(&mut self) -> Option<&mut Target> {
        target_of!(self)
    }

    /// Returns what is known about the effect of the operation.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Closed { outcome, .. }
            | Self::ConnectionLoss { outcome, .. }
            | Self::SessionExpired { outcome, .. }
            | Self::TimedOut { outcome, .. } => *outcome,
            Self::Server { code, .. } if is_effect_unknown(*code) => Outcome::Unknown,
            Self::ResponseTooLarge { .. }
            | Self::RuntimeStopped { .. }
            | Self::Undecodable { .. } => Outcome::Unknown,
            Self::AuthFailed
            | Self::ChrootMissing { .. }
            | Self::InvalidPath { .. }
            | Self::QueueFull { .. }
            | Self::Recalled { .. }
            | Self::RequestTooLarge { .. }
            | Self::Server { .. }
            | Self::Unsupported { .. } => Outcome::NotApplied,
        }
    }

    /// Returns true if the deadline of the operation has passed.
    pub fn is_timed_out(&self) -> bool {
        matches!(self, Self::RuntimeStopped { .. } | Self::TimedOut { .. })
    }

    /// Returns true if the server refused the operation because the znode, or the parent of a znode
    /// to create, does not exist.
    pub fn is_no_node(&self) -> bool {
        matches!(self, Self::Server { code: ErrorCode::NO_NODE, .. })
    }

    /// Returns true if the connection was lost before the reply arrived. Recipes repeat what may be
    /// repeated after it, as after the refusal of a server that is overloaded.
    pub fn is_connection_loss(&self) -> bool {
        matches!(self, Self::ConnectionLoss { .. })
    }

    /// Returns true if the session of the operation has ended, so that its ephemeral znodes are
    /// deleted or soon will be.
    pub fn is_session_over(&self) -> bool {
        matches!(self, Self::SessionExpired { .. } | Self::Closed { .. })
    }

    /// Returns the error code if a server refused the operation.
    pub fn server_code(&self) -> Option<ErrorCode> {
        match self {
            Self::Server { code, .. } => Some(*code),
            Self::ChrootMissing { .. } => Some(ErrorCode::NO_NODE),
            Self::Unsupported { .. } => Some(ErrorCode::UNIMPLEMENTED),
            Self::AuthFailed
            | Self::Closed { .. }
            | Self::ConnectionLoss { .. }
            | Self::InvalidPath { .. }
            | Self::QueueFull { .. }
            | Self::Recalled { .. }
            | Self::RequestTooLarge { .. }
            | Self::ResponseTooLarge { .. }
            | Self::RuntimeStopped { .. }
            | Self::SessionExpired { .. }
            | Self::TimedOut { .. }
            | Self::Undecodable { .. } => None,
        }
    }
}

/// Returns true for codes after which the request may have been applied. All other codes prove that
/// it was not.
fn is_effect_unknown(code: ErrorCode) -> bool {
    match code {
        ErrorCode::UNIMPLEMENTED | ErrorCode::BAD_ARGUMENTS => false,
        ErrorCode::SESSION_MOVED | ErrorCode::REQUEST_TIMEOUT => true,
        code => code.is_system_error() || code.name().is_none(),
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotApplied => "was not applied",
            Self::Unknown => "may have been applied",
        })
    }
}

/// The end of the message of an operation whose deadline has passed.
struct Unconnected<'a>(Option<&'a ConnectionFailure>);

impl fmt::Display for Unconnected<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(failure) = self.0 else { return Ok(()) };
        write!(f, "; the client is not connected ({failure})")
    }
}

/// The message of a missing chroot.
struct MissingChroot<'a> {
    chroot: &'a str,
    path: &'a str,
}

impl fmt::Display for MissingChroot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (chroot, path) = (Abridged(self.chroot), Abridged(self.path));
        write!(
            f,
            "cannot create {path:?}: the chroot {chroot:?} does not exist on the servers; create it, \
             or let `create_chroot` do that when a client connects, which needs the permission \
             CREATE on the parent of the chroot"
        )
    }
}

/// Why a watch ended without an event.
#[derive(Clone, Copy, Eq, Error, Hash, PartialEq)]
#[non_exhaustive]
pub enum WatchEnded {
    /// The client was closed, the runtime in which it was built has ended, or a server refused its
    /// credentials.
    #[error("the client is closed, or the runtime in which it was built has ended")]
    Closed,
    /// [`remove_watches`](crate::Client::remove_watches) has removed the watch.
    #[error("the watch was removed by `remove_watches`")]
    Removed,
    /// The session of the watch has expired.
    #[error("the session of the watch has expired")]
    SessionExpired,
    /// The client was reconnected to a server that does not know persistent watches.
    #[error(
        "the client was reconnected to a server that does not know persistent watches (they need \
         ZooKeeper 3.6 or later)"
    )]
    Unsupported,
}

jute_codec::debug_by_message!(WatchEnded);
