//! Tasks that wait for the loss of a lock, and its release.

use tokio::task::JoinHandle;
use zk_recipes::{LockState, LostReason, RwLock};
use zk_tests::case::Case;
use zk_tests::for_each_lock;
use zk_tests::scene::{FIRST, hold, partition, session, spawn};
use zk_tests::world::{World, run, sleep_ms};

const WAITERS: usize = 1_000;

for_each_lock! {
    #[test] locks: [
        a_thousand_waiters_for_the_loss_end_with_the_release,
        a_lock_that_was_lost_is_not_reported_as_released,
        a_release_without_a_server_ends_its_waiters_at_once,
    ]
}

async fn reasons(waiters: Vec<JoinHandle<LostReason>>) -> Vec<LostReason> {
    let mut reasons = Vec::new();
    for waiter in waiters {
        reasons.push(waiter.await.expect("it does not panic"));
    }
    reasons
}

fn a_thousand_waiters_for_the_loss_end_with_the_release<C: Case>() {
    for is_dropped in [false, true] {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            let guard = hold(&C::of(&client)).await;
            let waiters: Vec<_> = (0..WAITERS).map(|_| spawn(guard.lost())).collect();
            let late = guard.lost();
            sleep_ms(1_000).await;
            assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
            if is_dropped {
                drop(guard);
            } else {
                guard.release().await.expect("the server is there");
            }
            assert_eq!(reasons(waiters).await, [LostReason::Released; WAITERS]);
            assert_eq!(late.await, LostReason::Released);
            world.check_clean(&[&client]).await;
        });
    }
}

fn a_lock_that_was_lost_is_not_reported_as_released<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let guard = hold(&C::of(&client)).await;
        let (waiter, late) = (spawn(guard.lost()), guard.lost());
        world.server.expire(session(&client));
        let expired = LostReason::SessionExpired;
        assert_eq!(waiter.await.expect("it does not panic"), expired);
        assert_eq!(guard.state(), LockState::Lost(expired));
        drop(guard);
        sleep_ms(1_000).await;
        assert_eq!(late.await, expired);
    });
}

/// The keeper takes the lock down only when it can reach a server, but its owner is done with it.
fn a_release_without_a_server_ends_its_waiters_at_once<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let guard = hold(&C::of(&client)).await;
        let waiters = (0..3).map(|_| spawn(guard.lost())).collect();
        partition(&world, 2_000);
        sleep_ms(100).await;
        let before = client.now();
        let released = spawn(guard.release());
        assert_eq!(reasons(waiters).await, [LostReason::Released; 3]);
        assert_eq!(client.now(), before);
        released.await.expect("it does not panic").expect("the server returns");
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn the_waiters_of_a_lock_that_was_downgraded_end_with_the_release_of_the_new_guard() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let lock = RwLock::new(&client, "/rw").expect("the path is valid");
        let writing = lock.write().await.expect("nobody else wants it");
        let waiters = vec![spawn(writing.lost())];
        let reading = writing.downgrade().await.expect("the lock is held");
        sleep_ms(1_000).await;
        assert!(!waiters[0].is_finished(), "the lock is still held");
        drop(reading);
        assert_eq!(reasons(waiters).await, [LostReason::Released]);
    });
}
