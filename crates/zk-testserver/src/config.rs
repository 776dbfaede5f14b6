//! What a server is like: version, tick, timeouts, switches.

use std::time::Duration;

use crate::order::Order;

/// Which server is imitated, where versions differ on the wire.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Version {
    /// 3.8.0 as Debian ships it: events carry zxid -1 and are withheld from connections that may
    /// not read the znode; a bare check that succeeds is never answered.
    #[default]
    V3_8,
    /// 3.9.3: events carry the zxid of their transaction; persistent and one-shot watches on a
    /// path are kept apart.
    V3_9,
}

/// What becomes of the sequence of a parent after 2,147,483,647 creates.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "servers do one or the other")]
pub enum SequenceOverflow {
    /// It stays there, so that all later names are equal (3.6.0 and later).
    #[default]
    Sticky,
    /// It continues with -2147483648 (before 3.6.0).
    Wrapping,
}

/// Settings of a server.
///
/// ```
/// use std::time::Duration;
/// use zk_testserver::{ServerConfig, Version};
///
/// let config = ServerConfig::default().version(Version::V3_9).tick(Duration::from_millis(500));
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use = "a configuration does nothing until a server is started with it"]
pub struct ServerConfig {
    pub(crate) version: Version,
    pub(crate) tick: Duration,
    pub(crate) min_session_timeout: Option<Duration>,
    pub(crate) max_session_timeout: Option<Duration>,
    pub(crate) extended_types: bool,
    pub(crate) super_digest: Option<String>,
    pub(crate) sequence_overflow: SequenceOverflow,
    pub(crate) container_max_never_used: Option<Duration>,
    pub(crate) reap_interval: Duration,
    pub(crate) order: Order,
    pub(crate) first_session_id: i64,
    pub(crate) start_time_ms: i64,
    pub(crate) max_frame: usize,
    pub(crate) log_capacity: usize,
    pub(crate) events_at_expiry: bool,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            version: Version::default(),
            tick: Duration::from_secs(2),
            min_session_timeout: None,
            max_session_timeout: None,
            extended_types: false,
            super_digest: None,
            sequence_overflow: SequenceOverflow::default(),
            container_max_never_used: None,
            reap_interval: Duration::from_secs(60),
            order: Order::default(),
            first_session_id: 0x0100_0000_0001_0000,
            start_time_ms: 1_700_000_000_000,
            max_frame: 0xf_ffff,
            log_capacity: 100_000,
            events_at_expiry: false,
        }
    }
}

impl ServerConfig {
    /// Server to imitate. Default: [`Version::V3_8`].
    pub fn version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// Granularity of session expiry. Default: 2 s.
    ///
    /// # Panics
    ///
    /// If it is shorter than a millisecond.
    pub fn tick(mut self, tick: Duration) -> Self {
        assert!(tick >= Duration::from_millis(1), "a tick lasts a millisecond or more");
        self.tick = tick;
        self
    }

    /// Shortest session timeout to grant. Default: 2 ticks.
    pub fn min_session_timeout(mut self, timeout: Duration) -> Self {
        self.min_session_timeout = Some(timeout);
        self
    }

    /// Longest session timeout to grant. Default: 20 ticks.
    pub fn max_session_timeout(mut self, timeout: Duration) -> Self {
        self.max_session_timeout = Some(timeout);
        self
    }

    /// Whether znodes may have a time to live. Default: no, as on real servers.
    pub fn extended_types(mut self, enabled: bool) -> Self {
        self.extended_types = enabled;
        self
    }

    /// Digest (`super:base64(sha1("super:password"))`) whose owner passes every access check.
    /// Default: none.
    pub fn super_digest(mut self, digest: impl Into<String>) -> Self {
        self.super_digest = Some(digest.into());
        self
    }

    /// What becomes of a sequence that has used up its numbers. Default: it sticks.
    pub fn sequence_overflow(mut self, overflow: SequenceOverflow) -> Self {
        self.sequence_overflow = overflow;
        self
    }

    /// When to delete a container that never had a child. Default: never.
    pub fn container_max_never_used(mut self, age: Duration) -> Self {
        self.container_max_never_used = Some(age);
        self
    }

    /// How often containers and znodes with a time to live are looked at, to delete those that are
    /// due. Default: 60 s.
    ///
    /// # Panics
    ///
    /// If it is shorter than a millisecond.
    pub fn reap_interval(mut self, interval: Duration) -> Self {
        assert!(interval >= Duration::from_millis(1), "an interval lasts a millisecond or more");
        self.reap_interval = interval;
        self
    }

    /// In which order children and other things without one are listed. Default: by chance, but
    /// the same each time (`Order::Seeded(0)`).
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Id of the first session; the following ones count up. Default: 0x100000000010000.
    ///
    /// # Panics
    ///
    /// If it is 0, which asks for a new session on the wire.
    pub fn first_session_id(mut self, id: i64) -> Self {
        assert_ne!(id, 0, "0 is no session");
        self.first_session_id = id;
        self
    }

    /// Wall-clock time of the start, in milliseconds since 1970, for `ctime` and `mtime`.
    pub fn start_time_ms(mut self, time: i64) -> Self {
        self.start_time_ms = time;
        self
    }

    /// Longest request, in bytes without the length prefix. Default: 1,048,575.
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.max_frame = bytes;
        self
    }

    /// How many requests, and how many commits, are remembered. Default: 100,000 each.
    pub fn log_capacity(mut self, records: usize) -> Self {
        self.log_capacity = records;
        self
    }

    /// Whether the connection of an expiring session still gets the events of its own ephemerals
    /// being deleted. Real servers do either, as a race falls. Default: no.
    pub fn events_at_expiry(mut self, delivered: bool) -> Self {
        self.events_at_expiry = delivered;
        self
    }

    /// Clamps what a client asks for to what the server grants.
    pub(crate) fn negotiate(&self, asked_ms: i32) -> Duration {
        let min = self.min_session_timeout.unwrap_or(self.tick * 2);
        let max = self.max_session_timeout.unwrap_or(self.tick * 20).max(min);
        Duration::from_millis(u64::try_from(asked_ms).unwrap_or(0)).clamp(min, max)
    }
}
