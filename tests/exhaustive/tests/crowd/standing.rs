//! Crowds that arrive at once and wait for minutes, with every option at its default: the cost of
//! the arrival, and the cost of waiting while nothing happens.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use zk_recipes::{Client, Guard, LockError, LockState, Released};
use zk_session::SESSION_TIMEOUT_DEFAULT;
use zk_tests::case::Case;
use zk_tests::for_each_lock;
use zk_tests::meter::Counted;
use zk_tests::scene::hold;
use zk_tests::standing::{LISTS_MAX, MINUTE, MINUTES, WAITER_MAX, WAITER_MIN, entry, pace};
use zk_tests::world::{World, run_within};
use zk_testserver::ServerConfig;

use crate::ALONE;

for_each_lock! {
    #[test] queue_pairs: [
        what_a_waiter_costs_does_not_depend_on_how_many_wait_with_it,
        ten_thousand_tasks_wait_for_minutes_on_one_connection,
        a_thousand_tasks_and_two_hundred_sessions_wait_for_minutes,
    ]
}

/// Virtual time of a whole crowd.
const RUN_MAX: Duration = Duration::from_secs(600);

/// The number of contenders that wait.
#[derive(Clone, Copy, Debug)]
struct Crowd {
    /// Tasks of one client.
    tasks: usize,
    /// Clients with one task and one session each.
    sessions: usize,
}

/// Cost of a crowd.
#[derive(Debug)]
struct Cost {
    arrival: Counted,
    /// Bytes that waiting costs, without the bytes that keep the sessions alive.
    waiting: u64,
}

impl Crowd {
    fn size(self) -> usize {
        self.tasks + self.sessions
    }

    /// Returns the cost of waiting in bytes per waiter and minute.
    fn per_waiter(self, cost: &Cost) -> f64 {
        cost.waiting as f64 / self.size() as f64 / f64::from(MINUTES)
    }
}

#[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

async fn stand<H: Case, W: Case>(crowd: Crowd) -> Cost {
    let config = ServerConfig::default().log_capacity(1_000);
    let world = World::with(config).session_timeout(SESSION_TIMEOUT_DEFAULT).pace(pace(1));
    // The holder is another task of the first client.
    let first = world.clone().pace(pace(crowd.tasks + 1)).client(0).await;
    let mut clients = vec![first.clone(); crowd.tasks];
    for seed in 1..=crowd.sessions {
        clients.push(world.client(seed as u64).await);
    }
    let held = hold(&H::shipped(&first)).await;
    // After the leases of the handshakes have ended, this minute measures the cost of the sessions
    // alone.
    pass(MINUTE).await;
    let before = world.traffic();
    pass(MINUTE * MINUTES).await;
    let idle = world.traffic().since(before).bytes();

    let before = world.traffic();
    let mut waiters: JoinSet<Result<Guard<W::Kind>, LockError>> = JoinSet::new();
    for client in &clients {
        waiters.spawn(W::shipped(client).acquire().into_future());
    }
    let is_queued = |_: &_| world.contenders().len() > crowd.size();
    world.until("all have their place", is_queued).await;
    pass(Duration::from_secs(1)).await;
    let arrival = world.traffic().since(before);

    let before = world.traffic();
    pass(MINUTE * MINUTES).await;
    let waiting = world.traffic().since(before).bytes().saturating_sub(idle);
    assert_eq!(held.state(), LockState::Held);
    let lapses = |client: &Client| (client.status().connection, client.status().lapses);
    assert!(clients.iter().all(|client| lapses(client) == (1, 0)), "a connection was lost");
    assert!(waiters.try_join_next().is_none(), "granted beside a holder");

    assert_eq!(held.release().await, Ok(Released::Released));
    let next = waiters.join_next().await.expect("some wait").expect("the task does not panic");
    assert_eq!(next.expect("the lock is free").state(), LockState::Held);
    Cost { arrival, waiting }
}

fn check<H: Case, W: Case>(crowd: Crowd) -> f64 {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let begun = Instant::now();
    let cost = run_within(RUN_MAX, stand::<H, W>(crowd));
    let (size, clients) = (crowd.size() as u64, crowd.sessions as u64 + u64::from(crowd.tasks > 0));
    let list = size * u64::from(entry::<W>());
    let per_waiter = crowd.per_waiter(&cost);
    eprintln!(
        "{} behind {}, {crowd:?}: {per_waiter:.0} bytes per waiter and minute; on arrival {} bytes and {:.1} \
         requests per waiter, and {:.2} lists of the whole queue per client; {:?}",
        W::NAME,
        H::NAME,
        cost.arrival.bytes() / size,
        cost.arrival.requests as f64 / size as f64,
        cost.arrival.listed as f64 / list as f64 / clients as f64,
        begun.elapsed(),
    );
    assert!(cost.arrival.listed <= u64::from(LISTS_MAX) * clients * list, "{crowd:?}: {cost:?}");
    let as_it_should = f64::from(WAITER_MIN)..=f64::from(WAITER_MAX);
    assert!(as_it_should.contains(&per_waiter), "{crowd:?}: {cost:?}");
    per_waiter
}

fn what_a_waiter_costs_does_not_depend_on_how_many_wait_with_it<H: Case, W: Case>() {
    let few = check::<H, W>(Crowd { tasks: 100, sessions: 0 });
    let many = check::<H, W>(Crowd { tasks: 1_000, sessions: 0 });
    assert!(many <= few * 1.2 && few <= many * 1.2, "{few} and {many} bytes per minute");
}

fn ten_thousand_tasks_wait_for_minutes_on_one_connection<H: Case, W: Case>() {
    check::<H, W>(Crowd { tasks: 10_000, sessions: 0 });
}

fn a_thousand_tasks_and_two_hundred_sessions_wait_for_minutes<H: Case, W: Case>() {
    check::<H, W>(Crowd { tasks: 1_000, sessions: 200 });
}
