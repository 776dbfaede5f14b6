//! ZooKeeper recipes for Rust services: cancel-safe, with explicit replay after connection loss.
//!
//! ```
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
//! # let hosts = server.listen("127.0.0.1:0").await?;
//! use std::time::Duration;
//! use zk_recipes::{Client, FairLock};
//!
//! let client = Client::connect(format!("{hosts}/app")).await?;
//! let lock = FairLock::new(&client, "/locks/billing")?;
//!
//! let guard = lock.acquire().timeout(Duration::from_secs(30)).await?;
//! // The work is stopped at its next `.await` when the lock is lost.
//! guard.run(async { println!("fencing token {}", guard.fencing_token()) }).await?;
//! guard.release().await?;
//! client.close().await;
//! # Ok(()) }
//! ```
//!
//! Acquiring a lock returns a [`Guard`]. The most common types of the client are re-exported, so
//! that one dependency is enough; the rest are in the crate `zk_session`, which is re-exported too.
//!
//! # Recipes
//!
//! - [`FairLock`]: one holder at a time, in order of arrival
//! - [`RwLock`]: many readers or one writer
//! - [`Semaphore`]: a limited number of holders
//! - [`ExclusiveLock`]: work that only the first client should do
//! - [`Election`]: one leader among many candidates
//! - [`Holder`]: nested acquires of one lock
//! - [`MultiLock`]: several locks together
//! - [`NamedLocks`]: one lock for each order, user or file
//! - [`SharedValue`]: data that clients compare and set
//! - [`Counter`]: a number to which each addition counts once
//! - [`Barrier`]: tasks that wait until another one opens a barrier
//! - [`DoubleBarrier`]: participants that enter and leave together
//! - [`Group`]: knowing which processes take part
//! - [`Cache`]: a copy of a znode, its children or a tree, which follows the servers
//! - [`WorkQueue`]: items that consumers lease
//! - [`Tree`]: creating missing paths, deleting subtrees
//!
//! # Items in the order in which you meet them
//!
//! 1. [`Client`] and [`ClientBuilder`] connect; [`ConnectError`] says why that failed.
//! 2. [`LockBuilder`] has the options of a lock.
//! 3. [`Acquire`] and [`TryAcquire`] are pending acquires, and [`Phases`] reports their progress.
//! 4. [`Guard`] is a lock that is held, with its [`LockState`] and its [`FencingToken`].
//! 5. [`LockError`] and [`LostReason`] say why a lock was not obtained, or is no longer held.
//! 6. [`LockStats`] and [`Contender`] show what a lock is doing.
//!
//! # Promises
//!
//! - At any time, a lock is held by at most one contender, or by readers only, as far as the
//!   ensemble can decide it; a semaphore, by as many contenders as it has permits. No lock can
//!   control a process that was paused for longer than its session lived: see [`Guard`] and its
//!   fencing token.
//! - Lock operations never return connection-loss errors. Requests are replayed behind a write
//!   barrier, so that no contender waits behind its own lost znode.
//! - No contender znode stays behind after a future or a guard was dropped, or after an error. The
//!   session is responsible for the cleanup, not the caller.
//! - The contenders of a queue are served in the order in which the ensemble created their znodes.
//!
//! # Layers
//!
//! The machines are pure decision logic without I/O. With the default feature `tokio`, the engine
//! passes replies and events of the client to the machines, and hands cleanup to the janitor of the
//! session.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "used by the engine"))]

#[doc(hidden)]
pub mod machine;

mod action;
mod error;
mod exclusive;
mod lock;
#[cfg(all(test, feature = "tokio"))]
mod messages;
mod queue;
mod rw;
#[cfg(test)]
mod samples;
mod semaphore;
mod timed_out;

#[cfg(feature = "tokio")]
mod acquire;
#[cfg(feature = "tokio")]
mod barrier;
#[cfg(feature = "tokio")]
mod cache;
#[cfg(feature = "tokio")]
mod counter;
#[cfg(feature = "tokio")]
mod double_barrier;
#[cfg(feature = "tokio")]
mod election;
#[cfg(feature = "tokio")]
mod engine;
#[cfg(feature = "tokio")]
mod fair;
#[cfg(feature = "tokio")]
mod group;
#[cfg(feature = "tokio")]
mod guard;
#[cfg(feature = "tokio")]
mod holder;
#[cfg(feature = "tokio")]
mod multi_lock;
#[cfg(feature = "tokio")]
mod named;
#[cfg(feature = "tokio")]
mod shared_value;
#[cfg(feature = "tokio")]
mod tree;
#[cfg(feature = "tokio")]
mod work_queue;

pub use crate::action::FailedAction;
pub use crate::error::RecipeError;
pub use crate::lock::error::{LockError, LostReason, Stopped};
pub use crate::lock::outcome::Released;
pub use crate::lock::role::Role;
pub use crate::timed_out::{LastSeen, Predecessor, TimedOut};

#[doc(no_inline)]
pub use zk_session;
pub use zk_session::{
    Acl, ConfigError, ConnectionFailure, CreateMode, ErrorCode, Id, Lease, OpError, Outcome,
    Permissions, SessionId, Stat, Target, Time, Version,
};

#[cfg(feature = "tokio")]
pub use crate::{
    acquire::builder::LockBuilder,
    acquire::side::Side,
    acquire::{Acquire, Acquiring, TryAcquire},
    barrier::{Barrier, BarrierBuilder, BarrierWait, BarrierWaiting},
    cache::{Cache, CacheBuilder, CacheError, CacheEvent, CacheStats, CachedNode},
    counter::{Counter, CounterBuilder, CounterChanges, CounterFormat},
    double_barrier::{BarrierStep, DoubleBarrier, DoubleBarrierBuilder, Inside},
    election::{Election, ElectionNaming, Leader, Leaders, Leadership},
    exclusive::{ExclusiveGuard, ExclusiveLock},
    fair::{FairLock, Naming},
    group::{
        Absence, Ending, Group, GroupBuilder, GroupChange, GroupError, GroupWatch, Member,
        Membership, MembershipState,
    },
    guard::{FencingToken, Guard, LockStatus, Run, TransactionError, request_revocation},
    holder::{AcquireLevel, Holder, Level, TryAcquireLevel},
    lock::contender::Contender,
    lock::phase::{Phase, Phases},
    lock::state::{AtRiskPolicy, LockState},
    lock::stats::LockStats,
    multi_lock::{
        MultiAcquire, MultiAcquiring, MultiGuard, MultiLock, MultiLockBuilder, MultiLockError,
        MultiReleaseError,
    },
    named::NamedLocks,
    rw::{DowngradeError, ReadGuard, RwLock, RwNaming, WriteGuard},
    semaphore::{PermitGuard, PermitLimit, Semaphore},
    shared_value::{SharedValue, SharedValueBuilder, ValueChanges, ValueError, Versioned},
    tree::Tree,
    work_queue::{
        BlockReason, BlockedItem, Leased, Put, Take, TakeBatch, WorkQueue, WorkQueueBuilder,
        WorkQueueError,
    },
};
#[cfg(feature = "tokio")]
pub use zk_session::{
    Client, ClientBuilder, Clock, CloseOutcome, ConnectError, CreateOptions, HandOverError, Multi,
    MultiOutcome, SessionState, SlowCommits, StateStream,
};

#[cfg(feature = "sasl-gssapi")]
pub use zk_session::Gssapi;
#[cfg(any(feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
pub use zk_session::Sasl;
#[cfg(feature = "tls")]
pub use zk_session::{Tls, TlsBuilder};

/// Kinds of locks, as types: what a [`Guard`] can do depends on its kind.
#[cfg(feature = "tokio")]
pub mod kind {
    pub use crate::election::Lead;
    pub use crate::exclusive::Exclusive;
    pub use crate::lock::kind::{Fair, Fenced, Kind, Queued};
    pub use crate::rw::{Read, Write};
    pub use crate::semaphore::Permit;
}

/// The machines of all recipes, for tests that feed them by hand. Semantic versioning does not
/// cover them.
#[doc(hidden)]
pub mod machines {
    pub use crate::exclusive::machine::{attempt::ExclusiveAttempt, profile::ExclusiveProfile};
    pub use crate::lock::outcome::{
        Changed, Held, NotChanged, NotHeld, Refusal, Restart, Tally, Znode,
    };
    pub use crate::lock::recipe::{Attempt, Change, Removal};
    pub use crate::queue::machine::{attempt::QueueAttempt, removal::QueueRemoval};
    pub use crate::queue::naming::{NameForm, QueueNames};
    pub use crate::queue::profile::{Permits, QueueProfile};
    pub use crate::rw::machine::Downgrade;
    pub use crate::semaphore::machine::{attempt::SemaphoreAttempt, resize::Resize};
}

/// Pages of the project, included so that their code is compiled.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/getting-started.md")]
    struct GettingStarted;
    #[cfg(all(feature = "tls", feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
    #[doc = include_str!("../../../docs/security.md")]
    struct Security;
    #[doc = include_str!("../../../docs/fencing.md")]
    struct Fencing;
    #[doc = include_str!("../../../docs/logs.md")]
    struct Logs;
    #[doc = include_str!("../../../docs/connection-loss.md")]
    struct ConnectionLoss;
    #[doc = include_str!("../../../docs/recipes/fair.md")]
    struct Fair;
    #[doc = include_str!("../../../docs/recipes/rwlock.md")]
    struct ReadWrite;
    #[doc = include_str!("../../../docs/recipes/exclusive.md")]
    struct Exclusive;
    #[doc = include_str!("../../../docs/recipes/semaphore.md")]
    struct Semaphore;
    #[doc = include_str!("../../../docs/recipes/shared_value.md")]
    struct SharedValue;
    #[doc = include_str!("../../../docs/recipes/barrier.md")]
    struct Barrier;
    #[doc = include_str!("../../../docs/recipes/holder.md")]
    struct Holders;
    #[doc = include_str!("../../../docs/recipes/multi_lock.md")]
    struct MultiLocks;
    #[doc = include_str!("../../../docs/recipes/named_locks.md")]
    struct Named;
    #[doc = include_str!("../../../docs/recipes/election.md")]
    struct Election;
    #[doc = include_str!("../../../docs/recipes/group.md")]
    struct Groups;
    #[doc = include_str!("../../../docs/recipes/cache.md")]
    struct Caches;
    #[doc = include_str!("../../../docs/recipes/work_queue.md")]
    struct WorkQueue;
    #[doc = include_str!("../../../docs/guarantees.md")]
    struct Guarantees;
    #[doc = include_str!("../../../docs/testing.md")]
    struct Testing;
}
