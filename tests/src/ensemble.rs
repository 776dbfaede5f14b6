//! The servers that `tests/ensemble/run` has started, one by one: who leads, and faults of whole
//! servers.
//!
//! A fault lasts until it is healed or dropped, so that a test that fails leaves nothing behind.
//! It acts by the `docker` command on the containers that the environment names, and on no other.
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

/// All servers. There is one of these at a time in a process: faults are for the test that asked
/// for them.
#[derive(Debug)]
pub struct Ensemble {
    servers: Vec<Server>,
    /// The Docker network by which the servers talk to each other.
    peers: String,
    _alone: MutexGuard<'static, ()>,
}

/// One of the servers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Server {
    /// As the servers count themselves, from 1.
    pub number: usize,
    /// Where clients reach it.
    pub address: SocketAddr,
    container: String,
}

/// What a server is while it serves.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "complete for servers that vote")]
pub enum Role {
    /// One of those who follow the leader.
    Follower,
    /// The one who orders all writes.
    Leader,
}

impl Ensemble {
    /// Waits for its turn, and until the ensemble that the environment names is whole.
    ///
    /// # Panics
    ///
    /// If there is none, or it does not become whole.
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

    /// The same, of servers with the tick and the limit of ZooKeeper's sample configuration, which
    /// are those that a client assumes unless it is told others.
    ///
    /// # Panics
    ///
    /// As [`take`](Self::take), and if the servers have other values.
    pub async fn take_like_the_sample() -> Self {
        let ensemble = Self::take().await;
        for server in &ensemble.servers {
            let answer = soon("a configuration", server.ask("conf")).await;
            let answer = answer.unwrap_or_else(|error| panic!("{server}: {error}"));
            for line in SAMPLE {
                let is_there = answer.lines().any(|one| one == line);
                assert!(is_there, "{server} has not {line}: see tests/ensemble/run\n{answer}");
            }
        }
        ensemble
    }

    /// All servers, in the order of their numbers.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Waits until somebody leads.
    ///
    /// # Panics
    ///
    /// If nobody ever does.
    pub async fn leader(&self) -> Server {
        self.with_role(Role::Leader, None).await
    }

    /// Waits until somebody else leads.
    ///
    /// # Panics
    ///
    /// If nobody ever does.
    pub async fn leader_but(&self, old: &Server) -> Server {
        self.with_role(Role::Leader, Some(old)).await
    }

    /// Waits until somebody follows: the first who does.
    ///
    /// # Panics
    ///
    /// If nobody ever does.
    pub async fn follower(&self) -> Server {
        self.with_role(Role::Follower, None).await
    }

    /// Waits until somebody else follows.
    ///
    /// # Panics
    ///
    /// If nobody ever does.
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

    /// Waits until one leads and all others follow.
    ///
    /// # Panics
    ///
    /// If that never happens.
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

    /// Kills a server; it starts again when it is healed. Its data is kept.
    pub async fn kill(&self, server: &Server) -> Fault {
        let container = &server.container;
        Fault::begin(&["kill", container], &["start", container]).await
    }

    /// Stops all processes of a server; they go on when it is healed. Its connections stay open.
    pub async fn pause(&self, server: &Server) -> Fault {
        let container = &server.container;
        Fault::begin(&["pause", container], &["unpause", container]).await
    }

    /// Takes a server off the network of its peers. Its clients still reach it, and it answers
    /// them until it notices.
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
    /// Its role; `None` while it does not serve.
    ///
    /// # Panics
    ///
    /// If it has a role that the servers of this ensemble do not have.
    pub async fn role(&self) -> Option<Role> {
        let answer = timeout(ANSWER_PATIENCE, self.ask("srvr")).await.ok()?.ok()?;
        match answer.lines().find_map(|line| line.strip_prefix("Mode: "))? {
            "leader" => Some(Role::Leader),
            "follower" => Some(Role::Follower),
            other => panic!("server {} is a {other}", self.number),
        }
    }

    /// Asks one of the four-letter words.
    async fn ask(&self, word: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.address).await?;
        stream.write_all(word.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server {}", self.number)
    }
}

/// What is wrong with a server, until it is healed or dropped.
#[derive(Debug)]
#[must_use = "it is healed when it is dropped"]
pub struct Fault {
    remedy: Option<Vec<String>>,
}

impl Fault {
    async fn begin(fault: &[&str], remedy: &[&str]) -> Self {
        // Before the fault: whoever is dropped in between must not leave it behind.
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

/// The test has failed, and the runtime may be gone: this blocks, and what fails is only told.
impl Drop for Fault {
    fn drop(&mut self) {
        let Some(remedy) = self.remedy.take() else { return };
        let done = std::process::Command::new("docker").args(&remedy).output();
        if !done.as_ref().is_ok_and(|output| output.status.success()) {
            eprintln!("docker {remedy:?}: {done:?}");
        }
    }
}

async fn docker(arguments: &[&str]) {
    let command =
        Command::new("docker").args(arguments).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = soon(&format!("docker {arguments:?}"), command).await;
    let output = output.expect("the docker command is there: it has started the ensemble");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "docker {arguments:?}: {complaint}");
}

const SAMPLE: [&str; 2] = ["tickTime=2000", "syncLimit=5"];
/// A server that is paused never answers, and one that elects says so at once.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
