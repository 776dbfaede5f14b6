//! A ZooKeeper server for tests.
//!
//! It speaks the protocol of real servers, so real clients work with it. It runs in memory, in the
//! process of the test, and behaves deterministically. It also fails on demand, in ways that are
//! hard to provoke on a real server ([`Fault`]).
//!
//! **Do not use it in production.** It stores nothing on disk, and tests can make it fail.
//!
//! The crate has two layers:
//!
//! - [`Server`] is a state machine without sockets and without a clock: bytes in, bytes out.
//! - `TestServer` (feature `tokio`, on by default) runs it on in-memory pipes and on loopback TCP,
//!   in real time or in tokio's paused time.
//!
//! Its replies were compared with those of servers 3.8.0 and 3.9.3. Where these differ,
//! [`ServerVersion`] selects one of them. Older versions, ensembles, read-only mode, SASL with
//! DIGEST-MD5, reconfiguration, enforced quotas and throttling are settings. The server does not
//! imitate elections, local sessions outside of read-only mode, other SASL mechanisms, or TLS.
//!
//! # Quick start
//!
//! Give the address of the server to any client, and inject a fault:
//!
//! ```
//! # #[cfg(feature = "tokio")]
//! # async fn run() -> std::io::Result<()> {
//! use zk_testserver::{Action, At, Fault, OpCode, ServerConfig, TestServer};
//!
//! let server = TestServer::start(ServerConfig::default());
//! let address = server.listen("127.0.0.1:0").await?;
//!
//! // The next create is applied, but its reply is lost.
//! server.inject(Fault::new(At::op(OpCode::CREATE2), Action::CutAfter));
//!
//! // ... let a client that connects to `address` create a znode ...
//! # server.clear_faults();
//!
//! assert!(server.pending_faults().is_empty(), "the fault has not fired");
//! assert_eq!(server.children("/"), Some(vec!["zookeeper".to_owned()]));
//! # drop(address);
//! # Ok(())
//! # }
//! # #[cfg(feature = "tokio")]
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run()).unwrap();
//! ```
//!
//! With the client of this project, tests run in memory and in virtual time:
//!
//! ```text
//! #[tokio::test(start_paused = true)]
//! async fn the_guard_knows_that_the_session_has_expired() {
//!     let server = TestServer::start(ServerConfig::default());
//!     let client = Client::builder("in-process")
//!         .transport(server.connector())
//!         .clock(Clock::tokio())
//!         .connect()
//!         .await
//!         .expect("the server is in this process");
//!     let lock = FairLock::new(&client, "/locks/billing").expect("this is a path");
//!     let guard = lock.acquire().await.expect("nobody else wants the lock");
//!     server.expire(guard.session());
//!     assert_eq!(guard.lost().await, LostReason::SessionExpired);
//! }
//! ```
//!
//! # Items in the order in which you meet them
//!
//! 1. `TestServer` runs the server, and has what tests observe and change.
//! 2. [`ServerConfig`] has the tick, the version, the members of the ensemble and the limits.
//! 3. [`Fault`] says when something fails ([`At`], [`Filter`]) and how ([`Action`]).
//! 4. [`Reception`] says how new connections are received.
//! 5. [`RequestRecord`] and [`CommitRecord`] say what the server received and committed.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod acl;
mod commit;
mod conduct;
mod config;
mod connection;
mod connections;
mod digest_md5;
mod fault;
mod journal;
mod membership;
mod multi;
#[cfg(feature = "tokio")]
mod net;
mod order;
mod path;
mod quota;
mod replica;
mod server;
mod session;
mod tree;
mod version;
mod watch;
mod words;

pub use crate::config::{SequenceOverflow, ServerConfig};
pub use crate::connection::Transmit;
pub use crate::fault::{Action, At, CutOff, Fault, Filter, Reception, Until};
pub use crate::journal::{CommitRecord, EventRecord, Outcome, RequestRecord};
#[cfg(feature = "tokio")]
pub use crate::net::TestServer;
pub use crate::order::Order;
pub use crate::server::Server;
pub use crate::version::ServerVersion;
pub use jute_codec::{ErrorCode, OpCode, Stat};

/// The page for registries, included so that its code is compiled.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../README.md")]
struct Readme;
