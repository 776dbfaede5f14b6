//! Acquiring a lock: the futures that callers await.

mod attempts;
pub(crate) mod builder;
pub(crate) mod lock;

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytestring::ByteString;
use zk_session::{Client, Time};

use self::attempts::{AcquireRequest, acquire, claim, try_acquire};
use self::lock::Lock;
use crate::engine::limited::Begun;
use crate::guard::Guard;
use crate::lock::error::LockError;
use crate::lock::kind::Kind;
use crate::lock::phase::{Observer, Phases};
use crate::timed_out::{LastSeen, TimedOut};
use zk_session::recipe::{Session, Watchdog};

/// A pending acquire: set options, then `.await` it. It returns a [`Guard`] of the kind `K`.
///
/// Nothing is acquired before this is awaited. Without a [`timeout`](Self::timeout), the acquire waits
/// for as long as it takes, even while no server can be reached.
///
/// After a **connection loss**, requests are replayed, and no error is returned. **Cancel safe**:
/// dropping the future at any moment gives up the place, and leaves no znode. The errors are those
/// of [`LockError`]; after any of them, the lock is not held.
#[must_use = "nothing is acquired until this is awaited"]
pub struct Acquire<K: Kind> {
    request: AcquireRequest<K>,
}

/// A pending acquire that does not wait for other contenders: set options, then `.await` it.
#[must_use = "nothing is acquired until this is awaited"]
pub struct TryAcquire<K: Kind> {
    request: AcquireRequest<K>,
}

type Attempts<T> = Pin<Box<dyn Future<Output = Result<T, LockError>> + Send>>;

/// An acquire in progress.
///
/// Dropping it gives up the place in the queue. A znode that may be on the servers is removed in
/// the background. To keep the place across several `select!`s, poll it through `&mut`.
#[must_use = "futures do nothing unless polled"]
pub struct Acquiring<T> {
    /// `None` after completion.
    inner: Option<Attempts<T>>,
    /// This is boxed because most acquires that wait for a long time have no limit.
    limit: Option<Box<Limit>>,
}

/// The deadline of an acquire, and a watchdog in case the client's runtime does not notice it.
struct Limit {
    client: Client,
    path: ByteString,
    begun: Begun,
    deadline: Time,
    watchdog: Watchdog,
}

impl<K: Kind> Lock<K> {
    /// Acquires the lock, and waits until no contender excludes this one: in a queue, until those
    /// have left that are ahead of it.
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned. If the session
    /// **expires** while the future waits, a new attempt starts in the next session, at the end of
    /// the queue, within the same timeout. **Cancel safe**: dropping the future at any moment
    /// leaves no znode.
    ///
    /// # Errors
    ///
    /// See [`LockError`]. After any error, the lock is not held.
    pub fn acquire(&self) -> Acquire<K> {
        Acquire { request: AcquireRequest::new(self) }
    }

    /// Acquires the lock if that needs no wait: if no contender that excludes this one holds the
    /// lock or waits for it. Otherwise returns `None`, at the cost of one read. Without a connection
    /// it fails with [`LockError::TimedOut`] after its timeout, by default the session timeout. In
    /// all other respects it is like [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// The errors are those of [`acquire`](Self::acquire).
    pub fn try_acquire(&self) -> TryAcquire<K> {
        let timeout = self.terms.client.status().timeout;
        TryAcquire { request: AcquireRequest::new(self) }.timeout(timeout)
    }
}

impl<K: Kind> AcquireRequest<K> {
    fn new(lock: &Lock<K>) -> Self {
        Self { lock: lock.clone(), deadline: None, is_beside_own: false }
    }

    fn limit(&mut self, timeout: Duration) {
        self.deadline = Some(self.lock.client().now() + timeout);
    }

    fn begin<T, F>(self, run: impl FnOnce(Self) -> F) -> Acquiring<T>
    where
        F: Future<Output = Result<T, LockError>> + Send + 'static,
    {
        let limit = Limit::of(&self.lock, self.deadline);
        Acquiring::new(limit, run(self))
    }

    fn describe(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("path", &self.lock.path())
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl<K: Kind> Acquire<K> {
    /// Makes the acquire give up at this time, if there is one.
    pub(crate) fn until(mut self, deadline: Option<Time>) -> Self {
        self.request.deadline = deadline;
        self
    }

    /// Makes the acquire give up after this time, which begins now, with [`LockError::TimedOut`]. The
    /// timeout limits only the wait: a znode that may be on the servers is removed in the background. With a
    /// timeout of zero, the acquire gives up at once.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request.limit(timeout);
        self
    }

    /// Also returns a stream of phases: the place in the queue, and later the state of the lock
    /// until it is released or lost.
    pub fn phases(mut self) -> (Self, Phases) {
        let (observer, phases) = Observer::new();
        self.request.lock.terms.observer = observer;
        (self, phases)
    }

    /// Declares that the client may hold the lock already, so that waiting behind its own session
    /// is not a mistake.
    pub(crate) fn beside_own_session(mut self) -> Self {
        self.request.is_beside_own = true;
        self
    }

    /// Limits how long the lock may be held. The client gives it back then, whatever its owner does.
    pub(crate) fn hold_for(mut self, length: Option<Duration>) -> Self {
        self.request.lock.terms.hold_for = length;
        self
    }

    /// Acquires the lock if no other contender holds it. Unlike [`TryAcquire`], this begins with
    /// the create of the znode, because the caller has already seen that the lock was free.
    pub(crate) async fn without_wait(self) -> Result<Option<Guard<K>>, LockError> {
        claim(&self.request).await
    }
}

impl<K: Kind> TryAcquire<K> {
    /// Makes the acquire give up at this time, if there is one.
    pub(crate) fn until(mut self, deadline: Option<Time>) -> Self {
        self.request.deadline = deadline;
        self
    }

    /// Makes the acquire give up after this time, which begins now, with [`LockError::TimedOut`].
    /// Default: the session timeout, from the call of `try_acquire` on.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request.limit(timeout);
        self
    }
}

impl<K: Kind> IntoFuture for Acquire<K> {
    type Output = Result<Guard<K>, LockError>;
    type IntoFuture = Acquiring<Guard<K>>;

    fn into_future(self) -> Acquiring<Guard<K>> {
        self.request.begin(acquire)
    }
}

impl<K: Kind> IntoFuture for TryAcquire<K> {
    type Output = Result<Option<Guard<K>>, LockError>;
    type IntoFuture = Acquiring<Option<Guard<K>>>;

    fn into_future(self) -> Acquiring<Option<Guard<K>>> {
        self.request.begin(try_acquire)
    }
}

impl Limit {
    /// Returns the limit of an acquire that begins now; `None` if it has no deadline.
    fn of<K: Kind>(lock: &Lock<K>, deadline: Option<Time>) -> Option<Box<Self>> {
        let deadline = deadline?;
        let (client, path) = (lock.client().clone(), K::path(&lock.profile).clone());
        let (begun, watchdog) = (Begun::now(&client), Session::of(&client).watchdog());
        Some(Box::new(Self { client, path, begun, deadline, watchdog }))
    }
}

impl<T> Acquiring<T> {
    /// Wraps a future that gives up at the deadline, if there is one.
    fn new(
        limit: Option<Box<Limit>>,
        future: impl Future<Output = Result<T, LockError>> + Send + 'static,
    ) -> Self {
        Self { inner: Some(Box::pin(future)), limit }
    }
}

impl<T> Future for Acquiring<T> {
    type Output = Result<T, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { inner, limit } = &mut *self;
        let mut outcome = inner.as_mut().expect("polled after completion").as_mut().poll(cx);
        if outcome.is_pending()
            && let Some(limit) = limit
            && limit.watchdog.poll(cx, limit.client.now(), limit.deadline).is_ready()
        {
            // The client's own timer has not fired: its runtime is not driven.
            let timed_out = TimedOut::after(LastSeen::RuntimeStopped);
            outcome = Poll::Ready(Err(LockError::TimedOut(timed_out)));
        }
        if let Poll::Ready(Err(LockError::TimedOut(timed_out))) = &mut outcome
            && let Some(limit) = limit
        {
            limit.begun.explain(timed_out, &limit.client, &limit.path);
        }
        if outcome.is_ready() {
            *inner = None;
        }
        outcome
    }
}

impl<K: Kind> fmt::Debug for Acquire<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request.describe("Acquire", f)
    }
}

impl<K: Kind> fmt::Debug for TryAcquire<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request.describe("TryAcquire", f)
    }
}

impl<T> fmt::Debug for Acquiring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquiring").finish_non_exhaustive()
    }
}
