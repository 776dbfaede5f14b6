//! ZooKeeper locks for Rust services: fair, cancel-safe, with explicit replay of connection loss.
//!
//! Start with [`FairLock`]; [`RwLock`] and [`ExclusiveLock`] are its siblings. What they give is a
//! [`Guard`]. The client they stand on is re-exported, so that one dependency is enough: what most
//! programs name is here, the rest in [`zk_session`].
//!
//! # What is promised
//!
//! - At most one contender holds a lock, or readers only, as far as the ensemble can decide it.
//!   What a holder does after it was stopped for longer than its session lives is out of reach of
//!   any lock: see [`Guard`] and its fencing token.
//! - A lost connection is never an error of a lock. It is replayed behind a write barrier, so that
//!   no lock waits behind its own ghost.
//! - A dropped future, a dropped guard, an error: whatever it was, no contender znode stays
//!   behind. Cleanup belongs to the session, not to its caller.
//! - Contenders of a queue are served in the order in which the ensemble created their znodes.
//!
//! # Layers
//!
//! [`machine`] decides and does nothing. The rest, with the default feature `tokio`, feeds the
//! machines from the client and hands cleanup to its janitor.

#![cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "used by the runner"))]

pub mod machine;

mod error;
mod naming;

#[cfg(feature = "tokio")]
mod contenders;
#[cfg(feature = "tokio")]
mod exclusive;
#[cfg(feature = "tokio")]
mod fair;
#[cfg(feature = "tokio")]
mod guard;
#[cfg(feature = "tokio")]
pub mod kind;
#[cfg(feature = "tokio")]
mod lock;
#[cfg(feature = "tokio")]
mod phase;
#[cfg(feature = "tokio")]
mod run;
#[cfg(feature = "tokio")]
mod rw;
#[cfg(feature = "tokio")]
mod stats;
#[cfg(feature = "tokio")]
mod transaction;

pub use crate::error::{LockError, LostReason, Stopped};
pub use crate::machine::release::Released;
pub use crate::naming::{Names, Naming, Role, RwNaming};
#[doc(no_inline)]
pub use zk_session;
pub use zk_session::{
    Acl, ConfigError, CreateMode, ErrorCode, Lease, OpError, Outcome, Permissions, SessionId, Stat,
    Time, Version,
};

#[cfg(feature = "tokio")]
pub use crate::{
    contenders::Contender,
    exclusive::ExclusiveLock,
    fair::FairLock,
    guard::{
        DowngradeError, ExclusiveGuard, FencingToken, Guard, LockState, LockStatus, ReadGuard,
        WriteGuard,
    },
    lock::{Acquire, Acquiring, AtRiskPolicy, Lock, LockBuilder, TryAcquire},
    phase::{Phase, Phases},
    run::body::Run,
    rw::RwLock,
    stats::LockStats,
    transaction::TransactionError,
};
#[cfg(feature = "tokio")]
pub use zk_session::{
    Client, ClientBuilder, Clock, CloseOutcome, ConnectError, CreateOptions, Multi, MultiOutcome,
    SessionState, StateStream,
};

/// Pages of the project, so that their code is compiled.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/connection-loss.md")]
    struct ConnectionLoss;
    #[doc = include_str!("../../../docs/recipes/fair.md")]
    struct Fair;
    #[doc = include_str!("../../../docs/recipes/rwlock.md")]
    struct ReadWrite;
    #[doc = include_str!("../../../docs/recipes/exclusive.md")]
    struct Exclusive;
    #[doc = include_str!("../../../docs/guarantees.md")]
    struct Guarantees;
    #[doc = include_str!("../../../docs/testing.md")]
    struct Testing;
}
