//! A lock and its queue, as the suites against real servers look at them.

use std::future::IntoFuture as _;

use tokio::task::JoinSet;
use zk_recipes::{FairLock, Guard, LockError, Phase};
use zk_session::Client;

use crate::wait::{PATIENCE, event, soon};

/// Directory of the lock, below the chroot of the test.
pub const LOCK: &str = "/locks/billing";

/// The lock, of a client.
///
/// # Panics
///
/// Never: the path is a good one.
pub fn lock(client: &Client) -> FairLock {
    // Nothing here may need a second look at the queue to work.
    let lock = FairLock::builder(client, LOCK).and_then(|lock| lock.safety_relist(None).build());
    lock.expect("a good path")
}

/// Acquires what is bound to be free soon.
///
/// # Panics
///
/// If it is not.
pub async fn acquire(lock: &FairLock) -> Guard {
    lock.acquire().timeout(PATIENCE).await.expect("the lock is free")
}

/// The number of contenders, as the leader knows it.
///
/// # Panics
///
/// If it cannot be read.
pub async fn contenders(client: &Client) -> usize {
    client.sync(LOCK).await.expect("the connection holds");
    client.get_children(LOCK).await.expect("the directory exists").len()
}

/// Waits until the queue is as long as wanted: cleanup goes on behind the scenes.
///
/// # Panics
///
/// If it never is, or cannot be read.
pub async fn until_contenders(client: &Client, count: usize) {
    soon(&format!("a queue of {count}"), async {
        loop {
            client.sync(LOCK).await.expect("the connection holds");
            let children = client.get_children_and_watch(LOCK).await;
            let (names, mut watcher) = children.expect("the directory exists");
            if names.len() == count {
                return;
            }
            event(&mut watcher).await;
        }
    })
    .await;
}

/// A contender that stands in the queue; dropping it gives up its place.
#[derive(Debug)]
pub struct Waiter {
    acquiring: JoinSet<Result<Guard, LockError>>,
}

impl Waiter {
    /// Returns when the contender has its place.
    ///
    /// # Panics
    ///
    /// If it gets none.
    pub async fn queue(lock: &FairLock) -> Self {
        let (acquire, mut phases) = lock.acquire().timeout(PATIENCE).phases();
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
    pub async fn guard(mut self) -> Guard {
        let result = soon("the lock", self.acquiring.join_next()).await;
        result.expect("one task").expect("it does not panic").expect("the lock is granted")
    }
}
