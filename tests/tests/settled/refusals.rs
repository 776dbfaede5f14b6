//! Servers that refuse, and administrators who delete markers.

use std::time::Duration;

use jute_codec::{ErrorCode, OpCode};
use zk_recipes::{
    Acl, CreateMode, CreateOptions, FairLock, HandOverError, LastSeen, LockState, Multi, Outcome,
    RecipeError, SettledError, Target, Version,
};
use zk_tests::scene::{FIRST, SECOND, at_op, session};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, ServerConfig, ServerVersion};

use crate::{MARKERS, PATH, check_clean, create_directories, settled};

#[test]
fn a_refusal_names_the_operation_and_says_that_nothing_was_applied() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        create_directories(&world);
        let settled = settled(&client);
        let multi =
            Multi::new().create("/data/a", "", CreateMode::Persistent).set_data(PATH, "1", None);
        let error = settled.commit(multi).await.expect_err("the second znode is missing");
        let target = Target::new(OpCode::SET_DATA, PATH);
        let code = ErrorCode::NO_NODE;
        assert_eq!(error, SettledError::Refused { index: 1, code, target });
        assert_eq!(error.outcome(), Outcome::NotApplied);
        assert_eq!(world.server.stat("/data/a"), None);
        let read = settled.get_data(PATH).await.expect_err("it is missing");
        assert!(matches!(read, RecipeError::Refused { code, .. } if code == ErrorCode::NO_NODE));
        drop(settled);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_marker_that_somebody_has_deleted_is_replaced() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        create_directories(&world);
        let settled = settled(&client);
        settled.create(PATH, "1", CreateMode::Persistent).await.expect("it is missing");
        let marker = world.server.children(MARKERS).expect("it exists").remove(0);
        assert!(world.server.admin_delete(&format!("{MARKERS}/{marker}")));
        settled.set_data(PATH, "2", None).await.expect("it exists");
        assert_eq!(world.server.stat(PATH).map(|stat| stat.version.0), Some(1));
        assert_ne!(world.server.children(MARKERS), Some(vec![marker]));
        drop(settled);
        check_clean(&world, &[&client]).await;
    });
}

/// Nobody else deletes it while the session lives, and a client with such a duty is not handed over
/// before.
#[test]
fn the_marker_of_a_dropped_handle_is_deleted_once_the_server_permits_it() {
    for refusals in [0, 1, 5] {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            create_directories(&world);
            let settled = settled(&client);
            settled.create(PATH, "1", CreateMode::Persistent).await.expect("it is missing");
            for _ in 0..refusals {
                let action = Action::Error(ErrorCode::NO_AUTH);
                world.server.inject(at_op(session(&client), OpCode::DELETE, action));
            }
            drop(settled);
            let handed_over = client.hand_over().await;
            let left = world.server.children(MARKERS).map(|markers| markers.len());
            if refusals < 5 {
                handed_over.expect("it waits for the removal");
                assert_eq!(left, Some(0));
                return;
            }
            let refused = handed_over.expect_err("a marker is left");
            assert!(matches!(refused, HandOverError::Unfinished { .. }), "{refused}");
            assert_eq!(left, Some(1));
            world
                .until("the marker is deleted", |server| {
                    server.children(MARKERS).is_some_and(|markers| markers.is_empty())
                })
                .await;
            check_clean(&world, &[&client]).await;
        });
    }
}

/// A caller who knows that nothing was sent can do something else instead. Only what was sent may still
/// be applied.
#[test]
fn a_write_that_had_no_connection_was_not_applied() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        create_directories(&world);
        let settled = settled(&client);
        let limit = Duration::from_secs(2);
        settled.create(PATH, "1", CreateMode::Persistent).await.expect("it is missing");
        world.server.pause_connection(session(&client), Duration::from_secs(3));
        let sent = settled.set_data(PATH, "2", None).timeout(limit).await;
        assert_eq!(sent.expect_err("no reply arrives").outcome(), Outcome::Unknown);
        sleep_ms(2_000).await;

        world.server.refuse_for(Duration::from_secs(15));
        world.server.disconnect_all();
        sleep_ms(100).await;
        let multi = Multi::new().delete(PATH, None);
        for unsent in [
            settled.set_data(PATH, "3", None).timeout(limit).await.map(drop),
            settled.create("/data/y", "", CreateMode::Persistent).timeout(limit).await.map(drop),
            settled.commit(multi).timeout(limit).await.map(drop),
        ] {
            let error = unsent.expect_err("there is no connection");
            assert_eq!(error.outcome(), Outcome::NotApplied, "{error}");
            assert!(matches!(error, SettledError::Recipe(RecipeError::TimedOut(_))), "{error}");
        }
        sleep_ms(20_000).await;
        assert_eq!(world.server.stat("/data/y"), None);
        assert_eq!(world.server.data(PATH).as_deref(), Some(&b"2"[..]));
        drop(settled);
        check_clean(&world, &[&client]).await;
    });
}

/// Without the marker, nobody can know whether the write was applied, so it is not repeated.
#[test]
fn a_write_is_unknown_if_its_marker_is_deleted_before_the_outcome_is_known() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        create_directories(&world);
        let settled = settled(&client);
        settled.create(PATH, "1", CreateMode::Persistent).await.expect("it is missing");
        let fault = at_op(session(&client), OpCode::MULTI, Action::CutAfter);
        world.server.inject(fault.refuse_for(Duration::from_secs(1)));
        let writing = settled.set_data(PATH, "2", None);
        let deleting = async {
            let is_applied = || world.server.stat(PATH).is_some_and(|stat| stat.version.0 == 1);
            while !is_applied() {
                sleep_ms(1).await;
            }
            let marker = world.server.children(MARKERS).expect("it exists").remove(0);
            assert!(world.server.admin_delete(&format!("{MARKERS}/{marker}")));
        };
        let (written, ()) = tokio::join!(writing, deleting);
        let error = written.expect_err("nobody can know");
        assert_eq!(error.outcome(), Outcome::Unknown, "{error:?}");
        assert_eq!(world.server.stat(PATH).map(|stat| stat.version.0), Some(1), "once");
        drop(settled);
        check_clean(&world, &[&client]).await;
    });
}

/// The read that was sent with the refused barrier is older than the barrier that is not refused.
#[test]
fn a_read_behind_a_barrier_is_repeated_with_it() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        create_directories(&world);
        world.server.admin_create(PATH, b"old", None);
        let refusal = Action::Error(ErrorCode::THROTTLED_OP);
        world.server.inject(at_op(session(&client), OpCode::MULTI, refusal));
        let newest = settled(&client).behind_barrier();
        let writing = async {
            sleep_ms(50).await;
            world.server.admin_set_data(PATH, b"new");
        };
        let (read, ()) = tokio::join!(newest.get_data(PATH), writing);
        assert_eq!(read.expect("it exists").0, "new", "\n{}", world.trace());
    });
}

/// Old servers do not send the stat of what a transaction creates. 3.4 does not know such creates.
#[test]
fn every_server_version_since_3_5_settles_the_plain_operations() {
    for version in [
        ServerVersion::V3_5,
        ServerVersion::V3_6,
        ServerVersion::V3_7,
        ServerVersion::V3_8,
        ServerVersion::V3_9,
    ] {
        run(async {
            let world = World::with(ServerConfig::default().version(version));
            let client = world.client(FIRST).await;
            let settled = settled(&client);
            let created = settled.create_with_parents(PATH, "1", CreateMode::Persistent).await;
            let created = created.expect("it is missing");
            let sends_stats = matches!(version, ServerVersion::V3_7 | ServerVersion::V3_9);
            assert_eq!(created.stat.is_some(), sends_stats, "{version:?}");
            let fault = at_op(session(&client), OpCode::MULTI, Action::CutAfter);
            world.server.inject(fault);
            let stat = settled.set_data(PATH, "2", Some(Version(0))).await.expect("it exists");
            assert_eq!(stat.map(|stat| stat.version), Some(Version(1)), "{version:?}");
            settled.delete(PATH, Some(Version(1))).await.expect("it exists");
            drop(settled);
            check_clean(&world, &[&client]).await;
        });
    }
}

/// In the requests of recipes, an empty list means the default, which may be open.
#[test]
fn an_empty_access_control_list_is_refused_and_never_replaced() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        create_directories(&world);
        let settled = settled(&client);
        let options = || CreateOptions::from(CreateMode::Persistent).acl(vec![]);
        let error = settled.create(PATH, "1", options()).await.expect_err("it is empty");
        assert!(error.to_string().contains("INVALID_ACL"), "{error}");
        assert_eq!(error.outcome(), Outcome::NotApplied);
        let multi = Multi::new().create(PATH, "1", options());
        let error = settled.commit(multi).await.expect_err("it is empty");
        assert!(error.to_string().contains("INVALID_ACL"), "{error}");
        assert_eq!(world.server.stat(PATH), None);
        drop(settled);
        check_clean(&world, &[&client]).await;
    });
}

/// The check of the lock must be that of its znode, however the handle names it.
#[test]
fn a_lock_is_found_from_each_root_and_a_guard_of_no_use_loses_nothing() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        create_directories(&world);
        let rooted = client.rooted_at("/data").expect("the path is valid");
        let outside = client.rooted_at("/settled").expect("the path is valid");
        let inner = FairLock::new(&rooted, "/lock").expect("the path is valid");
        let outer = FairLock::new(&client, "/data/lock").expect("the path is valid");
        for lock in [inner, outer] {
            let guard = lock.acquire().await.expect("it is free");
            for (handle, path) in [(&client, "/data/x"), (&rooted, "/x")] {
                let settled = settled(handle);
                let multi = Multi::new().create(path, "", CreateMode::Persistent);
                settled.commit_under(&guard, multi).await.expect("the lock is held");
                settled.delete(path, None).await.expect("it was created");
            }
            for handle in [&outside, &other] {
                let refused = settled(handle).commit_under(&guard, Multi::new()).await;
                let error = refused.expect_err("the handle cannot name the znode of the lock");
                assert_eq!(error.outcome(), Outcome::NotApplied);
                let message = error.to_string();
                assert!(message.contains("invalid guard of") && message.contains("same client"));
                assert!(!matches!(guard.state(), LockState::Lost(_)), "{error}");
            }
            guard.validate().await.expect("it is held");
            guard.release().await.expect("it is held");
        }
        drop((rooted, outside));
        check_clean(&world, &[&client, &other]).await;
    });
}

/// Whoever is beaten by others tries again at once. This server says so, and shows the same version.
#[test]
fn a_server_that_contradicts_itself_is_asked_after_pauses() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        create_directories(&world);
        let settled = settled(&client);
        for _ in 0..1_000 {
            let action = Action::Error(ErrorCode::BAD_VERSION);
            world.server.inject(at_op(session(&client), OpCode::SET_ACL, action));
        }
        let setting = settled.set_acl("/data", Acl::open(), None).timeout(Duration::from_secs(20));
        let error = setting.await.expect_err("the server refuses each time");
        assert_eq!(error.outcome(), Outcome::NotApplied);
        let count = world.server.requests().len();
        assert!((10..30).contains(&count), "{count} requests in 20 seconds");
    });
}

/// Reads, writes with a marker and changes of permissions are issued again in ways of their own.
#[test]
fn a_call_that_is_throttled_until_its_time_is_up_says_so() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        create_directories(&world);
        world.server.admin_create(PATH, b"1", None);
        let settled = settled(&client);
        for op in [OpCode::GET_DATA, OpCode::MULTI, OpCode::SET_ACL] {
            for _ in 0..100 {
                let throttled = Action::Error(ErrorCode::THROTTLED_OP);
                world.server.inject(at_op(session(&client), op, throttled));
            }
        }
        let timeout = Duration::from_secs(2);
        let seen = |error: RecipeError| {
            let RecipeError::TimedOut(timed_out) = error else { panic!("{error}") };
            timed_out.seen
        };
        let of = |error: SettledError| {
            let (SettledError::Recipe(cause) | SettledError::Unknown { cause }) = error else {
                panic!("{error}")
            };
            seen(cause)
        };
        let throttled = LastSeen::Refused(ErrorCode::THROTTLED_OP);
        let read = settled.get_data(PATH).timeout(timeout).await.expect_err("it is throttled");
        assert_eq!(seen(read), throttled);
        let written = settled.set_data(PATH, "2", None).timeout(timeout).await;
        assert_eq!(of(written.expect_err("it is throttled")), throttled);
        let set = settled.set_acl(PATH, Acl::open(), None).timeout(timeout).await;
        assert_eq!(of(set.expect_err("it is throttled")), throttled);
        world.server.clear_faults();
        drop(settled);
        check_clean(&world, &[&client]).await;
    });
}
