//! The read/write lock.

#[cfg(feature = "tokio")]
mod downgrade;
#[cfg(feature = "tokio")]
mod lock;
#[cfg(feature = "tokio")]
mod naming;

pub(crate) mod machine;

#[cfg(feature = "tokio")]
pub use self::{
    downgrade::DowngradeError,
    lock::{Read, ReadGuard, RwLock, Write, WriteGuard},
    naming::RwNaming,
};
