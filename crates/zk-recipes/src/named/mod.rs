//! Many fair locks below one root, by name.

mod encoding;

use std::fmt;
use std::sync::Arc;

use zk_session::{Client, ConfigError, OptionDefect};

use self::encoding::{decode, encode};
use crate::acquire::lock::Lock;
use crate::fair::{FairLock, Naming};
use crate::lock::kind::{Fair, Kind as _};
use crate::lock::options::{LockBuilder, LockOptions};
use crate::lock::stats::LockStats;
use crate::machine::child;
use crate::queue::profile::QueueProfile;

/// Many locks below one root, each known by a name: one for each order, user or file, for example.
///
/// [`lock`](Self::lock) returns a [`FairLock`] for a name. In contrast to a fair lock of its own,
/// such a lock removes its directory when its last contender leaves, so that millions of names
/// leave nothing behind.
///
/// A name is any text that is not empty. It may contain `/`, or be `.` or `..`: it is encoded as
/// one path component, so it never leads out of the root, and two names never share a lock.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
/// # let address = server.listen("127.0.0.1:0").await?;
/// use zk_recipes::{Client, NamedLocks};
///
/// let client = Client::connect(address.to_string()).await?;
/// let locks = NamedLocks::new(&client, "/locks")?;
///
/// let order = locks.lock("orders/42")?;
/// assert_eq!(order.directory(), "/locks/orders%2F42");
/// let guard = order.acquire().await?;
/// println!("fencing token {}", guard.fencing_token());
/// guard.release().await?;
/// assert!(client.exists(order.directory()).await?.is_none());
/// # Ok(()) }
/// ```
///
/// **Costs.** An uncontended acquire costs one round trip, as for any fair lock, but it writes
/// twice: the directory and the contender. A release also writes twice, in one round trip. For a
/// fixed set of names, [`FairLock`] writes half as often.
///
/// **Permissions.** The client needs CREATE and DELETE on the root, READ, CREATE and DELETE on the
/// directories of the locks, and READ on the contender znodes. Missing directories are created as
/// containers, with the list of the contenders. Without DELETE on the root, the directories stay
/// until the servers remove them as empty containers.
#[derive(Clone)]
pub struct NamedLocks {
    /// Each of the locks, except that its directory is the root.
    template: FairLock,
}

impl NamedLocks {
    /// Creates the locks below a root, with default options. Does no I/O.
    ///
    /// # Errors
    ///
    /// Fails if the root is not a valid absolute znode path below `/`.
    pub fn new(client: &Client, root: &str) -> Result<Self, ConfigError> {
        Self::builder(client, root)?.build()
    }

    /// Returns a builder for the locks below a root, which have the same options.
    ///
    /// # Errors
    ///
    /// Fails if the root is not a valid absolute znode path below `/`.
    pub fn builder(client: &Client, root: &str) -> Result<LockBuilder<Self, Naming>, ConfigError> {
        LockBuilder::new(client, root)
    }

    /// Returns the lock with this name. Does no I/O. All locks with the same root and name, in any
    /// process, are the same lock.
    ///
    /// # Errors
    ///
    /// Fails if the name is empty.
    pub fn lock(&self, name: &str) -> Result<FairLock, ConfigError> {
        if name.is_empty() {
            return Err(ConfigError::Option {
                option: "name of the lock",
                value: "\"\"".to_owned(),
                defect: OptionDefect::Empty,
            });
        }
        let Lock { profile, terms } = self.template.clone();
        let directory = child(profile.directory(), &encode(name));
        let options = LockOptions { path: directory, ..profile.options.clone() };
        let profile = Arc::new(QueueProfile { options, ..(*profile).clone() });
        Ok(Lock { profile, terms })
    }

    /// Returns the name of the lock whose directory has this path, such as the parent of a
    /// [`Contender`](crate::Contender)'s path. Returns `None` if the path is not the directory of
    /// one of these locks.
    pub fn name_of(&self, directory: &str) -> Option<String> {
        decode(directory.strip_prefix(self.root())?.strip_prefix('/')?)
    }

    /// Returns the counters of all locks together that this value and its clones have returned.
    pub fn stats(&self) -> LockStats {
        self.template.stats()
    }

    /// Returns the root.
    pub fn root(&self) -> &str {
        self.template.directory()
    }
}

impl LockBuilder<NamedLocks, Naming> {
    /// Checks the options.
    ///
    /// # Errors
    ///
    /// Fails if the access control list is empty or the interval of the watch check is too short.
    pub fn build(self) -> Result<NamedLocks, ConfigError> {
        let (terms, options, naming) = self.finish("named")?;
        let profile = Fair::profile(options, naming)?;
        let profile = Arc::new(QueueProfile { removes_directory: true, ..profile });
        Ok(NamedLocks { template: Lock { profile, terms } })
    }
}

impl fmt::Debug for NamedLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedLocks").field("root", &self.root()).finish_non_exhaustive()
    }
}
