//! The read/write lock itself.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use zk_session::{Client, ConfigError};

use super::machine::Downgrade;
use super::naming::RwNaming;
use crate::acquire::builder::{LockBuilder, LockCore};
use crate::acquire::side::Side;
use crate::acquire::{Acquire, TryAcquire};
use crate::guard::Guard;
use crate::lock::contender::Contender;
use crate::lock::error::LockError;
use crate::lock::kind::{Fenced, Kind, Queued};
use crate::lock::role::Role;
use crate::lock::stats::LockStats;
use crate::queue::contenders::contenders;
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
    core: LockCore,
    reader: Arc<QueueProfile>,
    writer: Arc<QueueProfile>,
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

    /// Acquires the lock for reading, after all writers that are in the queue already.
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned. If the session
    /// **expires** while the future waits, a new attempt starts in the next session, at the end of
    /// the queue, within the same timeout. **Cancel safe**: dropping the future at any moment
    /// leaves no znode.
    ///
    /// # Errors
    ///
    /// See [`LockError`]. After any error, the lock is not held.
    pub fn read(&self) -> Acquire<Read> {
        self.core.acquire(&self.reader)
    }

    /// Acquires the lock for writing, after all contenders that are in the queue already. In all
    /// other respects it is like [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// See [`LockError`]. After any error, the lock is not held.
    pub fn write(&self) -> Acquire<Write> {
        self.core.acquire(&self.writer)
    }

    /// Acquires the lock for reading if no writer holds it or waits for it. Otherwise returns
    /// `None`, at the cost of one read. Without a connection it fails with [`LockError::TimedOut`]
    /// after its timeout, by default the session timeout. In all other respects it is like
    /// [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// The errors are those of [`read`](Self::read).
    pub fn try_read(&self) -> TryAcquire<Read> {
        self.core.try_acquire(&self.reader)
    }

    /// Acquires the lock for writing if no other contender holds it or waits for it. Otherwise
    /// returns `None`. In all other respects it is like [`try_read`](Self::try_read).
    ///
    /// # Errors
    ///
    /// The errors are those of [`read`](Self::read).
    pub fn try_write(&self) -> TryAcquire<Write> {
        self.core.try_acquire(&self.writer)
    }

    /// Returns the side of the readers, for a [`Holder`](crate::Holder) or a
    /// [`MultiLock`](crate::MultiLock).
    pub fn read_side(&self) -> Side<Read> {
        Side::new(&self.core, &self.reader)
    }

    /// Returns the side of the writers, for a [`Holder`](crate::Holder) or a
    /// [`MultiLock`](crate::MultiLock).
    pub fn write_side(&self) -> Side<Write> {
        Side::new(&self.core, &self.writer)
    }

    /// Reads the contenders in the order of the queue. The result may or may not include contenders
    /// that join or leave the queue during the call.
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
        contenders(&self.core.client, &self.reader).await
    }

    /// Returns the counters of this lock and its clones, for readers and writers together.
    pub fn stats(&self) -> LockStats {
        self.core.stats()
    }

    /// Returns the directory of the lock.
    pub fn directory(&self) -> &str {
        &self.reader.directory
    }
}

impl LockBuilder<RwLock, RwNaming> {
    /// Sets the forms of the readers' and writers' names. Default: [`RwNaming::curator`].
    pub fn naming(self, naming: RwNaming) -> Self {
        self.set_naming(naming)
    }

    /// Checks the options and builds the lock.
    ///
    /// # Errors
    ///
    /// Fails if the access control list is empty or the interval of the watch check is too short.
    pub fn build(self) -> Result<RwLock, ConfigError> {
        let (core, options, naming) = self.finish("rw")?;
        let profile = |role| Arc::new(QueueProfile::new(options.clone(), naming.names(role)));
        Ok(RwLock { core, reader: profile(Role::Shared), writer: profile(Role::Exclusive) })
    }
}

impl QueueKind for Read {
    type Change = Infallible;
}

impl QueueKind for Write {
    type Change = Downgrade;
}

impl Kind for Read {}
impl Queued for Read {}

impl Kind for Write {}
impl Fenced for Write {}
impl Queued for Write {}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock").field("directory", &self.directory()).finish_non_exhaustive()
    }
}
