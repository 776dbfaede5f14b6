//! Why a recipe could not do what its caller asked for. Locks have an error of their own.

#[cfg(feature = "tokio")]
use jute_codec::Acl;
use jute_codec::ErrorCode;
use thiserror::Error;
use zk_session::recipe::Abridged;
#[cfg(feature = "tokio")]
use zk_session::{Client, OptionDefect, recipe::Session};
use zk_session::{ConfigError, OpError, PathDefect};

use crate::action::because;
use crate::machine::{FailedAction, Failure};
#[cfg(feature = "tokio")]
use crate::stream::StreamError;
use crate::timed_out::{LastSeen, MayTimeOut, TimedOut};

/// Why a recipe that is not a lock could not do what its caller asked for.
///
/// Lost connections are not among the reasons, because recipes replay their requests.
#[derive(Clone, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum RecipeError {
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
    /// A server refused an operation that the recipe needs.
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
    /// The session expired during an operation that belongs to one session, or it has expired and
    /// the client opens no other
    /// ([`renew_after_expiry`](zk_session::ClientBuilder::renew_after_expiry)): then every operation
    /// fails.
    #[error(
        "the session has expired during the operation, which belongs to one session; begin it \
         again, unless the client stops with its session"
    )]
    SessionExpired,
    /// The deadline of the caller has passed. The value says what the call had seen.
    #[error(transparent)]
    TimedOut(Box<TimedOut>),
    /// A reply is longer than the client's limit for replies, or a request longer than its limit
    /// for requests.
    #[error("too large for the client: {0}")]
    TooLarge(OpError),
    /// An option is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

jute_codec::debug_by_message!(RecipeError);

/// Checks the path of a recipe, which must be a znode below the root. `option` says in the error what
/// the path is for.
pub(crate) fn check_path(option: &'static str, path: &str) -> Result<(), ConfigError> {
    let defect = match zk_session::path::validate(path) {
        Ok(()) if path == "/" => PathDefect::Root,
        Err(OpError::InvalidPath { defect, .. }) => defect,
        Ok(()) | Err(_) => return Ok(()),
    };
    Err(ConfigError::Path { option, path: path.to_owned(), defect })
}

/// Checks an access control list, which servers refuse if it is empty. It may be empty if that means
/// the default of the client. `option` says in the error what the list is for.
#[cfg(feature = "tokio")]
pub(crate) fn check_acl(
    option: &'static str,
    client: &Client,
    acl: &[Acl],
) -> Result<(), ConfigError> {
    if acl.is_empty() && !Session::of(client).default_acl().is_empty() {
        let value = "[]".to_owned();
        return Err(ConfigError::Option { option, value, defect: OptionDefect::Empty });
    }
    Ok(())
}

impl MayTimeOut for RecipeError {
    fn timed_out(_: &str) -> Self {
        Self::timed_out()
    }

    fn timed_out_mut(&mut self) -> Option<&mut TimedOut> {
        if let Self::TimedOut(timed_out) = self { Some(timed_out) } else { None }
    }
}

#[cfg(feature = "tokio")]
impl StreamError for RecipeError {
    fn is_last(&self) -> bool {
        matches!(self, Self::AuthFailed | Self::Closed | Self::Config(_) | Self::SessionExpired)
    }
}

impl RecipeError {
    /// Returns the code with which a server refused what the caller asked for.
    pub fn server_code(&self) -> Option<ErrorCode> {
        if let Self::Refused { code, .. } = self { Some(*code) } else { None }
    }

    /// Returns true if the deadline of the caller has passed.
    pub fn is_timed_out(&self) -> bool {
        matches!(self, Self::TimedOut(_))
    }

    /// Creates a timeout that the engine completes before the caller sees it.
    pub(crate) fn timed_out() -> Self {
        Self::timed_out_after(None)
    }

    /// Does the same for a call that was refused with this code, and has tried again since.
    pub(crate) fn timed_out_after(refusal: Option<ErrorCode>) -> Self {
        Self::TimedOut(TimedOut::after(refusal.map_or(LastSeen::Nothing, LastSeen::Refused)))
    }

    /// Adds to a timeout that a server has refused what the call was about to try again.
    #[cfg(feature = "tokio")]
    pub(crate) fn after_refusal(&mut self, code: ErrorCode) {
        if let Self::TimedOut(timed_out) = self {
            timed_out.seen = LastSeen::Refused(code);
        }
    }

    /// Converts the failure of an operation. This is no `From`, because compilers suggest every `From`
    /// to users, and these cannot name a [`Failure`].
    pub(crate) fn of(Failure { action, path, error }: Failure) -> Self {
        match (error.server_code(), error) {
            (_, OpError::ChrootMissing { chroot, path }) => Self::ChrootMissing { chroot, path },
            (Some(code), _) => Self::Refused { code, action, path: path.to_string() },
            (None, error) => Self::of_client(error),
        }
    }

    /// Converts an error whose meaning does not depend on an action and a path, such as that of a
    /// client that did not accept a flight.
    pub(crate) fn of_client(error: OpError) -> Self {
        match error {
            OpError::AuthFailed => Self::AuthFailed,
            OpError::ChrootMissing { chroot, path } => Self::ChrootMissing { chroot, path },
            OpError::Closed { .. } => Self::Closed,
            OpError::RequestTooLarge { .. } | OpError::ResponseTooLarge { .. } => Self::TooLarge(error),
            OpError::SessionExpired { .. } => Self::SessionExpired,
            OpError::ConnectionLoss { .. }
            | OpError::InvalidPath { .. }
            | OpError::QueueFull { .. }
            | OpError::Recalled { .. }
            | OpError::RuntimeStopped { .. }
            | OpError::Server { .. }
            | OpError::TimedOut { .. }
            | OpError::Undecodable { .. }
            | OpError::Unsupported { .. }
            // The enum may get new errors.
            | _ => Self::Client(error),
        }
    }
}
