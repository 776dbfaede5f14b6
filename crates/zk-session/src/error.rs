//! Why something did not work, and what is known about its effect.

use std::borrow::Cow;

use jute_codec::{DecodeError, ErrorCode};
use thiserror::Error;

/// What is known about the effect of an operation that failed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "complete by definition")]
pub enum Outcome {
    /// It had no effect and will have none: it was refused, or never wholly left this process.
    NotApplied,
    /// It may have taken effect, may still do so, or never will.
    Unknown,
}

/// Why an operation did not return a result.
///
/// Ask [`outcome`](Self::outcome) before repeating a write. The client itself never repeats one.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum OpError {
    /// The credentials were refused. The client has stopped; its session ends by itself.
    #[error("authentication failed")]
    AuthFailed,
    /// The client was closed.
    #[error("client closed ({0:?})")]
    Closed(Outcome),
    /// The connection ended before the reply came.
    ///
    /// The session, its ephemerals and its watches live on until the session timeout.
    #[error("connection lost ({0:?})")]
    ConnectionLoss(Outcome),
    /// The path cannot be one. Nothing was sent.
    #[error("invalid path {path:?}: {reason}")]
    InvalidPath {
        /// The path as given.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Too many requests are waiting already. Nothing was sent.
    #[error("{0} requests are waiting already")]
    QueueFull(usize),
    /// The caller took the request back before it was sent.
    #[error("taken back before it was sent")]
    Recalled,
    /// The request is longer than servers accept. Nothing was sent.
    #[error("a request of {length} bytes is longer than the limit of {limit}")]
    RequestTooLarge {
        /// Length of the request.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// The reply was longer than the limit and was skipped. The operation succeeded or failed on
    /// the server as if it had been read; a write has taken effect unless the server refused it.
    #[error("a reply of {0} bytes is longer than the limit")]
    ResponseTooLarge(usize),
    /// The server refused the operation.
    #[error("the server answered {0}")]
    Server(ErrorCode),
    /// The session has expired. Its ephemerals are gone, or going; another session may be open.
    #[error("session expired ({0:?})")]
    SessionExpired(Outcome),
    /// The deadline of the operation passed. The connection is not affected.
    #[error("timed out ({0:?})")]
    TimedOut(Outcome),
    /// The reply cannot be understood. The connection is not affected.
    #[error("undecodable reply: {0}")]
    Undecodable(DecodeError),
    /// The server does not know the operation, or has it disabled.
    #[error("the server does not support the operation")]
    Unsupported,
}

impl OpError {
    /// What is known about the effect of the operation.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Closed(outcome)
            | Self::ConnectionLoss(outcome)
            | Self::SessionExpired(outcome)
            | Self::TimedOut(outcome) => *outcome,
            Self::Server(code) if code_leaves_doubt(*code) => Outcome::Unknown,
            Self::ResponseTooLarge(_) | Self::Undecodable(_) => Outcome::Unknown,
            Self::AuthFailed
            | Self::InvalidPath { .. }
            | Self::QueueFull(_)
            | Self::Recalled
            | Self::RequestTooLarge { .. }
            | Self::Server(_)
            | Self::Unsupported => Outcome::NotApplied,
        }
    }

    /// True if the connection ended before the reply came: the one error that recipes replay.
    pub fn is_connection_loss(&self) -> bool {
        matches!(self, Self::ConnectionLoss(_))
    }

    /// True if the session of the operation has ended, so that its ephemerals are gone or going.
    pub fn is_session_over(&self) -> bool {
        matches!(self, Self::SessionExpired(_) | Self::Closed(_))
    }

    /// The code, if a server refused the operation.
    pub fn server_code(&self) -> Option<ErrorCode> {
        match self {
            Self::Server(code) => Some(*code),
            Self::Unsupported => Some(ErrorCode::UNIMPLEMENTED),
            Self::AuthFailed
            | Self::Closed(_)
            | Self::ConnectionLoss(_)
            | Self::InvalidPath { .. }
            | Self::QueueFull(_)
            | Self::Recalled
            | Self::RequestTooLarge { .. }
            | Self::ResponseTooLarge(_)
            | Self::SessionExpired(_)
            | Self::TimedOut(_)
            | Self::Undecodable(_) => None,
        }
    }
}

/// Codes after which the request may have been applied. The others prove that it was not.
fn code_leaves_doubt(code: ErrorCode) -> bool {
    match code {
        ErrorCode::UNIMPLEMENTED | ErrorCode::BAD_ARGUMENTS => false,
        ErrorCode::SESSION_MOVED | ErrorCode::REQUEST_TIMEOUT => true,
        code => code.is_system_error() || code.name().is_none(),
    }
}

/// Why options cannot be used.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The chroot behind the hosts is no path.
    #[error("invalid chroot {path:?}: {reason}")]
    Chroot {
        /// The chroot as given.
        path: String,
        /// What is wrong with it, and what to do.
        reason: Cow<'static, str>,
    },
    /// An entry of the host list cannot be read.
    #[error("invalid host {host:?} in the connect string: {reason}")]
    Host {
        /// The entry as given.
        host: String,
        /// What is wrong with it, and what to do.
        reason: Cow<'static, str>,
    },
    /// The connect string names no host.
    #[error("the connect string names no host")]
    NoHosts,
    /// An option has a value that cannot work.
    #[error("invalid {option}: {reason}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// What is wrong with its value.
        reason: &'static str,
    },
}

/// Why a client could not be connected.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ConnectError {
    /// The credentials were refused.
    #[error("authentication failed")]
    AuthFailed,
    /// The chroot is missing and could not be created.
    #[error("cannot create the chroot {path:?}: {error}")]
    Chroot {
        /// Path of the znode that could not be created.
        path: String,
        /// Why not.
        error: OpError,
    },
    /// The options cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The client has stopped. The session expired before it could be used, and is not to be renewed
    /// ([`renew_after_expiry`](crate::ClientBuilder::renew_after_expiry)), or the transport has
    /// panicked in the session's task, or the runtime shuts down.
    #[error("the client has stopped before it was connected to {hosts}{}", .last_failure.as_ref().map(|f| format!(" (last failure: {f})")).unwrap_or_default())]
    Stopped {
        /// The hosts that were tried.
        hosts: String,
        /// What went wrong last.
        last_failure: Option<String>,
    },
    /// No server answered in time. The last failure says which server was tried last, and what
    /// became of it; or how far the only attempt has come.
    #[error("no server of {hosts} answered within {waited:?}{}", .last_failure.as_ref().map(|f| format!(" (last failure: {f})")).unwrap_or_default())]
    TimedOut {
        /// The hosts that were tried.
        hosts: String,
        /// How long.
        waited: std::time::Duration,
        /// What went wrong last.
        last_failure: Option<String>,
    },
}
