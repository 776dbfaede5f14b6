//! The options of a cache.

use bytestring::ByteString;
use zk_session::{Client, ConfigError, OpError, OptionDefect};

use super::follow::Cache;
use super::machine::{CacheMachine, Limits};

/// Builds a [`Cache`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct CacheBuilder {
    client: Client,
    path: String,
    limits: Limits,
}

impl Cache {
    /// Configures a cache of a znode.
    pub fn node(client: &Client, path: &str) -> CacheBuilder {
        CacheBuilder::new(client, path, 0)
    }

    /// Configures a cache of a znode and its children. If there are many znodes below the children,
    /// changes of those cost some traffic, because the watch reports them too.
    pub fn children(client: &Client, path: &str) -> CacheBuilder {
        CacheBuilder::new(client, path, 1)
    }

    /// Configures a cache of a znode and everything below it.
    pub fn tree(client: &Client, path: &str) -> CacheBuilder {
        CacheBuilder::new(client, path, usize::MAX)
    }
}

impl CacheBuilder {
    fn new(client: &Client, path: &str, depth: usize) -> Self {
        let limits =
            Limits { depth, nodes: 100_000, bytes: 64 << 20, reads: 64, accepts_unreadable: false };
        Self { client: client.clone(), path: path.to_owned(), limits }
    }

    /// Sets how many levels below the path are cached. Default: all for a tree.
    pub fn max_depth(mut self, levels: usize) -> Self {
        self.limits.depth = levels;
        self
    }

    /// Sets how many znodes the cache may contain. Beyond that it ends with
    /// [`TooLarge`](crate::CacheError::TooLarge). Default: 100,000.
    pub fn max_nodes(mut self, nodes: usize) -> Self {
        self.limits.nodes = nodes;
        self
    }

    /// Sets how many bytes the znodes may take: paths, data, and 256 bytes for each. Beyond that the
    /// cache ends with [`TooLarge`](crate::CacheError::TooLarge). Default: 64 MiB.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.limits.bytes = bytes;
        self
    }

    /// Sets how many requests to read may be in flight, from 1 to 200. Default: 64. If much is to be
    /// read, a request reads up to 64 znodes, about 64 KiB.
    pub fn reads_in_flight(mut self, reads: usize) -> Self {
        self.limits.reads = reads;
        self
    }

    /// Lets the cache count as complete although it could not read some znode or list below its
    /// path. Those are reported as [`Unreadable`](crate::CacheEvent::Unreadable) in any case.
    /// Default: the cache is incomplete, because a part could be mistaken for the whole.
    pub fn accept_unreadable(mut self) -> Self {
        self.limits.accepts_unreadable = true;
        self
    }

    /// Builds the cache. It sends nothing until it is polled.
    ///
    /// # Errors
    ///
    /// Fails if the path or an option is invalid.
    pub fn build(self) -> Result<Cache, ConfigError> {
        let Self { client, path, limits } = self;
        if let Err(OpError::InvalidPath { path, defect }) = zk_session::path::validate(&path) {
            return Err(ConfigError::Path { option: "path of the cache", path, defect });
        }
        let option = |option, value: usize, defect| {
            Err(ConfigError::Option { option, value: value.to_string(), defect })
        };
        if limits.nodes == 0 {
            return option("max_nodes", limits.nodes, OptionDefect::Zero);
        }
        if !(1..=READS_MAX).contains(&limits.reads) {
            let defect = OptionDefect::Other("it must be from 1 to 200");
            return option("reads_in_flight", limits.reads, defect);
        }
        Ok(Cache::new(client, CacheMachine::new(ByteString::from(path), limits)))
    }
}

/// Maximum number of requests in flight; a lane allows 256 operations.
const READS_MAX: usize = 200;
