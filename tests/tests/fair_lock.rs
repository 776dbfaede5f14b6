//! The fair lock in virtual time: waiting, refusals, holding, cancellation, costs, and several
//! clients. Each fault is injected exactly where it is to happen, and the safety timer is off.

#[path = "fair_lock/cancelling.rs"]
mod cancelling;
#[path = "fair_lock/clients.rs"]
mod clients;
#[path = "fair_lock/costs.rs"]
mod costs;
#[path = "fair_lock/holding.rs"]
mod holding;
#[path = "fair_lock/lifetime.rs"]
mod lifetime;
#[path = "fair_lock/losing.rs"]
mod losing;
#[path = "fair_lock/queue.rs"]
mod queue;
#[path = "fair_lock/refusals.rs"]
mod refusals;
#[path = "fair_lock/running.rs"]
mod running;
#[path = "fair_lock/timers.rs"]
mod timers;
#[path = "fair_lock/transaction.rs"]
mod transaction;
#[path = "fair_lock/waiting.rs"]
mod waiting;

use zk_recipes::{Client, FairLock, Guard, kind};
use zk_tests::scene::{
    FIRST, SECOND, THIRD, at_op, at_request, delete_directory, granted, granted_now,
    make_directory, ops, partition, release, requests_of, session, spawn, wait_in_queue,
};
use zk_tests::world::World;

/// An acquire that runs by itself.
type Waiter = zk_tests::scene::Waiter<kind::Fair>;

/// Starts to wait for the lock, and returns when the place in the queue is taken.
async fn queue_up(world: &World, lock: &FairLock) -> Waiter {
    wait_in_queue(world, lock.acquire()).await
}

/// A client that holds the lock.
async fn holder(world: &World, seed: u64) -> (Client, Guard) {
    let client = world.client(seed).await;
    let guard = World::lock(&client).acquire().await.expect("nobody else wants it");
    (client, guard)
}
