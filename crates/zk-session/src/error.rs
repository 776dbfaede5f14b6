//! Why something failed, and what is known about its effect.

use std::fmt;
use std::time::Duration;

use jute_codec::{DecodeError, ErrorCode};
use thiserror::Error;

use crate::failure::ConnectionFailure;
use crate::machine::lease::LeaseDefect;
use crate::target::{Label, Refusal, Target};
use crate::types::SessionId;

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
    #[error("a server refused the credentials of the client; check its `auth` and `sasl`")]
    AuthFailed,
    /// The chroot of the connect string does not exist on the servers: somebody has deleted it, or
    /// the client was built not to create it.
    #[error("{}", MissingChroot { chroot, path })]
    ChrootMissing {
        /// The path of the chroot on the servers.
        chroot: String,
        /// The path of the znode that could not be created, as the client sees it.
        path: String,
    },
    /// The client was closed.
    #[error("{}the client is closed; the operation {outcome}", Label(.target))]
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
    #[error("invalid path {path:?}: {defect}")]
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
    #[error("{}", Refusal { code: *code, target, place: None })]
    Server {
        /// The error code of the server.
        code: ErrorCode,
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
    #[error("{}the deadline of the operation has passed; the operation {outcome}", Label(.target))]
    TimedOut {
        /// What is known about its effect.
        outcome: Outcome,
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
            Self::ResponseTooLarge { .. } | Self::Undecodable { .. } => Outcome::Unknown,
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
        matches!(self, Self::TimedOut { .. })
    }

    /// Returns true if the server refused the operation because the znode, or the parent of a znode
    /// to create, does not exist.
    pub fn is_no_node(&self) -> bool {
        matches!(self, Self::Server { code: ErrorCode::NO_NODE, .. })
    }

    /// Returns true if the connection was lost before the reply arrived. This is the only error
    /// after which recipes repeat an operation.
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

/// The message of a missing chroot.
struct MissingChroot<'a> {
    chroot: &'a str,
    path: &'a str,
}

impl fmt::Display for MissingChroot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { chroot, path } = self;
        write!(
            f,
            "cannot create {path:?}: the chroot {chroot:?} of the connect string does not exist on \
             the servers; create it, or let `create_chroot` do that when a client connects"
        )
    }
}

/// Why a watch ended without an event.
#[derive(Clone, Copy, Debug, Eq, Error, Hash, PartialEq)]
#[non_exhaustive]
pub enum WatchEnded {
    /// The client was closed, or a server refused its credentials.
    #[error("the client is closed")]
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

/// Why a path is invalid.
#[derive(Clone, Copy, Debug, Eq, Error, Hash, PartialEq)]
#[non_exhaustive]
pub enum PathDefect {
    /// The path has an empty component, or ends with `/`.
    #[error("it must not end with /, and must not have an empty component (//)")]
    EmptyComponent,
    /// The path has a character that servers refuse.
    #[error(
        "it has a character that servers refuse (a control character, a private-use character, or one above U+FFFF)"
    )]
    ForbiddenCharacter,
    /// The path does not start with `/`.
    #[error("it must start with /")]
    NotAbsolute,
    /// The path is the root, where no recipe can be.
    #[error("it is the root, and a recipe needs a znode below the root")]
    Root,
    /// The path has a component `.` or `..`.
    #[error("it has a component `.` or `..`, and paths of znodes are never relative")]
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
    /// The system could not start the thread of
    /// [`dedicated_thread`](crate::ClientBuilder::dedicated_thread).
    #[error("cannot start the thread of the session: {message}")]
    Thread {
        /// The system's message.
        message: String,
    },
    /// The connect string names no host.
    #[error("the connect string names no host; an example is \"zk1:2181,zk2:2181/app\"")]
    NoHosts,
    /// The value of an option is invalid.
    #[error("invalid {option}{}: {defect}", Shown(.value))]
    Option {
        /// Name of the option: the builder's method that sets it.
        option: &'static str,
        /// The value as given, as text; empty if it has no text, or is a secret.
        value: String,
        /// Why its value is invalid.
        defect: OptionDefect,
    },
    /// The path of a recipe is invalid.
    #[error("invalid {option} {path:?}: {defect}")]
    Path {
        /// What the path is for.
        option: &'static str,
        /// The path as given.
        path: String,
        /// Why it is invalid.
        defect: PathDefect,
    },
}

/// The value of an option, behind its name.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " {}", self.0) }
    }
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
    #[error("only a port may follow the bracket, as in \"[::1]:2181\"")]
    AfterBracket,
    /// The entry is empty.
    #[error("entry {number} is empty: there is a comma too many")]
    Empty {
        /// Its position in the list, counted from 1.
        number: usize,
    },
    /// An IPv6 address has no brackets.
    #[error("an IPv6 address needs brackets, as in \"[::1]:2181\"")]
    Ipv6WithoutBrackets,
    /// An opening bracket is not closed.
    #[error("the bracket of an IPv6 address is not closed; write it as in \"[::1]:2181\"")]
    MissingBracket,
    /// The entry has no name before the port.
    #[error("the name before the port must not be empty")]
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
    #[error("it must be at least {0} bytes")]
    BytesBelow(usize),
    /// The value is empty.
    #[error("it must not be empty")]
    Empty,
    /// The credentials of the scheme `digest` contain no colon. Servers would accept them, and store
    /// the password where they store the name of the user.
    #[error(
        "the credentials of the scheme \"digest\" must have the form user:password, with a colon (they \
         are not shown here, because they are a secret)"
    )]
    DigestWithoutColon,
    /// The authentication scheme is empty.
    #[error("the scheme must not be empty; an example is \"digest\"")]
    EmptyScheme,
    /// The value is a lease that cannot be kept.
    #[error(transparent)]
    Lease(LeaseDefect),
    /// The value is longer than this maximum.
    #[error("it must be at most {0:?}")]
    LongerThan(Duration),
    /// The value violates a rule of a recipe, which the text describes.
    #[error("{0}")]
    Other(&'static str),
    /// The value is shorter than this minimum.
    #[error("it must be at least {0:?}")]
    ShorterThan(Duration),
    /// The value is shorter than the session timeout.
    #[error("it must not be shorter than the session timeout")]
    ShorterThanSessionTimeout,
    /// The value is zero.
    #[error("it must be at least 1")]
    Zero,
}

/// Why a session could not be handed over.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum HandOverError {
    /// There is no session, or it was handed over before.
    #[error("there is no session to hand over")]
    NoSession,
    /// Recipes still use the session, so znodes would stay that nobody can delete. The client goes
    /// on as before.
    #[error(
        "the session is not handed over, because after {within:?} recipes still use it at {}, or \
         have not yet found out there what a lost request has left; release locks and leases, leave \
         groups and barriers, end what waits for them, and try again while a server answers",
        paths.join(", ")
    )]
    Unfinished {
        /// How long the client waits for recipes.
        within: Duration,
        /// Paths of the recipes.
        paths: Vec<String>,
    },
}

/// Why a client could not connect.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ConnectError {
    /// A server refused the credentials.
    #[error("a server refused the credentials of the client; check its `auth` and `sasl`")]
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
