//! Hundreds and thousands of callers on one connection, with every option at its default: the
//! requests of their arrival, of minutes in which nothing happens, and of the moment at which they
//! go on, and the time that this takes.

use std::future::{Future, IntoFuture as _};
use std::time::Duration;

use tokio::task::JoinSet;
use zk_recipes::{Barrier, Client, Counter, DoubleBarrier, Group, GroupChange, WorkQueue};
use zk_session::recipe::Session;
use zk_tests::meter::Pace;
use zk_tests::world::{World, run_within, sleep_ms};
use zk_testserver::ServerConfig;

use crate::outage::now;

/// Virtual time of a whole crowd.
pub(crate) const RUN_MAX: Duration = Duration::from_secs(900);
/// Virtual time in which nothing happens.
pub(crate) const IDLE_MS: u64 = 180_000;
/// How often somebody who waits for a change checks the watch meanwhile.
const CHECKS_MAX: u64 = IDLE_MS / 30_000;
/// Virtual time in which a crowd arrives, with all its requests. Round trips take none.
pub(crate) const ARRIVAL_MS: u64 = 2_000;
/// Virtual time in which a crowd goes on. Only an update that conflicts with others pauses.
pub(crate) const GO_ON_MAX: Duration = Duration::from_millis(100);

/// A world, a client for the crowd and another client, and the requests of both.
pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) crowd: Client,
    pub(crate) other: Client,
    counted: u64,
}

impl Stage {
    pub(crate) async fn prepare() -> Self {
        // The pace limits single clients only. The limits of this module are much lower.
        let pace = Pace::of(2_000);
        let world = World::with(ServerConfig::default().log_capacity(1_000))
            .session_timeout(zk_session::SESSION_TIMEOUT_DEFAULT)
            .leased()
            .pace(pace);
        let (crowd, other) = (world.client(1).await, world.client(2).await);
        Self { world, crowd, other, counted: 0 }
    }

    /// Returns the number of requests since the last call. The janitors may still be at work when a
    /// call returns.
    pub(crate) async fn requests(&mut self) -> u64 {
        sleep_ms(10).await;
        let before = std::mem::replace(&mut self.counted, self.world.traffic().requests);
        self.counted - before
    }

    /// Returns the number of requests in minutes in which nothing happens.
    pub(crate) async fn idle(&mut self) -> u64 {
        self.requests().await;
        sleep_ms(IDLE_MS).await;
        self.requests().await
    }

    /// Waits for all tasks, and returns their outputs and the time that this takes.
    pub(crate) async fn join<T: 'static>(&self, tasks: JoinSet<T>) -> (Vec<T>, Duration) {
        let begun = now();
        let outputs = tokio::time::timeout(Duration::from_secs(60), tasks.join_all()).await;
        let outputs = outputs.unwrap_or_else(|_| panic!("the crowd hangs\n{}", self.world.trace()));
        (outputs, begun.elapsed())
    }

    pub(crate) async fn finish(self) {
        self.world.check_clean(&[&self.crowd, &self.other]).await;
        assert_eq!(self.world.server.ephemerals(), [], "left behind");
        for client in [&self.crowd, &self.other] {
            let status = client.status();
            assert_eq!((status.connection, status.lapses), (1, 0), "a connection was lost");
            assert_eq!(Session::of(client).janitor_slots_busy(), 0);
        }
    }
}

/// Starts this many tasks at once.
pub(crate) fn crowd_of<F>(count: usize, task: impl Fn(usize) -> F) -> JoinSet<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    (0..count).map(task).collect()
}

#[test]
fn thousands_wait_for_a_barrier_on_one_connection() {
    const WAITERS: usize = 5_000;
    run_within(RUN_MAX, async {
        let mut stage = Stage::prepare().await;
        let barrier = |client: &Client| Barrier::new(client, "/barriers/x").expect("it is valid");
        let theirs = barrier(&stage.other);
        theirs.close().await.expect("it can be closed");
        stage.requests().await;
        let mut waiting = crowd_of(WAITERS, |_| barrier(&stage.crowd).wait().into_future());
        sleep_ms(ARRIVAL_MS).await;
        let arrival = stage.requests().await;
        assert!(waiting.try_join_next().is_none(), "it is closed");
        let idle = stage.idle().await;
        assert!(idle <= CHECKS_MAX * WAITERS as u64, "{idle}: a wait costs a check every 30 s");
        theirs.open().await.expect("it can be opened");
        let (waited, time) = stage.join(waiting).await;
        let opening = stage.requests().await;
        eprintln!("{WAITERS} waiters: {arrival} requests to arrive, {opening} to go on; {time:?}");
        assert!(waited.iter().all(|waited| *waited == Ok(())));
        assert!(arrival <= WAITERS as u64, "{arrival}: each looks once");
        // Two of them open the barrier and delete the marker.
        assert!(opening <= WAITERS as u64 + 2, "{opening}: each looks once more");
        assert!(time <= GO_ON_MAX, "{time:?}");
        stage.finish().await;
    });
}

/// How a crowd arrives.
#[derive(Clone, Copy, Debug)]
enum Arrival {
    AtOnce,
    OneByOne,
}

fn pass_a_double_barrier(arrival: Arrival, participants: usize) {
    run_within(RUN_MAX, async {
        let mut stage = Stage::prepare().await;
        let number = u32::try_from(participants).expect("small");
        let enter = |client: &Client| {
            let barrier = DoubleBarrier::new(client, "/barriers/x", number);
            barrier.expect("the options are legal").enter().into_future()
        };
        let next = async || match arrival {
            Arrival::AtOnce => {}
            Arrival::OneByOne => sleep_ms(1).await,
        };
        stage.requests().await;
        // All but one enter.
        let mut entering = JoinSet::new();
        for _ in 1..participants {
            entering.spawn(enter(&stage.crowd));
            next().await;
        }
        sleep_ms(ARRIVAL_MS).await;
        let arrived = stage.requests().await;
        assert!(entering.try_join_next().is_none(), "one is missing");
        let idle = stage.idle().await;
        let checks = CHECKS_MAX * u64::from(number);
        assert!(idle <= 3 * checks, "{idle}: a wait costs three tests every 30 s");
        entering.spawn(enter(&stage.other));
        let (inside, time) = stage.join(entering).await;
        let entered = stage.requests().await;
        assert!(time <= GO_ON_MAX, "{time:?}");
        assert_eq!(stage.idle().await, 0, "nothing happens inside");
        let mut leaving = JoinSet::new();
        for inside in inside {
            let inside = inside.expect("it enters");
            assert_eq!(inside.participants(), participants);
            leaving.spawn(inside.leave().into_future());
            next().await;
        }
        let (left, time) = stage.join(leaving).await;
        let leave = stage.requests().await;
        eprintln!(
            "{participants} participants, {arrival:?}: {arrived} requests to arrive, {entered} to go \
             on, {leave} to leave"
        );
        assert!(left.iter().all(|left| *left == Ok(())));
        assert!(time <= GO_ON_MAX, "{time:?}");
        let each = participants as u64;
        match arrival {
            // A flight shows the arrival of all who arrived before it.
            Arrival::AtOnce => {
                let sum = arrived + entered + leave;
                assert!(sum <= TOGETHER_MAX * each, "{arrived} + {entered} + {leave}");
            }
            // Only the participant with the lowest name lists after each arrival. One that leaves
            // looks at one other at a time, which it chooses at random.
            Arrival::OneByOne => {
                assert!(arrived <= ARRIVE_MAX * each, "{arrived}");
                assert!(entered <= ENTER_MAX * each, "{entered}");
                assert!(leave <= LEAVE_MAX * each, "{leave}");
            }
        }
        stage.finish().await;
    });
}

/// Requests of a participant in a round in which all participants arrive together.
const TOGETHER_MAX: u64 = 13;
/// Requests of a participant when they arrive one by one, and when they leave one by one: a leaver
/// looks at another one about ln *n* times.
const ARRIVE_MAX: u64 = 14;
const LEAVE_MAX: u64 = 14;
/// Requests of a participant when the last one arrives: it reads and lists, writes the names, and
/// reads and lists again.
const ENTER_MAX: u64 = 6;

#[test]
fn hundreds_pass_a_double_barrier_on_one_connection() {
    pass_a_double_barrier(Arrival::AtOnce, 1_000);
    pass_a_double_barrier(Arrival::OneByOne, 200);
}

#[test]
fn hundreds_follow_and_change_a_counter_on_one_connection() {
    const FOLLOWERS: usize = 1_000;
    const ADDERS: usize = 300;
    run_within(RUN_MAX, async {
        let mut stage = Stage::prepare().await;
        let counter = |client: &Client| Counter::new(client, "/values/x").expect("it is valid");
        let theirs = counter(&stage.other);
        assert_eq!(theirs.add(1).await, Ok(1));
        stage.requests().await;
        let following = crowd_of(FOLLOWERS, |_| {
            let mut changes = counter(&stage.crowd).changes();
            async move {
                while changes.next().await.expect("it can be read") != Some(2) {}
                changes
            }
        });
        sleep_ms(ARRIVAL_MS).await;
        let arrival = stage.requests().await;
        let idle = stage.idle().await;
        assert!(idle <= CHECKS_MAX * FOLLOWERS as u64, "{idle}: a stream costs a check every 30 s");
        assert_eq!(theirs.add(1).await, Ok(2));
        let (streams, time) = stage.join(following).await;
        let change = stage.requests().await;
        assert!(time <= GO_ON_MAX, "{time:?}");
        assert!(arrival <= FOLLOWERS as u64, "{arrival}: each reads once");
        // Three of them are the read, the write, and the removal of the marker.
        assert!(change <= FOLLOWERS as u64 + 3, "{change}: each reads once more");
        drop(streams);
        let adding = crowd_of(ADDERS, |_| {
            let counter = counter(&stage.crowd);
            async move { counter.add(1).await.expect("no session ends") }
        });
        let (mut sums, time) = stage.join(adding).await;
        let added = stage.requests().await;
        eprintln!(
            "{FOLLOWERS} streams: {arrival} requests to arrive, {change} for a change; {ADDERS} \
             additions: {added} requests; {time:?}"
        );
        sums.sort_unstable();
        let expected: Vec<_> = (3..).take(ADDERS).collect();
        assert_eq!(sums, expected, "each addition counts once");
        assert!(added <= ADDITION_MAX * ADDERS as u64, "{added}");
        assert!(time <= ADDITIONS_TIME_MAX, "{time:?}");
        stage.finish().await;
    });
}

/// Requests of an addition among hundreds. Most of them fail several times, and each time the pause
/// is longer.
const ADDITION_MAX: u64 = 20;
/// Virtual time of all additions. The longest pause after a conflict is a second.
const ADDITIONS_TIME_MAX: Duration = Duration::from_secs(4);

#[test]
fn a_thousand_take_items_on_one_connection() {
    take_as_a_crowd(true);
}

/// The safety timer is the only reason for requests of takers that wait.
#[test]
fn a_thousand_takers_without_a_safety_timer_wait_at_no_cost() {
    take_as_a_crowd(false);
}

fn take_as_a_crowd(has_safety_timer: bool) {
    const TAKERS: usize = 1_000;
    run_within(RUN_MAX, async {
        let mut stage = Stage::prepare().await;
        let queue = |client: &Client| {
            let builder = WorkQueue::builder(client, "/queues/x").expect("the path is valid");
            let builder = if has_safety_timer { builder } else { builder.watch_check(None) };
            builder.build().expect("the options are legal")
        };
        let (ours, theirs) = (queue(&stage.crowd), queue(&stage.other));
        stage.requests().await;
        let mut taking = crowd_of(TAKERS, |_| {
            let take = ours.take().into_future();
            async move {
                let item = take.await.expect("an item arrives");
                let data = item.data().clone();
                item.ack().await.expect("the lease is held");
                data
            }
        });
        sleep_ms(ARRIVAL_MS).await;
        let arrival = stage.requests().await;
        assert!(taking.try_join_next().is_none(), "the queue is empty");
        let idle = stage.idle().await;
        let items: Vec<_> = (0..TAKERS).map(|number| format!("{number:04}")).collect();
        let (begun, before) = (now(), stage.world.traffic());
        for batch in items.chunks(100) {
            theirs.put_batch(batch.to_vec()).await.expect("it can be put");
        }
        let (mut taken, _) = stage.join(taking).await;
        let time = begun.elapsed();
        let served = stage.requests().await;
        let listed = stage.world.traffic().since(before).listed;
        eprintln!(
            "{TAKERS} takers: {arrival} requests to arrive, {idle} in three minutes, {served} to \
             take and acknowledge all items, with {listed} bytes of lists; {time:?}"
        );
        taken.sort_unstable();
        assert_eq!(taken, items, "each item is delivered once");
        assert_eq!(theirs.length().await, Ok(0));
        assert!(arrival <= TAKER_ARRIVAL_MAX * TAKERS as u64, "{arrival}");
        let checks_max = if has_safety_timer { TAKER_IDLE_MAX * TAKERS as u64 } else { 0 };
        assert!(idle <= checks_max + RENEWALS_MAX, "{idle}");
        assert!(served <= TAKE_MAX * TAKERS as u64, "{served}");
        assert!(listed <= LISTED_MAX * TAKERS as u64, "{listed}");
        assert!(time <= GO_ON_MAX, "{time:?}");
        stage.finish().await;
    });
}

/// Requests with which a taker joins the queue of takers.
const TAKER_ARRIVAL_MAX: u64 = 8;
/// Requests of a taker in three minutes: its safety timer looks at the queue every 30 s.
const TAKER_IDLE_MAX: u64 = 24;
/// Renewals of the lease of the first taker in three minutes.
const RENEWALS_MAX: u64 = 180;
/// Requests with which a taker that has joined the queue takes an item and acknowledges it. Five of
/// them are the acknowledgement with its pin.
const TAKE_MAX: u64 = 13;
/// Bytes of lists for each of these takers. When its turn comes, it lists the other takers, which
/// are 25 KB on average. All of them share the list of the items.
const LISTED_MAX: u64 = 30_000;

/// Tests of a znode of its own, in three minutes: one every 30 s.
pub(crate) const TESTS_MAX: u64 = 6;

#[test]
fn hundreds_of_members_and_watches_on_one_connection() {
    const MEMBERS: usize = 500;
    const WATCHES: usize = 20;
    run_within(RUN_MAX, async {
        let mut stage = Stage::prepare().await;
        let group = |client: &Client| Group::new(client, "/services/x").expect("it is valid");
        stage.requests().await;
        let joining = crowd_of(MEMBERS, |number| {
            let group = group(&stage.crowd);
            async move { group.join(&format!("m{number}"), "1").await.expect("the id is free") }
        });
        let (members, _) = stage.join(joining).await;
        let joined = stage.requests().await;
        let follow = |count: usize, is_joining: bool| {
            move |mut watch: zk_recipes::GroupWatch| async move {
                for _ in 0..count {
                    let change = watch.next().await.expect("the group can be read");
                    assert_eq!(matches!(change, GroupChange::Joined(_)), is_joining);
                }
                watch
            }
        };
        let watching = crowd_of(WATCHES, |_| follow(MEMBERS, true)(group(&stage.other).watch()));
        let (watches, _) = stage.join(watching).await;
        let watched = stage.requests().await;
        let idle = stage.idle().await;
        assert!(idle <= TESTS_MAX * MEMBERS as u64, "{idle}: each member tests its znode");
        let mut following: JoinSet<_> = watches.into_iter().map(follow(MEMBERS, false)).collect();
        let leaving: JoinSet<_> = members.into_iter().map(|member| member.leave()).collect();
        let (left, time) = stage.join(leaving).await;
        assert!(left.iter().all(Result::is_ok));
        assert!(time <= GO_ON_MAX, "{time:?}");
        let (watches, time) = stage.join(std::mem::take(&mut following)).await;
        assert!(time <= GO_ON_MAX, "{time:?}");
        let left = stage.requests().await;
        eprintln!(
            "{MEMBERS} members, {WATCHES} watches: {joined} requests to join, {watched} to watch, \
             {left} to leave"
        );
        let (members, watches_count) = (MEMBERS as u64, WATCHES as u64);
        // All of them find that the directory is missing, and each creates it.
        assert!(joined <= 6 * members, "{joined}");
        assert!(watched <= watches_count * (members + 3), "{watched}: a watch, a list and reads");
        // Each watch goes on after minutes, with a check, which may cost a list with its stat.
        let checks = 3 * watches_count;
        assert!(
            (members..=members + checks).contains(&left),
            "{left}: a leave costs a watch nothing"
        );
        drop(watches);
        stage.finish().await;
    });
}
