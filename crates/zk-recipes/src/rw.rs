//! The read/write lock.

use std::sync::Arc;

use zk_session::{Client, ConfigError};

use crate::contenders::{Contender, contenders};
use crate::error::LockError;
use crate::kind;
use crate::lock::{Acquire, Core, Lock, LockBuilder, TryAcquire, sealed};
use crate::machine::Profile;
use crate::naming::{Names, RwNaming};
use crate::run::acquire::Target;
use crate::stats::LockStats;

/// A lock that readers share and writers have for themselves. Contenders of both kinds are served
/// in the order in which the ensemble accepted them: nobody passes anybody, so neither kind can
/// keep the other out for ever, and readers who stand together enter together.
///
/// Making one does no I/O, and clones are cheap. A lock is known by its directory: contenders in
/// any process that use the same directory, and the same [`RwNaming`], respect each other.
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
/// // Nobody can write between the end of the writing and the beginning of the reading.
/// let reading = writing.downgrade().await?;
/// reading.release().await?;
/// # Ok(()) }
/// ```
///
/// **No upgrade.** A reader cannot become a writer: two readers that tried would wait for each
/// other for ever. Release, and acquire anew; what was read has to be read again.
///
/// **Costs.** An uncontended acquire is one round trip. A reader watches the nearest writer ahead
/// of it, a writer the nearest contender, and whoever is woken reads the queue once. Whether a
/// lock is busy ([`try_read`](Self::try_read), [`try_write`](Self::try_write)) is one read.
///
/// **Permissions.** As for [`FairLock`](crate::FairLock).
///
/// **Not reentrant.** A holder that acquires again stands at the end of the queue. If a writer
/// waits between its two places, even two reads of one task wait for each other for ever.
#[derive(Clone, Debug)]
pub struct RwLock {
    core: Core,
    reader: Arc<Profile>,
    writer: Arc<Profile>,
}

impl RwLock {
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

    /// Acquires the lock for reading, after every writer who stands in the queue already.
    ///
    /// **Connection loss** is replayed, and never surfaces. **Expiry** of the session while
    /// waiting starts a new attempt in the next session, at the end of the queue, within the same
    /// timeout. **Cancel safe**: dropping the future at any moment leaves no znode.
    ///
    /// # Errors
    ///
    /// See [`LockError`]; after any of them nothing is held.
    pub fn read(&self) -> Acquire<kind::Read> {
        self.core.acquire(self.reader())
    }

    /// Acquires the lock for writing, after everybody who stands in the queue already. Otherwise
    /// as [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// See [`LockError`]; after any of them nothing is held.
    pub fn write(&self) -> Acquire<kind::Write> {
        self.core.acquire(self.writer())
    }

    /// Acquires the lock for reading if no writer holds it or waits for it; `None` otherwise, for
    /// the price of one read. Without a connection it ends with [`LockError::TimedOut`] after its
    /// timeout, by default the session timeout. Otherwise as [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn try_read(&self) -> TryAcquire<kind::Read> {
        self.core.try_acquire(self.reader())
    }

    /// Acquires the lock for writing if nobody holds it or waits for it; `None` otherwise.
    /// Otherwise as [`try_read`](Self::try_read).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn try_write(&self) -> TryAcquire<kind::Write> {
        self.core.try_acquire(self.writer())
    }

    /// Who stands in the queue, in its order. Those who come or go meanwhile may be in it or not.
    ///
    /// Lost connections are replayed. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`LockError::Refused`] if the directory or a contender may not be read;
    /// [`LockError::MixedKinds`]; [`LockError::Closed`] and the like if the client has stopped.
    pub async fn contenders(&self) -> Result<Vec<Contender>, LockError> {
        contenders(&self.core.client, &self.reader).await
    }

    /// What this lock and its clones have counted, readers and writers together.
    pub fn stats(&self) -> LockStats {
        self.core.stats()
    }

    /// The directory of the lock.
    pub fn directory(&self) -> &str {
        &self.reader.directory
    }

    fn reader(&self) -> Target {
        Target::Queue(Arc::clone(&self.reader))
    }

    fn writer(&self) -> Target {
        Target::Queue(Arc::clone(&self.writer))
    }
}

impl sealed::Sealed for RwLock {}

impl Lock for RwLock {
    type Naming = RwNaming;
}

impl LockBuilder<RwLock> {
    /// Forms of the readers' and writers' names. Default: [`RwNaming::curator`].
    pub fn naming(mut self, naming: RwNaming) -> Self {
        self.naming = naming;
        self
    }

    /// Checks the options.
    ///
    /// # Errors
    ///
    /// The access control list is empty, or the interval of the safety check is too short.
    pub fn build(self) -> Result<RwLock, ConfigError> {
        let (core, options, naming) = self.parts()?;
        let reader = options.clone().profile(Names::Reader(naming.clone()));
        let writer = options.profile(Names::Writer(naming));
        Ok(RwLock { core, reader, writer })
    }
}
