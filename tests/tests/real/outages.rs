//! A holder and two waiters of every lock, while the server is paused or cannot be reached. The
//! outages have lengths of each class.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Barrier;
use tokio::task::JoinSet;
use zk_recipes::{Client, Guard, LockState, SessionState};
use zk_tests::case::Case;
use zk_tests::each_pair;
use zk_tests::meter::{Counted, Meter, Pace};
use zk_tests::proxy::Proxy;
use zk_tests::wait::{held_again, soon};

use crate::{Part, SERVER, address, variable};

/// Time after which writes renew the lease, and it no longer depends on the handshake.
const STEADY: Duration = Duration::from_secs(35);
/// Lengths of outages: below the interval of the renewing writes, below the time after which a
/// client leaves a silent server, below the lease, and above the lease. All are below the session
/// timeout.
const SECONDS: [u64; 4] = [1, 5, 15, 23];
/// The longest outage that a guard with a lease certainly survives.
const SURVIVED_SECONDS: u64 = 15;
/// Maximum time between the moment when a grant becomes possible and the grant, on an idle machine.
/// Each request may take as much more as that of a client that only asks the server now and then.
const GRANT_MAX: Duration = Duration::from_secs(1);
const PROBE_EVERY: Duration = Duration::from_millis(50);
/// Maximum number of requests of the waiter since the outage or the previous hand-off. A client whose
/// server stood still may reconnect twice, and the waiter for a permit then looks twice, with six
/// requests each. The suite `outages` has the same limit, in virtual time.
const REQUESTS_MAX: u64 = 15;

/// A client, and the time since which it is connected.
struct Party {
    client: Client,
    meter: Meter,
    connected: Arc<Mutex<Instant>>,
}

impl Party {
    async fn join(part: &Part, way: SocketAddr, directory: &str) -> Self {
        let (client, meter) = part.client(way, directory, Pace::CALM).await;
        let connected = Arc::new(Mutex::new(Instant::now()));
        let (mut states, since) = (client.states(), Arc::clone(&connected));
        tokio::spawn(async move {
            let mut last = states.current().connection;
            while let Some(status) = states.next().await {
                if status.state == SessionState::Connected && status.connection != last {
                    last = status.connection;
                    *since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                }
            }
        });
        Self { client, meter, connected }
    }

    fn connected(&self) -> Instant {
        *self.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When a request began, and when it ended unless it is pending.
type Sample = (Instant, Option<Instant>);

/// Measures how long a request takes while others share the machine.
struct Probe(Arc<Mutex<Vec<Sample>>>);

impl Probe {
    /// Asks the server until the probe is dropped. A request that fails counts as well.
    fn start(client: Client) -> Self {
        let samples = Arc::<Mutex<Vec<_>>>::default();
        let probe = Arc::downgrade(&samples);
        tokio::spawn(async move {
            while let Some(samples) = probe.upgrade() {
                let samples = || samples.lock().unwrap_or_else(PoisonError::into_inner);
                samples().push((Instant::now(), None));
                let _ = client.catch_up().await;
                if let Some((_, ended)) = samples().last_mut() {
                    *ended = Some(Instant::now());
                }
                tokio::time::sleep(PROBE_EVERY).await;
            }
        });
        Self(samples)
    }

    /// Returns the longest time that a request took between these moments.
    fn slowest(&self, from: Instant, to: Instant) -> Duration {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let within = samples.iter().filter(|(begun, _)| *begun <= to);
        let times = within
            .map(|(begun, ended)| ended.unwrap_or(to).saturating_duration_since(from.max(*begun)));
        times.max().unwrap_or_default()
    }
}

/// The subtree of a test, and its probe.
struct Outages {
    part: Part,
    probe: Probe,
}

impl Outages {
    async fn start(name: &str) -> Self {
        let part = Part::start(name).await;
        let probe = Probe::start(part.observer.clone());
        Self { part, probe }
    }
}

/// Cost of a grant.
struct Row {
    label: String,
    wait: Duration,
    requests: u64,
    /// How long a request of another client took in this time.
    request: Duration,
}

impl Row {
    fn check(self) {
        let Self { label, wait, requests, request } = self;
        eprintln!(
            "{label:<48} {:>6.3} s {requests:>3} requests, each up to {:.3} s",
            wait.as_secs_f64(),
            request.as_secs_f64()
        );
        assert!(requests <= REQUESTS_MAX, "{label}");
        assert!(wait <= GRANT_MAX + request * (requests as u32 + 1), "{label}");
    }
}

/// Waits with two clients behind a holder. The barrier `turn` opens when the outage begins and when
/// it has ended.
async fn endure<H: Case, W: Case>(
    label: String,
    directory: String,
    part: Arc<Outages>,
    way: SocketAddr,
    seconds: u64,
    turn: Arc<Barrier>,
) -> Vec<Row> {
    let mut parties = Vec::new();
    for _ in 0..3 {
        parties.push(Party::join(&part.part, way, &directory).await);
    }
    let [first, waiters @ ..] = parties.as_slice() else { unreachable!("there are three") };
    let held = H::shipped(&first.client).acquire().await.expect("the lock is free");
    let mut waiting: JoinSet<(usize, Guard<W::Kind>, Instant, Counted)> = JoinSet::new();
    for (number, party) in waiters.iter().enumerate() {
        let (acquire, meter) = (W::shipped(&party.client).acquire(), party.meter.clone());
        waiting.spawn(async move {
            let guard = acquire.await.expect("the lock becomes free");
            (number, guard, Instant::now(), meter.counted())
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    tokio::time::sleep(STEADY).await;
    assert!(waiting.try_join_next().is_none(), "{label}: granted beside a holder");
    let mut before: Vec<_> = waiters.iter().map(|party| party.meter.counted()).collect();
    turn.wait().await;
    turn.wait().await;
    let state = held.state();
    let is_lost = matches!(state, LockState::Lost(_));
    assert_eq!(is_lost, seconds > SURVIVED_SECONDS, "{label}: {state:?}");
    let status = zk_tests::wait::status(&first.client, "a connection", |now| {
        now.state == SessionState::Connected
    });
    status.await;
    // The client removes the znode of a lost lock as soon as it is connected.
    let mut free = Instant::now();
    if !is_lost {
        // The first write on the new connection renews the lease.
        held_again(&label, &held).await;
        free = Instant::now();
        held.release().await.expect("it is connected");
    }
    let mut rows = Vec::new();
    while !waiting.is_empty() {
        let next = soon(&label, waiting.join_next()).await.expect("some wait");
        let (number, guard, at, counted) = next.expect("the task does not panic");
        let (party, before_it) = waiters.get(number).zip(before.get(number)).expect("one of them");
        let possible = free.max(party.connected());
        let wait = at.saturating_duration_since(possible);
        let requests = counted.since(*before_it).requests;
        let request = part.probe.slowest(possible, at);
        rows.push(Row { label: label.clone(), wait, requests, request });
        // A contender that was not next in the queue has no lease yet, so its lock is at risk for a
        // moment.
        assert!(!matches!(guard.state(), LockState::Lost(_)), "{label}: {guard:?}");
        if !W::IS_SHARED {
            // The validation leaves enough time for a wrong grant.
            guard.validate().await.expect("the lock is held");
            assert!(waiting.try_join_next().is_none(), "{label}: granted beside another");
            before = waiters.iter().map(|party| party.meter.counted()).collect();
            free = Instant::now();
        }
        guard.release().await.expect("it is connected");
    }
    for party in parties {
        party.client.close().await;
    }
    rows
}

/// Starts all pairs of a holder and a waiter at once. The barrier is for their tasks and for the
/// task that causes the outage.
fn all_pairs(
    rows: &mut JoinSet<Vec<Row>>,
    part: &Arc<Outages>,
    way: SocketAddr,
    what: &str,
    seconds: u64,
) -> Arc<Barrier> {
    let pairs = each_pair!(H, W => (H::NAME, W::NAME)).len();
    let turn = Arc::new(Barrier::new(pairs + 1));
    each_pair!(H, W => {
        let label = format!("{} behind {}, {what} {seconds} s", W::NAME, H::NAME);
        let directory = format!("{}-{}-{what}-{seconds}", W::NAME, H::NAME);
        let (part, turn) = (Arc::clone(part), Arc::clone(&turn));
        rows.spawn(endure::<H, W>(label, directory, part, way, seconds, turn));
    });
    turn
}

async fn check_all(mut rows: JoinSet<Vec<Row>>) {
    while let Some(done) = rows.join_next().await {
        done.expect("the task does not panic").into_iter().for_each(Row::check);
    }
}

/// Keeps the process of the server stopped. The process continues when this value is dropped.
struct Stopped;

impl Stopped {
    fn new() -> Self {
        Self::signal("-STOP");
        Self
    }

    fn signal(signal: &str) {
        let status = Command::new("kill").arg(signal).arg(variable("ZK_PID")).status();
        assert!(status.is_ok_and(|status| status.success()), "ZK_PID is not a process");
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        Self::signal("-CONT");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::await_holding_lock, reason = "one test a thread, and the lock is between them")]
async fn every_lock_goes_on_after_the_server_stood_still() {
    let _alone = SERVER.write().unwrap_or_else(PoisonError::into_inner);
    let part = Arc::new(Outages::start("stopped").await);
    for seconds in SECONDS {
        let mut rows = JoinSet::new();
        let turn = all_pairs(&mut rows, &part, address(), "stopped", seconds);
        turn.wait().await;
        let stopped = Stopped::new();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        drop(stopped);
        turn.wait().await;
        check_all(rows).await;
    }
    let part = Arc::into_inner(part).expect("all have ended");
    part.part.end().await;
}

/// Outages of all lengths happen at once, each with its own proxy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::await_holding_lock, reason = "one test a thread, and the lock is between them")]
async fn every_lock_goes_on_after_the_server_could_not_be_reached() {
    let _beside_others = SERVER.read().unwrap_or_else(PoisonError::into_inner);
    let part = Arc::new(Outages::start("refused").await);
    let mut outages = JoinSet::new();
    for seconds in SECONDS {
        let part = Arc::clone(&part);
        outages.spawn(async move {
            let proxy = Proxy::start(address()).await;
            let mut rows = JoinSet::new();
            let turn = all_pairs(&mut rows, &part, proxy.addr(), "refused", seconds);
            turn.wait().await;
            proxy.refuse_for(Duration::from_secs(seconds));
            proxy.cut_all();
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            turn.wait().await;
            check_all(rows).await;
        });
    }
    while let Some(ended) = outages.join_next().await {
        ended.expect("the task does not panic");
    }
    let part = Arc::into_inner(part).expect("all have ended");
    part.part.end().await;
}
