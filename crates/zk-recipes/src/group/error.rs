//! Why a process could not join a group, or what it asked of the group failed.

use jute_codec::ErrorCode;
use thiserror::Error;
use zk_session::recipe::Abridged;
use zk_session::{ConfigError, SessionId};

use crate::error::RecipeError;
use crate::timed_out::{MayTimeOut, TimedOut};

use super::state::Ending;

/// Why an operation of a group failed.
///
/// Lost connections are not among the reasons, because the requests of a group are replayed.
#[derive(Clone, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum GroupError {
    /// The membership has ended, so its data cannot be changed.
    #[error("the membership has ended: {0}")]
    Ended(Ending),
    /// Another member has this id. It may be an earlier run of this process whose session has not
    /// expired yet; to wait for its end, build the group with
    /// [`wait_if_taken`](crate::GroupBuilder::wait_if_taken).
    #[error(
        "session {session} is already a member as {path:?}; use another id, or wait for the end of \
         that session with `wait_if_taken`",
        path = Abridged(.path)
    )]
    IdTaken {
        /// The path of the member's znode.
        path: String,
        /// The session that owns it.
        session: SessionId,
    },
    /// The znode at the path of the member is not ephemeral, so it belongs to no member and does
    /// not disappear by itself. Delete it, or use another id or another directory.
    #[error(
        "the znode {path:?} is not ephemeral, so it cannot be a member; delete it, or use another id",
        path = Abridged(.path)
    )]
    NotEphemeral {
        /// The path of the znode.
        path: String,
    },
    /// A request failed, the deadline has passed, or the client has stopped.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
}

jute_codec::debug_by_message!(GroupError);

impl GroupError {
    /// Returns the code with which a server refused a request, if that is the reason.
    pub fn server_code(&self) -> Option<ErrorCode> {
        if let Self::Recipe(error) = self { error.server_code() } else { None }
    }
}

impl From<ConfigError> for GroupError {
    fn from(error: ConfigError) -> Self {
        Self::Recipe(error.into())
    }
}

impl MayTimeOut for GroupError {
    fn timed_out(_: &str) -> Self {
        RecipeError::timed_out().into()
    }

    fn timed_out_mut(&mut self) -> Option<&mut TimedOut> {
        if let Self::Recipe(error) = self { error.timed_out_mut() } else { None }
    }
}
