//! How a watch learns of new members: by a persistent watch, or by lists if there is none.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::ErrorCode;
use zk_session::WatcherType;
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND, at_op, poll_times, sent_since, session};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

use crate::{
    GROUP, changes, create_directory, group, path, refuse_persistent_watches, stored, watch,
};

/// A rolling update of the ensemble: the session begins on an old server, continues on a new one, and
/// moves to an old one again.
#[test]
fn a_watch_goes_on_when_servers_learn_or_forget_persistent_watches() {
    for watches_data in [true, false] {
        run(async {
            let world = World::new();
            create_directory(&world);
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let owner = session(&other);
            let create = |id| world.server.admin_create(&path(id), b"1", Some(owner));
            let listed = |sent: &[OpCode]| sent.contains(&OpCode::GET_CHILDREN);
            refuse_persistent_watches(&world.server, 1);
            let mut watch = watch(&client, watches_data);
            create("a");
            assert_eq!(changes(&mut watch).await, ["joined a 1"]);
            world.server.clear_requests();
            create("b");
            assert_eq!(changes(&mut watch).await, ["joined b 1"]);
            assert!(listed(&sent_since(&world, &client)));
            // The server of the next session knows them.
            world.server.expire(session(&client));
            assert!(changes(&mut watch).await.is_empty());
            world.server.clear_requests();
            create("c");
            assert_eq!(changes(&mut watch).await, ["joined c 1"]);
            assert!(!listed(&sent_since(&world, &client)));
            // The next server of this session does not.
            let refusal = Action::Error(ErrorCode::UNIMPLEMENTED);
            world.server.inject(at_op(session(&client), OpCode::SET_WATCHES2, refusal));
            world.server.disconnect_all();
            create("d");
            assert_eq!(changes(&mut watch).await, ["joined d 1"], "{}", world.trace());
            world.server.clear_requests();
            create("e");
            assert_eq!(changes(&mut watch).await, ["joined e 1"]);
            assert!(listed(&sent_since(&world, &client)));
            world.server.expire(owner);
            assert_eq!(changes(&mut watch).await.len(), 5);
        });
    }
}

/// The server is asked for the watch again after growing pauses, and the group is listed once it is
/// in place.
#[test]
fn a_persistent_watch_that_an_overloaded_server_refuses_is_set_later() {
    run(async {
        let world = World::new();
        create_directory(&world);
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        world.server.admin_create(&path("a"), b"1", Some(session(&other)));
        for _ in 0..5 {
            let throttled = Action::Error(ErrorCode::THROTTLED_OP);
            world.server.inject(at_op(session(&client), OpCode::ADD_WATCH, throttled));
        }
        world.server.clear_requests();
        let began = client.now();
        let mut watch = group(&client).watch();
        let change = watch.next().await.expect("it may be read");
        assert_eq!(crate::said(&change), "joined a 1");
        assert!(client.now().saturating_since(began) >= Duration::from_secs(6));
        let sent = sent_since(&world, &client);
        assert_eq!(sent.len(), 9, "six watches, a list with its stat, and a read: {sent:?}");
    });
}

/// A server that refuses the persistent watch for a reason of its own may serve lists.
#[test]
fn a_refused_persistent_watch_is_replaced_by_lists_in_this_session() {
    run(async {
        let world = World::new();
        create_directory(&world);
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let owner = session(&other);
        let refused = Action::Error(ErrorCode::NO_AUTH);
        world.server.inject(at_op(session(&client), OpCode::ADD_WATCH, refused));
        let mut watch = group(&client).watch();
        for id in ["a", "b"] {
            world.server.admin_create(&path(id), b"1", Some(owner));
            assert_eq!(changes(&mut watch).await, [format!("joined {id} 1")]);
        }
    });
}

/// Another part of the program removes all watches of the directory, or the directory changes too
/// fast for a watch that nobody polls.
#[test]
fn a_watch_whose_events_are_lost_lists_the_group_again() {
    for (is_removal, watches_data) in [(true, true), (true, false), (false, true), (false, false)] {
        run(async {
            let world = World::new().pace(Pace::of(4_000));
            create_directory(&world);
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let owner = session(&other);
            let create = |id: &str| world.server.admin_create(&path(id), b"1", Some(owner));
            let mut watch = watch(&client, watches_data);
            create("a");
            assert_eq!(changes(&mut watch).await, ["joined a 1"]);
            if is_removal {
                let removed = client.remove_watches(GROUP, WatcherType::ANY).await;
                assert_eq!(removed, Ok(()), "the group has a watch");
            } else {
                create("b");
                for _ in 0..600 {
                    create("passes");
                    assert!(world.server.admin_delete(&path("passes")));
                }
                sleep_ms(1_000).await;
            }
            if is_removal {
                create("b");
            }
            assert!(world.server.admin_delete(&path("a")));
            let mut reported = changes(&mut watch).await;
            reported.sort();
            assert_eq!(reported, ["joined b 1", "left a 1"], "{}", world.trace());
            create("c");
            assert_eq!(changes(&mut watch).await, ["joined c 1"]);
            assert_eq!(stored(&world).len(), 2);
        });
    }
}

/// The list that is in flight does not show a member that joins after it was made, and the event of
/// that member may be known first.
#[test]
fn a_member_that_joins_behind_a_reply_that_waits_is_reported() {
    for (polls, watches_data) in (0..8).flat_map(|polls| [(polls, true), (polls, false)]) {
        run(async {
            let world = World::new();
            create_directory(&world);
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let owner = session(&other);
            world.server.admin_create(&path("a"), b"1", Some(owner));
            let mut watch = watch(&client, watches_data);
            let polled = poll_times(watch.next(), polls, || {});
            let polled = tokio::time::timeout(Duration::from_secs(1), polled).await;
            let mut reported: Vec<_> = polled.into_iter().flatten().collect();
            // Nobody polls the watch while the reply arrives, the member leaves and joins again, and
            // another one joins.
            sleep_ms(100).await;
            assert!(world.server.admin_delete(&path("a")));
            for id in ["a", "b"] {
                world.server.admin_create(&path(id), b"2", Some(owner));
            }
            sleep_ms(100).await;
            while let Ok(change) = watch.next_within(Duration::from_secs(5)).await {
                reported.push(Ok(change));
            }
            let reported: Vec<_> = reported
                .iter()
                .map(|change| crate::said(change.as_ref().expect("it may be read")))
                .collect();
            let last = &reported[reported.len().saturating_sub(2)..];
            assert_eq!(
                last,
                ["joined a 2", "joined b 2"],
                "{polls} {reported:?}\n{}",
                world.trace()
            );
        });
    }
}
