//! Every single cut and every pair of cuts of one participant of three, and its cancellation.

use std::future::IntoFuture as _;
use std::time::Duration;

use zk_recipes::RecipeError;
use zk_tests::scene::{FIRST, SECOND, TURNS, Trouble, poll_times};
use zk_tests::world::{Enumeration, World, run, sleep_ms};

use crate::{
    barrier, check_clean, enter, entered, first_session, leave, left, present, until_present,
};

#[test]
fn a_participant_survives_every_pair_of_cuts_of_a_round() {
    let mut enumeration =
        Enumeration::new("double barrier", Some(first_session())).without_refusals_in_pairs();
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            world.inject(faults);
            let (one, two) = (enter(&client, 3), enter(&other, 3));
            sleep_ms(1_500).await;
            assert!(!one.is_finished() && !two.is_finished(), "early\n{}", world.trace());
            assert_eq!(present(&world), 2, "\n{}", world.trace());
            let three = enter(&other, 3);
            let one = entered(&world, one).await;
            let two = entered(&world, two).await;
            let three = entered(&world, three).await;
            let (one, two) = (leave(one), leave(two));
            sleep_ms(1_500).await;
            assert!(!one.is_finished() && !two.is_finished(), "early\n{}", world.trace());
            left(&world, leave(three)).await;
            left(&world, one).await;
            left(&world, two).await;
            check_clean(&world, &[&client, &other]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(100, 1_500), "{enumeration:?}");
}

/// The participant is the last one, so it completes the round.
#[test]
fn the_last_participant_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("last participant", Some(first_session()));
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let first = enter(&other, 2);
            until_present(&world, 1).await;
            world.inject(faults);
            let last = entered(&world, enter(&client, 2)).await;
            let first = entered(&world, first).await;
            drop((last, first));
            check_clean(&world, &[&client, &other]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(40, 400), "{enumeration:?}");
}

#[test]
fn a_dropped_enter_leaves_no_znode_and_the_others_wait() {
    let mut points = 0;
    for trouble in Trouble::all(first_session(), 4) {
        for polls in 0..=TURNS {
            points += 1;
            let is_over = run(async {
                let world = World::new();
                let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
                let first = enter(&other, 3);
                until_present(&world, 1).await;
                trouble.begin(&world);
                let entering = barrier(&client, 3).enter().into_future();
                let dropped = poll_times(entering, polls, || trouble.cancelling(&world));
                // Nobody completes the round, so the participant only waits in the end.
                let ended = tokio::time::timeout(Duration::from_secs(5), dropped).await;
                trouble.cancelled(&world);
                let is_over = ended.is_err();
                if let Ok(Some(inside)) = ended {
                    panic!("{inside:?} {trouble:?}\n{}", world.trace());
                }
                world.until("its znode is gone", |_| present(&world) == 1).await;
                sleep_ms(1_000).await;
                world.server.clear_faults();
                assert_eq!(present(&world), 1, "{trouble:?}\n{}", world.trace());
                assert!(!first.is_finished());
                first.abort();
                let _ = first.await;
                check_clean(&world, &[&client, &other]).await;
                is_over
            });
            if is_over {
                break;
            }
            assert!(polls < TURNS, "it never waits: {trouble:?}");
        }
    }
    eprintln!("dropped enters: {points} points");
    assert!(points >= 150, "only {points} points");
}

#[test]
fn a_timeout_of_either_step_leaves_no_znode() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let before = client.now();
        let late = barrier(&client, 2).enter().timeout(Duration::from_secs(3)).await;
        assert!(matches!(late.err(), Some(RecipeError::TimedOut(_))));
        assert_eq!(client.now().saturating_since(before), Duration::from_secs(3));
        world.until("its znode is gone", |_| present(&world) == 0).await;
        let (one, two) = (enter(&client, 2), enter(&other, 2));
        let (one, two) = (entered(&world, one).await, entered(&world, two).await);
        let late = one.leave().timeout(Duration::from_secs(3)).await;
        assert!(matches!(late, Err(RecipeError::TimedOut(_))), "another one is inside");
        assert_eq!(present(&world), 1);
        left(&world, leave(two)).await;
        check_clean(&world, &[&client, &other]).await;
    });
}
