//! Why a recipe could not do what its caller asked for. Locks have an error of their own.

use jute_codec::ErrorCode;
use thiserror::Error;
use zk_session::{ConfigError, OpError};

use crate::machine::{FailedAction, Failure, Interrupted};

/// Why a recipe that is not a lock could not do what its caller asked for.
///
/// Lost connections are not among the reasons, because recipes replay their requests.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum RecipeError {
    /// The credentials were refused.
    #[error("authentication failed")]
    AuthFailed,
    /// The client could not accept the request, or could not read the reply.
    #[error("the client failed: {0}")]
    Client(OpError),
    /// The client was closed.
    #[error("client closed")]
    Closed,
    /// A server refused an operation that the recipe needs.
    #[error("the server refused to {action} {path:?}: {code}")]
    Refused {
        /// The error code of the server.
        code: ErrorCode,
        /// What the server refused to do.
        action: FailedAction,
        /// The path of the znode, or of the directory if the action is on its children.
        path: String,
    },
    /// The session expired during an operation that belongs to one session.
    #[error("the session has expired")]
    SessionExpired,
    /// The deadline of the caller has passed.
    #[error("timed out")]
    TimedOut,
    /// A reply is longer than the client's limit for replies, or a request longer than its limit
    /// for requests.
    #[error("a request or reply is too large: {0}")]
    TooLarge(OpError),
    /// An option is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl From<Failure> for RecipeError {
    fn from(Failure { action, path, error }: Failure) -> Self {
        match error.server_code() {
            Some(code) => Self::Refused { code, action, path: path.to_string() },
            None => Self::of_client(error),
        }
    }
}

impl From<Interrupted> for RecipeError {
    fn from(interrupted: Interrupted) -> Self {
        match interrupted {
            Interrupted::AuthFailed => Self::AuthFailed,
            Interrupted::Closed => Self::Closed,
            Interrupted::Rejected(error) => Self::of_client(error),
            Interrupted::TimedOut => Self::TimedOut,
        }
    }
}

impl RecipeError {
    /// Converts an error whose meaning does not depend on an action and a path.
    fn of_client(error: OpError) -> Self {
        match error {
            OpError::AuthFailed => Self::AuthFailed,
            OpError::Closed(_) => Self::Closed,
            OpError::RequestTooLarge { .. } | OpError::ResponseTooLarge(_) => Self::TooLarge(error),
            OpError::SessionExpired(_) => Self::SessionExpired,
            OpError::ConnectionLoss(_)
            | OpError::InvalidPath { .. }
            | OpError::QueueFull(_)
            | OpError::Recalled
            | OpError::Server(_)
            | OpError::TimedOut(_)
            | OpError::Undecodable(_)
            | OpError::Unsupported
            // The enum may get new errors.
            | _ => Self::Client(error),
        }
    }
}
