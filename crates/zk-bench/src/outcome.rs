//! The result of every step of the benchmark.

use std::error::Error;

/// Errors are only printed, so their type does not matter.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;
