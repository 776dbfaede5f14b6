//! Servers that refuse requests, and znodes that somebody deletes.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{Acl, ErrorCode, FailedAction, Permissions, RecipeError, SharedValue, ValueError};
use zk_tests::scene::{CODES, FIRST, at_op, is_survived, session};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

use crate::{PATH, check_clean, counter, create, stored, value};

/// A caller who knows that nothing was sent need not look what the value is now.
#[test]
fn a_write_that_had_no_connection_is_not_in_doubt() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        create(&world, "0");
        let (value, limit) = (value(&client), Duration::from_secs(2));
        world.server.refuse_for(Duration::from_secs(15));
        world.server.disconnect_all();
        sleep_ms(100).await;
        let error = value.set("1").timeout(limit).await.expect_err("there is no connection");
        let is_late = matches!(error, ValueError::Recipe(RecipeError::TimedOut(_)));
        assert!(is_late, "{error}");
        sleep_ms(20_000).await;
        assert_eq!(stored(&world).as_deref(), Some("0"));
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_refusal_names_its_action_and_its_path() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let all = Permissions::READ
            | Permissions::WRITE
            | Permissions::CREATE
            | Permissions::DELETE
            | Permissions::ADMIN;
        create(&world, "0");
        let value = value(&client);
        let old = value.get().await.expect("it can be read");
        for (missing, expected) in [
            (Permissions::READ, FailedAction::Read),
            (Permissions::WRITE, FailedAction::Write),
            (Permissions::CREATE, FailedAction::Create),
        ] {
            let acl = Acl::new(Permissions(all.0 & !missing.0), "world", "anyone");
            client.set_acl(PATH, vec![acl], None).await.expect("the list may be changed");
            let refused = if missing == Permissions::READ {
                value.get().await.map(drop).expect_err("it may not be read")
            } else {
                value.compare_and_set(&old, "1").await.expect_err("it may not be written")
            };
            let ValueError::Recipe(RecipeError::Refused { code, action, path }) = refused else {
                panic!("{refused}")
            };
            assert_eq!((code, action), (ErrorCode::NO_AUTH, expected));
            assert!(path.starts_with(PATH), "{path}");
        }
        assert_eq!(stored(&world).as_deref(), Some("0"));
        let open = Acl::new(all, "world", "anyone");
        client.set_acl(PATH, vec![open], None).await.expect("the list may be changed");
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn an_empty_list_and_an_invalid_path_are_refused_at_once() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        for path in ["", "x", "/", "/x/", "/x//y", "/x/.."] {
            SharedValue::new(&client, path).expect_err(path);
        }
        let builder = SharedValue::builder(&client, PATH).expect("the path is valid");
        builder.acl(vec![]).build().expect_err("servers refuse it");
    });
}

/// A code that leaves the outcome open is survived: the marker tells.
#[test]
fn every_code_at_the_write_is_reported_or_survived() {
    for code in CODES {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            create(&world, "0");
            world.server.inject(at_op(session(&client), OpCode::MULTI, Action::Error(code)));
            let added = counter(&client).add(1).await;
            if is_survived(code) {
                assert_eq!(added, Ok(1), "{code}\n{}", world.trace());
            } else {
                let Err(ValueError::Recipe(RecipeError::Refused { code: reported, .. })) = added
                else {
                    panic!("{code}: {added:?}\n{}", world.trace())
                };
                assert_eq!(reported, code);
                assert_eq!(stored(&world).as_deref(), Some("0"));
            }
            check_clean(&world, &[&client]).await;
        });
    }
}

#[test]
fn a_sum_whose_server_fails_after_the_commit_counts_once() {
    let codes =
        [ErrorCode::MARSHALLING_ERROR, ErrorCode::OPERATION_TIMEOUT, ErrorCode::SYSTEM_ERROR];
    for code in codes {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            create(&world, "0");
            let fails = at_op(session(&client), OpCode::MULTI, Action::ErrorAfter(code));
            world.server.inject(fails);
            let added = counter(&client).add(1).await;
            assert_eq!(added, Ok(1), "{code}\n{}", world.trace());
            assert_eq!(stored(&world).as_deref(), Some("1"), "{code}");
            check_clean(&world, &[&client]).await;
        });
    }
}

#[test]
fn a_deleted_znode_is_a_conflict_for_a_comparison_and_created_again_by_everything_else() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let value = value(&client);
        let old = value.get().await.expect("it can be created");
        assert!(world.server.admin_delete(PATH));
        let refused = value.compare_and_set(&old, "x").await;
        assert_eq!(refused, Err(ValueError::Conflict));
        value.set("y").await.expect("it can be created");
        assert_eq!(stored(&world).as_deref(), Some("y"));
        // The janitor deletes the marker meanwhile.
        sleep_ms(100).await;
        assert!(world.server.admin_delete(PATH));
        let updated = value.update(|old| old.clone()).await.expect("it can be created");
        assert_eq!(updated.bytes().as_ref(), b"first");
        check_clean(&world, &[&client]).await;
    });
}
