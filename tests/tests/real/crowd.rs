//! Eleven thousand tasks of two clients and a thousand sessions arrive at once and wait for
//! minutes. They form three crowds, each of which waits for its own lock.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use zk_recipes::{Client, FairLock, Guard, LockError, LockState, Released};
use zk_tests::case::{Case as _, LOCK};
use zk_tests::meter::{Counted, Meter, Pace};
use zk_tests::standing::{LISTS_MAX, MINUTE, MINUTES, WAITER_MAX, WAITER_MIN, entry, pace};
use zk_tests::wait::{held_again, soon};

use crate::{Part, SERVER, address};

/// A time longer than the arrival takes on a slow machine that is busy with something else: it took a
/// minute beside a build.
const ARRIVAL_MAX: Duration = Duration::from_secs(180);
/// Interval between checks whether all contenders have arrived, and the maximum number of checks.
const LOOK_EVERY: Duration = Duration::from_millis(300);
const LOOKS_MAX: usize = 600;

/// The contenders for one lock.
struct Crowd {
    name: &'static str,
    clients: Vec<(Client, Meter)>,
    tasks_each: usize,
    held: Guard,
    waiters: JoinSet<Result<Guard, LockError>>,
}

impl Crowd {
    async fn gather(part: &Part, name: &'static str, count: usize, tasks_each: usize) -> Self {
        let mut clients = Vec::new();
        for _ in 0..count {
            // The first client also has the holder, and reads how many contenders have arrived.
            let own = if clients.is_empty() {
                pace(tasks_each + 1).beside(LOOKS_MAX)
            } else {
                pace(tasks_each)
            };
            clients.push(part.client(address(), name, own).await);
        }
        let (first, _) = clients.first().expect("there are some");
        let held = FairLock::shipped(first).acquire().await.expect("the lock is free");
        Self { name, clients, tasks_each, held, waiters: JoinSet::new() }
    }

    fn size(&self) -> usize {
        self.clients.len() * self.tasks_each
    }

    fn counted(&self) -> Counted {
        self.clients.iter().fold(Counted::default(), |sum, (_, meter)| {
            let own = meter.counted();
            Counted {
                requests: sum.requests + own.requests,
                sent: sum.sent + own.sent,
                received: sum.received + own.received,
                listed: sum.listed + own.listed,
            }
        })
    }

    /// Starts all acquires at once.
    fn arrive(&mut self) {
        for (client, _) in &self.clients {
            let lock = FairLock::shipped(client);
            for _ in 0..self.tasks_each {
                self.waiters.spawn(lock.acquire().into_future());
            }
        }
    }

    async fn until_queued(&self) {
        let (first, _) = self.clients.first().expect("there are some");
        let wanted = self.size() + 1;
        let begun = Instant::now();
        loop {
            let stat = first.exists(LOCK).await.ok().flatten();
            let arrived = stat.map_or(0, |stat| stat.num_children);
            if arrived >= wanted {
                return;
            }
            let (name, held) = (self.name, self.held.state());
            let cut = self.clients.iter().filter(|(client, _)| client.status().connection > 1);
            assert!(
                begun.elapsed() < ARRIVAL_MAX,
                "{name}: only {arrived} of {wanted} arrived, the lock is {held:?}, and {} clients \
                 have lost a connection",
                cut.count(),
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Checks that no connection and no lock was lost.
    async fn check_whole(&self, when: &str) {
        let label = format!("{}, {when}", self.name);
        for (client, _) in &self.clients {
            let status = client.status();
            assert_eq!((status.connection, status.lapses), (1, 0), "{label}");
        }
        held_again(&label, &self.held).await;
    }

    /// Hands the lock over once, and closes all clients.
    async fn end(mut self) {
        assert!(self.waiters.try_join_next().is_none(), "{}: beside a holder", self.name);
        assert_eq!(self.held.release().await, Ok(Released::Released));
        let next = soon("the next", self.waiters.join_next()).await.expect("some wait");
        let next = next.expect("the task does not panic").expect("the lock is free");
        assert_eq!(next.state(), LockState::Held);
        // The znodes of the other contenders are deleted with their sessions.
        drop(next);
        self.waiters.shutdown().await;
        let mut closes = JoinSet::new();
        for (client, _) in self.clients {
            closes.spawn(async move { client.close().await });
        }
        soon("the end of the sessions", closes.join_all()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::await_holding_lock, reason = "one test a thread, and the lock is between them")]
async fn a_crowd_waits_for_minutes_at_a_price_that_its_length_does_not_change() {
    let _beside_others = SERVER.read().unwrap_or_else(PoisonError::into_inner);
    let part = Part::start("crowd").await;
    let (_idle, idle) = part.client(address(), "idle", Pace::CALM).await;
    let mut crowds = [
        Crowd::gather(&part, "tasks-1000", 1, 1_000).await,
        Crowd::gather(&part, "tasks-10000", 1, 10_000).await,
        Crowd::gather(&part, "sessions-1000", 1_000, 1).await,
    ];
    let before: Vec<_> = crowds.iter().map(Crowd::counted).collect();
    let begun = Instant::now();
    crowds.iter_mut().for_each(Crowd::arrive);
    for crowd in &crowds {
        crowd.until_queued().await;
    }
    eprintln!("all have arrived after {:?}", begun.elapsed());
    // The contenders need this time to set their watches.
    tokio::time::sleep(Duration::from_secs(2)).await;
    for crowd in &crowds {
        crowd.check_whole("after the arrival").await;
    }
    let arrived: Vec<_> = crowds.iter().map(Crowd::counted).collect();
    let idle_before = idle.counted();
    tokio::time::sleep(MINUTE * MINUTES).await;
    for crowd in &crowds {
        crowd.check_whole("after the wait").await;
    }
    let idle = idle.counted().since(idle_before).bytes();
    let mut prices = Vec::new();
    for ((crowd, before), arrived) in crowds.iter().zip(before).zip(arrived) {
        let (size, clients) = (crowd.size() as f64, crowd.clients.len() as f64);
        let waiting = crowd.counted().since(arrived);
        let arrival = arrived.since(before);
        // Pings that keep sessions alive are not a cost of waiting.
        let price = (waiting.bytes() as f64 - idle as f64 * clients) / size / f64::from(MINUTES);
        let lists = arrival.listed as f64 / (size * f64::from(entry::<FairLock>())) / clients;
        eprintln!(
            "{}: {price:.0} bytes per waiter and minute after the arrival, {:.0} with it and with \
             pings; {:.1} requests and {lists:.2} lists of the whole queue per client on arrival",
            crowd.name,
            crowd.counted().since(before).bytes() as f64 / size / f64::from(MINUTES),
            arrival.requests as f64 / clients,
        );
        let as_it_should = f64::from(WAITER_MIN)..=f64::from(WAITER_MAX);
        assert!(as_it_should.contains(&price), "{}: {price} bytes a minute", crowd.name);
        assert!(lists <= f64::from(LISTS_MAX), "{}: {lists} lists", crowd.name);
        prices.push(price);
    }
    let [few, many, _] = prices.as_slice() else { unreachable!("there are three") };
    // Many may cost less: their checks come late on a machine that is overloaded.
    assert!(many / few <= 1.2, "{few} and {many} bytes per minute");
    for crowd in crowds {
        crowd.end().await;
    }
    part.end().await;
}
