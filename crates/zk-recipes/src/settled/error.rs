//! Why an operation was not applied, or may have been.

use jute_codec::ErrorCode;
use thiserror::Error;
use zk_session::{ConfigError, Outcome, Target};

use crate::action::because;
use crate::error::RecipeError;
use crate::lock::error::LostReason;
use crate::timed_out::{MayTimeOut, TimedOut};

/// Why an operation of a [`SettledClient`](crate::SettledClient) was not applied or, in a few
/// cases, may have been: see [`outcome`](Self::outcome).
#[derive(Clone, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum SettledError {
    /// The operation was not applied, and never will be, for a reason other than the
    /// operation itself: for example, the client is closed, or the server refuses to create the
    /// marker.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// A server refused the operation. It was not applied, and never will be.
    #[error(
        "the server refused to {target}: {code}{}; nothing was applied",
        because(*.code, .target.operation, &.target.path)
    )]
    Refused {
        /// Index of the refused operation in the transaction, from 0. It is 0 for an operation that
        /// is not a transaction.
        index: usize,
        /// The error code of the server.
        code: ErrorCode,
        /// The operation and its path.
        target: Target,
    },
    /// The lock of the guard is lost, so the transaction was not applied, and never will be.
    #[error("the lock is lost, so nothing was applied: {0}")]
    LockLost(LostReason),
    /// A reply was lost, and other clients have changed or deleted what was to be written since. So
    /// nobody can know whether the operation was applied. It will not be applied any more.
    #[error(
        "nobody can know whether a request to {target} was applied: its reply was lost, and others \
         have changed it since"
    )]
    Overtaken {
        /// The operation and its path.
        target: Target,
    },
    /// The znode was deleted, and another one was created at its path.
    #[error(
        "another znode has replaced the one whose list was to be set; the request to {target} {}",
        if *.is_applied { "was applied to the other one" } else { "may have been applied to either" }
    )]
    Replaced {
        /// The operation and its path.
        target: Target,
        /// Whether the operation was applied to the other znode. If not, a reply was lost, and it may
        /// have been applied to either of them; it will not be applied any more.
        is_applied: bool,
    },
    /// The session ended in between. If the outcome is `Unknown`, the operation was applied at most
    /// once. Ephemeral znodes that it has created are gone, or soon will be.
    #[error("the session has ended in between; the operation {outcome}")]
    SessionEnded {
        /// What is known about the effect of the operation.
        outcome: Outcome,
    },
    /// It is not known whether the operation was applied, or still will be. It is applied at most
    /// once.
    #[error("the operation may have been applied, because {cause}")]
    Unknown {
        /// Why the outcome could not be found out.
        cause: RecipeError,
    },
}

jute_codec::debug_by_message!(SettledError);

impl SettledError {
    /// Returns what is known about the effect of the operation.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::LockLost(_) | Self::Recipe(_) | Self::Refused { .. } => Outcome::NotApplied,
            Self::SessionEnded { outcome } => *outcome,
            Self::Overtaken { .. } | Self::Replaced { .. } | Self::Unknown { .. } => {
                Outcome::Unknown
            }
        }
    }

    /// Returns the code with which a server refused the operation itself.
    pub fn server_code(&self) -> Option<ErrorCode> {
        if let Self::Refused { code, .. } = self { Some(*code) } else { None }
    }
}

impl MayTimeOut for SettledError {
    /// If only the watchdog has noticed that the time is up, a request may have been sent.
    fn timed_out(_: &str) -> Self {
        Self::Unknown { cause: RecipeError::timed_out() }
    }

    fn timed_out_mut(&mut self) -> Option<&mut TimedOut> {
        match self {
            Self::Recipe(error) | Self::Unknown { cause: error } => error.timed_out_mut(),
            Self::LockLost(_)
            | Self::Overtaken { .. }
            | Self::Refused { .. }
            | Self::Replaced { .. }
            | Self::SessionEnded { .. } => None,
        }
    }
}

impl From<ConfigError> for SettledError {
    fn from(error: ConfigError) -> Self {
        Self::Recipe(RecipeError::Config(error))
    }
}
