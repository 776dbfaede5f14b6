//! The exclusive lock in virtual time: waiting, whose znode it is, refusals, cancellation, costs
//! and a crowd. Each fault is injected exactly where it is to happen, and the safety timer is off.

#[path = "exclusive_lock/cancelling.rs"]
mod cancelling;
#[path = "exclusive_lock/costs.rs"]
mod costs;
#[path = "exclusive_lock/owners.rs"]
mod owners;
#[path = "exclusive_lock/refusals.rs"]
mod refusals;
#[path = "exclusive_lock/waiting.rs"]
mod waiting;

use tokio::task::JoinHandle;
use zk_recipes::{Client, ExclusiveGuard, ExclusiveLock, LockError, Released};
use zk_tests::exclusive::lock;
use zk_tests::scene::{requests_of, session, settle, spawn};
use zk_tests::world::{World, sleep_ms};

/// Seed of the client that is looked at.
const FIRST: u64 = 1;
const SECOND: u64 = 2;
const THIRD: u64 = 3;

/// An acquire that runs by itself.
type Waiter = JoinHandle<Result<ExclusiveGuard, LockError>>;

/// Starts to wait for the lock, and returns when the waiter has seen that it is taken.
async fn wait_for(world: &World, client: &Client, lock: &ExclusiveLock) -> Waiter {
    let before = requests_of(world, session(client)).len();
    let waiter = spawn(lock.acquire().into_future());
    let has_looked = |_: &_| requests_of(world, session(client)).len() >= before + 2;
    world.until("the waiter has looked", has_looked).await;
    sleep_ms(10).await;
    assert!(!waiter.is_finished(), "granted beside a holder\n{}", world.trace());
    waiter
}

/// What a waiter has obtained, which has to be now.
async fn granted_now(world: &World, waiter: Waiter) -> ExclusiveGuard {
    settle().await;
    assert!(waiter.is_finished(), "not granted at once\n{}", world.trace());
    granted(waiter).await
}

/// What a waiter obtains in the end.
async fn granted(waiter: Waiter) -> ExclusiveGuard {
    waiter.await.expect("an acquire does not panic").expect("it is granted")
}

/// A client that holds the lock.
async fn holder(world: &World, seed: u64) -> (Client, ExclusiveGuard) {
    let client = world.client(seed).await;
    let guard = lock(&client).acquire().await.expect("nobody else wants it");
    (client, guard)
}

/// Releases a lock that is still there.
async fn release(guard: ExclusiveGuard) {
    assert_eq!(guard.release().await, Ok(Released::Released));
}
