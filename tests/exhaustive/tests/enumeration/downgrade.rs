//! A writer becomes a reader, alone or with other contenders behind it. Whatever is cut, it finally
//! holds the lock as a reader with exactly one znode, and no other writer held the lock in between.

use zk_recipes::{Client, LockState, ReadGuard, Released, WriteGuard};
use zk_tests::case::{Case as _, Reader, Writer};
use zk_tests::scene::{granted, hold, spawn, start_waiting};
use zk_tests::world::{Enumeration, Ran, World, run, sleep_ms};
use zk_testserver::Fault;

use crate::{CONTENDER, HOLDER, OTHER, contender};

async fn writer(world: &World) -> (Client, WriteGuard) {
    let client = world.client(CONTENDER).await;
    let guard = hold(&Writer::of(&client)).await;
    // The client needs this time to watch its znode, so that the downgrade also causes an event.
    sleep_ms(200).await;
    (client, guard)
}

/// Downgrades, and checks that the lock is held with one reader's znode.
async fn downgrade(world: &World, guard: WriteGuard) -> ReadGuard {
    let session = guard.session();
    let reading = guard.downgrade().await.expect("the lock is held");
    assert!(!matches!(reading.state(), LockState::Lost(_)), "\n{}", world.trace());
    check_own(world, &reading);
    assert_eq!(reading.session(), session);
    reading
}

fn check_own(world: &World, reading: &ReadGuard) {
    let mut own = world.server.ephemerals();
    own.retain(|(_, owner)| *owner == reading.session());
    let expected = [(reading.path().to_owned(), reading.session())];
    assert_eq!(own, expected, "\n{}", world.trace());
    assert!(Reader::MARK.is_some_and(|mark| reading.path().contains(mark)));
}

#[test]
fn a_downgrade_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("downgrade", contender());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let (client, guard) = writer(&world).await;
            world.inject(faults);
            let reading = downgrade(&world, guard).await;
            reading.validate().await.expect("the lock is held");
            sleep_ms(1_500).await;
            assert_eq!(reading.state(), LockState::Held, "\n{}", world.trace());
            check_own(&world, &reading);
            let released = reading.release().await.expect("its znode can be deleted");
            assert_eq!(released, Released::Released, "\n{}", world.trace());
            world.check_clean(&[&client]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(24, 500), "{enumeration:?}");
}

/// The cuts cover the whole life of a writer that becomes a reader, from its first request on.
#[test]
fn a_writer_that_becomes_a_reader_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("write, downgrade, release", contender());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(CONTENDER).await;
            world.inject(faults);
            let guard = hold(&Writer::of(&client)).await;
            let reading = downgrade(&world, guard).await;
            let released = reading.release().await.expect("its znode can be deleted");
            assert_eq!(released, Released::Released, "\n{}", world.trace());
            world.check_clean(&[&client]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(36, 500), "{enumeration:?}");
}

/// A dropped downgrade releases the lock, whether or not it was already applied.
#[test]
fn a_dropped_downgrade_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("dropped downgrade", contender());
    enumeration.run(&|faults| {
        run(async {
            for after_ms in [0, 1, 200] {
                let world = World::new();
                let (client, guard) = writer(&world).await;
                world.inject(faults.clone());
                let task = spawn(guard.downgrade());
                sleep_ms(after_ms).await;
                task.abort();
                drop(task);
                world.check_clean(&[&client]).await;
                if after_ms == 200 {
                    return world.ran();
                }
            }
            unreachable!("the last one returns")
        })
    });
    assert!(enumeration.is_complete(24, 200), "{enumeration:?}");
}

async fn before_a_writer(faults: Vec<Fault>) -> Ran {
    let world = World::new();
    let (client, guard) = writer(&world).await;
    let other = world.client(HOLDER).await;
    let token = guard.fencing_token();
    let waiter = start_waiting(&world, Writer::of(&other).acquire()).await;
    world.inject(faults);
    let reading = downgrade(&world, guard).await;
    sleep_ms(1_500).await;
    assert!(!waiter.is_finished(), "a writer beside a reader\n{}", world.trace());
    assert_eq!(reading.state(), LockState::Held, "\n{}", world.trace());
    reading.release().await.expect("its znode can be deleted");
    let next = granted(waiter).await;
    assert!(next.fencing_token() > token);
    world.check_granted::<Writer>(&next);
    next.release().await.expect("its znode can be deleted");
    world.check_clean(&[&client, &other]).await;
    world.ran()
}

#[test]
fn a_downgrade_before_a_writer_survives_every_pair_of_cuts_of_either_side() {
    let mut enumeration = Enumeration::new("downgrade before a writer", None);
    enumeration.run(&|faults| run(before_a_writer(faults)));
    assert!(enumeration.is_complete(60, 2000), "{enumeration:?}");
}

async fn before_a_reader(faults: Vec<Fault>) -> Ran {
    let world = World::new();
    let (client, guard) = writer(&world).await;
    let (other, third) = (world.client(HOLDER).await, world.client(OTHER).await);
    let waiter = start_waiting(&world, Reader::of(&other).acquire()).await;
    let last = start_waiting(&world, Writer::of(&third).acquire()).await;
    world.inject(faults);
    let reading = downgrade(&world, guard).await;
    let beside = granted(waiter).await;
    world.check_granted::<Reader>(&beside);
    assert!(!matches!(reading.state(), LockState::Lost(_)), "\n{}", world.trace());
    sleep_ms(1_000).await;
    assert!(!last.is_finished(), "a writer beside readers\n{}", world.trace());
    beside.release().await.expect("its znode can be deleted");
    reading.release().await.expect("its znode can be deleted");
    let next = granted(last).await;
    world.check_granted::<Writer>(&next);
    next.release().await.expect("its znode can be deleted");
    world.check_clean(&[&client, &other, &third]).await;
    world.ran()
}

/// A writer is behind the reader, and must not get the lock together with it.
#[test]
fn a_downgrade_before_a_reader_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("downgrade before a reader", contender());
    enumeration.run(&|faults| run(before_a_reader(faults)));
    assert!(enumeration.is_complete(24, 200), "{enumeration:?}");
}

/// Pairs of cuts of three sessions would be too many, so each run has one cut of any session.
#[test]
fn a_downgrade_before_a_reader_survives_every_cut_of_any_side() {
    let mut enumeration = Enumeration::new("downgrade before a reader, any side", None);
    enumeration.run_singles(&|faults| run(before_a_reader(faults)));
    assert!(enumeration.singles >= 90, "{enumeration:?}");
}
