//! Changes a tree at random, while our cache and another program follow it through connections that
//! are lost again and again, and compares what they show with what was there.
//!
//! `caches HOST:PORT CHANGES COMMAND...` starts the other program with the address of its proxy and
//! a path as the last arguments. The program prints and reads what
//! `tests/clients/CuratorCacheFollower.java` says. A wrong state of our cache is a failure; those of
//! the other program are counted.

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "this is a program")]

use std::collections::BTreeMap;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use zk_recipes::{Cache, CacheEvent, Client, CreateMode};
use zk_session::recipe::Session;
use zk_tests::proxy::Proxy;
use zk_tests::random::SplitMix64;
use zk_tests::target::remove;

type Failure = Box<dyn Error + Send + Sync>;
type Pending = Pin<Box<dyn Future<Output = Result<(), Failure>>>>;

/// Changes that are on their way to the server at the same time.
const BATCH: u64 = 50;
const BATCH_PAUSE: Duration = Duration::from_millis(25);
/// Mean time between two cuts of one connection.
const CUT_INTERVAL: Duration = Duration::from_millis(700);
/// How long the caches may take to show the last state.
const PATIENCE: Duration = Duration::from_secs(40);
/// Reconnects without which a run tests little. The client limits their rate.
const GAPS_MIN: u64 = 4;
const PARENTS: u64 = 20;
const CHILDREN: u64 = 12;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, changes, command @ ..] = &arguments[..] else {
        return Err("usage: caches HOST:PORT CHANGES COMMAND...".into());
    };
    let changes: u64 = changes.parse()?;
    let writer = Client::connect(server.clone()).await?;
    let root = format!("/caches-{:016x}", Session::of(&writer).unique_id() as u64);
    writer.create(&root, "0", CreateMode::Persistent).await?;
    let history = Shared::new(&root);

    let proxies = [Proxy::start(server.parse()?).await, Proxy::start(server.parse()?).await];
    let [own, others] = &proxies;
    let client = Client::connect(own.addr().to_string()).await?;
    let mut cache = Cache::tree(&client, &root).build()?;
    let mut other = Other::start(command, &others.addr().to_string(), &root)?;
    other.until_ready(&history).await?;
    cache.complete().await?;

    let (mut random, mut cuts) = (SplitMix64::new(1), SplitMix64::new(2));
    let writing = write(&writer, &root, changes, &history, &mut random);
    let cutting = async {
        loop {
            tokio::time::sleep(cuts.around(CUT_INTERVAL)).await;
            proxies.iter().for_each(Proxy::cut_all);
        }
    };
    let mut ours = Reader::default();
    let mut theirs = Reader::default();
    let start = Instant::now();
    tokio::select! {
        written = writing => written?,
        () = cutting => unreachable!("cuts do not end"),
        error = follow(&mut cache, &history, &mut ours) => return Err(error),
        error = other.follow(&history, &mut theirs) => return Err(error),
    }
    println!("{changes} changes in {:?}", start.elapsed());

    let expected = history.lock().current();
    let until_ours = converge_ours(&mut cache, &history, &mut ours, &expected).await?;
    let until_theirs = other.converge(&history, &mut theirs, &expected).await?;
    println!("{:8} {ours}, last state after {until_ours:?}", "ours");
    match until_theirs {
        Some(time) => println!("{:8} {theirs}, last state after {time:?}", "Curator"),
        None => println!("{:8} {theirs}, last state NOT reached in {PATIENCE:?}", "Curator"),
    }
    println!("{:?}", cache.stats());
    let stats = cache.stats();
    let is_tested = stats.gaps >= GAPS_MIN && ours.shown >= changes / 20 && theirs.shown > 0;
    other.stop().await?;
    remove(&writer, &root).await?;
    if !ours.wrong.is_empty() {
        return Err(format!("states that never were: {:#?}", ours.wrong).into());
    }
    if !is_tested {
        return Err("too few gaps, or too few changes were shown".into());
    }
    Ok(())
}

/// Each state in which each znode was, in their order. `None` means that it does not exist. States
/// are recorded before they are requested.
#[derive(Debug, Default)]
struct History {
    states: BTreeMap<String, Vec<Option<String>>>,
}

impl History {
    fn current(&self) -> BTreeMap<String, String> {
        let newest = |(path, states): (&String, &Vec<Option<String>>)| {
            Some((path.clone(), states.last()?.clone()?))
        };
        self.states.iter().filter_map(newest).collect()
    }

    fn exists(&self, path: &str) -> bool {
        self.states.get(path).and_then(|states| states.last()).is_some_and(Option::is_some)
    }

    fn push(&mut self, path: &str, state: Option<String>) {
        self.states.entry(path.to_owned()).or_insert_with(|| vec![None]).push(state);
    }
}

#[derive(Clone)]
struct Shared(Arc<Mutex<History>>);

impl Shared {
    fn new(root: &str) -> Self {
        let mut history = History::default();
        history.push(root, Some("0".to_owned()));
        Self(Arc::new(Mutex::new(history)))
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a cache has shown.
#[derive(Debug, Default)]
struct Reader {
    seen: BTreeMap<String, usize>,
    shown: u64,
    /// States in which the znode never was, or was before one that was shown earlier.
    wrong: Vec<String>,
}

impl Reader {
    fn check(&mut self, history: &Shared, path: &str, state: Option<&str>) {
        self.shown += 1;
        let from = self.seen.get(path).copied().unwrap_or_default();
        let history = history.lock();
        let states = history.states.get(path).map(Vec::as_slice).unwrap_or_default();
        let is_same = |known: &Option<String>| known.as_deref() == state;
        match states.iter().skip(from + 1).position(is_same) {
            Some(next) => drop(self.seen.insert(path.to_owned(), from + 1 + next)),
            None => self.wrong.push(format!("{path}: {state:?} behind state {from}")),
        }
    }
}

impl std::fmt::Display for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} changes shown, {} of them wrong", self.shown, self.wrong.len())
    }
}

/// Changes the tree, in batches.
async fn write(
    writer: &Client,
    root: &str,
    changes: u64,
    history: &Shared,
    random: &mut SplitMix64,
) -> Result<(), Failure> {
    let mut made = 0;
    while made < changes {
        let mut results: Vec<Pending> = Vec::new();
        while (results.len() as u64) < BATCH && made < changes {
            let parent = format!("{root}/{}", random.below(PARENTS));
            let path = match random.below(4) {
                0 => parent.clone(),
                _ => format!("{parent}/{}", random.below(CHILDREN)),
            };
            let mut history = history.lock();
            let has_parent = path == parent || history.exists(&parent);
            let has_children =
                || (0..CHILDREN).any(|child| history.exists(&format!("{path}/{child}")));
            let can_delete = path != parent || !has_children();
            let data = (made + 1).to_string();
            match (history.exists(&path), random.below(3)) {
                (true, 0) if can_delete => {
                    history.push(&path, None);
                    let delete = writer.delete(&path, None);
                    results.push(Box::pin(async { Ok(delete.await?) }));
                }
                (true, _) => {
                    history.push(&path, Some(data.clone()));
                    let set = writer.set_data(&path, data, None);
                    results.push(Box::pin(async { set.await.map(|_| ()).map_err(Into::into) }));
                }
                (false, _) if has_parent => {
                    history.push(&path, Some(data.clone()));
                    let create = writer.create(&path, data, CreateMode::Persistent);
                    results.push(Box::pin(async { create.await.map(|_| ()).map_err(Into::into) }));
                }
                (false, _) => continue,
            }
            made += 1;
        }
        for result in results {
            result.await?;
        }
        tokio::time::sleep(BATCH_PAUSE).await;
    }
    Ok(())
}

async fn follow(cache: &mut Cache, history: &Shared, reader: &mut Reader) -> Failure {
    loop {
        match cache.next().await {
            Ok(event) => check(&event, history, reader),
            Err(error) => return error.into(),
        }
    }
}

fn check(event: &CacheEvent, history: &Shared, reader: &mut Reader) {
    match event {
        CacheEvent::Added { path, node } | CacheEvent::Changed { path, node, .. } => {
            reader.check(history, path, Some(&String::from_utf8_lossy(&node.data)));
        }
        CacheEvent::Removed { path, .. } => reader.check(history, path, None),
        CacheEvent::Complete | CacheEvent::Gap | CacheEvent::Unreadable { .. } | _ => {}
    }
}

/// Follows until our cache shows the last state. Returns how long that takes.
async fn converge_ours(
    cache: &mut Cache,
    history: &Shared,
    reader: &mut Reader,
    expected: &BTreeMap<String, String>,
) -> Result<Duration, Failure> {
    let start = Instant::now();
    loop {
        let shown: BTreeMap<_, _> = cache
            .iter()
            .map(|(path, node)| (path.to_string(), String::from_utf8_lossy(&node.data).into()))
            .collect();
        if cache.is_complete() && shown == *expected {
            return Ok(start.elapsed());
        }
        match tokio::time::timeout(PATIENCE, cache.next()).await {
            Ok(event) => check(&event?, history, reader),
            Err(_) => return Err(format!("shown {shown:?}, expected {expected:?}").into()),
        }
    }
}

/// The other program.
struct Other {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start(command: &[String], server: &str, root: &str) -> Result<Self, Failure> {
        let (program, arguments) = command.split_first().ok_or("which command?")?;
        let mut child = Command::new(program)
            .args(arguments)
            .args([server, root])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        Ok(Self { child, input, output })
    }

    async fn line(&mut self) -> Result<String, Failure> {
        let line = tokio::time::timeout(PATIENCE, self.output.next_line()).await??;
        line.ok_or_else(|| "the other program has ended".into())
    }

    async fn until_ready(&mut self, history: &Shared) -> Result<(), Failure> {
        let mut reader = Reader::default();
        loop {
            let line = self.line().await?;
            if line == "ready" {
                return Ok(());
            }
            Self::check(&line, history, &mut reader);
        }
    }

    fn check(line: &str, history: &Shared, reader: &mut Reader) {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["put", path, data] => reader.check(history, path, Some(data)),
            ["del", path] => reader.check(history, path, None),
            _ => {}
        }
    }

    async fn follow(&mut self, history: &Shared, reader: &mut Reader) -> Failure {
        loop {
            match self.line().await {
                Ok(line) => Self::check(&line, history, reader),
                Err(error) => return error,
            }
        }
    }

    /// Asks for all that the program shows, until that is the last state. Returns how long that
    /// takes; `None` if it never is.
    async fn converge(
        &mut self,
        history: &Shared,
        reader: &mut Reader,
        expected: &BTreeMap<String, String>,
    ) -> Result<Option<Duration>, Failure> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            self.input.write_all(b"dump\n").await?;
            let mut shown = BTreeMap::new();
            loop {
                let line = self.line().await?;
                match line.split(' ').collect::<Vec<_>>()[..] {
                    ["node", path, data] => drop(shown.insert(path.to_owned(), data.to_owned())),
                    ["end"] => break,
                    _ => Self::check(&line, history, reader),
                }
            }
            if shown == *expected {
                return Ok(Some(start.elapsed()));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(None)
    }

    async fn stop(mut self) -> Result<(), Failure> {
        drop(self.input);
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await??;
        if status.success() { Ok(()) } else { Err(format!("{status}").into()) }
    }
}
