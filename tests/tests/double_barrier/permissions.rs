//! Permissions that change while participants wait. No server tells anybody of it, and those who may
//! not read a znode hear of none of its changes.

use zk_recipes::{Acl, Client, ErrorCode, RecipeError};
use zk_tests::scene::{FIRST, SECOND};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{ServerConfig, ServerVersion};

use crate::{PATH, enter, entered, leave, until_present};

/// A world whose servers tell those who may not read nothing, a client that owns what permissions
/// are taken from, and one without an identity.
async fn world() -> (World, Client, Client) {
    let world = World::with(ServerConfig::default().version(ServerVersion::V3_9));
    let owner = world.client_with(SECOND, |builder| builder.auth("digest", "a:b")).await;
    let client = world.client(FIRST).await;
    (world, owner, client)
}

/// The first participant counts for all, and the others watch one ahead, so both are checked.
#[test]
fn participants_whose_permission_is_taken_away_are_refused() {
    run(async {
        let (world, owner, client) = world().await;
        let waiting = [enter(&client, 4), enter(&client, 4), enter(&client, 4)];
        until_present(&world, 3).await;
        owner.set_acl(PATH, Acl::creator_all(), None).await.expect("everyone may");
        sleep_ms(20_000).await;
        assert!(waiting.iter().all(|waiting| !waiting.is_finished()), "somebody has told them");
        sleep_ms(20_000).await;
        for waiting in waiting {
            assert!(waiting.is_finished(), "one waits for ever\n{}", world.trace());
            let refused = waiting.await.expect("no panic").expect_err("it may not read");
            let RecipeError::Refused { code, path, .. } = refused else { panic!("{refused}") };
            assert_eq!((code, &*path), (ErrorCode::NO_AUTH, PATH));
        }
    });
}

#[test]
fn a_participant_that_came_while_the_others_might_not_read_is_counted_at_last() {
    run(async {
        let (world, owner, client) = world().await;
        let waiting = [enter(&client, 3), enter(&client, 3)];
        until_present(&world, 2).await;
        owner.set_acl(PATH, Acl::creator_all(), None).await.expect("everyone may");
        let late = enter(&owner, 3);
        until_present(&world, 3).await;
        owner.set_acl(PATH, Acl::open(), None).await.expect("it may");
        sleep_ms(40_000).await;
        for entering in waiting.into_iter().chain([late]) {
            assert!(entering.is_finished(), "one waits for ever\n{}", world.trace());
            let inside = entered(&world, entering).await;
            assert_eq!(inside.participants(), 3);
        }
    });
}

#[test]
fn who_leaves_after_one_that_may_not_be_read_is_told_with_the_next_check() {
    run(async {
        let (world, owner, client) = world().await;
        let (ours, other) = (enter(&client, 2), enter(&owner, 2));
        let (ours, other) = (entered(&world, ours).await, entered(&world, other).await);
        let leaving = leave(ours);
        sleep_ms(1_000).await;
        let [left] = &world.server.children(PATH).expect("it exists")[..] else { panic!("one") };
        let path = format!("{PATH}/{left}");
        owner.set_acl(&path, Acl::creator_all(), None).await.expect("everyone may");
        crate::left(&world, leave(other)).await;
        sleep_ms(10_000).await;
        assert!(!leaving.is_finished(), "somebody has told it\n{}", world.trace());
        sleep_ms(30_000).await;
        assert!(leaving.is_finished(), "it waits for ever\n{}", world.trace());
        crate::left(&world, leaving).await;
    });
}
