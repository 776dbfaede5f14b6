//! The read/write lock: acquire, queued acquire, timed acquire, release, hand-over, of both sides.

use std::time::Duration;

use zk_recipes::{LockError, LockState, Released, RwLock};
use zk_tests::sides::Side::{self, Read, Write};
use zk_tests::sides::{Holding, acquire, acquire_within};
use zk_tests::world::{Enumeration, Ran, World, run, sleep_ms};
use zk_testserver::Fault;

use crate::{CONTENDER, HOLDER, check_may_hold, first_session, inject, ran};

async fn uncontended(faults: Vec<Fault>, side: Side) -> Ran {
    let world = World::new();
    let client = world.client(CONTENDER).await;
    inject(&world, faults);
    let held = acquire(&World::rw_lock(&client), side).await.expect("nobody else wants it");
    assert_ne!(held.state(), LockState::AtRisk, "\n{}", world.trace());
    check_may_hold(&world, &held);
    held.validate().await.expect("it is held");
    assert_eq!(held.end().await, Ok(Released::Released), "\n{}", world.trace());
    world.check_clean(&[&client]).await;
    ran(&world)
}

#[test]
fn reading_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("read", first_session());
    enumeration.run(&|faults| run(uncontended(faults, Read)));
    assert!(enumeration.singles >= 36 && enumeration.pairs >= 500, "{enumeration:?}");
}

#[test]
fn writing_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("write", first_session());
    enumeration.run(&|faults| run(uncontended(faults, Write)));
    assert!(enumeration.singles >= 36 && enumeration.pairs >= 500, "{enumeration:?}");
}

async fn release_under(faults: Vec<Fault>, side: Side, by_call: bool) -> Ran {
    let world = World::new();
    let client = world.client(CONTENDER).await;
    let held = acquire(&World::rw_lock(&client), side).await.expect("nobody else wants it");
    inject(&world, faults);
    if by_call {
        held.end().await.expect("it can be deleted");
    } else {
        drop(held);
    }
    world.check_clean(&[&client]).await;
    ran(&world)
}

#[test]
fn the_release_of_either_side_survives_every_pair_of_cuts() {
    for (name, side) in [("release of a reader", Read), ("release of a writer", Write)] {
        let mut enumeration = Enumeration::new(name, first_session());
        enumeration.run(&|faults| {
            run(async {
                release_under(faults.clone(), side, false).await;
                release_under(faults, side, true).await
            })
        });
        assert!(enumeration.singles >= 12 && enumeration.pairs >= 100, "{enumeration:?}");
    }
}

/// The contender waits, the holder releases, the contender holds, rightly, and releases.
async fn hand_over(world: &World, held: Holding, lock: &RwLock, side: Side) {
    let waiting = async {
        let guard = acquire(lock, side).await.expect("it becomes free");
        check_may_hold(world, &guard);
        guard
    };
    let holding = async {
        sleep_ms(1500).await;
        assert_eq!(held.state(), LockState::Held, "\n{}", world.trace());
        assert_eq!(world.contenders().len(), 2, "both are there\n{}", world.trace());
        held.end().await.expect("it can be deleted");
    };
    let (guard, ()) = tokio::join!(waiting, holding);
    guard.end().await.expect("it can be deleted");
}

async fn queued(faults: Vec<Fault>, ahead: Side, behind: Side) -> Ran {
    let world = World::new();
    let client = world.client(CONTENDER).await;
    let other = world.client(HOLDER).await;
    let held = acquire(&World::rw_lock(&other), ahead).await.expect("nobody else wants it");
    inject(&world, faults);
    let lock = World::rw_lock(&client);
    hand_over(&world, held, &lock, behind).await;
    world.check_clean(&[&client, &other]).await;
    assert_eq!(lock.stats().watches_missed, 0);
    ran(&world)
}

#[test]
fn a_reader_behind_a_writer_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("read behind a writer", first_session());
    enumeration.run(&|faults| run(queued(faults, Write, Read)));
    assert!(enumeration.singles >= 52 && enumeration.pairs >= 1000, "{enumeration:?}");
}

#[test]
fn a_writer_behind_a_reader_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("write behind a reader", first_session());
    enumeration.run(&|faults| run(queued(faults, Read, Write)));
    assert!(enumeration.singles >= 52 && enumeration.pairs >= 1000, "{enumeration:?}");
}

async fn timed(faults: Vec<Fault>, ahead: Side, behind: Side) -> Ran {
    let world = World::new();
    let client = world.client(CONTENDER).await;
    let other = world.client(HOLDER).await;
    let held = acquire(&World::rw_lock(&other), ahead).await.expect("nobody else wants it");
    inject(&world, faults);
    let patience = Some(Duration::from_millis(700));
    let ended = acquire_within(World::rw_lock(&client), behind, patience).await.map(drop);
    assert_eq!(ended, Err(LockError::TimedOut), "\n{}", world.trace());
    // The holder stays undisturbed, and the place behind it becomes free.
    sleep_ms(3000).await;
    assert_eq!(held.state(), LockState::Held);
    assert_eq!(world.contenders().len(), 1, "orphan\n{}", world.trace());
    held.end().await.expect("it can be deleted");
    world.check_clean(&[&client, &other]).await;
    ran(&world)
}

#[test]
fn a_timed_reader_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("timed read", first_session());
    enumeration.run(&|faults| run(timed(faults, Write, Read)));
    assert!(enumeration.singles >= 52 && enumeration.pairs >= 1000, "{enumeration:?}");
}

#[test]
fn a_timed_writer_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("timed write", first_session());
    enumeration.run(&|faults| run(timed(faults, Read, Write)));
    assert!(enumeration.singles >= 52 && enumeration.pairs >= 1000, "{enumeration:?}");
}

/// Holder and contender, with cuts of either: a holder's trouble must never let the other in too
/// early, and must not keep it out.
async fn hand_over_of_either(faults: Vec<Fault>, ahead: Side, behind: Side) -> Ran {
    let world = World::new();
    let client = world.client(CONTENDER).await;
    let other = world.client(HOLDER).await;
    inject(&world, faults);
    let held = acquire(&World::rw_lock(&other), ahead).await.expect("nobody else wants it yet");
    hand_over(&world, held, &World::rw_lock(&client), behind).await;
    world.check_clean(&[&client, &other]).await;
    ran(&world)
}

#[test]
fn a_hand_over_to_a_reader_survives_every_pair_of_cuts_of_either_side() {
    let mut enumeration = Enumeration::new("hand-over to a reader", None);
    enumeration.run(&|faults| run(hand_over_of_either(faults, Write, Read)));
    assert!(enumeration.singles >= 100 && enumeration.pairs >= 5000, "{enumeration:?}");
}

#[test]
fn a_hand_over_to_a_writer_survives_every_pair_of_cuts_of_either_side() {
    let mut enumeration = Enumeration::new("hand-over to a writer", None);
    enumeration.run(&|faults| run(hand_over_of_either(faults, Read, Write)));
    assert!(enumeration.singles >= 100 && enumeration.pairs >= 5000, "{enumeration:?}");
}
