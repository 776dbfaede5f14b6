//! Clients that write and read all the time, and record which writes were acknowledged.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::sleep;
use zk_session::{Client, OpError, Outcome, Stat, Version};
use zk_tests::wait::{catch_up, soon};

use crate::PERSISTENT;

/// The clients, each with a znode of its own.
pub(super) struct Load {
    writers: JoinSet<()>,
    shared: Arc<Shared>,
}

struct Shared {
    records: Vec<Mutex<Record>>,
    service: Mutex<Gap>,
    is_over: AtomicBool,
}

/// The writes of one client to its znode. The version of the znode counts the applied writes.
#[derive(Debug)]
struct Record {
    /// Number of acknowledged writes, and of writes with an unknown outcome.
    acknowledged: i32,
    unknown: i32,
    /// Version and value of the last acknowledged write.
    version: i32,
    value: u64,
    service: Gap,
    problems: Vec<String>,
}

/// The longest time without an acknowledged write.
#[derive(Debug)]
struct Gap {
    last: Instant,
    longest: Duration,
}

impl Load {
    pub(super) async fn start(clients: Vec<Client>) -> Self {
        for (index, client) in clients.iter().enumerate() {
            client.create(&path(index), "0", PERSISTENT).await.unwrap();
        }
        let records = clients.iter().map(|_| Mutex::new(Record::new())).collect();
        let service = Mutex::new(Gap::new());
        let shared = Arc::new(Shared { records, service, is_over: AtomicBool::new(false) });
        let mut writers = JoinSet::new();
        for (index, client) in clients.into_iter().enumerate() {
            writers.spawn(write_and_read(client, index, Arc::clone(&shared)));
        }
        Self { writers, shared }
    }

    pub(super) fn begin_round(&self) {
        held(&self.shared.service).longest = Duration::ZERO;
        for record in &self.shared.records {
            held(record).service.longest = Duration::ZERO;
        }
    }

    /// Returns the longest times without an acknowledged write since the round began: the longest
    /// time in which no client had one, and the longest time of a single client.
    pub(super) fn gaps(&self) -> [Duration; 2] {
        let records = self.shared.records.iter();
        let of_one = records.map(|record| held(record).service.longest).max();
        [held(&self.shared.service).longest, of_one.unwrap_or_default()]
    }

    /// Returns acknowledged writes that are missing so far, and other problems.
    pub(super) async fn lost(&self, observer: &Client) -> Vec<String> {
        let mut problems = Vec::new();
        for (index, record) in self.shared.records.iter().enumerate() {
            let (version, value) = {
                let mut record = held(record);
                problems.append(&mut record.problems);
                (record.version, record.value)
            };
            let (now, stat) = read_at_leader(observer, index).await;
            if stat.version.0 < version || now < value {
                problems.push(format!("{now} in {stat:?}, but {value} was written as {version}"));
            }
        }
        problems
    }

    /// Ends the load. Returns acknowledged writes that are missing, and other problems.
    pub(super) async fn end(self, observer: &Client) -> Vec<String> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        soon("the end of the load", self.writers.join_all()).await;
        let mut problems = Vec::new();
        let (mut acknowledged, mut unknown) = (0, 0);
        for (index, record) in self.shared.records.iter().enumerate() {
            let (_, stat) = read_at_leader(observer, index).await;
            let mut record = held(record);
            problems.append(&mut record.problems);
            let possible = record.acknowledged..=record.acknowledged + record.unknown;
            if !possible.contains(&stat.version.0) {
                problems.push(format!("{record:?}, but there were {:?} writes", stat.version));
            }
            acknowledged += record.acknowledged;
            unknown += record.unknown;
        }
        eprintln!("election: {acknowledged} writes are there, {unknown} have an unknown outcome");
        problems
    }
}

impl Record {
    fn new() -> Self {
        let service = Gap::new();
        Self { acknowledged: 0, unknown: 0, version: 0, value: 0, service, problems: Vec::new() }
    }

    fn written(&mut self, value: u64, result: Result<Stat, OpError>) -> bool {
        match result {
            Ok(stat) => {
                if stat.version.0 <= self.version {
                    self.problems.push(format!("{value}: {:?} after {self:?}", stat.version));
                }
                self.acknowledged += 1;
                (self.version, self.value) = (stat.version.0, value);
                self.service.end();
                true
            }
            Err(OpError::ConnectionLoss { outcome, .. }) => {
                self.unknown += i32::from(outcome == Outcome::Unknown);
                false
            }
            Err(error) => {
                self.problems.push(format!("{value}: {error}"));
                false
            }
        }
    }

    fn read(&mut self, result: Result<(Bytes, Stat), OpError>) {
        match result {
            Ok((_, Stat { version: Version(version), .. })) if version < self.version => {
                self.problems.push(format!("read version {version} after {self:?}"));
            }
            Ok(_) | Err(OpError::ConnectionLoss { .. }) => {}
            Err(error) => self.problems.push(format!("read: {error}")),
        }
    }
}

impl Gap {
    fn new() -> Self {
        Self { last: Instant::now(), longest: Duration::ZERO }
    }

    fn end(&mut self) {
        self.longest = self.longest.max(self.last.elapsed());
        self.last = Instant::now();
    }
}

async fn write_and_read(client: Client, index: usize, shared: Arc<Shared>) {
    let path = path(index);
    for value in 1.. {
        if shared.is_over.load(Ordering::Relaxed) {
            return;
        }
        let result = client.set_data(&path, value.to_string(), None).await;
        if held(&shared.records[index]).written(value, result) {
            held(&shared.service).end();
        }
        let result = client.get_data(&path).await;
        held(&shared.records[index]).read(result);
        sleep(PAUSE).await;
    }
}

/// Returns the value and stat of a client's znode.
async fn read_at_leader(observer: &Client, index: usize) -> (u64, Stat) {
    let path = path(index);
    soon("the commits of others", catch_up(observer)).await;
    let (data, stat) = soon("a reply", observer.get_data(&path)).await.unwrap();
    (str::from_utf8(&data).unwrap().parse().unwrap(), stat)
}

fn path(index: usize) -> String {
    format!("/load-{index}")
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics while it has the lock")
}

/// Pause between a read and the next write, so that clients and servers can share a machine.
const PAUSE: Duration = Duration::from_millis(5);
