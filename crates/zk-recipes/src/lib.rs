//! ZooKeeper recipes for Rust services: locks, elections, queues and more, which survive lost
//! connections, and whose futures can be dropped at any time.
//!
//! ```
//! use std::error::Error;
//! use std::time::Duration;
//!
//! use zk_recipes::{Client, FairLock};
//! use zk_testserver::{ServerConfig, TestServer};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn Error>> {
//!     // A service has the addresses of real servers here: "zk1:2181,zk2:2181,zk3:2181/app".
//!     let server = TestServer::start(ServerConfig::default());
//!     let servers = format!("{}/app", server.listen("127.0.0.1:0").await?);
//!
//!     let client = Client::connect(servers).await?;
//!     let lock = FairLock::new(&client, "/locks/billing")?;
//!     let guard = lock.acquire().timeout(Duration::from_secs(30)).await?;
//!     // The work is stopped at its next `.await` when the lock is lost.
//!     guard.run(async { println!("fencing token {}", guard.fencing_token()) }).await?;
//!     guard.release().await?;
//!     client.close().await;
//!     Ok(())
//! }
//! ```
//!
//! The example needs `tokio` with the features `macros` and `rt-multi-thread`, and `zk-testserver`,
//! a ZooKeeper server in the process of your tests.
//!
//! # Which recipe
//!
//! | you want | recipe | you get |
//! |---|---|---|
//! | one holder at a time, in order of arrival | [`FairLock`] | [`Guard`] |
//! | many readers or one writer | [`RwLock`] | [`ReadGuard`], [`WriteGuard`] |
//! | a limited number of holders | [`Semaphore`] | [`PermitGuard`] |
//! | work that only the first client does | [`ExclusiveLock`] | [`ExclusiveGuard`] |
//! | one leader among many candidates | [`Election`] | [`Leadership`] |
//! | nested acquires of one lock | [`Holder`] | [`Level`] |
//! | several locks together | [`MultiLock`] | [`MultiGuard`] |
//! | one lock for each order, user or file | [`NamedLocks`] | a [`FairLock`] |
//! | items that consumers lease | [`WorkQueue`] | [`Leased`] |
//! | to know which processes take part | [`Group`] | [`Membership`], [`GroupWatch`] |
//! | a znode that exists for as long as you want | [`Presence`] | |
//! | tasks that wait until another one opens a barrier | [`Barrier`] | |
//! | participants that enter and leave together | [`DoubleBarrier`] | [`Inside`] |
//! | data that clients compare and set | [`SharedValue`] | [`Versioned`], [`ValueChanges`] |
//! | a number to which each addition counts once | [`Counter`] | [`CounterChanges`] |
//! | a copy of a znode, its children or a tree | [`Cache`] | [`CachedNode`], [`CacheEvent`] |
//! | missing paths created, subtrees deleted | [`Tree`] | |
//! | single operations whose outcome is known | [`SettledClient`] | [`NewZnode`], [`AclInForce`], [`ConfigInForce`], [`ZnodeChanges`] |
//!
//! # All items by topic
//!
//! ## Locks
//!
//! - Each lock is a [`Lock`] of its [`kind`], built with its options by a [`LockBuilder`], and
//!   acquired with an [`Acquire`] or a [`TryAcquire`]: set options, then `.await` it, or keep the
//!   future, an [`Acquiring`]. [`Phases`] reports each [`Phase`] on the way.
//! - The [`Guard`] is the lock that is held, with its [`LockState`], its [`FencingToken`] and the
//!   [`Run`] of a body of work; [`AtRiskPolicy`] says what *at risk* means to it. [`LockStatus`] is
//!   a view of the guard for other code. What a guard can do depends on its kind: see [`kind`].
//! - [`Contender`] and its [`Role`] show who holds and who waits, [`LockStats`] counts, and
//!   [`request_revocation`] asks a contender to leave. [`Released`] says how a release ended.
//! - [`Naming`], [`RwNaming`] and [`ElectionNaming`] choose the names of Curator or kazoo, and
//!   [`PermitLimit`] the number of permits of a [`Semaphore`].
//! - [`Holder`] counts nested acquires, each a [`Level`]. [`MultiLock`] has a [`MultiLockBuilder`].
//!
//! ## Coordination
//!
//! - [`Election`]: observers follow the [`Leaders`], and each [`Leader`] has a token too.
//! - [`WorkQueue`], built by a [`WorkQueueBuilder`]: a [`Put`] has [`PutOptions`]. A [`BlockedItem`]
//!   cannot be delivered, for a [`BlockReason`], and [`QueueStats`] counts.
//! - [`Group`], built by a [`GroupBuilder`]: a [`GroupWatch`] yields each [`GroupChange`] of a
//!   [`Member`]; a [`Membership`] has a [`MembershipState`], with an [`Absence`] or an [`Ending`].
//! - [`Presence`], begun by a [`PresenceBuilder`], has a [`PresenceState`], with an [`Absence`].
//! - [`Barrier`], built by a [`BarrierBuilder`], and [`DoubleBarrier`], built by a
//!   [`DoubleBarrierBuilder`].
//!
//! ## Data
//!
//! - [`SharedValue`], built by a [`SharedValueBuilder`]: a [`Versioned`] value, and its
//!   [`ValueChanges`].
//! - [`Counter`], built by a [`CounterBuilder`], stores its number in a [`CounterFormat`].
//! - [`Cache`], built by a [`CacheBuilder`], counts its requests and gaps in [`CacheStats`].
//! - [`Tree`] creates missing paths and deletes subtrees.
//! - [`SettledClient`] has the operations of a client, repeated until their outcome is known; a
//!   create returns a [`NewZnode`], and [`ZnodeChanges`] follow a znode.
//!
//! ## The client
//!
//! The items of the client that most programs need are re-exported; the rest is in [`zk_session`].
//!
//! - [`Client`] connects and has the operations, and [`ClientBuilder`] has its options.
//!   [`CloseOutcome`] says how [`Client::close`] ended.
//! - Znodes: [`CreateMode`], [`CreateOptions`], [`Stat`], [`Version`]; their access control lists:
//!   [`Acl`], [`Id`], [`Permissions`].
//!   An [`Exposure`] has an [`Answer`] for each [`Touch`] of a stranger.
//! - Transactions: [`Multi`] and [`MultiOutcome`].
//! - The session: [`SessionId`], [`SessionState`] and [`StateStream`].
//! - The lease, which decides for how long locks survive an outage: [`Lease`] and [`SlowCommits`].
//! - Time: [`Clock`] and [`Time`].
//! - Security: `Tls`, `TlsBuilder` and `rustls`, `Sasl` and `Gssapi`, which need [features](#features).
//!
//! ## Errors
//!
//! The error of each recipe takes what its constructors and its other calls return, so `?` is enough
//! in a function that returns it.
//!
//! - [`LockError`] says why a lock was not obtained, or is no longer held, [`LostReason`] why it was
//!   lost, and [`Stopped`] why a body was stopped. [`TransactionError`] and [`DowngradeError`] belong
//!   to a guard, [`MultiLockError`] and [`MultiReleaseError`] to several locks.
//! - Operations of recipes are [`Call`]s, which take a timeout, or [`ScopedCall`]s if they borrow from
//!   their caller. What waits for the next event has none, since the event may never happen: `next`
//!   of a stream, [`Membership::changed`], [`Presence::changed`], [`Cache::complete`], and the calls
//!   that run a body of work. All of them are cancel safe, so the timer of your runtime is enough for these.
//! - Each stream is a `futures_core::Stream` too, which yields what its `next` returns, and ends when
//!   the client has stopped.
//! - [`TimedOut`] says what a call had [`LastSeen`] when its time was up: for example, its
//!   [`Predecessor`].
//! - Recipes that are not locks fail with a [`RecipeError`], or with one of their own:
//!   [`CacheError`], [`GroupError`], [`PresenceError`], [`SettledError`], [`ValueError`],
//!   [`WorkQueueError`]. A [`FailedAction`] is what the servers were asked for.
//! - Operations of the client fail with an [`OpError`], which has an [`Outcome`], an [`ErrorCode`] of
//!   a server, and a [`Target`]. [`ConnectError`] and [`ConnectionFailure`] say why there is no
//!   connection, [`ConfigError`] which option is invalid, [`HandOverError`] why a session was
//!   not handed over, and [`AuthError`] why credentials were not changed.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `tokio` | yes | the recipes and the client; without it, there are only their state machines, which do no I/O |
//! | `metrics` | no | metrics of locks and sessions, through the facade of the crate `metrics` |
//! | `tls` | no | TLS and mutual TLS with rustls; the program chooses the crypto provider |
//! | `tls-ring` | no | `tls`, with the crypto provider ring |
//! | `tls-aws-lc` | no | `tls`, with the crypto provider AWS-LC |
//! | `sasl-digest-md5` | no | SASL with a name and a password |
//! | `sasl-gssapi` | no | SASL with Kerberos; needs libclang and the development files of MIT Kerberos to build |
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
//! # The guide
//!
//! The folder `docs` of the repository has two books. The guide explains how to use the crate:
//!
//! - *Getting started* (`getting-started.md`), *A service* (`service.md`), a complete program, and
//!   *The client* (`client.md`)
//! - *Which recipe* (`recipes/overview.md`), with a page for each recipe: code, costs, limits,
//!   errors and permissions
//! - *What a guard promises* (`guarantees.md`), *Connection loss* (`connection-loss.md`) and
//!   *Fencing elsewhere* (`fencing.md`)
//! - *Security* (`security.md`), *Health and logs* (`logs.md`), *Metrics* (`metrics.md`),
//!   *Performance* (`performance.md`) and *Tests* (`testing.md`)
//! - *Coming from another library* (`migration.md`): Curator, kazoo and others, class by class
//! - *Features* (`features.md`) and *Versions* (`versions.md`)
//!
//! The second book, `internals`, has the algorithm of each recipe with what happens on each failure,
//! sessions, leases, the protocol, and how all of this is tested.
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
mod stream;

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
mod presence;
#[cfg(feature = "tokio")]
mod settled;
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
    acquire::lock::Lock,
    acquire::{Acquire, Acquiring, TryAcquire},
    barrier::{Barrier, BarrierBuilder},
    cache::{Cache, CacheBuilder, CacheError, CacheEvent, CacheStats, CachedNode},
    counter::{Counter, CounterBuilder, CounterChanges, CounterFormat},
    double_barrier::{DoubleBarrier, DoubleBarrierBuilder, Inside},
    election::{Election, ElectionNaming, Leader, Leaders, Leadership},
    engine::call::{Call, ScopedCall},
    exclusive::{ExclusiveGuard, ExclusiveLock},
    fair::{FairLock, Naming},
    group::{
        Ending, Group, GroupBuilder, GroupChange, GroupError, GroupWatch, Member, Membership,
        MembershipState,
    },
    guard::{FencingToken, Guard, LockStatus, Run, TransactionError, request_revocation},
    holder::{Holder, Level},
    lock::contender::Contender,
    lock::options::LockBuilder,
    lock::phase::{Phase, Phases},
    lock::state::{AtRiskPolicy, LockState},
    lock::stats::LockStats,
    multi_lock::{MultiGuard, MultiLock, MultiLockBuilder, MultiLockError, MultiReleaseError},
    named::NamedLocks,
    presence::{Absence, Presence, PresenceBuilder, PresenceError, PresenceState},
    rw::{DowngradeError, ReadGuard, RwLock, RwNaming, WriteGuard},
    semaphore::{PermitGuard, PermitLimit, Semaphore},
    settled::{AclInForce, ConfigInForce, NewZnode, SettledClient, SettledError, ZnodeChanges},
    shared_value::{SharedValue, SharedValueBuilder, ValueChanges, ValueError, Versioned},
    tree::Tree,
    work_queue::{
        BlockReason, BlockedItem, Leased, Put, PutOptions, QueueStats, WorkQueue, WorkQueueBuilder,
        WorkQueueError,
    },
};
#[cfg(feature = "tokio")]
pub use zk_session::{
    Answer, AuthError, Client, ClientBuilder, Clock, CloseOutcome, ConnectError, CreateOptions,
    Exposure, HandOverError, Multi, MultiOutcome, SessionState, SlowCommits, StateStream, Touch,
};

#[cfg(feature = "sasl-gssapi")]
pub use zk_session::Gssapi;
#[cfg(any(feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
pub use zk_session::Sasl;
#[cfg(feature = "tls")]
pub use zk_session::{Tls, TlsBuilder, rustls};

/// Kinds of locks, as types: what a [`Lock`] and its [`Guard`] can do depends on their kind.
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
    pub use crate::exclusive::machine::attempt::ExclusiveAttempt;
    pub use crate::lock::options::LockOptions;
    pub use crate::lock::outcome::{Changed, Held, NotChanged, NotHeld, Restart, Tally, Znode};
    pub use crate::lock::recipe::{Attempt, Change, LockRemoval};
    pub use crate::machine::{Leaving, Refusal, Removal};
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
    #[doc = include_str!("../README.md")]
    struct CrateReadme;
    #[doc = include_str!("../../../docs/getting-started.md")]
    struct GettingStarted;
    #[cfg(all(feature = "tls", feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
    #[doc = include_str!("../../../docs/security.md")]
    struct Security;
    #[doc = include_str!("../../../docs/client.md")]
    struct TheClient;
    #[doc = include_str!("../../../docs/fencing.md")]
    struct Fencing;
    #[doc = include_str!("../../../docs/logs.md")]
    struct Logs;
    #[doc = include_str!("../../../docs/metrics.md")]
    struct Metrics;
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
    #[doc = include_str!("../../../docs/recipes/presence.md")]
    struct Presences;
    #[doc = include_str!("../../../docs/recipes/cache.md")]
    struct Caches;
    #[doc = include_str!("../../../docs/recipes/work_queue.md")]
    struct WorkQueue;
    #[doc = include_str!("../../../docs/guarantees.md")]
    struct Guarantees;
    #[doc = include_str!("../../../docs/testing.md")]
    struct Testing;
}
