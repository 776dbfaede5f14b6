//! A lock that is lost while its holder has levels: no nested acquire hides the loss.

use zk_recipes::{AtRiskPolicy, LockError, LockState, LostReason, Released};
use zk_tests::case::Case;
use zk_tests::for_each_lock;
use zk_tests::scene::{
    FIRST, SECOND, granted_now, hold, partition, release, session, start_waiting,
};
use zk_tests::world::{World, run, sleep_ms};

use crate::{holder, level};

for_each_lock! {
    #[test] pairs: [
        a_nested_acquire_after_the_session_expired_fails_until_all_levels_have_ended,
        a_nested_acquire_after_the_znode_was_deleted_fails_until_all_levels_have_ended,
    ]
    #[test] locks: [
        a_nested_acquire_after_the_deadline_passed_fails_although_the_session_may_live,
        a_lock_at_risk_that_counts_as_lost_is_not_nested,
        a_closed_client_fails_every_acquire,
        a_session_that_expires_while_the_first_level_waits_is_followed_by_another_wait,
    ]
}

fn a_nested_acquire_after_the_session_expired_fails_until_all_levels_have_ended<
    H: Case,
    W: Case,
>() {
    lose::<H, W>(LostReason::SessionExpired);
}

fn a_nested_acquire_after_the_znode_was_deleted_fails_until_all_levels_have_ended<
    H: Case,
    W: Case,
>() {
    lose::<H, W>(LostReason::ZnodeDeleted);
}

/// Another contender gets the lock, and the old holder learns of it at every level.
fn lose<H: Case, W: Case>(reason: LostReason) {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let holder = holder::<H>(&client);
        let (outer, inner) = (level(&holder).await, level(&holder).await);
        let waiter = start_waiting(&world, W::of(&other).acquire()).await;
        sleep_ms(1_000).await;
        if reason == LostReason::SessionExpired {
            world.server.expire(session(&client));
        } else {
            assert!(world.server.admin_delete(outer.path()));
        }
        let next = granted_now(&world, waiter).await;
        sleep_ms(3_000).await;
        for _ in 0..2 {
            let nested = holder.acquire().await.map(drop);
            assert_eq!(nested, Err(LockError::Lost(reason)), "\n{}", world.trace());
            let tried = holder.try_acquire().await.map(drop);
            assert_eq!(tried, Err(LockError::Lost(reason)));
            assert_eq!(holder.levels(), 2, "a failed acquire is no level");
        }
        assert_eq!(inner.release().await, Ok(None));
        assert_eq!(outer.state(), LockState::Lost(reason));
        // The outer level still believes that it has held the lock all the time.
        assert_eq!(holder.acquire().await.map(drop), Err(LockError::Lost(reason)));
        release(next).await;
        assert_eq!(holder.acquire().await.map(drop), Err(LockError::Lost(reason)));
        let expected = if reason == LostReason::SessionExpired {
            Released::EndedWithSession
        } else {
            Released::AlreadyGone
        };
        assert_eq!(outer.release().await, Ok(Some(expected)));
        let again = level(&holder).await;
        again.validate().await.expect("it is a new hold");
        assert_eq!(again.release().await, Ok(Some(Released::Released)));
        world.check_clean(&[&client, &other]).await;
    });
}

fn a_nested_acquire_after_the_deadline_passed_fails_although_the_session_may_live<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let holder = holder::<C>(&client);
        let outer = level(&holder).await;
        partition(&world, 30_000);
        outer.lost().await;
        let LockState::Lost(reason) = outer.state() else { panic!("it is lost") };
        let before = client.now();
        assert_eq!(holder.acquire().await.map(drop), Err(LockError::Lost(reason)));
        assert_eq!(client.now(), before, "the failure waits for nothing");
        drop(outer);
        drop(level(&holder).await);
        world.check_clean(&[&client]).await;
    });
}

fn a_lock_at_risk_that_counts_as_lost_is_not_nested<C: Case>() {
    run(async {
        let world = World::shipped();
        let client = world.client(FIRST).await;
        let lock = C::with(&client, |builder| builder.at_risk(AtRiskPolicy::TreatAsLost));
        let holder = zk_recipes::Holder::new(lock.lock());
        let outer = level(&holder).await;
        world.server.disconnect_all();
        assert_eq!(outer.lost().await, LostReason::AtRisk);
        let nested = holder.acquire().await.map(drop);
        assert_eq!(nested, Err(LockError::Lost(LostReason::AtRisk)));
        drop(outer);
        drop(level(&holder).await);
        world.check_clean(&[&client]).await;
    });
}

fn a_closed_client_fails_every_acquire<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let holder = holder::<C>(&client);
        let outer = level(&holder).await;
        client.close().await;
        let nested = holder.acquire().await.map(drop);
        assert_eq!(nested, Err(LockError::Lost(LostReason::Closed)));
        drop(outer);
        assert_eq!(holder.acquire().await.map(drop), Err(LockError::Closed));
    });
}

fn a_session_that_expires_while_the_first_level_waits_is_followed_by_another_wait<C: Case>() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let held = hold(&C::Rival::of(&other)).await;
        let holder = holder::<C>(&client);
        let waiting = zk_tests::scene::spawn(IntoFuture::into_future(holder.acquire()));
        sleep_ms(500).await;
        world.server.expire(session(&client));
        sleep_ms(5_000).await;
        assert!(!waiting.is_finished());
        release(held).await;
        let level = waiting.await.expect("no panic").expect("the lock is free");
        assert_eq!(level.session(), session(&client));
        drop(level);
        world.check_clean(&[&client, &other]).await;
    });
}
