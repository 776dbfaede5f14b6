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
use std::time::Duration;

use jute_codec::OpCode;
use tokio::task::JoinHandle;
use zk_recipes::{
    Client, ErrorCode, LockError, LockState, LostReason, ReadGuard, Released, RwLock, WriteGuard,
};
use zk_tests::scene::spawn;
use zk_tests::world::{DIRECTORY, World, sleep_ms};

use self::Side::{Read, Write};

/// A side of the lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Side {
    Read,
    Write,
}

/// Who holds, and who has to wait behind it.
const WAITS: [(Side, Side); 3] = [(Write, Read), (Read, Write), (Write, Write)];

/// A guard of either side.
#[derive(Debug)]
enum Holding {
    Read(ReadGuard),
    Write(WriteGuard),
}

/// An acquire of either side that runs by itself.
type Waiter = JoinHandle<Result<Holding, LockError>>;

impl Side {
    fn excludes(self, other: Self) -> bool {
        self == Write || other == Write
    }

    /// What stands before the number in the names of this side.
    fn mark(self) -> &'static str {
        match self {
            Read => "-__READ__",
            Write => "-__WRIT__",
        }
    }
}

impl Holding {
    fn state(&self) -> LockState {
        match self {
            Self::Read(guard) => guard.state(),
            Self::Write(guard) => guard.state(),
        }
    }

    fn path(&self) -> &str {
        match self {
            Self::Read(guard) => guard.path(),
            Self::Write(guard) => guard.path(),
        }
    }

    fn session(&self) -> i64 {
        match self {
            Self::Read(guard) => guard.session().0,
            Self::Write(guard) => guard.session().0,
        }
    }

    async fn validate(&self) -> Result<(), LockError> {
        match self {
            Self::Read(guard) => guard.validate().await,
            Self::Write(guard) => guard.validate().await,
        }
    }

    async fn lost(&self) -> LostReason {
        match self {
            Self::Read(guard) => guard.lost().await,
            Self::Write(guard) => guard.lost().await,
        }
    }

    async fn end(self) -> Result<Released, LockError> {
        match self {
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
        }
    }

    /// Releases a lock that is still there.
    async fn release(self) {
        assert_eq!(self.end().await, Ok(Released::Released));
    }
}

/// Acquires one side, at most for that long.
async fn acquire_within(
    lock: RwLock,
    side: Side,
    timeout: Option<Duration>,
) -> Result<Holding, LockError> {
    match (side, timeout) {
        (Read, None) => lock.read().await.map(Holding::Read),
        (Read, Some(timeout)) => lock.read().timeout(timeout).await.map(Holding::Read),
        (Write, None) => lock.write().await.map(Holding::Write),
        (Write, Some(timeout)) => lock.write().timeout(timeout).await.map(Holding::Write),
    }
}

async fn acquire(lock: &RwLock, side: Side) -> Result<Holding, LockError> {
    acquire_within(lock.clone(), side, None).await
}

async fn try_acquire(lock: &RwLock, side: Side) -> Result<Option<Holding>, LockError> {
    Ok(match side {
        Read => lock.try_read().await?.map(Holding::Read),
        Write => lock.try_write().await?.map(Holding::Write),
    })
}

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

/// A writer that has become a reader stands at the same place.
fn is_same_place(one: &str, other: &str) -> bool {
    one.replace(Write.mark(), Read.mark()) == other.replace(Write.mark(), Read.mark())
}

/// Number at the end of a contender's name.
fn number(path: &str) -> u32 {
    path[path.len() - 10..].parse().expect("digits")
}
