//! The lock itself, of any kind.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use zk_session::recipe::Session;
use zk_session::{Client, ConfigError, Time};

use crate::engine::call::Call;
use crate::guard::Terms;
use crate::lock::error::LockError;
use crate::lock::kind::{Kind, Queued};
use crate::lock::options::LockOptions;
use crate::lock::stats::LockStats;

/// A lock of the kind `K`. The locks have names, and a page each that says in which order
/// contenders are served, what the lock costs, and which permissions it needs:
///
/// - [`FairLock`](crate::FairLock), [`Semaphore`](crate::Semaphore),
///   [`ExclusiveLock`](crate::ExclusiveLock) and [`Election`](crate::Election) are locks;
/// - a [`RwLock`](crate::RwLock) consists of two: [`read_side`](crate::RwLock::read_side) returns
///   the lock that its readers acquire, and [`write_side`](crate::RwLock::write_side) that of its
///   writers.
///
/// Code that works with every lock, such as [`Holder`](crate::Holder) and
/// [`MultiLock`](crate::MultiLock), is generic over `K`:
///
/// ```
/// use zk_recipes::{Lock, LockError, kind::Fenced};
///
/// async fn token<K: Fenced>(lock: &Lock<K>) -> Result<i64, LockError> {
///     let guard = lock.acquire().await?;
///     let token = guard.fencing_token().get();
///     guard.release().await?;
///     Ok(token)
/// }
/// ```
///
/// Building a lock does no I/O, and clones are cheap. `K` decides which additional methods the lock
/// has, and which its [`Guard`](crate::Guard) has.
pub struct Lock<K: Kind> {
    pub(crate) profile: Arc<K::Profile>,
    pub(crate) terms: Terms,
}

impl<K: Kind> Lock<K> {
    /// Returns the counters of this lock and its clones. The two sides of a read/write lock have
    /// their counters in common.
    pub fn stats(&self) -> LockStats {
        self.terms.counters.snapshot(Session::of(self.client()).janitor_backlog())
    }

    /// Returns the path that identifies the lock: its directory, or the znode of an exclusive lock.
    pub fn path(&self) -> &str {
        K::path(&self.profile)
    }

    pub(crate) fn with(
        terms: Terms,
        options: LockOptions,
        naming: K::Naming,
    ) -> Result<Self, ConfigError> {
        Ok(Self { profile: Arc::new(K::profile(options, naming)?), terms })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.terms.client
    }

    /// Creates a call about the lock.
    pub(crate) fn call<T: 'static, F: Future<Output = Result<T, LockError>> + Send>(
        &self,
        start: impl FnOnce(Self, Option<Time>) -> F + Send + 'static,
    ) -> Call<T, LockError> {
        let lock = self.clone();
        Call::new(self.client(), K::path(&self.profile), |deadline| start(lock, deadline))
    }
}

impl<K: Queued> Lock<K> {
    /// Returns the directory of the contenders, which is the [`path`](Self::path) of the lock.
    pub fn directory(&self) -> &str {
        self.path()
    }
}

impl<K: Kind> Clone for Lock<K> {
    fn clone(&self) -> Self {
        Self { profile: Arc::clone(&self.profile), terms: self.terms.clone() }
    }
}

impl<K: Kind> From<&Self> for Lock<K> {
    fn from(lock: &Self) -> Self {
        lock.clone()
    }
}

impl<K: Kind> fmt::Debug for Lock<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut output = f.debug_struct(K::LOCK);
        K::describe(&self.profile, &mut output);
        output.finish_non_exhaustive()
    }
}
