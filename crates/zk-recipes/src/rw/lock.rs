//! The read/write lock itself.

use std::convert::Infallible;
use std::fmt;

use zk_session::{Client, ConfigError};

use super::machine::Downgrade;
use super::naming::RwNaming;
use crate::acquire::lock::Lock;
use crate::acquire::{Acquire, TryAcquire};
use crate::engine::call::Call;
use crate::guard::Guard;
use crate::lock::contender::Contender;
use crate::lock::error::LockError;
use crate::lock::kind::{Fenced, Kind, Queued};
use crate::lock::options::{LockBuilder, LockOptions};
use crate::lock::role::Role;
use crate::lock::stats::LockStats;
use crate::queue::profile::QueueProfile;
use crate::queue::recipe::QueueKind;

/// A lock that readers share, while each writer holds it alone. Readers and writers form one queue,
/// in the order in which the ensemble accepted them. No contender overtakes another, so neither
/// kind can starve the other, and readers that are next to each other enter together.
///
/// Building a lock does no I/O, and clones are cheap. A lock is identified by its directory:
/// contenders in any process that use the same directory, and the same [`RwNaming`], respect each
/// other.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
/// # let address = server.listen("127.0.0.1:0").await?;
/// use zk_recipes::{Client, RwLock};
///
/// let client = Client::connect(address.to_string()).await?;
/// let lock = RwLock::new(&client, "/locks/catalogue")?;
///
/// let (one, another) = (lock.read().await?, lock.read().await?);
/// drop((one, another));
///
/// let writing = lock.write().await?;
/// println!("fencing token {}", writing.fencing_token());
/// // No other writer can enter between the write and the read.
/// let reading = writing.downgrade().await?;
/// reading.release().await?;
/// # Ok(()) }
/// ```
///
/// **No upgrade.** A reader cannot become a writer: two readers that tried would wait for each
/// other forever. Release the read lock, acquire the write lock, and read the data again.
///
/// **Costs.** An uncontended acquire costs one round trip. A reader watches the nearest writer
/// ahead of it, and a writer the nearest contender. A waiter whose watch fires lists the queue
/// once. [`try_read`](Self::try_read) and [`try_write`](Self::try_write) of a busy lock cost one
/// read.
///
/// **Permissions.** The client needs the same permissions as for a [`FairLock`](crate::FairLock).
///
/// **Not reentrant.** A second acquire by a holder enters the queue at its end. If a writer waits
/// between the two places, even two read locks of one task wait for each other forever.
#[derive(Clone)]
pub struct RwLock {
    reader: Lock<Read>,
    writer: Lock<Write>,
}

/// The kind of the reading side of a [`RwLock`].
#[derive(Clone, Copy, Debug)]
pub enum Read {}

/// The kind of the writing side of a [`RwLock`].
#[derive(Clone, Copy, Debug)]
pub enum Write {}

/// A [`RwLock`] that is held for reading, possibly together with other readers.
pub type ReadGuard = Guard<Read>;

/// A [`RwLock`] that is held for writing.
pub type WriteGuard = Guard<Write>;

impl RwLock {
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
    ) -> Result<LockBuilder<Self, RwNaming>, ConfigError> {
        LockBuilder::new(client, directory)
    }

    /// Acquires the lock for reading, after all writers that are in the queue already. In all other
    /// respects it is like [`Lock::acquire`].
    ///
    /// # Errors
    ///
    /// See [`LockError`]. After any error, the lock is not held.
    pub fn read(&self) -> Acquire<Read> {
        self.reader.acquire()
    }

    /// Acquires the lock for writing, after all contenders that are in the queue already. In all
    /// other respects it is like [`Lock::acquire`].
    ///
    /// # Errors
    ///
    /// See [`LockError`]. After any error, the lock is not held.
    pub fn write(&self) -> Acquire<Write> {
        self.writer.acquire()
    }

    /// Acquires the lock for reading if no writer holds it or waits for it. Otherwise returns
    /// `None`. In all other respects it is like [`Lock::try_acquire`].
    ///
    /// # Errors
    ///
    /// The errors are those of [`read`](Self::read).
    pub fn try_read(&self) -> TryAcquire<Read> {
        self.reader.try_acquire()
    }

    /// Acquires the lock for writing if no other contender holds it or waits for it. Otherwise
    /// returns `None`. In all other respects it is like [`Lock::try_acquire`].
    ///
    /// # Errors
    ///
    /// The errors are those of [`read`](Self::read).
    pub fn try_write(&self) -> TryAcquire<Write> {
        self.writer.try_acquire()
    }

    /// Returns the lock that readers acquire, for code that works with every lock, such as a
    /// [`Holder`](crate::Holder) or a [`MultiLock`](crate::MultiLock).
    pub fn read_side(&self) -> Lock<Read> {
        self.reader.clone()
    }

    /// Returns the lock that writers acquire, for code that works with every lock, such as a
    /// [`Holder`](crate::Holder) or a [`MultiLock`](crate::MultiLock).
    pub fn write_side(&self) -> Lock<Write> {
        self.writer.clone()
    }

    /// Reads the readers and writers in the order of the queue. In all other respects it is like
    /// [`Lock::contenders`].
    ///
    /// # Errors
    ///
    /// The errors are those of [`Lock::contenders`].
    pub fn contenders(&self) -> Call<Vec<Contender>, LockError> {
        self.reader.contenders()
    }

    /// Returns the counters of this lock and its clones, for readers and writers together.
    pub fn stats(&self) -> LockStats {
        self.reader.stats()
    }

    /// Returns the directory of the lock.
    pub fn directory(&self) -> &str {
        self.reader.directory()
    }
}

impl<L> LockBuilder<L, RwNaming> {
    /// Sets the forms of the readers' and writers' names. Default: [`RwNaming::curator`].
    pub fn naming(mut self, naming: RwNaming) -> Self {
        self.naming = naming;
        self
    }
}

impl LockBuilder<RwLock, RwNaming> {
    /// Checks the options and builds the lock.
    ///
    /// # Errors
    ///
    /// Fails if the access control list is empty or the interval of the watch check is too short.
    pub fn build(self) -> Result<RwLock, ConfigError> {
        let (terms, options, naming) = self.finish(Read::METRIC)?;
        let reader = Lock::with(terms.clone(), options.clone(), naming.clone())?;
        Ok(RwLock { reader, writer: Lock::with(terms, options, naming)? })
    }
}

impl QueueKind for Read {
    type Change = Infallible;
}

impl QueueKind for Write {
    type Change = Downgrade;
}

impl Kind for Read {
    type Naming = RwNaming;

    const LOCK: &'static str = "Lock<Read>";
    const METRIC: &'static str = "rw";

    fn profile(options: LockOptions, naming: RwNaming) -> Result<QueueProfile, ConfigError> {
        Ok(QueueProfile::new(options, naming.names(Role::Shared)))
    }
}

impl Queued for Read {}

impl Kind for Write {
    type Naming = RwNaming;

    const LOCK: &'static str = "Lock<Write>";
    const METRIC: &'static str = "rw";

    fn profile(options: LockOptions, naming: RwNaming) -> Result<QueueProfile, ConfigError> {
        Ok(QueueProfile::new(options, naming.names(Role::Exclusive)))
    }
}

impl Fenced for Write {}
impl Queued for Write {}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock").field("directory", &self.directory()).finish_non_exhaustive()
    }
}
