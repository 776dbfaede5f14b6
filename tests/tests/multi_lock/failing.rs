//! Failures at every position: nothing stays held, and the error names the lock.

use std::future::IntoFuture as _;
use std::time::Duration;

use zk_recipes::{
    Acl, Client, ErrorCode, LockError, LostReason, MultiGuard, MultiLock, MultiLockError,
    Permissions, Released,
};
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND, session, spawn};
use zk_tests::world::{World, run, sleep_ms};

use crate::{PATHS, all_kinds, check_clean, exclusive, fair, fair_locks, hold, znodes};

/// Returns a lock of another client that keeps a contender for this path out, whatever its kind.
fn blocker(client: &Client, position: usize) -> MultiLock {
    let path = PATHS.get(position).expect("there is such a position");
    let builder = MultiLock::builder();
    let builder = match position {
        0 => builder.with(fair(client, path)),
        1 => builder.with(exclusive(client, path)),
        2 | 4 => builder.with(crate::rw_lock(client, path).write_side()),
        _ => builder.with(crate::semaphore(client, path)),
    };
    builder.build().expect("there is one lock")
}

/// Runs a test for each position, with a client and the locks of another client that keep it out at
/// this position.
fn at_every_position(test: impl AsyncFn(usize, &World, &Client, MultiGuard)) {
    for position in 0..PATHS.len() {
        run(async {
            let world = World::new();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let held = hold(&blocker(&other, position)).await;
            test(position, &world, &client, held).await;
            check_clean(&world, &[&client, &other]).await;
        });
    }
}

#[test]
fn a_timeout_at_any_position_names_the_lock_and_leaves_nothing() {
    at_every_position(async |position, world, client, held| {
        let before = client.now();
        let timeout = Duration::from_millis(700);
        let error = all_kinds(client).acquire().timeout(timeout).await.unwrap_err();
        assert_eq!(error.path, PATHS[position]);
        assert!(error.error.is_timed_out(), "{error}");
        assert_eq!(client.now().saturating_since(before), timeout, "one deadline for all");
        sleep_ms(100).await;
        assert_eq!(znodes(world).len(), 1, "\n{}", world.trace());
        assert!(held.states().all(|(_, state)| state == zk_recipes::LockState::Held));
        // Then the locks are free again.
        drop(held);
        drop(hold(&all_kinds(client)).await);
    });
}

/// The first lock is free after 400 ms and the second never, so the deadline is not one per lock.
#[test]
fn one_deadline_covers_all_waits() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let first = hold(&blocker(&other, 0)).await;
        let second = hold(&blocker(&other, 1)).await;
        let before = client.now();
        let timeout = Duration::from_millis(700);
        let acquiring = spawn(all_kinds(&client).acquire().timeout(timeout).into_future());
        sleep_ms(400).await;
        first.release().await.expect("the znode can be deleted");
        let error = acquiring.await.expect("no panic").unwrap_err();
        assert_eq!(error.path, PATHS[1]);
        assert!(error.error.is_timed_out(), "{error}");
        assert_eq!(client.now().saturating_since(before), timeout);
        drop(second);
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn a_try_of_locks_of_which_any_is_taken_leaves_nothing() {
    at_every_position(async |_, world, client, held| {
        let tried = all_kinds(client).try_acquire().await.expect("the locks can be read");
        assert!(tried.is_none());
        sleep_ms(100).await;
        assert_eq!(znodes(world).len(), 1, "\n{}", world.trace());
        drop(held);
        sleep_ms(100).await;
        let tried = all_kinds(client).try_acquire().await.expect("the locks can be read");
        drop(tried.expect("they are free"));
    });
}

#[test]
fn a_refusal_at_any_position_names_the_lock_and_leaves_nothing() {
    for (position, path) in PATHS.into_iter().enumerate() {
        run(async {
            let world = World::new().pace(Pace::of(PATHS.len()));
            let client = world.client(FIRST).await;
            // The exclusive lock would accept an existing ephemeral znode, so its parent refuses.
            let lock = fair_locks(&client, &PATHS);
            drop(hold(&lock).await);
            sleep_ms(100).await;
            let read_only = Acl::new(Permissions::READ | Permissions::ADMIN, "world", "anyone");
            client.set_acl(path, vec![read_only], None).await.expect("the list may be changed");
            for is_try in [false, true] {
                let failed = if is_try {
                    lock.try_acquire().await.map(drop)
                } else {
                    lock.acquire().await.map(drop)
                };
                let MultiLockError { path: failed, error, .. } = failed.unwrap_err();
                assert_eq!(failed, path);
                let is_refused =
                    matches!(error, LockError::Refused { code: ErrorCode::NO_AUTH, .. });
                assert!(is_refused, "{position}: {error}");
                // The locks before it are released in the background.
                sleep_ms(100).await;
                assert_eq!(znodes(&world), [] as [&str; 0], "\n{}", world.trace());
            }
            check_clean(&world, &[&client]).await;
        });
    }
}

/// The session expires while the multi-lock has some of its locks and waits for another. It
/// acquires all of them again, in the next session.
#[test]
fn a_session_that_expires_in_the_middle_is_followed_by_another_round() {
    at_every_position(async |_, world, client, held| {
        let acquiring = spawn(all_kinds(client).acquire().into_future());
        sleep_ms(500).await;
        world.server.expire(session(client));
        sleep_ms(5_000).await;
        assert!(!acquiring.is_finished());
        held.release().await.expect("the znode can be deleted");
        let guard = acquiring.await.expect("no panic").expect("the locks are free");
        guard.validate().await.expect("all are held");
        let own = session(client);
        assert!(world.server.ephemerals().iter().all(|(_, owner)| *owner == own));
        assert_eq!(znodes(world).len(), PATHS.len(), "\n{}", world.trace());
        drop(guard);
    });
}

/// An administrator deletes the znode of the first lock again and again while the multi-lock waits
/// for the second.
#[test]
fn a_lock_that_is_deleted_in_the_middle_is_acquired_again_but_not_forever() {
    for deletions in [1, 5, 6] {
        run(async {
            let world = World::new();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let [first, second, ..] = PATHS;
            let held = hold(&fair_locks(&other, &[second])).await;
            let acquiring = spawn(fair_locks(&client, &[first, second]).acquire().into_future());
            for _ in 0..deletions {
                // The keeper of the first lock watches its znode by then.
                sleep_ms(500).await;
                let names = world.server.children(first).expect("it is there");
                let [name] = &names[..] else { panic!("{names:?}\n{}", world.trace()) };
                assert!(world.server.admin_delete(&format!("{first}/{name}")));
            }
            sleep_ms(500).await;
            if deletions > 5 {
                let error = acquiring.await.expect("no panic").unwrap_err();
                assert_eq!(error.path, first);
                assert_eq!(error.error, LockError::Lost(LostReason::ZnodeDeleted));
                drop(held);
            } else {
                assert!(!acquiring.is_finished());
                drop(held);
                let guard = acquiring.await.expect("no panic").expect("the locks are free");
                guard.validate().await.expect("all are held");
            }
            check_clean(&world, &[&client, &other]).await;
        });
    }
}

/// The directory of a lock is deleted together with its contenders.
#[test]
fn a_deleted_directory_is_created_again() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let [first, second, ..] = PATHS;
        let held = hold(&fair_locks(&other, &[second])).await;
        let acquiring = spawn(fair_locks(&client, &[first, second]).acquire().into_future());
        sleep_ms(500).await;
        for name in world.server.children(first).expect("it is there") {
            assert!(world.server.admin_delete(&format!("{first}/{name}")));
        }
        assert!(world.server.admin_delete(first));
        sleep_ms(500).await;
        drop(held);
        let guard = acquiring.await.expect("no panic").expect("the locks are free");
        guard.validate().await.expect("all are held");
        drop(guard);
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn a_closed_client_fails_with_the_first_lock_that_needs_it() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let held = hold(&blocker(&other, 2)).await;
        let acquiring = spawn(all_kinds(&client).acquire().into_future());
        sleep_ms(500).await;
        client.close().await;
        let error = acquiring.await.expect("no panic").unwrap_err();
        assert_eq!(error.error, LockError::Closed);
        assert!(PATHS[..3].contains(&&*error.path), "{error}");
        drop(held);
        check_clean(&world, &[&other]).await;
    });
}

/// One of the releases is refused, and the others go on.
#[test]
fn a_release_that_is_refused_does_not_stop_the_others() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let paths = &PATHS[..3];
        let guard = hold(&fair_locks(&client, paths)).await;
        let read_only = Acl::new(Permissions::READ | Permissions::ADMIN, "world", "anyone");
        client.set_acl(paths[1], vec![read_only], None).await.expect("the list may be changed");
        let error = guard.release().await.unwrap_err();
        let released: Vec<_> =
            [paths[2], paths[0]].map(|path| (path.to_owned(), Released::Released)).into();
        assert_eq!(error.released, released);
        let [failed] = &error.failed[..] else { panic!("{error:?}") };
        assert_eq!(failed.path, paths[1]);
        assert!(matches!(failed.error, LockError::Refused { .. }), "{failed}");
        assert!(error.to_string().contains("1 of 3 locks"), "{error}");
        // The keeper retries as soon as it may.
        client.set_acl(paths[1], Acl::open(), None).await.expect("the list may be changed");
        sleep_ms(10_000).await;
        check_clean(&world, &[&client]).await;
    });
}
