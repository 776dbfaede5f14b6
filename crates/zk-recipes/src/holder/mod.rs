//! The reentrant lock: a holder that counts its nested acquires.

mod level;

use std::fmt;
use std::sync::Arc;

use zk_session::Time;

pub use self::level::Level;
use self::level::Shared;
use crate::acquire::lock::Lock;
use crate::engine::call::Call;
use crate::engine::drive::before;
use crate::lock::error::LockError;
use crate::lock::kind::Kind;

/// A party that holds a lock once, however often its code acquires it: a reentrant lock.
///
/// A task has no identity that outlives a call, so the party is explicit: clones of a holder are
/// the same party, and two holders of one lock exclude each other like two processes. Give a clone
/// to every function, task or thread that belongs to the party.
///
/// The first [`acquire`](Self::acquire) acquires the lock. While it is held, each further acquire
/// is nested: it checks the state of the guard, sends nothing, and returns another [`Level`]. The
/// lock is released when the last level ends, in whatever order the levels end.
///
/// **A lost lock stays lost for its levels.** If the lock was lost, a nested acquire fails with
/// [`LockError::Lost`] until all levels of the lost hold have ended. It never acquires the lock
/// anew while an outer level believes that it has held the lock all the time.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
/// # let address = server.listen("127.0.0.1:0").await?;
/// use zk_recipes::{Client, FairLock, Holder, LockError, Released, kind::Fair};
///
/// async fn transfer(accounts: &Holder<Fair>) -> Result<(), LockError> {
///     let level = accounts.acquire().await?;
///     audit(accounts).await?;
///     level.release().await?;
///     Ok(())
/// }
///
/// async fn audit(accounts: &Holder<Fair>) -> Result<(), LockError> {
///     let level = accounts.acquire().await?;
///     println!("fencing token {}", level.fencing_token());
///     level.release().await?;
///     Ok(())
/// }
///
/// let client = Client::connect(address.to_string()).await?;
/// let accounts = Holder::new(&FairLock::new(&client, "/locks/accounts")?);
/// transfer(&accounts).await?;
/// audit(&accounts).await?;
/// # Ok(()) }
/// ```
///
/// **Costs.** The first level costs what an acquire of the lock costs, and the last one its
/// release. All other levels send nothing.
///
/// **Tasks.** If several tasks of one holder acquire at the same time, one of them acquires the
/// lock, and the others wait and then nest. They do not exclude each other: use a mutex of your
/// program for that.
pub struct Holder<K: Kind> {
    shared: Arc<Shared<K>>,
}

impl<K: Kind> Holder<K> {
    /// Creates a holder of a lock, or of one side of a read/write lock. Does no I/O.
    pub fn new(lock: impl Into<Lock<K>>) -> Self {
        Self { shared: Arc::new(Shared::new(lock.into())) }
    }

    /// Acquires the lock, or adds a level if this holder holds it already. While another task of
    /// this holder acquires the lock, waits for the result: if that task obtains the lock, this one
    /// adds a level, and if it fails or gives up, this one acquires the lock itself.
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned. If the lock is
    /// at risk, a nested acquire succeeds, because the outer levels count on the lock too.
    /// **Cancel safe**: dropping the future at any moment leaves no znode and no level, and other
    /// tasks of this holder continue.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if this holder has lost the lock, and a level of the lost hold has not
    /// ended. Otherwise the errors are those of the lock.
    pub fn acquire(&self) -> Call<Level<K>, LockError> {
        self.shared.call(async |shared, deadline| acquire(&shared, deadline).await)
    }

    /// Acquires the lock if that needs no wait, or adds a level. Returns `None` if another
    /// contender holds the lock or waits for it, or if another task of this holder is acquiring it
    /// at this moment. In all other respects it is like [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// The errors are those of [`acquire`](Self::acquire).
    pub fn try_acquire(&self) -> Call<Option<Level<K>>, LockError> {
        self.shared
            .call(async |shared, deadline| try_acquire(&shared, deadline).await)
            .timeout(self.shared.lock.client().status().timeout)
    }

    /// Returns how many levels there are now; 0 if this holder does not hold the lock. Levels of a
    /// lost lock count until they end.
    pub fn levels(&self) -> usize {
        self.shared.levels()
    }

    /// Returns the path that identifies the lock.
    pub fn path(&self) -> &str {
        self.shared.lock.path()
    }
}

async fn acquire<K: Kind>(
    shared: &Arc<Shared<K>>,
    deadline: Option<Time>,
) -> Result<Level<K>, LockError> {
    if let Some(nested) = shared.nest() {
        return nested;
    }
    // The turn passes to the next task when this future completes or is dropped.
    let _turn = before(shared.lock.client(), deadline, shared.turn.lock()).await?;
    // The task whose turn it was before may have obtained the lock.
    if let Some(nested) = shared.nest() {
        return nested;
    }
    let guard = shared.lock.acquire().until(deadline).await?;
    Ok(shared.begin(guard))
}

async fn try_acquire<K: Kind>(
    shared: &Arc<Shared<K>>,
    deadline: Option<Time>,
) -> Result<Option<Level<K>>, LockError> {
    if let Some(nested) = shared.nest() {
        return nested.map(Some);
    }
    let Ok(_turn) = shared.turn.try_lock() else { return Ok(None) };
    if let Some(nested) = shared.nest() {
        return nested.map(Some);
    }
    let guard = shared.lock.try_acquire().until(deadline).await?;
    Ok(guard.map(|guard| shared.begin(guard)))
}

impl<K: Kind> Clone for Holder<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K: Kind> fmt::Debug for Holder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holder")
            .field("path", &self.path())
            .field("levels", &self.levels())
            .finish_non_exhaustive()
    }
}
