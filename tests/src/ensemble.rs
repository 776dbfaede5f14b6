//! The servers that `tests/ensemble/run` has started: their roles, and faults of whole servers.
//!
//! A fault lasts until it is healed or dropped, so that a failing test leaves nothing behind.
//! Faults use the `docker` command, and act only on the containers that the environment names.
#![expect(clippy::disallowed_methods, reason = "servers in containers live in real time")]

use std::env;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{sleep, timeout};

use crate::wait::{PATIENCE, soon};

/// All servers. A process has only one `Ensemble` at a time, so no test is affected by the faults
/// of another test.
#[derive(Debug)]
pub struct Ensemble {
    servers: Vec<Server>,
    /// The Docker network between the servers.
    peers: String,
    _alone: MutexGuard<'static, ()>,
}

/// A server of the ensemble.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Server {
    /// Number of the server in the configuration of the ensemble, from 1.
    pub number: usize,
    /// Address for clients.
    pub address: SocketAddr,
    container: String,
}

/// Role of a server that serves clients.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "complete for servers that vote")]
pub enum Role {
    /// The server follows the leader.
    Follower,
    /// The server is the leader, and orders all writes.
    Leader,
}

impl Ensemble {
    /// Waits until no other test uses the ensemble and all its servers serve clients.
    ///
    /// # Panics
    ///
    /// If the environment names no ensemble, or some server does not serve clients in time.
    pub async fn take() -> Self {
        static ALONE: Mutex<()> = Mutex::const_new(());
        let alone = ALONE.lock().await;
        let (containers, ports) = (variable("ENSEMBLE_CONTAINERS"), variable("ENSEMBLE_PORTS"));
        let ports = ports.split_whitespace().map(|port| {
            let port: u16 = port.parse().unwrap_or_else(|_| panic!("ENSEMBLE_PORTS has {port}"));
            SocketAddr::from((Ipv4Addr::LOCALHOST, port))
        });
        let servers = (1..).zip(containers.split_whitespace().zip(ports));
        let servers: Vec<Server> = servers
            .map(|(number, (container, address))| Server {
                number,
                address,
                container: container.to_owned(),
            })
            .collect();
        assert!(servers.len() >= 3, "too few to lose one: {servers:?}");
        let ensemble = Self { servers, peers: variable("ENSEMBLE_PEERS"), _alone: alone };
        ensemble.whole().await;
        ensemble
    }

    /// Takes an ensemble like [`take`](Self::take). Its servers must have the tick and the sync
    /// limit of ZooKeeper's sample configuration, which a client assumes by default.
    ///
    /// # Panics
    ///
    /// As for [`take`](Self::take), and if the servers have other values.
    pub async fn take_like_the_sample() -> Self {
        let ensemble = Self::take().await;
        for server in &ensemble.servers {
            let reply = soon("a configuration", server.ask("conf")).await;
            let reply = reply.unwrap_or_else(|error| panic!("{server}: {error}"));
            for line in SAMPLE {
                let is_there = reply.lines().any(|one| one == line);
                assert!(is_there, "{server} has not {line}: see tests/ensemble/run\n{reply}");
            }
        }
        ensemble
    }

    /// Returns all servers, in the order of their numbers.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Waits until a server leads.
    ///
    /// # Panics
    ///
    /// If no server leads in time.
    pub async fn leader(&self) -> Server {
        self.with_role(Role::Leader, None).await
    }

    /// Waits until a server other than `old` leads.
    ///
    /// # Panics
    ///
    /// If no other server leads in time.
    pub async fn leader_but(&self, old: &Server) -> Server {
        self.with_role(Role::Leader, Some(old)).await
    }

    /// Waits until a server follows, and returns the first follower.
    ///
    /// # Panics
    ///
    /// If no server follows in time.
    pub async fn follower(&self) -> Server {
        self.with_role(Role::Follower, None).await
    }

    /// Waits until a server other than `other` follows.
    ///
    /// # Panics
    ///
    /// If no other server follows in time.
    pub async fn follower_but(&self, other: &Server) -> Server {
        self.with_role(Role::Follower, Some(other)).await
    }

    async fn with_role(&self, role: Role, but: Option<&Server>) -> Server {
        soon(&format!("a {role:?}, but not {but:?}"), async {
            loop {
                for server in &self.servers {
                    if Some(server) != but && server.role().await == Some(role) {
                        return server.clone();
                    }
                }
                sleep(LOOK_INTERVAL).await;
            }
        })
        .await
    }

    /// Waits until one server leads and all others follow.
    ///
    /// # Panics
    ///
    /// If that does not happen in time.
    pub async fn whole(&self) {
        let mut roles = Vec::new();
        let whole = timeout(PATIENCE, async {
            loop {
                roles.clear();
                for server in &self.servers {
                    roles.push(server.role().await);
                }
                let count = |role| roles.iter().filter(|seen| **seen == Some(role)).count();
                if count(Role::Leader) == 1 && count(Role::Follower) + 1 == roles.len() {
                    return;
                }
                sleep(LOOK_INTERVAL).await;
            }
        });
        let is_whole = whole.await.is_ok();
        assert!(is_whole, "the ensemble is not whole: {roles:?}");
    }

    /// Kills a server. Healing starts it again, with its data.
    pub async fn kill(&self, server: &Server) -> Fault {
        let container = &server.container;
        Fault::begin(&["kill", container], &["start", container]).await
    }

    /// Stops all processes of a server. Healing resumes them. Its connections stay open.
    pub async fn pause(&self, server: &Server) -> Fault {
        let container = &server.container;
        Fault::begin(&["pause", container], &["unpause", container]).await
    }

    /// Removes a server from the network of its peers. Clients still reach it, and it replies until
    /// it notices the fault.
    pub async fn cut_off(&self, server: &Server) -> Fault {
        let Server { container, number, .. } = server;
        let name = format!("peer{number}");
        Fault::begin(
            &["network", "disconnect", &self.peers, container],
            &["network", "connect", "--alias", &name, &self.peers, container],
        )
        .await
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: tests/ensemble/run starts an ensemble, and this suite on it")
    })
}

impl Server {
    /// Returns the role of the server, or `None` while it does not serve clients.
    ///
    /// # Panics
    ///
    /// If the server reports another role.
    pub async fn role(&self) -> Option<Role> {
        let reply = timeout(REPLY_PATIENCE, self.ask("srvr")).await.ok()?.ok()?;
        match reply.lines().find_map(|line| line.strip_prefix("Mode: "))? {
            "leader" => Some(Role::Leader),
            "follower" => Some(Role::Follower),
            // It has no quorum, so it serves nothing that counts.
            "read-only" => None,
            other => panic!("server {} is a {other}", self.number),
        }
    }

    /// Sends a four-letter word, and returns the reply.
    async fn ask(&self, word: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.address).await?;
        stream.write_all(word.as_bytes()).await?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await?;
        Ok(reply)
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server {}", self.number)
    }
}

/// A fault of a server. It lasts until it is healed or dropped.
#[derive(Debug)]
#[must_use = "it is healed when it is dropped"]
pub struct Fault {
    remedy: Option<Vec<String>>,
}

impl Fault {
    async fn begin(fault: &[&str], remedy: &[&str]) -> Self {
        // The value is created before the fault begins, because a test that is dropped in between
        // must not leave the fault behind.
        let this = Self { remedy: Some(remedy.iter().copied().map(str::to_owned).collect()) };
        docker(fault).await;
        this
    }

    /// Ends the fault. The server may need some time to serve again.
    pub async fn heal(mut self) {
        let remedy = self.remedy.take().unwrap_or_default();
        let remedy: Vec<&str> = remedy.iter().map(String::as_str).collect();
        docker(&remedy).await;
    }
}

/// When this runs, the test has failed and the runtime may be gone. So the drop blocks, and only
/// prints its failures.
impl Drop for Fault {
    fn drop(&mut self) {
        let Some(remedy) = self.remedy.take() else { return };
        let done = std::process::Command::new("docker").args(&remedy).output();
        if !done.as_ref().is_ok_and(|output| output.status.success()) {
            eprintln!("docker {remedy:?}: {done:?}");
        }
    }
}

/// Runs a command of the Docker client. Repeats one that the kernel has not carried out in time: a
/// process that is busy in the kernel cannot be frozen at that moment, and the engine thaws the others
/// again and reports an error.
async fn docker(arguments: &[&str]) {
    for attempt in 1.. {
        let command =
            Command::new("docker").args(arguments).stdin(Stdio::null()).kill_on_drop(true).output();
        let output = soon(&format!("docker {arguments:?}"), command).await;
        let output = output.expect("the docker command is there: it has started the ensemble");
        if output.status.success() {
            return;
        }
        let complaint = String::from_utf8_lossy(&output.stderr);
        let may_repeat = complaint.contains(NOT_FROZEN) && attempt < FREEZES_MAX;
        assert!(may_repeat, "docker {arguments:?}, attempt {attempt}: {complaint}");
        sleep(LOOK_INTERVAL).await;
    }
}

/// What the engine says if the kernel could not stop all processes of a container.
const NOT_FROZEN: &str = "unable to freeze";
/// Maximum number of attempts to stop them.
const FREEZES_MAX: u32 = 20;
const SAMPLE: [&str; 2] = ["tickTime=2000", "syncLimit=5"];
/// Maximum wait for a reply. A paused server never replies. A server without a leader replies at
/// once that it does not serve clients.
const REPLY_PATIENCE: Duration = Duration::from_secs(1);
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
