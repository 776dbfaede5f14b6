//! Errors of a multi-lock.

use thiserror::Error;
use zk_session::ConfigError;
use zk_session::recipe::Abridged;

use crate::lock::error::{LockError, LostReason};
use crate::lock::outcome::Released;
use crate::timed_out::{MayTimeOut, TimedOut};

/// Which lock of a [`MultiLock`](crate::MultiLock) has failed, and why.
#[derive(Clone, Eq, Error, PartialEq)]
#[error("{}{error}", of_multi_lock(path))]
#[non_exhaustive]
pub struct MultiLockError {
    /// The path that identifies the lock; empty if the error concerns no lock in particular.
    pub path: String,
    /// The error.
    #[source]
    pub error: LockError,
}

jute_codec::debug_by_message!(MultiLockError);

/// The release of a [`MultiGuard`](crate::MultiGuard) did not delete every znode. For each lock
/// that failed, the error says whether the client retries; see
/// [`Guard::release`](crate::Guard::release).
#[derive(Clone, Eq, Error, PartialEq)]
#[error("{} of {} locks were not released; the first: {}", failed.len(),
    failed.len() + released.len(), first(failed))]
#[non_exhaustive]
pub struct MultiReleaseError {
    /// The locks that were not released, in the order of the releases.
    pub failed: Vec<MultiLockError>,
    /// The other locks and how their releases ended, in the order of the releases.
    pub released: Vec<(String, Released)>,
}

jute_codec::debug_by_message!(MultiReleaseError);

/// For what the constructors of the locks return. The error itself names the option.
impl From<ConfigError> for MultiLockError {
    fn from(error: ConfigError) -> Self {
        Self::new("", error.into())
    }
}

/// Keeps the first lock that was not released.
impl From<MultiReleaseError> for MultiLockError {
    fn from(error: MultiReleaseError) -> Self {
        // The list is empty only if the caller has emptied it.
        let released = || Self::new("", LockError::Lost(LostReason::Released));
        error.failed.into_iter().next().unwrap_or_else(released)
    }
}

impl MayTimeOut for MultiLockError {
    fn timed_out(path: &str) -> Self {
        Self::new(path, LockError::timed_out(path))
    }

    fn timed_out_mut(&mut self) -> Option<&mut TimedOut> {
        self.error.timed_out_mut()
    }
}

impl MayTimeOut for MultiReleaseError {
    fn timed_out(path: &str) -> Self {
        Self { failed: vec![MultiLockError::timed_out(path)], released: Vec::new() }
    }

    fn timed_out_mut(&mut self) -> Option<&mut TimedOut> {
        self.failed.iter_mut().find_map(MayTimeOut::timed_out_mut)
    }
}

impl MultiLockError {
    pub(super) fn new(path: &str, error: LockError) -> Self {
        Self { path: path.to_owned(), error }
    }
}

fn of_multi_lock(path: &str) -> String {
    if path.is_empty() {
        String::new()
    } else {
        format!("lock {:?} of a multi-lock: ", Abridged(path))
    }
}

fn first(failed: &[MultiLockError]) -> String {
    failed.first().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_lock_that_was_not_released_is_kept() {
        let failed = ["/a", "/b"].map(|path| MultiLockError::new(path, LockError::Closed));
        let error = MultiReleaseError { failed: failed.to_vec(), released: Vec::new() };
        assert_eq!(MultiLockError::from(error), failed[0]);
    }
}
