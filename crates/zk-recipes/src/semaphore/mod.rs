//! The semaphore.

#[cfg(feature = "tokio")]
mod lock;

pub(crate) mod machine;

#[cfg(feature = "tokio")]
pub use self::lock::{Permit, PermitGuard, PermitLimit, Semaphore};
