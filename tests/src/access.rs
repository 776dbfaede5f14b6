//! Reading and writing as values, for tests that iterate over combinations of both.

use std::collections::BTreeMap;
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode};
use tokio::task::JoinHandle;
use zk_recipes::{LockError, LockState, LostReason, ReadGuard, Released, RwLock, WriteGuard};
use zk_session::SessionId;

use self::Access::{Read, Write};
use crate::case::{Case as _, LOCK, Reader, Writer, number};
use crate::scene::spawn;
use crate::world::{World, sleep_ms};

/// An acquire that runs as a task.
pub type Waiter = JoinHandle<Result<Holding, LockError>>;

/// How a contender acquires the lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Access {
    /// The contender shares the lock with other readers.
    Read,
    /// The contender holds the lock alone.
    Write,
}

/// A guard of a reader or a writer.
#[derive(Debug)]
#[must_use = "a dropped guard releases the lock"]
pub enum Holding {
    /// The guard of a reader.
    Read(ReadGuard),
    /// The guard of a writer.
    Write(WriteGuard),
}

impl Access {
    /// Returns whether contenders with these accesses cannot hold the lock together.
    pub fn excludes(self, other: Self) -> bool {
        self == Write || other == Write
    }

    /// Returns the text before the sequence number in the names of contenders with this access.
    pub fn mark(self) -> &'static str {
        let mark = match self {
            Read => Reader::MARK,
            Write => Writer::MARK,
        };
        mark.expect("the lock has a queue")
    }
}

impl Holding {
    /// Returns the state of the guard.
    pub fn state(&self) -> LockState {
        match self {
            Self::Read(guard) => guard.state(),
            Self::Write(guard) => guard.state(),
        }
    }

    /// Returns the path of the znode.
    pub fn path(&self) -> &str {
        match self {
            Self::Read(guard) => guard.path(),
            Self::Write(guard) => guard.path(),
        }
    }

    /// Returns the session that owns the znode.
    pub fn session(&self) -> SessionId {
        match self {
            Self::Read(guard) => guard.session(),
            Self::Write(guard) => guard.session(),
        }
    }

    /// Checks that the lock is held.
    ///
    /// # Errors
    ///
    /// The lock is lost, or the check is refused.
    pub async fn validate(&self) -> Result<(), LockError> {
        match self {
            Self::Read(guard) => guard.validate().await,
            Self::Write(guard) => guard.validate().await,
        }
    }

    /// Waits for the loss of the lock.
    pub async fn lost(&self) -> LostReason {
        match self {
            Self::Read(guard) => guard.lost().await,
            Self::Write(guard) => guard.lost().await,
        }
    }

    /// Releases the lock, and returns the outcome.
    ///
    /// # Errors
    ///
    /// The server refuses the release.
    pub async fn end(self) -> Result<Released, LockError> {
        match self {
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
        }
    }

    /// Releases a lock that is still held.
    ///
    /// # Panics
    ///
    /// If the lock is lost or cannot be released.
    pub async fn release(self) {
        assert_eq!(self.end().await, Ok(Released::Released));
    }
}

/// Acquires the lock. The wait is limited if a timeout is given.
///
/// # Errors
///
/// The errors of the lock.
pub async fn acquire_within(
    lock: RwLock,
    access: Access,
    timeout: Option<Duration>,
) -> Result<Holding, LockError> {
    match (access, timeout) {
        (Read, None) => lock.read().await.map(Holding::Read),
        (Read, Some(timeout)) => lock.read().timeout(timeout).await.map(Holding::Read),
        (Write, None) => lock.write().await.map(Holding::Write),
        (Write, Some(timeout)) => lock.write().timeout(timeout).await.map(Holding::Write),
    }
}

/// Acquires the lock.
///
/// # Errors
///
/// The errors of the lock.
pub async fn acquire(lock: &RwLock, access: Access) -> Result<Holding, LockError> {
    acquire_within(lock.clone(), access, None).await
}

/// Acquires the lock if no other contender keeps this one out.
///
/// # Errors
///
/// The errors of the lock.
pub async fn try_acquire(lock: &RwLock, access: Access) -> Result<Option<Holding>, LockError> {
    Ok(match access {
        Read => lock.try_read().await?.map(Holding::Read),
        Write => lock.try_write().await?.map(Holding::Write),
    })
}

/// Returns whether the paths belong to the same place in the queue: a writer that becomes a reader
/// keeps its place.
pub fn is_same_place(one: &str, other: &str) -> bool {
    one.replace(Write.mark(), Read.mark()) == other.replace(Write.mark(), Read.mark())
}

/// Joins the queue, and returns when the contender has its place and the others have reacted.
pub async fn join(world: &World, lock: &RwLock, side: Access) -> Waiter {
    let before = world.contenders().len();
    let waiter = spawn(acquire_within(lock.clone(), side, None));
    world.until("the contender is in the queue", |_| world.contenders().len() > before).await;
    sleep_ms(10).await;
    waiter
}

/// Waits until the lock is granted, and returns the guard of the waiter.
///
/// # Panics
///
/// If the acquire fails.
pub async fn granted(waiter: Waiter) -> Holding {
    waiter.await.expect("an acquire does not panic").expect("the lock is granted")
}

/// Checks that each contender waits for a contender with a lower number, and each reader for a
/// writer, so that there is no cycle. Each session of the world must have only one contender.
///
/// # Panics
///
/// If one does not.
pub fn check_waits(world: &World) {
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
