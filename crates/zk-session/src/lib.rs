//! A ZooKeeper client. Its sessions survive lost connections, and each failed operation reports
//! whether it may have taken effect.
//!
//! ```
//! use std::error::Error;
//!
//! use zk_session::{Client, CreateMode};
//! use zk_testserver::{ServerConfig, TestServer};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn Error>> {
//!     // A service has the addresses of real servers here: "zk1:2181,zk2:2181,zk3:2181/app".
//!     let server = TestServer::start(ServerConfig::default());
//!     let servers = format!("{}/app", server.listen("127.0.0.1:0").await?);
//!
//!     let client = Client::connect(servers).await?;
//!     client.create("/config", "a=1", CreateMode::Persistent).await?;
//!     let ((data, stat), mut watcher) = client.get_data_and_watch("/config").await?;
//!     assert_eq!(data, "a=1");
//!     client.set_data("/config", "a=2", Some(stat.version)).await?;
//!     let event = watcher.changed().await?;
//!     assert_eq!(event.path, "/config");
//!     client.close().await;
//!     Ok(())
//! }
//! ```
//!
//! Locks, elections, queues and other recipes are in the crate `zk-recipes`, which re-exports this
//! one.
//!
//! # All items by topic
//!
//! - **The client:** [`Client`] has the operations, and each returns an [`Op`] (a change of
//!   credentials an [`AuthOp`]), which can be given a
//!   time limit. [`Limits`] bound the requests of a handle. [`ClientBuilder`] has the options,
//!   [`ConnectString`] and [`Host`] name the servers ([`DEFAULT_PORT`] if a port is missing), and
//!   [`CloseOutcome`] says how a close ended. Defaults:
//!   [`SESSION_TIMEOUT_DEFAULT`], [`REQUEST_LIMIT_DEFAULT`], [`RESPONSE_LIMIT_DEFAULT`].
//! - **Znodes:** [`CreateMode`], [`Ttl`], [`CreateOptions`], [`Created`], [`Stat`], [`Version`],
//!   [`Zxid`], and functions for paths in [`path`]. Access control lists: [`Acl`], [`Id`],
//!   [`Permissions`]; [`Identity`] is who the servers think the client is, and an [`Exposure`] has an
//!   [`Answer`] for each [`Touch`] of a stranger.
//! - **Several operations at once:** [`Multi`] commits all of them or none, with a [`MultiOutcome`] or
//!   a [`MultiError`]; [`MultiRead`] reads, with a [`ReadOutcome`] for each.
//! - **Watches:** a [`Watcher`] waits for one change of a znode. A [`WatchStream`] yields a
//!   [`WatchItem`] for each change of a znode or a tree, and for each gap with its [`GapCause`];
//!   [`WatchOptions`], [`WatchMode`], [`WatcherType`] and [`WATCH_CAPACITY_DEFAULT`] are its options.
//!   A [`WatchedEvent`] has an [`EventType`].
//! - **The session:** [`SessionId`], [`SessionState`], [`StateStream`] and [`Status`]; a
//!   [`SessionTicket`] hands it over. [`DisconnectCause`] and [`EndCause`] say why a connection or
//!   the session has ended. [`Health`] answers a probe; [`Stats`] and [`RequestStats`] count.
//! - **The lease,** which decides for how long locks survive an outage: [`Lease`], [`LeaseDefect`],
//!   [`SlowCommits`].
//! - **The ensemble:** [`EnsembleConfig`], [`ConfigVersion`], [`Member`], [`MemberAddress`], [`Role`]
//!   and [`MemberDefect`] describe it, and [`Reconfig`] changes it.
//! - **Connections:** a [`Transport`] such as [`Tcp`] makes them, given an [`Attempt`], and returns a
//!   [`Connecting`], which becomes a [`Stream`]; a [`HostSource`] finds servers, with a [`LookUp`]; a
//!   [`Clock`] tells the [`Time`].
//! - **Security:** `Tls`, `TlsBuilder` and `rustls`; `Sasl` and `Gssapi`. They need
//!   [features](#features).
//! - **Errors:** [`OpError`], with an [`Outcome`], an [`ErrorCode`], an [`OpCode`] and a [`Target`];
//!   [`ConnectError`], [`AuthError`], [`HandOverError`], [`InvalidTicket`] and [`WatchEnded`]. A [`ConfigError`] has
//!   a [`ChrootDefect`], [`HostDefect`], [`OptionDefect`] or [`PathDefect`]. A [`ConnectionFailure`]
//!   says why there is no connection, with a [`FailureCause`]: [`TransportError`], [`TlsFailure`],
//!   [`SaslFailure`].
//! - **For authors of recipes:** [`recipe`].
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `tokio` | yes | the client; without it, there is only the session machine, which does no I/O |
//! | `metrics` | no | metrics, through the facade of the crate `metrics` |
//! | `tls` | no | TLS and mutual TLS with rustls; the program chooses the crypto provider |
//! | `tls-ring` | no | `tls`, with the crypto provider ring |
//! | `tls-aws-lc` | no | `tls`, with the crypto provider AWS-LC |
//! | `sasl-digest-md5` | no | SASL with a name and a password |
//! | `sasl-gssapi` | no | SASL with Kerberos; needs libclang and the development files of MIT Kerberos to build |
//!
//! In the folder `docs` of the repository, *The client* (`client.md`) has the options and limits,
//! *Connection loss* (`connection-loss.md`) says what to do after an unknown outcome, and *Security*
//! (`security.md`) shows TLS and SASL. *Sessions* (`internals/session.md`) explains how sessions and
//! watches work.
//!
//! # Outcomes
//!
//! After a lost connection, [`OpError::outcome`] returns what is known about each operation:
//! `NotApplied` if this process did not send the complete request or the server refused it, and
//! `Unknown` otherwise. The client never repeats a request.
//!
//! # Layers
//!
//! The session machine, a hidden module named `machine`, is pure decision logic without I/O: bytes
//! and time go in, bytes and events come out. With the default feature `tokio`, a task drives it,
//! and [`Client`] is a handle to that task. Without the feature, the crate does not depend on
//! tokio. Authors of locks and other recipes find what they need in [`recipe`].

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(feature = "tokio"),
    allow(dead_code, unused_imports, reason = "used by the driver")
)]

pub mod path;
pub mod recipe;

mod abridged;
mod connect_string;
mod error;
mod host;
mod machine;
#[cfg(all(test, feature = "tokio"))]
mod messages;
mod operation;
mod random;
mod time;
mod types;

#[cfg(feature = "tokio")]
mod chroot;
#[cfg(feature = "tokio")]
mod client;
#[cfg(feature = "tokio")]
mod driver;
#[cfg(feature = "tokio")]
mod ensemble;
#[cfg(feature = "tokio")]
mod report;
#[cfg(feature = "tokio")]
mod watch;
#[cfg(feature = "tokio")]
mod watchdog;

pub use jute_codec::{
    Acl, CreateMode, ErrorCode, EventType, Id, OpCode, Permissions, Ttl, WatcherType,
};

pub use crate::connect_string::ConnectString;
pub use crate::error::{
    AuthError, ChrootDefect, ConfigError, ConnectError, ConnectionFailure, FailureCause,
    HandOverError, HostDefect, OpError, OptionDefect, Outcome, PathDefect, SaslFailure, Target,
    TlsFailure, TransportError, WatchEnded,
};
pub use crate::host::{DEFAULT_PORT, Host};
pub use crate::machine::{
    Attempt, DisconnectCause, EndCause, InvalidTicket, Lease, LeaseDefect, Limits, SessionState,
    SessionTicket, SlowCommits, Status, WatchMode,
};
pub use crate::time::Time;
pub use crate::types::{Identity, SessionId, Stat, Version, WatchedEvent, Zxid};

#[cfg(feature = "tokio")]
pub use crate::{
    client::builder::{
        ClientBuilder, REQUEST_LIMIT_DEFAULT, RESPONSE_LIMIT_DEFAULT, SESSION_TIMEOUT_DEFAULT,
    },
    client::credentials::AuthOp,
    client::{Client, CloseOutcome, StateStream},
    driver::clock::Clock,
    driver::host_source::{HostSource, LookUp},
    driver::transport::{Connecting, Stream, Tcp, Transport},
    ensemble::{
        ConfigVersion, EnsembleConfig, Member, MemberAddress, MemberDefect, Reconfig, Role,
    },
    operation::create::{CreateOptions, Created},
    operation::exposure::{Answer, Exposure, Touch},
    operation::multi::{Multi, MultiError, MultiOutcome},
    operation::multi_read::{MultiRead, ReadOutcome},
    operation::op::Op,
    report::health::Health,
    report::stats::{RequestStats, Stats},
    watch::item::{GapCause, WatchItem},
    watch::stream::{WATCH_CAPACITY_DEFAULT, WatchOptions, WatchStream},
    watch::watcher::Watcher,
};

// Public only for the tests of this workspace: semver guarantees do not cover it.
#[doc(hidden)]
pub use crate::machine::LeaseClock;

// Public only for `zk-recipes`, which declares the metrics of locks in the same way.
#[cfg(feature = "tokio")]
#[doc(hidden)]
pub use crate::report::metrics;

#[cfg(feature = "tls")]
pub use crate::driver::tls::{Tls, TlsBuilder};
/// The version of rustls, 0.23, whose types [`TlsBuilder::client_config`] and
/// [`TlsBuilder::crypto_provider`] take. Another one in the same program is another crate.
#[cfg(feature = "tls")]
pub use tokio_rustls::rustls;

#[cfg(feature = "sasl-gssapi")]
pub use crate::driver::sasl::Gssapi;
#[cfg(any(feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
pub use crate::driver::sasl::Sasl;

/// The page for registries, included so that its code is compiled.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../README.md")]
struct Readme;
