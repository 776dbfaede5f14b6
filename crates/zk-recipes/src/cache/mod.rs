//! Caches: copies of a znode, its children or a tree, that follow the servers.
//!
//! `machine` decides what to read and what has changed. `follow` feeds it with the events of a
//! persistent watch and the replies to its reads.

mod builder;
mod error;
mod event;
mod follow;
mod log;
mod machine;
mod stats;
mod unreadable;

pub use self::builder::CacheBuilder;
pub use self::error::CacheError;
pub use self::event::{CacheEvent, CachedNode};
pub use self::follow::Cache;
pub use self::stats::CacheStats;
