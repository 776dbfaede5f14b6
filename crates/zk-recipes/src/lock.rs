//! What all locks have in common: options, acquires, statistics.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::Acl;
use zk_session::{Client, ConfigError, Time};

use crate::error::LockError;
use crate::guard::Guard;
use crate::kind::Kind;
use crate::machine::Profile;
use crate::naming::Names;
use crate::phase::{Observer, Phases};
use crate::run::acquire::{Order, Target, acquire, try_acquire};
use crate::run::watchdog::Watchdog;
use crate::stats::{Counters, LockStats};

/// How often a waiter checks for missed watches although nothing has happened.
const SAFETY_RELIST: Duration = Duration::from_secs(30);
/// A shorter interval is a hot loop.
const SAFETY_RELIST_MIN: Duration = Duration::from_millis(10);

/// A type of lock.
pub trait Lock: sealed::Sealed {
    /// How the names of its znodes are chosen.
    type Naming: Clone + Default + std::fmt::Debug;
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// Options of a lock of type `L`, such as [`FairLock`](crate::FairLock).
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct LockBuilder<L: Lock> {
    client: Client,
    options: Options,
    pub(crate) naming: L::Naming,
}

/// What the builder of a lock collects.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) path: ByteString,
    pub(crate) acl: Vec<Acl>,
    pub(crate) identity: Bytes,
    pub(crate) safety_relist: Option<Duration>,
    at_risk: AtRiskPolicy,
}

/// What a lock that is at risk means to its holder.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum AtRiskPolicy {
    /// The lock is ours until it is lost. A short loss of the connection does not disturb the
    /// work.
    #[default]
    GoOn,
    /// A lock that is at risk is lost, at once and for ever, with the reason
    /// [`LostReason::AtRisk`](crate::LostReason::AtRisk), and its znode is removed. For work that
    /// is better interrupted in vain than continued in doubt. An acquire ends when there is a lease,
    /// so on a session that has been idle it takes up to one and a half ticks of the servers longer.
    TreatAsLost,
}

/// A lock as its public types hold it.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    pub(crate) client: Client,
    counters: Arc<Counters>,
    at_risk: AtRiskPolicy,
}

/// An acquire to be: options, then `.await`. It becomes a [`Guard`] of the kind `K`.
#[derive(Debug)]
#[must_use = "nothing is acquired until this is awaited"]
pub struct Acquire<K> {
    order: Order,
    kind: PhantomData<fn() -> K>,
}

/// An acquire to be that does not wait for others: options, then `.await`.
#[derive(Debug)]
#[must_use = "nothing is acquired until this is awaited"]
pub struct TryAcquire<K> {
    order: Order,
    kind: PhantomData<fn() -> K>,
}

type Attempts<T> = Pin<Box<dyn Future<Output = Result<T, LockError>> + Send>>;

/// An acquire under way.
///
/// Dropping it gives up the place in the queue; what may be on the servers is removed in the
/// background. To keep the place over several `select!`s, poll it through `&mut`.
#[must_use = "futures do nothing unless polled"]
pub struct Acquiring<T> {
    /// Gone when it is over.
    inner: Option<Attempts<T>>,
    /// In a box, because most who wait for long have none.
    limit: Option<Box<Limit>>,
}

/// The deadline of an acquire, and the second opinion on whether it has come.
struct Limit {
    client: Client,
    deadline: Time,
    watchdog: Watchdog,
}

impl<L: Lock> LockBuilder<L> {
    pub(crate) fn new(client: &Client, path: &str) -> Result<Self, ConfigError> {
        if zk_session::path::validate(path).is_err() || path == "/" {
            return Err(ConfigError::Option {
                option: "path of the lock",
                reason: "it is not an absolute path below the root",
            });
        }
        let options = Options {
            path: path.into(),
            acl: Acl::open(),
            identity: identity().into(),
            safety_relist: Some(SAFETY_RELIST),
            at_risk: AtRiskPolicy::default(),
        };
        Ok(Self { client: client.clone(), options, naming: L::Naming::default() })
    }

    /// Access control list of the contender znodes. Default: everything to everyone. Whoever
    /// shares the lock needs READ.
    pub fn acl(mut self, acl: Vec<Acl>) -> Self {
        self.options.acl = acl;
        self
    }

    /// What the data of the contender znodes says, for people who look at the queue: who is this?
    /// Everybody who may read the znodes can read it, so put no secret into it. Default: host name
    /// and process id.
    pub fn identity(mut self, identity: impl Into<Bytes>) -> Self {
        self.options.identity = identity.into();
        self
    }

    /// How often a waiter checks for missed watches although nothing has happened; `None` for
    /// never. A check reads the own znode and the one ahead, however long the queue is. At least
    /// 10 ms. Default: 30 s, and up to a quarter more, so that waiters do not check together.
    pub fn safety_relist(mut self, interval: Option<Duration>) -> Self {
        self.options.safety_relist = interval;
        self
    }

    /// What a lock that is at risk means. Default: [`AtRiskPolicy::GoOn`].
    pub fn at_risk(mut self, policy: AtRiskPolicy) -> Self {
        self.options.at_risk = policy;
        self
    }

    /// What the types of locks are made of, if the options are in order.
    pub(crate) fn parts(self) -> Result<(Core, Options, L::Naming), ConfigError> {
        let Self { client, options, naming } = self;
        let option = |option, reason| Err(ConfigError::Option { option, reason });
        if options.acl.is_empty() {
            return option("acl of the lock", "it is empty, and servers refuse that");
        }
        if options.safety_relist.is_some_and(|interval| interval < SAFETY_RELIST_MIN) {
            return option("safety_relist", "it is shorter than 10 ms; None switches it off");
        }
        let core = Core { client, counters: Arc::default(), at_risk: options.at_risk };
        Ok((core, options, naming))
    }
}

impl Options {
    /// What the machines of a queue know.
    pub(crate) fn profile(self, names: Names) -> Arc<Profile> {
        let Self { path, acl, identity, safety_relist, .. } = self;
        Arc::new(Profile { directory: path, names, acl, identity, safety_relist })
    }
}

impl Core {
    pub(crate) fn acquire<K>(&self, target: Target) -> Acquire<K> {
        Acquire { order: self.order(target), kind: PhantomData }
    }

    /// Without a connection it ends after the session timeout.
    pub(crate) fn try_acquire<K>(&self, target: Target) -> TryAcquire<K> {
        let timeout = self.client.status().timeout;
        TryAcquire { order: self.order(target), kind: PhantomData }.timeout(timeout)
    }

    pub(crate) fn stats(&self) -> LockStats {
        self.counters.snapshot(self.client.janitor_slots_busy())
    }

    fn order(&self, target: Target) -> Order {
        Order {
            client: self.client.clone(),
            target,
            deadline: None,
            observer: Observer::default(),
            counters: Arc::clone(&self.counters),
            at_risk: self.at_risk,
        }
    }
}

impl<K> Acquire<K> {
    /// Gives up after this time with [`LockError::TimedOut`]. It bounds the wait; what may be on
    /// the servers is removed in the background. Zero gives up at once.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.order.deadline = Some(self.order.client.now() + timeout);
        self
    }

    /// Also returns a stream of phases: the place in the queue, and later the state of the lock
    /// until it is released or lost.
    pub fn phases(mut self) -> (Self, Phases) {
        let (observer, phases) = Observer::new();
        self.order.observer = observer;
        (self, phases)
    }
}

impl<K> TryAcquire<K> {
    /// Gives up after this time with [`LockError::TimedOut`]. Default: the session timeout.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.order.deadline = Some(self.order.client.now() + timeout);
        self
    }
}

impl<K: Kind> IntoFuture for Acquire<K> {
    type Output = Result<Guard<K>, LockError>;
    type IntoFuture = Acquiring<Guard<K>>;

    fn into_future(self) -> Acquiring<Guard<K>> {
        Acquiring::new(self.order, |order| async move { acquire(&order).await })
    }
}

impl<K: Kind> IntoFuture for TryAcquire<K> {
    type Output = Result<Option<Guard<K>>, LockError>;
    type IntoFuture = Acquiring<Option<Guard<K>>>;

    fn into_future(self) -> Acquiring<Option<Guard<K>>> {
        Acquiring::new(self.order, |order| async move { try_acquire(&order).await })
    }
}

impl<T> Acquiring<T> {
    fn new<F>(order: Order, run: impl FnOnce(Order) -> F) -> Self
    where
        F: Future<Output = Result<T, LockError>> + Send + 'static,
    {
        let limit = order.deadline.map(|deadline| {
            let client = order.client.clone();
            Box::new(Limit { client, deadline, watchdog: Watchdog::default() })
        });
        Self { inner: Some(Box::pin(run(order))), limit }
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
            // The client's own timer has not told: nobody drives its runtime.
            outcome = Poll::Ready(Err(LockError::TimedOut));
        }
        if outcome.is_ready() {
            *inner = None;
        }
        outcome
    }
}

impl<T> std::fmt::Debug for Acquiring<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acquiring").finish_non_exhaustive()
    }
}

/// Who we are, for people.
fn identity() -> String {
    let process = std::process::id();
    #[cfg(unix)]
    if let Ok(host) = rustix::system::uname().nodename().to_str() {
        return format!("{host} pid={process}");
    }
    format!("pid={process}")
}
