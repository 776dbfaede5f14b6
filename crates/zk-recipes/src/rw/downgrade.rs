//! Downgrading a guard.

use thiserror::Error;

use super::lock::{Read, ReadGuard, WriteGuard};
use super::machine::DowngradeRequest;
use crate::engine::call::Call;
use crate::lock::error::LockError;
use crate::timed_out::{MayTimeOut, TimedOut};

/// Why a writer did not become a reader.
#[derive(Error)]
#[error("the lock was not downgraded: {error}")]
#[non_exhaustive]
pub struct DowngradeError {
    /// The error.
    #[source]
    pub error: LockError,
    /// The guard of the lock, which is still held for writing; dropping it releases the lock. `None`
    /// if the lock is lost, or the call has timed out: then the client releases the lock in the
    /// background, whether it is held for writing or reading by then.
    pub guard: Option<WriteGuard>,
}

jute_codec::debug_by_message!(DowngradeError);

impl WriteGuard {
    /// Downgrades to a read lock without a gap in which another writer could enter: the ensemble
    /// replaces the writer's znode with a reader's in one transaction, at the same place in the
    /// queue. The readers that wait directly behind it enter, up to the next writer.
    ///
    /// Observers of this guard follow the lock: [`lost`](Self::lost) and
    /// [`phases`](crate::Acquire::phases) report the reader's state from then on. A
    /// [`status`](Self::status) of the writer reports `None` from then on.
    ///
    /// After a **connection loss**, requests are replayed. **Not cancel safe**: dropping the call
    /// releases the lock in the background, as soon as the client knows which znode holds the lock,
    /// and so does a [timeout](Call::timeout).
    ///
    /// # Errors
    ///
    /// Returns a [`DowngradeError`], which contains the guard if the lock is still held.
    pub fn downgrade(self) -> Call<ReadGuard, DowngradeError> {
        let (client, path) = (self.client().clone(), self.path().into());
        let changed = self.change::<Read>(DowngradeRequest);
        Call::waiting(&client, &path, async move {
            changed.await.map_err(|(error, guard)| DowngradeError { error, guard })
        })
    }
}

impl MayTimeOut for DowngradeError {
    fn timed_out(path: &str) -> Self {
        Self { error: LockError::timed_out(path), guard: None }
    }

    fn timed_out_mut(&mut self) -> Option<&mut TimedOut> {
        self.error.timed_out_mut()
    }
}

impl From<DowngradeError> for LockError {
    /// Drops the guard, which releases the lock.
    fn from(error: DowngradeError) -> Self {
        error.error
    }
}
