//! Sets the options of a client and starts it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jute_codec::{Acl, AuthPacket};
use tokio::runtime::Handle;
use tracing::info_span;

use super::Client;
use super::credentials::check_auth;
use super::first_connection::first_connection;
use crate::abridged::Abridged;
use crate::chroot::create::{creates, ensure_chroot};
use crate::connect_string::ConnectString;
use crate::driver::access::{Access, DefaultAcl};
use crate::driver::clock::Clock;
use crate::driver::ends::channels;
use crate::driver::ensemble_follower::EnsembleFollower;
use crate::driver::host_source::{Follower, HostSource};
use crate::driver::sasl::Sasl;
use crate::driver::shared::Shared;
use crate::driver::task::Driver;
use crate::driver::thread;
use crate::driver::transport::{Tcp, Transport};
use crate::error::{ConfigError, ConnectError, OptionDefect};
use crate::machine::{Lease, OUTSTANDING_MAX, SessionConfig, SessionMachine, SessionTicket};
use crate::random::SplitMix;
use crate::time::NO_LIMIT;

/// Default session timeout to request.
pub const SESSION_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Default limit on the length of a request, in bytes: the servers' limit on a frame
/// (`jute.maxbuffer`).
pub const REQUEST_LIMIT_DEFAULT: usize = 0xf_ffff;
/// Default limit on the length of a reply, in bytes. Servers do not limit replies, and a reply that
/// returns data of the maximum size is longer than the request that wrote it.
pub const RESPONSE_LIMIT_DEFAULT: usize = 4 * 1024 * 1024;
/// Minimum number of shares into which the session timeout is divided for attempts to connect. One
/// name may stand for several servers, and no single server may use up all of the time.
const SHARES_MIN: u32 = 3;
const SESSION_TIMEOUT_MIN: Duration = Duration::from_millis(10);
/// The protocol has 31 bits for the milliseconds of a timeout.
const SESSION_TIMEOUT_MAX: Duration = Duration::from_millis(i32::MAX as u64);
const CONNECT_TIMEOUT_MIN: Duration = Duration::from_millis(1);
const FRAME_LIMIT_MIN: usize = 1024;

/// Configures a client. Created by [`Client::builder`]. The last value of an option counts, and
/// [`auth`](Self::auth) adds to the earlier ones.
///
/// The setters check nothing: [`connect`](Self::connect) and [`start`](Self::start) refuse an
/// invalid value, and the [`ConfigError`] says which one and why.
#[must_use = "a builder does nothing until `connect`"]
pub struct ClientBuilder {
    connect_string: String,
    session_timeout: Duration,
    connect_timeout: Option<Duration>,
    connect_within: Option<Duration>,
    give_up: Option<Duration>,
    sasl: Option<Sasl>,
    auth: Vec<AuthPacket>,
    default_acl: Option<DefaultAcl>,
    request_limit: usize,
    response_limit: usize,
    outstanding_limit: usize,
    renew: bool,
    create_chroot: bool,
    read_only: bool,
    resume: Option<SessionTicket>,
    has_thread: bool,
    lease: Option<Lease>,
    seed: Option<u64>,
    clock: Option<Clock>,
    transport: Arc<dyn Transport>,
    host_source: Option<Arc<dyn HostSource>>,
    follow_ensemble: bool,
}

impl Client {
    /// Configures a client for the servers in a connect string, `host:port,host:port/chroot`.
    pub fn builder(connect_string: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(connect_string.into())
    }

    /// Connects with default options.
    ///
    /// # Errors
    ///
    /// Fails like [`ClientBuilder::connect`].
    pub async fn connect(connect_string: impl Into<String>) -> Result<Self, ConnectError> {
        Self::builder(connect_string).connect().await
    }
}

impl ClientBuilder {
    fn new(connect_string: String) -> Self {
        Self {
            connect_string,
            session_timeout: SESSION_TIMEOUT_DEFAULT,
            connect_timeout: None,
            connect_within: None,
            give_up: None,
            sasl: None,
            auth: Vec::new(),
            default_acl: None,
            request_limit: REQUEST_LIMIT_DEFAULT,
            response_limit: RESPONSE_LIMIT_DEFAULT,
            outstanding_limit: OUTSTANDING_MAX,
            renew: true,
            create_chroot: true,
            read_only: false,
            resume: None,
            has_thread: false,
            lease: Some(Lease::default()),
            seed: None,
            clock: None,
            transport: Arc::new(Tcp::new()),
            host_source: None,
            follow_ensemble: false,
        }
    }

    /// Sets the session timeout to request. Servers grant between 2 and 20 of their ticks, by
    /// default 4 s to 40 s. Default: 30 s.
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// Sets the maximum time for one server to accept a connection and reply to the handshake. It
    /// begins again for the replies to credentials.
    ///
    /// Default: the session timeout divided by the number of servers, so that there is time for one
    /// attempt at each of them. The divisor is at least three, because one name may stand for
    /// several servers. If a server grants a shorter session timeout than requested, this time is
    /// limited to the same share of the granted timeout. `Duration::MAX` means no limit.
    ///
    /// While a lock or the session can still be saved, each server gets an equal share of the
    /// remaining time if that share is shorter, but at least half a second.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = Some(timeout);
        self
    }

    /// Sets how long [`connect`](Self::connect) waits for the first connection, and for the creation
    /// of the chroot. Default: the session timeout. `Duration::MAX` means no limit.
    pub fn connect_within(mut self, timeout: Duration) -> Self {
        self.connect_within = Some(timeout);
        self
    }

    /// Sets how long the client can go without any server before the session counts as expired.
    /// Until then the session is suspended and may be resumed. Default: twice the session timeout.
    /// This time is never shorter than the session timeout that a server has granted.
    /// `Duration::MAX` means no limit.
    pub fn give_up_after(mut self, timeout: Duration) -> Self {
        self.give_up = Some(timeout);
        self
    }

    /// Adds credentials, such as `("digest", "user:password")`. They are sent on every connection
    /// before any other request. If a server refuses them and none has accepted them before, the
    /// client stops with [`ConnectError::AuthFailed`], or with
    /// [`OpError::AuthFailed`](crate::OpError::AuthFailed) after [`start`](Self::start). Otherwise
    /// it goes on to the next server. [`Client::add_auth`] and [`Client::replace_auth`] change them
    /// later.
    pub fn auth(mut self, scheme: &str, credentials: impl Into<Bytes>) -> Self {
        let auth = Some(credentials.into());
        self.auth.push(AuthPacket { scheme: scheme.into(), auth });
        self
    }

    /// Sets the access control list of every znode that is created without a list of its own: by
    /// [`Client::create`] and similar calls, by recipes, as a missing ancestor, or as the chroot and its ancestors.
    /// Default: all permissions for everyone ([`Acl::open`]).
    ///
    /// ```
    /// use zk_session::{Acl, Client};
    ///
    /// let builder = Client::builder("zk1.example.com,zk2.example.com")
    ///     .auth("digest", "worker:secret")
    ///     .default_acl(Acl::creator_all());
    /// ```
    ///
    /// A client that has credentials, but no default, logs at WARN when it creates a znode that
    /// everyone may change, once for each directory. If that is intended, set [`Acl::open`].
    pub fn default_acl(mut self, acl: Vec<Acl>) -> Self {
        self.default_acl = Some(DefaultAcl::List(acl));
        self
    }

    /// Sets a function that returns the access control list of each znode that is created without a
    /// list of its own. It replaces [`default_acl`](Self::default_acl), and applies to the same
    /// znodes.
    ///
    /// ```
    /// use zk_session::{Acl, Client};
    ///
    /// let builder = Client::builder("zk1.example.com,zk2.example.com/app")
    ///     .auth("digest", "worker:secret")
    ///     .default_acl_by_path(|path| {
    ///         let mut acl = Acl::creator_all();
    ///         if path.starts_with("/app/status") {
    ///             acl.append(&mut Acl::read());
    ///         }
    ///         acl
    ///     });
    /// ```
    ///
    /// The function gets the path of the znode on the server, with the chroot in front, and without
    /// the number that a server appends to a sequential name. It is called for each create, even of
    /// a znode that may exist, in the task that submits it: it must not block. A server refuses an
    /// empty list with `INVALID_ACL`. All clients of a directory need the same identities in the
    /// lists of the directory and of its znodes, because servers check DELETE at the directory.
    pub fn default_acl_by_path(
        mut self,
        acl_of: impl Fn(&str) -> Vec<Acl> + Send + Sync + 'static,
    ) -> Self {
        self.default_acl = Some(DefaultAcl::ByPath(Box::new(acl_of)));
        self
    }

    /// Authenticates each connection with SASL, before credentials of [`auth`](Self::auth) and any
    /// other request are sent. A client that was told to authenticate never works without.
    ///
    /// If no server has accepted the credentials yet and one refuses them, the client stops with
    /// [`ConnectError::AuthFailed`]. All other failures are repeated with the usual pauses, and the
    /// session may survive them: there is no KDC or no ticket, the server does not use SASL, or a
    /// server refuses credentials that another one has accepted.
    #[cfg(any(feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
    pub fn sasl(mut self, sasl: impl Into<Sasl>) -> Self {
        self.sasl = Some(sasl.into());
        self
    }

    /// Sets the maximum length of a request in bytes, excluding its length prefix. Default:
    /// 1,048,575, the servers' limit. A server closes the connection if a request is longer.
    pub fn request_limit(mut self, bytes: usize) -> Self {
        self.request_limit = bytes;
        self
    }

    /// Sets the maximum length of a reply in bytes, excluding its length prefix. A longer reply is
    /// skipped, and only its own request fails. Default: 4 MiB.
    pub fn response_limit(mut self, bytes: usize) -> Self {
        self.response_limit = bytes;
        self
    }

    /// Sets how many operations may wait or be in flight at a time. Further ones fail with
    /// [`OpError::QueueFull`](crate::OpError::QueueFull). Default: 65,536.
    ///
    /// Operations of locks and other recipes are neither counted nor refused, because each
    /// [`Lane`](crate::recipe::Lane) has its own limit.
    pub fn outstanding_limit(mut self, operations: usize) -> Self {
        self.outstanding_limit = operations;
        self
    }

    /// Sets whether to open another session after one has expired. Default: true. Otherwise the
    /// client stops, and every operation fails with
    /// [`OpError::SessionExpired`](crate::OpError::SessionExpired). Recipes fail as their errors say.
    pub fn renew_after_expiry(mut self, renew: bool) -> Self {
        self.renew = renew;
        self
    }

    /// Sets whether to create the chroot of the connect string, with its ancestors, if it is missing.
    /// Default: true. All of them get the [default list](Self::default_acl), so create an ancestor
    /// that other applications share beforehand, or give it a list of its own by
    /// [`default_acl_by_path`](Self::default_acl_by_path).
    ///
    /// A misspelt chroot is created, too. Without the creation, a client below a missing chroot
    /// connects and finds no znode there; calls that create one fail with
    /// [`OpError::ChrootMissing`](crate::OpError::ChrootMissing).
    pub fn create_chroot(mut self, create: bool) -> Self {
        self.create_chroot = create;
        self
    }

    /// Accepts read-only servers while no other can be reached. Default: they refuse the client, and
    /// requests wait.
    ///
    /// A server with `readonlymode.enabled` that has lost contact with the majority of its ensemble
    /// serves what it knows. A client with this option connects to it when its turn in the list comes
    /// ([`ConnectedReadOnly`](crate::SessionState::ConnectedReadOnly)): reads may return old data, and
    /// writes fail with `NOT_READ_ONLY`. The client's session is not affected. No acknowledgement of such a server
    /// counts for it, so locks are at risk, and are lost when their lease ends. Meanwhile the client
    /// asks the servers in turn whether they accept writes, after 100 ms at first, and then after
    /// pauses that double up to a minute. It moves to the first that does, and resumes its session.
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Continues the session of a ticket, which [`Client::hand_over`] has returned, instead of
    /// opening a new one. The ephemeral znodes of the session stay; its watches do not, because they
    /// belong to the client that set them.
    ///
    /// [`connect`](Self::connect) fails with [`ConnectError::NotResumed`] if the session has ended,
    /// or the ticket is not valid for it; servers do not tell which. With [`start`](Self::start), or
    /// after that, the client opens another session unless
    /// [`renew_after_expiry`](Self::renew_after_expiry) is false.
    ///
    /// Use a ticket once. Servers allow one connection per session, so two clients with one session
    /// disconnect each other for ever; the pauses between attempts to connect limit this to about
    /// one connection per second.
    pub fn resume(mut self, ticket: SessionTicket) -> Self {
        self.resume = Some(ticket);
        self
    }

    /// Runs the session on a thread of its own, instead of the runtime in which the client is
    /// started. Blocking work in that runtime then delays neither heartbeats nor the cleanup of
    /// locks. Handles can be used on any runtime in both cases. The thread ends with the session.
    ///
    /// Custom transports and resolvers run on that thread. It has its own tokio clock, so this
    /// option does not suit tests with paused time.
    pub fn dedicated_thread(mut self) -> Self {
        self.has_thread = true;
        self
    }

    /// Sets how to keep a lease; `None` disables it. Default: [`Lease::default`], which is kept by
    /// writes and suits servers with `tickTime=2000`.
    ///
    /// With a lease, [`Status::guard_deadline`](crate::Status::guard_deadline) accounts for servers
    /// that keep replying although they have lost their leader. In exchange, each session commits a
    /// small write per interval while a lock needs the lease, and the deadline is earlier.
    ///
    /// The client keeps a lease only if the granted session timeout is long enough: at least 3.3 s
    /// with the default. Otherwise the client works as it does without a lease, and logs a warning.
    pub fn lease(mut self, config: impl Into<Option<Lease>>) -> Self {
        self.lease = config.into();
        self
    }

    /// Makes the order of servers, the jitter of pauses and the unique ids repeatable. This is
    /// meant for tests: clients with the same seed generate the same ids.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the clock. Default: [`Clock::system`]. Tests with paused time need [`Clock::tokio`].
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets how to connect to servers. Default: [`Tcp`].
    pub fn transport(mut self, transport: impl Transport) -> Self {
        self.transport = Arc::new(transport);
        self
    }

    /// Follows a list of servers that is kept elsewhere, such as DNS SRV records. Default: the list
    /// in the connect string does not change, except by [`Client::set_hosts`].
    ///
    /// The client looks the list up when it starts, then each minute, and every five seconds while
    /// it is not connected. Until the first list arrives, it uses the connect string. When the list
    /// has changed, the client does what `set_hosts` does. A look-up that fails, takes longer than
    /// ten seconds, or finds no server changes nothing and is logged at WARN, once until another one
    /// succeeds. Look-ups run on the runtime of the session, in a task that ends with it: one that
    /// blocks delays heartbeats, and if one panics, the list is no longer followed, which
    /// is logged at WARN.
    ///
    /// ```
    /// use zk_session::{Client, Host};
    ///
    /// # async fn look_up_srv(_: &str) -> std::io::Result<Vec<(String, u16)>> { Ok(vec![]) }
    /// let builder = Client::builder("zk1.example.com,zk2.example.com").host_source(|| async {
    ///     // Any DNS library can look up SRV records.
    ///     let records = look_up_srv("_zookeeper._tcp.example.com").await?;
    ///     Ok(records.into_iter().map(|(name, port)| Host { name, port }).collect())
    /// });
    /// ```
    pub fn host_source(mut self, source: impl HostSource) -> Self {
        self.host_source = Some(Arc::new(source));
        self
    }

    /// Uses the servers that the ensemble itself names, in its znode `/zookeeper/config`, and follows
    /// their changes by [`Client::reconfig`] and others. Default: the list in the connect string does
    /// not change, except by [`Client::set_hosts`] or [`host_source`](Self::host_source), with which
    /// this option cannot be combined.
    ///
    /// The client reads and watches the configuration once it is connected, and again when the watch
    /// fires, but at most every two seconds. It then does what `set_hosts` does, with the addresses for clients of all members,
    /// including observers. For a member that listens on a wildcard such as `0.0.0.0`, it uses the
    /// addresses at which other servers reach the member. With `Tls`, it uses the secure client
    /// address, which only servers since 3.10 can name, or else the name for clients with the port of
    /// the connect string, if all servers there have the same. A loopback address is used only if the
    /// connect string has one.
    ///
    /// The client never locks itself out: it uses a list only if one of its servers answers, and
    /// tries the servers of the connect string, or of the last `set_hosts`, whenever no server of the
    /// list can be reached. Only a newer version counts, so a server that lags never brings an older
    /// list back. [`Health::config`](crate::Health::config) is the version in use.
    ///
    /// If the configuration is missing, must not be read, or names no server that can be used, the
    /// list stays as it is, and the client logs the reason at WARN, once until it is otherwise. It
    /// repeats refused reads after pauses that double from a second to ten minutes.
    ///
    /// The znode can be read by everyone unless an administrator has changed that.
    pub fn follow_ensemble(mut self) -> Self {
        self.follow_ensemble = true;
        self
    }

    /// Starts the client without waiting for a connection. Requests wait for the first connection,
    /// on which the client creates the chroot if it is missing. If a server refuses that, the client
    /// logs it at WARN, and tries again on the next connection. Meanwhile it is connected, and
    /// [ready](crate::Health::is_ready), calls that create something fail with
    /// [`OpError::ChrootMissing`](crate::OpError::ChrootMissing), and others find nothing.
    ///
    /// # Errors
    ///
    /// Fails if the connect string or an option is invalid, or outside of a tokio runtime. With
    /// [`dedicated_thread`](Self::dedicated_thread), no runtime is needed.
    ///
    /// # Panics
    ///
    /// Panics if the runtime has no timers or no I/O.
    pub fn start(self) -> Result<Client, ConfigError> {
        let create_chroot = self.create_chroot;
        self.start_with(create_chroot)
    }

    /// Starts the client. `connect` creates the chroot itself, because it returns the errors.
    fn start_with(self, create_chroot: bool) -> Result<Client, ConfigError> {
        let ConnectString { hosts, chroot } = self.connect_string.parse()?;
        self.check()?;
        if !self.has_thread {
            check_runtime()?;
        }
        let [hosts_seed, id_seed @ ..] = self.seed.map_or_else(random_seeds, |seed| {
            let mut random = SplitMix(seed);
            [random.next(), random.next(), random.next()]
        });
        let names = hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let servers = u32::try_from(hosts.len()).unwrap_or(u32::MAX).max(SHARES_MIN);
        let share = self.session_timeout / servers;
        let is_followed = self.host_source.is_some() || self.follow_ensemble;
        let given = if is_followed { hosts.clone() } else { Vec::new() };
        let connect_timeout = self.connect_timeout.unwrap_or(share).min(NO_LIMIT);
        let has_credentials =
            self.sasl.is_some() || !self.auth.is_empty() || self.transport.has_identity();
        let access = Arc::new(Access::new(self.default_acl, has_credentials));
        let creates = if create_chroot { creates(&chroot, &access) } else { Vec::new() };
        let config = SessionConfig {
            hosts,
            seed: hosts_seed,
            session_timeout: self.session_timeout,
            connect_timeout,
            give_up: self.give_up.unwrap_or(self.session_timeout * 2).min(NO_LIMIT),
            sasl: self.sasl.is_some(),
            auth: self.auth,
            request_limit: self.request_limit,
            response_limit: self.response_limit,
            outstanding_limit: self.outstanding_limit,
            renew: self.renew,
            read_only: self.read_only,
            resume: self.resume,
            chroot: creates,
            lease: self.lease,
        };
        let clock = self.clock.unwrap_or_else(Clock::system);
        let machine = SessionMachine::new(config, clock.now());
        let (handle_ends, driver_ends) = channels(machine.status(), clock.now());
        let (transport, sasl, driver_clock) = (self.transport, self.sasl, clock.clone());
        let driver_access = Arc::clone(&access);
        let span = info_span!("zk_session", hosts = %names, chroot = %Abridged(chroot.as_str()));
        let follower = self.host_source.map(|source| Follower::new(source, &given, &handle_ends));
        let followed_over = self.follow_ensemble.then(|| Arc::clone(&transport));
        let driver = || {
            if let Some(follower) = follower {
                follower.start(&span);
            }
            Driver::new(machine, driver_clock, driver_access, transport, sasl, driver_ends)
        };
        let janitor = if self.has_thread {
            let started = thread::start(driver, span.clone());
            started.map_err(|error| ConfigError::Thread { message: error.to_string() })?
        } else {
            driver().start(&span)
        };
        let queued_max = self.outstanding_limit;
        let shared =
            Shared::new(access, chroot, clock, handle_ends, names, janitor, queued_max, id_seed);
        if let Some(transport) = followed_over {
            let follower = EnsembleFollower::new(&shared, transport, &given, id_seed[0]);
            shared.janitor.run_beside(follower.run());
        }
        Ok(Client::from_shared(Arc::new(shared)))
    }

    /// Starts the client, waits for its first connection, and creates the chroot if it is missing.
    ///
    /// Dropping the future closes the client.
    ///
    /// # Errors
    ///
    /// Fails if the connect string or an option is invalid, if no server completes the connection
    /// in time, if a server refuses the credentials, or if the chroot cannot be created. The client
    /// is then closed. Also fails outside of a tokio runtime, even with
    /// [`dedicated_thread`](Self::dedicated_thread).
    ///
    /// # Panics
    ///
    /// Panics if the runtime has no timers or no I/O.
    pub async fn connect(self) -> Result<Client, ConnectError> {
        let within = self.connect_within.unwrap_or(self.session_timeout);
        let create_chroot = self.create_chroot;
        let resumed = self.resume.as_ref().map(SessionTicket::session);
        check_runtime()?;
        let client = self.start_with(false)?;
        let ready = async {
            first_connection(client.states(), client.shared(), resumed).await?;
            if create_chroot { ensure_chroot(client.shared()).await } else { Ok(()) }
        };
        match tokio::time::timeout(within, ready).await {
            Ok(ready) => ready?,
            Err(_) => {
                let shared = client.shared();
                return Err(ConnectError::TimedOut {
                    hosts: shared.hosts.to_string(),
                    waited: within,
                    last_failure: shared.why_not_connected(),
                });
            }
        }
        Ok(client)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let invalid = |option, value, defect| Err(ConfigError::Option { option, value, defect });
        let is_below = |timeout: Option<Duration>, least| timeout.filter(|it| *it < least);
        let timeout = self.session_timeout;
        let shown = format!("{timeout:?}");
        if timeout < SESSION_TIMEOUT_MIN {
            return invalid(
                "session_timeout",
                shown,
                OptionDefect::ShorterThan(SESSION_TIMEOUT_MIN),
            );
        }
        if timeout.as_millis() > SESSION_TIMEOUT_MAX.as_millis() {
            return invalid(
                "session_timeout",
                shown,
                OptionDefect::LongerThan(SESSION_TIMEOUT_MAX),
            );
        }
        if let Some(short) = is_below(self.give_up, timeout) {
            let defect = OptionDefect::ShorterThanSessionTimeout;
            return invalid("give_up_after", format!("{short:?}"), defect);
        }
        for (option, value) in
            [("connect_timeout", self.connect_timeout), ("connect_within", self.connect_within)]
        {
            if let Some(short) = is_below(value, CONNECT_TIMEOUT_MIN) {
                let defect = OptionDefect::ShorterThan(CONNECT_TIMEOUT_MIN);
                return invalid(option, format!("{short:?}"), defect);
            }
        }
        for (option, limit) in
            [("request_limit", self.request_limit), ("response_limit", self.response_limit)]
        {
            if limit < FRAME_LIMIT_MIN {
                return invalid(
                    option,
                    limit.to_string(),
                    OptionDefect::BytesBelow(FRAME_LIMIT_MIN),
                );
            }
        }
        if self.outstanding_limit == 0 {
            return invalid("outstanding_limit", "0".to_owned(), OptionDefect::Zero);
        }
        if let Some(lease) = self.lease
            && let Some(defect) = lease.defect()
        {
            return invalid("lease", format!("({lease})"), OptionDefect::Lease(defect));
        }
        if self.follow_ensemble && self.host_source.is_some() {
            let defect = OptionDefect::Other(
                "it cannot be combined with host_source: a client has one source of its servers",
            );
            return invalid("follow_ensemble", String::new(), defect);
        }
        if matches!(&self.default_acl, Some(DefaultAcl::List(acl)) if acl.is_empty()) {
            return invalid("default_acl", "[]".to_owned(), OptionDefect::Empty);
        }
        if let Some(defect) = self.sasl.as_ref().and_then(Sasl::defect) {
            return invalid("sasl", String::new(), defect);
        }
        self.auth.iter().try_for_each(check_auth)
    }
}

/// Omits the credentials and the seed.
impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("connect_string", &self.connect_string)
            .field("session_timeout", &self.session_timeout)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// Checks that a client can start here.
fn check_runtime() -> Result<(), ConfigError> {
    Handle::try_current().map(drop).map_err(|_| ConfigError::NoRuntime)
}

fn random_seeds() -> [u64; 3] {
    std::array::from_fn(|_| getrandom::u64().expect("the system's random number generator works"))
}

#[cfg(test)]
mod tests {
    use zk_testserver::{ServerConfig, TestServer};

    use super::*;

    /// A setter of the builder.
    type Set = fn(ClientBuilder, Duration) -> ClientBuilder;

    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    #[tokio::test(start_paused = true)]
    async fn every_option_of_time_works_or_is_refused_from_zero_to_the_longest() {
        let second = Duration::from_secs(1);
        let options: [(&str, Set, [bool; 5]); 4] = [
            // Each array says whether 0, 1 ns, 1 ms, a century and MAX are accepted.
            ("session_timeout", ClientBuilder::session_timeout, [false; 5]),
            ("connect_timeout", ClientBuilder::connect_timeout, [false, false, true, true, true]),
            ("connect_within", ClientBuilder::connect_within, [false, false, true, true, true]),
            ("give_up_after", ClientBuilder::give_up_after, [false, false, false, true, true]),
        ];
        let extremes = [
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_millis(1),
            second * 60 * 60 * 24 * 365 * 100,
            Duration::MAX,
        ];
        for (name, set, expected) in options {
            for (extreme, works) in extremes.into_iter().zip(expected) {
                let server = TestServer::start(ServerConfig::default());
                let builder = Client::builder("in-process")
                    .transport(server.connector())
                    .clock(Clock::tokio());
                match set(builder, extreme).connect().await {
                    Err(ConnectError::Config(ConfigError::Option { option, .. })) => {
                        assert!(option == name && !works, "{option} refused, {name} {extreme:?}");
                    }
                    Err(error) => panic!("{name} {extreme:?}: {error}"),
                    Ok(client) => {
                        assert!(works, "{name} {extreme:?} is accepted");
                        // The task survives an outage and the reconnect after it.
                        server.refuse_for(second * 90);
                        server.disconnect_all();
                        tokio::time::sleep(second * 100).await;
                        client.exists("/").await.expect("the client still works");
                        client.close().await;
                    }
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_session_timeout_works() {
        let server = TestServer::start(ServerConfig::default());
        let client = Client::builder("in-process")
            .transport(server.connector())
            .clock(Clock::tokio())
            .session_timeout(Duration::from_millis(i32::MAX as u64))
            .connect()
            .await
            .expect("the server grants a shorter timeout");
        client.close().await;
    }
}
