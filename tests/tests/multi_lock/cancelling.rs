//! Acquires, tries and releases that are dropped after every poll, with every fault around that
//! moment.

use std::future::IntoFuture as _;
use std::time::Duration;

use zk_session::recipe::Session;
use zk_tests::cancel::{at_every_poll, at_every_turn};
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND, Trouble, poll_times, session, spawn};
use zk_tests::world::{World, run, sleep_ms};

use crate::{check_clean, exclusive, fair, fair_locks, hold, rw_lock, znodes};

/// Number of requests at which the connection is cut.
const REQUESTS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(2);
const PATHS: [&str; 3] = ["/locks/a", "/locks/b", "/locks/c"];

/// Returns a multi-lock of three kinds.
fn three(client: &zk_recipes::Client) -> zk_recipes::MultiLock {
    zk_recipes::MultiLock::builder()
        .with(exclusive(client, PATHS[1]))
        .with(rw_lock(client, PATHS[2]).write_side())
        .with(fair(client, PATHS[0]))
        .build()
        .expect("the paths differ")
}

/// How a future is cancelled: after this many polls, or after this many turns of the scheduler.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Cancel {
    Polls(usize),
    Turns(usize),
}

/// Cancels an acquire or a try. With `has_rival`, another client holds the last lock. Returns
/// whether there was nothing left to cancel.
fn cancel(has_rival: bool, is_try: bool, cancel: Cancel, trouble: &Trouble) -> bool {
    run(async {
        let world = World::new().pace(Pace::of(3));
        let (other, client) = (world.client(FIRST).await, world.client(SECOND).await);
        let held = if has_rival {
            Some(rw_lock(&other, PATHS[2]).read().await.expect("it is free"))
        } else {
            None
        };
        let lock = three(&client);
        trouble.begin(&world);
        let acquiring = async move {
            if is_try {
                lock.try_acquire().await.expect("only the cancellation ends it")
            } else {
                Some(lock.acquire().await.expect("only the cancellation ends it"))
            }
        };
        let is_over = match cancel {
            Cancel::Polls(polls) => {
                let before = || trouble.cancelling(&world);
                let polled = poll_times(acquiring, polls, before);
                match tokio::time::timeout(PATIENCE, polled).await {
                    Ok(ended) => ended.is_some(),
                    Err(_) => true,
                }
            }
            Cancel::Turns(turns) => {
                let task = spawn(acquiring);
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
                let is_over = task.is_finished();
                trouble.cancelling(&world);
                task.abort();
                is_over
            }
        };
        trouble.cancelled(&world);
        let label = format!("{cancel:?}, {trouble:?}");
        let expected = usize::from(has_rival);
        for _ in 0..20_000 {
            if znodes(&world).len() == expected && Session::of(&client).janitor_slots_busy() == 0 {
                break;
            }
            sleep_ms(1).await;
        }
        world.server.clear_faults();
        assert_eq!(znodes(&world).len(), expected, "{label}\n{}", world.trace());
        if let Some(held) = held {
            held.validate().await.expect("the holder is undisturbed");
            held.release().await.expect("its znode can be deleted");
        }
        check_clean(&world, &[&client, &other]).await;
        assert!(world.server.sessions().contains(&session(&client)), "it was no expiry: {label}");
        is_over
    })
}

#[test]
fn an_acquire_dropped_after_any_poll_leaves_nothing() {
    for has_rival in [false, true] {
        let points = at_every_poll(REQUESTS, |polls, trouble| {
            cancel(has_rival, false, Cancel::Polls(polls), trouble)
        });
        eprintln!("behind a rival: {has_rival}: {points} acquires dropped");
        assert!(points >= 300, "{points}");
    }
}

#[test]
fn a_try_dropped_after_any_poll_leaves_nothing() {
    for has_rival in [false, true] {
        let points = at_every_poll(REQUESTS, |polls, trouble| {
            cancel(has_rival, true, Cancel::Polls(polls), trouble)
        });
        eprintln!("behind a rival: {has_rival}: {points} tries dropped");
        assert!(points >= 300, "{points}");
    }
}

#[test]
fn an_acquire_aborted_after_any_turn_leaves_nothing() {
    let points =
        at_every_turn(1, |turns, trouble| cancel(true, false, Cancel::Turns(turns), trouble));
    eprintln!("{points} acquires aborted");
    assert!(points >= 500, "{points}");
}

#[test]
fn a_release_dropped_after_any_poll_goes_on() {
    let mut points = 0;
    for trouble in Trouble::all(zk_tests::cancel::second_session(), 3) {
        for polls in 0..6 {
            points += 1;
            run(async {
                let world = World::new();
                let (other, client) = (world.client(FIRST).await, world.client(SECOND).await);
                let guard = hold(&three(&client)).await;
                let waiting = spawn(fair_locks(&other, &PATHS[..1]).acquire().into_future());
                sleep_ms(100).await;
                trouble.begin(&world);
                let before = || trouble.cancelling(&world);
                let releasing = poll_times(guard.release(), polls, before);
                let _ = tokio::time::timeout(PATIENCE, releasing).await;
                trouble.cancelled(&world);
                drop(waiting.await.expect("no panic").expect("the lock becomes free"));
                world.server.clear_faults();
                check_clean(&world, &[&client, &other]).await;
            });
        }
    }
    eprintln!("{points} releases dropped");
}
