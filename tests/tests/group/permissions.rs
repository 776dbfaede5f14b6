//! Permissions that change while a group is watched. No server tells anybody of it, and those who may
//! not read a znode hear of none of its changes.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{Acl, ErrorCode, FailedAction, Group, RecipeError};
use zk_tests::page;
use zk_tests::scene::{FIRST, SECOND, sent_since};
use zk_tests::world::{World, run};
use zk_testserver::{ServerConfig, ServerVersion};

use crate::{GROUP, changes, create_directory, join, path, refuse_persistent_watches, said, watch};

/// Longer than the interval of the checks.
const CHECKED: Duration = Duration::from_secs(38);

#[test]
fn a_watch_whose_permission_is_taken_away_is_refused_or_tells_what_it_has_missed() {
    for (is_old, is_back) in [(false, false), (false, true), (true, false), (true, true)] {
        run(async {
            let world = World::with(ServerConfig::default().version(ServerVersion::V3_9));
            create_directory(&world);
            let owner = world.client_with(SECOND, |builder| builder.auth("digest", "a:b")).await;
            let client = world.client(FIRST).await;
            if is_old {
                refuse_persistent_watches(&world.server, 10);
            }
            let (a, mut watch) = (join(&owner, "a", "1").await, watch(&client, true));
            assert_eq!(changes(&mut watch).await, ["joined a 1"]);
            owner.set_acl(GROUP, Acl::creator_all(), None).await.expect("everyone may");
            let hidden =
                Group::builder(&owner, GROUP).expect("it is legal").acl(Acl::creator_all());
            let hidden = hidden.build().expect("it is legal").join("b", "1").await;
            let _b = hidden.expect("the id is free");
            assert!(changes(&mut watch).await.is_empty(), "somebody has told it");
            if !is_back {
                let refused = RecipeError::Refused {
                    code: ErrorCode::NO_AUTH,
                    action: FailedAction::Check,
                    path: GROUP.to_owned(),
                };
                assert_eq!(watch.next_within(CHECKED).await, Err(refused), "{}", world.trace());
                // While this lasts, changes of a member are missed as well.
                owner.set_acl(&path("a"), Acl::creator_all(), None).await.expect("everyone may");
                a.set_data("2").await.expect("it may be written");
            }
            for path in [GROUP, &path("a"), &path("b")] {
                owner.set_acl(path, Acl::open(), None).await.expect("it may");
            }
            let mut seen = Vec::new();
            while seen.len() < 2 - usize::from(is_back) {
                let change = watch.next_within(CHECKED).await.expect("it may read");
                seen.push(said(&change));
            }
            seen.sort();
            let expected = ["changed a 2", "joined b 1"];
            assert_eq!(seen, expected[usize::from(is_back)..], "{}", world.trace());
            // And it goes on.
            a.leave().await.expect("it may be deleted");
            assert_eq!(changes(&mut watch).await.len(), 1);
        });
    }
}

/// The client hears of no end of a member that it may not read, and the directory ends with it. Another
/// directory may have had as many changes as the first one.
#[test]
fn a_member_that_has_left_with_its_directory_is_not_shown_for_ever() {
    for is_replaced in [false, true] {
        run(async {
            let world = World::with(ServerConfig::default().version(ServerVersion::V3_9));
            let owner = world.client_with(SECOND, |builder| builder.auth("digest", "a:b")).await;
            let client = world.client(FIRST).await;
            let hidden =
                || Group::builder(&owner, GROUP).expect("it is legal").acl(Acl::creator_all());
            if is_replaced {
                create_directory(&world);
            }
            let mut watch = watch(&client, true);
            if !is_replaced {
                assert!(changes(&mut watch).await.is_empty(), "there is nothing yet");
                create_directory(&world);
            }
            let a = join(&owner, "a", "1").await;
            assert_eq!(changes(&mut watch).await, ["joined a 1"]);
            owner.set_acl(&path("a"), Acl::creator_all(), None).await.expect("everyone may");
            a.leave().await.expect("it may be deleted");
            assert!(world.server.admin_delete(GROUP));
            let mut b = None;
            let mut expected = vec!["left a 1"];
            if is_replaced {
                world.server.admin_create(GROUP, b"", None);
                let joining = hidden().build().expect("it is legal").join("b", "2");
                b = Some(joining.await.expect("the id is free"));
                owner.set_acl(&path("b"), Acl::open(), None).await.expect("it may");
                expected.push("joined b 2");
            }
            let mut seen = Vec::new();
            while seen.len() < expected.len() {
                let change = watch.next_within(CHECKED).await;
                seen.push(said(&change.unwrap_or_else(|_| panic!("{}", world.trace()))));
            }
            seen.sort();
            expected.sort();
            assert_eq!(seen, expected, "{}", world.trace());
            drop(b);
        });
    }
}

/// A quiet group costs a test of existence with each check, and nothing while there is no connection.
#[test]
fn a_check_that_finds_nothing_new_reads_nothing() {
    for is_old in [false, true] {
        run(async {
            let world = World::new();
            create_directory(&world);
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            if is_old {
                refuse_persistent_watches(&world.server, 10);
            }
            let _a = join(&other, "a", "1").await;
            let mut watch = watch(&client, true);
            assert_eq!(changes(&mut watch).await, ["joined a 1"]);
            world.server.clear_requests();
            assert!(watch.next_within(CHECKED).await.is_err());
            let sent = sent_since(&world, &client);
            assert_eq!(sent, [OpCode::EXISTS]);
            let row = "| an idle member or watch | {} test every 30 s |";
            page::check_text("recipes/group.md", row, &[sent.len()]);
            assert!(watch.next_within(CHECKED).await.is_err());
            assert_eq!(sent_since(&world, &client), [OpCode::EXISTS]);
        });
    }
}
