//! What may be in the way: znodes of others, and servers that refuse.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{
    Absence, Acl, ErrorCode, FailedAction, Permissions, PresenceError, PresenceState, RecipeError,
    SessionId,
};
use zk_tests::scene::{FIRST, SECOND, at_op, sent_since, session, spawn};
use zk_tests::world::{World, run, run_within, sleep_ms};
use zk_testserver::Action;

use crate::{
    AT_ONCE, LONG, PATH, begin, builder, check_clean, check_honest, create_parent, is_present,
    stored, taken, until_present,
};

/// The owners that a znode which is in the way may have.
const OWNERS: [Option<u64>; 2] = [Some(SECOND), None];

fn absence(owner: Option<SessionId>) -> PresenceState {
    PresenceState::Absent(owner.map_or(Absence::NotEphemeral, Absence::Taken))
}

#[test]
fn a_path_that_is_taken_fails_a_first_begin_with_the_reason() {
    run(async {
        let world = World::new();
        create_parent(&world);
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let first = begin(&other, "theirs").await;
        // A client cannot have two presences at one path either.
        for again in [&client, &other] {
            let error = builder(again).begin("mine").await.expect_err("it is taken");
            assert_eq!(error, taken(session(&other)));
        }
        check_honest(&world, &first);
        first.close().await.expect("it may be deleted");
        world.server.admin_create(PATH, b"", None);
        let error = builder(&client).begin("mine").await.expect_err("it is taken");
        assert_eq!(error, PresenceError::NotEphemeral { path: PATH.to_owned() });
        assert!(world.server.admin_delete(PATH));
        check_clean(&world, &[&client, &other]).await;
    });
}

/// Nothing is sent while it waits, but a test every 30 s.
#[test]
fn a_begin_that_keeps_trying_is_present_at_once_when_the_path_is_free() {
    for owner in OWNERS {
        run_within(LONG, async {
            let world = World::new();
            create_parent(&world);
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let owner = owner.map(|_| session(&other));
            world.server.admin_create(PATH, b"theirs", owner);
            let trying = builder(&client).keep_trying();
            let beginning = spawn(async move { trying.begin("mine").await });
            sleep_ms(1_000).await;
            sent_since(&world, &client);
            sleep_ms(600_000).await;
            let sent = sent_since(&world, &client);
            assert!(sent.iter().all(|op| *op == OpCode::EXISTS), "{sent:?}");
            // Each interval is up to a quarter longer.
            assert!((600 / 30 * 4 / 5..=600 / 30).contains(&sent.len()), "{}", sent.len());
            let row = "| idle | {} test every {} s |";
            zk_tests::page::check_text("recipes/presence.md", row, &[1, 30]);
            assert!(!beginning.is_finished());
            assert!(world.server.admin_delete(PATH));
            let freed = client.now();
            let presence = beginning.await.expect("no panic").expect("the path is free");
            assert!(client.now().saturating_since(freed) < AT_ONCE, "{}", world.trace());
            check_honest(&world, &presence);
            drop(presence);
            check_clean(&world, &[&client, &other]).await;
        });
    }
}

#[test]
fn a_presence_outlasts_each_znode_that_takes_its_path() {
    for owner in OWNERS {
        run_within(LONG, async {
            let world = World::new();
            create_parent(&world);
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let owner = owner.map(|_| session(&other));
            let mut presence = begin(&client, "mine").await;
            world.server.expire(session(&client));
            world.server.admin_create(PATH, b"theirs", owner);
            sleep_ms(3_000).await;
            assert_eq!(presence.state(), absence(owner), "{}", world.trace());
            // Changes of the data are no reason to go on, or to give up.
            world.server.admin_set_data(PATH, b"theirs, too");
            sleep_ms(120_000).await;
            assert_eq!(presence.state(), absence(owner), "{}", world.trace());
            assert_eq!(stored(&world).map(|(data, _)| data).as_deref(), Some("theirs, too"));
            assert!(world.server.admin_delete(PATH));
            let took = until_present(&world, &client, &mut presence).await;
            assert!(took < AT_ONCE, "{took:?}");
            check_honest(&world, &presence);
            assert_eq!(stored(&world).map(|(data, _)| data).as_deref(), Some("mine"));
            drop(presence);
            check_clean(&world, &[&client, &other]).await;
        });
    }
}

/// A server swaps the session for a new one, and keeps the znode of the old one for a while.
#[test]
fn the_znode_of_the_own_earlier_session_is_waited_out() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let mut presence = begin(&client, "one").await;
        let old = session(&client);
        world.server.expire(old);
        world.server.admin_create(PATH, b"stale", Some(old));
        sleep_ms(5_000).await;
        assert_eq!(presence.state(), PresenceState::Absent(Absence::SessionEnded));
        assert!(world.server.admin_delete(PATH));
        let took = until_present(&world, &client, &mut presence).await;
        assert!(took < AT_ONCE, "{took:?}");
        assert_ne!(check_honest(&world, &presence), old);
        drop(presence);
        check_clean(&world, &[&client]).await;
    });
}

/// A server does not report the deletion to a client that may not read the znode.
#[test]
fn the_end_of_a_znode_that_may_not_be_read_is_found_by_a_test() {
    run(async {
        let world = World::new();
        create_parent(&world);
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        world.server.admin_create(PATH, b"theirs", Some(session(&other)));
        let all_but_read = Permissions(Permissions::ALL.0 & !Permissions::READ.0);
        let acl = vec![Acl::new(all_but_read, "world", "anyone")];
        other.set_acl(PATH, acl, None).await.expect("it may be set");
        let trying = builder(&client).keep_trying();
        let beginning = spawn(async move { trying.begin("mine").await });
        sleep_ms(1_000).await;
        assert!(world.server.admin_delete(PATH));
        let freed = client.now();
        let presence = beginning.await.expect("no panic").expect("the path is free");
        let took = client.now().saturating_since(freed);
        assert!(took <= Duration::from_secs(40), "{took:?}");
        check_honest(&world, &presence);
        drop(presence);
        check_clean(&world, &[&client, &other]).await;
    });
}

fn refuse(world: &World, session: SessionId, code: ErrorCode, times: usize) {
    for _ in 0..times {
        world.server.inject(at_op(session, OpCode::CREATE2, Action::Error(code)));
    }
}

fn refused() -> RecipeError {
    RecipeError::Refused {
        code: ErrorCode::NO_AUTH,
        action: FailedAction::Create,
        path: PATH.to_owned(),
    }
}

#[test]
fn a_refusal_fails_a_first_begin_unless_it_keeps_trying() {
    run(async {
        let world = World::new();
        create_parent(&world);
        let client = world.client(FIRST).await;
        refuse(&world, session(&client), ErrorCode::NO_AUTH, 7);
        let error = builder(&client).begin("one").await.expect_err("it is refused");
        assert_eq!(error, PresenceError::Recipe(refused()));
        world.server.clear_requests();
        let begun = client.now();
        let presence = builder(&client).keep_trying().begin("one").await.expect("in the end");
        let took = client.now().saturating_since(begun);
        assert!(took >= Duration::from_secs(11), "the pauses grow: {took:?}");
        let sent = sent_since(&world, &client);
        let creates = sent.iter().filter(|op| **op == OpCode::CREATE2).count();
        assert_eq!(creates, 7, "{sent:?}");
        // No patience helps here.
        let large = builder(&client).keep_trying().begin(vec![0; 5 << 20]);
        let error = large.await.expect_err("it is too large");
        assert!(matches!(error, PresenceError::Recipe(RecipeError::TooLarge(_))), "{error}");
        drop(presence);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn permissions_and_quotas_that_come_and_go_end_nothing() {
    for code in [ErrorCode::NO_AUTH, ErrorCode::QUOTA_EXCEEDED, ErrorCode::THROTTLED_OP] {
        run_within(LONG, async {
            let world = World::new();
            create_parent(&world);
            let client = world.client(FIRST).await;
            let mut presence = begin(&client, "one").await;
            world.server.clear_requests();
            refuse(&world, session(&client), code, 100);
            assert!(world.server.admin_delete(PATH));
            sleep_ms(120_000).await;
            assert!(!is_present(&presence), "{}", world.trace());
            if code == ErrorCode::NO_AUTH {
                assert_eq!(presence.state(), PresenceState::Absent(Absence::Refused(refused())));
            }
            let sent = sent_since(&world, &client);
            let creates = sent.iter().filter(|op| **op == OpCode::CREATE2).count();
            assert!((20..=30).contains(&creates), "{code:?}: {creates}");
            // Only the faults of the next session are gone.
            world.server.expire(session(&client));
            sleep_ms(3_000).await;
            until_present(&world, &client, &mut presence).await;
            check_honest(&world, &presence);
            drop(presence);
            check_clean(&world, &[&client]).await;
        });
    }
}
