//! Locks that are made of other locks: named locks, a multi-lock and a reentrant lock. Each is held
//! when the outage begins, and another client waits for it.

use std::future::IntoFuture as _;

use zk_recipes::{
    Client, ExclusiveLock, FairLock, Holder, LockError, LockState, LostReason, MultiLock,
    NamedLocks, Released, RwLock, Semaphore,
};

use crate::outage::{Outage, Plan, Worst, for_each_outage, now};

/// The client that holds the lock.
const HOLDER: usize = 0;
/// The client that waits for it.
const WAITER: usize = 1;
/// The client that comes during the outage.
const LATE: usize = 2;

const NAMES: &str = "/locks/names";
const LOCK: &str = "/locks/reentrant";

/// Requests of three clients, each of which has one or two claims, some of them in two sessions.
const NAMED_REQUESTS_MAX: u64 = 24;
/// Requests of two clients, each of which has claims of four locks, some of them in two sessions.
const MULTI_REQUESTS_MAX: u64 = 45;
/// Requests of two clients, each of which has one claim.
const REENTRANT_REQUESTS_MAX: u64 = 14;

fn names(client: &Client) -> NamedLocks {
    NamedLocks::new(client, NAMES).expect("the path is valid")
}

async fn survive_named(plan: Plan) -> Worst {
    let mut outage = Outage::prepare(plan, 3).await;
    let lock = |outage: &Outage, client: usize, name: &str| {
        names(&outage.clients[client]).lock(name).expect("the name is valid")
    };
    let held = lock(&outage, HOLDER, "a").acquire().await.expect("it is free");
    let waiting = lock(&outage, WAITER, "a").acquire().into_future();
    let waiting = outage.call("an acquire that waits", WAITER, waiting);
    outage.settle().await;
    assert!(waiting.is_pending(), "it is held");
    outage.begin();
    outage.middle().await;
    let late = lock(&outage, LATE, "b").acquire().into_future();
    let late = outage.call("an acquire of another name", LATE, late);
    outage.end().await;
    check_state(plan, held.state());
    let (late, _) = outage.done(late, now()).await;
    let late = late.unwrap_or_else(|error| panic!("{plan:?}: {error}"));
    let released = held.release().await;
    assert!(released.is_ok(), "{plan:?}: {released:?}\n{}", outage.world.trace());
    let (next, _) = outage.done(waiting, now()).await;
    let next = next.unwrap_or_else(|error| panic!("{plan:?}: {error}"));
    assert_eq!(next.release().await, Ok(Released::Released), "{plan:?}");
    assert_eq!(late.release().await, Ok(Released::Released), "{plan:?}");
    let world = outage.world.clone();
    let worst = outage.finish().await;
    let left = world.server.children(NAMES).unwrap_or_default();
    assert!(left.is_empty(), "{plan:?}: directories are left: {left:?}");
    worst
}

/// A lock is held after a short outage, and may be lost after a long one.
fn check_state(plan: Plan, state: LockState) {
    match state {
        LockState::Held | LockState::AtRisk => {}
        LockState::Lost(reason) => {
            let is_legal =
                matches!(reason, LostReason::DeadlinePassed | LostReason::SessionExpired);
            assert!(plan.may_expire() && is_legal, "{plan:?}: lost by {reason}");
        }
    }
}

/// One lock of each kind.
pub(crate) fn all_kinds(client: &Client) -> MultiLock {
    let fair = FairLock::new(client, "/locks/a").expect("the path is valid");
    let exclusive = ExclusiveLock::new(client, "/locks/b").expect("the path is valid");
    let shared = RwLock::new(client, "/locks/c").expect("the path is valid");
    let permits = Semaphore::new(client, "/locks/d", 1).expect("the path is valid");
    let locks = MultiLock::builder().with(&fair).with(&exclusive);
    locks.with(shared.write_side()).with(&permits).build().expect("the paths differ")
}

async fn survive_multi(plan: Plan) -> Worst {
    let mut outage = Outage::prepare(plan, 2).await;
    let held = all_kinds(&outage.clients[HOLDER]).acquire().await.expect("all are free");
    let waiting = all_kinds(&outage.clients[WAITER]).acquire().into_future();
    let waiting = outage.call("an acquire that waits", WAITER, waiting);
    outage.settle().await;
    assert!(waiting.is_pending(), "they are held");
    outage.begin();
    outage.middle().await;
    outage.end().await;
    check_state(plan, held.state());
    let released = held.release().await;
    assert!(released.is_ok(), "{plan:?}: {released:?}\n{}", outage.world.trace());
    let (next, _) = outage.done(waiting, now()).await;
    let next = next.unwrap_or_else(|error| panic!("{plan:?}: {error}"));
    next.validate().await.unwrap_or_else(|error| panic!("{plan:?}: {error}"));
    let released = next.release().await;
    assert!(released.is_ok(), "{plan:?}: {released:?}\n{}", outage.world.trace());
    outage.finish().await
}

async fn survive_reentrant(plan: Plan) -> Worst {
    let mut outage = Outage::prepare(plan, 2).await;
    let lock = |client: &Client| FairLock::new(client, LOCK).expect("the path is valid");
    let holder = Holder::new(lock(&outage.clients[HOLDER]));
    let outer = holder.acquire().await.expect("it is free");
    let waiting = lock(&outage.clients[WAITER]).acquire().into_future();
    let waiting = outage.call("an acquire that waits", WAITER, waiting);
    outage.settle().await;
    outage.begin();
    outage.middle().await;
    // A nested acquire sends nothing, so it does not wait for the end of the outage.
    let nested = holder.acquire().await;
    outage.end().await;
    let again = holder.acquire().await;
    for level in [nested, again] {
        match level {
            Ok(inner) => assert_eq!(inner.release().await, Ok(None), "{plan:?}"),
            Err(LockError::Lost(reason)) => check_state(plan, LockState::Lost(reason)),
            Err(error) => panic!("{plan:?}: {error}"),
        }
    }
    let released = outer.release().await;
    assert!(released.is_ok(), "{plan:?}: {released:?}\n{}", outage.world.trace());
    let (next, _) = outage.done(waiting, now()).await;
    let next = next.unwrap_or_else(|error| panic!("{plan:?}: {error}"));
    assert_eq!(next.release().await, Ok(Released::Released), "{plan:?}");
    outage.finish().await
}

#[test]
fn named_locks_go_on_after_an_outage_of_any_length() {
    for_each_outage("named locks", NAMED_REQUESTS_MAX, survive_named);
}

#[test]
fn a_multi_lock_goes_on_after_an_outage_of_any_length() {
    for_each_outage("a multi-lock", MULTI_REQUESTS_MAX, survive_multi);
}

#[test]
fn a_reentrant_lock_goes_on_after_an_outage_of_any_length() {
    for_each_outage("a reentrant lock", REENTRANT_REQUESTS_MAX, survive_reentrant);
}
