//! The read/write lock in virtual time: which contenders share it, in every order; waiting, losing,
//! downgrades and costs. Each fault is injected exactly where it is meant to happen, and the safety
//! timer is off.

mod access;
mod costs;
mod downgrade_cancelling;
mod downgrade_failing;
mod downgrading;
mod losing;
mod orders;
mod queue;
mod sharing;
mod waiting;

use std::collections::BTreeMap;

use jute_codec::{OpCode, SessionId};
use tokio::task::JoinHandle;
use zk_recipes::{Client, ErrorCode, LockError, RwLock, WriteGuard};
use zk_tests::case::{LOCK, Writer, number};
use zk_tests::scene::spawn;
use zk_tests::world::{World, sleep_ms};

use self::access::Access::{self, Read, Write};
use self::access::{Holding, acquire, acquire_within, is_same_place, try_acquire};

/// A holder, and a contender that must wait behind it.
const WAITS: [(Access, Access); 3] = [(Write, Read), (Read, Write), (Write, Write)];

/// An acquire that runs as a task.
type Waiter = JoinHandle<Result<Holding, LockError>>;

/// Joins the queue, and returns when the contender has its place and the others have reacted.
async fn join(world: &World, lock: &RwLock, side: Access) -> Waiter {
    let before = world.contenders().len();
    let waiter = spawn(acquire_within(lock.clone(), side, None));
    world.until("the contender is in the queue", |_| world.contenders().len() > before).await;
    sleep_ms(10).await;
    waiter
}

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

/// Waits until the lock is granted, and returns the guard of the waiter.
async fn granted(waiter: Waiter) -> Holding {
    waiter.await.expect("an acquire does not panic").expect("the lock is granted")
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

/// Checks that each contender waits for a contender with a lower number, and each reader for a
/// writer, so that there is no cycle. Each session of the world must have only one contender.
fn check_waits(world: &World) {
    let mut places: BTreeMap<SessionId, Vec<String>> = BTreeMap::new();
    for commit in world.server.commits() {
        let is_place = commit.op == OpCode::CREATE2 && commit.error == ErrorCode::OK;
        if let Some(path) = commit.path.filter(|_| is_place) {
            places.entry(commit.session).or_default().push(path);
        }
    }
    for request in world.server.requests() {
        let (Some(path), OpCode::GET_DATA) = (request.path, request.op) else { continue };
        let Some(own) = places.get(&request.session) else { continue };
        if !path.starts_with(LOCK) || own.iter().any(|own| is_same_place(own, &path)) {
            continue;
        }
        for own in own {
            assert!(number(&path) < number(own), "{own} waits for {path}\n{}", world.trace());
            let is_reader = own.contains(Read.mark());
            assert!(!is_reader || path.contains(Write.mark()), "{own} waits for {path}");
        }
    }
}

/// Creates the directory of the lock, so that an acquire does not have to.
fn create_directory(world: &World) {
    zk_tests::scene::create_directory::<Writer>(world);
}
