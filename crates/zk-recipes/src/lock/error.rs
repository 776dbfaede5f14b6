//! Why a lock was not obtained, or is no longer held.

use jute_codec::ErrorCode;
use thiserror::Error;
use zk_session::recipe::Abridged;
use zk_session::{ConfigError, OpError, SlowCommits};

use crate::action::because;
use crate::error::RecipeError;
use crate::machine::{FailedAction, Failure};
#[cfg(feature = "tokio")]
use crate::stream::StreamError;
use crate::timed_out::{MayTimeOut, TimedOut};

/// Why a lock was not obtained, or is no longer held.
///
/// After any of these errors, the lock is not held and no contender znode stays behind: the znode
/// is removed as soon as a server is reachable, or when the session ends if that happens first. If
/// the servers refuse even to delete the znode, its path is logged.
#[derive(Clone, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum LockError {
    /// The credentials were refused.
    #[error("a server refused the credentials of the client; check its `auth` and `sasl`")]
    AuthFailed,
    /// The chroot of the client does not exist on the servers.
    #[error("{}", OpError::ChrootMissing { chroot: chroot.clone(), path: path.clone() })]
    ChrootMissing {
        /// The path of the chroot on the servers.
        chroot: String,
        /// The path of the znode that could not be created, as the client sees it.
        path: String,
    },
    /// The client could not accept the request, or could not read the reply.
    #[error("the client failed: {0}")]
    Client(OpError),
    /// The client was closed, or the runtime in which it was built has ended.
    #[error("the client is closed, or the runtime in which it was built has ended")]
    Closed,
    /// The lock is no longer held, or the attempt lost its place in the queue too often, or the
    /// session has expired and the client opens no other
    /// ([`renew_after_expiry`](zk_session::ClientBuilder::renew_after_expiry)).
    #[error("the lock is lost: {0}")]
    Lost(LostReason),
    /// A lock of another kind, or with other names, shares the directory. The two locks would not
    /// see each other's holders.
    #[error(
        "the znode {path:?} belongs to a lock of another kind, or with other names; give each lock \
         a path of its own",
        path = Abridged(.path)
    )]
    MixedKinds {
        /// Path of the other lock's znode.
        path: String,
    },
    /// The lock treats risk as loss, and commits take too long for a lease. The value says how long,
    /// and which session timeout would be enough.
    #[error("{0}")]
    NoLease(SlowCommits),
    /// The directory of a semaphore stores another number of permits than this client expects. Build
    /// the semaphore with that number, let it accept the stored one, or change the stored one.
    #[error(
        "{directory:?} stores {stored:?} as its number of permits, and this client expects \
         {expected}; build the semaphore with the stored number, let it accept that one, or change it",
        directory = Abridged(.directory)
    )]
    PermitsDiffer {
        /// The directory.
        directory: String,
        /// What the directory stores, as text; the beginning of it if it is long.
        stored: String,
        /// What the client expects.
        expected: u32,
    },
    /// The directory's sequence counter has reached its end (2^31 - 1 znodes were created in it).
    /// Delete the directory when it is empty, or use another one.
    #[error(
        "the sequence counter of {directory:?} has reached its end (2147483647); use another \
         directory, or delete this one while it is empty",
        directory = Abridged(.directory)
    )]
    QueueExhausted {
        /// The directory.
        directory: String,
    },
    /// A server refused an operation that the lock needs.
    #[error("the server refused to {action} {path:?}: {code}{}", because(*.code, .action.operation(), .path), path = Abridged(.path))]
    Refused {
        /// The error code of the server.
        code: ErrorCode,
        /// What the server refused to do.
        action: FailedAction,
        /// The path of the znode; without its number if the server refused to create one that has
        /// one.
        path: String,
    },
    /// The lock was not obtained in time. The value says why, as far as the attempt has seen it: no
    /// connection, a lost one, or the contender ahead.
    #[error(transparent)]
    TimedOut(Box<TimedOut>),
    /// The list of contenders is longer than the client's limit for replies, or the identity is
    /// longer than the client's limit for requests.
    #[error("too large for the client: {0}")]
    TooLarge(OpError),
    /// An option is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

jute_codec::debug_by_message!(LockError);

/// Why a lock was lost.
// In debug format, this is its variant, unlike errors: it is a part of `LockState`, and no call fails
// with it.
#[derive(Clone, Copy, Debug, Eq, Error, Hash, PartialEq)]
#[non_exhaustive]
pub enum LostReason {
    /// The lock was at risk, and its [policy](crate::AtRiskPolicy) treats that as lost.
    #[error("the lock was at risk")]
    AtRisk,
    /// The client was closed. All guards of a client are lost with this reason as soon as
    /// [`close`](zk_session::Client::close) begins.
    #[error("the client was closed")]
    Closed,
    /// The lease has ended or, without a lease, no server has acknowledged the session for a whole
    /// session timeout, so the session may have expired.
    #[error("no server has confirmed the session in time")]
    DeadlinePassed,
    /// The recipe limits how long this lock may be held, as
    /// [`WorkQueueBuilder::lease_for`](crate::WorkQueueBuilder::lease_for) does, and the time is over.
    #[error("it was held for longer than its limit")]
    HeldTooLong,
    /// The guard was released or dropped. Only calls that may outlive the guard report this, such as
    /// those that wait for the loss of the lock: a guard that exists is not released.
    #[error("the guard was released")]
    Released,
    /// The session has expired.
    #[error("the session has expired")]
    SessionExpired,
    /// Another client deleted the contender znode.
    #[error("the contender znode is gone")]
    ZnodeDeleted,
}

/// Why a body was stopped before its end; see `Guard::run`.
#[derive(Clone, Copy, Eq, Error, Hash, PartialEq)]
#[non_exhaustive]
pub enum Stopped {
    /// The lock is at risk, and the body asked to be stopped in that case. The lock is still held
    /// as far as the client knows.
    #[error("the lock is at risk")]
    AtRisk,
    /// The lock is lost.
    #[error("the lock is lost: {0}")]
    Lost(LostReason),
    /// The body asked to be stopped at risk, and did not start, because commits take too long for a
    /// lease.
    #[error("{0}")]
    NoLease(SlowCommits),
}

jute_codec::debug_by_message!(Stopped);

impl LockError {
    /// Returns the code with which a server refused a request, if that is the reason.
    pub fn server_code(&self) -> Option<ErrorCode> {
        if let Self::Refused { code, .. } = self { Some(*code) } else { None }
    }

    /// Returns true if the lock was not obtained in time.
    pub fn is_timed_out(&self) -> bool {
        matches!(self, Self::TimedOut(_))
    }

    /// Converts the failure of an operation.
    pub(crate) fn of(failure: Failure) -> Self {
        RecipeError::of(failure).into()
    }
}

#[cfg(feature = "tokio")]
impl StreamError for LockError {
    fn is_last(&self) -> bool {
        matches!(self, Self::AuthFailed | Self::Closed | Self::Config(_) | Self::Lost(_))
    }
}

impl MayTimeOut for LockError {
    fn timed_out(_: &str) -> Self {
        Self::TimedOut(TimedOut::unexplained())
    }

    fn timed_out_mut(&mut self) -> Option<&mut TimedOut> {
        if let Self::TimedOut(timed_out) = self { Some(timed_out) } else { None }
    }
}

impl From<Stopped> for LockError {
    /// A body that was stopped because the lock was at risk is reported as
    /// [`LostReason::AtRisk`], although the guard may still hold the lock.
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::AtRisk => Self::Lost(LostReason::AtRisk),
            Stopped::Lost(reason) => Self::Lost(reason),
            Stopped::NoLease(slow) => Self::NoLease(slow),
        }
    }
}

impl From<RecipeError> for LockError {
    fn from(error: RecipeError) -> Self {
        match error {
            RecipeError::AuthFailed => Self::AuthFailed,
            RecipeError::Client(error) => Self::Client(error),
            RecipeError::Closed => Self::Closed,
            RecipeError::Refused { code, action, path } => Self::Refused { code, action, path },
            RecipeError::SessionExpired => Self::Lost(LostReason::SessionExpired),
            RecipeError::TimedOut(timed_out) => Self::TimedOut(timed_out),
            RecipeError::ChrootMissing { chroot, path } => Self::ChrootMissing { chroot, path },
            RecipeError::TooLarge(error) => Self::TooLarge(error),
            RecipeError::Config(error) => Self::Config(error),
        }
    }
}
