//! The semaphore itself.

use std::fmt;
use std::sync::Arc;

use zk_session::{Client, ConfigError, OptionDefect};

use super::machine::resize::Resize;
use crate::acquire::builder::{LockBuilder, LockCore};
use crate::acquire::side::Side;
use crate::acquire::{Acquire, TryAcquire};
use crate::engine::drive::run;
use crate::guard::Guard;
use crate::lock::contender::Contender;
use crate::lock::error::LockError;
use crate::lock::kind::{Kind, Queued};
use crate::lock::stats::LockStats;
use crate::machine::{FailedAction, ReadAll, read};
use crate::queue::contenders::contenders;
use crate::queue::naming::{NameForm, QueueNames};
use crate::queue::profile::{Permits, QueueProfile};

/// A lock that a limited number of contenders hold together. They are served in the order in which
/// the ensemble accepted them.
///
/// Building a semaphore does no I/O, and clones are cheap. A semaphore is identified by its
/// directory. The number of permits is stored in the data of the directory, as decimal digits: the
/// first contender stores it, and later ones compare.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
/// # let address = server.listen("127.0.0.1:0").await?;
/// use zk_recipes::{Client, Semaphore};
///
/// let client = Client::connect(address.to_string()).await?;
/// let uploads = Semaphore::new(&client, "/limits/uploads", 2)?;
///
/// let (one, another) = (uploads.acquire().await?, uploads.acquire().await?);
/// assert!(uploads.try_acquire().await?.is_none());
/// one.release().await?;
/// assert!(uploads.try_acquire().await?.is_some());
/// # drop(another);
/// # Ok(()) }
/// ```
///
/// **Costs.** An uncontended acquire is one round trip. A waiter watches as many of the contenders
/// ahead of it as there are permits. When one of these watches fires, it lists the queue once. Above
/// 16 permits, it watches the directory, and lists the queue when as many contenders may have left as
/// have to leave before it is entitled; on servers before 3.6, whenever one arrives or leaves. [`try_acquire`](Self::try_acquire) on a semaphore
/// without a free permit is one read.
///
/// **Permissions.** The client needs the same as for a [`FairLock`](crate::FairLock), and WRITE on
/// the directory if somebody else has created it without data.
///
/// **Not reentrant.** Each acquire takes another permit. A task that needs several and acquires them
/// one by one can wait for another task that does the same, without end.
#[derive(Clone)]
pub struct Semaphore {
    core: LockCore,
    profile: Arc<QueueProfile>,
}

/// The number of permits that a [`LockBuilder`] builds a semaphore with.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PermitLimit(Permits);

/// The kind of a [`Semaphore`].
#[derive(Clone, Copy, Debug)]
pub enum Permit {}

/// A permit of a [`Semaphore`] that is held, possibly together with other holders.
pub type PermitGuard = Guard<Permit>;

impl Semaphore {
    /// Builds a semaphore at a directory, with default options.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path below the root, or `permits` is 0.
    pub fn new(client: &Client, directory: &str, permits: u32) -> Result<Self, ConfigError> {
        Self::builder(client, directory)?.permits(permits).build()
    }

    /// Returns a builder for a semaphore at a directory. Its default is one permit.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path below the root.
    pub fn builder(
        client: &Client,
        directory: &str,
    ) -> Result<LockBuilder<Self, PermitLimit>, ConfigError> {
        LockBuilder::new(client, directory)
    }

    /// Acquires a permit, after all contenders that are in the queue already.
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned. If the session
    /// **expires** while the future waits, a new attempt starts in the next session, at the end of
    /// the queue, within the same timeout. **Cancel safe**: dropping the future at any moment
    /// leaves no znode.
    ///
    /// # Errors
    ///
    /// See [`LockError`], in particular [`LockError::PermitsDiffer`]. After any error nothing is
    /// held.
    pub fn acquire(&self) -> Acquire<Permit> {
        self.core.acquire(&self.profile)
    }

    /// Acquires a permit if one is free and no other contender waits for it. Otherwise returns
    /// `None`, at the cost of one read. Without a connection it fails with [`LockError::TimedOut`]
    /// after its timeout, by default the session timeout. In all other respects it is like
    /// [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// The errors are those of [`acquire`](Self::acquire).
    pub fn try_acquire(&self) -> TryAcquire<Permit> {
        self.core.try_acquire(&self.profile)
    }

    /// Reads the stored number of permits; `None` if none is stored, because nobody has used the
    /// semaphore yet or for a while.
    ///
    /// After a lost connection, requests are replayed. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`LockError::Refused`] if the directory may not be read; [`LockError::PermitsDiffer`] if its
    /// data is not a number; [`LockError::Closed`] and similar errors if the client has stopped.
    pub async fn stored_permits(&self) -> Result<Option<u32>, LockError> {
        let directory = &self.profile.directory;
        let operations = vec![read(directory.clone(), None)];
        let mut reading = ReadAll::new(operations, FailedAction::Read, directory);
        let response = run(&self.core.client, &mut reading, None).await??.pop().flatten();
        let Some(jute_codec::Response::GetData(found)) = response else { return Ok(None) };
        Permits::decode(found.data.as_ref()).map_err(|stored| LockError::PermitsDiffer {
            directory: directory.to_string(),
            stored,
            expected: self.expected().count,
        })
    }

    /// Changes the stored number of permits, and the number that this value expects. Contenders
    /// that wait at this time, in any process, use the new number. More permits are granted at
    /// once; after a reduction, the holders keep theirs, and new ones are granted when fewer than
    /// the new number are held. Other values of this semaphore, clones included, expect the old
    /// number until they are built with the new one, unless they
    /// [accept the stored one](LockBuilder::accept_stored_permits).
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned: the number is
    /// stored once, unless another client changes it at the same time. **Cancel safe** in that the
    /// number is stored or not.
    ///
    /// # Errors
    ///
    /// [`LockError::Config`] if `permits` is 0; [`LockError::Refused`] if the directory may not be
    /// written or created; [`LockError::Closed`] and similar errors if the client has stopped.
    pub async fn set_permits(&mut self, permits: u32) -> Result<(), LockError> {
        let permits = Permits { count: checked(permits)?, ..self.expected() };
        let profile = Arc::new(QueueProfile { permits: Some(permits), ..(*self.profile).clone() });
        let mut resize = Resize::new(Arc::clone(&profile));
        run(&self.core.client, &mut resize, None).await??;
        self.profile = profile;
        Ok(())
    }

    /// Reads the queue in its order: the holders first, then the waiters. Contenders that arrive or
    /// leave meanwhile may be missing or included.
    ///
    /// After a lost connection, requests are replayed. Cancel safe.
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

    /// Returns the counters of this semaphore and its clones.
    pub fn stats(&self) -> LockStats {
        self.core.stats()
    }

    /// Returns the directory of the semaphore.
    pub fn directory(&self) -> &str {
        &self.profile.directory
    }

    fn expected(&self) -> Permits {
        self.profile.permits.unwrap_or_default()
    }
}

impl LockBuilder<Semaphore, PermitLimit> {
    /// How many contenders hold the semaphore together, at least 1. Default: 1. The first contender
    /// stores the number. If another number is stored, acquires fail with
    /// [`LockError::PermitsDiffer`].
    pub fn permits(self, permits: u32) -> Self {
        let PermitLimit(limit) = *self.naming_so_far();
        self.set_naming(PermitLimit(Permits { count: permits, ..limit }))
    }

    /// Accepts the stored number of permits, whatever it is, so that it can be
    /// [changed](Semaphore::set_permits) without a restart of other clients. Then
    /// [`permits`](Self::permits) only counts if none is stored.
    pub fn accept_stored_permits(self) -> Self {
        let PermitLimit(limit) = *self.naming_so_far();
        self.set_naming(PermitLimit(Permits { accepts_stored: true, ..limit }))
    }

    /// Checks the options and builds the semaphore.
    ///
    /// # Errors
    ///
    /// There are no permits, the access control list is empty, or the interval of the watch check is
    /// too short.
    pub fn build(self) -> Result<Semaphore, ConfigError> {
        let (core, options, PermitLimit(permits)) = self.finish("semaphore")?;
        checked(permits.count)?;
        let profile = QueueProfile {
            permits: Some(permits),
            ..QueueProfile::new(
                options,
                QueueNames::exclusive(NameForm::known("-permit-", "permit-")),
            )
        };
        Ok(Semaphore { core, profile: Arc::new(profile) })
    }
}

fn checked(permits: u32) -> Result<u32, ConfigError> {
    if permits > 0 {
        return Ok(permits);
    }
    let (option, value) = ("permits of the semaphore", "0".to_owned());
    Err(ConfigError::Option { option, value, defect: OptionDefect::Zero })
}

impl Kind for Permit {}
impl Queued for Permit {}

impl From<&Semaphore> for Side<Permit> {
    fn from(lock: &Semaphore) -> Self {
        Self::new(&lock.core, &lock.profile)
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("directory", &self.directory())
            .field("permits", &self.expected().count)
            .finish_non_exhaustive()
    }
}
