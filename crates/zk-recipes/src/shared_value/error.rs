//! Why an operation on a shared value or a counter has failed.

use jute_codec::ErrorCode;
use std::fmt;

use thiserror::Error;
use zk_session::ConfigError;
use zk_session::recipe::Abridged;

use super::versioned::Versioned;
use crate::error::RecipeError;
use crate::stream::StreamError;
use crate::timed_out::{MayTimeOut, TimedOut};

/// Why an operation on a [`SharedValue`](crate::SharedValue) or a [`Counter`](crate::Counter) has
/// failed.
#[derive(Clone, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ValueError {
    /// The value has changed since it was read, so nothing was written. Read it again.
    #[error("the value has changed since it was read; read it again")]
    Conflict,
    /// The data of the znode has another format. Nothing was written.
    #[error("the data of {path:?} is not {expected}: {data}", path = Abridged(.path))]
    Malformed {
        /// The path of the znode.
        path: String,
        /// The data as text, in which other bytes are escaped.
        data: String,
        /// The format that the counter was built with.
        expected: &'static str,
    },
    /// The sum does not fit into the format of the counter. Nothing was written.
    #[error(
        "{value} plus {delta} does not fit into the format of the counter; nothing was written"
    )]
    Overflow {
        /// The number before the operation.
        value: i64,
        /// The number that was to be added.
        delta: i64,
    },
    /// It is not known whether the write was applied. It was applied at most once, and will not be
    /// applied any more, unless the cause is [`RecipeError::TimedOut`] or [`RecipeError::Closed`], or
    /// the client [has left a session](zk_session::Status::has_left_session): then it may still be.
    #[error(
        "the write may have been applied, because {cause}; {}", Found(.found)
    )]
    Undecided {
        /// Why the outcome could not be found out.
        cause: RecipeError,
        /// The value that was read when nothing could change the outcome any more. `None` if it
        /// could not be read, or the znode is missing.
        found: Option<Box<Versioned>>,
    },
    /// The znode was deleted and created again between the last look and the write. The new znode
    /// had the version of the old one, so the server has written to it.
    #[error(
        "the value was deleted and created again while it was written, and the new one now has the \
         data {written}; read it, and correct it"
    )]
    Recreated {
        /// What was written.
        written: Versioned,
    },
    /// The recipe failed, and nothing was written.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
}

jute_codec::debug_by_message!(ValueError);

impl ValueError {
    /// Returns the code with which a server refused a request, if that is the reason.
    pub fn server_code(&self) -> Option<ErrorCode> {
        if let Self::Recipe(error) = self { error.server_code() } else { None }
    }
}

impl StreamError for ValueError {
    fn is_last(&self) -> bool {
        matches!(self, Self::Recipe(error) if error.is_last())
    }
}

impl MayTimeOut for ValueError {
    fn timed_out(_: &str) -> Self {
        RecipeError::timed_out().into()
    }

    fn timed_out_mut(&mut self) -> Option<&mut TimedOut> {
        match self {
            Self::Recipe(error) | Self::Undecided { cause: error, .. } => error.timed_out_mut(),
            Self::Conflict
            | Self::Malformed { .. }
            | Self::Overflow { .. }
            | Self::Recreated { .. } => None,
        }
    }
}

/// The value that was read after a write whose outcome is not known.
struct Found<'a>(&'a Option<Box<Versioned>>);

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(found) => write!(f, "the value was {found} afterwards"),
            None => f.write_str("afterwards, no value could be read"),
        }
    }
}

impl From<ConfigError> for ValueError {
    fn from(error: ConfigError) -> Self {
        Self::Recipe(RecipeError::Config(error))
    }
}
