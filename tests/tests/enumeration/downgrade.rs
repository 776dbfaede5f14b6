//! A writer becomes a reader: alone, and with others behind it. Whatever is cut, it holds as a
//! reader in the end, with exactly one znode, and no writer was in between.

use zk_recipes::{Client, LockState, ReadGuard, Released, WriteGuard};
use zk_tests::scene::{spawn, wait_in_queue};
use zk_tests::sides::{Holding, Side};
use zk_tests::world::{Enumeration, Ran, World, run, sleep_ms};
use zk_testserver::Fault;

use crate::{CONTENDER, HOLDER, OTHER, check_may_hold, first_session, inject, ran};

async fn writer(world: &World) -> (Client, WriteGuard) {
    let client = world.client(CONTENDER).await;
    let guard = World::rw_lock(&client).write().await.expect("nobody else wants it");
    // Its znode is watched, so that the downgrade is also an event.
    sleep_ms(200).await;
    (client, guard)
}

/// It is held, and what stands for it in the queue is one reader's znode.
async fn downgrade(world: &World, guard: WriteGuard) -> ReadGuard {
    let session = guard.session();
    let reading = guard.downgrade().await.expect("it is held");
    assert!(!matches!(reading.state(), LockState::Lost(_)), "\n{}", world.trace());
    check_own(world, &reading);
    assert_eq!(reading.session(), session);
    reading
}

fn check_own(world: &World, reading: &ReadGuard) {
    let mut own = world.server.ephemerals();
    own.retain(|(_, owner)| *owner == reading.session().0);
    let expected = [(reading.path().to_owned(), reading.session().0)];
    assert_eq!(own, expected, "\n{}", world.trace());
    assert!(reading.path().contains(Side::Read.mark()));
}

#[test]
fn a_downgrade_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("downgrade", first_session());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let (client, guard) = writer(&world).await;
            inject(&world, faults);
            let reading = downgrade(&world, guard).await;
            reading.validate().await.expect("it is held");
            sleep_ms(1_500).await;
            assert_eq!(reading.state(), LockState::Held, "\n{}", world.trace());
            check_own(&world, &reading);
            let released = reading.release().await.expect("it can be deleted");
            assert_eq!(released, Released::Released, "\n{}", world.trace());
            world.check_clean(&[&client]).await;
            ran(&world)
        })
    });
    assert!(enumeration.singles >= 24 && enumeration.pairs >= 500, "{enumeration:?}");
}

/// The whole life of a writer that becomes a reader, from the first request on.
#[test]
fn a_writer_that_becomes_a_reader_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("write, downgrade, release", first_session());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(CONTENDER).await;
            inject(&world, faults);
            let guard = World::rw_lock(&client).write().await.expect("nobody else wants it");
            let reading = downgrade(&world, guard).await;
            let released = reading.release().await.expect("it can be deleted");
            assert_eq!(released, Released::Released, "\n{}", world.trace());
            world.check_clean(&[&client]).await;
            ran(&world)
        })
    });
    assert!(enumeration.singles >= 36 && enumeration.pairs >= 500, "{enumeration:?}");
}

/// A dropped downgrade releases, whatever it has come to.
#[test]
fn a_dropped_downgrade_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("dropped downgrade", first_session());
    enumeration.run(&|faults| {
        run(async {
            for after_ms in [0, 1, 200] {
                let world = World::new();
                let (client, guard) = writer(&world).await;
                inject(&world, faults.clone());
                let task = spawn(guard.downgrade());
                sleep_ms(after_ms).await;
                task.abort();
                drop(task);
                world.check_clean(&[&client]).await;
                if after_ms == 200 {
                    return ran(&world);
                }
            }
            unreachable!("the last one returns")
        })
    });
    assert!(enumeration.singles >= 24 && enumeration.pairs >= 200, "{enumeration:?}");
}

async fn before_a_writer(faults: Vec<Fault>) -> Ran {
    let world = World::new();
    let (client, guard) = writer(&world).await;
    let other = world.client(HOLDER).await;
    let token = guard.fencing_token();
    let waiter = wait_in_queue(&world, World::rw_lock(&other).write()).await;
    inject(&world, faults);
    let reading = downgrade(&world, guard).await;
    sleep_ms(1_500).await;
    assert!(!waiter.is_finished(), "a writer beside a reader\n{}", world.trace());
    assert_eq!(reading.state(), LockState::Held, "\n{}", world.trace());
    reading.release().await.expect("it can be deleted");
    let next = waiter.await.expect("it does not panic").expect("it becomes free");
    assert!(next.fencing_token() > token);
    let next = Holding::Write(next);
    check_may_hold(&world, &next);
    next.end().await.expect("it can be deleted");
    world.check_clean(&[&client, &other]).await;
    ran(&world)
}

#[test]
fn a_downgrade_before_a_writer_survives_every_pair_of_cuts_of_either_side() {
    let mut enumeration = Enumeration::new("downgrade before a writer", None);
    enumeration.run(&|faults| run(before_a_writer(faults)));
    assert!(enumeration.singles >= 60 && enumeration.pairs >= 2000, "{enumeration:?}");
}

async fn before_a_reader(faults: Vec<Fault>) -> Ran {
    let world = World::new();
    let (client, guard) = writer(&world).await;
    let (other, third) = (world.client(HOLDER).await, world.client(OTHER).await);
    let waiter = wait_in_queue(&world, World::rw_lock(&other).read()).await;
    let last = wait_in_queue(&world, World::rw_lock(&third).write()).await;
    inject(&world, faults);
    let reading = downgrade(&world, guard).await;
    let beside = waiter.await.expect("it does not panic").expect("readers share");
    let beside = Holding::Read(beside);
    check_may_hold(&world, &beside);
    assert!(!matches!(reading.state(), LockState::Lost(_)), "\n{}", world.trace());
    sleep_ms(1_000).await;
    assert!(!last.is_finished(), "a writer beside readers\n{}", world.trace());
    beside.end().await.expect("it can be deleted");
    reading.release().await.expect("it can be deleted");
    let next = last.await.expect("it does not panic").expect("it becomes free");
    let next = Holding::Write(next);
    check_may_hold(&world, &next);
    next.end().await.expect("it can be deleted");
    world.check_clean(&[&client, &other, &third]).await;
    ran(&world)
}

/// With a writer behind the reader, which must not enter with it.
#[test]
fn a_downgrade_before_a_reader_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("downgrade before a reader", first_session());
    enumeration.run(&|faults| run(before_a_reader(faults)));
    assert!(enumeration.singles >= 24 && enumeration.pairs >= 200, "{enumeration:?}");
}

/// Pairs of three sessions would be many, so one cut each, of whomever.
#[test]
fn a_downgrade_before_a_reader_survives_every_cut_of_any_side() {
    let mut enumeration = Enumeration::new("downgrade before a reader, any side", None);
    enumeration.run_singles(&|faults| run(before_a_reader(faults)));
    assert!(enumeration.singles >= 100, "{enumeration:?}");
}
