//! Why an operation on a shared value or a counter has failed.

use thiserror::Error;
use zk_session::ConfigError;

use super::versioned::Versioned;
use crate::error::RecipeError;

/// Why an operation on a [`SharedValue`](crate::SharedValue) or a [`Counter`](crate::Counter) has
/// failed.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ValueError {
    /// The value has changed since it was read, so nothing was written. Read it again.
    #[error("the value has changed since it was read; read it again")]
    Conflict,
    /// The data of the znode has another format. Nothing was written.
    #[error("the data of {path:?} is not {expected}: {data}")]
    Malformed {
        /// The path of the znode.
        path: String,
        /// The data as text, in which other bytes are escaped.
        data: String,
        /// The format that the counter was built with.
        expected: &'static str,
    },
    /// The sum does not fit into the format of the counter. Nothing was written.
    #[error("{value} plus {delta} does not fit into the format of the counter")]
    Overflow {
        /// The number before the operation.
        value: i64,
        /// The number that was to be added.
        delta: i64,
    },
    /// It is not known whether the write was applied. It was applied at most once, and will not be
    /// applied any more, unless the cause is [`RecipeError::TimedOut`] or [`RecipeError::Closed`]:
    /// then it may still be.
    #[error(
        "the write may have been applied, because {cause}; the value found afterwards: {found:?}"
    )]
    Undecided {
        /// Why the outcome could not be found out.
        cause: RecipeError,
        /// The value that was read when nothing could change the outcome any more. `None` if it
        /// could not be read, or the znode is missing.
        found: Option<Versioned>,
    },
    /// The recipe failed, and nothing was written.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
}

impl From<ConfigError> for ValueError {
    fn from(error: ConfigError) -> Self {
        Self::Recipe(RecipeError::Config(error))
    }
}
