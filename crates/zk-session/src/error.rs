//! Why something failed, and what is known about its effect.

use std::time::Duration;

use jute_codec::{DecodeError, ErrorCode};
use thiserror::Error;

use crate::failure::ConnectionFailure;
use crate::machine::lease::LeaseDefect;

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
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum OpError {
    /// A server refused the credentials. The client has stopped, and its session will expire.
    #[error("authentication failed")]
    AuthFailed,
    /// The client was closed.
    #[error("client closed ({0:?})")]
    Closed(Outcome),
    /// The connection was lost before the reply arrived.
    ///
    /// The session, its ephemeral znodes and its watches survive until the session timeout.
    #[error("connection lost ({0:?})")]
    ConnectionLoss(Outcome),
    /// The path is not a valid absolute path of a znode. Nothing was sent.
    #[error("invalid path {path:?}: {defect}")]
    InvalidPath {
        /// The path as given.
        path: String,
        /// Why it is invalid.
        defect: PathDefect,
    },
    /// Too many requests are waiting or in flight. Nothing was sent.
    #[error("{0} requests are waiting already")]
    QueueFull(usize),
    /// The caller withdrew the request before it was sent.
    #[error("withdrawn before it was sent")]
    Recalled,
    /// The request exceeds the limit. Nothing was sent.
    #[error("a request of {length} bytes is longer than the limit of {limit}")]
    RequestTooLarge {
        /// Length of the request in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The reply exceeded the limit and was skipped. The value is its length in bytes. The server
    /// executed the operation regardless; a write has taken effect unless the server refused it.
    #[error("a reply of {0} bytes is longer than the limit")]
    ResponseTooLarge(usize),
    /// The server refused the operation.
    #[error("the server answered {0}")]
    Server(ErrorCode),
    /// The session has expired. Its ephemeral znodes are deleted, or soon will be. The client may
    /// already have opened another session.
    #[error("session expired ({0:?})")]
    SessionExpired(Outcome),
    /// The deadline of the operation passed. This does not affect the connection.
    #[error("timed out ({0:?})")]
    TimedOut(Outcome),
    /// The reply could not be decoded. This does not affect the connection.
    #[error("undecodable reply: {0}")]
    Undecodable(DecodeError),
    /// The server does not know the operation, or the operation is disabled.
    #[error("the server does not support the operation")]
    Unsupported,
}

impl OpError {
    /// Returns what is known about the effect of the operation.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Closed(outcome)
            | Self::ConnectionLoss(outcome)
            | Self::SessionExpired(outcome)
            | Self::TimedOut(outcome) => *outcome,
            Self::Server(code) if is_effect_unknown(*code) => Outcome::Unknown,
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

    /// Returns true if the connection was lost before the reply arrived. This is the only error
    /// after which recipes repeat an operation.
    pub fn is_connection_loss(&self) -> bool {
        matches!(self, Self::ConnectionLoss(_))
    }

    /// Returns true if the session of the operation has ended, so that its ephemeral znodes are
    /// deleted or soon will be.
    pub fn is_session_over(&self) -> bool {
        matches!(self, Self::SessionExpired(_) | Self::Closed(_))
    }

    /// Returns the error code if a server refused the operation.
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

/// Returns true for codes after which the request may have been applied. All other codes prove that
/// it was not.
fn is_effect_unknown(code: ErrorCode) -> bool {
    match code {
        ErrorCode::UNIMPLEMENTED | ErrorCode::BAD_ARGUMENTS => false,
        ErrorCode::SESSION_MOVED | ErrorCode::REQUEST_TIMEOUT => true,
        code => code.is_system_error() || code.name().is_none(),
    }
}

/// Why a watch ended without an event.
#[derive(Clone, Copy, Debug, Eq, Error, Hash, PartialEq)]
#[non_exhaustive]
pub enum WatchEnded {
    /// The client was closed, or a server refused its credentials.
    #[error("client closed")]
    Closed,
    /// The session of the watch has expired.
    #[error("session expired")]
    SessionExpired,
}

/// Why a path is invalid.
#[derive(Clone, Copy, Debug, Eq, Error, Hash, PartialEq)]
#[non_exhaustive]
pub enum PathDefect {
    /// The path has an empty component, or ends with `/`.
    #[error("it has an empty component, or ends with /")]
    EmptyComponent,
    /// The path has a character that servers refuse.
    #[error("it has a character that servers refuse")]
    ForbiddenCharacter,
    /// The path does not start with `/`.
    #[error("it does not start with /")]
    NotAbsolute,
    /// The path has a component `.` or `..`.
    #[error("it has a relative component")]
    RelativeComponent,
}

/// Why a client or a recipe cannot be built.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The chroot at the end of the connect string is invalid.
    #[error("invalid chroot {path:?}: {defect}")]
    Chroot {
        /// The chroot as given.
        path: String,
        /// Why it is invalid.
        defect: ChrootDefect,
    },
    /// An entry of the connect string is invalid.
    #[error("invalid host {host:?} in the connect string: {defect}")]
    Host {
        /// The entry as given.
        host: String,
        /// Why it is invalid.
        defect: HostDefect,
    },
    /// The connect string names no host.
    #[error("the connect string names no host")]
    NoHosts,
    /// The value of an option is invalid.
    #[error("invalid {option}: {defect}")]
    Option {
        /// Name of the option: the builder's method that sets it.
        option: &'static str,
        /// Why its value is invalid.
        defect: OptionDefect,
    },
}

/// Why a chroot is invalid.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ChrootDefect {
    /// More hosts follow the chroot.
    #[error(
        "a comma follows the chroot of {host:?}; write the chroot once, after the last host, as in \
         {suggestion:?}"
    )]
    BeforeHosts {
        /// The entry that contains the chroot.
        host: String,
        /// A connect string that the caller may have meant.
        suggestion: String,
    },
    /// The chroot is not a valid path.
    #[error(transparent)]
    Path(PathDefect),
}

/// Why an entry of a connect string is invalid.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum HostDefect {
    /// Something other than a port follows the closing bracket.
    #[error("only :port may follow ]")]
    AfterBracket,
    /// The entry is empty.
    #[error("entry {number} is empty: there is a comma too many")]
    Empty {
        /// Its position in the list, counted from 1.
        number: usize,
    },
    /// An IPv6 address has no brackets.
    #[error("an IPv6 address needs brackets")]
    Ipv6WithoutBrackets,
    /// An opening bracket is not closed.
    #[error("] is missing")]
    MissingBracket,
    /// The entry has no name before the port.
    #[error("the name is empty")]
    NoName,
    /// Something other than a port follows the colon.
    #[error("a port between 1 and 65535 must follow the colon")]
    Port,
    /// The entry starts with a scheme.
    #[error("hosts have no scheme such as {scheme}; write {suggestion:?}")]
    Scheme {
        /// The scheme, with `://`.
        scheme: String,
        /// A connect string that the caller may have meant.
        suggestion: String,
    },
    /// The entry contains a separator other than a comma.
    #[error("hosts are separated by commas, as in \"zk1:2181,zk2:2181\"")]
    Separator,
}

/// Why the value of an option is invalid.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum OptionDefect {
    /// The value is a limit of fewer bytes than this minimum.
    #[error("it is less than {0} bytes")]
    BytesBelow(usize),
    /// The value is empty.
    #[error("it is empty")]
    Empty,
    /// The authentication scheme is empty.
    #[error("the scheme is empty")]
    EmptyScheme,
    /// The value is a lease that cannot be kept.
    #[error(transparent)]
    Lease(LeaseDefect),
    /// The value is longer than this maximum.
    #[error("it is longer than {0:?}")]
    LongerThan(Duration),
    /// The value violates a rule of a recipe, which the text describes.
    #[error("{0}")]
    Other(&'static str),
    /// The value is shorter than this minimum.
    #[error("it is shorter than {0:?}")]
    ShorterThan(Duration),
    /// The value is shorter than the session timeout.
    #[error("it is shorter than the session timeout")]
    ShorterThanSessionTimeout,
    /// The value is zero.
    #[error("it is zero")]
    Zero,
}

/// Why a client could not connect.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ConnectError {
    /// A server refused the credentials.
    #[error("authentication failed")]
    AuthFailed,
    /// The chroot is missing and could not be created.
    #[error("cannot create the chroot {path:?}: {error}")]
    Chroot {
        /// Path of the chroot on the server.
        path: String,
        /// Why it could not be created.
        error: OpError,
    },
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The client stopped before it was connected. Either the session expired and the client may
    /// not open another ([`renew_after_expiry`](crate::ClientBuilder::renew_after_expiry)), or the
    /// transport panicked in the session's task, or the runtime shut down.
    #[error("the client stopped before it was connected to {hosts}{}", in_parentheses(.last_failure.as_ref()))]
    Stopped {
        /// The hosts of the connect string.
        hosts: String,
        /// The last failure.
        last_failure: Option<ConnectionFailure>,
    },
    /// No server completed the connection in time.
    #[error("no server of {hosts} answered within {waited:?}{}", in_parentheses(.last_failure.as_ref()))]
    TimedOut {
        /// The hosts of the connect string.
        hosts: String,
        /// How long the client waited.
        waited: Duration,
        /// The last failure, or how far the only attempt has progressed.
        last_failure: Option<ConnectionFailure>,
    },
}

fn in_parentheses(failure: Option<&ConnectionFailure>) -> String {
    failure.map(|failure| format!(" (last failure: {failure})")).unwrap_or_default()
}
