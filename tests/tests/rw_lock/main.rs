//! The read/write lock in virtual time: which contenders share it, in every order; waiting, losing,
//! downgrades and costs. Each fault is injected exactly where it is meant to happen, and the safety
//! timer is off.

mod costs;
mod downgrade_cancelling;
mod downgrade_failing;
mod downgrading;
mod losing;
mod orders;
mod queue;
mod sharing;
mod waiting;

use zk_recipes::{Client, RwLock, WriteGuard};
use zk_tests::access::Access::{self, Read, Write};
use zk_tests::access::{
    Holding, Waiter, acquire, acquire_within, check_waits, granted, is_same_place, join,
    try_acquire,
};
use zk_tests::case::{Writer, number};
use zk_tests::world::World;

/// A holder, and a contender that must wait behind it.
const WAITS: [(Access, Access); 3] = [(Write, Read), (Read, Write), (Write, Write)];

/// Joins the queue, in which the contender must wait.
async fn queue_up(world: &World, lock: &RwLock, side: Access) -> Waiter {
    let waiter = join(world, lock, side).await;
    assert!(!waiter.is_finished(), "{side:?} granted beside a holder\n{}", world.trace());
    waiter
}

/// Returns the guard of a waiter that has just been granted the lock.
async fn granted_now(world: &World, waiter: Waiter) -> Holding {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    assert!(waiter.is_finished(), "not granted at once\n{}", world.trace());
    granted(waiter).await
}

/// Connects a client that acquires the lock.
async fn holder(world: &World, seed: u64, side: Access) -> (Client, Holding) {
    let client = world.client(seed).await;
    let held = acquire(&World::rw_lock(&client), side).await.expect("no contender excludes it");
    (client, held)
}

/// Connects a client that acquires the lock for writing.
async fn writer(world: &World, seed: u64) -> (Client, WriteGuard) {
    let client = world.client(seed).await;
    let guard = World::rw_lock(&client).write().await.expect("no contender excludes it");
    (client, guard)
}

/// Creates the directory of the lock, so that an acquire does not have to.
fn create_directory(world: &World) {
    zk_tests::scene::create_directory::<Writer>(world);
}
