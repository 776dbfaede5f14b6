//! The directory disappears with its last contender, however that contender leaves.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{Acl, FairLock, LockError, Permissions, Released};
use zk_tests::case::{Case as _, LOCK};
use zk_tests::meter::Pace;
use zk_tests::scene::{
    FIRST, SECOND, THIRD, at_op, granted_now, release, session, spawn, start_waiting,
};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

use crate::{check_gone, hold, lock};

#[test]
fn a_release_and_a_drop_remove_the_directory() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let lock = lock(&client);
        for _ in 0..3 {
            let guard = hold(&lock).await;
            release(guard).await;
            assert_eq!(world.server.stat(LOCK), None, "\n{}", world.trace());
        }
        drop(hold(&lock).await);
        assert!(world.server.stat("/locks").is_some(), "the root stays");
        check_gone(&world, &[&client]).await;
    });
}

#[test]
fn a_directory_with_contenders_stays_until_the_last_one_leaves() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let third = world.client(THIRD).await;
        let guard = hold(&lock(&client)).await;
        let first = start_waiting(&world, lock(&other).acquire()).await;
        let second = start_waiting(&world, lock(&third).acquire()).await;
        let directory = world.server.stat(LOCK).expect("it exists").czxid;
        // A waiter in the middle gives up.
        first.abort();
        sleep_ms(100).await;
        let tokens = [guard.fencing_token()];
        release(guard).await;
        let guard = granted_now(&world, second).await;
        assert!(guard.fencing_token() > tokens[0]);
        assert_eq!(world.server.stat(LOCK).map(|stat| stat.czxid), Some(directory));
        release(guard).await;
        check_gone(&world, &[&client, &other, &third]).await;
    });
}

/// The directory is new for each holder, so the numbers of the znodes start again. The tokens grow.
#[test]
fn tokens_grow_although_the_numbers_start_again() {
    run(async {
        let world = World::new().pace(Pace::of(10));
        let client = world.client(FIRST).await;
        let lock = lock(&client);
        let mut tokens = Vec::new();
        for _ in 0..10 {
            let guard = hold(&lock).await;
            assert!(guard.path().ends_with("-lock-0000000000"), "{}", guard.path());
            tokens.push(guard.fencing_token());
            release(guard).await;
        }
        assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
        check_gone(&world, &[&client]).await;
    });
}

#[test]
fn a_failed_acquire_leaves_no_directory() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let guard = hold(&lock(&other)).await;
        let timed = lock(&client).acquire().timeout(Duration::from_millis(300)).await;
        assert!(matches!(timed.map(drop), Err(LockError::TimedOut(_))));
        release(guard).await;
        check_gone(&world, &[&client, &other]).await;
        // The directory is created, and then the contender is refused.
        let world = World::new();
        let client = world.client(FIRST).await;
        let refusal = Action::Error(zk_recipes::ErrorCode::NO_AUTH);
        world.server.admin_create("/locks", b"", None);
        world.server.inject(at_op(session(&client), OpCode::CREATE2, refusal));
        let refused = lock(&client).acquire().await.map(drop);
        assert!(matches!(refused, Err(LockError::Refused { .. })), "{refused:?}");
        check_gone(&world, &[&client]).await;
    });
}

/// A fair lock at the same directory is the same lock, and its directory may disappear too.
#[test]
fn a_fair_lock_at_the_same_directory_is_the_same_lock() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let fair = FairLock::of(&other);
        let guard = hold(&fair).await;
        let waiter = start_waiting(&world, lock(&client).acquire()).await;
        release(guard).await;
        let guard = granted_now(&world, waiter).await;
        let waiter = start_waiting(&world, fair.acquire()).await;
        release(guard).await;
        release(granted_now(&world, waiter).await).await;
        assert_eq!(world.server.children(LOCK), Some(vec![]), "a fair lock leaves it");
        release(hold(&lock(&client)).await).await;
        release(hold(&fair).await).await;
        release(hold(&lock(&client)).await).await;
        check_gone(&world, &[&client, &other]).await;
    });
}

/// Without DELETE on the root, the directory stays, and the release still succeeds.
#[test]
fn a_root_that_denies_the_delete_keeps_the_directories() {
    run(async {
        let world = World::new();
        world.server.admin_create("/locks", b"", None);
        let client = world.client(FIRST).await;
        let no_delete = Acl::new(
            Permissions::READ | Permissions::CREATE | Permissions::ADMIN,
            "world",
            "anyone",
        );
        client.set_acl("/locks", vec![no_delete], None).await.expect("the list may be changed");
        let lock = lock(&client);
        for _ in 0..2 {
            assert_eq!(hold(&lock).await.release().await, Ok(Released::Released));
            assert_eq!(world.server.children(LOCK), Some(vec![]), "it is left, and empty");
        }
        world.check_clean(&[&client]).await;
        // The server removes an empty container.
        world.server.reap();
        assert_eq!(world.server.stat(LOCK), None);
    });
}

#[test]
fn a_root_that_denies_the_create_is_a_refusal_with_its_path() {
    run(async {
        let world = World::new();
        world.server.admin_create("/locks", b"", None);
        let client = world.client(FIRST).await;
        let read_only = Acl::new(Permissions::READ | Permissions::ADMIN, "world", "anyone");
        client.set_acl("/locks", vec![read_only], None).await.expect("the list may be changed");
        let error = lock(&client).acquire().await.unwrap_err();
        let LockError::Refused { path, .. } = &error else { panic!("{error}") };
        assert_eq!(path, LOCK);
        world.check_clean(&[&client]).await;
    });
}

/// Twenty tasks of five clients acquire and release the lock as fast as they can. In most rounds
/// one of them removes the directory while others create it.
#[test]
fn a_crowd_never_fails_and_leaves_nothing() {
    run(async {
        let world = World::new().pace(Pace::of(1_000));
        let mut clients = Vec::new();
        for seed in 0..5 {
            clients.push(world.client(seed).await);
        }
        let mut tasks = Vec::new();
        for task in 0..20_u64 {
            let lock = lock(&clients[task as usize % clients.len()]);
            tasks.push(spawn(async move {
                let mut tokens = Vec::new();
                for round in 0..20 {
                    let guard = hold(&lock).await;
                    tokens.push(guard.fencing_token());
                    release(guard).await;
                    // Pauses of different lengths mix the moments of arrival and removal.
                    sleep_ms((task * 7 + round * 3) % 5).await;
                }
                tokens
            }));
        }
        let mut tokens = Vec::new();
        for task in tasks {
            tokens.extend(task.await.expect("no acquire fails"));
        }
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), 20 * 20, "each hold has its own token");
        check_gone(&world, &clients.iter().collect::<Vec<_>>()).await;
    });
}

/// A server without containers refuses each create of a container.
#[test]
fn plain_directories_are_removed_too() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let lock = lock(&client);
        for _ in 0..2 {
            let refusal = Action::Error(zk_recipes::ErrorCode::UNIMPLEMENTED);
            world.server.inject(at_op(session(&client), OpCode::CREATE_CONTAINER, refusal));
            let guard = hold(&lock).await;
            assert_eq!(world.server.pending_faults(), []);
            world.server.reap();
            release(guard).await;
            assert_eq!(world.server.stat(LOCK), None, "\n{}", world.trace());
        }
        check_gone(&world, &[&client]).await;
    });
}
