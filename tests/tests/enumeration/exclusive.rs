//! The exclusive lock: every single cut and every pair of cuts. Its znode has the same name for
//! everybody, so what is looked for above all is somebody who adopts or deletes another's.

use std::cell::Cell;
use std::time::Duration;

use zk_recipes::{Client, ExclusiveGuard, LockError, LockState, Released};
use zk_tests::exclusive::{check_clean, lock, owner};
use zk_tests::world::{Enumeration, Ran, World, run, sleep_ms};
use zk_testserver::Fault;

use crate::{CONTENDER, HOLDER, first_session, inject, ran};

fn id(client: &Client) -> Option<i64> {
    client.session_id().map(|session| session.0)
}

/// The guard says that it is held, and a write proves that it is ours.
async fn check_held(world: &World, guard: &ExclusiveGuard) {
    guard.validate().await.expect("it is held");
    assert_eq!(owner(world), Some(guard.session().0), "\n{}", world.trace());
    let stat = world.server.stat(guard.path()).expect("it is held");
    assert_eq!(guard.fencing_token().as_i64(), stat.czxid, "\n{}", world.trace());
}

#[test]
fn exclusive_acquire_and_release_survive_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("exclusive-uncontended", first_session());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(CONTENDER).await;
            inject(&world, faults);
            let guard = lock(&client).acquire().await.expect("nobody else wants it");
            assert_ne!(guard.state(), LockState::AtRisk, "\n{}", world.trace());
            check_held(&world, &guard).await;
            let released = guard.release().await.expect("it can be deleted");
            assert_eq!(released, Released::Released, "\n{}", world.trace());
            check_clean(&world, &[&client]).await;
            ran(&world)
        })
    });
    assert!(enumeration.singles >= 36 && enumeration.pairs >= 500, "{enumeration:?}");
}

/// The contender waits, the holder releases, the contender holds, alone, and releases.
async fn hand_over(world: &World, held: ExclusiveGuard, client: &Client) {
    let acquired = Cell::new(false);
    let waiting = async {
        let guard = lock(client).acquire().await.expect("it becomes free");
        acquired.set(true);
        guard
    };
    let holding = async {
        sleep_ms(1500).await;
        assert_eq!(held.state(), LockState::Held, "\n{}", world.trace());
        assert!(!acquired.get(), "two holders\n{}", world.trace());
        let token = held.fencing_token();
        held.release().await.expect("it can be deleted");
        token
    };
    let (guard, token) = tokio::join!(waiting, holding);
    assert!(guard.fencing_token() > token, "\n{}", world.trace());
    check_held(world, &guard).await;
    // Whatever comes late from the release of the other does not remove it.
    sleep_ms(1000).await;
    check_held(world, &guard).await;
    assert!(!matches!(guard.state(), LockState::Lost(_)), "\n{}", world.trace());
    guard.release().await.expect("it can be deleted");
}

#[test]
fn waiting_exclusive_acquire_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("exclusive-waiting", first_session());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(CONTENDER).await;
            let other = world.client(HOLDER).await;
            let held = lock(&other).acquire().await.expect("nobody else wants it");
            inject(&world, faults);
            hand_over(&world, held, &client).await;
            check_clean(&world, &[&client, &other]).await;
            ran(&world)
        })
    });
    assert!(enumeration.singles >= 36 && enumeration.pairs >= 500, "{enumeration:?}");
}

#[test]
fn timed_exclusive_acquire_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("exclusive-timed", first_session());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(CONTENDER).await;
            let other = world.client(HOLDER).await;
            let held = lock(&other).acquire().await.expect("nobody else wants it");
            inject(&world, faults);
            let timed = lock(&client).acquire().timeout(Duration::from_millis(700)).await;
            assert_eq!(timed.map(drop), Err(LockError::TimedOut), "\n{}", world.trace());
            // The holder stays undisturbed, whatever is looked for behind it.
            sleep_ms(3000).await;
            assert_eq!(held.state(), LockState::Held);
            check_held(&world, &held).await;
            held.release().await.expect("it can be deleted");
            check_clean(&world, &[&client, &other]).await;
            ran(&world)
        })
    });
    assert!(enumeration.singles >= 18 && enumeration.pairs >= 100, "{enumeration:?}");
}

/// The caller gives up while the connection is down, and somebody else comes meanwhile.
#[test]
fn impatient_exclusive_acquire_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("exclusive-impatient", first_session());
    let timed_out = Cell::new(0);
    enumeration.run(&|faults| {
        run(async {
            impatient(faults.clone(), false, &timed_out).await;
            impatient(faults, true, &timed_out).await
        })
    });
    assert!(enumeration.singles >= 24 && enumeration.pairs >= 100, "{enumeration:?}");
    assert!(timed_out.get() >= 200, "nobody gave up while disconnected: {timed_out:?}");
}

async fn impatient(faults: Vec<Fault>, has_other: bool, timed_out: &Cell<usize>) -> Ran {
    let world = World::new();
    let client = world.client(CONTENDER).await;
    let other = world.client(HOLDER).await;
    inject(&world, faults);
    match lock(&client).acquire().timeout(Duration::from_millis(5)).await {
        Ok(guard) => drop(guard),
        Err(error) => {
            assert_eq!(error, LockError::TimedOut, "\n{}", world.trace());
            timed_out.set(timed_out.get() + 1);
        }
    }
    if has_other {
        let next = lock(&other).acquire().await.expect("it becomes free");
        // What is left of the first is looked for, and this is not it.
        sleep_ms(2000).await;
        check_held(&world, &next).await;
        next.release().await.expect("it can be deleted");
    }
    check_clean(&world, &[&client, &other]).await;
    ran(&world)
}

#[test]
fn exclusive_release_survives_every_pair_of_cuts_and_spares_the_next_holder() {
    let mut enumeration = Enumeration::new("exclusive-release", first_session());
    enumeration.run(&|faults| {
        run(async {
            // Dropped, by the way of the janitor, and released; somebody waits, or nobody.
            for (by_call, has_waiter) in [(false, false), (true, false), (false, true)] {
                release_under(faults.clone(), by_call, has_waiter).await;
            }
            release_under(faults, true, true).await
        })
    });
    assert!(enumeration.singles >= 12 && enumeration.pairs >= 80, "{enumeration:?}");
}

async fn release_under(faults: Vec<Fault>, by_call: bool, has_waiter: bool) -> Ran {
    let world = World::new();
    let client = world.client(CONTENDER).await;
    let other = world.client(HOLDER).await;
    let guard = lock(&client).acquire().await.expect("nobody else wants it");
    let waiting = async {
        let lock = lock(&other);
        let guard = if has_waiter { lock.acquire().await.ok() } else { None };
        if let Some(guard) = &guard {
            check_held(&world, guard).await;
            sleep_ms(2000).await;
            assert_eq!(guard.state(), LockState::Held, "\n{}", world.trace());
            check_held(&world, guard).await;
        }
        guard
    };
    let releasing = async {
        sleep_ms(10).await;
        inject(&world, faults);
        if by_call {
            let released = guard.release().await;
            assert_eq!(released, Ok(Released::Released), "\n{}", world.trace());
        } else {
            drop(guard);
        }
    };
    let (next, ()) = tokio::join!(waiting, releasing);
    assert_eq!(next.is_some(), has_waiter);
    drop(next);
    check_clean(&world, &[&client, &other]).await;
    assert!(id(&client).is_some_and(|id| world.server.sessions().contains(&id)));
    ran(&world)
}

/// Holder and contender, with cuts of either side.
#[test]
fn exclusive_hand_over_survives_every_pair_of_cuts_of_either_side() {
    let mut enumeration = Enumeration::new("exclusive-hand-over", None);
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(CONTENDER).await;
            let other = world.client(HOLDER).await;
            inject(&world, faults);
            let held = lock(&other).acquire().await.expect("nobody else wants it yet");
            hand_over(&world, held, &client).await;
            check_clean(&world, &[&client, &other]).await;
            ran(&world)
        })
    });
    assert!(enumeration.singles >= 100 && enumeration.pairs >= 3000, "{enumeration:?}");
}

/// The session is the same, so only the attempt tells them apart.
#[test]
fn exclusive_hand_over_between_tasks_of_one_client_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("exclusive-one-client", first_session());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(CONTENDER).await;
            let held = lock(&client).acquire().await.expect("nobody else wants it yet");
            inject(&world, faults);
            hand_over(&world, held, &client).await;
            check_clean(&world, &[&client]).await;
            ran(&world)
        })
    });
    assert!(enumeration.singles >= 60 && enumeration.pairs >= 1000, "{enumeration:?}");
}
