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
//! # Items in the order in which you meet them
//!
//! 1. [`Client`] and [`ClientBuilder`] connect, and [`Client`] has the operations.
//! 2. [`OpError`] and its [`Outcome`] say what is known about an operation that failed.
//! 3. [`Watcher`] waits for one change of a znode, and [`WatchStream`] yields all changes of a znode
//!    or a tree.
//! 4. [`Multi`] commits several operations together, or none of them.
//! 5. [`SessionState`] and [`StateStream`] follow the session; [`ConnectionFailure`] says why there
//!    is no connection, and [`Health`] answers a probe; [`Stats`] counts.
//! 6. [`Lease`] decides for how long locks survive an outage.
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
#[cfg(all(test, feature = "tokio"))]
mod messages;
mod operations;
mod random;
mod sasl_failure;
mod target;
mod time;
mod tls_failure;
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
mod ensemble;
#[cfg(feature = "tokio")]
mod health;
#[cfg(feature = "tokio")]
mod lane;
#[cfg(feature = "tokio")]
mod latency;
#[cfg(feature = "metrics")]
#[doc(hidden)]
pub mod metrics;
#[cfg(feature = "tokio")]
mod multi;
#[cfg(feature = "tokio")]
mod multi_read;
#[cfg(feature = "tokio")]
mod op;
#[cfg(feature = "tokio")]
mod stats;
#[cfg(feature = "tokio")]
mod watch_item;
#[cfg(feature = "tokio")]
mod watch_stream;
#[cfg(feature = "tokio")]
mod watchdog;
#[cfg(feature = "tokio")]
mod watcher;

pub use jute_codec::{
    Acl, CreateMode, ErrorCode, EventType, Id, OpCode, Permissions, Ttl, WatcherType,
};

pub use crate::connect_string::ConnectString;
pub use crate::error::{
    ChrootDefect, ConfigError, ConnectError, HandOverError, HostDefect, OpError, OptionDefect,
    Outcome, PathDefect, WatchEnded,
};
pub use crate::failure::{ConnectionFailure, FailureCause, TransportError};
pub use crate::host::{DEFAULT_PORT, Host};
pub use crate::machine::{
    Attempt, DisconnectCause, EndCause, InvalidTicket, Lease, LeaseDefect, SessionState,
    SessionTicket, SlowCommits, Status, WatchMode,
};
pub use crate::sasl_failure::SaslFailure;
pub use crate::target::Target;
pub use crate::time::Time;
pub use crate::tls_failure::TlsFailure;
pub use crate::types::{Identity, SessionId, Stat, Version, WatchedEvent, Zxid};

#[cfg(feature = "tokio")]
pub use crate::{
    builder::{
        ClientBuilder, REQUEST_LIMIT_DEFAULT, RESPONSE_LIMIT_DEFAULT, SESSION_TIMEOUT_DEFAULT,
    },
    client::{Client, CloseOutcome, StateStream},
    create::{CreateOptions, Created},
    driver::clock::Clock,
    driver::host_source::{HostSource, LookUp},
    driver::transport::{Connecting, Stream, Tcp, Transport},
    ensemble::{
        ConfigVersion, EnsembleConfig, Member, MemberAddress, MemberDefect, Reconfig, Role,
    },
    health::Health,
    multi::{Multi, MultiError, MultiOutcome},
    multi_read::{MultiRead, ReadOutcome},
    op::Op,
    stats::{RequestStats, Stats},
    watch_item::{GapCause, WatchItem},
    watch_stream::{WATCH_CAPACITY_DEFAULT, WatchOptions, WatchStream},
    watcher::Watcher,
};

#[cfg(feature = "tls")]
pub use crate::driver::tls::{Tls, TlsBuilder};
/// The version of rustls that [`TlsBuilder::crypto_provider`] uses.
#[cfg(feature = "tls")]
pub use tokio_rustls::rustls;

#[cfg(feature = "sasl-gssapi")]
pub use crate::driver::sasl::Gssapi;
#[cfg(any(feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
pub use crate::driver::sasl::Sasl;
