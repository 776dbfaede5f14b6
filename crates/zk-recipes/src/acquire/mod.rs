//! Acquiring a lock: the futures that callers await.

mod attempts;
pub(crate) mod builder;
mod request;
pub(crate) mod side;

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytestring::ByteString;
use zk_session::{Client, Time};

use self::attempts::{acquire, claim, try_acquire};
use self::request::AcquireRequest;
use crate::engine::limited::Begun;
use crate::guard::{Guard, Terms};
use crate::lock::error::LockError;
use crate::lock::kind::Kind;
use crate::lock::phase::{Observer, Phases};
use crate::timed_out::{LastSeen, TimedOut};
use zk_session::recipe::{Session, Watchdog};

/// A pending acquire: set options, then `.await` it. It returns a [`Guard`] of the kind `K`.
///
/// Nothing is acquired before this is awaited. Without a [`timeout`](Self::timeout), the acquire waits
/// for as long as it takes, also while no server can be reached.
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

impl<K: Kind> AcquireRequest<K> {
    fn limit(&mut self, timeout: Duration) {
        self.deadline = Some(self.terms.client.now() + timeout);
    }
}

impl<K: Kind> Acquire<K> {
    pub(crate) fn new(profile: &Arc<K::Profile>, terms: Terms) -> Self {
        let profile = Arc::clone(profile);
        Self { request: AcquireRequest { profile, deadline: None, is_beside_own: false, terms } }
    }

    /// Makes the acquire give up at this time, if there is one.
    pub(crate) fn until(mut self, deadline: Option<Time>) -> Self {
        self.request.deadline = deadline;
        self
    }

    /// Makes the acquire give up after this time with [`LockError::TimedOut`]. The timeout limits
    /// only the wait: a znode that may be on the servers is removed in the background. With a
    /// timeout of zero, the acquire gives up at once.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request.limit(timeout);
        self
    }

    /// Also returns a stream of phases: the place in the queue, and later the state of the lock
    /// until it is released or lost.
    pub fn phases(mut self) -> (Self, Phases) {
        let (observer, phases) = Observer::new();
        self.request.terms.observer = observer;
        (self, phases)
    }
}

impl<K: Kind> Acquire<K> {
    /// Declares that the client may hold the lock already, so that waiting behind its own session
    /// is not a mistake.
    pub(crate) fn beside_own_session(mut self) -> Self {
        self.request.is_beside_own = true;
        self
    }

    /// Limits how long the lock may be held. The client gives it back then, whatever its owner does.
    pub(crate) fn hold_for(mut self, length: Option<Duration>) -> Self {
        self.request.terms.hold_for = length;
        self
    }

    /// Acquires the lock if no other contender holds it. Unlike [`TryAcquire`], this begins with
    /// the create of the znode, because the caller has already seen that the lock was free.
    pub(crate) async fn without_wait(self) -> Result<Option<Guard<K>>, LockError> {
        claim(&self.request).await
    }
}

impl<K: Kind> TryAcquire<K> {
    /// Creates an acquire that gives up after the session timeout if there is no connection.
    pub(crate) fn new(profile: &Arc<K::Profile>, terms: Terms) -> Self {
        let timeout = terms.client.status().timeout;
        let profile = Arc::clone(profile);
        Self { request: AcquireRequest { profile, deadline: None, is_beside_own: false, terms } }
            .timeout(timeout)
    }

    /// Makes the acquire give up at this time, if there is one.
    pub(crate) fn until(mut self, deadline: Option<Time>) -> Self {
        self.request.deadline = deadline;
        self
    }

    /// Makes the acquire give up after this time with [`LockError::TimedOut`]. Default: the session
    /// timeout.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request.limit(timeout);
        self
    }
}

impl<K: Kind> IntoFuture for Acquire<K> {
    type Output = Result<Guard<K>, LockError>;
    type IntoFuture = Acquiring<Guard<K>>;

    fn into_future(self) -> Acquiring<Guard<K>> {
        let Self { request } = self;
        let (client, deadline) = (request.terms.client.clone(), request.deadline);
        let path = deadline.map(|_| K::path(&request.profile).clone()).unwrap_or_default();
        Acquiring::new(client, path, deadline, async move { acquire(&request).await })
    }
}

impl<K: Kind> IntoFuture for TryAcquire<K> {
    type Output = Result<Option<Guard<K>>, LockError>;
    type IntoFuture = Acquiring<Option<Guard<K>>>;

    fn into_future(self) -> Acquiring<Option<Guard<K>>> {
        let Self { request } = self;
        let (client, deadline) = (request.terms.client.clone(), request.deadline);
        let path = deadline.map(|_| K::path(&request.profile).clone()).unwrap_or_default();
        Acquiring::new(client, path, deadline, async move { try_acquire(&request).await })
    }
}

impl<T> Acquiring<T> {
    /// Wraps a future that gives up at the deadline, and adds the watchdog. The path is used only
    /// with a deadline, for the error.
    pub(crate) fn new(
        client: Client,
        path: ByteString,
        deadline: Option<Time>,
        future: impl Future<Output = Result<T, LockError>> + Send + 'static,
    ) -> Self {
        let limit = deadline.map(|deadline| {
            let begun = Begun::now(&client);
            let watchdog = Session::of(&client).watchdog();
            Box::new(Limit { client, path, begun, deadline, watchdog })
        });
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
        f.debug_struct("Acquire")
            .field("path", K::path(&self.request.profile))
            .field("deadline", &self.request.deadline)
            .finish_non_exhaustive()
    }
}

impl<K: Kind> fmt::Debug for TryAcquire<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryAcquire")
            .field("path", K::path(&self.request.profile))
            .field("deadline", &self.request.deadline)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Acquiring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquiring").finish_non_exhaustive()
    }
}
