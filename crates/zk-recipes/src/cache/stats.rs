//! The figures of a cache.

/// The figures of a [`Cache`](crate::Cache); see [`Cache::stats`](crate::Cache::stats).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Number of znodes in the cache.
    pub nodes: usize,
    /// Bytes that the znodes take: paths, data, and 256 bytes for each.
    pub bytes: usize,
    /// How often changes may have been missed, so that everything was read again.
    pub gaps: u64,
    /// Number of gaps because the cache was not polled in time; they are included in `gaps`.
    pub overflows: u64,
    /// Number of znodes and lists that were read.
    pub reads: u64,
    /// Number of requests for these reads: up to 64 of them share one.
    pub requests: u64,
    /// Number of reads that failed although their znodes exist, because the access control list
    /// forbids them, or because the reply is longer than the client's limit. Repeated reads count.
    pub unreadable: u64,
    /// Whether the cache uses a watch for each znode, because the server does not know persistent
    /// watches.
    pub uses_one_shot_watches: bool,
}
