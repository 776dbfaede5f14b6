//! A thousand who want one lock: tasks of one client, and sessions of their own. What a hand-off
//! costs must not grow with the length of the queue.
//!
//! `standing` has crowds that wait with every option at its default, and bounds what they cost while
//! nothing happens.

#![expect(clippy::disallowed_methods, reason = "real time is printed, and decides nothing")]

#[path = "crowd/standing.rs"]
mod standing;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use zk_recipes::{Client, FairLock, Guard, LockError, ReadGuard, Released, RwLock, WriteGuard};
use zk_tests::meter::Pace;
use zk_tests::scene::spawn;
use zk_tests::world::{DIRECTORY, World, runtime, sleep_ms};
use zk_testserver::ServerConfig;

/// In the environment of the process that measures its memory: which crowd.
const MEASURE: &str = "CROWD_MEASURE";
/// What a waiter may cost, with its share of the server, which lives in the same process.
const TASK_MAX: usize = 12 * 1024;
/// What it may cost with a session of its own: buffers for reading and writing at both ends.
const SESSION_MAX: usize = 320 * 1024;

/// One crowd at a time, so that its time is its own.
static ALONE: Mutex<()> = Mutex::new(());

/// Who wants the lock.
#[derive(Clone, Copy, Debug)]
struct Crowd {
    name: &'static str,
    /// Each has a session of its own.
    has_sessions: bool,
    /// Each comes when the one before it has its place.
    comes_alone: bool,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Fair,
    /// Writers only.
    Writers,
    /// A reader after a writer after a reader.
    Mixed,
}

const CROWDS: [Crowd; 7] = [
    Crowd { name: "fair, tasks", has_sessions: false, comes_alone: false, kind: Kind::Fair },
    Crowd { name: "fair, sessions", has_sessions: true, comes_alone: true, kind: Kind::Fair },
    Crowd { name: "writers, tasks", has_sessions: false, comes_alone: false, kind: Kind::Writers },
    Crowd { name: "writers, sessions", has_sessions: true, comes_alone: true, kind: Kind::Writers },
    Crowd {
        name: "readers and writers, tasks",
        has_sessions: false,
        comes_alone: false,
        kind: Kind::Mixed,
    },
    Crowd {
        name: "readers and writers, sessions",
        has_sessions: true,
        comes_alone: true,
        kind: Kind::Mixed,
    },
    Crowd {
        name: "fair, tasks one by one",
        has_sessions: false,
        comes_alone: true,
        kind: Kind::Fair,
    },
];

#[derive(Debug)]
enum Held {
    Fair(Guard),
    Read(ReadGuard),
    Write(WriteGuard),
}

impl Held {
    async fn release(self) -> Result<Released, LockError> {
        match self {
            Self::Fair(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
        }
    }
}

impl Crowd {
    /// Acquires as the one with this number.
    async fn acquire(self, client: Client, number: usize) -> Result<Held, LockError> {
        let fair = FairLock::builder(&client, DIRECTORY)?.safety_relist(None).build()?;
        let rw = RwLock::builder(&client, DIRECTORY)?.safety_relist(None).build()?;
        Ok(match self.kind {
            Kind::Fair => Held::Fair(fair.acquire().await?),
            Kind::Mixed if number % 2 == 1 => Held::Read(rw.read().await?),
            Kind::Mixed | Kind::Writers => Held::Write(rw.write().await?),
        })
    }
}

/// What a crowd has cost.
#[derive(Debug)]
struct Figures {
    /// Requests of the dearest hand-off.
    most: usize,
    /// Requests of all hand-offs.
    total: usize,
    /// Real time until all stood in the queue, and of all hand-offs.
    queued: Duration,
    handed: Duration,
    /// Memory of the process per waiter, as far as it is known.
    memory: Option<usize>,
}

/// Lets a crowd queue up behind a holder, and hands the lock to one after the other.
fn serve(crowd: Crowd, waiters: usize) -> Figures {
    runtime().block_on(async {
        // One client asks for all its tasks, and is handed the lock by each of them.
        let pace = Pace::of(if crowd.has_sessions { 1 } else { waiters });
        let world = World::with(ServerConfig::default().log_capacity(1_000)).pace(pace);
        let first = world.client(0).await;
        let mut held = crowd.acquire(first.clone(), 0).await.expect("nobody else wants it");
        let (before, begun) = (resident(), Instant::now());
        let (sender, mut guards) = mpsc::unbounded_channel();
        let mut clients = vec![first.clone()];
        for number in 1..=waiters {
            let client =
                if crowd.has_sessions { world.client(number as u64).await } else { first.clone() };
            clients.push(client.clone());
            let sender = sender.clone();
            spawn(async move {
                let guard = crowd.acquire(client, number).await.expect("it becomes free");
                sender.send(guard).expect("the test goes on");
            });
            if crowd.comes_alone || number == waiters {
                world.until("the place is taken", |_| world.contenders().len() > number).await;
            }
        }
        // Their watches are set.
        sleep_ms(500).await;
        let memory = resident().zip(before).map(|(now, before)| (now - before.min(now)) / waiters);
        let queued = begun.elapsed();
        let begun = Instant::now();
        let (mut most, mut total) = (0, 0);
        for _ in 0..waiters {
            assert!(guards.is_empty(), "two holders");
            world.server.clear_requests();
            assert_eq!(held.release().await, Ok(Released::Released));
            held = guards.recv().await.expect("somebody waits");
            sleep_ms(5).await;
            let sent = world.server.requests().len();
            most = most.max(sent);
            total += sent;
        }
        let handed = begun.elapsed();
        assert_eq!(held.release().await, Ok(Released::Released));
        sleep_ms(5).await;
        assert_eq!((world.contenders().len(), world.server.watch_count()), (0, 0));
        for client in &clients {
            assert_eq!(client.janitor_slots_busy(), 0);
        }
        Figures { most, total, queued, handed, memory }
    })
}

/// Bytes of memory that the process has in use, where the system tells.
fn resident() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(statm.split(' ').nth(1)?.parse::<usize>().ok()? * 4096)
}

fn check(crowd: Crowd) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let few = serve(crowd, 10);
    let hundred = serve(crowd, 100);
    let many = serve(crowd, 1_000);
    for (waiters, figures) in [(10, &few), (100, &hundred), (1_000, &many)] {
        eprintln!(
            "{}, {waiters} waiters: {:.2} requests per hand-off, {} at most; {:?} to queue up, {:?} for all hand-offs",
            crowd.name,
            figures.total as f64 / waiters as f64,
            figures.most,
            figures.queued,
            figures.handed,
        );
    }
    assert!(many.most <= few.most, "{}: it grows: {few:?} {many:?}", crowd.name);
}

#[test]
fn a_thousand_tasks_pass_a_fair_lock_at_a_constant_price() {
    check(CROWDS[0]);
}

#[test]
fn a_thousand_sessions_pass_a_fair_lock_at_a_constant_price() {
    check(CROWDS[1]);
}

#[test]
fn a_thousand_writing_tasks_pass_a_lock_at_a_constant_price() {
    check(CROWDS[2]);
}

#[test]
fn a_thousand_writing_sessions_pass_a_lock_at_a_constant_price() {
    check(CROWDS[3]);
}

#[test]
fn a_thousand_reading_and_writing_tasks_pass_a_lock_at_a_constant_price() {
    check(CROWDS[4]);
}

#[test]
fn a_thousand_reading_and_writing_sessions_pass_a_lock_at_a_constant_price() {
    check(CROWDS[5]);
}

/// Each crowd in a process of its own, since memory that was freed is used again. What is measured
/// is the growth of its resident memory, so the server's part is in it: znode, watches, and for a
/// session its connection.
#[test]
fn a_waiter_takes_little_memory() {
    const NAME: &str = "a_waiter_takes_little_memory";
    if let Ok(wanted) = std::env::var(MEASURE) {
        let crowd = CROWDS.into_iter().find(|crowd| crowd.name == wanted).expect("one of them");
        let Some(memory) = serve(crowd, 1_000).memory else {
            eprintln!("{wanted}: the system does not tell");
            return;
        };
        eprintln!("{wanted}: {memory} bytes per waiter");
        let most = if crowd.has_sessions { SESSION_MAX } else { TASK_MAX };
        assert!(memory <= most, "{wanted}: {memory} bytes per waiter");
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let program = std::env::current_exe().expect("it runs");
    for crowd in CROWDS {
        let child = std::process::Command::new(&program)
            .args(["--exact", NAME, "--nocapture"])
            .env(MEASURE, crowd.name)
            .output()
            .expect("it runs once more");
        let told = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success() && told.contains(crowd.name), "{told}");
        eprintln!("{}", told.lines().find(|line| line.contains(crowd.name)).unwrap_or_default());
    }
}
