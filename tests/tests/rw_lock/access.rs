//! Reading and writing as values, for tests that iterate over combinations of both.

use std::time::Duration;

use zk_recipes::{LockError, LockState, LostReason, ReadGuard, Released, RwLock, WriteGuard};
use zk_session::SessionId;
use zk_tests::case::{Case as _, Reader, Writer};

use self::Access::{Read, Write};

/// How a contender acquires the lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Access {
    /// The contender shares the lock with other readers.
    Read,
    /// The contender holds the lock alone.
    Write,
}

/// A guard of a reader or a writer.
#[derive(Debug)]
#[must_use = "a dropped guard releases the lock"]
pub(crate) enum Holding {
    /// The guard of a reader.
    Read(ReadGuard),
    /// The guard of a writer.
    Write(WriteGuard),
}

impl Access {
    /// Returns whether contenders with these accesses cannot hold the lock together.
    pub(crate) fn excludes(self, other: Self) -> bool {
        self == Write || other == Write
    }

    /// Returns the text before the sequence number in the names of contenders with this access.
    pub(crate) fn mark(self) -> &'static str {
        let mark = match self {
            Read => Reader::MARK,
            Write => Writer::MARK,
        };
        mark.expect("the lock has a queue")
    }
}

impl Holding {
    /// Returns the state of the guard.
    pub(crate) fn state(&self) -> LockState {
        match self {
            Self::Read(guard) => guard.state(),
            Self::Write(guard) => guard.state(),
        }
    }

    /// Returns the path of the znode.
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Read(guard) => guard.path(),
            Self::Write(guard) => guard.path(),
        }
    }

    /// Returns the session that owns the znode.
    pub(crate) fn session(&self) -> SessionId {
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
    pub(crate) async fn validate(&self) -> Result<(), LockError> {
        match self {
            Self::Read(guard) => guard.validate().await,
            Self::Write(guard) => guard.validate().await,
        }
    }

    /// Waits for the loss of the lock.
    pub(crate) async fn lost(&self) -> LostReason {
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
    pub(crate) async fn end(self) -> Result<Released, LockError> {
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
    pub(crate) async fn release(self) {
        assert_eq!(self.end().await, Ok(Released::Released));
    }
}

/// Acquires the lock. The wait is limited if a timeout is given.
///
/// # Errors
///
/// The errors of the lock.
pub(crate) async fn acquire_within(
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
pub(crate) async fn acquire(lock: &RwLock, access: Access) -> Result<Holding, LockError> {
    acquire_within(lock.clone(), access, None).await
}

/// Acquires the lock if no other contender keeps this one out.
///
/// # Errors
///
/// The errors of the lock.
pub(crate) async fn try_acquire(
    lock: &RwLock,
    access: Access,
) -> Result<Option<Holding>, LockError> {
    Ok(match access {
        Read => lock.try_read().await?.map(Holding::Read),
        Write => lock.try_write().await?.map(Holding::Write),
    })
}

/// Returns whether the paths belong to the same place in the queue: a writer that becomes a reader
/// keeps its place.
pub(crate) fn is_same_place(one: &str, other: &str) -> bool {
    one.replace(Write.mark(), Read.mark()) == other.replace(Write.mark(), Read.mark())
}
