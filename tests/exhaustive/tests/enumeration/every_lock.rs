//! Acquires, waits, timeouts, releases and hand-overs of every lock.

use std::cell::Cell;
use std::future::IntoFuture as _;
use std::time::Duration;

use zk_recipes::kind::Queued;
use zk_recipes::{Client, Guard, LockError, LockState, Released};
use zk_tests::case::{Case, is_same};
use zk_tests::for_each_lock;
use zk_tests::scene::{granted, hold, holder, spawn};
use zk_tests::world::{Enumeration, Ran, World, run, sleep_ms};
use zk_testserver::Fault;

use crate::{CONTENDER, HOLDER, NEXT, QUITTER, contender};

for_each_lock! {
    #[test] locks: [acquire_and_release_survive_every_pair_of_cuts]
    #[test] pairs: [
        waiting_acquire_survives_every_pair_of_cuts,
        timed_acquire_survives_every_pair_of_cuts,
        impatient_acquire_survives_every_pair_of_cuts,
        release_survives_every_pair_of_cuts_and_spares_the_next_holder,
        hand_over_survives_every_pair_of_cuts_of_either_side,
        hand_over_between_tasks_of_one_client_survives_every_pair_of_cuts,
    ]
    #[test] fifos: [
        acquire_behind_two_survives_every_pair_of_cuts,
        acquire_behind_three_of_whom_one_gives_up_survives_every_pair_of_cuts,
    ]
}

/// Returns whether the case is a side of the read/write lock. Alone in its queue, such a contender
/// does the same as a contender of the fair lock.
pub(crate) fn is_side<C: Case>() -> bool {
    C::IS_SHARED || C::HAS_DOWNGRADE
}

/// Returns whether the pair repeats others: a writer behind a writer waits like a contender of the
/// fair lock, and lists the queue like a writer behind a reader.
fn is_repeat<H: Case, W: Case>() -> bool {
    W::IS_RENAMED || is_same::<H, W>() && W::HAS_DOWNGRADE
}

/// Returns the name of an enumeration: the scenario, the waiter and the holder.
fn name<H: Case, W: Case>(scenario: &str) -> String {
    format!("{scenario}, {} behind {}", W::NAME, H::NAME)
}

/// Checks that the lock is held, by a write of the client and by the state of the leader.
async fn check_held<C: Case>(world: &World, guard: &Guard<C::Kind>) {
    guard.validate().await.expect("the lock is held");
    world.check_granted::<C>(guard);
}

fn acquire_and_release_survive_every_pair_of_cuts<C: Case>() {
    let mut enumeration = Enumeration::new(format!("uncontended, {}", C::NAME), contender())
        .without_pairs_if(C::IS_RENAMED);
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(CONTENDER).await;
            world.inject(faults);
            let guard = hold(&C::of(&client)).await;
            assert_ne!(guard.state(), LockState::AtRisk, "\n{}", world.trace());
            check_held::<C>(&world, &guard).await;
            let released = guard.release().await.expect("its znode can be deleted");
            assert_eq!(released, Released::Released, "\n{}", world.trace());
            world.check_clean(&[&client]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(36, 500), "{enumeration:?}");
}

/// Lets the contender wait while the other contender holds the lock, and hold the lock alone after
/// the release. Finally the contender releases it.
async fn hand_over<H: Case, W: Case>(world: &World, held: Guard<H::Kind>, lock: &W) {
    let is_granted = Cell::new(false);
    let waiting = async {
        let guard = lock.acquire().await.expect("the lock becomes free");
        is_granted.set(true);
        world.check_granted::<W>(&guard);
        assert_eq!(world.znodes().len(), 1, "held beside another\n{}", world.trace());
        guard
    };
    let holding = async {
        sleep_ms(1500).await;
        assert_eq!(held.state(), LockState::Held, "\n{}", world.trace());
        assert!(!is_granted.get(), "two holders\n{}", world.trace());
        let znodes = if W::MARK.is_some() { 2 } else { 1 };
        assert_eq!(world.znodes().len(), znodes, "a contender is missing\n{}", world.trace());
        let token = H::token(&held);
        held.release().await.expect("its znode can be deleted");
        token
    };
    let (guard, token) = tokio::join!(waiting, holding);
    if let (Some(before), Some(after)) = (token, W::token(&guard)) {
        assert!(after > before, "\n{}", world.trace());
    }
    check_held::<W>(world, &guard).await;
    // A late part of the other contender's release must not delete the new holder's znode.
    sleep_ms(1000).await;
    check_held::<W>(world, &guard).await;
    assert!(!matches!(guard.state(), LockState::Lost(_)), "\n{}", world.trace());
    guard.release().await.expect("its znode can be deleted");
}

fn waiting_acquire_survives_every_pair_of_cuts<H: Case, W: Case>() {
    let mut enumeration = Enumeration::new(name::<H, W>("waiting"), contender())
        .without_pairs_if(is_repeat::<H, W>());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(CONTENDER).await;
            let (other, held) = holder::<H>(&world, HOLDER).await;
            world.inject(faults);
            let lock = W::of(&client);
            hand_over::<H, W>(&world, held, &lock).await;
            world.check_clean(&[&client, &other]).await;
            assert_eq!(lock.stats().watches_missed, 0);
            world.ran()
        })
    });
    assert!(enumeration.is_complete(44, 1000), "{enumeration:?}");
}

fn timed_acquire_survives_every_pair_of_cuts<H: Case, W: Case>() {
    let mut enumeration =
        Enumeration::new(name::<H, W>("timed"), contender()).without_pairs_if(is_repeat::<H, W>());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(CONTENDER).await;
            let (other, held) = holder::<H>(&world, HOLDER).await;
            world.inject(faults);
            let timed = W::of(&client).acquire().timeout(Duration::from_millis(700)).await;
            assert!(matches!(timed.map(drop), Err(LockError::TimedOut(_))), "\n{}", world.trace());
            // The holder keeps the lock, and the place behind it becomes free.
            sleep_ms(3000).await;
            assert_eq!(held.state(), LockState::Held);
            check_held::<H>(&world, &held).await;
            assert_eq!(world.znodes().len(), 1, "an orphan\n{}", world.trace());
            held.release().await.expect("its znode can be deleted");
            world.check_clean(&[&client, &other]).await;
            world.ran()
        })
    });
    // A waiter for a lock without a queue sends few requests.
    let (singles_min, pairs_min) = if W::MARK.is_some() { (40, 1000) } else { (18, 100) };
    let is_enough = enumeration.is_complete(singles_min, pairs_min);
    assert!(is_enough, "{enumeration:?}");
}

/// The caller gives up while the connection is down, so the janitor must remove what the acquire
/// has left behind, without knowing whether anything is left. Another contender may arrive before
/// the janitor has finished.
fn impatient_acquire_survives_every_pair_of_cuts<H: Case, W: Case>() {
    let mut enumeration = Enumeration::new(name::<H, W>("impatient"), contender());
    let timed_out = Cell::new(0);
    enumeration.run(&|faults| {
        run(async {
            impatient::<H, W>(faults.clone(), false, &timed_out).await;
            impatient::<H, W>(faults, true, &timed_out).await
        })
    });
    assert!(enumeration.is_complete(36, 300), "{enumeration:?}");
    assert!(timed_out.get() >= 300, "no caller gave up while disconnected: {timed_out:?}");
}

async fn impatient<H: Case, W: Case>(
    faults: Vec<Fault>,
    has_other: bool,
    timed_out: &Cell<usize>,
) -> Ran {
    let world = World::new();
    let client = world.client(CONTENDER).await;
    let other = world.client(HOLDER).await;
    world.inject(faults);
    match W::of(&client).acquire().timeout(Duration::from_millis(5)).await {
        Ok(guard) => drop(guard),
        Err(error) => {
            assert!(error.is_timed_out(), "\n{}", world.trace());
            timed_out.set(timed_out.get() + 1);
        }
    }
    if has_other {
        let next = H::of(&other).acquire().await.expect("the lock becomes free");
        // The janitor looks for a znode of the first contender, and must not delete this one.
        sleep_ms(2000).await;
        check_held::<H>(&world, &next).await;
        next.release().await.expect("its znode can be deleted");
    }
    world.check_clean(&[&client, &other]).await;
    world.ran()
}

fn release_survives_every_pair_of_cuts_and_spares_the_next_holder<H: Case, W: Case>() {
    let mut enumeration =
        Enumeration::new(name::<H, W>("release"), contender()).without_pairs_if(W::IS_RENAMED);
    enumeration.run(&|faults| {
        run(async {
            // The release is a call, or a drop, which leaves the work to the janitor. In one case,
            // another contender waits.
            for (by_call, has_waiter) in [(false, false), (true, false), (false, true)] {
                release_under::<H, W>(faults.clone(), by_call, has_waiter).await;
            }
            release_under::<H, W>(faults, true, true).await
        })
    });
    assert!(enumeration.is_complete(12, 100), "{enumeration:?}");
}

async fn release_under<H: Case, W: Case>(
    faults: Vec<Fault>,
    by_call: bool,
    has_waiter: bool,
) -> Ran {
    let world = World::new();
    let (client, guard) = holder::<H>(&world, CONTENDER).await;
    let other = world.client(HOLDER).await;
    let waiting = async {
        if !has_waiter {
            return;
        }
        let guard = W::of(&other).acquire().await.expect("the lock becomes free");
        check_held::<W>(&world, &guard).await;
        sleep_ms(2000).await;
        assert_eq!(guard.state(), LockState::Held, "\n{}", world.trace());
        check_held::<W>(&world, &guard).await;
    };
    let releasing = async {
        sleep_ms(10).await;
        world.inject(faults);
        if by_call {
            let released = guard.release().await;
            assert_eq!(released, Ok(Released::Released), "\n{}", world.trace());
        } else {
            drop(guard);
        }
    };
    let ((), ()) = tokio::join!(waiting, releasing);
    world.check_clean(&[&client, &other]).await;
    let is_alive = client.session_id().is_some_and(|id| world.server.sessions().contains(&id));
    assert!(is_alive, "the session did not expire\n{}", world.trace());
    world.ran()
}

/// The cuts affect either connection. A failure of the holder must neither let the contender in too
/// early nor keep it out.
fn hand_over_survives_every_pair_of_cuts_of_either_side<H: Case, W: Case>() {
    let mut enumeration =
        Enumeration::new(name::<H, W>("hand-over"), None).without_pairs_if(is_repeat::<H, W>());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(CONTENDER).await;
            let other = world.client(HOLDER).await;
            world.inject(faults);
            let held = hold(&H::of(&other)).await;
            hand_over::<H, W>(&world, held, &W::of(&client)).await;
            world.check_clean(&[&client, &other]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(100, 5000), "{enumeration:?}");
}

/// Both tasks have the same session, so only the attempt ids distinguish their znodes.
fn hand_over_between_tasks_of_one_client_survives_every_pair_of_cuts<H: Case, W: Case>() {
    let mut enumeration = Enumeration::new(name::<H, W>("one client"), contender())
        .without_pairs_if(is_side::<W>() || W::IS_RENAMED);
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let (client, held) = holder::<H>(&world, CONTENDER).await;
            world.inject(faults);
            hand_over::<H, W>(&world, held, &W::of(&client)).await;
            world.check_clean(&[&client]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(60, 1000), "{enumeration:?}");
}

/// Runs a scenario with a holder, one or two waiters behind it, and the contender, whose connection
/// is cut. With two waiters, the first of them gives up, and the contender must watch another znode
/// instead.
async fn behind_others<C: Case>(faults: Vec<Fault>, gives_up: bool) -> Ran {
    let world = World::new();
    let client: Client = world.client(CONTENDER).await;
    let (other, quitter, next) =
        (world.client(HOLDER).await, world.client(QUITTER).await, world.client(NEXT).await);
    let held = hold(&C::Rival::of(&other)).await;
    let mut places = 2;
    let patience = Duration::from_millis(2500);
    let quits = C::Rival::of(&quitter).acquire().timeout(patience).into_future();
    let quits = spawn(async move { if gives_up { quits.await.map(drop) } else { Ok(()) } });
    if gives_up {
        world.until("the first has a place", |_| world.contenders().len() == places).await;
        places += 1;
    }
    let waits = spawn(C::Rival::of(&next).acquire().into_future());
    world.until("the next has a place", |_| world.contenders().len() == places).await;
    world.inject(faults);

    let lock = C::of(&client);
    let waiting = async {
        let guard = lock.acquire().await.expect("the lock becomes free");
        world.check_granted::<C>(&guard);
        (guard, world.contenders())
    };
    let passing = async {
        // At this time, the waiter that gives up has left the queue.
        sleep_ms(4000).await;
        assert_eq!(held.state(), LockState::Held, "\n{}", world.trace());
        held.release().await.expect("its znode can be deleted");
        let guard = granted(waits).await;
        sleep_ms(1500).await;
        assert_eq!(guard.state(), LockState::Held, "\n{}", world.trace());
        let token = C::Rival::token(&guard);
        guard.release().await.expect("its znode can be deleted");
        token
    };
    let ((guard, contenders), token) = tokio::join!(waiting, passing);
    if let (Some(before), Some(after)) = (token, C::token(&guard)) {
        assert!(after > before, "\n{}", world.trace());
    }
    assert_eq!(contenders.len(), 1, "held beside another\n{}", world.trace());
    guard.release().await.expect("its znode can be deleted");
    assert_eq!(quits.await.expect("an acquire does not panic").is_err(), gives_up);
    world.check_clean(&[&client, &other, &quitter, &next]).await;
    assert_eq!(lock.stats().watches_missed, 0);
    world.ran()
}

fn acquire_behind_two_survives_every_pair_of_cuts<C: Case<Kind: Queued>>() {
    let mut enumeration = Enumeration::new(format!("behind two, {}", C::NAME), contender())
        .without_pairs_if(C::IS_RENAMED);
    enumeration.run(&|faults| run(behind_others::<C>(faults, false)));
    assert!(enumeration.is_complete(44, 1000), "{enumeration:?}");
}

fn acquire_behind_three_of_whom_one_gives_up_survives_every_pair_of_cuts<C: Case<Kind: Queued>>() {
    let mut enumeration = Enumeration::new(format!("behind three, {}", C::NAME), contender())
        .without_pairs_if(C::IS_RENAMED);
    enumeration.run(&|faults| run(behind_others::<C>(faults, true)));
    assert!(enumeration.is_complete(44, 1000), "{enumeration:?}");
}
