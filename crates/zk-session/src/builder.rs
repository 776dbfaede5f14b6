//! Options of a client, checked once.

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use jute_codec::{AuthPacket, ErrorCode};
use tokio::sync::{mpsc, watch};
use tracing::info_span;

use crate::client::Client;
use crate::connect_string::ConnectString;
use crate::driver::clock::Clock;
use crate::driver::shared::Shared;
use crate::driver::transport::{Tcp, Transport};
use crate::driver::trouble::Seen;
use crate::driver::{Driver, Ends};
use crate::error::{ConfigError, ConnectError, OpError};
use crate::machine::{
    EndCause, Lease, OUTSTANDING_MAX, Session, SessionConfig, SessionState, SplitMix,
};
use crate::op::Op;

/// Session timeout asked for by default.
pub const SESSION_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Longest request by default, in bytes: the servers' limit for a frame (`jute.maxbuffer`).
pub const REQUEST_LIMIT_DEFAULT: usize = 0xf_ffff;
/// Longest reply by default, in bytes. Servers have no limit of their own: data of the largest
/// size comes back in a longer frame than it was written with.
pub const RESPONSE_LIMIT_DEFAULT: usize = 4 * 1024 * 1024;
/// A name may stand for several servers, and one of them must not take all of the time.
const SHARES_MIN: u32 = 3;
/// Longer than any process lives, and short enough to be added to any moment.
const NO_LIMIT: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// Describes a client; made by [`Client::builder`].
#[must_use = "a builder does nothing until `connect`"]
pub struct ClientBuilder {
    connect_string: String,
    session_timeout: Duration,
    connect_timeout: Option<Duration>,
    connect_within: Option<Duration>,
    give_up: Option<Duration>,
    auth: Vec<AuthPacket>,
    request_limit: usize,
    response_limit: usize,
    outstanding_limit: usize,
    renew: bool,
    create_chroot: bool,
    lease: Option<Lease>,
    seed: Option<u64>,
    clock: Option<Clock>,
    transport: Arc<dyn Transport>,
}

/// Without the credentials.
impl std::fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("connect_string", &self.connect_string)
            .field("session_timeout", &self.session_timeout)
            .finish_non_exhaustive()
    }
}

impl ClientBuilder {
    pub(crate) fn new(connect_string: String) -> Self {
        Self {
            connect_string,
            session_timeout: SESSION_TIMEOUT_DEFAULT,
            connect_timeout: None,
            connect_within: None,
            give_up: None,
            auth: Vec::new(),
            request_limit: REQUEST_LIMIT_DEFAULT,
            response_limit: RESPONSE_LIMIT_DEFAULT,
            outstanding_limit: OUTSTANDING_MAX,
            renew: true,
            create_chroot: true,
            lease: Some(Lease::default()),
            seed: None,
            clock: None,
            transport: Arc::new(Tcp::new()),
        }
    }

    /// Session timeout to ask for. Servers grant between 2 and 20 of their ticks, by default 4 s
    /// to 40 s. Default: 30 s.
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// The longest time for one server to accept the connection and to answer the handshake.
    /// Default: the session timeout divided by the number of servers, so that a lap over all of
    /// them fits, or by three if there are fewer, because one name may stand for several servers.
    /// If a server grants a shorter session timeout than was asked for, it is never longer than
    /// that one's share.
    ///
    /// While there is something to save, such as a lock or the session, a server has less: its
    /// share of the time that is left, but at least half a second. `Duration::MAX` is no limit.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = Some(timeout);
        self
    }

    /// How long [`connect`](Self::connect) waits for the first connection. Default: the session
    /// timeout. `Duration::MAX` is no limit.
    pub fn connect_within(mut self, timeout: Duration) -> Self {
        self.connect_within = Some(timeout);
        self
    }

    /// Time without any server after which the session counts as expired. Until then it is
    /// suspended and may come back. Default: twice the session timeout. It is never shorter than
    /// the session timeout that a server has granted. `Duration::MAX` is no limit.
    pub fn give_up_after(mut self, timeout: Duration) -> Self {
        self.give_up = Some(timeout);
        self
    }

    /// Adds credentials, such as `("digest", "user:password")`, sent on every connection before
    /// anything else.
    pub fn auth(mut self, scheme: &str, credentials: impl Into<Bytes>) -> Self {
        let auth = Some(credentials.into());
        self.auth.push(AuthPacket { scheme: scheme.into(), auth });
        self
    }

    /// Longest request in bytes, without its length prefix. Default: 1,048,575, the servers'
    /// limit; a longer one makes a server close the connection.
    pub fn request_limit(mut self, bytes: usize) -> Self {
        self.request_limit = bytes;
        self
    }

    /// Longest reply in bytes, without its length prefix. A longer one is skipped, and fails its
    /// own request only. Default: 4 MiB.
    pub fn response_limit(mut self, bytes: usize) -> Self {
        self.response_limit = bytes;
        self
    }

    /// Operations that may wait or be in flight at a time; beyond that they fail with
    /// [`OpError::QueueFull`]. Default: 65,536.
    ///
    /// What locks and other recipes send does not count, and is never refused because of it: each
    /// [`Lane`](crate::Lane) has a limit of its own.
    pub fn outstanding_limit(mut self, operations: usize) -> Self {
        self.outstanding_limit = operations;
        self
    }

    /// Whether to open another session after one has expired. Default: true. Otherwise the client
    /// stops, and every operation fails with [`OpError::SessionExpired`].
    pub fn renew_after_expiry(mut self, renew: bool) -> Self {
        self.renew = renew;
        self
    }

    /// Whether [`connect`](Self::connect) creates the chroot if it is missing. Default: true.
    pub fn create_chroot(mut self, create: bool) -> Self {
        self.create_chroot = create;
        self
    }

    /// What keeps the lease; `None` switches it off. Default: [`Lease::default`], which is kept by
    /// writes, for servers with `tickTime=2000`.
    ///
    /// With a lease, [`Status::guard_deadline`](crate::Status::guard_deadline) allows for servers
    /// that go on answering although they have lost their leader. Its price is a small write per
    /// interval and session, while a lock needs it, and that the deadline comes earlier.
    ///
    /// There is a lease if the granted session timeout leaves room for it: with the default, from
    /// 3.3 s on. Below that, everything is as without one, and a warning says so.
    pub fn lease(mut self, config: impl Into<Option<Lease>>) -> Self {
        self.lease = config.into();
        self
    }

    /// Makes the order of servers, the jitter of pauses and the unique ids repeatable. For tests:
    /// clients with the same seed draw the same ids.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The clock. Default: [`Clock::system`]. Tests with paused time need [`Clock::tokio`].
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// How to reach servers. Default: [`Tcp`].
    pub fn transport(mut self, transport: impl Transport) -> Self {
        self.transport = Arc::new(transport);
        self
    }

    /// Starts the client without waiting for a connection. Requests wait for it. The chroot is
    /// not created.
    ///
    /// # Errors
    ///
    /// An option cannot be used.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start(self) -> Result<Client, ConfigError> {
        let ConnectString { hosts, chroot } = self.connect_string.parse()?;
        self.check()?;
        let seed = self.seed.map_or_else(random_seed, |seed| {
            let mut random = SplitMix(seed);
            [random.next(), random.next(), random.next()]
        });
        let names = hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let servers = u32::try_from(hosts.len()).unwrap_or(u32::MAX).max(SHARES_MIN);
        let share = self.session_timeout / servers;
        let connect_timeout = self.connect_timeout.unwrap_or(share).min(NO_LIMIT);
        let config = SessionConfig {
            hosts,
            seed: seed[0],
            session_timeout: self.session_timeout,
            connect_timeout,
            give_up: self.give_up.unwrap_or(self.session_timeout * 2).min(NO_LIMIT),
            auth: self.auth,
            request_limit: self.request_limit,
            response_limit: self.response_limit,
            outstanding_limit: self.outstanding_limit,
            renew: self.renew,
            lease: self.lease,
        };
        let clock = self.clock.unwrap_or_else(Clock::system);
        let machine = Session::new(config, clock.now());
        let (commands, command_queue) = mpsc::unbounded_channel();
        let (status_sender, status) = watch::channel(machine.status());
        let (seen_sender, seen) = watch::channel(Seen::default());
        let queued = Arc::new(AtomicUsize::new(0));
        let end = Arc::new(Mutex::new(EndCause::Abandoned));
        let ends = Ends {
            end: Arc::clone(&end),
            commands: command_queue,
            queued: Arc::clone(&queued),
            status: status_sender,
            seen: seen_sender,
        };
        let driver = Driver::new(machine, clock.clone(), self.transport, ends);
        let span = info_span!("zk_session", hosts = %names, chroot = %chroot.as_str());
        let janitor = driver.start(&span);
        Ok(Client::from_shared(Arc::new(Shared {
            chroot,
            clock,
            end,
            hosts: names,
            janitor,
            seen,
            status,
            commands,
            queued,
            queued_max: self.outstanding_limit,
            next_id: AtomicU64::new(1),
            id_seed: [seed[1], seed[2]],
        })))
    }

    /// Starts the client, waits for its first connection, and creates the chroot if it is missing.
    ///
    /// # Errors
    ///
    /// An option cannot be used, no server answered in time, or the credentials were refused. The
    /// client is then closed.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn connect(self) -> Result<Client, ConnectError> {
        let within = self.connect_within.unwrap_or(self.session_timeout);
        let create_chroot = self.create_chroot;
        let client = self.start()?;
        let ready = async {
            first_connection(&client).await?;
            if create_chroot { ensure_chroot(&client).await } else { Ok(()) }
        };
        match tokio::time::timeout(within, ready).await {
            Ok(ready) => ready?,
            Err(_) => {
                let shared = client.shared();
                return Err(ConnectError::TimedOut {
                    hosts: shared.hosts.clone(),
                    waited: within,
                    last_failure: shared.seen.borrow().why_not(),
                });
            }
        }
        Ok(client)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let option = |option, reason| Err(ConfigError::Option { option, reason });
        if self.session_timeout < Duration::from_millis(10) {
            return option("session_timeout", "it is shorter than 10 ms");
        }
        if self.session_timeout.as_millis() > i32::MAX as u128 {
            return option("session_timeout", "it is longer than 2^31 - 1 ms");
        }
        if self.give_up.is_some_and(|timeout| timeout < self.session_timeout) {
            return option("give_up_after", "it is shorter than the session timeout");
        }
        if self.connect_timeout.is_some_and(|timeout| timeout < Duration::from_millis(1)) {
            return option("connect_timeout", "it is shorter than 1 ms");
        }
        if self.connect_within.is_some_and(|timeout| timeout < Duration::from_millis(1)) {
            return option("connect_within", "it is shorter than 1 ms");
        }
        if self.request_limit < 1024 {
            return option("request_limit", "it is less than 1024 bytes");
        }
        if self.response_limit < 1024 {
            return option("response_limit", "it is less than 1024 bytes");
        }
        if self.outstanding_limit == 0 {
            return option("outstanding_limit", "it is zero");
        }
        if let Some(reason) = self.lease.and_then(|lease| lease.defect()) {
            return option("lease", reason);
        }
        if self.auth.iter().any(|packet| packet.scheme.is_empty()) {
            return option("auth", "the scheme is empty");
        }
        Ok(())
    }
}

async fn first_connection(client: &Client) -> Result<(), ConnectError> {
    let mut states = client.states();
    let mut state = states.current().state;
    loop {
        if state == SessionState::Connected {
            return Ok(());
        }
        let next = match state {
            SessionState::AuthFailed => return Err(ConnectError::AuthFailed),
            SessionState::Closed | SessionState::Expired => None,
            SessionState::Connected | SessionState::Connecting | SessionState::Suspended => {
                states.next().await
            }
        };
        let Some(status) = next else {
            let shared = client.shared();
            let last_failure = shared.seen.borrow().why_not();
            return Err(ConnectError::Stopped { hosts: shared.hosts.clone(), last_failure });
        };
        state = status.state;
    }
}

/// Creates the chroot and its ancestors, if it is missing. Nothing here needs care after a lost
/// connection: a create that was applied twice answers `NODE_EXISTS`.
async fn ensure_chroot(client: &Client) -> Result<(), ConnectError> {
    let chroot = client.shared().chroot.as_str();
    if chroot.is_empty() || replay(|| client.probe_chroot_znode(chroot)).await.is_ok() {
        return Ok(());
    }
    let mut last = Ok(());
    for end in chroot.match_indices('/').map(|(at, _)| at).skip(1).chain([chroot.len()]) {
        let path = chroot.get(..end).unwrap_or(chroot);
        // An ancestor may exist without being ours to create: servers look at the right first.
        last = replay(|| client.create_chroot_znode(path)).await;
    }
    match last {
        Ok(()) | Err(OpError::Server(ErrorCode::NODE_EXISTS)) => Ok(()),
        Err(error) => Err(ConnectError::Chroot { path: chroot.to_owned(), error }),
    }
}

/// Issues an operation that may be issued any number of times until it has an answer.
async fn replay(operation: impl Fn() -> Op<()>) -> Result<(), OpError> {
    loop {
        match operation().await {
            Err(error) if error.is_connection_loss() => {}
            result => return result,
        }
    }
}

fn random_seed() -> [u64; 3] {
    std::array::from_fn(|_| getrandom::u64().expect("the system's random number generator works"))
}

#[cfg(test)]
mod tests {
    use zk_testserver::{ServerConfig, TestServer};

    use super::*;

    /// Sets an option.
    type Set = fn(ClientBuilder, Duration) -> ClientBuilder;

    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    #[tokio::test(start_paused = true)]
    async fn every_option_of_time_works_or_is_refused_from_zero_to_the_longest() {
        let second = Duration::from_secs(1);
        let options: [(&str, Set, [bool; 5]); 4] = [
            // With 0, 1 ns, 1 ms, a century and MAX.
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
                        // Its task outlives an outage, and what comes after it.
                        server.refuse_for(second * 90);
                        server.disconnect_all();
                        tokio::time::sleep(second * 100).await;
                        client.exists("/").await.expect("the client goes on");
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
            .expect("servers grant what they like");
        client.close().await;
    }
}
