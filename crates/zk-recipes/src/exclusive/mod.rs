//! The exclusive lock.

#[cfg(feature = "tokio")]
pub(crate) mod holder;
#[cfg(feature = "tokio")]
mod lock;

pub(crate) mod machine;

#[cfg(feature = "tokio")]
pub use self::lock::{Exclusive, ExclusiveGuard, ExclusiveLock};
