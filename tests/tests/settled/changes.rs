//! Access control lists and configurations, which no transaction can contain, and which others change
//! at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode};
use zk_recipes::{Acl, Client, CreateMode, Multi, SettledError, Version};
use zk_session::{ConfigVersion, Permissions, Reconfig};
use zk_tests::scene::{FIRST, SECOND, all_sent_since, at_op, session};
use zk_tests::world::{Enumeration, World, run, sleep_ms};
use zk_testserver::{Action, At, Fault, ServerConfig, ServerVersion};

use crate::{PATH, create_directories, first_session, flush, rows, settled, world};

fn list(user: &str) -> Vec<Acl> {
    vec![
        Acl::new(Permissions::ALL, "world", "anyone"),
        Acl::new(Permissions::ALL, "digest", format!("{user}:hash")),
    ]
}

/// Starts a server that has the znode, and two clients.
async fn with_znode() -> (World, Client, Client) {
    let world = world();
    let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
    create_directories(&world);
    world.server.admin_create(PATH, b"", None);
    (world, one, two)
}

/// Counts the changes of the list that the server has made.
fn changes(world: &World) -> usize {
    let commits = world.server.commits();
    let is_change = |commit: &&zk_testserver::CommitRecord| {
        commit.op == OpCode::SET_ACL && commit.error == ErrorCode::OK
    };
    commits.iter().filter(is_change).count()
}

#[test]
fn of_two_equal_lists_at_one_version_one_is_set_and_nobody_claims_more_than_it_knows() {
    let mut enumeration = Enumeration::new("equal lists", first_session());
    enumeration.run(&|faults| {
        run(async {
            let (world, one, two) = with_znode().await;
            let (first, second) = (settled(&one), settled(&two));
            let stat = first.exists(PATH).await.expect("it can be read");
            world.inject(faults);
            let (mine, theirs) = tokio::join!(
                first.set_acl(PATH, list("same"), stat),
                second.set_acl(PATH, list("same"), stat)
            );
            let mut certain = 0;
            for told in [&mine, &theirs] {
                match told {
                    Ok(set) => certain += usize::from(set.is_certain),
                    Err(error) => {
                        assert_eq!(error.server_code(), Some(ErrorCode::BAD_VERSION), "{error}");
                    }
                }
            }
            let is_refused = mine.is_err() || theirs.is_err();
            let trace = world.trace();
            assert!(
                certain <= 1 && (mine.is_ok() || theirs.is_ok()),
                "{mine:?} {theirs:?}\n{trace}"
            );
            assert!(certain == 1 || !is_refused || mine.is_ok(), "{mine:?} {theirs:?}\n{trace}");
            flush(&world).await;
            assert_eq!(changes(&world), 1, "\n{}", world.trace());
            world.ran()
        })
    });
    assert!(enumeration.is_complete(10, 40), "{enumeration:?}");
}

/// The other client sets a list of its own as soon as it sees that of the first one. It must stay.
#[test]
fn a_list_that_was_set_after_a_lost_one_is_never_overwritten() {
    let mut enumeration = Enumeration::new("later lists", first_session());
    enumeration.run(&|faults| {
        run(async {
            let (world, one, two) = with_znode().await;
            let first = settled(&one);
            world.inject(faults);
            let setting = first.set_acl(PATH, list("mine"), None);
            let replacing = async {
                for _ in 0..100 {
                    let (acl, _) = two.get_acl(PATH).await.expect("it can be read");
                    if acl == list("mine") {
                        two.set_acl(PATH, list("theirs"), None).await.expect("it can be set");
                        return true;
                    }
                    sleep_ms(25).await;
                }
                false
            };
            let (mine, is_replaced) = tokio::join!(setting, replacing);
            flush(&world).await;
            let (acl, stat) = two.get_acl(PATH).await.expect("it can be read");
            let trace = world.trace();
            match mine {
                Ok(_) => {}
                // The list of the other client hides what was there in between.
                Err(SettledError::Overtaken { .. }) => assert!(is_replaced, "{trace}"),
                Err(error) => panic!("{error}\n{trace}"),
            }
            assert!(is_replaced, "it is set in any case\n{trace}");
            assert_eq!(acl, list("theirs"), "\n{trace}");
            assert_eq!(stat.aversion, Version(2), "each was set once\n{trace}");
            world.ran()
        })
    });
    assert!(enumeration.is_complete(10, 40), "{enumeration:?}");
}

/// The znode is deleted, and another one is created in its place.
#[test]
fn the_list_of_another_znode_is_not_set_without_saying_so() {
    let mut enumeration = Enumeration::new("lists of other znodes", first_session());
    let (mut told, mut replaced) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    enumeration.run(&|faults| {
        run(async {
            let (world, one, two) = with_znode().await;
            let first = settled(&one);
            let before = first.exists(PATH).await.expect("it can be read").expect("it exists");
            world.inject(faults);
            let setting = first.set_acl(PATH, list("mine"), Some(before));
            let replacing = async {
                sleep_ms(3).await;
                let multi =
                    Multi::new().delete(PATH, None).create(PATH, "", CreateMode::Persistent);
                two.commit(multi).await.expect("it can be replaced");
            };
            let (mine, ()) = tokio::join!(setting, replacing);
            flush(&world).await;
            let (acl, stat) = two.get_acl(PATH).await.expect("it can be read");
            let is_set = acl == list("mine");
            assert_ne!(stat.czxid, before.czxid);
            let trace = world.trace();
            match mine {
                Ok(set) => {
                    told.set(told.get() + 1);
                    assert_eq!(set.stat.czxid, before.czxid, "\n{trace}");
                    assert!(!is_set, "\n{trace}");
                }
                Err(SettledError::Replaced { is_applied, .. }) => {
                    replaced.set(replaced.get() + 1);
                    assert!(is_set || !is_applied, "\n{trace}");
                }
                Err(error) => panic!("{error}\n{trace}"),
            }
            assert!(changes(&world) <= 1, "\n{trace}");
            world.ran()
        })
    });
    let (told, replaced) = (*told.get_mut(), *replaced.get_mut());
    assert!(told > 0 && replaced > 0, "{told} {replaced}");
    assert!(enumeration.is_complete(5, 10), "{enumeration:?}");
}

#[test]
fn the_list_of_another_znode_that_came_before_the_call_is_reported() {
    run(async {
        let (_world, one, two) = with_znode().await;
        let first = settled(&one);
        let before = first.exists(PATH).await.expect("it can be read").expect("it exists");
        let multi = Multi::new().delete(PATH, None).create(PATH, "", CreateMode::Persistent);
        two.commit(multi).await.expect("it can be replaced");
        let error =
            first.set_acl(PATH, list("mine"), Some(before)).await.expect_err("another znode");
        assert!(matches!(error, SettledError::Replaced { is_applied: true, .. }), "{error}");
    });
}

#[test]
fn a_list_that_others_change_is_set_at_the_version_that_it_has_then() {
    run(async {
        let (world, one, two) = with_znode().await;
        let (first, second) = (settled(&one), settled(&two));
        let (mine, theirs) = tokio::join!(
            first.set_acl(PATH, list("mine"), None),
            second.set_acl(PATH, list("theirs"), None)
        );
        assert!(mine.expect("it can be set").is_certain);
        assert!(theirs.expect("it can be set").is_certain);
        assert_eq!(changes(&world), 2, "\n{}", world.trace());
        let missing = first.set_acl("/missing", list("mine"), None).await;
        let error = missing.expect_err("it is missing");
        assert_eq!(error.outcome(), zk_recipes::Outcome::NotApplied, "{error}");
    });
}

/// Nothing ends the session of a request that was lost, so a server that was paused may apply it after
/// the client has looked in its next session.
#[test]
fn a_list_is_set_once_although_a_server_swaps_the_session_of_its_request() {
    let pauses = (1..30).map(|halves| Action::Pause(Duration::from_millis(halves * 500)));
    let actions: Vec<_> = [Action::CutBefore, Action::CutAfter].into_iter().chain(pauses).collect();
    let mut late = 0;
    for (action, is_slow) in actions.iter().flat_map(|action| [(action, false), (action, true)]) {
        for is_expected in [false, true] {
            late += usize::from(run(async {
                let keeper = ServerConfig::default().version(ServerVersion::Keeper).members(3);
                let world = World::with(keeper);
                let member = Arc::new(AtomicUsize::new(1));
                let client = world.moving_client(FIRST, &member).await;
                create_directories(&world);
                world.server.admin_create(PATH, b"", None);
                let settled = settled(&client);
                let stat = settled.exists(PATH).await.expect("it can be read");
                let before = session(&client);
                world.server.inject(at_op(before, OpCode::SET_ACL, action.clone()));
                if is_slow {
                    // The request of the old session may be applied before the one that follows it.
                    let next = At::op(OpCode::SET_ACL).after(1);
                    world.server.inject(Fault::new(next, Action::Pause(Duration::from_secs(3))));
                }
                member.store(2, Ordering::SeqCst);
                let expected = stat.filter(|_| is_expected);
                let set = settled.set_acl(PATH, list("mine"), expected).await;
                let set = set.unwrap_or_else(|error| {
                    panic!("{action:?} {error}\n{}", world.trace());
                });
                let has_moved = session(&client) != before;
                flush(&world).await;
                sleep_ms(60_000).await;
                assert_eq!(changes(&world), 1, "{action:?} {set:?}\n{}", world.trace());
                let by =
                    world.server.commits().iter().rev().find_map(|commit| {
                        (commit.op == OpCode::SET_ACL).then_some(commit.session)
                    });
                has_moved && *action != Action::CutAfter && by == Some(before)
            }));
        }
    }
    assert!(late > 0, "no request was applied late");
}

/// With the metadata, a change is one request; without it, two.
#[test]
fn a_list_is_read_first_only_if_its_version_is_not_given() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        create_directories(&world);
        world.server.admin_create(PATH, b"", None);
        let settled = settled(&client);
        world.server.clear_requests();
        let set = settled.set_acl(PATH, list("a"), None).await.expect("it can be set");
        let sent = all_sent_since(&world, &client).await;
        assert_eq!(sent, [OpCode::GET_ACL, OpCode::SET_ACL]);
        settled.set_acl(PATH, list("b"), Some(set.stat)).await.expect("it can be set");
        assert_eq!(all_sent_since(&world, &client).await, [OpCode::SET_ACL]);
        let late = settled.set_acl(PATH, list("c"), Some(set.stat)).await;
        assert_eq!(late.expect_err("it is old").server_code(), Some(ErrorCode::BAD_VERSION));
    });
}

#[test]
fn a_lost_change_of_the_configuration_is_decided_by_what_it_has_become() {
    for action in [Action::CutBefore, Action::CutAfter] {
        for others in [false, true] {
            run(async {
                let world = World::with(rows::config());
                let client = rows::client(&world).await;
                let settled = settled(&client);
                let version = client.get_config().await.expect("it can be read").version;
                let change = Reconfig::incremental().leave(3).expect_version(version.expect("one"));
                world.server.inject(at_op(session(&client), OpCode::RECONFIG, action.clone()));
                let changed = if others {
                    let other = world
                        .client_with(SECOND, |builder| builder.auth("digest", "super:pw"))
                        .await;
                    let change = change.clone();
                    let (changed, ()) = tokio::join!(settled.reconfig(change), async {
                        // Before the first client reads what has become of its change.
                        let back = Reconfig::incremental().leave(2);
                        drop(other.reconfig(back).await);
                    });
                    changed
                } else {
                    settled.reconfig(change.clone()).await
                };
                let config = client.get_config().await.expect("it can be read");
                match changed {
                    Ok(set) => {
                        assert!(change.is_in_force(&set.config));
                        assert!(change.is_in_force(&config), "\n{}", world.trace());
                    }
                    Err(error) => assert!(others, "{error}\n{}", world.trace()),
                }
            });
        }
    }
}

#[test]
fn a_change_of_a_configuration_that_others_have_changed_is_refused() {
    run(async {
        let world = World::with(rows::config());
        let client = rows::client(&world).await;
        let change = Reconfig::incremental().leave(3).expect_version(ConfigVersion(0x1234));
        let error = settled(&client).reconfig(change).await.expect_err("it has another version");
        assert_eq!(error.server_code(), Some(ErrorCode::BAD_VERSION));
        let alone = World::with(ServerConfig::default());
        let client = alone.client(FIRST).await;
        let error = settled(&client).reconfig(Reconfig::incremental().leave(3)).await;
        let error = error.expect_err("it is off");
        assert_eq!(error.outcome(), zk_recipes::Outcome::NotApplied, "{error}");
    });
}
