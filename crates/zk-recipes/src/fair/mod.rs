//! The fair lock.

mod naming;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use zk_session::{Client, ConfigError};

pub use self::naming::Naming;
use crate::acquire::builder::{LockBuilder, LockCore};
use crate::acquire::side::Side;
use crate::acquire::{Acquire, TryAcquire};
use crate::lock::contender::Contender;
use crate::lock::error::LockError;
use crate::lock::kind::{Fair, Fenced, Kind, Queued};
use crate::lock::stats::LockStats;
use crate::queue::contenders::contenders;
use crate::queue::naming::QueueNames;
use crate::queue::profile::QueueProfile;
use crate::queue::recipe::QueueKind;

/// An exclusive lock whose contenders are served in the order in which the ensemble accepted them.
///
/// Building a lock does no I/O, and clones are cheap. A lock is identified by its directory:
/// contenders in any process that use the same directory, and the same [`Naming`], exclude each
/// other.
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
/// **Costs.** An uncontended acquire costs one round trip. A waiter watches its own znode
/// and at most the two contenders ahead of it. If it was directly behind the holder, the holder's
/// release grants it the lock without another request. [`try_acquire`](Self::try_acquire) of a busy
/// lock costs one read.
///
/// **Permissions.** The client needs READ, CREATE and DELETE on the directory, and READ on the
/// contender znodes. The lock creates a missing directory and its ancestors as containers, with the
/// list of the contenders.
///
/// **Not reentrant.** A second acquire by the holder waits behind the first.
#[derive(Clone)]
pub struct FairLock {
    core: LockCore,
    profile: Arc<QueueProfile>,
}

impl FairLock {
    /// Builds a lock at a directory, with default options.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path below the root.
    pub fn new(client: &Client, directory: &str) -> Result<Self, ConfigError> {
        Self::builder(client, directory)?.build()
    }

    /// Returns a builder for a lock at a directory.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path below the root.
    pub fn builder(
        client: &Client,
        directory: &str,
    ) -> Result<LockBuilder<Self, Naming>, ConfigError> {
        LockBuilder::new(client, directory)
    }

    /// Acquires the lock, after all contenders that are in the queue already.
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned. If the session
    /// **expires** while the future waits, a new attempt starts in the next session, at the end of
    /// the queue, within the same timeout. **Cancel safe**: dropping the future at any moment
    /// leaves no znode.
    ///
    /// # Errors
    ///
    /// See [`LockError`]. After any error, the lock is not held.
    pub fn acquire(&self) -> Acquire<Fair> {
        self.core.acquire(&self.profile)
    }

    /// Acquires the lock if no other contender holds it or waits for it. Otherwise returns `None`,
    /// at the cost of one read. Without a connection it fails with [`LockError::TimedOut`] after
    /// its timeout, by default the session timeout. In all other respects it is like
    /// [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// The errors are those of [`acquire`](Self::acquire).
    pub fn try_acquire(&self) -> TryAcquire<Fair> {
        self.core.try_acquire(&self.profile)
    }

    /// Reads the queue: the holder first, then the waiters in their order. The result may or may
    /// not include contenders that join or leave the queue during the call.
    ///
    /// After a lost connection, the reads are repeated. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`LockError::Refused`] if the client may not read the directory or a contender;
    /// [`LockError::MixedKinds`] if the directory contains a lock of another kind;
    /// [`LockError::QueueExhausted`] if its sequence counter has reached its end;
    /// [`LockError::Closed`] and similar errors if the client has stopped.
    pub async fn contenders(&self) -> Result<Vec<Contender>, LockError> {
        contenders(&self.core.client, &self.profile).await
    }

    /// Returns the counters of this lock and its clones.
    pub fn stats(&self) -> LockStats {
        self.core.stats()
    }

    /// Returns the directory of the lock.
    pub fn directory(&self) -> &str {
        &self.profile.directory
    }
}

impl FairLock {
    pub(crate) fn from_parts(core: LockCore, profile: QueueProfile) -> Self {
        Self { core, profile: Arc::new(profile) }
    }
}

impl LockBuilder<FairLock, Naming> {
    /// Sets the form of the contenders' names. Default: [`Naming::curator`].
    pub fn naming(self, naming: Naming) -> Self {
        self.set_naming(naming)
    }

    /// Checks the options and builds the lock.
    ///
    /// # Errors
    ///
    /// Fails if the access control list is empty or the interval of the watch check is too short.
    pub fn build(self) -> Result<FairLock, ConfigError> {
        let (core, options, Naming(form)) = self.finish("fair")?;
        let profile = QueueProfile::new(options, QueueNames::exclusive(form));
        Ok(FairLock::from_parts(core, profile))
    }
}

impl QueueKind for Fair {
    type Change = Infallible;
}

impl Kind for Fair {}
impl Fenced for Fair {}
impl Queued for Fair {}

impl From<&FairLock> for Side<Fair> {
    fn from(lock: &FairLock) -> Self {
        Self::new(&lock.core, &lock.profile)
    }
}

impl fmt::Debug for FairLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairLock").field("directory", &self.directory()).finish_non_exhaustive()
    }
}
