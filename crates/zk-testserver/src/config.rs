//! Settings of a server: version, tick, timeouts, switches.

use std::fmt;
use std::time::Duration;

use jute_codec::SessionId;

use crate::digest_md5::Users;
use crate::membership::Membership;
use crate::order::Order;
use crate::version::ServerVersion;

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
    /// `None` lets a server that listens draw it.
    pub(crate) first_session_id: Option<SessionId>,
    pub(crate) start_time_ms: i64,
    pub(crate) max_frame: usize,
    pub(crate) log_capacity: usize,
    pub(crate) events_at_expiry: bool,
    pub(crate) members: usize,
    pub(crate) lag: Duration,
    pub(crate) unapplied: Duration,
    pub(crate) leader_unapplied: Duration,
    pub(crate) sasl_users: Users,
    pub(crate) sasl_super_user: Option<String>,
    pub(crate) is_sasl_required: bool,
    pub(crate) enforce_quota: bool,
    pub(crate) local_sessions: bool,
    pub(crate) reconfig_enabled: bool,
    pub(crate) membership: Option<Membership>,
    pub(crate) multi_address: bool,
    pub(crate) clock_rate: u32,
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
            first_session_id: None,
            start_time_ms: 1_700_000_000_000,
            max_frame: 0xf_ffff,
            log_capacity: 100_000,
            events_at_expiry: false,
            members: 1,
            lag: Duration::ZERO,
            unapplied: Duration::ZERO,
            leader_unapplied: Duration::ZERO,
            sasl_users: Users::default(),
            sasl_super_user: None,
            is_sasl_required: false,
            enforce_quota: false,
            local_sessions: true,
            reconfig_enabled: false,
            membership: None,
            multi_address: false,
            clock_rate: 1_000,
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

    /// Sets the speed of the servers' clock, in thousandths of that of tokio's, so that it runs apart
    /// from the clocks of clients in the same runtime. It concerns running servers, not the state
    /// machine, which is told the time. Default: 1000.
    ///
    /// # Panics
    ///
    /// Panics if the speed is zero.
    pub fn clock_rate(mut self, thousandths: u32) -> Self {
        assert!(thousandths > 0, "a clock goes on");
        self.clock_rate = thousandths;
        self
    }

    /// Sets the shortest session timeout that the server grants. Default: 2 ticks, or 10 s for a
    /// Keeper.
    pub fn min_session_timeout(mut self, timeout: Duration) -> Self {
        self.min_session_timeout = Some(timeout);
        self
    }

    /// Sets the longest session timeout that the server grants. Default: 20 ticks, or 100 s for a
    /// Keeper.
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
    /// 0x100000000010000, or a random id after the first call of
    /// [`listen`](crate::TestServer::listen).
    ///
    /// A server may get the port of another one that has ended. A client of that one that reconnects
    /// must not find a session with its id there, because it would resume the session of another
    /// client.
    ///
    /// # Panics
    ///
    /// Panics if the id is 0, because 0 requests a new session on the wire.
    pub fn first_session_id(mut self, id: SessionId) -> Self {
        assert_ne!(id, SessionId::NONE, "0 identifies no session");
        self.first_session_id = Some(id);
        self
    }

    pub(crate) fn first_id(&self) -> SessionId {
        self.first_session_id.unwrap_or(SessionId(0x0100_0000_0001_0000))
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

    /// Sets how many servers the ensemble has. They are numbered from 0, which is the leader.
    /// Default: 1.
    ///
    /// # Panics
    ///
    /// Panics if the number is 0.
    pub fn members(mut self, number: usize) -> Self {
        assert!(number > 0, "an ensemble has a leader");
        self.members = number;
        self
    }

    /// Sets how long after the leader's commit the other [members](Self::members) learn of a write.
    /// Default: zero.
    ///
    /// A member learns of everything that has been committed earlier if one of its own clients
    /// writes, syncs, or starts or resumes a session, because the leader's answer follows the
    /// commits on their connection. `Duration::MAX` means that it waits for that. Its clients read
    /// old states meanwhile, and receive events late. It refuses sessions that have already seen
    /// more than it has applied.
    pub fn lag(mut self, lag: Duration) -> Self {
        self.lag = lag;
        self
    }

    /// Sets how long after it has learned of a write a member applies it. Default: zero.
    ///
    /// Real members are slow in this way when they are busy, or paused between the two steps. A
    /// client that resumes its session there reads states that are older than events that it has
    /// received elsewhere. A member applies everything that has been committed earlier if one of
    /// its own clients writes, syncs or starts a session; `Duration::MAX` means that it waits for
    /// that.
    pub fn unapplied(mut self, time: Duration) -> Self {
        self.unapplied = time;
        self
    }

    /// Sets how long after its own commit the leader of an ensemble applies a write. Default: zero.
    ///
    /// A real leader sends its commits to the followers before it applies them itself, so it can lag
    /// behind each of them. Unlike a follower, it does not make up for this when a client of its own
    /// syncs: it replies at once, from an old state. Only a write of such a client makes it apply
    /// everything that has been committed earlier.
    pub fn leader_unapplied(mut self, time: Duration) -> Self {
        self.leader_unapplied = time;
        self
    }

    /// Adds a user who can authenticate with SASL, mechanism DIGEST-MD5. Default: none, and SASL is
    /// not configured.
    ///
    /// With a user, access control lists may have the scheme `sasl`.
    pub fn sasl_user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.sasl_users.insert(name.into(), password.into());
        self
    }

    /// Sets the SASL user who passes every access check. Default: none.
    pub fn sasl_super_user(mut self, name: impl Into<String>) -> Self {
        self.sasl_super_user = Some(name.into());
        self
    }

    /// Sets whether a client must authenticate with SASL before any other request, even a ping
    /// (`sessionRequireClientSASLAuth`). A client without SASL gets a session, and its first request
    /// ends it. Default: no.
    pub fn sasl_required(mut self, is_required: bool) -> Self {
        self.is_sasl_required = is_required;
        self
    }

    /// Sets whether the server refuses writes that would exceed a hard limit of a quota. Default:
    /// no, as on real servers.
    pub fn enforce_quota(mut self, is_enforced: bool) -> Self {
        self.enforce_quota = is_enforced;
        self
    }

    /// Sets whether a partitioned server starts sessions that only it knows. Default: yes.
    ///
    /// Real servers need `localSessionsEnabled` for this, which is off by default. Without it, a
    /// server with `readonlymode.enabled` replies to the handshake of a new session with a header
    /// that contains the error `NOT_READ_ONLY`, where clients expect another record, and then with
    /// nothing.
    pub fn local_sessions(mut self, is_enabled: bool) -> Self {
        self.local_sessions = is_enabled;
        self
    }

    /// Sets whether clients may change the members of the ensemble. Default: no, as on real
    /// servers.
    ///
    /// Without a [`dynamic_config`](Self::dynamic_config), the server then refuses reconfiguration
    /// as a standalone server does. A client also needs the permission to write
    /// `/zookeeper/config`.
    pub fn reconfig_enabled(mut self, is_enabled: bool) -> Self {
        self.reconfig_enabled = is_enabled;
        self
    }

    /// Sets the servers of the ensemble that the znode `/zookeeper/config` names, one per line, as
    /// in `server.1=host:2888:3888:participant;0.0.0.0:2181`. Default: none.
    ///
    /// A server may have several addresses (3.6, `multiAddress.enabled`), as in
    /// `server.1=a:2888:3888|b:2888:3888:participant;2181`. If none has here, reconfiguration accepts
    /// them only with [`multi_address`](Self::multi_address).
    ///
    /// Reconfiguration changes this text, and neither starts nor stops a server. The servers named
    /// here count as running, and other servers do not: a configuration needs a majority of running
    /// voters.
    ///
    /// # Panics
    ///
    /// Panics if a line is malformed or no server votes.
    pub fn dynamic_config(mut self, servers: &str) -> Self {
        let membership = Membership::first(servers);
        assert!(membership.is_some(), "this is not a list of servers with a voter: {servers:?}");
        self.membership = membership;
        self
    }

    /// Sets whether reconfiguration may give a server several addresses (`multiAddress.enabled`).
    /// Default: only if a server in [`dynamic_config`](Self::dynamic_config) has several.
    pub fn multi_address(mut self, is_enabled: bool) -> Self {
        self.multi_address = is_enabled;
        self
    }

    /// Clamps the requested session timeout to the range that the server grants.
    pub(crate) fn negotiate(&self, requested_ms: i32) -> Duration {
        let (min, max) = match self.version.is_keeper() {
            true => KEEPER_SESSION_TIMEOUTS,
            false => (self.tick * 2, self.tick * 20),
        };
        let min = self.min_session_timeout.unwrap_or(min);
        let max = self.max_session_timeout.unwrap_or(max).max(min);
        Duration::from_millis(u64::try_from(requested_ms).unwrap_or(0)).clamp(min, max)
    }
}

/// The shortest and the longest session timeout that a Keeper grants (`ZooKeeperConstants.h`).
const KEEPER_SESSION_TIMEOUTS: (Duration, Duration) =
    (Duration::from_secs(10), Duration::from_secs(100));
