//! Several locks that are acquired together.

mod error;
mod guard;
mod part;

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use tracing::debug;
use zk_session::recipe::Abridged;
use zk_session::{ConfigError, OptionDefect, Time};

pub use self::error::{MultiLockError, MultiReleaseError};
pub use self::guard::MultiGuard;
use self::part::{HeldPart, Part};
use crate::acquire::lock::Lock;
use crate::engine::call::Call;
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
/// compared as bytes, as they are on the server, whatever the [root](zk_session::Client::root) of a handle.
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
    parts: Parts,
}

type Parts = Arc<[Arc<dyn Part>]>;

/// Collects the locks of a [`MultiLock`].
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct MultiLockBuilder {
    parts: Vec<Arc<dyn Part>>,
}

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
    /// A [`MultiLockError`] with the path of the lock and its [`LockError`]. In that case no lock
    /// is held.
    pub fn acquire(&self) -> Call<MultiGuard, MultiLockError> {
        self.call(async |parts, deadlines| acquire(&parts, &deadlines).await)
    }

    /// Acquires all locks if that needs no wait. If one of them is taken, releases the others again
    /// in the background, and returns `None`. Without a connection it fails with
    /// [`LockError::TimedOut`] after its timeout, by default the longest session timeout of the
    /// clients. In all other respects it is like [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// The errors are those of [`acquire`](Self::acquire).
    pub fn try_acquire(&self) -> Call<Option<MultiGuard>, MultiLockError> {
        let timeouts = self.parts.iter().map(|part| part.client().status().timeout);
        let timeout = timeouts.max().unwrap_or_default();
        self.call(async |parts, deadlines| try_acquire(&parts, &deadlines).await).timeout(timeout)
    }

    /// Returns the paths of the locks, in the order in which they are acquired.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| part.path())
    }

    /// Creates a call that gets the deadline of each lock, by the clock of its client.
    fn call<T: 'static, F: Future<Output = Result<T, MultiLockError>> + Send>(
        &self,
        start: impl FnOnce(Parts, Vec<Option<Time>>) -> F + Send + 'static,
    ) -> Call<T, MultiLockError> {
        let parts = Arc::clone(&self.parts);
        let first = self.parts.first().expect("`build` refuses a multi-lock without locks");
        let client = first.client().clone();
        Call::new(first.client(), &first.path().into(), move |deadline| {
            let left = deadline.map(|deadline| deadline.saturating_since(client.now()));
            let deadlines = parts.iter().map(|part| left.map(|left| part.client().now() + left));
            let deadlines = deadlines.collect();
            start(parts, deadlines)
        })
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
            let (option, value) = ("locks of the multi-lock", format!("at {:?}", Abridged(path)));
            let value = if path.is_empty() { String::new() } else { value };
            let error = ConfigError::Option { option, value, defect };
            Err(MultiLockError::new(path, error.into()))
        };
        let Self { mut parts } = self;
        if parts.is_empty() {
            return invalid("", OptionDefect::Empty);
        }
        let on_server = |part: &Arc<dyn Part>| {
            let root = part.client().root();
            format!("{}{}", if root == "/" { "" } else { root }, part.path())
        };
        parts.sort_by_cached_key(on_server);
        for (one, next) in parts.iter().zip(parts.iter().skip(1)) {
            if on_server(one) == on_server(next) {
                let reason = "two of them have the same path, so one would wait for the other";
                return invalid(one.path(), OptionDefect::Other(reason));
            }
        }
        Ok(MultiLock { parts: parts.into() })
    }
}

/// Acquires all locks if that needs no wait.
async fn try_acquire(
    parts: &Parts,
    deadlines: &[Option<Time>],
) -> Result<Option<MultiGuard>, MultiLockError> {
    let mut held = MultiGuard::new();
    for (part, deadline) in parts.iter().zip(deadlines) {
        match part.try_acquire(*deadline).await {
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

/// Why a round ended without a guard.
enum Failed {
    /// The lock could not be acquired.
    NotAcquired(MultiLockError),
    /// A lock that had been obtained was lost before the round was complete.
    Lost(usize, LostReason),
}

async fn acquire(parts: &Parts, deadlines: &[Option<Time>]) -> Result<MultiGuard, MultiLockError> {
    let mut losses = 0;
    loop {
        let (index, reason) = match round(parts, deadlines).await {
            Ok(held) => return Ok(held),
            Err(Failed::NotAcquired(error)) => return Err(error),
            Err(Failed::Lost(index, reason)) => (index, reason),
        };
        let Some((part, deadline)) = parts.iter().zip(deadlines).nth(index) else { continue };
        debug!(path = ?Abridged(part.path()), %reason, "starting again, because a lock was lost");
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
                let paused = before(part.client(), *deadline, pausing).await;
                paused.map_err(|interrupted| failed(interrupted.into()))?;
            }
        }
    }
}

/// Acquires the locks once, from the first to the last.
async fn round(parts: &Parts, deadlines: &[Option<Time>]) -> Result<MultiGuard, Failed> {
    // Dropping it, at any moment, releases the locks in reverse order.
    let mut held = MultiGuard::new();
    for (part, deadline) in parts.iter().zip(deadlines) {
        let mut acquiring = part.acquire(*deadline);
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
