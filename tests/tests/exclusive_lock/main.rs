//! The exclusive lock in virtual time: waiting, ownership of its one znode, access control lists,
//! costs and a crowd. Each fault is injected exactly where it is meant to happen, and the safety
//! timer is off.

mod costs;
mod owners;
mod refusals;
mod waiting;

use zk_recipes::{Client, ExclusiveGuard, ExclusiveLock, kind};
use zk_tests::scene;
use zk_tests::world::World;

/// An acquire that runs as a task.
type Waiter = scene::Waiter<kind::Exclusive>;

/// Starts to wait for the lock, and returns when the contender waits.
async fn queue_up(world: &World, lock: &ExclusiveLock) -> Waiter {
    scene::start_waiting(world, lock.acquire()).await
}

/// Connects a client that acquires the lock.
async fn holder(world: &World, seed: u64) -> (Client, ExclusiveGuard) {
    scene::holder::<ExclusiveLock>(world, seed).await
}
