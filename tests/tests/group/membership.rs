//! Memberships that last longer than their znodes.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{
    Absence, Acl, Ending, ErrorCode, FailedAction, Group, GroupError, Membership, MembershipState,
    Permissions, RecipeError, Released,
};
use zk_session::recipe::Session;
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND, Trouble, at_request, partition, poll_times, session, spawn};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

use crate::{GROUP, check_clean, create_directory, group, is_member, join, path, stored};

/// Waits until the process is a member in a session.
async fn until_member(world: &World, membership: &Membership) {
    for _ in 0..30_000 {
        if is_member(membership) {
            return;
        }
        sleep_ms(1).await;
    }
    panic!("it never rejoined: {membership:?}\n{}", world.trace());
}

#[test]
fn a_member_is_a_znode_with_its_data_until_it_leaves() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let membership = join(&client, "a", "one").await;
        assert_eq!(Session::of(&client).janitor_backlog(), 0, "nothing is to be removed");
        assert_eq!(stored(&world), [("a".to_owned(), "one".to_owned())]);
        assert_eq!(membership.state(), MembershipState::Member { session: session(&client) });
        membership.set_data("two").await.expect("it may be written");
        assert_eq!(stored(&world), [("a".to_owned(), "two".to_owned())]);
        let members = group(&client).members().await.expect("they may be read");
        assert_eq!(members.len(), 1);
        assert_eq!((members[0].id.as_str(), &members[0].data[..]), ("a", &b"two"[..]));
        assert_eq!(members[0].session, session(&client));
        assert_eq!(world.server.stat(&path("a")).map(|stat| stat.czxid), Some(members[0].czxid));
        assert_eq!(membership.leave().await, Ok(Released::Released));
        assert!(stored(&world).is_empty());
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_dropped_membership_leaves() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        drop(join(&client, "a", "one").await);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_member_whose_session_expires_rejoins_in_the_next_one() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let mut membership = join(&client, "a", "one").await;
        let mut expired = session(&client);
        for round in 0..5 {
            membership.set_data(format!("{round}")).await.expect("it may be written");
            world.server.expire(expired);
            assert!(stored(&world).is_empty());
            let state = membership.changed().await;
            let is_next = matches!(state, MembershipState::Rejoining(Absence::SessionEnded));
            let is_back =
                matches!(state, MembershipState::Member { session } if session != expired);
            assert!(is_next || is_back, "{state:?}");
            until_member(&world, &membership).await;
            assert_ne!(session(&client), expired);
            assert_eq!(stored(&world), [("a".to_owned(), format!("{round}"))]);
            expired = session(&client);
            if is_next {
                membership.changed().await;
            }
        }
        assert_eq!(membership.leave().await, Ok(Released::Released));
        check_clean(&world, &[&client]).await;
    });
}

/// The servers still have the znode of the old session when the client asks in its new one: the
/// session was swapped, so no server has ended it.
#[test]
fn a_znode_of_the_own_earlier_session_is_waited_out() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let membership = join(&client, "a", "one").await;
        let old = session(&client);
        // The administrator keeps a znode of a session that is over.
        world.server.expire(old);
        world.server.admin_create(&path("a"), b"stale", Some(old));
        sleep_ms(5_000).await;
        let state = membership.state();
        assert_eq!(state, MembershipState::Rejoining(Absence::SessionEnded), "{}", world.trace());
        assert!(world.server.admin_delete(&path("a")));
        until_member(&world, &membership).await;
        assert_eq!(stored(&world), [("a".to_owned(), "one".to_owned())]);
        drop(membership);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_member_whose_znode_is_deleted_rejoins_after_pauses_that_grow() {
    run(async {
        let world = World::reaped_each_minute();
        let client = world.client(FIRST).await;
        let mut membership = join(&client, "a", "one").await;
        world.server.clear_requests();
        let mut pauses = Vec::new();
        for _ in 0..8 {
            assert!(world.server.admin_delete(&path("a")));
            let began = client.now();
            let state = membership.changed().await;
            assert_eq!(state, MembershipState::Rejoining(Absence::ZnodeDeleted));
            assert!(matches!(membership.changed().await, MembershipState::Member { .. }));
            pauses.push(client.now().saturating_since(began).as_millis());
        }
        for (pause, least) in pauses.iter().zip([200, 400, 800, 1_600, 3_200, 5_000, 5_000]) {
            assert!((least..=least * 5 / 4 + 10).contains(pause), "{pauses:?}");
        }
        let creates = world.server.requests().iter().filter(|r| r.op == OpCode::CREATE2).count();
        assert_eq!(creates, 8, "one for each deletion\n{}", world.trace());
        // After a minute of peace, the next pause is short again.
        sleep_ms(61_000).await;
        let began = client.now();
        assert!(world.server.admin_delete(&path("a")));
        membership.changed().await;
        membership.changed().await;
        assert!(client.now().saturating_since(began) < Duration::from_millis(300));
        drop(membership);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_deleted_directory_is_created_again() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let membership = join(&client, "a", "one").await;
        for deleted in [path("a"), GROUP.to_owned(), "/services/x".to_owned()] {
            assert!(world.server.admin_delete(&deleted));
        }
        sleep_ms(10).await;
        until_member(&world, &membership).await;
        assert_eq!(stored(&world), [("a".to_owned(), "one".to_owned())]);
        membership.leave().await.expect("it may be deleted");
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn the_second_member_with_an_id_is_refused_and_the_first_is_undisturbed() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let first = join(&client, "a", "one").await;
        // The same client may not join twice either.
        for again in [&other, &client] {
            let error = group(again).join("a", "two").await.expect_err("the id is taken");
            let taken = GroupError::IdTaken { path: path("a"), session: session(&client) };
            assert_eq!(error, taken);
        }
        sleep_ms(1_000).await;
        assert!(is_member(&first));
        assert_eq!(stored(&world), [("a".to_owned(), "one".to_owned())]);
        drop(first);
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn a_member_that_waits_for_an_id_joins_when_the_other_leaves_or_expires() {
    for expires in [false, true] {
        run(async {
            let world = World::new();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let first = join(&client, "a", "one").await;
            let waiting = {
                let group = Group::builder(&other, GROUP)
                    .and_then(|group| group.wait_if_taken().build())
                    .expect("the options are legal");
                spawn(async move { group.join("a", "two").await })
            };
            sleep_ms(10_000).await;
            assert!(!waiting.is_finished());
            if expires {
                world.server.expire(session(&client));
                let second = waiting.await.expect("no panic").expect("the id is free");
                assert!(is_member(&second));
                sleep_ms(2_000).await;
                // The first does not take the id away, and ends, because it does not wait.
                let ending = Ending::IdTaken(session(&other));
                assert_eq!(first.state(), MembershipState::Ended(ending), "{}", world.trace());
                let error = first.set_data("x").await.expect_err("it has ended");
                assert_eq!(error, GroupError::Ended(ending));
                assert_eq!(first.leave().await, Err(GroupError::Ended(ending)));
                assert_eq!(stored(&world), [("a".to_owned(), "two".to_owned())]);
                drop(second);
            } else {
                first.leave().await.expect("it may be deleted");
                let second = waiting.await.expect("no panic").expect("the id is free");
                assert_eq!(stored(&world), [("a".to_owned(), "two".to_owned())]);
                drop(second);
            }
            check_clean(&world, &[&client, &other]).await;
        });
    }
}

#[test]
fn a_join_that_waits_gives_up_after_its_timeout_and_leaves_nothing() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let first = join(&client, "a", "one").await;
        let waiting = Group::builder(&other, GROUP)
            .and_then(|group| group.wait_if_taken().timeout(Duration::from_secs(3)).build())
            .expect("the options are legal");
        let error = waiting.join("a", "two").await.expect_err("the id is taken");
        assert!(matches!(error, GroupError::Recipe(RecipeError::TimedOut(_))), "{error}");
        drop(first);
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn a_znode_that_is_not_ephemeral_is_reported() {
    run(async {
        let world = World::new();
        create_directory(&world);
        world.server.admin_create(&path("a"), b"", None);
        let client = world.client(FIRST).await;
        let error = group(&client).join("a", "one").await.expect_err("the name is taken");
        assert_eq!(error, GroupError::NotEphemeral { path: path("a") });
        assert_eq!(group(&client).members().await, Ok(Vec::new()));
        assert!(world.server.admin_delete(&path("a")));
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_name_that_is_no_name_and_an_empty_list_of_permissions_are_refused_without_a_request() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let before = world.traffic().requests;
        for id in ["", "a/b", ".", "..", "a\u{0}b"] {
            let error = group(&client).join(id, "").await.expect_err("it is no name");
            assert!(matches!(error, GroupError::Recipe(RecipeError::Config(_))), "{id:?} {error}");
        }
        for directory in ["", "a", "/", "/a/"] {
            assert!(Group::new(&client, directory).is_err(), "{directory:?}");
        }
        let builder = Group::builder(&client, GROUP).expect("it is a path");
        assert!(builder.acl(Vec::new()).build().is_err());
        assert_eq!(world.traffic().requests, before);
    });
}

/// The first join ends with the refusal; a rejoin goes on, because permissions can be corrected.
#[test]
fn a_refused_join_fails_and_a_refused_rejoin_is_tried_again_at_a_bounded_rate() {
    run(async {
        let world = World::new();
        create_directory(&world);
        let client = world.client(FIRST).await;
        let refuse = |world: &World| {
            world.server.inject(zk_tests::scene::at_op(
                session(&client),
                OpCode::CREATE2,
                Action::Error(ErrorCode::NO_AUTH),
            ));
        };
        refuse(&world);
        let error = group(&client).join("a", "one").await.expect_err("it is refused");
        let refused = RecipeError::Refused {
            code: ErrorCode::NO_AUTH,
            action: FailedAction::Create,
            path: path("a"),
        };
        assert_eq!(error, GroupError::Recipe(refused.clone()));
        let membership = join(&client, "a", "one").await;
        world.server.clear_requests();
        for _ in 0..6 {
            refuse(&world);
        }
        assert!(world.server.admin_delete(&path("a")));
        sleep_ms(3_000).await;
        assert_eq!(membership.state(), MembershipState::Rejoining(Absence::Refused(refused)));
        sleep_ms(60_000).await;
        assert!(is_member(&membership), "{}", world.trace());
        let creates = world.server.requests().iter().filter(|r| r.op == OpCode::CREATE2).count();
        assert_eq!(creates, 7, "{}", world.trace());
        drop(membership);
        check_clean(&world, &[&client]).await;
    });
}

/// Many members may wait for one directory, so each of them pauses.
#[test]
fn members_are_back_after_one_short_pause_when_another_client_creates_their_directory() {
    run(async {
        let world = World::new();
        let admin = world.client_with(SECOND, |builder| builder.auth("digest", "a:secret")).await;
        let client = world.client(FIRST).await;
        create_directory(&world);
        let membership = join(&client, "a", "one").await;
        let closed = [Acl::read(), Acl::creator_all()].concat();
        admin.set_acl("/services/x", closed, None).await.expect("everyone may change it");
        for deleted in [path("a"), GROUP.to_owned()] {
            assert!(world.server.admin_delete(&deleted));
        }
        sleep_ms(31_000).await;
        let refused = Absence::Refused(RecipeError::Refused {
            code: ErrorCode::NO_AUTH,
            action: FailedAction::Create,
            path: GROUP.to_owned(),
        });
        assert_eq!(membership.state(), MembershipState::Rejoining(refused), "{}", world.trace());
        world.server.admin_create(GROUP, b"", None);
        let began = client.now();
        until_member(&world, &membership).await;
        let took = client.now().saturating_since(began).as_millis();
        assert!((200..=300).contains(&took), "{took}\n{}", world.trace());
        drop(membership);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_member_without_permission_for_its_own_znode_joins_and_is_seen_by_nobody() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let blind = Group::builder(&client, GROUP)
            .and_then(|group| {
                let acl = vec![Acl::new(Permissions::CREATE, "world", "anyone")];
                group.acl(acl).build()
            })
            .expect("the options are legal");
        let membership = blind.join("a", "one").await.expect("the directory allows it");
        let refused = |action, path: &str| RecipeError::Refused {
            code: ErrorCode::NO_AUTH,
            action,
            path: path.to_owned(),
        };
        let error = membership.set_data("two").await.expect_err("it is refused");
        assert_eq!(error, GroupError::Recipe(refused(FailedAction::Write, &path("a"))));
        assert!(is_member(&membership));
        let mut watch = group(&client).watch();
        let began = client.now();
        for _ in 0..5 {
            let error = watch.next().await.expect_err("it may not be read");
            assert_eq!(error, refused(FailedAction::Read, &path("a")));
        }
        assert!(client.now().saturating_since(began) >= Duration::from_millis(3_000));
        membership.leave().await.expect("the directory allows it");
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn data_that_are_too_large_are_refused_and_the_member_keeps_the_old() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let membership = join(&client, "a", "one").await;
        for is_absent in [false, true] {
            if is_absent {
                assert!(world.server.admin_delete(&path("a")));
                sleep_ms(10).await;
                assert!(!is_member(&membership));
            }
            let error = membership.set_data(vec![0; 5 << 20]).await.expect_err("it is too large");
            assert!(matches!(error, GroupError::Recipe(RecipeError::TooLarge(_))), "{error}");
            until_member(&world, &membership).await;
            assert_eq!(stored(&world), [("a".to_owned(), "one".to_owned())]);
        }
        membership.set_data("two").await.expect("it may be written");
        assert_eq!(stored(&world), [("a".to_owned(), "two".to_owned())]);
        drop(membership);
        check_clean(&world, &[&client]).await;
    });
}

/// An administrator writes the data: the member does not fight for them, and can still write.
#[test]
fn data_that_somebody_else_writes_stay_until_the_member_writes_again() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let membership = join(&client, "a", "one").await;
        world.server.admin_set_data(&path("a"), b"theirs");
        sleep_ms(5_000).await;
        assert_eq!(stored(&world), [("a".to_owned(), "theirs".to_owned())]);
        membership.set_data("two").await.expect("it may be written");
        assert_eq!(stored(&world), [("a".to_owned(), "two".to_owned())]);
        drop(membership);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn data_that_are_set_while_absent_are_those_of_the_rejoin() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let membership = join(&client, "a", "one").await;
        partition(&world, 500);
        world.server.expire(session(&client));
        membership.set_data("two").await.expect("it may be written");
        assert_eq!(stored(&world), [("a".to_owned(), "two".to_owned())]);
        assert!(is_member(&membership));
        drop(membership);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_closed_client_ends_its_memberships() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let mut membership = join(&client, "a", "one").await;
        client.close().await;
        membership.changed().await;
        sleep_ms(100).await;
        assert_eq!(membership.state(), MembershipState::Ended(Ending::ClientStopped));
        let error = membership.set_data("x").await.expect_err("the client is closed");
        assert!(
            matches!(error, GroupError::Ended(_) | GroupError::Recipe(RecipeError::Closed)),
            "{error}"
        );
        assert!(group(&client).join("b", "").await.is_err());
        assert!(stored(&world).is_empty());
    });
}

#[test]
fn a_hundred_members_rejoin_after_their_directory_was_emptied() {
    run(async {
        let world = World::new().pace(Pace::of(200));
        let client = world.client(FIRST).await;
        let mut members = Vec::new();
        for number in 0..100 {
            members.push(group(&client).join(&format!("m{number:03}"), "x").await.expect("free"));
        }
        assert_eq!(stored(&world).len(), 100);
        world.server.clear_requests();
        for (id, _) in stored(&world) {
            assert!(world.server.admin_delete(&path(&id)));
        }
        sleep_ms(1_000).await;
        assert_eq!(stored(&world).len(), 100);
        let requests = world.server.requests();
        assert!(requests.len() <= 2 * 100 + 5, "{}", requests.len());
        let at: std::collections::BTreeSet<_> = requests.iter().map(|r| r.at).collect();
        assert!(at.len() > 20, "the rejoins are spread: {}", at.len());
        world.server.expire(session(&client));
        sleep_ms(5_000).await;
        assert_eq!(stored(&world).len(), 100);
        assert!(members.iter().all(is_member));
        drop(members);
        check_clean(&world, &[&client]).await;
    });
}

/// A join that is dropped after any number of polls, with every fault of its first requests.
#[test]
fn a_join_that_is_dropped_at_any_poll_leaves_nothing() {
    let own = run(async { session(&World::new().client(FIRST).await) });
    let mut points = 0;
    for trouble in Trouble::all(own, 4) {
        for polls in 0..60 {
            points += 1;
            let is_over = run(async {
                let world = World::new();
                let client = world.client(FIRST).await;
                trouble.begin(&world);
                let joining =
                    poll_times(async { group(&client).join("a", "one").await }, polls, || {
                        trouble.cancelling(&world)
                    });
                let ended = tokio::time::timeout(Duration::from_secs(3), joining).await;
                trouble.cancelled(&world);
                let is_over = !matches!(ended, Ok(None));
                drop(ended);
                sleep_ms(100).await;
                check_clean(&world, &[&client]).await;
                is_over
            });
            if is_over {
                break;
            }
        }
    }
    eprintln!("dropped joins: {points} points");
    assert!(points > 150, "{points}");
}

/// A join that is aborted after any turn of the scheduler, even while its create is in flight.
#[test]
fn a_join_that_is_aborted_after_any_turn_leaves_nothing() {
    let own = run(async { session(&World::new().client(FIRST).await) });
    let mut points = 0;
    // The server has created the znode, and its reply is late.
    let late = at_request(own, 0, Action::Delay(Duration::from_millis(500)));
    for trouble in Trouble::all(own, 1).into_iter().chain([Trouble::Cut(late)]) {
        for turns in 0..40 {
            points += 1;
            run(async {
                let world = World::new();
                create_directory(&world);
                let client = world.client(FIRST).await;
                trouble.begin(&world);
                let group = group(&client);
                let joining = spawn(async move { group.join("a", "one").await });
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
                trouble.cancelling(&world);
                joining.abort();
                trouble.cancelled(&world);
                drop(joining);
                sleep_ms(100).await;
                check_clean(&world, &[&client]).await;
            });
        }
    }
    eprintln!("aborted joins: {points} points");
    assert!(points >= 640, "{points}");
}

/// The outcome of a create is unknown, and the znode that is found belongs to another session.
#[test]
fn a_znode_of_another_session_is_never_adopted() {
    run(async {
        let world = World::new();
        create_directory(&world);
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let cut = at_request(session(&client), 0, Action::CutBefore);
        world.server.inject(cut);
        world.server.refuse_for(Duration::from_millis(0));
        let joining = {
            let group = group(&client);
            spawn(async move { group.join("a", "same").await })
        };
        let first = join(&other, "a", "same").await;
        let error = joining.await.expect("no panic").expect_err("the id is taken");
        let taken = GroupError::IdTaken { path: path("a"), session: session(&other) };
        assert_eq!(error, taken, "{}", world.trace());
        sleep_ms(2_000).await;
        assert_eq!(stored(&world).len(), 1);
        drop(first);
        check_clean(&world, &[&client, &other]).await;
    });
}
