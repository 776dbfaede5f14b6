//! A ZooKeeper client. Its sessions survive lost connections, and each failed operation reports
//! whether it may have taken effect.
//!
//! ```
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
//! # let address = server.listen("127.0.0.1:0").await?;
//! use zk_session::{Client, CreateMode};
//!
//! let client = Client::connect(format!("{address}/app")).await?;
//! client.create("/config", "a=1", CreateMode::Persistent).await?;
//!
//! let ((data, stat), mut watcher) = client.get_data_and_watch("/config").await?;
//! assert_eq!(data, "a=1");
//! client.set_data("/config", "a=2", Some(stat.version)).await?;
//! let event = watcher.changed().await?;
//! assert_eq!(event.path, "/config");
//!
//! client.close().await;
//! # Ok(()) }
//! ```
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

#![cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "used by the driver"))]

// Public only for the tests of this workspace: semver guarantees do not cover it.
#[doc(hidden)]
pub mod machine;
pub mod path;
pub mod recipe;

mod connect_string;
mod error;
mod failure;
mod host;
mod random;
mod time;
mod types;

#[cfg(feature = "tokio")]
mod builder;
#[cfg(feature = "tokio")]
mod chroot;
#[cfg(feature = "tokio")]
mod client;
#[cfg(feature = "tokio")]
mod create;
#[cfg(feature = "tokio")]
mod driver;
#[cfg(feature = "tokio")]
mod lane;
#[cfg(feature = "tokio")]
mod multi;
#[cfg(feature = "tokio")]
mod op;
#[cfg(feature = "tokio")]
mod watcher;

pub use jute_codec::{Acl, CreateMode, ErrorCode, EventType, Id, Permissions, Ttl};

pub use crate::connect_string::ConnectString;
pub use crate::error::{
    ChrootDefect, ConfigError, ConnectError, HostDefect, OpError, OptionDefect, Outcome,
    PathDefect, WatchEnded,
};
pub use crate::failure::{ConnectionFailure, FailureCause, TransportError};
pub use crate::host::{DEFAULT_PORT, Host};
pub use crate::machine::{
    Attempt, DisconnectCause, EndCause, Lease, LeaseDefect, SessionState, Status,
};
pub use crate::time::Time;
pub use crate::types::{SessionId, Stat, Version, WatchedEvent, Zxid};

#[cfg(feature = "tokio")]
pub use crate::{
    builder::{
        ClientBuilder, REQUEST_LIMIT_DEFAULT, RESPONSE_LIMIT_DEFAULT, SESSION_TIMEOUT_DEFAULT,
    },
    client::{Client, CloseOutcome, StateStream},
    create::{CreateOptions, Created},
    driver::clock::Clock,
    driver::transport::{Connecting, Stream, Tcp, Transport},
    multi::{Multi, MultiError, MultiOutcome},
    op::Op,
    watcher::Watcher,
};
