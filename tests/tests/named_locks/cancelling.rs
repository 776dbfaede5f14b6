//! Acquires that are dropped after every poll, with every fault around that moment. No znode and no
//! directory is left.

use std::future::IntoFuture as _;
use std::time::Duration;

use zk_session::recipe::Session;
use zk_tests::cancel::{at_every_poll, at_every_turn};
use zk_tests::scene::{FIRST, SECOND, Trouble, poll_times, release, session, spawn};
use zk_tests::world::{World, run, sleep_ms};

use crate::{check_gone, hold, lock};

/// Number of requests at which the connection is cut.
const REQUESTS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(2);

/// Cancels an acquire after this many polls or turns, and returns whether it had ended or only
/// waited.
fn cancel(has_rival: bool, is_poll: bool, point: usize, trouble: &Trouble) -> bool {
    run(async {
        let world = World::new();
        let (other, client) = (world.client(FIRST).await, world.client(SECOND).await);
        let held = if has_rival { Some(hold(&lock(&other)).await) } else { None };
        trouble.begin(&world);
        let acquiring = lock(&client).acquire().into_future();
        let is_over = if is_poll {
            let polled = poll_times(acquiring, point, || trouble.cancelling(&world));
            match tokio::time::timeout(PATIENCE, polled).await {
                Ok(ended) => ended.is_some(),
                Err(_) => true,
            }
        } else {
            let task = spawn(acquiring);
            for _ in 0..point {
                tokio::task::yield_now().await;
            }
            trouble.cancelling(&world);
            let is_over = task.is_finished();
            task.abort();
            is_over
        };
        trouble.cancelled(&world);
        for _ in 0..20_000 {
            if Session::of(&client).janitor_slots_busy() == 0 {
                break;
            }
            sleep_ms(1).await;
        }
        world.server.clear_faults();
        if let Some(held) = held {
            held.validate().await.expect("the holder is undisturbed");
            release(held).await;
        }
        check_gone(&world, &[&client, &other]).await;
        let is_alive = world.server.sessions().contains(&session(&client));
        assert!(is_alive, "it was no expiry: {point}, {trouble:?}");
        is_over
    })
}

#[test]
fn an_acquire_dropped_after_any_poll_leaves_no_directory() {
    for has_rival in [false, true] {
        let points =
            at_every_poll(REQUESTS, |polls, trouble| cancel(has_rival, true, polls, trouble));
        eprintln!("behind a rival: {has_rival}: {points} acquires dropped");
        assert!(points >= 300, "{points}");
    }
}

#[test]
fn an_acquire_aborted_after_any_turn_leaves_no_directory() {
    let points = at_every_turn(4, |turns, trouble| cancel(false, false, turns, trouble));
    eprintln!("{points} acquires aborted");
    assert!(points >= 500, "{points}");
}
