//! Why a cache has ended.

use thiserror::Error;
use zk_session::recipe::Abridged;
use zk_session::{ConfigError, OpError};

use crate::stream::StreamError;

/// Why a [`Cache`](crate::Cache) has ended. What it contains stays as it was.
///
/// Lost connections and expired sessions are not among the reasons: the cache then reads again.
#[derive(Clone, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum CacheError {
    /// The client refused to read.
    #[error("the cache cannot read: {0}")]
    Client(OpError),
    /// The client was closed, the runtime in which it was built has ended, a server refused its
    /// credentials, or its session has expired and it opens no other (`renew_after_expiry(false)`).
    #[error("the client is closed, or the runtime in which it was built has ended")]
    Closed,
    /// An option is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is more to cache than the limits allow.
    #[error(
        "the cache of {path:?} has {nodes} znodes with {bytes} bytes, which is over its limit of \
         {nodes_max} znodes and {bytes_max} bytes; cache less, or raise `max_nodes` or `max_bytes`",
        path = Abridged(.path)
    )]
    TooLarge {
        /// The path of the cache.
        path: String,
        /// Number of znodes that were found.
        nodes: usize,
        /// Number of bytes that they take.
        bytes: usize,
        /// The limit on znodes.
        nodes_max: usize,
        /// The limit on bytes.
        bytes_max: usize,
    },
    /// A znode, or the list of its children, could not be read although it exists. Only
    /// [`complete`](crate::Cache::complete) fails for this reason, and the cache has not ended: it
    /// shows what it knew last, and tries again.
    #[error(
        "the cache of {root:?} is incomplete, because {path:?} cannot be read: {error}. The cache \
         shows what it knew last, and tries again",
        path = Abridged(.path),
        root = Abridged(.root)
    )]
    Unreadable {
        /// The path of the cache.
        root: String,
        /// The path that could not be read.
        path: String,
        /// Why.
        error: OpError,
    },
    /// The persistent watch of the cache was removed by
    /// [`remove_watches`](zk_session::Client::remove_watches).
    #[error("the watch of the cache was removed by `remove_watches`")]
    WatchRemoved,
}

jute_codec::debug_by_message!(CacheError);

impl StreamError for CacheError {
    fn is_last(&self) -> bool {
        !matches!(self, Self::Unreadable { .. })
    }
}
