//! A ZooKeeper client: sessions that survive connections, and honest outcomes when they do not.
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
//! What a lost connection means for each operation is told by [`OpError::outcome`]: `NotApplied`
//! if the request never wholly left this process or was refused, `Unknown` otherwise. The client
//! itself repeats nothing.
//!
//! # Layers
//!
//! [`machine`] decides everything and does nothing: bytes and time go in, bytes and events come
//! out. With the default feature `tokio` there is a task that feeds it, and [`Client`], a handle
//! of that task. Without the feature the crate does not depend on tokio.

#![cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "used by the driver"))]

pub mod machine;
pub mod path;

mod connect_string;
mod error;
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

pub use crate::connect_string::{ConnectString, DEFAULT_PORT, Host};
pub use crate::error::{ConfigError, ConnectError, OpError, Outcome};
pub use crate::machine::{Attempt, Change, DisconnectCause, EndCause, Lease, SessionState, Status};
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
    driver::janitor::{JANITOR_SLOTS_MAX, Slot},
    driver::shared::LaneEvent,
    driver::transport::{Connecting, Stream, Tcp, Transport},
    lane::Lane,
    multi::{Multi, MultiError, MultiOutcome},
    op::Op,
    watcher::{WatchEnded, Watcher},
};
