//! Expiry, and administrators that delete znodes and directories.

use zk_recipes::{Client, Guard, LockState, LostReason, Released, kind};
use zk_tests::case::LOCK;
use zk_tests::scene::{
    FIRST, SECOND, Waiter, delete_directory, granted, granted_now, release, session, start_waiting,
};
use zk_tests::world::{World, run, sleep_ms};

use crate::{check_gone, hold, lock};

/// A client that holds the lock, and another client that waits for it.
struct Pair {
    world: World,
    holder: Client,
    waiter: Client,
    guard: Guard,
    waiting: Waiter<kind::Fair>,
}

impl Pair {
    async fn start() -> Self {
        let world = World::new();
        let (waiter, holder) = (world.client(FIRST).await, world.client(SECOND).await);
        let guard = hold(&lock(&holder)).await;
        let waiting = start_waiting(&world, lock(&waiter).acquire()).await;
        Self { world, holder, waiter, guard, waiting }
    }
}

#[test]
fn a_holder_whose_session_expires_passes_the_lock_on() {
    run(async {
        let Pair { world, holder, waiter, guard, waiting } = Pair::start().await;
        world.server.expire(session(&holder));
        let next = granted_now(&world, waiting).await;
        assert_eq!(guard.release().await, Ok(Released::EndedWithSession));
        sleep_ms(2_000).await;
        assert_eq!(next.state(), LockState::Held);
        release(next).await;
        check_gone(&world, &[&waiter, &holder]).await;
    });
}

/// The session deletes the znode, but not the directory. The next contender or the server does.
#[test]
fn the_directory_of_an_expired_holder_is_removed_by_the_next_or_by_the_server() {
    for is_reaped in [false, true] {
        run(async {
            let world = World::reaped_each_minute();
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
        let Pair { world, holder, waiter, guard, waiting } = Pair::start().await;
        world.server.expire(session(&waiter));
        sleep_ms(5_000).await;
        assert!(!waiting.is_finished());
        release(guard).await;
        release(granted(waiting).await).await;
        check_gone(&world, &[&waiter, &holder]).await;
    });
}

#[test]
fn a_directory_that_somebody_deletes_is_created_again_by_who_waits() {
    run(async {
        let Pair { world, holder, waiter, guard, waiting } = Pair::start().await;
        delete_directory(&world);
        sleep_ms(2_000).await;
        assert_eq!(guard.state(), LockState::Lost(LostReason::ZnodeDeleted));
        let next = granted_now(&world, waiting).await;
        assert_eq!(guard.release().await, Ok(Released::AlreadyGone));
        sleep_ms(1_000).await;
        next.validate().await.expect("the old holder removes nothing of the new one");
        release(next).await;
        check_gone(&world, &[&waiter, &holder]).await;
    });
}
