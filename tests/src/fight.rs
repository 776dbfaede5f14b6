//! Processes that contend for one lock, each behind its own proxies.
#![expect(clippy::disallowed_methods, reason = "other processes are watched, in real time")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};
use zk_session::recipe::Session;
use zk_session::{CreateMode, ErrorCode, OpError};

use crate::case::LOCK;
use crate::grants::{Contest, Event, Record, read};
use crate::proxy::{Proxy, Statistics};
use crate::target::Fixture;
use crate::wait::PATIENCE;

/// The processes, their proxies and their log.
#[derive(Debug)]
pub struct Fight {
    /// The log to which all processes append.
    pub log: PathBuf,
    contenders: Vec<Child>,
    /// For each process, a proxy for each server.
    proxies: Vec<Vec<Proxy>>,
}

/// Paths that Cargo provides only to the tests of this package.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "written out by the suites")]
pub struct Build<'a> {
    /// The program of a process.
    pub contender: &'a str,
    /// A folder for logs.
    pub folder: &'a str,
}

/// The network between the processes and the servers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "there is no third kind")]
pub enum Network {
    /// The network does not fail.
    Calm,
    /// The network randomly cuts connections, loses replies and refuses connections.
    Failing,
}

impl Fight {
    /// Starts the processes.
    ///
    /// # Panics
    ///
    /// If they cannot be started.
    pub async fn start(
        fixture: &Fixture,
        build: Build<'_>,
        contest: Contest,
        processes: usize,
        network: Network,
        seed: u64,
    ) -> Self {
        let name = format!(
            "contention-{contest}-{:016x}.log",
            Session::of(&fixture.observer).unique_id() as u64
        );
        let log = Path::new(build.folder).join(name);
        fs::write(&log, "").expect("the log can be written");
        if contest.is_numbered {
            // The directory is not a container, because the server may delete a container while it
            // is empty, and the sequence numbers of the znodes must keep growing.
            let client = fixture.client().await;
            for path in ["/locks", LOCK] {
                let created = client.create(path, "", CreateMode::Persistent).await;
                created.expect("the chroot is empty");
            }
        }
        let mut fight = Self { log, contenders: Vec::new(), proxies: Vec::new() };
        for process in 0..processes {
            let seed = seed.wrapping_add(process as u64);
            let mut proxies = fixture.proxies().await;
            if network == Network::Failing {
                for proxy in &mut proxies {
                    // All proxies of a process have the same faults at the same time, because its
                    // whole network fails.
                    proxy.chaos(seed, FAULT_INTERVAL_MEAN);
                }
            }
            let hosts: Vec<String> = proxies.iter().map(|proxy| proxy.addr().to_string()).collect();
            let contender = Command::new(build.contender)
                .arg(process.to_string())
                .arg(format!("{}{}", hosts.join(","), fixture.chroot()))
                .arg(&fight.log)
                .arg(seed.to_string())
                .arg(contest.to_string())
                .stdin(Stdio::piped())
                .kill_on_drop(true)
                .spawn();
            fight.contenders.push(contender.expect("the contender was built with this test"));
            fight.proxies.push(proxies);
        }
        eprintln!("{contest}: CONTENTION_SEED={seed}, log: {}", fight.log.display());
        fight
    }

    /// Cuts a process off from all servers for this time.
    pub fn cut_off(&self, process: usize, time: Duration) {
        for proxy in self.proxies.get(process).into_iter().flatten() {
            proxy.refuse_for(time);
            proxy.cut_all();
        }
    }

    /// Returns whether a process has ended. A process ends before [`end`](Self::end) only if it
    /// fails.
    pub fn one_has_ended(&mut self) -> bool {
        self.contenders.iter_mut().any(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Tells the processes to end, and waits for them. Returns all problems.
    ///
    /// # Panics
    ///
    /// If a process can be neither ended nor killed.
    pub async fn end(&mut self) -> Vec<String> {
        for contender in &mut self.contenders {
            drop(contender.stdin.take());
        }
        let mut problems = Vec::new();
        for (process, contender) in self.contenders.iter_mut().enumerate() {
            match timeout(END_PATIENCE, contender.wait()).await {
                Ok(Ok(status)) if status.success() => {}
                Ok(ended) => problems.push(format!("process {process}: {ended:?}")),
                Err(_) => {
                    problems.push(format!("process {process} hangs"));
                    contender.kill().await.expect("a child can be killed");
                }
            }
        }
        problems
    }

    /// Returns the records so far.
    ///
    /// # Panics
    ///
    /// If the log cannot be read.
    pub fn records(&self) -> Vec<Record> {
        let log = fs::read_to_string(&self.log).expect("the log can be read");
        read(&log).unwrap_or_else(|problem| panic!("{}: {problem}", self.log.display()))
    }

    /// Returns whether every process was granted the lock `grants_min` times since line `from` of
    /// the log.
    pub fn all_served(&self, records: &[Record], grants_min: usize, from: usize) -> bool {
        let grants = |process: usize| {
            let is_grant =
                |record: &&Record| record.event == Event::Grant && record.process == process;
            records.iter().skip(from).filter(is_grant).count()
        };
        (0..self.contenders.len()).all(|process| grants(process) >= grants_min)
    }

    /// Returns the sum of the statistics of all proxies.
    pub fn network(&self) -> Statistics {
        let mut sum = Statistics::default();
        for one in self.proxies.iter().flatten().map(Proxy::statistics) {
            sum.accepted += one.accepted;
            sum.refused += one.refused;
            sum.unreachable += one.unreachable;
            sum.cut += one.cut;
            sum.lost += one.lost;
        }
        sum
    }
}

/// Waits until the lock's directory contains no contender, and no other ephemeral exists. Sessions
/// that could not be closed expire.
///
/// # Panics
///
/// If something is left.
pub async fn nothing_is_left(fixture: &Fixture) {
    let mut ephemerals = Vec::new();
    let seen = timeout(PATIENCE, async {
        loop {
            ephemerals = ephemerals_below(fixture, fixture.chroot()).await;
            if ephemerals.is_empty() {
                break;
            }
            sleep(LOOK_INTERVAL).await;
        }
    });
    let is_clean = seen.await.is_ok();
    assert!(is_clean, "left behind: {ephemerals:?}");
    let children = children(fixture, &fixture.full(LOCK)).await;
    assert_eq!(children, [""; 0], "left in the directory of the lock");
}

async fn ephemerals_below(fixture: &Fixture, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut paths = vec![path.to_owned()];
    while let Some(path) = paths.pop() {
        let stat = fixture.observer.exists(&path).await.expect("the observer is connected");
        if stat.is_some_and(|stat| stat.ephemeral_owner.is_some()) {
            found.push(path.clone());
        }
        let below = children(fixture, &path).await;
        paths.extend(below.iter().map(|name| format!("{path}/{name}")));
    }
    found
}

async fn children(fixture: &Fixture, path: &str) -> Vec<String> {
    match fixture.observer.get_children(path).await {
        Ok(names) => names.iter().map(ToString::to_string).collect(),
        // Servers delete empty containers.
        Err(OpError::Server { code: ErrorCode::NO_NODE, .. }) => Vec::new(),
        Err(error) => panic!("cannot list {path}: {error}"),
    }
}

const FAULT_INTERVAL_MEAN: Duration = Duration::from_secs(1);
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum time until a contender ends. It ends after its round, which consists of an acquire, a
/// release and a close, each with its own timeout.
const END_PATIENCE: Duration = Duration::from_secs(4 * PATIENCE.as_secs());
