//! A ZooKeeper server for tests.
//!
//! It speaks the protocol of real servers, so real clients work with it. It runs in memory, in the
//! process of the test, and behaves deterministically. It also fails on demand, in ways that are
//! hard to provoke on a real server ([`Fault`]).
//!
//! **Do not use it in production.** It stores nothing on disk, it has no ensemble, and tests can
//! make it fail.
//!
//! The crate has two layers:
//!
//! - [`Server`] is a state machine without sockets and without a clock: bytes in, bytes out.
//! - `TestServer` (feature `tokio`, on by default) runs it on in-memory pipes and on loopback TCP,
//!   in real time or in tokio's paused time.
//!
//! Its replies were compared with those of servers 3.8.0 and 3.9.3. Where these differ,
//! [`ServerVersion`] selects one of them. The server does not imitate the enforcement of quotas,
//! throttling, read-only mode, local sessions, reconfiguration, SASL mechanisms, or TLS.
//!
//! # Quick start
//!
//! ```
//! # #[cfg(feature = "tokio")]
//! # async fn run() -> std::io::Result<()> {
//! use zk_testserver::{Action, At, Fault, OpCode, ServerConfig, TestServer};
//!
//! let server = TestServer::start(ServerConfig::default());
//! let address = server.listen("127.0.0.1:0").await?; // over TCP, for any client
//! let pipe = server.connect()?; // in memory
//!
//! // The next create is applied, but its reply is lost.
//! server.inject(Fault::new(At::op(OpCode::CREATE2), Action::CutAfter));
//!
//! // ... let the client create a znode ...
//! # server.clear_faults();
//!
//! assert!(server.pending_faults().is_empty(), "the fault has not fired");
//! assert_eq!(server.children("/"), Some(vec!["zookeeper".to_owned()]));
//! # drop((address, pipe));
//! # Ok(())
//! # }
//! # #[cfg(feature = "tokio")]
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run()).unwrap();
//! ```

mod acl;
mod commit;
mod config;
mod connection;
mod connections;
mod fault;
mod journal;
mod multi;
#[cfg(feature = "tokio")]
mod net;
mod order;
mod path;
mod quota;
mod server;
mod session;
mod tree;
mod watch;
mod words;

pub use crate::config::{SequenceOverflow, ServerConfig, ServerVersion};
pub use crate::connection::Transmit;
pub use crate::fault::{Action, At, CutOff, Fault, Filter, Reception, Until};
pub use crate::journal::{CommitRecord, Outcome, RequestRecord};
#[cfg(feature = "tokio")]
pub use crate::net::TestServer;
pub use crate::order::Order;
pub use crate::server::Server;
pub use jute_codec::{ErrorCode, OpCode, Stat};
