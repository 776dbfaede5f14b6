//! Participants that die or lose their session, administrators, and refusals.

use std::future::IntoFuture as _;

use jute_codec::OpCode;
use zk_recipes::{ErrorCode, RecipeError};
use zk_tests::scene::{
    CODES, FIRST, SECOND, THIRD, at_op, at_request, is_survived, session, spawn,
};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, At, Fault};

use crate::{PATH, barrier, check_clean, enter, entered, leave, left, present, until_present};

#[test]
fn a_participant_that_dies_inside_has_left() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let (one, two) = (enter(&client, 2), enter(&other, 2));
        let (one, two) = (entered(&world, one).await, entered(&world, two).await);
        let leaving = leave(one);
        sleep_ms(1_000).await;
        assert!(!leaving.is_finished());
        world.server.expire(session(&other));
        left(&world, leaving).await;
        // Its own leave ends too, in the next session.
        left(&world, leave(two)).await;
        check_clean(&world, &[&client, &other]).await;
    });
}

/// A participant that gives up after some refusals stays present, and the others wait for it for as
/// long as its session lives.
#[test]
fn a_participant_whose_removal_is_refused_leaves_later() {
    for code in [ErrorCode::SYSTEM_ERROR, ErrorCode::NO_AUTH] {
        run(async {
            let world = World::new();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let (one, two) = (enter(&client, 2), enter(&other, 2));
            let (one, two) = (entered(&world, one).await, entered(&world, two).await);
            let refusals = at_op(session(&client), OpCode::DELETE, Action::Error(code));
            for _ in 0..1_000 {
                world.server.inject(refusals.clone());
            }
            drop(one);
            sleep_ms(1_000).await;
            assert_eq!(present(&world), 2, "{code}\n{}", world.trace());
            let leaving = spawn(two.leave().into_future());
            sleep_ms(30_000).await;
            assert!(!leaving.is_finished(), "{code}\n{}", world.trace());
            world.server.clear_faults();
            sleep_ms(65_000).await;
            assert!(leaving.is_finished(), "{code}\n{}", world.trace());
            left(&world, leaving).await;
            check_clean(&world, &[&client, &other]).await;
        });
    }
}

#[test]
fn a_participant_that_dies_before_all_have_entered_is_replaced_by_another_one() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let first = enter(&client, 3);
        until_present(&world, 1).await;
        let second = enter(&other, 3);
        until_present(&world, 2).await;
        second.abort();
        let _ = second.await;
        until_present(&world, 1).await;
        let third = enter(&other, 3);
        until_present(&world, 2).await;
        sleep_ms(5_000).await;
        assert!(!first.is_finished() && !third.is_finished(), "the dead one was counted");
        let fourth = enter(&other, 3);
        for entering in [first, third, fourth] {
            drop(entered(&world, entering).await);
        }
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn a_participant_whose_session_is_renewed_enters_again() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let third = world.client(THIRD).await;
        let (one, two) = (enter(&client, 3), enter(&other, 3));
        until_present(&world, 2).await;
        let before = session(&client);
        world.server.expire(before);
        sleep_ms(3_000).await;
        assert_ne!(session(&client), before);
        assert_eq!(present(&world), 2, "it has entered again\n{}", world.trace());
        assert!(!one.is_finished() && !two.is_finished());
        let three = enter(&third, 3);
        for entering in [one, two, three] {
            drop(entered(&world, entering).await);
        }
        check_clean(&world, &[&client, &other, &third]).await;
    });
}

#[test]
fn a_znode_that_an_administrator_deletes_is_created_again() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let one = enter(&client, 2);
        until_present(&world, 1).await;
        let name = world.server.children(PATH).expect("it exists").remove(0);
        assert!(world.server.admin_delete(&format!("{PATH}/{name}")));
        sleep_ms(1_000).await;
        assert_eq!(present(&world), 1, "\n{}", world.trace());
        let two = enter(&other, 2);
        let (one, two) = (entered(&world, one).await, entered(&world, two).await);
        let (one, two) = (leave(one), leave(two));
        left(&world, one).await;
        left(&world, two).await;
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn every_code_at_every_request_is_reported_or_survived() {
    let mut points = 0;
    for code in CODES {
        for nth in 0.. {
            let fired = run(async {
                let world = World::new();
                let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
                world.server.admin_create("/barriers", b"", None);
                world.server.admin_create(PATH, b"", None);
                let fault = at_request(session(&client), nth, Action::Error(code));
                let two = enter(&other, 2);
                until_present(&world, 1).await;
                world.server.inject(fault);
                let one = enter(&client, 2).await.expect("no panic");
                let fired = world.server.pending_faults().is_empty();
                world.server.clear_faults();
                match one {
                    Ok(inside) => drop((inside, entered(&world, two).await)),
                    Err(RecipeError::Refused { code: reported, path, .. }) => {
                        assert_eq!(reported, code);
                        assert!(path.starts_with(PATH), "{path}");
                        assert!(!is_survived(code), "{code} passes\n{}", world.trace());
                        two.abort();
                        let _ = two.await;
                    }
                    Err(error) => panic!("{code}: {error}\n{}", world.trace()),
                }
                check_clean(&world, &[&client, &other]).await;
                fired
            });
            if !fired {
                break;
            }
            points += 1;
        }
    }
    eprintln!("{points} refused requests");
    assert!(points >= 30, "only {points} points");
}

#[test]
fn an_overloaded_server_gets_few_requests() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        for _ in 0..1_000 {
            let throttled = Action::Error(ErrorCode::THROTTLED_OP);
            world.server.inject(Fault::new(At::request(0), throttled));
        }
        let before = world.traffic().requests;
        let late = barrier(&client, 1).enter().timeout(crate::PATIENCE).await;
        assert!(matches!(late.err(), Some(RecipeError::TimedOut(_))));
        let requests = world.traffic().requests - before;
        assert!(requests <= 20, "{requests} requests in a minute");
        world.server.clear_faults();
        drop(barrier(&client, 1).enter().await.expect("it is alone"));
        check_clean(&world, &[&client]).await;
    });
}
