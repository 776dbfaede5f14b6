//! Futures that are dropped, at every moment, with every cut of the connection around it. Nothing
//! stays behind, and the holder is not disturbed.

use std::time::Duration;

use zk_recipes::{Client, ExclusiveGuard, LockError};
use zk_tests::cancel::{
    self, Bench as _, abort_after_turns, at_every_poll, at_every_turn, drop_after_polls,
    second_session,
};
use zk_tests::exclusive::{check_clean, lock, owner};
use zk_tests::scene::{Trouble, at_request, poll_times, requests_of, session, spawn};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

use crate::{FIRST, SECOND, THIRD, granted, holder, release, wait_for};

struct Bench {
    world: World,
    client: Client,
    /// Who holds the lock, if it is to be held.
    other: Client,
    held: Option<ExclusiveGuard>,
}

impl Bench {
    async fn new(is_held: bool) -> Self {
        let world = World::new();
        let other = world.client(FIRST).await;
        let client = world.client(SECOND).await;
        let held = if is_held {
            Some(lock(&other).acquire().await.expect("nobody else wants it"))
        } else {
            None
        };
        Self { world, client, other, held }
    }

    /// An acquire, or a try.
    fn acquire(
        &self,
        is_try: bool,
    ) -> impl Future<Output = Result<Option<ExclusiveGuard>, LockError>> + Send + use<> {
        let lock = lock(&self.client);
        async move { if is_try { lock.try_acquire().await } else { lock.acquire().await.map(Some) } }
    }
}

impl cancel::Bench for Bench {
    fn world(&self) -> &World {
        &self.world
    }

    /// First only the holder's znode is left, then nothing.
    async fn check(self, label: &str) {
        let Self { world, client, other, held } = self;
        let expected = held.as_ref().map(|_| session(&other));
        for _ in 0..20_000 {
            if client.janitor_slots_busy() == 0 && owner(&world) == expected {
                break;
            }
            sleep_ms(1).await;
        }
        world.server.clear_faults();
        assert_eq!(owner(&world), expected, "{label}\n{}", world.trace());
        assert_eq!(client.janitor_slots_busy(), 0, "{label}\n{}", world.trace());
        if let Some(held) = held {
            held.validate().await.expect("the holder is undisturbed");
            release(held).await;
        }
        check_clean(&world, &[&client, &other]).await;
        assert!(world.server.sessions().contains(&session(&client)), "it was no expiry: {label}");
    }
}

/// Whether the lock is held, and whether the acquire is a try.
const CASES: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];

#[test]
fn an_acquire_dropped_after_any_poll_leaves_nothing() {
    let drop_in = |(is_held, is_try): (bool, bool)| {
        at_every_poll(7, move |polls, trouble| {
            run(async {
                let bench = Bench::new(is_held).await;
                let acquire = |bench: &Bench| bench.acquire(is_try);
                drop_after_polls(bench, acquire, polls, trouble, (is_held, is_try)).await
            })
        })
    };
    let points: usize = CASES.map(drop_in).iter().sum();
    eprintln!("{points} acquires dropped");
    assert!(points >= 1_000, "{points}");
}

#[test]
fn an_acquire_aborted_after_any_turn_leaves_nothing() {
    let abort_in = |(is_held, is_try): (bool, bool)| {
        at_every_turn(6, move |turns, trouble| {
            run(async {
                let bench = Bench::new(is_held).await;
                let acquire = |bench: &Bench| bench.acquire(is_try);
                abort_after_turns(bench, acquire, turns, trouble, (is_held, is_try)).await
            })
        })
    };
    let points: usize = CASES.map(abort_in).iter().sum();
    eprintln!("{points} acquires aborted");
    assert!(points >= 2_000, "{points}");
}

/// Aborted at a time when the connection is away, and the way back is slow.
#[test]
fn an_acquire_aborted_at_any_time_after_a_cut_leaves_nothing() {
    let session = second_session();
    let mut points = 0;
    for trouble in Trouble::all(session, 6) {
        for after in [0, 1, 20, 149, 151, 299, 301, 340, 600] {
            points += 1;
            run(async {
                let bench = Bench::new(true).await;
                trouble.begin(&bench.world);
                let task = spawn(lock(&bench.client).acquire().into_future());
                sleep_ms(after).await;
                task.abort();
                bench.check(&format!("aborted after {after} ms, {trouble:?}")).await;
            });
        }
    }
    eprintln!("{points} acquires aborted in time");
}

#[test]
fn a_hand_over_aborted_after_any_turn_leaves_nothing() {
    let mut granted_before = 0;
    for turns in 0..40 {
        run(async {
            let world = World::new();
            let (other, held) = holder(&world, FIRST).await;
            let (client, third) = (world.client(SECOND).await, world.client(THIRD).await);
            let waiter = wait_for(&world, &client, &lock(&client)).await;
            let last = wait_for(&world, &third, &lock(&third)).await;
            drop(held);
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            granted_before += usize::from(waiter.is_finished());
            waiter.abort();
            drop(waiter);
            release(granted(last).await).await;
            check_clean(&world, &[&client, &other, &third]).await;
        });
    }
    assert!((1..40).contains(&granted_before), "before and after the grant: {granted_before}");
}

/// Another one waits, and its znode survives whatever the release meets.
#[test]
fn a_release_dropped_after_any_poll_goes_on_and_leaves_the_next_alone() {
    let id = second_session();
    let mut points = 0;
    for has_waiter in [false, true] {
        for trouble in Trouble::all(id, 3) {
            for polls in 0..10 {
                points += 1;
                run(async {
                    let Bench { world, client, other, .. } = Bench::new(false).await;
                    let guard = lock(&client).acquire().await.expect("it is free");
                    let waiter = if has_waiter {
                        Some(wait_for(&world, &other, &lock(&other)).await)
                    } else {
                        None
                    };
                    trouble.begin(&world);
                    let before = || trouble.cancelling(&world);
                    let patience = Duration::from_millis(1_000);
                    let releasing = poll_times(guard.release(), polls, before);
                    let _ = tokio::time::timeout(patience, releasing).await;
                    trouble.cancelled(&world);
                    let held = match waiter {
                        Some(waiter) => Some(granted(waiter).await),
                        None => None,
                    };
                    let label = format!("release dropped after {polls} polls, {trouble:?}");
                    Bench { world, client, other, held }.check(&label).await;
                });
            }
        }
    }
    eprintln!("{points} releases dropped");
}

/// Each reply takes 3 ms, and the lock becomes free after 20 ms.
#[test]
fn a_timeout_at_any_moment_around_the_grant_is_a_grant_or_leaves_nothing() {
    let (mut acquired, mut timed_out) = (0, 0);
    for is_held in [false, true] {
        for timeout in 0..=40 {
            run(async {
                let Bench { world, client, other, held } = Bench::new(is_held).await;
                for nth in 0..8 {
                    let slow = Action::Delay(Duration::from_millis(3));
                    world.server.inject(at_request(session(&client), nth, slow));
                }
                let holding = async {
                    sleep_ms(20).await;
                    drop(held);
                };
                let lock = lock(&client);
                let waiting = lock.acquire().timeout(Duration::from_millis(timeout));
                let (ended, ()) = tokio::join!(waiting.into_future(), holding);
                world.server.clear_faults();
                match ended {
                    Ok(guard) => {
                        acquired += 1;
                        guard.validate().await.expect("it is held");
                        release(guard).await;
                    }
                    Err(error) => {
                        timed_out += 1;
                        assert_eq!(error, LockError::TimedOut);
                    }
                }
                check_clean(&world, &[&client, &other]).await;
            });
        }
    }
    assert!(acquired >= 30 && timed_out >= 10, "{acquired} acquired, {timed_out} timed out");
}

#[test]
fn a_timeout_is_not_stretched_by_reconnects() {
    run(async {
        let Bench { world, client, other, held } = Bench::new(true).await;
        let timeout = Duration::from_millis(5_000);
        let before = client.now();
        let waiter = spawn(lock(&client).acquire().timeout(timeout).into_future());
        while !waiter.is_finished() {
            world.server.disconnect_all();
            sleep_ms(97).await;
        }
        let ended = waiter.await.expect("it does not panic").map(drop);
        assert_eq!(ended, Err(LockError::TimedOut));
        let waited = client.now().saturating_since(before);
        assert!(waited >= timeout && waited <= timeout + Duration::from_millis(97), "{waited:?}");
        drop(held);
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn an_acquire_cancelled_while_disconnected_sends_nothing() {
    run(async {
        let Bench { world, client, other, held } = Bench::new(true).await;
        zk_tests::scene::partition(&world, 1_000);
        sleep_ms(10).await;
        world.server.clear_requests();
        let waiter = spawn(lock(&client).acquire().into_future());
        sleep_ms(100).await;
        waiter.abort();
        sleep_ms(3_000).await;
        assert_eq!(requests_of(&world, session(&client)), [], "{}", world.trace());
        release(held.expect("it is held")).await;
        check_clean(&world, &[&client, &other]).await;
    });
}
