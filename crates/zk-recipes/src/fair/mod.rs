//! The fair lock.

mod naming;

use std::convert::Infallible;

use zk_session::{Client, ConfigError};

pub use self::naming::Naming;
use crate::acquire::lock::Lock;
use crate::lock::kind::{Fair, Fenced, Kind, Queued};
use crate::lock::options::{LockBuilder, LockOptions};
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
/// release grants it the lock without another request. [`try_acquire`](Lock::try_acquire) of a busy
/// lock costs one read.
///
/// **Permissions.** The client needs READ, CREATE and DELETE on the directory, and READ on the
/// contender znodes. The lock creates a missing directory and its ancestors as containers, with the
/// list of the contenders.
///
/// **Not reentrant.** A second acquire by the holder waits behind the first.
pub type FairLock = Lock<Fair>;

impl FairLock {
    /// Builds a lock at a directory, with default options.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path below the root.
    pub fn new(client: &Client, directory: &str) -> Result<Self, ConfigError> {
        Self::builder(client, directory)?.build()
    }
}

impl<L> LockBuilder<L, Naming> {
    /// Sets the form of the contenders' names. Default: [`Naming::curator`].
    pub fn naming(mut self, naming: Naming) -> Self {
        self.naming = naming;
        self
    }
}

impl QueueKind for Fair {
    type Change = Infallible;
}

impl Kind for Fair {
    type Naming = Naming;

    const LOCK: &'static str = "FairLock";
    const METRIC: &'static str = "fair";

    fn profile(options: LockOptions, Naming(form): Naming) -> Result<QueueProfile, ConfigError> {
        Ok(QueueProfile::new(options, QueueNames::exclusive(form)))
    }
}

impl Fenced for Fair {}
impl Queued for Fair {}
