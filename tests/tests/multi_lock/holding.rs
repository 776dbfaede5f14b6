//! The guard is as good as its weakest lock.

use std::time::Duration;

use zk_recipes::{LockError, LockState, LostReason, Released, request_revocation};
use zk_tests::scene::{FIRST, SECOND, partition, session, spawn};
use zk_tests::wait::now;
use zk_tests::world::{World, run, sleep_ms};

use crate::{PATHS, all_kinds, check_clean, fair_locks, hold, znodes};

#[test]
fn the_guard_is_lost_when_any_of_its_locks_is() {
    for (position, path) in PATHS.into_iter().enumerate() {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            let guard = hold(&all_kinds(&client)).await;
            sleep_ms(1_000).await;
            assert_eq!(guard.state(), LockState::Held);
            let lost = spawn(guard.lost());
            let mut deleted = znodes(&world);
            deleted.retain(|znode| znode.starts_with(path));
            assert!(world.server.admin_delete(&deleted[0]));
            let error = lost.await.expect("no panic");
            assert_eq!(error.path, path);
            assert_eq!(error.error, LockError::Lost(LostReason::ZnodeDeleted));
            assert_eq!(guard.state(), LockState::Lost(LostReason::ZnodeDeleted));
            assert_eq!(guard.remaining(), Some(Duration::ZERO));
            assert_eq!(guard.validate().await, Err(error.clone()));
            assert_eq!(guard.run(async {}).await, Err(error));
            // The others stay held until the release.
            let held = guard.states().filter(|(_, state)| *state == LockState::Held).count();
            assert_eq!(held, PATHS.len() - 1);
            assert_eq!(znodes(&world).len(), PATHS.len() - 1);
            let released = guard.release().await.expect("the znodes can be deleted");
            let gone = released.iter().position(|(_, how)| *how == Released::AlreadyGone);
            assert_eq!(gone, Some(PATHS.len() - 1 - position));
            check_clean(&world, &[&client]).await;
        });
    }
}

#[test]
fn the_holder_learns_which_of_its_locks_somebody_asks_for() {
    for path in PATHS {
        run(async {
            let world = World::new();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let guard = hold(&all_kinds(&client)).await;
            let asked = spawn(guard.revocation_requested());
            sleep_ms(1_000).await;
            assert!(!asked.is_finished());
            let mut contenders = znodes(&world);
            contenders.retain(|znode| znode.starts_with(path));
            assert!(request_revocation(&other, &contenders[0]).await.expect("the znode is open"));
            sleep_ms(1_000).await;
            // An exclusive lock has no queue in which somebody could wait for it.
            assert_eq!(asked.is_finished(), path != PATHS[1]);
            if asked.is_finished() {
                assert_eq!(asked.await.expect("no panic"), path);
                assert_eq!(guard.revocation_requested().await, path, "who asks later knows too");
            }
            assert_eq!(guard.state(), LockState::Held, "the holder decides");
            guard.release().await.expect("the znodes can be deleted");
            check_clean(&world, &[&client, &other]).await;
        });
    }
}

/// Two clients, so that only one of the locks is at risk.
#[test]
fn the_guard_is_at_risk_when_any_of_its_locks_is() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let lock = zk_recipes::MultiLock::builder()
            .with(crate::fair(&client, PATHS[0]))
            .with(crate::fair(&other, PATHS[1]))
            .build()
            .expect("the paths differ");
        let guard = hold(&lock).await;
        assert_eq!(guard.state(), LockState::Held);
        world.server.pause_connection(session(&other), Duration::from_secs(9));
        let states = || guard.states().map(|(_, state)| state).collect::<Vec<_>>();
        let is_at_risk = |_: &_| states() == [LockState::Held, LockState::AtRisk];
        world.until("an acknowledgement is overdue", is_at_risk).await;
        assert_eq!(guard.state(), LockState::AtRisk);
        assert!(now(guard.lost()).is_none());
        world.server.expire(session(&other));
        let lost = guard.lost().await;
        assert_eq!(lost.path, PATHS[1]);
        drop(guard);
        sleep_ms(10_000).await;
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn a_lost_connection_is_a_risk_and_the_locks_are_held_again_afterwards() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let guard = hold(&all_kinds(&client)).await;
        partition(&world, 1_000);
        sleep_ms(100).await;
        assert_eq!(guard.state(), LockState::AtRisk);
        sleep_ms(3_000).await;
        assert_eq!(guard.state(), LockState::Held, "\n{}", world.trace());
        guard.validate().await.expect("all are held");
        drop(guard);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn the_shortest_lease_counts() {
    run(async {
        let world = World::shipped();
        let client = world.client(FIRST).await;
        let guard = hold(&fair_locks(&client, &PATHS[..2])).await;
        // One and a half ticks of the servers.
        sleep_ms(5_000).await;
        let remaining = guard.remaining().expect("there is a lease");
        assert!(remaining > Duration::from_secs(10), "{remaining:?}");
        drop(guard);
        check_clean(&world, &[&client]).await;
        let world = World::new();
        let client = world.client(FIRST).await;
        let guard = hold(&fair_locks(&client, &PATHS[..2])).await;
        assert_eq!(guard.remaining(), None, "the clients of this world have no lease");
    });
}

#[test]
fn a_body_runs_to_its_end_or_is_dropped_when_a_lock_is_lost() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let guard = hold(&all_kinds(&client)).await;
        let body = async {
            sleep_ms(500).await;
            17
        };
        assert_eq!(guard.run(body).await, Ok(17));
        let before = client.now();
        let stopped = guard.run(async {
            sleep_ms(500).await;
            world.server.expire(session(&client));
            sleep_ms(60_000).await;
        });
        let error = stopped.await.unwrap_err();
        assert_eq!(error.error, LockError::Lost(LostReason::SessionExpired));
        assert!(client.now().saturating_since(before) < Duration::from_secs(30));
        let released = guard.release().await.expect("the session has deleted them");
        assert!(released.iter().all(|(_, how)| *how == Released::EndedWithSession));
        check_clean(&world, &[&client]).await;
    });
}
