//! Streams of changes.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{ErrorCode, GroupChange, RecipeError};
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND, at_op, partition, poll_times, session};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, At, Fault};

use crate::{GROUP, changes, check_clean, create_directory, group, join, path, watch};

#[test]
fn a_watch_begins_with_the_members_and_reports_each_change_once() {
    for watches_data in [true, false] {
        run(async {
            let world = World::new();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let mut watch = watch(&client, watches_data);
            assert!(changes(&mut watch).await.is_empty(), "the directory does not exist yet");
            let a = join(&other, "a", "1").await;
            let b = join(&other, "b", "1").await;
            assert_eq!(changes(&mut watch).await, ["joined a 1", "joined b 1"]);
            a.set_data("2").await.expect("it may be written");
            let changed = changes(&mut watch).await;
            if watches_data {
                assert_eq!(changed, ["changed a 2"]);
                // The same data again are no change.
                a.set_data("2").await.expect("it may be written");
            }
            assert!(changes(&mut watch).await.is_empty());
            b.leave().await.expect("it may be deleted");
            let left = changes(&mut watch).await;
            if watches_data {
                assert_eq!(left, ["left b 1"]);
            } else {
                assert_eq!(left, ["changed a 2", "left b 1"]);
            }
            drop(a);
            assert_eq!(changes(&mut watch).await, ["left a 2"]);
            drop(watch);
            check_clean(&world, &[&client, &other]).await;
        });
    }
}

/// The list is the same before and after, so only the czxid shows it.
#[test]
fn a_member_that_leaves_and_rejoins_between_two_looks_is_reported_as_left_and_joined() {
    for watches_data in [true, false] {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            create_directory(&world);
            let owner = session(&client);
            world.server.admin_create(&path("a"), b"1", Some(owner));
            let mut watch = watch(&client, watches_data);
            assert_eq!(changes(&mut watch).await, ["joined a 1"]);
            for (before, after) in [("1", "2"), ("2", "2")] {
                // No time passes between the two, and the watch does not run.
                assert!(world.server.admin_delete(&path("a")));
                world.server.admin_create(&path("a"), after.as_bytes(), Some(owner));
                let expected = [format!("left a {before}"), format!("joined a {after}")];
                assert_eq!(changes(&mut watch).await, expected, "{}", world.trace());
            }
            // The same while there is no connection.
            world.server.refuse_for(Duration::from_millis(500));
            world.server.disconnect_all();
            assert!(world.server.admin_delete(&path("a")));
            world.server.admin_create(&path("a"), b"2", Some(owner));
            assert_eq!(changes(&mut watch).await, ["left a 2", "joined a 2"], "{}", world.trace());
            assert!(world.server.admin_delete(&path("a")));
            drop(watch);
            check_clean(&world, &[&client]).await;
        });
    }
}

#[test]
fn a_watch_survives_the_end_of_its_session_and_reports_only_differences() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let (a, b) = (join(&other, "a", "1").await, join(&other, "b", "1").await);
        let mut watch = group(&client).watch();
        assert_eq!(changes(&mut watch).await, ["joined a 1", "joined b 1"]);
        for round in 0..3 {
            partition(&world, 300);
            world.server.expire(session(&client));
            let expected: &[&str] = match round {
                0 => &[],
                1 => &["changed b 2"],
                _ => &["changed b 3", "joined c 1"],
            };
            // These reconnect first.
            let mut c = None;
            match round {
                0 => {}
                1 => b.set_data("2").await.expect("it may be written"),
                _ => {
                    b.set_data("3").await.expect("it may be written");
                    c = Some(join(&other, "c", "1").await);
                }
            }
            assert_eq!(changes(&mut watch).await, expected, "{}", world.trace());
            if let Some(c) = c {
                c.leave().await.expect("it may be deleted");
                assert_eq!(changes(&mut watch).await, ["left c 1"]);
            }
        }
        a.leave().await.expect("it may be deleted");
        assert_eq!(changes(&mut watch).await, ["left a 1"]);
        drop(b);
        drop(watch);
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn a_member_that_expires_is_reported_as_left_and_as_joined_when_it_is_back() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let a = join(&other, "a", "1").await;
        let mut watch = group(&client).watch();
        assert_eq!(changes(&mut watch).await, ["joined a 1"]);
        world.server.expire(session(&other));
        assert_eq!(changes(&mut watch).await, ["left a 1", "joined a 1"]);
        drop((a, watch));
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn the_deletion_of_the_directory_is_survived() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        create_directory(&world);
        let mut watch = group(&client).watch();
        for _ in 0..3 {
            assert!(changes(&mut watch).await.is_empty());
            assert!(world.server.admin_delete(GROUP));
            assert!(changes(&mut watch).await.is_empty());
            world.server.admin_create(GROUP, b"", None);
            world.server.admin_create(&path("a"), b"1", Some(session(&client)));
            assert_eq!(changes(&mut watch).await, ["joined a 1"]);
            assert!(world.server.admin_delete(&path("a")));
            assert!(world.server.admin_delete(GROUP));
            assert_eq!(changes(&mut watch).await, ["left a 1"]);
            world.server.admin_create(GROUP, b"", None);
        }
        drop(watch);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_watch_whose_future_is_dropped_at_every_poll_misses_nothing() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let mut watch = group(&client).watch();
        let mut seen = Vec::new();
        let mut members = Vec::new();
        for number in 0..20 {
            members.push(join(&other, &format!("m{number:02}"), "1").await);
            for polls in 0..4 {
                let polled = poll_times(watch.next(), polls, || {});
                let polled = tokio::time::timeout(Duration::from_millis(5), polled).await;
                if let Ok(Some(change)) = polled {
                    seen.push(crate::said(&change.expect("it may be read")));
                }
                sleep_ms(1).await;
            }
        }
        seen.extend(changes(&mut watch).await);
        let expected: Vec<_> = (0..20).map(|number| format!("joined m{number:02} 1")).collect();
        assert_eq!(seen, expected);
        drop((members, watch));
        check_clean(&world, &[&client, &other]).await;
    });
}

/// A server that refuses for a permanent reason is asked at a bounded rate, even by a caller who
/// ignores errors; one that is overloaded is asked again without an error.
#[test]
fn a_watch_that_is_refused_says_so_and_goes_on_afterwards() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let a = join(&client, "a", "1").await;
        let mut watch = group(&client).watch();
        let own = session(&client);
        for op in [OpCode::GET_CHILDREN, OpCode::GET_DATA] {
            for _ in 0..3 {
                world.server.inject(at_op(own, op, Action::Error(ErrorCode::NO_AUTH)));
            }
            let began = client.now();
            for _ in 0..3 {
                let error = watch.next().await.expect_err("it is refused");
                assert!(matches!(error, RecipeError::Refused { .. }), "{error}");
            }
            assert!(client.now().saturating_since(began) >= Duration::from_millis(600));
        }
        assert_eq!(changes(&mut watch).await, ["joined a 1"]);
        a.set_data("2").await.expect("it may be written");
        for _ in 0..3 {
            world.server.inject(at_op(
                own,
                OpCode::GET_DATA,
                Action::Error(ErrorCode::THROTTLED_OP),
            ));
        }
        assert_eq!(changes(&mut watch).await, ["changed a 2"]);
        drop((a, watch));
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_member_that_leaves_while_another_one_cannot_be_read_is_no_member() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let (a, b) = (join(&other, "a", "1").await, join(&other, "b", "1").await);
        let mut watch = group(&client).watch();
        // One flight reads both, and the first read is refused. So the pause before the next try
        // begins with the data of b, and with its watch.
        let throttled = Action::Error(ErrorCode::THROTTLED_OP);
        world.server.inject(at_op(session(&client), OpCode::GET_DATA, throttled));
        let (changes, ()) = tokio::join!(changes(&mut watch), async {
            sleep_ms(50).await;
            b.leave().await.expect("it may be deleted");
        });
        assert_eq!(changes, ["joined a 1"]);
        drop(a);
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn a_change_between_two_reads_of_a_flight_is_reported() {
    for leaves in [true, false] {
        run(async {
            let world = World::new();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let (a, b) = (join(&other, "a", "1").await, join(&other, "b", "1").await);
            let mut watch = group(&client).watch();
            // The server has read a, and reads b later. The event of a precedes the reply of b.
            let at = At::op(OpCode::GET_DATA).of_session(session(&client)).after(1);
            world.server.inject(Fault::new(at, Action::Pause(Duration::from_millis(200))));
            let (changes, left) = tokio::join!(changes(&mut watch), async {
                sleep_ms(50).await;
                if leaves {
                    a.leave().await.expect("it may be deleted");
                    return None;
                }
                a.set_data("2").await.expect("it may be written");
                Some(a)
            });
            let told: &[&str] =
                if leaves { &["joined b 1"] } else { &["joined a 2", "joined b 1"] };
            assert_eq!(changes, told);
            drop((left, b));
            check_clean(&world, &[&client, &other]).await;
        });
    }
}

#[test]
fn a_watch_of_a_closed_client_fails() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let mut watch = group(&client).watch();
        assert!(changes(&mut watch).await.is_empty());
        client.close().await;
        assert_eq!(watch.next().await, Err(RecipeError::Closed));
        assert_eq!(watch.next().await, Err(RecipeError::Closed));
    });
}

#[test]
fn a_hundred_and_fifty_members_are_followed_through_a_storm() {
    run(async {
        let world = World::new().pace(Pace::of(400));
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let mut members = Vec::new();
        for number in 0..150 {
            members.push(group(&other).join(&format!("m{number:03}"), "x").await.expect("free"));
        }
        let mut watch = group(&client).watch();
        assert_eq!(changes(&mut watch).await.len(), 150);
        world.server.expire(session(&other));
        let mut alive = std::collections::BTreeMap::new();
        while let Ok(change) = watch.next_within(Duration::from_secs(2)).await {
            match &change {
                GroupChange::Joined(member) => {
                    assert_eq!(alive.insert(member.id.clone(), true), Some(false), "{member:?}");
                }
                GroupChange::Left(member) => {
                    assert_eq!(alive.insert(member.id.clone(), false), None, "{member:?}");
                }
                GroupChange::Changed(_) | _ => panic!("{change:?}"),
            }
        }
        assert_eq!(alive.len(), 150);
        assert!(alive.values().all(|is_present| *is_present));
        drop((members, watch));
        check_clean(&world, &[&client, &other]).await;
    });
}
