//! What a suite must know about a lock: one trait, one file per lock, and one list.
//!
//! A [`Case`] is a lock as one of its contenders uses it: the fair lock, the read/write lock as a
//! reader or as a writer, a semaphore with one permit, or the exclusive lock. Suites that test a
//! property of all locks are generic over it, and [`for_each_lock!`](crate::for_each_lock)
//! instantiates them from the list below. To add a lock, write its file beside this one, and add
//! its module and a line in the list here.
//!
//! The alternative was a table of function pointers, iterated at run time. With a trait, the guards
//! keep their types, so a test can require `Kind: Queued` and the compiler rejects a transaction on
//! a lock without transactions. Each instance is also a test with its own name.

mod election;
mod exclusive;
mod fair;
mod instances;
mod read;
mod semaphore;
mod write;

use std::any::TypeId;
use std::borrow::Borrow;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use jute_codec::OpCode;
use zk_recipes::kind::Kind;
use zk_recipes::{
    Acquire, Client, ConfigError, DowngradeError, FencingToken, Guard, Lock, LockBuilder,
    LockError, LockStats, ReadGuard, TryAcquire,
};
pub use zk_recipes::{Election, ExclusiveLock, FairLock};

pub use self::instances::{marks, names};
pub use self::read::Reader;
pub use self::semaphore::OnePermit;
pub use self::write::Writer;

/// The list. A line is the name of a case, its type, and its form:
///
/// - `fifo`: each contender has a znode in a directory, guards have transactions, and contenders
///   that exclude each other get the lock in the order of their znodes;
/// - `queue`: like `fifo`, but without the order;
/// - `znode`: the lock is one znode.
///
/// The same lines define the pairs of a holder and a waiter: the holder is the waiter's
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
            semaphore: OnePermit, fifo;
            election: Election, fifo;
            exclusive: ExclusiveLock, znode;
        }
    };
}

/// Path of the lock under test: the directory of a queue, or the one znode of a lock without a
/// queue. In suites that run against real servers it is below the chroot of the test.
pub const LOCK: &str = "/locks/x";

/// A lock as one of its contenders uses it.
///
/// The supertraits say that a case is the [`Lock`] of its kind.
pub trait Case:
    Borrow<Lock<Self::Kind>> + From<Lock<Self::Kind>> + Clone + Debug + Send + Sync + Sized + 'static
{
    /// Kind of the lock, and of its guards.
    type Kind: Kind;
    /// A case of the same lock that excludes this case, itself, and every other case of the lock.
    type Rival: Case;

    /// Name in the list.
    const NAME: &'static str;
    /// Text between the attempt id and the sequence number in the name of a contender's znode.
    /// `None` if the lock has no queue, so that its one znode is at [`LOCK`] itself.
    const MARK: Option<&'static str>;
    /// Whether contenders that exclude each other get the lock in the order of their sequence
    /// numbers.
    const IS_FAIR: bool;
    /// Whether several contenders of this case can hold the lock at the same time.
    const IS_SHARED: bool = false;
    /// Whether each guard has a fencing token that is greater than the tokens of earlier guards.
    const IS_FENCED: bool = true;
    /// Whether a waiter watches the directory itself, so that this watch may outlive all contenders.
    const WATCHES_DIRECTORY: bool = false;
    /// Whether the case has the machines of the fair lock, with other names. For such a case, the
    /// enumerations skip most pairs of cuts, which would take minutes and repeat those of the fair
    /// lock.
    const IS_RENAMED: bool = false;
    /// Whether [`downgrade`](Self::downgrade) works.
    const HAS_DOWNGRADE: bool = false;
    /// The requests with which a guard proves that the lock is still held.
    const PROOF: &'static [OpCode] = &[OpCode::MULTI];

    /// Starts a builder of the lock at this path.
    ///
    /// # Errors
    ///
    /// The path is invalid.
    fn builder(client: &Client, path: &str) -> Result<Builder<Self>, ConfigError> {
        Lock::builder(client, path)
    }

    /// Checks the options, and builds the lock.
    ///
    /// # Errors
    ///
    /// The options are invalid.
    fn build(builder: Builder<Self>) -> Result<Self, ConfigError> {
        builder.build().map(Self::from)
    }

    /// Returns the lock as recipes that work with every lock take it.
    fn lock(&self) -> &Lock<Self::Kind> {
        self.borrow()
    }

    /// Prepares an acquire, to be awaited.
    fn acquire(&self) -> Acquire<Self::Kind> {
        self.lock().acquire()
    }

    /// Prepares an acquire that does not wait for other contenders.
    fn try_acquire(&self) -> TryAcquire<Self::Kind> {
        self.lock().try_acquire()
    }

    /// Reads who holds the lock, and who waits if the lock has a queue.
    ///
    /// # Errors
    ///
    /// The errors of the lock.
    fn inspect(&self) -> impl Future<Output = Result<(), LockError>> + Send;

    /// Returns the statistics of the lock.
    fn stats(&self) -> LockStats {
        self.lock().stats()
    }

    /// Returns the fencing token of a guard, unless the case has none.
    fn token(_: &Guard<Self::Kind>) -> Option<FencingToken> {
        None
    }

    /// Continues as a reader, without releasing the lock in between.
    ///
    /// # Errors
    ///
    /// Returns the guard if the case has no downgrade.
    fn downgrade(guard: Guard<Self::Kind>) -> Result<Downgrading, Guard<Self::Kind>> {
        Err(guard)
    }

    /// Returns the lock at [`LOCK`] with these options. The safety timer is off unless the options
    /// switch it on, because it would hide a lost wake-up.
    ///
    /// # Panics
    ///
    /// If the options are invalid.
    fn with(client: &Client, options: impl FnOnce(Builder<Self>) -> Builder<Self>) -> Self {
        Self::builder(client, LOCK)
            .and_then(|builder| Self::build(options(builder.watch_check(None))))
            .expect("the options are legal")
    }

    /// Returns the lock at [`LOCK`], without its safety timer.
    fn of(client: &Client) -> Self {
        Self::with(client, |builder| builder)
    }

    /// Returns the lock at [`LOCK`] with every option at its default. The safety timer is therefore
    /// on.
    ///
    /// # Panics
    ///
    /// Never: the path is valid.
    fn shipped(client: &Client) -> Self {
        Self::builder(client, LOCK).and_then(Self::build).expect("the path is valid")
    }

    /// Returns the directory in which contenders create their znodes.
    fn directory() -> &'static str {
        if Self::MARK.is_some() { LOCK } else { "/locks" }
    }

    /// Returns whether this case waits for a contender with this znode path that is ahead in the
    /// queue.
    fn waits_for(path: &str) -> bool {
        !(Self::IS_SHARED && Self::MARK.is_some_and(|mark| path.contains(mark)))
    }
}

/// The builder of a case's lock.
pub type Builder<C> = LockBuilder<Lock<<C as Case>::Kind>, <<C as Case>::Kind as Kind>::Naming>;

/// The future of a downgrade that has begun.
pub type Downgrading =
    Pin<Box<dyn Future<Output = Result<ReadGuard, DowngradeError>> + Send + 'static>>;

/// Returns whether `A` and `B` are the same case.
pub fn is_same<A: Case, B: Case>() -> bool {
    TypeId::of::<A>() == TypeId::of::<B>()
}

/// Returns the sequence number at the end of a contender's path.
///
/// # Panics
///
/// If the path has no sequence number.
pub fn number(path: &str) -> u32 {
    path[path.len() - 10..].parse().expect("a sequence number has ten digits")
}
