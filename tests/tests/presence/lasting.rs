//! Presences that last longer than their znodes.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{Absence, PresenceError, PresenceState, RecipeError, Released};
use zk_tests::scene::{FIRST, SECOND, partition, session};
use zk_tests::world::{World, run, run_within, sleep_ms};

use crate::{
    AT_ONCE, LONG, PARENT, PATH, begin, builder, check_clean, check_honest, create_parent,
    is_present, stored, until_present,
};

#[test]
fn a_presence_is_a_znode_with_its_data_until_it_is_closed() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let presence = begin(&client, "one").await;
        assert_eq!(stored(&world), Some(("one".to_owned(), session(&client))));
        check_honest(&world, &presence);
        presence.set_data("two").await.expect("it may be written");
        assert_eq!(stored(&world), Some(("two".to_owned(), session(&client))));
        assert_eq!(presence.path(), PATH);
        assert_eq!(presence.close().await, Ok(Released::Released));
        assert_eq!(stored(&world), None);
        drop(begin(&client, "three").await);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_presence_is_back_at_once_in_the_next_session_with_the_last_data() {
    run(async {
        let world = World::new();
        create_parent(&world);
        let client = world.client(FIRST).await;
        let mut presence = begin(&client, "0").await;
        for round in 1..=5 {
            presence.set_data(round.to_string()).await.expect("it may be written");
            let expired = check_honest(&world, &presence);
            world.server.expire(expired);
            assert_eq!(stored(&world), None);
            while presence.state() == (PresenceState::Absent(Absence::SessionEnded))
                || client.session_id().is_none_or(|session| session == expired)
            {
                sleep_ms(1).await;
            }
            let connected = client.now();
            until_present(&world, &client, &mut presence).await;
            assert!(client.now().saturating_since(connected) < AT_ONCE);
            assert_ne!(check_honest(&world, &presence), expired);
            assert_eq!(stored(&world).map(|(data, _)| data), Some(round.to_string()));
        }
        assert_eq!(presence.close().await, Ok(Released::Released));
        check_clean(&world, &[&client]).await;
    });
}

/// The first deletion is answered at once. If the znode is deleted again and again, pauses follow.
#[test]
fn a_deleted_znode_is_back_within_a_round_trip_and_later_after_pauses_that_grow() {
    run_within(LONG, async {
        let world = World::reaped_each_minute();
        create_parent(&world);
        let client = world.client(FIRST).await;
        let mut presence = begin(&client, "one").await;
        for _ in 0..2 {
            let mut pauses = Vec::new();
            world.server.clear_requests();
            for _ in 0..6 {
                let before = world.server.stat(PATH).expect("it exists").czxid;
                assert!(world.server.admin_delete(PATH));
                let began = client.now();
                let is_back = || world.server.stat(PATH).is_some_and(|stat| stat.czxid > before);
                while !is_back() {
                    sleep_ms(1).await;
                }
                pauses.push(client.now().saturating_since(began).as_millis());
                until_present(&world, &client, &mut presence).await;
                // The reply has arrived.
                sleep_ms(50).await;
                check_honest(&world, &presence);
            }
            assert!(pauses[0] < AT_ONCE.as_millis(), "{pauses:?}\n{}", world.trace());
            for (pause, least) in pauses[1..].iter().zip([200, 400, 800, 1_600, 3_200]) {
                assert!((least..=least * 5 / 4 + 100).contains(pause), "{pauses:?}");
            }
            let creates = world.server.requests();
            let creates = creates.iter().filter(|request| request.op == OpCode::CREATE2).count();
            assert_eq!(creates, 6, "one for each deletion\n{}", world.trace());
            // After a minute of peace, everything begins again.
            sleep_ms(61_000).await;
        }
        drop(presence);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_deleted_parent_is_created_again() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let mut presence = begin(&client, "one").await;
        for deleted in [PATH, PARENT, "/services"] {
            assert!(world.server.admin_delete(deleted));
        }
        sleep_ms(5).await;
        let took = until_present(&world, &client, &mut presence).await;
        assert!(took < 3 * AT_ONCE, "{took:?}");
        check_honest(&world, &presence);
        presence.close().await.expect("it may be deleted");
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn data_that_are_set_while_absent_are_those_of_the_next_znode() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let presence = begin(&client, "one").await;
        partition(&world, 500);
        world.server.expire(session(&client));
        presence.set_data("two").await.expect("it may be written");
        assert_eq!(stored(&world).map(|(data, _)| data).as_deref(), Some("two"));
        check_honest(&world, &presence);
        let error = presence.set_data(vec![0; 5 << 20]).await.expect_err("it is too large");
        assert!(matches!(error, PresenceError::Recipe(RecipeError::TooLarge(_))), "{error}");
        assert_eq!(stored(&world).map(|(data, _)| data).as_deref(), Some("two"));
        drop(presence);
        check_clean(&world, &[&client]).await;
    });
}

/// Its session has expired, the client does not know it, and another client has the path.
#[test]
fn a_close_does_not_touch_the_znode_of_the_next_owner() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let presence = begin(&client, "one").await;
        world.server.expire(session(&client));
        world.server.admin_create(PATH, b"theirs", Some(session(&other)));
        let released = presence.close().await.expect("nothing is refused");
        assert_ne!(released, Released::Released, "{}", world.trace());
        sleep_ms(5_000).await;
        assert_eq!(stored(&world), Some(("theirs".to_owned(), session(&other))));
        assert!(world.server.admin_delete(PATH));
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn a_closed_client_ends_its_presences() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let mut presence = begin(&client, "one").await;
        client.close().await;
        presence.changed().await;
        sleep_ms(100).await;
        assert_eq!(presence.state(), PresenceState::Ended);
        assert_eq!(presence.changed().await, PresenceState::Ended, "at once");
        assert!(!is_present(&presence));
        let error = presence.set_data("x").await.expect_err("the client is closed");
        let is_closed = |error: &PresenceError| {
            matches!(error, PresenceError::Ended | PresenceError::Recipe(RecipeError::Closed))
        };
        assert!(is_closed(&error), "{error}");
        let error = presence.close().await.expect_err("the client is closed");
        assert!(is_closed(&error), "{error}");
        let again = builder(&client).keep_trying().timeout(Duration::from_secs(5)).begin("");
        assert!(again.await.is_err_and(|error| is_closed(&error)));
        assert_eq!(stored(&world), None);
    });
}
