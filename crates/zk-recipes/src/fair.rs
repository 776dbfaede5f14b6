//! The fair lock.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use jute_codec::Acl;
use tokio::sync::watch;
use zk_session::{Client, ConfigError};

use crate::error::LockError;
use crate::guard::Guard;
use crate::machine::Profile;
use crate::naming::Naming;
use crate::phase::{Phase, Phases};
use crate::run::acquire::{Order, acquire, try_acquire};

/// How often a waiter lists the queue although nothing has happened.
const SAFETY_RELIST: Duration = Duration::from_secs(30);

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
    client: Client,
    profile: Arc<Profile>,
    watches_missed: Arc<AtomicU64>,
}

/// Options of a [`FairLock`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct FairLockBuilder {
    client: Client,
    profile: Profile,
}

/// An acquire to be: options, then `.await`.
#[derive(Debug)]
#[must_use = "nothing is acquired until this is awaited"]
pub struct Acquire {
    order: Order,
}

/// A [`FairLock::try_acquire`] to be: options, then `.await`.
#[derive(Debug)]
#[must_use = "nothing is acquired until this is awaited"]
pub struct TryAcquire {
    order: Order,
}

/// An acquire under way.
///
/// Dropping it gives up the place in the queue; what may be on the servers is removed in the
/// background. To keep the place over several `select!`s, poll it through `&mut`.
#[must_use = "futures do nothing unless polled"]
pub struct Acquiring<T>(Pin<Box<dyn Future<Output = Result<T, LockError>> + Send>>);

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
    pub fn builder(client: &Client, directory: &str) -> Result<FairLockBuilder, ConfigError> {
        if zk_session::path::validate(directory).is_err() || directory == "/" {
            return Err(ConfigError::Option {
                option: "directory of the lock",
                reason: "it is not an absolute path below the root",
            });
        }
        let profile = Profile {
            directory: directory.into(),
            naming: Naming::default(),
            acl: Acl::open(),
            identity: format!("pid={}", std::process::id()).into(),
            safety_relist: Some(SAFETY_RELIST),
        };
        Ok(FairLockBuilder { client: client.clone(), profile })
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
    pub fn acquire(&self) -> Acquire {
        Acquire { order: self.order() }
    }

    /// Acquires the lock if nobody holds it or waits for it; `None` otherwise, for the price of
    /// one read. Without a connection it ends with [`LockError::TimedOut`] after its timeout, by
    /// default the session timeout. Otherwise as [`acquire`](Self::acquire).
    pub fn try_acquire(&self) -> TryAcquire {
        let timeout = self.client.status().timeout;
        TryAcquire { order: self.order() }.timeout(timeout)
    }

    /// How often a waiter of this lock, and of its clones, has found by listing again that a
    /// watch had not told of a change. It should stay 0.
    pub fn watches_missed(&self) -> u64 {
        self.watches_missed.load(Ordering::Relaxed)
    }

    /// The directory of the lock.
    pub fn directory(&self) -> &str {
        &self.profile.directory
    }

    fn order(&self) -> Order {
        Order {
            client: self.client.clone(),
            profile: Profile::clone(&self.profile),
            deadline: None,
            phase: None,
            watches_missed: Arc::clone(&self.watches_missed),
        }
    }
}

impl FairLockBuilder {
    /// Access control list of the contender znodes. Default: everything to everyone. Whoever
    /// shares the lock needs READ.
    pub fn acl(mut self, acl: Vec<Acl>) -> Self {
        self.profile.acl = acl;
        self
    }

    /// Data of the contender znodes, for people who look at the queue: who is this? Everybody who
    /// may read the znodes can read it. Default: the process id.
    pub fn identity(mut self, identity: impl Into<Bytes>) -> Self {
        self.profile.identity = identity.into();
        self
    }

    /// Form of the contenders' names. Default: [`Naming::curator`].
    pub fn naming(mut self, naming: Naming) -> Self {
        self.profile.naming = naming;
        self
    }

    /// How often a waiter lists the queue although nothing has happened, in case a watch is lost
    /// somewhere; `None` for never. Default: 30 s.
    pub fn safety_relist(mut self, interval: Option<Duration>) -> Self {
        self.profile.safety_relist = interval;
        self
    }

    /// Checks the options.
    ///
    /// # Errors
    ///
    /// The access control list is empty, or the interval zero.
    pub fn build(self) -> Result<FairLock, ConfigError> {
        let option = |option, reason| Err(ConfigError::Option { option, reason });
        if self.profile.acl.is_empty() {
            return option("acl of the lock", "it is empty, and servers refuse that");
        }
        if self.profile.safety_relist.is_some_and(|interval| interval.is_zero()) {
            return option("safety_relist", "it is zero");
        }
        Ok(FairLock {
            client: self.client,
            profile: Arc::new(self.profile),
            watches_missed: Arc::default(),
        })
    }
}

impl Acquire {
    /// Gives up after this time with [`LockError::TimedOut`]. It bounds the wait; what may be on
    /// the servers is removed in the background. Zero gives up at once.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.order.deadline = Some(self.order.client.now() + timeout);
        self
    }

    /// Also returns a stream of phases: the place in the queue.
    pub fn phases(mut self) -> (Self, Phases) {
        let (sender, phases) = watch::channel(Phase::Claiming);
        self.order.phase = Some(Arc::new(sender));
        (self, Phases { phases })
    }
}

impl TryAcquire {
    /// Gives up after this time with [`LockError::TimedOut`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.order.deadline = Some(self.order.client.now() + timeout);
        self
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Guard, LockError>;
    type IntoFuture = Acquiring<Guard>;

    fn into_future(self) -> Acquiring<Guard> {
        Acquiring(Box::pin(acquire(self.order)))
    }
}

impl IntoFuture for TryAcquire {
    type Output = Result<Option<Guard>, LockError>;
    type IntoFuture = Acquiring<Option<Guard>>;

    fn into_future(self) -> Acquiring<Option<Guard>> {
        Acquiring(Box::pin(try_acquire(self.order)))
    }
}

impl<T> Future for Acquiring<T> {
    type Output = Result<T, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<T> std::fmt::Debug for Acquiring<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acquiring").finish_non_exhaustive()
    }
}
