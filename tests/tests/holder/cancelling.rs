//! Acquires of a holder that are dropped after every poll, with every fault around that moment.

use std::future::IntoFuture as _;
use std::time::Duration;

use zk_recipes::{FairLock, LockState};
use zk_tests::cancel::at_every_poll;
use zk_tests::case::Case as _;
use zk_tests::scene::{FIRST, SECOND, hold, poll_times, session, spawn};
use zk_tests::world::{World, run, sleep_ms};

use crate::holder;

/// Number of requests of an acquire at which the connection is cut.
const REQUESTS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(2);

/// Another task of the holder waits for its turn. Whatever happens to the first one, the second
/// gets the lock when the other contender leaves, and nothing is left behind.
#[test]
fn an_acquire_dropped_after_any_poll_leaves_nothing_and_passes_its_turn_on() {
    for has_rival in [false, true] {
        let points = at_every_poll(REQUESTS, |polls, trouble| {
            run(async {
                let world = World::new();
                let (other, client) = (world.client(FIRST).await, world.client(SECOND).await);
                let held = if has_rival { Some(hold(&FairLock::of(&other)).await) } else { None };
                let holder = holder::<FairLock>(&client);
                trouble.begin(&world);
                let acquiring = holder.acquire().into_future();
                let before = || trouble.cancelling(&world);
                let first = tokio::time::timeout(PATIENCE, async {
                    let mut acquiring = Box::pin(poll_times(acquiring, polls, before));
                    // The first poll takes the turn, unless the acquire is dropped before it.
                    let ended = zk_tests::wait::now(&mut acquiring);
                    let second = spawn(holder.acquire().into_future());
                    let ended = match ended {
                        Some(ended) => ended,
                        None => acquiring.await,
                    };
                    (ended, second)
                });
                let (is_over, second) = match first.await {
                    Ok((ended, second)) => (ended.is_some(), Some(second)),
                    // It waits, and its task is no longer polled.
                    Err(_) => (true, None),
                };
                trouble.cancelled(&world);
                drop(held);
                if let Some(second) = second {
                    let level = second.await.expect("no panic").expect("the lock becomes free");
                    level.validate().await.expect("it is held");
                    assert_eq!(level.state(), LockState::Held, "{polls} polls, {trouble:?}");
                    assert_eq!(world.znodes().len(), 1, "{polls} polls, {trouble:?}");
                }
                assert_eq!(holder.levels(), 0);
                sleep_ms(100).await;
                world.server.clear_faults();
                world.check_clean(&[&client, &other]).await;
                let is_alive = world.server.sessions().contains(&session(&client));
                assert!(is_alive, "it was no expiry: {polls} polls, {trouble:?}");
                is_over
            })
        });
        eprintln!("behind a rival: {has_rival}: {points} acquires dropped");
        assert!(points >= 300, "{points}");
    }
}
