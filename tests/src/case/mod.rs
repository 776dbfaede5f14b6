//! What a suite must know about a lock: one trait, one file per lock, and one list.
//!
//! A [`Case`] is a lock as one of its contenders uses it: the fair lock, a reader, a writer, the
//! exclusive lock. Suites that test a property of all locks are generic over it, and
//! [`for_each_lock!`](crate::for_each_lock) instantiates them from the list below. To add a lock,
//! write its file beside this one, and add its module and its line here.
//!
//! The alternative was a table of function pointers, iterated at run time. With a trait, the
//! guards keep their types, so a test can require `Kind: Queued` and the compiler rejects a
//! transaction on a lock that has none; and each instance is a test with a name of its own.

mod exclusive;
mod fair;
mod instances;
mod read;
mod write;

use std::any::TypeId;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use jute_codec::OpCode;
use zk_recipes::kind::Kind;
use zk_recipes::{
    Acquire, Client, ConfigError, DowngradeError, FencingToken, Guard, LockBuilder, LockError,
    LockStats, ReadGuard, TryAcquire,
};
pub use zk_recipes::{ExclusiveLock, FairLock};

pub use self::instances::{marks, names};
pub use self::read::Reader;
pub use self::write::Writer;

/// The list. A line is the name of a case, its type, and its form:
///
/// - `fifo`: each contender has a znode in a directory, guards have transactions, and contenders
///   that exclude each other get the lock in the order of their znodes;
/// - `queue`: the same without the order;
/// - `znode`: the lock is one znode.
///
/// Pairs of a holder and a waiter come from the same lines: the holder is the waiter's
/// [`Rival`](crate::case::Case::Rival). A line with `behind` adds a pair with another holder.
#[doc(hidden)]
#[macro_export]
macro_rules! recipes {
    ($macro:ident $request:tt) => {
        $crate::$macro! { $request
            fair: FairLock, fifo;
            read: Reader, fifo;
            write: Writer, fifo;
            write_behind_read: Writer behind Reader, fifo;
            exclusive: ExclusiveLock, znode;
        }
    };
}

/// Path of the lock under test: the directory of a queue, or the one znode of a lock without a
/// queue. In suites that run against real servers it is below the chroot of the test.
pub const LOCK: &str = "/locks/x";

/// A lock as one of its contenders uses it.
pub trait Case: Clone + Debug + Send + Sync + Sized + 'static {
    /// Kind of its guards.
    type Kind: Kind;
    /// Public type of the lock.
    type Lock;
    /// Form of the names of its contenders.
    type Naming: Default;
    /// A case of the same lock that excludes this case, itself, and every other case of the lock.
    type Rival: Case;

    /// Name in the list.
    const NAME: &'static str;
    /// Text between the attempt id and the sequence number in the name of a contender's znode.
    /// `None` if the lock has no queue, so that its one znode is at [`LOCK`] itself.
    const MARK: Option<&'static str>;
    /// Contenders get the lock in the order of their sequence numbers, as far as they exclude
    /// each other.
    const IS_FAIR: bool;
    /// Several contenders of this case hold the lock at the same time.
    const IS_SHARED: bool = false;
    /// Each guard has a fencing token, greater than those of earlier guards.
    const IS_FENCED: bool = true;
    /// [`downgrade`](Self::downgrade) works.
    const HAS_DOWNGRADE: bool = false;
    /// Requests by which a guard proves that the lock is still held.
    const PROOF: &'static [OpCode] = &[OpCode::MULTI];

    /// Begins to describe a lock.
    ///
    /// # Errors
    ///
    /// The path is not a valid one.
    fn builder(
        client: &Client,
        path: &str,
    ) -> Result<LockBuilder<Self::Lock, Self::Naming>, ConfigError>;

    /// Checks the options.
    ///
    /// # Errors
    ///
    /// The options are illegal.
    fn build(builder: LockBuilder<Self::Lock, Self::Naming>) -> Result<Self, ConfigError>;

    /// Prepares an acquire, to be awaited.
    fn acquire(&self) -> Acquire<Self::Kind>;

    /// Prepares an acquire that does not wait for other contenders.
    fn try_acquire(&self) -> TryAcquire<Self::Kind>;

    /// Reads who holds the lock, and who waits if the lock has a queue.
    ///
    /// # Errors
    ///
    /// Those of the lock.
    fn inspect(&self) -> impl Future<Output = Result<(), LockError>> + Send;

    /// What the lock has counted.
    fn stats(&self) -> LockStats;

    /// The fencing token of a guard, unless the case has none.
    fn token(guard: &Guard<Self::Kind>) -> Option<FencingToken>;

    /// Continues as a reader, without releasing the lock in between.
    ///
    /// # Errors
    ///
    /// Returns the guard if the case has no downgrade.
    fn downgrade(guard: Guard<Self::Kind>) -> Result<Downgrading, Guard<Self::Kind>> {
        Err(guard)
    }

    /// The lock at [`LOCK`] with these options. Its safety timer is off unless they switch it on:
    /// it would hide a lost wake-up.
    ///
    /// # Panics
    ///
    /// If the options are illegal.
    fn with(
        client: &Client,
        options: impl FnOnce(
            LockBuilder<Self::Lock, Self::Naming>,
        ) -> LockBuilder<Self::Lock, Self::Naming>,
    ) -> Self {
        Self::builder(client, LOCK)
            .and_then(|builder| Self::build(options(builder.watch_check(None))))
            .expect("the options are legal")
    }

    /// The lock at [`LOCK`], without its safety timer.
    fn of(client: &Client) -> Self {
        Self::with(client, |builder| builder)
    }

    /// The lock at [`LOCK`] with every option at its default, so with its safety timer.
    ///
    /// # Panics
    ///
    /// Never: the path is valid.
    fn shipped(client: &Client) -> Self {
        Self::builder(client, LOCK).and_then(Self::build).expect("the path is valid")
    }

    /// The directory in which contenders create their znodes.
    fn directory() -> &'static str {
        if Self::MARK.is_some() { LOCK } else { "/locks" }
    }

    /// True if this case waits for a contender whose znode has this path, and which is ahead of it.
    fn waits_for(path: &str) -> bool {
        !(Self::IS_SHARED && Self::MARK.is_some_and(|mark| path.contains(mark)))
    }
}

/// A downgrade that has begun.
pub type Downgrading =
    Pin<Box<dyn Future<Output = Result<ReadGuard, DowngradeError>> + Send + 'static>>;

/// True if the two are the same case.
pub fn is_same<A: Case, B: Case>() -> bool {
    TypeId::of::<A>() == TypeId::of::<B>()
}

/// Sequence number at the end of a contender's path.
///
/// # Panics
///
/// If there is none.
pub fn number(path: &str) -> u32 {
    path[path.len() - 10..].parse().expect("a sequence number has ten digits")
}
