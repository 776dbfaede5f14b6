//! Rounds without faults.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use zk_recipes::{Acl, DoubleBarrier, Permissions, RecipeError};
use zk_tests::scene::{FIRST, SECOND, session, spawn};
use zk_tests::world::{World, run, sleep_ms};

use crate::{
    PATH, PATIENCE, barrier, check_clean, enter, entered, leave, left, present, until_present,
};

#[test]
fn the_permissions_apply_to_the_participants() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let acl = vec![Acl::new(Permissions::READ | Permissions::DELETE, "world", "anyone")];
        let builder = || DoubleBarrier::builder(&client, PATH, 1).expect("the options are legal");
        let refused = builder().acl(vec![]).build().expect_err("servers refuse it");
        assert!(refused.to_string().contains("acl of the double barrier"), "{refused}");
        let barrier = builder().acl(acl.clone()).build().expect("the options are legal");
        let inside = barrier.enter().await.expect("it is alone");
        let names = world.server.children(PATH).expect("the directory exists");
        assert_eq!(names.len(), 1, "{names:?}");
        let (found, _) = client.get_acl(&format!("{PATH}/{}", names[0])).await.expect("it exists");
        assert_eq!(found, acl);
        inside.leave().await.expect("it is alone");
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn participants_enter_when_the_last_one_comes_and_leave_when_the_last_one_goes() {
    for count in 1..=5_u32 {
        run(async {
            let world = World::new();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let mut entering = Vec::new();
            for number in 1..count {
                entering.push(enter(if number % 2 == 0 { &client } else { &other }, count));
                until_present(&world, number as usize).await;
                sleep_ms(1_000).await;
                assert!(entering.iter().all(|entering| !entering.is_finished()), "too early");
            }
            entering.push(enter(&client, count));
            let mut inside = Vec::new();
            for entering in entering {
                inside.push(entered(&world, entering).await);
            }
            assert!(inside.iter().all(|inside| inside.participants() == count as usize));
            let last = inside.pop().expect("at least one");
            let leaving: Vec<_> = inside.into_iter().map(leave).collect();
            sleep_ms(5_000).await;
            assert!(leaving.iter().all(|leaving| !leaving.is_finished()), "too early");
            left(&world, leave(last)).await;
            for leaving in leaving {
                left(&world, leaving).await;
            }
            check_clean(&world, &[&client, &other]).await;
        });
    }
}

/// A fast participant enters again while others still leave. It must not pass with the last round.
#[test]
fn rounds_do_not_mix() {
    const PARTICIPANTS: usize = 3;
    const ROUNDS: usize = 6;
    run(async {
        let world = World::new().pace(zk_tests::meter::Pace::of(10));
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let arrived = Arc::new([const { AtomicUsize::new(0) }; ROUNDS]);
        let gone = Arc::new([const { AtomicUsize::new(0) }; ROUNDS]);
        let mut tasks = Vec::new();
        for number in 0..PARTICIPANTS {
            let barrier = barrier(if number == 0 { &client } else { &other }, 3);
            let (arrived, gone) = (Arc::clone(&arrived), Arc::clone(&gone));
            tasks.push(spawn(async move {
                for (arrived, gone) in arrived.iter().zip(gone.iter()) {
                    arrived.fetch_add(1, Ordering::SeqCst);
                    let inside = barrier.enter().timeout(PATIENCE).await?;
                    assert_eq!(arrived.load(Ordering::SeqCst), PARTICIPANTS, "entered early");
                    sleep_ms(number as u64 * 7).await;
                    gone.fetch_add(1, Ordering::SeqCst);
                    inside.leave().timeout(PATIENCE).await?;
                    assert_eq!(gone.load(Ordering::SeqCst), PARTICIPANTS, "left early");
                }
                Ok::<_, RecipeError>(())
            }));
        }
        for task in tasks {
            assert_eq!(task.await.expect("no panic"), Ok(()), "\n{}", world.trace());
        }
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn a_participant_too_many_waits_for_the_next_round() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let mut entering: Vec<_> = (0..3).map(|_| enter(&client, 2)).collect();
        sleep_ms(1_000).await;
        let (finished, waiting): (Vec<_>, Vec<_>) =
            entering.drain(..).partition(|entering| entering.is_finished());
        assert_eq!((finished.len(), waiting.len()), (2, 1), "\n{}", world.trace());
        let fourth = enter(&client, 2);
        sleep_ms(1_000).await;
        assert!(!fourth.is_finished(), "the first round has not ended\n{}", world.trace());
        let mut leaving = Vec::new();
        for entering in finished {
            leaving.push(leave(entered(&world, entering).await));
        }
        for leaving in leaving {
            left(&world, leaving).await;
        }
        for entering in waiting.into_iter().chain([fourth]) {
            drop(entered(&world, entering).await);
        }
        check_clean(&world, &[&client]).await;
    });
}

/// The deletion of a participant that gave up takes a while. The documentation says what happens to
/// those who enter meanwhile.
#[test]
fn a_participant_that_gave_up_counts_until_its_znode_is_deleted() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let early =
            spawn(barrier(&client, 2).enter().timeout(Duration::from_secs(1)).into_future());
        until_present(&world, 1).await;
        world.server.pause_connection(session(&client), Duration::from_secs(2));
        let late = early.await.expect("it does not panic");
        assert!(matches!(late.err(), Some(RecipeError::TimedOut(_))));
        assert_eq!(present(&world), 1, "the server has not seen the deletion");
        let theirs = entered(&world, enter(&other, 2)).await;
        let mine = enter(&client, 2);
        sleep_ms(5_000).await;
        assert_eq!(present(&world), 2, "the deletion has arrived\n{}", world.trace());
        assert!(!mine.is_finished(), "the other one has not left\n{}", world.trace());
        left(&world, leave(theirs)).await;
        let theirs = enter(&other, 2);
        for entering in [mine, theirs] {
            drop(entered(&world, entering).await);
        }
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn invalid_options_are_refused() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        DoubleBarrier::new(&client, PATH, 0).expect_err("nobody could enter");
        for path in ["", "x", "/", "/x/"] {
            DoubleBarrier::new(&client, path, 1).expect_err(path);
        }
    });
}
