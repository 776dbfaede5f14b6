//! The semaphore itself.

use std::convert::Infallible;
use std::fmt::DebugStruct;
use std::sync::Arc;

use bytestring::ByteString;
use jute_codec::Response;
use zk_session::recipe::Operation;
use zk_session::{Client, ConfigError, OptionDefect};

use super::machine::attempt::SemaphoreAttempt;
use super::machine::resize::Resize;
use super::machine::standing;
use crate::acquire::lock::Lock;
use crate::engine::call::{Call, ScopedCall};
use crate::engine::drive::{run, run_to_end};
use crate::guard::Guard;
use crate::lock::error::LockError;
use crate::lock::kind::{Kind, Queued};
use crate::lock::options::{LockBuilder, LockOptions};
use crate::lock::recipe::Recipe;
use crate::machine::{FailedAction, ReadAll, list, read};
use crate::queue::machine::removal::QueueRemoval;
use crate::queue::naming::{NameForm, QueueNames};
use crate::queue::profile::{Permits, QueueProfile};

/// A lock that a limited number of contenders hold together. They are served in the order in which
/// the ensemble accepted them.
///
/// Building a semaphore does no I/O, and clones are cheap. A semaphore is identified by its
/// directory. The number of permits is stored in the data of the directory, as decimal digits: the
/// first contender stores it, and later ones compare: their acquires fail with
/// [`LockError::PermitsDiffer`] if they expect another number.
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
/// 16 permits, it watches the directory and counts the changes: it lists the queue once enough
/// contenders may have left; on servers before 3.6, it lists whenever one arrives or leaves.
/// [`try_acquire`](Lock::try_acquire) on a semaphore without a free permit is one read.
///
/// **Permissions.** The client needs the same as for a [`FairLock`](crate::FairLock), and WRITE on
/// the directory if somebody else has created it without data.
///
/// **Not reentrant.** Each acquire takes another permit. A task that needs several and acquires them
/// one by one can wait for another task that does the same, without end.
pub type Semaphore = Lock<Permit>;

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

    /// Reads the stored number of permits; `None` if none is stored, because nobody has used the
    /// semaphore yet or for a while, and nobody has [set](Self::set_permits) the number.
    ///
    /// After a lost connection, requests are replayed. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`LockError::Refused`] if the directory may not be read; [`LockError::PermitsDiffer`] if its
    /// data is not a number; [`LockError::TimedOut`] after a [timeout](Call::timeout);
    /// [`LockError::Closed`] and similar errors if the client has stopped.
    pub fn stored_permits(&self) -> Call<Option<u32>, LockError> {
        self.call(async |semaphore, deadline| {
            let directory = semaphore.profile.directory();
            let operations = vec![read(directory.clone(), None)];
            let mut reading = ReadAll::new(operations, FailedAction::Read, directory);
            let response = run(semaphore.client(), &mut reading, deadline).await?.pop().flatten();
            let Some(Response::GetData(found)) = response else { return Ok(None) };
            Permits::decode(found.data.as_ref()).map_err(|stored| LockError::PermitsDiffer {
                directory: directory.to_string(),
                stored,
                expected: semaphore.expected().count,
            })
        })
    }

    /// Changes the stored number of permits, and the number that this value expects. Contenders
    /// that wait at this time, in any process, use the new number. More permits are granted at
    /// once; after a reduction, the holders keep theirs, and new ones are granted when fewer than
    /// the new number are held. Other values of this semaphore, clones included, expect the old
    /// number until they are built with the new one, unless they
    /// [accept the stored one](LockBuilder::accept_stored_permits).
    ///
    /// The number outlives the contenders: the persistent znode `permits-set` keeps servers from
    /// removing the empty directory. Delete it to make the number go with the last contender.
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned: the number is
    /// stored once, unless another client changes it at the same time. **Cancel safe** in that the
    /// number is stored or not. After a dropped or late call, [read](Self::stored_permits) which of
    /// the two it is; this value expects the old number until a call succeeds.
    ///
    /// # Errors
    ///
    /// [`LockError::Config`] if `permits` is 0; [`LockError::Refused`] if the directory may not be
    /// written or created, or may get no children; [`LockError::MixedKinds`] if it contains a lock
    /// of another kind, whose directory is not written to; [`LockError::TimedOut`] after a
    /// [timeout](ScopedCall::timeout); [`LockError::Closed`] and similar errors if the client has
    /// stopped.
    pub fn set_permits(&mut self, permits: u32) -> ScopedCall<'_, (), LockError> {
        let (client, path) = (self.client().clone(), self.profile.directory().clone());
        ScopedCall::new(&client, &path, async move |deadline| {
            let permits = Permits { count: checked(permits)?, ..self.expected() };
            let profile =
                Arc::new(QueueProfile { permits: Some(permits), ..(*self.profile).clone() });
            let mut resize = Resize::new(Arc::clone(&profile));
            run_to_end(self.client(), &mut resize, deadline).await??;
            self.profile = profile;
            Ok(())
        })
    }

    fn expected(&self) -> Permits {
        self.profile.permits.unwrap_or_default()
    }
}

impl LockBuilder<Semaphore, PermitLimit> {
    /// How many contenders hold the semaphore together, at least 1. Default: 1. The first contender
    /// stores the number. If another number is stored, acquires fail with
    /// [`LockError::PermitsDiffer`].
    pub fn permits(mut self, permits: u32) -> Self {
        self.naming.0.count = permits;
        self
    }

    /// Accepts the stored number of permits, whatever it is, so that it can be
    /// [changed](Semaphore::set_permits) without a restart of other clients. Then
    /// [`permits`](Self::permits) only counts if none is stored.
    pub fn accept_stored_permits(mut self) -> Self {
        self.naming.0.accepts_stored = true;
        self
    }
}

fn checked(permits: u32) -> Result<u32, ConfigError> {
    if permits > 0 {
        return Ok(permits);
    }
    let (option, value) = ("permits of the semaphore", "0".to_owned());
    Err(ConfigError::Option { option, value, defect: OptionDefect::Zero })
}

impl Recipe for Permit {
    type Profile = QueueProfile;
    type Attempt = SemaphoreAttempt;
    type Removal = QueueRemoval;
    type Change = Infallible;

    const HAS_UNIQUE_NAMES: bool = true;

    fn path(profile: &QueueProfile) -> &ByteString {
        profile.directory()
    }

    fn attempt(profile: &Arc<QueueProfile>, id: u128, may_wait: bool) -> SemaphoreAttempt {
        SemaphoreAttempt::new(Arc::clone(profile), id, may_wait)
    }

    fn look(profile: &QueueProfile) -> (Operation, FailedAction) {
        (list(profile.directory(), None), FailedAction::List)
    }

    /// Only saves an attempt: the attempt itself compares with the stored number.
    fn is_taken(profile: &QueueProfile, seen: &Response) -> Result<bool, LockError> {
        let Response::GetChildren(names) = seen else { return Ok(false) };
        let Some(permits) = profile.permits.filter(|permits| !permits.accepts_stored) else {
            return Ok(false);
        };
        standing::is_taken(profile, names, permits.count)
    }
}

impl Kind for Permit {
    type Naming = PermitLimit;

    const LOCK: &'static str = "Semaphore";
    const METRIC: &'static str = "semaphore";

    fn profile(
        options: LockOptions,
        PermitLimit(permits): PermitLimit,
    ) -> Result<QueueProfile, ConfigError> {
        checked(permits.count)?;
        let names = QueueNames::exclusive(NameForm::known("-permit-", "permit-"));
        Ok(QueueProfile { permits: Some(permits), ..QueueProfile::new(options, names) })
    }

    fn describe(profile: &QueueProfile, output: &mut DebugStruct<'_, '_>) {
        let count = profile.permits.unwrap_or_default().count;
        output.field("directory", profile.directory()).field("permits", &count);
    }
}

impl Queued for Permit {}
