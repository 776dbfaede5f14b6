//! Levels of one task, and the end of the last one.

use std::time::Duration;

use zk_recipes::{Acl, ErrorCode, FairLock, LockError, LockState, Permissions, Released, kind};
use zk_tests::case::{Case, LOCK};
use zk_tests::for_each_lock;
use zk_tests::scene::{
    FIRST, SECOND, create_directory, granted_now, hold, release, settle, start_waiting,
};
use zk_tests::world::{World, run, sleep_ms};

use crate::{holder, level};

for_each_lock! {
    #[test] pairs: [
        the_lock_is_released_by_the_level_that_ends_last,
        two_holders_of_one_client_exclude_each_other,
        a_try_nests_and_does_not_wait,
    ]
    #[test] locks: [
        levels_of_one_hold_share_its_guard,
        a_holder_can_acquire_again_after_its_last_level,
    ]
}

/// The levels end in every order, by a release or a drop.
fn the_lock_is_released_by_the_level_that_ends_last<H: Case, W: Case>() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for dropped in 0..8 {
            run(async {
                let world = World::new();
                let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
                let holder = holder::<H>(&client);
                let mut levels = [None, None, None];
                for slot in &mut levels {
                    *slot = Some(level(&holder).await);
                }
                assert_eq!(holder.levels(), 3);
                let waiter = start_waiting(&world, W::of(&other).acquire()).await;
                for (ended, which) in order.into_iter().enumerate() {
                    settle().await;
                    assert!(!waiter.is_finished(), "{ended} of 3 have ended\n{}", world.trace());
                    let level =
                        levels.get_mut(which).and_then(Option::take).expect("each ends once");
                    if dropped & (1 << which) != 0 {
                        drop(level);
                    } else {
                        let expected = (ended == 2).then_some(Released::Released);
                        assert_eq!(level.release().await, Ok(expected));
                    }
                    assert_eq!(holder.levels(), 2 - ended);
                }
                release(granted_now(&world, waiter).await).await;
                world.check_clean(&[&client, &other]).await;
            });
        }
    }
}

fn two_holders_of_one_client_exclude_each_other<H: Case, W: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let (one, other) = (holder::<H>(&client), holder::<W>(&client));
        let outer = level(&one).await;
        let clone = one.clone();
        let inner = level(&clone).await;
        let timed = other.acquire().timeout(Duration::from_millis(500)).await;
        assert!(matches!(timed.map(drop), Err(LockError::TimedOut(_))));
        assert_eq!(outer.release().await, Ok(None));
        assert_eq!(inner.release().await, Ok(Some(Released::Released)));
        drop(level(&other).await);
        world.check_clean(&[&client]).await;
    });
}

fn a_try_nests_and_does_not_wait<H: Case, W: Case>() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let held = hold(&H::of(&other)).await;
        let holder = holder::<W>(&client);
        assert!(holder.try_acquire().await.expect("the lock can be read").is_none());
        assert_eq!(holder.levels(), 0);
        release(held).await;
        let outer = holder.try_acquire().await.expect("the lock is free").expect("it is free");
        let inner = holder.try_acquire().await.expect("it is held").expect("by this holder");
        assert_eq!(inner.release().await, Ok(None));
        assert_eq!(outer.release().await, Ok(Some(Released::Released)));
        world.check_clean(&[&client, &other]).await;
    });
}

fn levels_of_one_hold_share_its_guard<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let holder = holder::<C>(&client);
        let (outer, inner) = (level(&holder).await, level(&holder).await);
        assert_eq!(inner.path(), outer.path());
        assert_eq!((inner.state(), inner.session()), (LockState::Held, outer.session()));
        assert_eq!(C::token(&inner), C::token(&outer));
        inner.validate().await.expect("it is held");
        assert_eq!(inner.run(async { 7 }).await, Ok(7));
        let status = inner.status();
        drop(inner);
        assert!(status.is_held(), "the outer level holds it");
        drop(outer);
        assert_eq!(status.state(), None);
        world.check_clean(&[&client]).await;
    });
}

fn a_holder_can_acquire_again_after_its_last_level<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let holder = holder::<C>(&client);
        let mut paths = Vec::new();
        for _ in 0..3 {
            let (outer, inner) = (level(&holder).await, level(&holder).await);
            world.check_granted::<C>(&inner);
            paths.push(inner.path().to_owned());
            drop((outer, inner));
            assert_eq!(holder.levels(), 0);
        }
        if C::MARK.is_some() {
            paths.dedup();
            assert_eq!(paths.len(), 3, "each hold has its own znode: {paths:?}");
        }
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_refused_acquire_leaves_no_level() {
    run(async {
        let world = World::new();
        create_directory::<FairLock>(&world);
        let client = world.client(FIRST).await;
        let read_only = Acl::new(Permissions::READ | Permissions::ADMIN, "world", "anyone");
        client.set_acl(LOCK, vec![read_only], None).await.expect("the list may be changed");
        let holder = holder::<FairLock>(&client);
        for _ in 0..2 {
            let refused = holder.acquire().await.map(drop);
            let is_refused =
                matches!(refused, Err(LockError::Refused { code: ErrorCode::NO_AUTH, .. }));
            assert!(is_refused, "{refused:?}");
            assert_eq!(holder.levels(), 0);
        }
        client.set_acl(LOCK, Acl::open(), None).await.expect("the list may be changed");
        drop(level(&holder).await);
        world.check_clean(&[&client]).await;
    });
}

/// A lock at risk may still be held, so the outer levels continue, and so does an inner one.
#[test]
fn a_nested_acquire_of_a_lock_at_risk_succeeds_at_once() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let holder: zk_recipes::Holder<kind::Fair> = holder::<FairLock>(&client);
        let outer = level(&holder).await;
        zk_tests::scene::partition(&world, 2_000);
        sleep_ms(100).await;
        assert_eq!(outer.state(), LockState::AtRisk);
        let before = client.now();
        let inner = level(&holder).await;
        assert_eq!(client.now(), before, "it waits for nothing");
        sleep_ms(4_000).await;
        assert_eq!(inner.state(), LockState::Held);
        drop((outer, inner));
        world.check_clean(&[&client]).await;
    });
}
