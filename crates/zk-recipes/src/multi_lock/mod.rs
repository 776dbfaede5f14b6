//! Several locks that are acquired together.

mod error;
mod guard;
mod part;

use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tracing::debug;
use zk_session::{ConfigError, OptionDefect, Time};

pub use self::error::{MultiLockError, MultiReleaseError};
pub use self::guard::MultiGuard;
use self::part::{HeldPart, Part};
use crate::acquire::lock::Lock;
use crate::engine::drive::{before, jitter, pause};
use crate::lock::error::{LockError, LostReason};
use crate::lock::kind::Kind;
use crate::machine::PAUSE;

/// Number of times that a lock that is already held may be lost, while others are acquired, before
/// the acquire gives up. Losses with their session do not count.
const LOSSES_MAX: u32 = 5;

/// Several locks, of any kinds, that are acquired and released together.
///
/// The locks are acquired one after another in the order of their paths, whatever the order in
/// which they were added. So two multi-locks never wait for each other forever, and neither do a
/// multi-lock and a program that acquires the same locks in the order of their paths. Paths are
/// compared as bytes, without the chroot of the client: all programs that share the locks should
/// use the same chroot.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
/// # let address = server.listen("127.0.0.1:0").await?;
/// use std::time::Duration;
/// use zk_recipes::{Client, FairLock, LockState, MultiLock, RwLock};
///
/// let client = Client::connect(address.to_string()).await?;
/// let (from, to) = (FairLock::new(&client, "/accounts/1")?, FairLock::new(&client, "/accounts/2")?);
/// let rates = RwLock::new(&client, "/rates")?;
///
/// let transfer = MultiLock::builder().with(&to).with(&from).with(rates.read_side()).build()?;
/// let guard = transfer.acquire().timeout(Duration::from_secs(30)).await?;
/// assert!(!matches!(guard.state(), LockState::Lost(_)));
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// **Costs.** An acquire and a release cost the sum of what the locks cost on their own. The
/// acquires follow each other, so an uncontended acquire of *n* locks takes *n* round trips. The
/// releases are sent together.
#[derive(Clone)]
pub struct MultiLock {
    /// In the order of their paths.
    parts: Arc<[Arc<dyn Part>]>,
}

/// Collects the locks of a [`MultiLock`].
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct MultiLockBuilder {
    parts: Vec<Arc<dyn Part>>,
}

/// A pending acquire of a [`MultiLock`]: set options, then `.await` it. It returns a
/// [`MultiGuard`].
#[must_use = "nothing is acquired until this is awaited"]
pub struct MultiAcquire {
    parts: Arc<[Arc<dyn Part>]>,
    /// The deadline of each lock, by the clock of its client.
    deadlines: Option<Vec<Time>>,
}

/// An acquire of a [`MultiLock`] in progress. Dropping it releases the locks that it has obtained,
/// and gives up the place in the queue of the next one.
pub type MultiAcquiring<T> = Pin<Box<dyn Future<Output = Result<T, MultiLockError>> + Send>>;

impl MultiLock {
    /// Returns a builder without locks.
    pub fn builder() -> MultiLockBuilder {
        MultiLockBuilder::default()
    }

    /// Acquires all locks, in the order of their paths. If one of them fails, the others are
    /// released again in the background, in reverse order, and the error names the lock that has
    /// failed.
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned. If a lock that
    /// was obtained is lost while the next one is awaited, for example because the session expires,
    /// all are released, and the acquire begins again with the first, within the same timeout.
    /// **Cancel safe**: dropping the future at any moment leaves no znode.
    ///
    /// # Errors
    ///
    /// A [`MultiLockError`] with the path of the lock and its [`LockError`]. No lock is held then.
    pub fn acquire(&self) -> MultiAcquire {
        MultiAcquire { parts: Arc::clone(&self.parts), deadlines: None }
    }

    /// Acquires all locks if that needs no wait. If one of them is taken, releases the others again
    /// in the background, and returns `None`. Each lock has its own default timeout. In all other
    /// respects it is like [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// The errors are those of [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<MultiGuard>, MultiLockError> {
        let mut held = MultiGuard::default();
        for part in &*self.parts {
            match part.try_acquire().await {
                Ok(Some(guard)) => held.push(part.path(), guard),
                Ok(None) => return Ok(None),
                Err(error) => return Err(MultiLockError::new(part.path(), error)),
            }
        }
        match held.first_lost() {
            None => Ok(Some(held)),
            Some(lost) => Err(lost),
        }
    }

    /// Returns the paths of the locks, in the order in which they are acquired.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| part.path())
    }
}

impl MultiLockBuilder {
    /// Adds a lock, or one side of a read/write lock. The order does not matter.
    pub fn with<K: Kind>(mut self, lock: impl Into<Lock<K>>) -> Self {
        self.parts.push(Arc::new(lock.into()));
        self
    }

    /// Checks the locks and builds the multi-lock. Does no I/O.
    ///
    /// One lock may be below the directory of another, because a queue ignores znodes that are not
    /// contenders.
    ///
    /// # Errors
    ///
    /// Fails if two locks have the same path, such as both sides of a read/write lock, because the
    /// second would wait for the first forever. The error contains the path. Also fails if there
    /// are no locks.
    pub fn build(self) -> Result<MultiLock, MultiLockError> {
        let invalid = |path: &str, defect| {
            let (option, value) = ("locks of the multi-lock", format!("at {path:?}"));
            let value = if path.is_empty() { String::new() } else { value };
            let error = ConfigError::Option { option, value, defect };
            Err(MultiLockError::new(path, error.into()))
        };
        let Self { mut parts } = self;
        if parts.is_empty() {
            return invalid("", OptionDefect::Empty);
        }
        parts.sort_by(|one, other| one.path().cmp(other.path()));
        for (one, next) in parts.iter().zip(parts.iter().skip(1)) {
            if one.path() == next.path() {
                let reason = "two of them have the same path, so one would wait for the other";
                return invalid(one.path(), OptionDefect::Other(reason));
            }
        }
        Ok(MultiLock { parts: parts.into() })
    }
}

impl MultiAcquire {
    /// Makes the acquire give up after this time, which is one deadline for all locks together. The
    /// error names the lock that was not obtained in time, with [`LockError::TimedOut`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        let deadlines = self.parts.iter().map(|part| part.client().now() + timeout);
        self.deadlines = Some(deadlines.collect());
        self
    }

    fn deadline(&self, index: usize) -> Option<Time> {
        self.deadlines.as_ref()?.get(index).copied()
    }
}

impl IntoFuture for MultiAcquire {
    type Output = Result<MultiGuard, MultiLockError>;
    type IntoFuture = MultiAcquiring<MultiGuard>;

    fn into_future(self) -> MultiAcquiring<MultiGuard> {
        Box::pin(async move { acquire(&self).await })
    }
}

/// Why a round ended without a guard.
enum Failed {
    /// The lock could not be acquired.
    NotAcquired(MultiLockError),
    /// A lock that had been obtained was lost before the round was complete.
    Lost(usize, LostReason),
}

async fn acquire(request: &MultiAcquire) -> Result<MultiGuard, MultiLockError> {
    let mut losses = 0;
    loop {
        let (index, reason) = match round(request).await {
            Ok(held) => return Ok(held),
            Err(Failed::NotAcquired(error)) => return Err(error),
            Err(Failed::Lost(index, reason)) => (index, reason),
        };
        let Some(part) = request.parts.get(index) else { continue };
        debug!(path = part.path(), %reason, "starting again, because a lock was lost");
        let failed = |error| MultiLockError::new(part.path(), error);
        match reason {
            LostReason::Closed => return Err(failed(LockError::Closed)),
            // The next round waits for a new session or a new lease.
            LostReason::SessionExpired | LostReason::DeadlinePassed => {}
            LostReason::AtRisk
            | LostReason::HeldTooLong
            | LostReason::Released
            | LostReason::ZnodeDeleted => {
                losses += 1;
                if losses > LOSSES_MAX {
                    return Err(failed(LockError::Lost(reason)));
                }
                let pausing = pause(part.client(), jitter(part.client(), PAUSE));
                let paused = before(part.client(), request.deadline(index), pausing).await;
                paused.map_err(|interrupted| failed(interrupted.into()))?;
            }
        }
    }
}

/// Acquires the locks once, from the first to the last.
async fn round(request: &MultiAcquire) -> Result<MultiGuard, Failed> {
    // Dropping it, at any moment, releases the locks in reverse order.
    let mut held = MultiGuard::default();
    for (index, part) in request.parts.iter().enumerate() {
        let mut acquiring = part.acquire(request.deadline(index));
        let mut losses = held.losses();
        let acquired = poll_fn(|cx| {
            for (index, loss) in losses.iter_mut().enumerate() {
                if let Poll::Ready(reason) = loss.as_mut().poll(cx) {
                    return Poll::Ready(Err(Failed::Lost(index, reason)));
                }
            }
            acquiring.as_mut().poll(cx).map(|acquired: Result<Box<dyn HeldPart>, _>| {
                let failed = |error| MultiLockError::new(part.path(), error);
                acquired.map_err(|error| Failed::NotAcquired(failed(error)))
            })
        })
        .await;
        held.push(part.path(), acquired?);
    }
    match held.first_lost_index() {
        None => Ok(held),
        Some((index, reason)) => Err(Failed::Lost(index, reason)),
    }
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = self.paths().collect();
        f.debug_struct("MultiLock").field("paths", &paths).finish()
    }
}

impl fmt::Debug for MultiLockBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = self.parts.iter().map(|part| part.path()).collect();
        f.debug_struct("MultiLockBuilder").field("paths", &paths).finish()
    }
}

impl fmt::Debug for MultiAcquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = self.parts.iter().map(|part| part.path()).collect();
        f.debug_struct("MultiAcquire")
            .field("paths", &paths)
            .field("deadlines", &self.deadlines)
            .finish()
    }
}
