//! Contenders for the lock under test, for suites that also run against real servers.

use std::future::IntoFuture as _;

use tokio::task::JoinSet;
use zk_recipes::kind::Kind;
use zk_recipes::{Acquire, Guard, LockError, Phase};
use zk_session::{Client, CreateMode, ErrorCode, OpError, Watcher};

use crate::case::{Case, LOCK};
use crate::wait::{PATIENCE, catch_up, event, soon};

/// Creates the directory of the locks as a persistent znode. The one that a lock creates is a
/// container, which the server may remove as soon as it is empty.
///
/// # Panics
///
/// If the directory exists.
pub async fn create_directory(client: &Client) {
    for path in ["/locks", LOCK] {
        let created = client.create(path, "", CreateMode::Persistent).await;
        created.expect("the test has not created it yet");
    }
}

/// Acquires a lock that is free, or will be soon.
///
/// # Panics
///
/// If the lock is not granted in time.
pub async fn acquire<C: Case>(lock: &C) -> Guard<C::Kind> {
    lock.acquire().timeout(PATIENCE).await.expect("the lock is free")
}

/// Returns the number of contenders in the queue.
///
/// # Panics
///
/// If the directory cannot be read.
pub async fn contenders(client: &Client) -> usize {
    catch_up(client).await;
    client.get_children(LOCK).await.expect("the directory exists").len()
}

/// Returns the paths of the contender znodes, and a watch that fires when
/// they change. Without a directory, there are no znodes.
///
/// # Panics
///
/// If the directory cannot be read.
pub async fn znodes<C: Case>(client: &Client) -> (Vec<String>, Watcher) {
    catch_up(client).await;
    if C::MARK.is_none() {
        let (stat, watcher) = client.exists_and_watch(LOCK).await.expect("the znode may be read");
        return (stat.map(|_| LOCK.to_owned()).into_iter().collect(), watcher);
    }
    loop {
        match client.get_children_and_watch(LOCK).await {
            Ok((names, watcher)) => {
                return (names.iter().map(|name| format!("{LOCK}/{name}")).collect(), watcher);
            }
            Err(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {}
            Err(error) => panic!("cannot list {LOCK}: {error}"),
        }
        let (stat, watcher) = client.exists_and_watch(LOCK).await.expect("the znode may be read");
        if stat.is_none() {
            return (Vec::new(), watcher);
        }
    }
}

/// Waits until there are `count` contender znodes. Some are removed in the background.
///
/// # Panics
///
/// If there are never `count` znodes.
pub async fn until_znodes<C: Case>(client: &Client, count: usize) {
    let mut seen = Vec::new();
    let reached = tokio::time::timeout(PATIENCE, async {
        loop {
            let (paths, mut watcher) = znodes::<C>(client).await;
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

/// Gives a client time to react to past events: a waiter that learns of a change sends a request,
/// and after the reply another request.
///
/// # Panics
///
/// If the connection breaks.
pub async fn settle(client: &Client) {
    for _ in 0..SETTLING_ROUNDS {
        // The reply arrives after the events, and after the replies to earlier requests.
        client.sync("/").await.expect("the connection holds");
        tokio::task::yield_now().await;
    }
}

/// A contender that waits. Dropping it gives up its place in the queue.
#[derive(Debug)]
pub struct Waiter<K: Kind> {
    acquiring: JoinSet<Result<Guard<K>, LockError>>,
}

impl<K: Kind> Waiter<K> {
    /// Starts to wait for a lock, and returns when the contender has its place.
    ///
    /// # Panics
    ///
    /// If it gets no place.
    pub async fn queue(lock: &impl Case<Kind = K>) -> Self {
        Self::start(lock.acquire()).await
    }

    /// Starts an acquire, and returns when the contender has its place.
    ///
    /// # Panics
    ///
    /// If it gets no place.
    pub async fn start(acquire: Acquire<K>) -> Self {
        let (acquire, mut phases) = acquire.timeout(PATIENCE).phases();
        let mut acquiring = JoinSet::new();
        acquiring.spawn(acquire.into_future());
        soon("a place in the queue", async {
            while !matches!(phases.next().await.expect("it waits"), Phase::Queued { .. }) {}
        })
        .await;
        Self { acquiring }
    }

    /// Returns false once the contender has the lock or has failed.
    pub fn is_waiting(&mut self) -> bool {
        self.acquiring.try_join_next().is_none()
    }

    /// Waits for the lock.
    ///
    /// # Panics
    ///
    /// If the lock is not granted.
    pub async fn guard(self) -> Guard<K> {
        self.result().await.expect("the lock is granted")
    }

    /// Waits for the end of the acquire.
    ///
    /// # Errors
    ///
    /// The errors of the acquire.
    ///
    /// # Panics
    ///
    /// If the acquire does not end in time.
    pub async fn result(mut self) -> Result<Guard<K>, LockError> {
        let result = soon("the lock", self.acquiring.join_next()).await;
        result.expect("there is one task").expect("an acquire does not panic")
    }
}

const SETTLING_ROUNDS: usize = 5;
