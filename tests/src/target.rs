//! The server that a suite runs against. The list of tests is the same for every target.
//!
//! The environment variable `ZK_CONNECT` (`host:port,host:port`) names an ensemble. Without this
//! variable, each test starts its own in-process server on loopback TCP. If the ensemble cannot be
//! reached, every test fails with that reason.
//!
//! If the variable [`LAG`] is set, the in-process server is an ensemble whose followers lag, and the
//! clients of a fixture take turns with its members. A test that lacks a sync, which fails on a real
//! ensemble now and then, fails there almost always.
//!
//! The ensemble should grant short session timeouts (`tickTime=500`), because tests of expiry wait
//! for the timeout that it grants, and long ones (`maxSessionTimeout=30000`), for the other tests.

use std::env;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use zk_session::recipe::Session;
use zk_session::{Client, ClientBuilder, ConnectString, ErrorCode, Host, OpError};
use zk_testserver::{ServerConfig, TestServer};

use crate::proxy::Proxy;
use crate::wait::PATIENCE;
use crate::world::REAP_INTERVAL;

/// Returns the session timeout of clients that must neither expire nor put a lease at risk.
///
/// It is longer on an ensemble, whose servers share the machine with other suites: they were once
/// silent for so long that a lease of ten seconds ended.
pub fn long_session() -> Duration {
    Duration::from_secs(if env::var_os("ZK_CONNECT").is_some() { 30 } else { 10 })
}

/// Returns the session timeout of clients that are meant to expire: short, but long enough that no
/// session expires, and no connection is given up, because the machine is busy. Servers of an
/// ensemble share the machine with other suites, and were once silent for 1.3 s, the time after
/// which a client with a session of two seconds gives up a connection.
pub fn short_session() -> Duration {
    Duration::from_secs(if env::var_os("ZK_CONNECT").is_some() { 5 } else { 2 })
}

/// Credentials with which the cleanup removes znodes that a test has protected.
pub const CREDENTIALS: &str = "conformance:secret";

/// The environment variable with the lag in milliseconds of the followers of the in-process server. Its
/// leader then takes a third of this time to apply its commits.
pub const LAG: &str = "ZK_LAG_MS";

/// The servers under test.
#[derive(Debug)]
pub struct Target {
    hosts: String,
    in_process: Option<TestServer>,
    /// How many hosts were chosen for clients.
    chosen: AtomicUsize,
}

impl Target {
    /// Selects the ensemble that the environment names, or starts an in-process server.
    ///
    /// # Panics
    ///
    /// If `ZK_CONNECT` has a chroot, or the in-process server cannot listen.
    pub async fn start() -> Self {
        match env::var("ZK_CONNECT") {
            Ok(hosts) => {
                assert!(!hosts.contains('/'), "ZK_CONNECT={hosts}: name hosts, without a chroot");
                Self { hosts, in_process: None, chosen: AtomicUsize::new(0) }
            }
            Err(_) => {
                let tick = Duration::from_millis(500);
                let config = ServerConfig::default().tick(tick).extended_types(true);
                let mut config = config.enforce_quota(true).reap_interval(REAP_INTERVAL);
                let mut members = 1;
                if let Some(lag) = lag() {
                    members = 4;
                    config = config.members(members).lag(lag).leader_unapplied(lag / 3);
                }
                let server = TestServer::start(config);
                let mut hosts = Vec::new();
                for member in 0..members {
                    let address = server.member(member).listen("127.0.0.1:0").await;
                    hosts.push(address.expect("a free loopback port").to_string());
                }
                let (hosts, in_process) = (hosts.join(","), Some(server));
                Self { hosts, in_process, chosen: AtomicUsize::new(0) }
            }
        }
    }

    /// Returns the servers as a connect string.
    pub fn hosts(&self) -> &str {
        &self.hosts
    }

    /// Returns the servers for the next client. Clients of an ensemble choose among all servers.
    /// In-process, none of the servers can fail, and the clients take turns with them, so that two
    /// clients in succession are never on the same one of three.
    fn next_hosts(&self) -> &str {
        if self.is_external() {
            return &self.hosts;
        }
        let all = self.hosts.split(',');
        let turn = self.chosen.fetch_add(1, Ordering::Relaxed);
        all.cycle().nth(turn).unwrap_or(&self.hosts)
    }

    /// Returns true for an ensemble, which other tests may use at the same time.
    pub fn is_external(&self) -> bool {
        self.in_process.is_none()
    }

    /// Returns the address of the first server that accepts connections, for tests without the
    /// client.
    ///
    /// # Panics
    ///
    /// If no server accepts connections.
    pub async fn address(&self) -> SocketAddr {
        let parsed: ConnectString = self.hosts.parse().expect("the client could read it");
        for host in &parsed.hosts {
            if let Some(address) = reach(host).await {
                return address;
            }
        }
        panic!("no server accepts connections, ZK_CONNECT={}", self.hosts)
    }

    /// Returns the addresses of all servers that accept connections.
    ///
    /// # Panics
    ///
    /// If no server accepts connections.
    pub async fn addresses(&self) -> Vec<SocketAddr> {
        let parsed: ConnectString = self.hosts.parse().expect("the client could read it");
        let mut addresses = Vec::new();
        for host in &parsed.hosts {
            addresses.extend(reach(host).await);
        }
        assert!(!addresses.is_empty(), "no server accepts connections, ZK_CONNECT={}", self.hosts);
        addresses
    }

    async fn client(&self) -> Client {
        let builder = Client::builder(self.next_hosts()).session_timeout(long_session());
        // The error message must show only what is wrong with the target.
        builder.connect().await.unwrap_or_else(|error| {
            panic!("the server to test cannot be used, ZK_CONNECT={}: {error}", self.hosts)
        })
    }
}

/// Returns the lag that the environment asks for.
fn lag() -> Option<Duration> {
    let lag = env::var(LAG).ok()?;
    let ms = lag.parse().unwrap_or_else(|error| panic!("{LAG}={lag}: {error}"));
    Some(Duration::from_millis(ms))
}

/// Returns the address of a server if it accepts connections. A server that is down must not fail a
/// test.
async fn reach(host: &Host) -> Option<SocketAddr> {
    let stream = TcpStream::connect((host.name.as_str(), host.port)).await.ok()?;
    stream.peer_addr().ok()
}

/// A subtree for one test. Dropping the fixture removes it.
#[derive(Debug)]
pub struct Fixture {
    /// The servers.
    pub target: Target,
    /// A client without a chroot.
    pub observer: Client,
    chroot: String,
    session_timeout: Duration,
}

impl Fixture {
    /// Creates a fixture for the test that runs on this thread. Its clients have a [`long_session`].
    ///
    /// # Panics
    ///
    /// If the target cannot be used.
    pub async fn start() -> Self {
        Self::with_timeout(long_session()).await
    }

    /// The same, with another session timeout for its clients.
    ///
    /// # Panics
    ///
    /// If the target cannot be used.
    pub async fn with_timeout(session_timeout: Duration) -> Self {
        let target = Target::start().await;
        let observer = target.client().await;
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("test").replace("::", ".");
        let chroot =
            format!("/conformance-{:016x}/{test}", Session::of(&observer).unique_id() as u64);
        Self { target, observer, chroot, session_timeout }
    }

    /// Returns the path of the subtree on the servers. The first client creates it.
    pub fn chroot(&self) -> &str {
        &self.chroot
    }

    /// Converts a path of the test's clients to the path on the servers, which the observer also
    /// uses.
    pub fn full(&self, path: &str) -> String {
        format!("{}{path}", self.chroot)
    }

    /// Returns the builder of a client whose root is the chroot.
    pub fn builder(&self) -> ClientBuilder {
        self.builder_at(self.target.next_hosts())
    }

    /// Returns the builder of a client whose root is the chroot, with other hosts, such as a proxy.
    pub fn builder_at(&self, hosts: impl std::fmt::Display) -> ClientBuilder {
        Client::builder(format!("{hosts}{}", self.chroot)).session_timeout(self.session_timeout)
    }

    /// Waits until every server has applied all changes that were committed before the call.
    ///
    /// After a reply, only the server that sent it is known to have applied the change. The leader
    /// of ZooKeeper 3.8 checks the permissions of a write against the access control list that it
    /// has applied, not against a list that is committed but not yet applied.
    ///
    /// # Panics
    ///
    /// If a server cannot be reached.
    pub async fn settle(&self) {
        for address in self.target.addresses().await {
            let client = self.builder_at(address).connect().await.expect("it accepts connections");
            client.sync("/").await.expect("it has just replied");
            client.close().await;
        }
    }

    /// Connects a client whose root is the chroot.
    ///
    /// # Panics
    ///
    /// If the client cannot connect.
    pub async fn client(&self) -> Client {
        self.builder().connect().await.expect("the observer was connected")
    }

    /// Starts a proxy in front of the first server, and connects a client through it.
    ///
    /// The client waits so long for each handshake that a busy server replies to all of them. A
    /// server that finds the request of an abandoned handshake later closes the connection that the
    /// session uses by then, and the test would lose a connection that no fault has cut.
    ///
    /// # Panics
    ///
    /// If the client cannot connect.
    pub async fn proxied(&self) -> (Proxy, Client) {
        let proxy = self.proxy().await;
        let builder = self.builder_at(proxy.addr()).connect_timeout(PATIENCE / 2);
        let client = builder.connect().await.expect("the observer was connected");
        (proxy, client)
    }

    /// Starts a proxy in front of the first server.
    pub async fn proxy(&self) -> Proxy {
        Proxy::start(self.target.address().await).await
    }

    /// Starts a proxy in front of each server.
    ///
    /// # Panics
    ///
    /// If no server accepts connections.
    pub async fn proxies(&self) -> Vec<Proxy> {
        let mut proxies = Vec::new();
        for address in self.target.addresses().await {
            proxies.push(Proxy::start(address).await);
        }
        proxies
    }
}

/// The cleanup has its own thread, runtime and client, because the drop blocks the runtime of the
/// test, which may be broken after a failure anyway.
impl Drop for Fixture {
    fn drop(&mut self) {
        if !self.target.is_external() {
            return;
        }
        let (hosts, chroot) = (self.target.hosts.clone(), self.chroot.clone());
        let cleanup = std::thread::Builder::new().name("cleanup".into()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime can be built").block_on(async {
                let builder = Client::builder(hosts).session_timeout(long_session());
                let client = builder.auth("digest", CREDENTIALS).connect().await?;
                let parent = chroot.rsplit_once('/').map_or("", |(parent, _)| parent);
                remove(&client, parent).await.map_err(|error| format!("{parent}: {error}"))?;
                client.close().await;
                Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
            })
        });
        let result = cleanup.expect("a thread can be started").join();
        if !std::thread::panicking() {
            result.expect("the clean-up does not panic").expect("the test's znodes can be removed");
        }
    }
}

/// Removes a znode and everything below it. If the connection is lost, it begins again: the servers
/// of an ensemble may still be returning from the last fault of a test.
///
/// # Errors
///
/// A server refuses the removal, unless the reason is that the znode is gone, or connections are
/// lost for too long.
pub async fn remove(client: &Client, path: &str) -> Result<(), OpError> {
    let deadline = client.now() + PATIENCE;
    loop {
        match remove_levels(client, path).await {
            Err(OpError::ConnectionLoss { .. } | OpError::SessionExpired { .. })
                if client.now() < deadline => {}
            removed => return removed,
        }
    }
}

/// Removes a znode and everything below it, level by level.
async fn remove_levels(client: &Client, path: &str) -> Result<(), OpError> {
    loop {
        let children = match client.get_children(path).await {
            Err(OpError::Server { code: ErrorCode::NO_NODE, .. }) => return Ok(()),
            children => children?,
        };
        let deletes: Vec<_> = children
            .iter()
            .map(|name| (name, client.delete(&format!("{path}/{name}"), None)))
            .collect();
        for (name, delete) in deletes {
            match delete.await {
                Ok(()) | Err(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {}
                Err(OpError::Server { code: ErrorCode::NOT_EMPTY, .. }) => {
                    Box::pin(remove_levels(client, &format!("{path}/{name}"))).await?;
                }
                Err(error) => return Err(error),
            }
        }
        match client.delete(path, None).await {
            Ok(()) | Err(OpError::Server { code: ErrorCode::NO_NODE, .. }) => return Ok(()),
            // A session that had not ended yet created another znode after the list.
            Err(OpError::Server { code: ErrorCode::NOT_EMPTY, .. }) => {}
            Err(error) => return Err(error),
        }
    }
}
