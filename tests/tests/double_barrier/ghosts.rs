//! Participants whose session ends after a round has counted them: they enter with that round, or
//! are told that they may have missed it, but they never wait for it and never take the next one
//! for it.

use std::time::Duration;

use zk_recipes::{Client, RecipeError, SessionId, Version};
use zk_tests::scene::{FIRST, SECOND, THIRD, session, spawn};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, At, Fault};

use crate::{
    PATH, PATIENCE, barrier, check_clean, enter, entered, first_session, leave, left, until_present,
};

const ROUNDS: usize = 3;
/// Longer than any session lasts without its client.
const BEYOND: Duration = Duration::from_secs(60);

/// Walks through the barrier. Returns the numbers of the rounds, and how often the participant was
/// told that it may have missed one.
async fn walk(client: Client) -> (Vec<Version>, usize) {
    let (mut rounds, mut told) = (Vec::new(), 0);
    while rounds.len() < ROUNDS {
        match barrier(&client, 2).enter().timeout(PATIENCE * 10).await {
            Ok(inside) => {
                assert_eq!(inside.participants(), 2);
                rounds.push(inside.round());
                inside.leave().timeout(PATIENCE * 10).await.expect("it leaves");
                // A participant that was told too late would otherwise meet the next round.
                sleep_ms(1_000).await;
            }
            Err(RecipeError::SessionExpired) => told += 1,
            Err(error) => panic!("{error}"),
        }
    }
    (rounds, told)
}

fn moments(session: SessionId) -> impl Iterator<Item = At> {
    let moments = (0..16).flat_map(|nth| [At::request(nth), At::event(nth)]);
    moments.map(move |at| at.of_session(session))
}

#[test]
fn a_session_that_ends_at_any_moment_leaves_nobody_a_round_behind() {
    let actions = [Action::Expire, Action::Freeze, Action::Delay(BEYOND), Action::Pause(BEYOND)];
    let (mut points, mut told) = (0, 0);
    for action in actions {
        for at in moments(first_session()) {
            if matches!((&at, &action), (At::Event { .. }, Action::Pause(_))) {
                continue;
            }
            for is_first in [true, false] {
                let (fired, was_told) = run(async {
                    let world = World::new();
                    let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
                    world.inject(vec![Fault::new(at.clone(), action.clone())]);
                    let delays = if is_first { [0, 500] } else { [500, 0] };
                    let walks = [&client, &other].into_iter().zip(delays).map(|(client, delay)| {
                        let client = client.clone();
                        spawn(async move {
                            sleep_ms(delay).await;
                            walk(client).await
                        })
                    });
                    let mut seen = Vec::new();
                    for walk in walks.collect::<Vec<_>>() {
                        seen.push(walk.await.unwrap_or_else(|error| {
                            panic!("{at:?} {action:?}: {error}\n{}", world.trace())
                        }));
                    }
                    let [(ours, told), (theirs, _)] = &seen[..] else { unreachable!() };
                    assert_eq!(ours, theirs, "{at:?} {action:?}\n{}", world.trace());
                    let fired = world.server.pending_faults().is_empty();
                    world.server.clear_faults();
                    check_clean(&world, &[&client, &other]).await;
                    (fired, *told)
                });
                points += usize::from(fired);
                told += was_told;
            }
        }
    }
    eprintln!("{points} points, told {told} times");
    assert!(points >= 100, "only {points} points");
    assert!(told <= points / 4, "told {told} times in {points} points");
}

/// The participant does not see its round, because its session ends first. It was counted
/// nevertheless, and the others are inside.
#[test]
fn a_participant_that_was_counted_is_inside_although_its_session_has_ended() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let mine = enter(&client, 2);
        until_present(&world, 1).await;
        let theirs = enter(&other, 2);
        // The first one is told by its session's last event that the round is complete.
        let name = world.server.children(PATH).expect("it exists").remove(0);
        let version = || world.server.stat(PATH).expect("it exists").version;
        let before = version();
        let last_event = At::event(1).of_session(session(&client));
        world.server.inject(Fault::new(last_event, Action::Expire));
        let (mine, theirs) = (entered(&world, mine).await, entered(&world, theirs).await);
        assert_eq!(mine.round(), theirs.round(), "\n{}", world.trace());
        assert_eq!((mine.has_left(), theirs.has_left()), (true, false));
        assert_ne!(version(), before);
        assert!(world.server.pending_faults().is_empty());
        assert!(!world.server.children(PATH).expect("it exists").contains(&name));
        world.server.expire(session(&other));
        sleep_ms(1_000).await;
        assert!(theirs.has_left(), "its session has ended");
        let (mine, theirs) = (leave(mine), leave(theirs));
        left(&world, mine).await;
        left(&world, theirs).await;
        check_clean(&world, &[&client, &other]).await;
    });
}

/// Others have met twice since the participant looked, so nobody knows whether it was part of the
/// first of these rounds.
#[test]
fn a_participant_that_may_have_missed_its_round_is_told() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let third = world.client(THIRD).await;
        let mine = enter(&client, 2);
        until_present(&world, 1).await;
        // It hears nothing any more, and does not notice that its session ends.
        world.server.pause_connection(session(&client), BEYOND);
        world.server.expire(session(&client));
        for _ in 0..2 {
            let (one, two) = (enter(&other, 2), enter(&third, 2));
            let (one, two) = (entered(&world, one).await, entered(&world, two).await);
            let (one, two) = (leave(one), leave(two));
            left(&world, one).await;
            left(&world, two).await;
        }
        let told = mine.await.expect("no panic").map(|inside| inside.round());
        assert_eq!(told, Err(RecipeError::SessionExpired), "\n{}", world.trace());
        check_clean(&world, &[&client, &other, &third]).await;
    });
}
