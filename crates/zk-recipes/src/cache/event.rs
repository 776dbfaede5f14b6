//! What a cache contains, and what it reports.

use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use zk_session::{OpError, Stat};

/// A znode in a [`Cache`](crate::Cache), as one read has returned it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct CachedNode {
    /// Its data.
    pub data: Bytes,
    /// Its metadata when its data were read. Servers do not report changes of the access control
    /// list and of the number of children, so those fields may be older than the znode's.
    pub stat: Stat,
}

impl CachedNode {
    /// Returns whether this read shows an older state than another one.
    pub(super) fn is_older(&self, other: &Self) -> bool {
        let age = |stat: &Stat| (stat.czxid, stat.mzxid, stat.pzxid);
        age(&self.stat) < age(&other.stat)
    }

    /// Returns how many bytes the znode takes in a cache.
    pub(super) fn cost(&self, path: &str) -> usize {
        path.len() + self.data.len() + NODE_COST
    }
}

/// A change of a [`Cache`](crate::Cache).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CacheEvent {
    /// The cache contains another znode.
    Added {
        /// Its path.
        path: ByteString,
        /// The znode.
        node: Arc<CachedNode>,
    },
    /// The data of a znode were written, or the znode was deleted and created again.
    Changed {
        /// Its path.
        path: ByteString,
        /// The znode now.
        node: Arc<CachedNode>,
        /// The znode before.
        previous: Arc<CachedNode>,
    },
    /// The cache shows everything that it follows: the first read is complete, or the one after a
    /// gap, or what was [`Unreadable`](Self::Unreadable) has been read.
    Complete,
    /// Changes may have been missed, so the cache reads everything again. Until `Complete`, it may
    /// show earlier states.
    Gap,
    /// A znode was deleted.
    Removed {
        /// Its path.
        path: ByteString,
        /// The znode before.
        previous: Arc<CachedNode>,
    },
    /// A znode or the list of its children could not be read although it exists: the client may not
    /// read it, or it is longer than `response_limit`. What the cache shows of it, and below it, is
    /// what it knew last; znodes may be missing. The cache is incomplete, and tries again after a
    /// pause, which grows to a minute.
    Unreadable {
        /// Its path.
        path: ByteString,
        /// Why it could not be read.
        error: OpError,
    },
}

/// Bytes that a znode takes in addition to its path and its data.
const NODE_COST: usize = 256;
