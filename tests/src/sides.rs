//! Both sides of the read/write lock as values, so that a test can be run for either.

use std::time::Duration;

use zk_recipes::{LockError, LockState, LostReason, ReadGuard, Released, RwLock, WriteGuard};

use self::Side::{Read, Write};

/// A side of the lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// It shares.
    Read,
    /// It excludes.
    Write,
}

/// A guard of either side.
#[derive(Debug)]
#[must_use = "a dropped guard releases the lock"]
pub enum Holding {
    /// For reading.
    Read(ReadGuard),
    /// For writing.
    Write(WriteGuard),
}

impl Side {
    /// True if the two cannot hold together.
    pub fn excludes(self, other: Self) -> bool {
        self == Write || other == Write
    }

    /// What stands before the number in the names of this side.
    pub fn mark(self) -> &'static str {
        match self {
            Read => "-__READ__",
            Write => "-__WRIT__",
        }
    }
}

impl Holding {
    /// State of the guard.
    pub fn state(&self) -> LockState {
        match self {
            Self::Read(guard) => guard.state(),
            Self::Write(guard) => guard.state(),
        }
    }

    /// Path of the znode.
    pub fn path(&self) -> &str {
        match self {
            Self::Read(guard) => guard.path(),
            Self::Write(guard) => guard.path(),
        }
    }

    /// Session that owns the znode.
    pub fn session(&self) -> i64 {
        match self {
            Self::Read(guard) => guard.session().0,
            Self::Write(guard) => guard.session().0,
        }
    }

    /// Proves that it is held.
    ///
    /// # Errors
    ///
    /// It is not.
    pub async fn validate(&self) -> Result<(), LockError> {
        match self {
            Self::Read(guard) => guard.validate().await,
            Self::Write(guard) => guard.validate().await,
        }
    }

    /// Waits for the loss.
    pub async fn lost(&self) -> LostReason {
        match self {
            Self::Read(guard) => guard.lost().await,
            Self::Write(guard) => guard.lost().await,
        }
    }

    /// Releases, and says how that ended.
    ///
    /// # Errors
    ///
    /// The server refuses it.
    pub async fn end(self) -> Result<Released, LockError> {
        match self {
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
        }
    }

    /// Releases a lock that is still there.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub async fn release(self) {
        assert_eq!(self.end().await, Ok(Released::Released));
    }
}

/// Acquires one side, at most for that long.
///
/// # Errors
///
/// Those of the lock.
pub async fn acquire_within(
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

/// Acquires one side.
///
/// # Errors
///
/// Those of the lock.
pub async fn acquire(lock: &RwLock, side: Side) -> Result<Holding, LockError> {
    acquire_within(lock.clone(), side, None).await
}

/// Acquires one side if it need not be waited for.
///
/// # Errors
///
/// Those of the lock.
pub async fn try_acquire(lock: &RwLock, side: Side) -> Result<Option<Holding>, LockError> {
    Ok(match side {
        Read => lock.try_read().await?.map(Holding::Read),
        Write => lock.try_write().await?.map(Holding::Write),
    })
}

/// A writer that has become a reader stands at the same place.
pub fn is_same_place(one: &str, other: &str) -> bool {
    one.replace(Write.mark(), Read.mark()) == other.replace(Write.mark(), Read.mark())
}

/// Number at the end of a contender's name.
///
/// # Panics
///
/// If there is none.
pub fn number(path: &str) -> u32 {
    path[path.len() - 10..].parse().expect("digits")
}
