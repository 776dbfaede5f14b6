//! The exclusive lock.

use std::sync::Arc;

use zk_session::{Client, ConfigError};

use crate::contenders::{Contender, holder};
use crate::error::LockError;
use crate::kind;
use crate::lock::{Acquire, Core, Lock, LockBuilder, Options, TryAcquire, sealed};
use crate::machine::exclusive::ExclusiveProfile;
use crate::run::acquire::Target;
use crate::stats::LockStats;

/// A lock that is one znode: whoever creates it holds the lock. Contenders are served in no order.
///
/// Its place is where a lock is mostly free, or where losing means doing something else:
/// [`try_acquire`](Self::try_acquire). When it is released, all who wait try at once, and one of
/// them gets it, not the one that has waited longest. With more than a few waiters, or where
/// everybody must have its turn, use [`FairLock`](crate::FairLock).
///
/// Making one does no I/O, and clones are cheap. A lock is known by the path of its znode.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
/// # let address = server.listen("127.0.0.1:0").await?;
/// use zk_recipes::{Client, ExclusiveLock};
///
/// let client = Client::connect(address.to_string()).await?;
/// let lock = ExclusiveLock::new(&client, "/locks/nightly-report")?;
///
/// match lock.try_acquire().await? {
///     Some(guard) => {
///         println!("fencing token {}", guard.fencing_token());
///         guard.release().await?;
///     }
///     None => println!("somebody else writes it"),
/// }
/// # Ok(()) }
/// ```
///
/// **No transactions.** The name of the znode is the same for every holder, so a check of it could
/// not tell them apart. Its guard has a [`fencing_token`](crate::Guard::fencing_token) and
/// [`validate`](crate::Guard::validate).
///
/// **An administrator's delete.** ZooKeeper has no "delete if it is mine". If somebody deletes the
/// znode of a holder by hand, and another holder comes, and the first one releases before it has
/// heard of it, it removes the znode of the other. Names in a queue are unique, so this cannot
/// happen to a [`FairLock`](crate::FairLock).
///
/// **Costs.** An uncontended acquire is one round trip, a busy `try_acquire` one read, a release
/// one delete.
///
/// **Permissions.** CREATE and DELETE on the directory above, READ on the znode. Missing
/// directories are created as containers, with everything allowed to everyone.
///
/// **Not reentrant.** A second acquire by the holder waits for the first.
#[derive(Clone, Debug)]
pub struct ExclusiveLock {
    core: Core,
    profile: Arc<ExclusiveProfile>,
}

impl ExclusiveLock {
    /// A lock at a path, with default options.
    ///
    /// # Errors
    ///
    /// The path cannot be one.
    pub fn new(client: &Client, path: &str) -> Result<Self, ConfigError> {
        Self::builder(client, path)?.build()
    }

    /// Starts to describe a lock at a path.
    ///
    /// # Errors
    ///
    /// The path cannot be one.
    pub fn builder(client: &Client, path: &str) -> Result<LockBuilder<Self>, ConfigError> {
        LockBuilder::new(client, path)
    }

    /// Acquires the lock, waiting as long as somebody else holds it.
    ///
    /// **Connection loss** is replayed, and never surfaces. **Expiry** of the session while
    /// waiting starts a new attempt in the next session, within the same timeout. **Cancel safe**:
    /// dropping the future at any moment leaves no znode.
    ///
    /// # Errors
    ///
    /// See [`LockError`]; after any of them nothing is held. A znode at the path that is not
    /// ephemeral is no lock, and is reported as [`LockError::MixedKinds`].
    pub fn acquire(&self) -> Acquire<kind::Exclusive> {
        self.core.acquire(self.target())
    }

    /// Acquires the lock if nobody holds it; `None` otherwise, for the price of one read. Without
    /// a connection it ends with [`LockError::TimedOut`] after its timeout, by default the session
    /// timeout. Otherwise as [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire(&self) -> TryAcquire<kind::Exclusive> {
        self.core.try_acquire(self.target())
    }

    /// Who holds the lock, if anybody does. Who waits for it cannot be seen.
    ///
    /// Lost connections are replayed. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`LockError::Refused`] if the znode may not be read; [`LockError::MixedKinds`] if it is not
    /// ephemeral, and so no lock; [`LockError::Closed`] and the like if the client has stopped.
    pub async fn holder(&self) -> Result<Option<Contender>, LockError> {
        holder(&self.core.client, &self.profile.path).await
    }

    /// What this lock and its clones have counted.
    pub fn stats(&self) -> LockStats {
        self.core.stats()
    }

    /// The path of the lock.
    pub fn path(&self) -> &str {
        &self.profile.path
    }

    fn target(&self) -> Target {
        Target::Exclusive(Arc::clone(&self.profile))
    }
}

impl sealed::Sealed for ExclusiveLock {}

impl Lock for ExclusiveLock {
    type Naming = ();
}

impl LockBuilder<ExclusiveLock> {
    /// Checks the options.
    ///
    /// # Errors
    ///
    /// The access control list is empty, or the interval of the safety check is too short.
    pub fn build(self) -> Result<ExclusiveLock, ConfigError> {
        let (core, Options { path, acl, identity, safety_relist, .. }, ()) = self.parts()?;
        let profile = ExclusiveProfile { path, acl, identity, safety_relist };
        Ok(ExclusiveLock { core, profile: Arc::new(profile) })
    }
}
