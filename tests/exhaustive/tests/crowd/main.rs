//! A thousand contenders for one lock, as tasks of one client or with a session each. The cost of a
//! hand-off must not grow with the length of the queue.
//!
//! The crowds of the module `standing` wait with every option at its default. That module limits
//! their cost while nothing happens.

#![expect(clippy::disallowed_methods, reason = "real time is printed, and decides nothing")]

mod standing;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use zk_recipes::kind::Kind;
use zk_recipes::{Client, Guard, LockError, Released};
use zk_session::recipe::Session;
use zk_tests::case::Case;
use zk_tests::for_each_lock;
use zk_tests::meter::Pace;
use zk_tests::scene::{hold, spawn};
use zk_tests::world::{World, runtime, sleep_ms};
use zk_testserver::ServerConfig;

/// Environment variable that makes a process measure its memory. Its value is the arrival of the
/// crowd.
const MEASURE: &str = "CROWD_MEASURE";
/// Bytes of memory that a waiter may need, including its share of the server, which runs in the
/// same process.
const TASK_MAX: usize = 12 * 1024;
/// Bytes of memory that a waiter with its own session may need, for buffers for reading and writing
/// at both ends.
const SESSION_MAX: usize = 320 * 1024;

/// Only one crowd runs at a time, so that no crowd slows another down.
static ALONE: Mutex<()> = Mutex::new(());

for_each_lock! {
    #[test] queue_pairs: [
        a_thousand_tasks_pass_a_lock_at_a_constant_price,
        a_thousand_sessions_pass_a_lock_at_a_constant_price,
        a_waiter_takes_little_memory,
    ]
}

/// How a crowd arrives. Contenders with even numbers acquire the lock as `H`, and contenders with
/// odd numbers as `W`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Arrival {
    /// The contenders are tasks of one client, and arrive all at once.
    Tasks,
    /// The contenders are tasks of one client, and arrive one by one.
    TasksOneByOne,
    /// Each contender has its own session. They arrive one by one.
    Sessions,
}

const ARRIVALS: [Arrival; 3] = [Arrival::Tasks, Arrival::TasksOneByOne, Arrival::Sessions];

#[derive(Debug)]
enum Held<H: Kind, W: Kind> {
    Even(Guard<H>),
    Odd(Guard<W>),
}

impl<H: Kind, W: Kind> Held<H, W> {
    async fn release(self) -> Result<Released, LockError> {
        match self {
            Self::Even(guard) => guard.release().await,
            Self::Odd(guard) => guard.release().await,
        }
    }
}

/// Acquires the lock as the contender with this number.
async fn acquire<H: Case, W: Case>(client: Client, number: usize) -> Held<H::Kind, W::Kind> {
    if number.is_multiple_of(2) {
        Held::Even(hold(&H::of(&client)).await)
    } else {
        Held::Odd(hold(&W::of(&client)).await)
    }
}

/// Cost of a crowd.
#[derive(Debug)]
struct Figures {
    /// Requests of the most expensive hand-off.
    most: usize,
    /// Requests of all hand-offs.
    total: usize,
    /// Real time until all contenders were in the queue, and real time of all hand-offs.
    queued: Duration,
    handed: Duration,
    /// Memory of the process per waiter, if the system reports it.
    memory: Option<usize>,
}

/// Lets a crowd queue up behind a holder, and hands the lock over through the whole queue.
fn serve<H: Case, W: Case>(arrival: Arrival, waiters: usize) -> Figures {
    let has_sessions = arrival == Arrival::Sessions;
    runtime().block_on(async {
        // A client with many tasks sends the requests of all of them.
        let pace = Pace::of(if has_sessions { 1 } else { waiters });
        let world = World::with(ServerConfig::default().log_capacity(1_000)).pace(pace);
        let first = world.client(0).await;
        let mut held = acquire::<H, W>(first.clone(), 0).await;
        let (before, begun) = (resident(), Instant::now());
        let (sender, mut guards) = mpsc::unbounded_channel();
        let mut clients = vec![first.clone()];
        for number in 1..=waiters {
            let client =
                if has_sessions { world.client(number as u64).await } else { first.clone() };
            clients.push(client.clone());
            let sender = sender.clone();
            spawn(async move {
                let guard = acquire::<H, W>(client, number).await;
                sender.send(guard).expect("the test goes on");
            });
            if arrival != Arrival::Tasks || number == waiters {
                world.until("the place is taken", |_| world.contenders().len() > number).await;
            }
        }
        // The contenders need this time to set their watches.
        sleep_ms(500).await;
        let memory = resident().zip(before).map(|(now, before)| (now - before.min(now)) / waiters);
        let queued = begun.elapsed();
        let begun = Instant::now();
        let (mut most, mut total) = (0, 0);
        for _ in 0..waiters {
            assert!(guards.is_empty(), "two holders");
            world.server.clear_requests();
            assert_eq!(held.release().await, Ok(Released::Released));
            held = guards.recv().await.expect("a contender waits");
            sleep_ms(5).await;
            let sent = world.server.requests().len();
            most = most.max(sent);
            total += sent;
        }
        let handed = begun.elapsed();
        assert_eq!(held.release().await, Ok(Released::Released));
        sleep_ms(5).await;
        // Servers keep a watch until it fires or its client leaves.
        let kept = if W::WATCHES_DIRECTORY { clients.len() } else { 0 };
        assert_eq!(world.contenders().len(), 0);
        assert!(world.server.watch_count() <= kept, "{} watches", world.server.watch_count());
        for client in &clients {
            assert_eq!(Session::of(client).janitor_slots_busy(), 0);
        }
        Figures { most, total, queued, handed, memory }
    })
}

/// Returns the resident memory of the process in bytes, if the system reports it.
fn resident() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(statm.split(' ').nth(1)?.parse::<usize>().ok()? * 4096)
}

fn check<H: Case, W: Case>(arrival: Arrival) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let few = serve::<H, W>(arrival, 10);
    let hundred = serve::<H, W>(arrival, 100);
    let many = serve::<H, W>(arrival, 1_000);
    for (waiters, figures) in [(10, &few), (100, &hundred), (1_000, &many)] {
        eprintln!(
            "{} behind {}, {arrival:?}, {waiters} waiters: {:.2} requests per hand-off, {} at most; \
             {:?} to queue up, {:?} for all hand-offs",
            W::NAME,
            H::NAME,
            figures.total as f64 / waiters as f64,
            figures.most,
            figures.queued,
            figures.handed,
        );
    }
    assert!(many.most <= few.most, "the price grows: {few:?} {many:?}");
}

fn a_thousand_tasks_pass_a_lock_at_a_constant_price<H: Case, W: Case>() {
    check::<H, W>(Arrival::Tasks);
}

fn a_thousand_sessions_pass_a_lock_at_a_constant_price<H: Case, W: Case>() {
    check::<H, W>(Arrival::Sessions);
}

/// Each crowd has its own process, because freed memory is used again. The test measures the growth
/// of resident memory, which includes the server's part: the znode, the watches, and the connection
/// of a session.
fn a_waiter_takes_little_memory<H: Case, W: Case>() {
    if let Ok(wanted) = std::env::var(MEASURE) {
        let arrival = ARRIVALS.into_iter().find(|arrival| format!("{arrival:?}") == wanted);
        let arrival = arrival.expect("it is one of them");
        let Some(memory) = serve::<H, W>(arrival, 1_000).memory else {
            eprintln!("{wanted}: the system does not report memory");
            return;
        };
        eprintln!("{wanted}: {memory} bytes per waiter");
        let most = if arrival == Arrival::Sessions { SESSION_MAX } else { TASK_MAX };
        assert!(memory <= most, "{wanted}: {memory} bytes per waiter");
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let program = std::env::current_exe().expect("it runs");
    let thread = std::thread::current();
    let test = thread.name().expect("a test runs in a thread with its name");
    for arrival in ARRIVALS {
        let wanted = format!("{arrival:?}");
        let child = std::process::Command::new(&program)
            .args(["--exact", test, "--nocapture"])
            .env(MEASURE, &wanted)
            .output()
            .expect("it runs once more");
        let output = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success() && output.contains(&wanted), "{output}");
        let measured = output.lines().find(|line| line.contains(&wanted)).unwrap_or_default();
        eprintln!("{} behind {}, {measured}", W::NAME, H::NAME);
    }
}
