//! The fair lock: acquire, queued acquire, timed acquire, release, hand-over.

use std::future::IntoFuture as _;
use std::time::Duration;

use zk_recipes::{FairLock, Guard, LockError, LockState, Released};
use zk_tests::scene::spawn;
use zk_tests::world::{Enumeration, Ran, World, run, sleep_ms};
use zk_testserver::Fault;

use crate::{CONTENDER, HOLDER, NEXT, QUITTER, first_session, inject, ran};

#[test]
fn acquire_and_release_survive_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("uncontended", first_session());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(CONTENDER).await;
            inject(&world, faults);
            let guard = World::lock(&client).acquire().await.expect("nobody else wants it");
            assert_ne!(guard.state(), LockState::AtRisk, "\n{}", world.trace());
            guard.validate().await.expect("it is held");
            let released = guard.release().await.expect("it can be deleted");
            assert_eq!(released, Released::Released, "\n{}", world.trace());
            world.check_clean(&[&client]).await;
            ran(&world)
        })
    });
    assert!(enumeration.singles >= 36 && enumeration.pairs >= 500, "{enumeration:?}");
}

#[test]
fn release_alone_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("release", first_session());
    enumeration.run(&|faults| {
        run(async {
            // Dropped, by the way of the janitor, and released.
            release_under(faults.clone(), false).await;
            release_under(faults, true).await
        })
    });
    assert!(enumeration.singles >= 12 && enumeration.pairs >= 100, "{enumeration:?}");
}

async fn release_under(faults: Vec<Fault>, by_call: bool) -> Ran {
    let world = World::new();
    let client = world.client(CONTENDER).await;
    let guard = World::lock(&client).acquire().await.expect("nobody else wants it");
    inject(&world, faults);
    if by_call {
        guard.release().await.expect("it can be deleted");
    } else {
        drop(guard);
    }
    world.check_clean(&[&client]).await;
    ran(&world)
}

/// The contender waits, the holder releases, the contender holds, alone, and releases.
async fn hand_over(world: &World, held: Guard, lock: &FairLock) {
    let waiting = async {
        let guard = lock.acquire().await.expect("it becomes free");
        (guard, world.contenders())
    };
    let holding = async {
        sleep_ms(1500).await;
        assert_eq!(held.state(), LockState::Held, "\n{}", world.trace());
        let token = held.fencing_token();
        held.release().await.expect("it can be deleted");
        token
    };
    let ((guard, contenders), token) = tokio::join!(waiting, holding);
    assert!(guard.fencing_token() > token, "\n{}", world.trace());
    assert_eq!(contenders.len(), 1, "held beside another\n{}", world.trace());
    guard.release().await.expect("it can be deleted");
}

#[test]
fn queued_acquire_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("queued", first_session());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(CONTENDER).await;
            let other = world.client(HOLDER).await;
            let held = World::lock(&other).acquire().await.expect("nobody else wants it");
            inject(&world, faults);
            let lock = World::lock(&client);
            hand_over(&world, held, &lock).await;
            world.check_clean(&[&client, &other]).await;
            assert_eq!(lock.stats().watches_missed, 0);
            ran(&world)
        })
    });
    assert!(enumeration.singles >= 52 && enumeration.pairs >= 1000, "{enumeration:?}");
}

/// Holder, one or two before it, and the contender, whose connection is cut. With three ahead the
/// first of those who wait gives up, and the contender has another to watch in its place.
async fn behind_others(faults: Vec<Fault>, gives_up: bool) -> Ran {
    let world = World::new();
    let client = world.client(CONTENDER).await;
    let (other, quitter, next) =
        (world.client(HOLDER).await, world.client(QUITTER).await, world.client(NEXT).await);
    let held = World::lock(&other).acquire().await.expect("nobody else wants it");
    let mut places = 2;
    let quits = World::lock(&quitter).acquire().timeout(Duration::from_millis(2500)).into_future();
    let quits = spawn(async move { if gives_up { quits.await.map(drop) } else { Ok(()) } });
    if gives_up {
        world.until("the first has a place", |_| world.contenders().len() == places).await;
        places += 1;
    }
    let waits = spawn(World::lock(&next).acquire().into_future());
    world.until("the next has a place", |_| world.contenders().len() == places).await;
    inject(&world, faults);

    let lock = World::lock(&client);
    let waiting = async {
        let guard = lock.acquire().await.expect("it becomes free");
        (guard, world.contenders())
    };
    let passing = async {
        // Once the one that gives up is gone.
        sleep_ms(4000).await;
        assert_eq!(held.state(), LockState::Held, "\n{}", world.trace());
        held.release().await.expect("it can be deleted");
        let guard = waits.await.expect("it does not panic").expect("it becomes free");
        sleep_ms(1500).await;
        assert_eq!(guard.state(), LockState::Held, "\n{}", world.trace());
        let token = guard.fencing_token();
        guard.release().await.expect("it can be deleted");
        token
    };
    let ((guard, contenders), token) = tokio::join!(waiting, passing);
    assert!(guard.fencing_token() > token, "\n{}", world.trace());
    assert_eq!(contenders.len(), 1, "held beside another\n{}", world.trace());
    guard.release().await.expect("it can be deleted");
    assert_eq!(quits.await.expect("it does not panic").is_err(), gives_up);
    world.check_clean(&[&client, &other, &quitter, &next]).await;
    assert_eq!(lock.stats().watches_missed, 0);
    ran(&world)
}

#[test]
fn acquire_behind_two_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("behind-two", first_session());
    enumeration.run(&|faults| run(behind_others(faults, false)));
    assert!(enumeration.singles >= 52 && enumeration.pairs >= 1000, "{enumeration:?}");
}

#[test]
fn acquire_behind_three_of_whom_one_gives_up_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("behind-three", first_session());
    enumeration.run(&|faults| run(behind_others(faults, true)));
    assert!(enumeration.singles >= 52 && enumeration.pairs >= 1000, "{enumeration:?}");
}

#[test]
fn timed_acquire_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("timed", first_session());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(CONTENDER).await;
            let other = world.client(HOLDER).await;
            let held = World::lock(&other).acquire().await.expect("nobody else wants it");
            inject(&world, faults);
            let timed = World::lock(&client).acquire().timeout(Duration::from_millis(700)).await;
            assert_eq!(timed.map(drop), Err(LockError::TimedOut), "\n{}", world.trace());
            // The holder stays undisturbed, and the place behind it becomes free.
            sleep_ms(3000).await;
            assert_eq!(held.state(), LockState::Held);
            assert_eq!(world.contenders().len(), 1, "orphan\n{}", world.trace());
            held.release().await.expect("it can be deleted");
            world.check_clean(&[&client, &other]).await;
            ran(&world)
        })
    });
    assert!(enumeration.singles >= 52 && enumeration.pairs >= 1000, "{enumeration:?}");
}

/// The caller gives up while the connection is down: what is left is for the janitor, which cannot
/// know whether there is anything.
#[test]
fn impatient_acquire_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("impatient", first_session());
    let timed_out = std::cell::Cell::new(0);
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(CONTENDER).await;
            inject(&world, faults);
            match World::lock(&client).acquire().timeout(Duration::from_millis(5)).await {
                Ok(guard) => drop(guard),
                Err(error) => {
                    assert_eq!(error, LockError::TimedOut, "\n{}", world.trace());
                    timed_out.set(timed_out.get() + 1);
                }
            }
            world.check_clean(&[&client]).await;
            ran(&world)
        })
    });
    assert!(enumeration.singles >= 36 && enumeration.pairs >= 300, "{enumeration:?}");
    assert!(timed_out.get() >= 300, "nobody gave up while disconnected: {timed_out:?}");
}

/// Holder and contender, with cuts of either: the connection that is cut is that of whoever sends
/// the request. A holder's trouble must never let the other in too early, and must not keep it out.
#[test]
fn hand_over_survives_every_pair_of_cuts_of_either_side() {
    let mut enumeration = Enumeration::new("hand-over", None);
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(CONTENDER).await;
            let other = world.client(HOLDER).await;
            inject(&world, faults);
            let held = World::lock(&other).acquire().await.expect("nobody else wants it yet");
            hand_over(&world, held, &World::lock(&client)).await;
            world.check_clean(&[&client, &other]).await;
            ran(&world)
        })
    });
    assert!(enumeration.singles >= 100 && enumeration.pairs >= 5000, "{enumeration:?}");
}
