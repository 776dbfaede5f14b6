//! Locks and their contenders, as the suites against real servers look at them.

use std::future::{Future, IntoFuture as _, poll_fn};
use std::task::Poll;

use tokio::task::JoinSet;
use zk_recipes::kind::{self, Kind};
use zk_recipes::{
    Acl, Acquire, ConfigError, ExclusiveLock, FairLock, Guard, LockError, Phase, RwLock, TryAcquire,
};
use zk_session::{Client, ErrorCode, OpError, Watcher};

use crate::wait::{PATIENCE, event, soon};

/// Path of the lock, below the chroot of the test.
pub const LOCK: &str = "/locks/billing";

/// What somebody wants of a lock, so that one scenario can be told of all of them.
pub trait Side: Clone + Send + Sync + Sized + 'static {
    /// Kind of its guards.
    type Kind: Kind;
    /// Where the contender znodes are made.
    const DIRECTORY: &'static str;
    /// True if several of this side hold at a time.
    const SHARES: bool = false;

    /// The side of the lock at [`LOCK`] whose znodes get this access control list.
    ///
    /// # Errors
    ///
    /// None: the path is a good one.
    fn build(client: &Client, acl: Vec<Acl>) -> Result<Self, ConfigError>;

    /// The side of the lock at [`LOCK`] as it is shipped, with its safety timer.
    ///
    /// # Panics
    ///
    /// Never: the path is a good one.
    fn shipped(client: &Client) -> Self;

    /// An acquire to be.
    fn acquiring(&self) -> Acquire<Self::Kind>;

    /// An acquire to be that does not wait.
    fn trying(&self) -> TryAcquire<Self::Kind>;

    /// Asks who has the lock, or waits for it.
    ///
    /// # Errors
    ///
    /// Those of the lock.
    fn looking(&self) -> impl Future<Output = Result<(), LockError>> + Send;

    /// The side of the lock at [`LOCK`], of a client.
    ///
    /// # Panics
    ///
    /// Never: the path is a good one.
    fn of(client: &Client) -> Self {
        Self::build(client, Acl::open()).expect("a good path")
    }
}

/// Who reads.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a view of a lock")]
pub struct Reader(pub RwLock);

/// Who writes.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a view of a lock")]
pub struct Writer(pub RwLock);

// Nothing that is built here may need a second look at the queue to work: the safety timer is off.

impl Side for FairLock {
    type Kind = kind::Fair;
    const DIRECTORY: &'static str = LOCK;

    fn build(client: &Client, acl: Vec<Acl>) -> Result<Self, ConfigError> {
        Self::builder(client, LOCK)?.safety_relist(None).acl(acl).build()
    }

    fn shipped(client: &Client) -> Self {
        Self::new(client, LOCK).expect("a good path")
    }

    fn acquiring(&self) -> Acquire<kind::Fair> {
        self.acquire()
    }

    fn trying(&self) -> TryAcquire<kind::Fair> {
        self.try_acquire()
    }

    async fn looking(&self) -> Result<(), LockError> {
        self.contenders().await.map(drop)
    }
}

impl Side for Reader {
    type Kind = kind::Read;
    const DIRECTORY: &'static str = LOCK;
    const SHARES: bool = true;

    fn build(client: &Client, acl: Vec<Acl>) -> Result<Self, ConfigError> {
        RwLock::builder(client, LOCK)?.safety_relist(None).acl(acl).build().map(Self)
    }

    fn shipped(client: &Client) -> Self {
        RwLock::new(client, LOCK).map(Self).expect("a good path")
    }

    fn acquiring(&self) -> Acquire<kind::Read> {
        self.0.read()
    }

    fn trying(&self) -> TryAcquire<kind::Read> {
        self.0.try_read()
    }

    async fn looking(&self) -> Result<(), LockError> {
        self.0.contenders().await.map(drop)
    }
}

impl Side for Writer {
    type Kind = kind::Write;
    const DIRECTORY: &'static str = LOCK;

    fn build(client: &Client, acl: Vec<Acl>) -> Result<Self, ConfigError> {
        RwLock::builder(client, LOCK)?.safety_relist(None).acl(acl).build().map(Self)
    }

    fn shipped(client: &Client) -> Self {
        RwLock::new(client, LOCK).map(Self).expect("a good path")
    }

    fn acquiring(&self) -> Acquire<kind::Write> {
        self.0.write()
    }

    fn trying(&self) -> TryAcquire<kind::Write> {
        self.0.try_write()
    }

    async fn looking(&self) -> Result<(), LockError> {
        self.0.contenders().await.map(drop)
    }
}

impl Side for ExclusiveLock {
    type Kind = kind::Exclusive;
    const DIRECTORY: &'static str = "/locks";

    fn build(client: &Client, acl: Vec<Acl>) -> Result<Self, ConfigError> {
        Self::builder(client, LOCK)?.safety_relist(None).acl(acl).build()
    }

    fn shipped(client: &Client) -> Self {
        Self::new(client, LOCK).expect("a good path")
    }

    fn acquiring(&self) -> Acquire<kind::Exclusive> {
        self.acquire()
    }

    fn trying(&self) -> TryAcquire<kind::Exclusive> {
        self.try_acquire()
    }

    async fn looking(&self) -> Result<(), LockError> {
        self.holder().await.map(drop)
    }
}

/// The fair lock, of a client.
pub fn lock(client: &Client) -> FairLock {
    FairLock::of(client)
}

/// Acquires what is bound to be free soon.
///
/// # Panics
///
/// If it is not.
pub async fn acquire<S: Side>(side: &S) -> Guard<S::Kind> {
    side.acquiring().timeout(PATIENCE).await.expect("the lock is free")
}

/// The number of contenders of a queue, as the leader knows it.
///
/// # Panics
///
/// If it cannot be read.
pub async fn contenders(client: &Client) -> usize {
    client.sync(LOCK).await.expect("the connection holds");
    client.get_children(LOCK).await.expect("the directory exists").len()
}

/// Paths of the contender znodes that the leader knows, and a watch that tells of a change. None if
/// there is no directory.
///
/// # Panics
///
/// If they cannot be read.
pub async fn znodes<S: Side>(client: &Client) -> (Vec<String>, Watcher) {
    client.sync("/").await.expect("the connection holds");
    if S::DIRECTORY != LOCK {
        let (stat, watcher) = client.exists_and_watch(LOCK).await.expect("it may be read");
        return (stat.map(|_| LOCK.to_owned()).into_iter().collect(), watcher);
    }
    loop {
        match client.get_children_and_watch(LOCK).await {
            Ok((names, watcher)) => {
                return (names.iter().map(|name| format!("{LOCK}/{name}")).collect(), watcher);
            }
            Err(OpError::Server(ErrorCode::NO_NODE)) => {}
            Err(error) => panic!("cannot list {LOCK}: {error}"),
        }
        let (stat, watcher) = client.exists_and_watch(LOCK).await.expect("it may be read");
        if stat.is_none() {
            return (Vec::new(), watcher);
        }
    }
}

/// Waits until there are as many contender znodes as wanted: cleanup goes on behind the scenes.
///
/// # Panics
///
/// If there never are.
pub async fn until_znodes<S: Side>(client: &Client, count: usize) {
    let mut seen = Vec::new();
    let reached = tokio::time::timeout(PATIENCE, async {
        loop {
            let (paths, mut watcher) = znodes::<S>(client).await;
            seen = paths;
            if seen.len() == count {
                return;
            }
            event(&mut watcher).await;
        }
    });
    let is_reached = reached.await.is_ok();
    assert!(is_reached, "not {count} contenders, but {seen:?}");
}

/// Waits until the queue is as long as wanted.
///
/// # Panics
///
/// If it never is.
pub async fn until_contenders(client: &Client, count: usize) {
    until_znodes::<FairLock>(client, count).await;
}

/// Gives a client the time for what it does about events that have happened: a waiter that is told
/// of a change asks, and asks again after the answer.
///
/// # Panics
///
/// If the connection breaks.
pub async fn settle(client: &Client) {
    for _ in 0..SETTLING_ROUNDS {
        // Its answer comes after the events, and after the answers to what was asked before it.
        client.sync("/").await.expect("the connection holds");
        tokio::task::yield_now().await;
    }
}

/// Polls a future so many times at most, and drops it. Its output, if it had one by then.
pub async fn cancelled_after<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = Box::pin(future);
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// A contender that waits; dropping it gives up its place.
#[derive(Debug)]
pub struct Waiter<K: Kind> {
    acquiring: JoinSet<Result<Guard<K>, LockError>>,
}

impl<K: Kind> Waiter<K> {
    /// Returns when the contender has its place.
    ///
    /// # Panics
    ///
    /// If it gets none.
    pub async fn queue(side: &impl Side<Kind = K>) -> Self {
        Self::from(side.acquiring()).await
    }

    /// The same of an acquire that is not begun yet.
    ///
    /// # Panics
    ///
    /// If it gets no place.
    pub async fn from(acquire: Acquire<K>) -> Self {
        let (acquire, mut phases) = acquire.timeout(PATIENCE).phases();
        let mut acquiring = JoinSet::new();
        acquiring.spawn(acquire.into_future());
        soon("a place in the queue", async {
            while !matches!(phases.next().await.expect("it waits"), Phase::Queued { .. }) {}
        })
        .await;
        Self { acquiring }
    }

    /// False once it has the lock, or has failed.
    pub fn is_waiting(&mut self) -> bool {
        self.acquiring.try_join_next().is_none()
    }

    /// Waits for the lock.
    ///
    /// # Panics
    ///
    /// If it is not granted.
    pub async fn guard(self) -> Guard<K> {
        self.result().await.expect("the lock is granted")
    }

    /// Waits for the end of the waiting.
    ///
    /// # Errors
    ///
    /// The lock is not granted.
    ///
    /// # Panics
    ///
    /// If it does not end.
    pub async fn result(mut self) -> Result<Guard<K>, LockError> {
        let result = soon("the lock", self.acquiring.join_next()).await;
        result.expect("one task").expect("it does not panic")
    }
}

const SETTLING_ROUNDS: usize = 5;
