//! A lock as contenders of one kind acquire it.

use std::fmt;
use std::sync::Arc;

use zk_session::Client;

use super::builder::LockCore;
use super::{Acquire, TryAcquire};
use crate::lock::kind::Kind;

/// A lock as contenders of the kind `K` acquire it.
///
/// Most locks have one side, which `Side::from(&lock)` returns. A [`RwLock`](crate::RwLock) has
/// two: [`read_side`](crate::RwLock::read_side) and [`write_side`](crate::RwLock::write_side).
/// [`Holder`](crate::Holder) and [`MultiLock`](crate::MultiLock) are built from sides, so that they
/// work with every lock. Clones are cheap.
pub struct Side<K: Kind> {
    core: LockCore,
    profile: Arc<K::Profile>,
}

impl<K: Kind> Side<K> {
    pub(crate) fn new(core: &LockCore, profile: &Arc<K::Profile>) -> Self {
        Self { core: core.clone(), profile: Arc::clone(profile) }
    }

    /// Acquires the lock, with the order, the errors and the costs of the lock itself.
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned. **Cancel
    /// safe**: dropping the future at any moment leaves no znode.
    ///
    /// # Errors
    ///
    /// See [`LockError`](crate::LockError). After any error, the lock is not held.
    pub fn acquire(&self) -> Acquire<K> {
        self.core.acquire(&self.profile)
    }

    /// Acquires the lock if that needs no wait, and returns `None` otherwise. In all other respects
    /// it is like [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// The errors are those of [`acquire`](Self::acquire).
    pub fn try_acquire(&self) -> TryAcquire<K> {
        self.core.try_acquire(&self.profile)
    }

    /// Returns the path that identifies the lock: its directory, or the znode of an exclusive lock.
    pub fn path(&self) -> &str {
        K::path(&self.profile)
    }

    pub(crate) fn client(&self) -> &Client {
        &self.core.client
    }
}

impl<K: Kind> Clone for Side<K> {
    fn clone(&self) -> Self {
        Self::new(&self.core, &self.profile)
    }
}

impl<K: Kind> From<&Self> for Side<K> {
    fn from(side: &Self) -> Self {
        side.clone()
    }
}

impl<K: Kind> fmt::Debug for Side<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Side").field("path", &self.path()).finish_non_exhaustive()
    }
}
