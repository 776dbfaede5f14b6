//! Errors without the operation and the path, for tests that compare only the rest.

use zk_recipes::TransactionError;
use zk_session::{ErrorCode, MultiError, OpError, Target};

/// Removes the operation and the path from an error.
pub trait Bare {
    /// Returns this without the operation and the path.
    #[must_use]
    fn bare(self) -> Self;
}

impl Bare for OpError {
    fn bare(self) -> Self {
        self.about(Target::default())
    }
}

impl Bare for MultiError {
    fn bare(self) -> Self {
        match self {
            Self::Op(error) => Self::Op(error.bare()),
            Self::Refused { index, code, target: _ } => refused(index, code),
        }
    }
}

impl Bare for TransactionError {
    fn bare(self) -> Self {
        match self {
            Self::Op(error) => Self::Op(error.bare()),
            Self::Refused { index, code, target: _ } => not_committed(index, code),
            other @ (Self::CheckRefused { .. } | Self::Lost(_) | _) => other,
        }
    }
}

impl<T, E: Bare> Bare for Result<T, E> {
    fn bare(self) -> Self {
        self.map_err(Bare::bare)
    }
}

/// Returns the bare error of a multi that a server refused.
pub fn refused(index: usize, code: ErrorCode) -> MultiError {
    MultiError::Refused { index, code, target: Target::default() }
}

/// Returns the bare error of a transaction that a server refused.
pub fn not_committed(index: usize, code: ErrorCode) -> TransactionError {
    TransactionError::Refused { index, code, target: Target::default() }
}
