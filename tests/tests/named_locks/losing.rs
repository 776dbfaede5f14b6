//! Expiry, and administrators that delete znodes and directories.

use std::future::IntoFuture as _;

use zk_recipes::{LockState, LostReason, Released};
use zk_tests::case::LOCK;
use zk_tests::scene::{
    FIRST, SECOND, delete_directory, granted_now, release, session, spawn, start_waiting,
};
use zk_tests::world::{World, run, sleep_ms};

use crate::{check_gone, hold, lock};

#[test]
fn a_holder_whose_session_expires_passes_the_lock_on() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let guard = hold(&lock(&other)).await;
        let waiter = start_waiting(&world, lock(&client).acquire()).await;
        world.server.expire(session(&other));
        let next = granted_now(&world, waiter).await;
        assert_eq!(guard.release().await, Ok(Released::EndedWithSession));
        sleep_ms(2_000).await;
        assert_eq!(next.state(), LockState::Held);
        release(next).await;
        check_gone(&world, &[&client, &other]).await;
    });
}

/// The session deletes the znode, but not the directory. The next contender or the server does.
#[test]
fn the_directory_of_an_expired_holder_is_removed_by_the_next_or_by_the_server() {
    for is_reaped in [false, true] {
        run(async {
            let world = World::new();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let guard = hold(&lock(&other)).await;
            world.server.expire(session(&other));
            guard.lost().await;
            drop(guard);
            sleep_ms(1_000).await;
            assert_eq!(world.server.children(LOCK), Some(vec![]));
            if is_reaped {
                world.server.reap();
            } else {
                release(hold(&lock(&client)).await).await;
            }
            check_gone(&world, &[&client, &other]).await;
        });
    }
}

#[test]
fn a_waiter_whose_session_expires_waits_again() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let guard = hold(&lock(&other)).await;
        let waiting = spawn(lock(&client).acquire().into_future());
        sleep_ms(500).await;
        world.server.expire(session(&client));
        sleep_ms(5_000).await;
        assert!(!waiting.is_finished());
        release(guard).await;
        release(waiting.await.expect("no panic").expect("it is free")).await;
        check_gone(&world, &[&client, &other]).await;
    });
}

#[test]
fn a_directory_that_somebody_deletes_is_created_again_by_who_waits() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let guard = hold(&lock(&other)).await;
        let waiting = spawn(lock(&client).acquire().into_future());
        sleep_ms(500).await;
        delete_directory(&world);
        sleep_ms(2_000).await;
        assert_eq!(guard.state(), LockState::Lost(LostReason::ZnodeDeleted));
        assert!(waiting.is_finished(), "\n{}", world.trace());
        let next = waiting.await.expect("no panic").expect("it is free");
        assert_eq!(guard.release().await, Ok(Released::AlreadyGone));
        sleep_ms(1_000).await;
        next.validate().await.expect("the old holder removes nothing of the new one");
        release(next).await;
        check_gone(&world, &[&client, &other]).await;
    });
}
