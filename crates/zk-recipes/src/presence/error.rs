//! Why a presence did not begin, or what was asked of it failed.

use jute_codec::ErrorCode;
use thiserror::Error;
use zk_session::recipe::Abridged;
use zk_session::{ConfigError, SessionId};

use crate::error::RecipeError;
use crate::timed_out::{MayTimeOut, TimedOut};

/// Why an operation of a presence failed.
///
/// Lost connections are not among the reasons, because the requests of a presence are replayed.
#[derive(Clone, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum PresenceError {
    /// The presence has ended, because its client has stopped.
    #[error("the presence has ended, because its client has stopped")]
    Ended,
    /// The znode at the path is not ephemeral, so it does not disappear by itself.
    #[error(
        "the znode {path:?} is not ephemeral, so it cannot be a presence; delete it, use another \
         path, or wait for its end with `keep_trying`",
        path = Abridged(.path)
    )]
    NotEphemeral {
        /// The path of the znode.
        path: String,
    },
    /// A request failed, the deadline has passed, or the client has stopped.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// Another session has a znode at the path, or this client has another presence there. It may be
    /// the znode of an earlier run of this process whose session has not expired yet.
    #[error(
        "session {session} owns the znode {path:?}; use another path, or wait for the end of that \
         session with `keep_trying`",
        path = Abridged(.path)
    )]
    Taken {
        /// The path of the znode.
        path: String,
        /// The session that owns it.
        session: SessionId,
    },
}

jute_codec::debug_by_message!(PresenceError);

impl PresenceError {
    /// Returns the code with which a server refused a request, if that is the reason.
    pub fn server_code(&self) -> Option<ErrorCode> {
        if let Self::Recipe(error) = self { error.server_code() } else { None }
    }
}

impl From<ConfigError> for PresenceError {
    fn from(error: ConfigError) -> Self {
        Self::Recipe(error.into())
    }
}

impl MayTimeOut for PresenceError {
    fn timed_out(_: &str) -> Self {
        RecipeError::timed_out().into()
    }

    fn timed_out_mut(&mut self) -> Option<&mut TimedOut> {
        if let Self::Recipe(error) = self { error.timed_out_mut() } else { None }
    }
}
