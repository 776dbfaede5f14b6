//! Hundreds and thousands of callers of the locks that are made of other locks, on one connection:
//! every caller is served, alone if it must be, and nothing is left behind.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::{JoinSet, yield_now};
use zk_recipes::kind::Fair;
use zk_recipes::{
    Client, FairLock, Holder, Level, LockState, MultiLock, MultiLockBuilder, NamedLocks, Released,
};
use zk_tests::world::{run_within, sleep_ms};

use crate::crowds::{ARRIVAL_MS, GO_ON_MAX, IDLE_MS, RUN_MAX, Stage, TESTS_MAX, crowd_of};
use crate::locks::all_kinds;

const NAMES: &str = "/locks/names";
const REENTRANT: &str = "/locks/reentrant";

/// Writes with which a client renews its lease in the idle minutes, while it holds a lock or is the
/// next to hold one.
const RENEWALS_MAX: u64 = 180;
/// Reads of a waiter in the idle minutes: its safety timer checks every 30 s what it watches.
const CHECKS_MAX: u64 = 2 * IDLE_MS / 30_000;

fn names(client: &Client) -> NamedLocks {
    NamedLocks::new(client, NAMES).expect("the path is valid")
}

/// Numbers of callers that have something together, one for each thing.
#[derive(Clone)]
struct Counts(Arc<[AtomicUsize]>);

impl Counts {
    fn new(things: usize) -> Self {
        Self((0..things).map(|_| AtomicUsize::new(0)).collect())
    }

    /// Has these things for a moment. Nobody else may have any of them.
    async fn have(&self, things: &[usize]) {
        for thing in things {
            assert_eq!(self.0[*thing].fetch_add(1, Ordering::Relaxed), 0, "two have {thing}");
        }
        yield_now().await;
        for thing in things {
            self.0[*thing].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The requests of a crowd that arrives and waits, and of the callers that are then served one after
/// the other.
struct Served {
    arrival: u64,
    idle: u64,
    served: u64,
    time: Duration,
}

/// Lets a crowd wait for what the other client holds, and serves it.
async fn serve<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    stage: &mut Stage,
    count: usize,
    caller: impl Fn(usize) -> F,
    release: impl AsyncFnOnce(),
) -> (Vec<T>, Served) {
    stage.requests().await;
    let mut waiting = crowd_of(count, caller);
    sleep_ms(ARRIVAL_MS).await;
    let arrival = stage.requests().await;
    assert!(waiting.try_join_next().is_none(), "the other client holds it");
    let idle = stage.idle().await;
    release().await;
    let (outputs, time) = stage.join(waiting).await;
    let served = stage.requests().await;
    (outputs, Served { arrival, idle, served, time })
}

#[test]
fn thousands_of_callers_hold_locks_with_names_of_their_own() {
    const CALLERS: usize = 5_000;
    run_within(RUN_MAX, async {
        let mut stage = Stage::prepare().await;
        // The root exists.
        let first = names(&stage.other).lock("first").expect("the name is valid");
        assert_eq!(first.acquire().await.expect("it is free").release().await, Ok(RELEASED));
        stage.requests().await;
        let acquiring = crowd_of(CALLERS, |number| {
            let lock = names(&stage.crowd).lock(&number.to_string()).expect("the name is valid");
            async move { lock.acquire().await.expect("it is free") }
        });
        let (guards, acquired_in) = stage.join(acquiring).await;
        let acquired = stage.requests().await;
        let idle = stage.idle().await;
        assert!(guards.iter().all(|guard| guard.state() == LockState::Held));
        let releasing: JoinSet<_> = guards.into_iter().map(|guard| guard.release()).collect();
        let (outcomes, released_in) = stage.join(releasing).await;
        let released = stage.requests().await;
        eprintln!(
            "{CALLERS} names: {acquired} requests to acquire, {idle} in three minutes, {released} \
             to release; {acquired_in:?}, {released_in:?}"
        );
        assert!(outcomes.iter().all(|outcome| *outcome == Ok(RELEASED)));
        assert!(acquired <= NAME_ACQUIRE_MAX * CALLERS as u64, "{acquired}");
        // Each guard sets its watch, and then tests its znode.
        assert!(idle <= (1 + TESTS_MAX) * CALLERS as u64 + RENEWALS_MAX, "{idle}");
        assert!(released <= NAME_RELEASE_MAX * CALLERS as u64, "{released}");
        assert!(acquired_in <= GO_ON_MAX && released_in <= GO_ON_MAX);
        assert_eq!(stage.world.server.children(NAMES), Some(vec![]), "directories are left");
        stage.finish().await;
    });
}

const RELEASED: Released = Released::Released;
/// Requests of an acquire of a named lock that is free: two creates and a list.
const NAME_ACQUIRE_MAX: u64 = 3;
/// Requests of a release of a named lock: two deletes.
const NAME_RELEASE_MAX: u64 = 2;

#[test]
fn thousands_of_callers_pass_locks_with_few_names() {
    const CALLERS: usize = 5_000;
    const FEW: usize = 10;
    run_within(RUN_MAX, async {
        let mut stage = Stage::prepare().await;
        let lock = |client: &Client, number: usize| {
            names(client).lock(&(number % FEW).to_string()).expect("the name is valid")
        };
        let held = crowd_of(FEW, |number| {
            let lock = lock(&stage.other, number);
            async move { lock.acquire().await.expect("it is free") }
        });
        let (held, _) = stage.join(held).await;
        let (crowd, counts) = (stage.crowd.clone(), Counts::new(FEW));
        let caller = |number: usize| {
            let (lock, counts) = (lock(&crowd, number), counts.clone());
            async move {
                let guard = lock.acquire().await.expect("its turn comes");
                counts.have(&[number % FEW]).await;
                assert_eq!(guard.release().await, Ok(RELEASED));
            }
        };
        let (_, served) = serve(&mut stage, CALLERS, caller, async || drop(held)).await;
        served.check(&format!("callers of {FEW} names"), CALLERS, NAME_ARRIVAL_MAX, NAME_PASS_MAX);
        assert_eq!(stage.world.server.children(NAMES), Some(vec![]), "directories are left");
        stage.finish().await;
    });
}

/// Requests with which a caller joins the queue of a named lock: two creates, and the reads that set
/// its watches. Callers that arrive together share a few lists.
const NAME_ARRIVAL_MAX: u64 = 5;
/// Requests of a caller whose turn comes: a list and two deletes.
const NAME_PASS_MAX: u64 = 4;

impl Served {
    fn check(&self, who: &str, count: usize, arrival_max: u64, served_max: u64) {
        let Self { arrival, idle, served, time } = self;
        eprintln!(
            "{count} {who}: {arrival} requests to arrive, {idle} in three minutes, {served} to be \
             served; {time:?}"
        );
        let count = count as u64;
        assert!(*arrival <= arrival_max * count, "{arrival}");
        // Both clients renew their leases.
        assert!(*idle <= CHECKS_MAX * count + 2 * RENEWALS_MAX, "{idle}");
        assert!(*served <= served_max * count, "{served}");
        assert!(*time <= GO_ON_MAX, "{time:?}");
    }
}

/// Each caller needs all locks, so they are served one after the other.
#[test]
fn a_thousand_callers_pass_a_multi_lock_of_all_kinds() {
    const CALLERS: usize = 1_000;
    run_within(RUN_MAX, async {
        let mut stage = Stage::prepare().await;
        let held = all_kinds(&stage.other).acquire().await.expect("all are free");
        let (crowd, counts) = (stage.crowd.clone(), Counts::new(1));
        let caller = |_| {
            let (locks, counts) = (all_kinds(&crowd), counts.clone());
            async move {
                let guard = locks.acquire().await.expect("its turn comes");
                counts.have(&[0]).await;
                guard.release().await.expect("the znodes can be deleted");
            }
        };
        let (_, served) = serve(&mut stage, CALLERS, caller, async || drop(held)).await;
        served.check("callers of four locks", CALLERS, MULTI_ARRIVAL_MAX, MULTI_PASS_MAX);
        stage.finish().await;
    });
}

/// Requests with which a caller joins the queue of the first lock.
const MULTI_ARRIVAL_MAX: u64 = 4;
/// Requests of a caller that has its turn at the first lock, acquires three others and releases all.
const MULTI_PASS_MAX: u64 = 14;

/// Each caller needs three of seven locks, which it names in an order of its own. If the locks were
/// acquired in that order, the callers would wait for each other forever.
#[test]
fn hundreds_of_callers_share_locks_that_each_names_in_its_own_order() {
    const CALLERS: usize = 700;
    const LOCKS: usize = 7;
    const EACH: usize = 3;
    run_within(RUN_MAX, async {
        let mut stage = Stage::prepare().await;
        let locks = |client: &Client, numbers: &[usize]| -> MultiLock {
            let add = |builder: MultiLockBuilder, number: &usize| {
                let lock = FairLock::new(client, &format!("/locks/{number}"));
                builder.with(lock.expect("the path is valid"))
            };
            numbers.iter().fold(MultiLock::builder(), add).build().expect("the paths differ")
        };
        let all: Vec<_> = (0..LOCKS).collect();
        let held = locks(&stage.other, &all).acquire().await.expect("all are free");
        let (crowd, counts) = (stage.crowd.clone(), Counts::new(LOCKS));
        let caller = |number: usize| {
            // 1, 2 or 3 steps around the table, which has a prime number of places.
            let step = 1 + number / LOCKS % 3;
            let own: Vec<_> = (0..EACH).map(|nth| (number + nth * step) % LOCKS).collect();
            let (locks, counts) = (locks(&crowd, &own), counts.clone());
            async move {
                let guard = locks.acquire().await.expect("its turn comes");
                counts.have(&own).await;
                guard.release().await.expect("the znodes can be deleted");
            }
        };
        let (_, served) = serve(&mut stage, CALLERS, caller, async || drop(held)).await;
        let who = format!("callers of {EACH} of {LOCKS} locks");
        served.check(&who, CALLERS, SHARED_ARRIVAL_MAX, SHARED_PASS_MAX);
        stage.finish().await;
    });
}

const SHARED_ARRIVAL_MAX: u64 = 4;
/// Requests of a caller that waits for three locks, one after the other, and releases them.
const SHARED_PASS_MAX: u64 = 10;

/// One caller acquires the lock, and all others add a level, for which they send nothing.
#[test]
fn thousands_of_callers_share_one_holder() {
    const CALLERS: usize = 5_000;
    run_within(RUN_MAX, async {
        let mut stage = Stage::prepare().await;
        let held = reentrant(&stage.other).acquire().await.expect("it is free");
        let holder = Holder::new(reentrant(&stage.crowd));
        let caller = |_| {
            let holder = holder.clone();
            async move { holder.acquire().await.expect("its turn comes") }
        };
        let (levels, served) = serve(&mut stage, CALLERS, caller, async || drop(held)).await;
        assert_eq!(holder.levels(), CALLERS);
        assert!(levels.iter().all(|level| level.state() == LockState::Held));
        let (ends, time) = stage.join(levels.into_iter().map(Level::release).collect()).await;
        let released = stage.requests().await;
        let Served { arrival, idle, served, time: served_in } = served;
        eprintln!(
            "{CALLERS} callers of one holder: {arrival} requests to arrive, {idle} in three \
             minutes, {served} to be served, {released} to release; {served_in:?}, {time:?}"
        );
        assert_eq!(ends.iter().filter(|end| **end == Ok(Some(RELEASED))).count(), 1);
        assert_eq!(ends.iter().filter(|end| **end == Ok(None)).count(), CALLERS - 1);
        assert!(arrival <= HOLDER_ARRIVAL_MAX, "{arrival}");
        assert!(idle <= CHECKS_MAX + 2 * RENEWALS_MAX, "{idle}");
        assert!(served + released <= HOLDER_PASS_MAX, "{served} + {released}");
        assert!(served_in <= GO_ON_MAX && time <= GO_ON_MAX);
        stage.finish().await;
    });
}

fn reentrant(client: &Client) -> FairLock {
    FairLock::new(client, REENTRANT).expect("the path is valid")
}

/// Requests with which a holder joins the queue, and those with which the first holder creates the
/// directory or renews its lease meanwhile.
const HOLDER_ARRIVAL_MAX: u64 = 8;
/// Requests of a holder whose turn comes, with its release and that of the holder before it.
const HOLDER_PASS_MAX: u64 = 4;

/// The callers of a holder share its turn, and the holders exclude each other.
#[test]
fn a_hundred_holders_with_fifty_callers_each_pass_a_lock() {
    const HOLDERS: usize = 100;
    const CALLERS: usize = 50;
    run_within(RUN_MAX, async {
        let mut stage = Stage::prepare().await;
        let held = reentrant(&stage.other).acquire().await.expect("it is free");
        let holders: Arc<[Holder<Fair>]> =
            (0..HOLDERS).map(|_| Holder::new(reentrant(&stage.crowd))).collect();
        let caller = |number: usize| {
            let (own, holders) = (number % HOLDERS, Arc::clone(&holders));
            async move {
                let level = holders[own].acquire().await.expect("its turn comes");
                // The other callers of the holder add their levels.
                yield_now().await;
                for (other, holder) in holders.iter().enumerate() {
                    assert!(other == own || holder.levels() == 0, "{other} beside {own}");
                }
                level.release().await.expect("the znode can be deleted");
            }
        };
        let (_, served) = serve(&mut stage, HOLDERS * CALLERS, caller, async || drop(held)).await;
        let Served { arrival, idle, served, time } = served;
        eprintln!(
            "{HOLDERS} holders with {CALLERS} callers each: {arrival} requests to arrive, {idle} in \
             three minutes, {served} to be served; {time:?}"
        );
        let count = HOLDERS as u64;
        assert!(arrival <= HOLDER_ARRIVAL_MAX * count, "{arrival}");
        assert!(idle <= CHECKS_MAX * count + 2 * RENEWALS_MAX, "{idle}");
        assert!(served <= HOLDER_PASS_MAX * count, "{served}");
        assert!(time <= GO_ON_MAX, "{time:?}");
        stage.finish().await;
    });
}
