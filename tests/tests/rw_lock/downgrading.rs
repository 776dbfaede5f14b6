//! A writer becomes a reader without releasing the lock, at its place in the queue, with one
//! request.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{LockError, LockState, LostReason, Phase, Released, WriteGuard};
use zk_tests::scene::{
    FIRST, SECOND, THIRD, at_op, ops, partition, place_of, release, requests_of, session, spawn,
};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

use crate::Access::{Read, Write};
use crate::{Holding, check_waits, granted_now, is_same_place, queue_up, try_acquire, writer};

#[test]
fn a_downgrade_lets_the_readers_behind_in_up_to_the_next_writer() {
    run(async {
        let world = World::new();
        let (client, guard) = writer(&world, FIRST).await;
        let mut clients = vec![client];
        let mut waiters = Vec::new();
        for (seed, side) in [(2, Read), (3, Read), (4, Write), (5, Read)] {
            let client = world.client(seed).await;
            waiters.push(queue_up(&world, &World::rw_lock(&client), side).await);
            clients.push(client);
        }
        let last = waiters.pop().expect("a reader");
        let next = waiters.pop().expect("a writer");
        let reading = guard.downgrade().await.expect("the lock is held");
        assert_eq!(reading.state(), LockState::Held);
        let mut beside = Vec::new();
        for waiter in waiters {
            beside.push(granted_now(&world, waiter).await);
        }
        sleep_ms(1_000).await;
        assert!(!next.is_finished() && !last.is_finished(), "{}", world.trace());
        release(reading).await;
        sleep_ms(1_000).await;
        assert!(!next.is_finished(), "the other readers are there\n{}", world.trace());
        for held in beside {
            held.release().await;
        }
        granted_now(&world, next).await.release().await;
        granted_now(&world, last).await.release().await;
        check_waits(&world);
        world.check_clean(&clients.iter().collect::<Vec<_>>()).await;
    });
}

/// No other contender holds the lock between the writer and the reader: a waiting writer is woken,
/// and continues to wait.
#[test]
fn a_writer_right_behind_waits_on() {
    for is_same_session in [false, true] {
        run(async {
            let world = World::new();
            let (client, guard) = writer(&world, FIRST).await;
            let other = if is_same_session { client.clone() } else { world.client(SECOND).await };
            let waiter = queue_up(&world, &World::rw_lock(&other), Write).await;
            let token = guard.fencing_token();
            let reading = guard.downgrade().await.expect("the lock is held");
            sleep_ms(5_000).await;
            assert!(!waiter.is_finished(), "beside a reader\n{}", world.trace());
            assert_eq!(reading.state(), LockState::Held);
            assert!(try_acquire(&World::rw_lock(&other), Read).await.expect("listed").is_none());
            release(reading).await;
            let Holding::Write(next) = granted_now(&world, waiter).await else { panic!("writes") };
            assert!(next.fencing_token() > token);
            release(next).await;
            world.check_clean(&[&client, &other]).await;
        });
    }
}

#[test]
fn the_reader_has_the_place_of_the_writer_and_one_znode() {
    run(async {
        let world = World::new();
        let (client, guard) = writer(&world, FIRST).await;
        let before = guard.path().to_owned();
        let reading = guard.downgrade().await.expect("the lock is held");
        assert_eq!(place_of(&world, session(&client)), reading.path());
        assert!(reading.path() != before && is_same_place(reading.path(), &before));
        reading.validate().await.expect("the lock is held");
        let beside = try_acquire(&World::rw_lock(&client), Read).await.expect("it can be listed");
        beside.expect("readers share").release().await;
        let written = reading.transaction(zk_recipes::Multi::new().create(
            "/read",
            "",
            zk_recipes::CreateMode::Persistent,
        ));
        assert_eq!(written.await.expect("the lock is held").len(), 1);
        release(reading).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_downgrade_is_one_request_and_the_release_behind_it_another() {
    for before in [0, 500] {
        run(async {
            let world = World::new();
            let (client, guard) = writer(&world, FIRST).await;
            sleep_ms(before).await;
            world.server.clear_requests();
            let reading = guard.downgrade().await.expect("the lock is held");
            let id = session(&client);
            let sent = ops(&requests_of(&world, id));
            assert_eq!(sent, [OpCode::MULTI], "{}", world.trace());
            zk_tests::page::check_requests("recipes/rwlock.md", "downgrade", &sent, 0);
            release(reading).await;
            let expected = [OpCode::MULTI, OpCode::DELETE];
            assert_eq!(ops(&requests_of(&world, id)), expected, "{}", world.trace());
            sleep_ms(60_000).await;
            assert_eq!(world.server.requests().len(), 2, "nothing behind\n{}", world.trace());
            assert_eq!(world.server.watch_count(), 0);
            world.check_clean(&[&client]).await;
        });
    }
}

#[test]
fn the_reader_is_watched_soon() {
    run(async {
        let world = World::new();
        let (client, guard) = writer(&world, FIRST).await;
        sleep_ms(500).await;
        let reading = guard.downgrade().await.expect("the lock is held");
        sleep_ms(200).await;
        assert!(world.server.admin_delete(reading.path()));
        sleep_ms(1).await;
        assert_eq!(reading.state(), LockState::Lost(LostReason::ZnodeDeleted));
        assert_eq!(reading.release().await, Ok(Released::AlreadyGone));
        world.check_clean(&[&client]).await;
    });
}

/// The watch on the holder's znode reports its deletion before the reply explains it.
#[test]
fn the_end_of_the_writers_znode_is_no_loss() {
    for action in [
        Action::Delay(Duration::from_millis(50)),
        Action::Delay(Duration::from_millis(500)),
        Action::CutAfter,
        Action::CutAtReplyByte(0),
        Action::CutAtReplyByte(7),
        Action::LateCommit(zk_testserver::Until::After(Duration::from_millis(100))),
        Action::LateCommit(zk_testserver::Until::NextWrite),
    ] {
        run(async {
            let world = World::new();
            let (client, guard) = writer(&world, FIRST).await;
            // The client needs this time to watch the writer's znode.
            sleep_ms(500).await;
            let (status, lost) = (guard.status(), spawn(guard.lost()));
            world.server.inject(at_op(session(&client), OpCode::MULTI, action.clone()));
            let downgrading = spawn(guard.downgrade());
            sleep_ms(20).await;
            assert!(!matches!(status.state(), Some(LockState::Lost(_))), "{action:?}");
            let reading =
                downgrading.await.expect("the task does not panic").expect("the lock is held");
            assert_eq!(world.server.pending_faults(), []);
            assert_eq!(reading.state(), LockState::Held, "{action:?}\n{}", world.trace());
            assert_eq!(place_of(&world, session(&client)), reading.path());
            sleep_ms(5_000).await;
            assert_eq!(reading.state(), LockState::Held, "{action:?}\n{}", world.trace());
            assert!(!lost.is_finished());
            release(reading).await;
            lost.abort();
            world.check_clean(&[&client]).await;
        });
    }
}

#[test]
fn those_who_wait_for_the_loss_of_the_writer_hear_of_the_readers() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let (acquire, mut phases) = World::rw_lock(&client).write().phases();
        let guard = acquire.await.expect("the lock is free");
        let (status, lost) = (guard.status(), spawn(guard.lost()));
        assert!(status.is_held());
        let reading = guard.downgrade().await.expect("the lock is held");
        assert_eq!(status.state(), None, "the writer is no more");
        assert!(reading.status().is_held());
        assert_eq!(phases.current(), Phase::Held);
        partition(&world, 500);
        while phases.next().await != Some(Phase::AtRisk) {}
        assert_eq!(reading.state(), LockState::AtRisk);
        while phases.next().await != Some(Phase::Held) {}
        assert!(!lost.is_finished());
        assert!(world.server.admin_delete(reading.path()));
        assert_eq!(lost.await.expect("the task does not panic"), LostReason::ZnodeDeleted);
        assert_eq!(phases.current(), Phase::Lost(LostReason::ZnodeDeleted));
        assert_eq!(phases.next().await, Some(Phase::Lost(LostReason::ZnodeDeleted)));
        assert_eq!(phases.next().await, None);
        drop(reading);
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_released_reader_ends_the_phases_of_the_writer() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let lock = World::rw_lock(&client);
        let (acquire, phases) = lock.write().phases();
        let guard = acquire.await.expect("the lock is free");
        release(guard.downgrade().await.expect("the lock is held")).await;
        assert_eq!(phases.current(), Phase::Released);
        let stats = lock.stats();
        assert_eq!((stats.attempts, stats.acquired, stats.lost), (1, 1, 0));
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_downgrade_after_a_reconnect_is_held_on_the_new_connection() {
    run(async {
        let world = World::new();
        let (client, guard) = writer(&world, FIRST).await;
        sleep_ms(500).await;
        partition(&world, 500);
        sleep_ms(3_000).await;
        let reading = guard.downgrade().await.expect("the lock is held");
        assert_eq!(reading.state(), LockState::Held);
        partition(&world, 500);
        sleep_ms(3_000).await;
        assert_eq!(reading.state(), LockState::Held, "{}", world.trace());
        release(reading).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_downgrade_while_disconnected_waits_for_the_connection() {
    run(async {
        let world = World::new();
        let (client, guard) = writer(&world, FIRST).await;
        let other = world.client(SECOND).await;
        let waiter = queue_up(&world, &World::rw_lock(&other), Write).await;
        partition(&world, 2_000);
        sleep_ms(100).await;
        let downgrading = spawn(guard.downgrade());
        sleep_ms(1_500).await;
        assert!(!downgrading.is_finished());
        let reading =
            downgrading.await.expect("the task does not panic").expect("the lock is held");
        assert_eq!(reading.state(), LockState::Held, "{}", world.trace());
        sleep_ms(3_000).await;
        assert!(!waiter.is_finished(), "{}", world.trace());
        release(reading).await;
        granted_now(&world, waiter).await.release().await;
        world.check_clean(&[&client, &other]).await;
    });
}

/// The holder has waited for the lock, so its znode still has the watch that it set as a waiter.
#[test]
fn a_writer_that_has_waited_can_be_downgraded() {
    for ahead in [Read, Write] {
        run(async {
            let world = World::new();
            let (other, held) = crate::holder(&world, SECOND, ahead).await;
            let client = world.client(FIRST).await;
            let waiter = queue_up(&world, &World::rw_lock(&client), Write).await;
            let third = world.client(THIRD).await;
            let last = queue_up(&world, &World::rw_lock(&third), Read).await;
            held.release().await;
            let Holding::Write(guard) = granted_now(&world, waiter).await else { panic!("writes") };
            sleep_ms(10).await;
            assert!(!last.is_finished());
            let reading = guard.downgrade().await.expect("the lock is held");
            let beside = granted_now(&world, last).await;
            sleep_ms(1_000).await;
            assert_eq!(reading.state(), LockState::Held);
            release(reading).await;
            beside.release().await;
            check_waits(&world);
            world.check_clean(&[&client, &other, &third]).await;
        });
    }
}

/// The outcome of the create was unknown, and the attempt has adopted the znode. The final sweep
/// looks for the names of writers.
#[test]
fn a_tainted_writer_can_be_downgraded() {
    run(async {
        let world = World::new();
        crate::create_directory(&world);
        let client = world.client(FIRST).await;
        let lost = at_op(session(&client), OpCode::CREATE2, Action::CutAfter);
        world.server.inject(lost);
        let guard = World::rw_lock(&client).write().await.expect("the lock is free");
        assert_eq!(world.server.pending_faults(), []);
        let reading = guard.downgrade().await.expect("the lock is held");
        assert_eq!(place_of(&world, session(&client)), reading.path());
        world.server.disconnect_all();
        sleep_ms(1_000).await;
        assert_eq!(reading.state(), LockState::Held);
        release(reading).await;
        world.server.disconnect_all();
        world.check_clean(&[&client]).await;
    });
}

async fn give_way(guard: WriteGuard) -> Result<(), LockError> {
    let reading = guard.downgrade().await?;
    reading.release().await?;
    Ok(())
}

#[test]
fn a_question_mark_releases_a_writer_that_could_not_be_downgraded() {
    run(async {
        let world = World::new();
        let (client, guard) = writer(&world, FIRST).await;
        let code = zk_recipes::ErrorCode::NO_AUTH;
        world.server.inject(at_op(session(&client), OpCode::MULTI, Action::Error(code)));
        let refused = give_way(guard).await;
        assert!(matches!(refused, Err(LockError::Refused { .. })), "{refused:?}");
        sleep_ms(100).await;
        assert_eq!(world.contenders(), [""; 0], "{}", world.trace());
        let (_, guard) = writer(&world, SECOND).await;
        give_way(guard).await.expect("nothing is in the way");
        world.check_clean(&[&client]).await;
    });
}
