//! The read/write lock in virtual time: who may hold beside whom, in every order; waiting,
//! refusals, cancellation, downgrades, costs. Each fault is injected exactly where it is to
//! happen, and the safety timer is off.

#[path = "rw_lock/cancelling.rs"]
mod cancelling;
#[path = "rw_lock/costs.rs"]
mod costs;
#[path = "rw_lock/downgrade_cancelling.rs"]
mod downgrade_cancelling;
#[path = "rw_lock/downgrade_failing.rs"]
mod downgrade_failing;
#[path = "rw_lock/downgrading.rs"]
mod downgrading;
#[path = "rw_lock/losing.rs"]
mod losing;
#[path = "rw_lock/orders.rs"]
mod orders;
#[path = "rw_lock/queue.rs"]
mod queue;
#[path = "rw_lock/refusals.rs"]
mod refusals;
#[path = "rw_lock/sharing.rs"]
mod sharing;
#[path = "rw_lock/waiting.rs"]
mod waiting;

use std::collections::BTreeMap;

use jute_codec::OpCode;
use tokio::task::JoinHandle;
use zk_recipes::{Client, ErrorCode, LockError, RwLock, WriteGuard};
use zk_tests::scene::spawn;
use zk_tests::sides::Side::{self, Read, Write};
use zk_tests::sides::{Holding, acquire, acquire_within, is_same_place, number, try_acquire};
use zk_tests::world::{DIRECTORY, World, sleep_ms};

/// Who holds, and who has to wait behind it.
const WAITS: [(Side, Side); 3] = [(Write, Read), (Read, Write), (Write, Write)];

/// An acquire of either side that runs by itself.
type Waiter = JoinHandle<Result<Holding, LockError>>;

/// Joins the queue, and returns when the place is taken and everybody has noticed.
async fn join(world: &World, lock: &RwLock, side: Side) -> Waiter {
    let before = world.contenders().len();
    let waiter = spawn(acquire_within(lock.clone(), side, None));
    world.until("the contender stands in the queue", |_| world.contenders().len() > before).await;
    sleep_ms(10).await;
    waiter
}

/// Joins the queue where it has to wait.
async fn queue_up(world: &World, lock: &RwLock, side: Side) -> Waiter {
    let waiter = join(world, lock, side).await;
    assert!(!waiter.is_finished(), "{side:?} granted beside a holder\n{}", world.trace());
    waiter
}

/// What a waiter has obtained, which has to be now.
async fn granted_now(world: &World, waiter: Waiter) -> Holding {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    assert!(waiter.is_finished(), "not granted at once\n{}", world.trace());
    granted(waiter).await
}

/// What a waiter obtains in the end.
async fn granted(waiter: Waiter) -> Holding {
    waiter.await.expect("an acquire does not panic").expect("it is granted")
}

/// A client that holds one side of the lock.
async fn holder(world: &World, seed: u64, side: Side) -> (Client, Holding) {
    let client = world.client(seed).await;
    let held = acquire(&World::rw_lock(&client), side).await.expect("nobody is in the way");
    (client, held)
}

/// A client that holds for writing.
async fn writer(world: &World, seed: u64) -> (Client, WriteGuard) {
    let client = world.client(seed).await;
    let guard = World::rw_lock(&client).write().await.expect("nobody is in the way");
    (client, guard)
}

/// Whoever waits, waits for somebody with a lower number, and a reader for a writer: so nobody
/// waits in a circle. Of worlds in which each session has one contender.
fn check_waits(world: &World) {
    let mut places: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for commit in world.server.commits() {
        let is_place = commit.op == OpCode::CREATE2 && commit.error == ErrorCode::OK;
        if let Some(path) = commit.path.filter(|_| is_place) {
            places.entry(commit.session).or_default().push(path);
        }
    }
    for request in world.server.requests() {
        let (Some(path), OpCode::GET_DATA) = (request.path, request.op) else { continue };
        let Some(own) = places.get(&request.session) else { continue };
        if !path.starts_with(DIRECTORY) || own.iter().any(|own| is_same_place(own, &path)) {
            continue;
        }
        for own in own {
            assert!(number(&path) < number(own), "{own} waits for {path}\n{}", world.trace());
            let is_reader = own.contains(Read.mark());
            assert!(!is_reader || path.contains(Write.mark()), "{own} waits for {path}");
        }
    }
}
