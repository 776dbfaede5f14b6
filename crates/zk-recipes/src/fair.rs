//! The fair lock.

use std::sync::Arc;

use zk_session::{Client, ConfigError};

use crate::contenders::{Contender, contenders};
use crate::error::LockError;
use crate::kind;
use crate::lock::{Acquire, Core, Lock, LockBuilder, TryAcquire, sealed};
use crate::machine::Profile;
use crate::naming::{Names, Naming};
use crate::run::acquire::Target;
use crate::stats::LockStats;

/// An exclusive lock whose contenders are served in the order in which the ensemble accepted them.
///
/// Making one does no I/O, and clones are cheap. A lock is known by its directory: contenders in
/// any process that use the same directory, and the same [`Naming`], exclude each other.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
/// # let address = server.listen("127.0.0.1:0").await?;
/// use std::time::Duration;
/// use zk_recipes::{Client, FairLock};
///
/// let client = Client::connect(address.to_string()).await?;
/// let lock = FairLock::new(&client, "/locks/billing")?;
///
/// let guard = lock.acquire().timeout(Duration::from_secs(30)).await?;
/// println!("fencing token {}", guard.fencing_token());
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// **Costs.** An uncontended acquire is one round trip. A waiter watches only the contender ahead
/// of it; when it stood directly behind the holder, the holder's release is its grant, without
/// another request. [`try_acquire`](Self::try_acquire) on a busy lock is one read.
///
/// **Permissions.** READ, CREATE and DELETE on the directory, READ on the contender znodes. A
/// missing directory is created as a container, and so are its ancestors, with everything allowed
/// to everyone; create it beforehand to have it otherwise.
///
/// **Not reentrant.** A second acquire by the holder waits behind the first.
#[derive(Clone, Debug)]
pub struct FairLock {
    core: Core,
    profile: Arc<Profile>,
}

impl FairLock {
    /// A lock at a directory, with default options.
    ///
    /// # Errors
    ///
    /// The path cannot be one.
    pub fn new(client: &Client, directory: &str) -> Result<Self, ConfigError> {
        Self::builder(client, directory)?.build()
    }

    /// Starts to describe a lock at a directory.
    ///
    /// # Errors
    ///
    /// The path cannot be one.
    pub fn builder(client: &Client, directory: &str) -> Result<LockBuilder<Self>, ConfigError> {
        LockBuilder::new(client, directory)
    }

    /// Acquires the lock, after everybody who stands in the queue already.
    ///
    /// **Connection loss** is replayed, and never surfaces. **Expiry** of the session while
    /// waiting starts a new attempt in the next session, at the end of the queue, within the same
    /// timeout. **Cancel safe**: dropping the future at any moment leaves no znode.
    ///
    /// # Errors
    ///
    /// See [`LockError`]; after any of them nothing is held.
    pub fn acquire(&self) -> Acquire<kind::Fair> {
        self.core.acquire(self.target())
    }

    /// Acquires the lock if nobody holds it or waits for it; `None` otherwise, for the price of
    /// one read. Without a connection it ends with [`LockError::TimedOut`] after its timeout, by
    /// default the session timeout. Otherwise as [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire(&self) -> TryAcquire<kind::Fair> {
        self.core.try_acquire(self.target())
    }

    /// Who stands in the queue, the holder first. Those who come or go meanwhile may be in it or
    /// not.
    ///
    /// Lost connections are replayed. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`LockError::Refused`] if the directory or a contender may not be read;
    /// [`LockError::MixedKinds`]; [`LockError::Closed`] and the like if the client has stopped.
    pub async fn contenders(&self) -> Result<Vec<Contender>, LockError> {
        contenders(&self.core.client, &self.profile).await
    }

    /// What this lock and its clones have counted.
    pub fn stats(&self) -> LockStats {
        self.core.stats()
    }

    /// The directory of the lock.
    pub fn directory(&self) -> &str {
        &self.profile.directory
    }

    fn target(&self) -> Target {
        Target::Queue(Arc::clone(&self.profile))
    }
}

impl sealed::Sealed for FairLock {}

impl Lock for FairLock {
    type Naming = Naming;
}

impl LockBuilder<FairLock> {
    /// Form of the contenders' names. Default: [`Naming::curator`].
    pub fn naming(mut self, naming: Naming) -> Self {
        self.naming = naming;
        self
    }

    /// Checks the options.
    ///
    /// # Errors
    ///
    /// The access control list is empty, or the interval of the safety check is too short.
    pub fn build(self) -> Result<FairLock, ConfigError> {
        let (core, options, naming) = self.parts()?;
        Ok(FairLock { core, profile: options.profile(Names::Fair(naming)) })
    }
}
