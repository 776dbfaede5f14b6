//! Settings of a server: version, tick, timeouts, switches.

use std::fmt;
use std::time::Duration;

use jute_codec::SessionId;

use crate::order::Order;

/// The server version to imitate where versions differ on the wire.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ServerVersion {
    /// 3.8.0 as shipped by Debian. Watch events have zxid -1, and connections that may not read the
    /// znode do not receive them. A successful check outside of a multi gets no reply.
    #[default]
    V3_8,
    /// 3.9.3. Watch events have the zxid of their transaction. A connection can have persistent and
    /// one-shot watches on the same path.
    V3_9,
}

/// What happens to the sequence number of a parent after 2,147,483,647 creates.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum SequenceOverflow {
    /// The number stays the same, so that all later names are equal (3.6.0 and later).
    #[default]
    Sticky,
    /// The numbers continue with -2147483648 (before 3.6.0).
    Wrapping,
}

/// Settings of a server.
///
/// ```
/// use std::time::Duration;
/// use zk_testserver::{ServerConfig, ServerVersion};
///
/// let config = ServerConfig::default().version(ServerVersion::V3_9).tick(Duration::from_millis(500));
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use = "a configuration does nothing until a server is started with it"]
pub struct ServerConfig {
    pub(crate) version: ServerVersion,
    pub(crate) tick: Duration,
    pub(crate) min_session_timeout: Option<Duration>,
    pub(crate) max_session_timeout: Option<Duration>,
    pub(crate) extended_types: bool,
    pub(crate) super_digest: Option<SuperDigest>,
    pub(crate) sequence_overflow: SequenceOverflow,
    pub(crate) container_max_never_used: Option<Duration>,
    pub(crate) reap_interval: Duration,
    pub(crate) order: Order,
    pub(crate) first_session_id: SessionId,
    pub(crate) start_time_ms: i64,
    pub(crate) max_frame: usize,
    pub(crate) log_capacity: usize,
    pub(crate) events_at_expiry: bool,
}

/// A digest that is not printed. Its password grants access to every znode.
#[derive(Clone, Eq, PartialEq)]
pub(crate) struct SuperDigest(pub(crate) String);

impl fmt::Debug for SuperDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SuperDigest").finish_non_exhaustive()
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            version: ServerVersion::default(),
            tick: Duration::from_secs(2),
            min_session_timeout: None,
            max_session_timeout: None,
            extended_types: false,
            super_digest: None,
            sequence_overflow: SequenceOverflow::default(),
            container_max_never_used: None,
            reap_interval: Duration::from_secs(60),
            order: Order::default(),
            first_session_id: SessionId(0x0100_0000_0001_0000),
            start_time_ms: 1_700_000_000_000,
            max_frame: 0xf_ffff,
            log_capacity: 100_000,
            events_at_expiry: false,
        }
    }
}

impl ServerConfig {
    /// Sets the version to imitate. Default: [`ServerVersion::V3_8`].
    pub fn version(mut self, version: ServerVersion) -> Self {
        self.version = version;
        self
    }

    /// Sets the granularity of session expiry. Default: 2 s.
    ///
    /// # Panics
    ///
    /// Panics if the duration is shorter than a millisecond.
    pub fn tick(mut self, tick: Duration) -> Self {
        assert!(tick >= Duration::from_millis(1), "a tick lasts a millisecond or more");
        self.tick = tick;
        self
    }

    /// Sets the shortest session timeout that the server grants. Default: 2 ticks.
    pub fn min_session_timeout(mut self, timeout: Duration) -> Self {
        self.min_session_timeout = Some(timeout);
        self
    }

    /// Sets the longest session timeout that the server grants. Default: 20 ticks.
    pub fn max_session_timeout(mut self, timeout: Duration) -> Self {
        self.max_session_timeout = Some(timeout);
        self
    }

    /// Sets whether znodes may have a time to live. Default: no, as on real servers.
    pub fn extended_types(mut self, enabled: bool) -> Self {
        self.extended_types = enabled;
        self
    }

    /// Sets the digest (`super:base64(sha1("super:password"))`) of the user who passes every access
    /// check. Default: none.
    pub fn super_digest(mut self, digest: impl Into<String>) -> Self {
        self.super_digest = Some(SuperDigest(digest.into()));
        self
    }

    /// Sets what happens when a sequence has used up its numbers. Default:
    /// [`SequenceOverflow::Sticky`].
    pub fn sequence_overflow(mut self, overflow: SequenceOverflow) -> Self {
        self.sequence_overflow = overflow;
        self
    }

    /// Sets the age at which a container that never had a child is deleted. Default: never.
    pub fn container_max_never_used(mut self, age: Duration) -> Self {
        self.container_max_never_used = Some(age);
        self
    }

    /// Sets how often the server deletes containers and znodes with a time to live that are due.
    /// Default: 60 s.
    ///
    /// # Panics
    ///
    /// Panics if the duration is shorter than a millisecond.
    pub fn reap_interval(mut self, interval: Duration) -> Self {
        assert!(interval >= Duration::from_millis(1), "an interval lasts a millisecond or more");
        self.reap_interval = interval;
        self
    }

    /// Sets the order of lists that have no defined order, such as children. Default:
    /// pseudo-random, but the same in each run (`Order::Seeded(0)`).
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Sets the id of the first session. The ids of later sessions count up from it. Default:
    /// 0x100000000010000.
    ///
    /// # Panics
    ///
    /// Panics if the id is 0, because 0 requests a new session on the wire.
    pub fn first_session_id(mut self, id: SessionId) -> Self {
        assert_ne!(id, SessionId::NONE, "0 identifies no session");
        self.first_session_id = id;
        self
    }

    /// Sets the wall-clock time at which the server starts, in milliseconds since 1970. It
    /// determines `ctime` and `mtime`. Default: 1,700,000,000,000.
    pub fn start_time_ms(mut self, time: i64) -> Self {
        self.start_time_ms = time;
        self
    }

    /// Sets the length of the longest request, in bytes without the length prefix. Default:
    /// 1,048,575.
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.max_frame = bytes;
        self
    }

    /// Sets how many requests and how many commits the server records. Default: 100,000 each.
    pub fn log_capacity(mut self, records: usize) -> Self {
        self.log_capacity = records;
        self
    }

    /// Sets whether the connection of an expiring session receives watch events for the deletion of
    /// its own ephemerals. On real servers, this depends on a race. Default: no.
    pub fn events_at_expiry(mut self, delivered: bool) -> Self {
        self.events_at_expiry = delivered;
        self
    }

    /// Clamps the requested session timeout to the range that the server grants.
    pub(crate) fn negotiate(&self, requested_ms: i32) -> Duration {
        let min = self.min_session_timeout.unwrap_or(self.tick * 2);
        let max = self.max_session_timeout.unwrap_or(self.tick * 20).max(min);
        Duration::from_millis(u64::try_from(requested_ms).unwrap_or(0)).clamp(min, max)
    }
}
