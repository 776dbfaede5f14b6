//! The fair lock in virtual time: waiting, holding, losing, transactions, costs, and several
//! clients. Each fault is injected exactly where it is meant to happen, and the safety timer is
//! off.

mod clients;
mod costs;
mod holding;
mod lifetime;
mod losing;
mod queue;
mod running;
mod timers;
mod transaction;
mod waiting;

use zk_recipes::{Client, FairLock, Guard, kind};
use zk_tests::scene::{
    self, FIRST, SECOND, THIRD, at_op, at_request, delete_directory, granted, granted_now, ops,
    partition, release, requests_of, session, spawn, start_waiting,
};
use zk_tests::world::World;

/// An acquire that runs as a task.
type Waiter = scene::Waiter<kind::Fair>;

/// Starts to wait for the lock, and returns when the contender waits.
async fn queue_up(world: &World, lock: &FairLock) -> Waiter {
    start_waiting(world, lock.acquire()).await
}

/// Connects a client that acquires the lock.
async fn holder(world: &World, seed: u64) -> (Client, Guard) {
    scene::holder::<FairLock>(world, seed).await
}

/// Creates the directory of the lock, so that an acquire does not have to.
fn create_directory(world: &World) {
    scene::create_directory::<FairLock>(world);
}
