//! Futures that are dropped, at every moment, with every cut of the connection around it. Nothing
//! stays behind.

use std::time::Duration;

use zk_recipes::{Client, Guard, LockError};
use zk_tests::cancel::{
    self, Bench as _, abort_after_turns, at_every_poll, at_every_turn, drop_after_polls,
    second_session,
};
use zk_tests::meter::Pace;
use zk_tests::scene::{Trouble, poll_times};
use zk_tests::world::{World, cuts_at_request, run, sleep_ms};
use zk_testserver::Action;

use crate::{
    FIRST, SECOND, THIRD, at_request, granted_now, holder, queue_up, release, session, spawn,
};

struct Bench {
    world: World,
    client: Client,
    /// Who holds the lock, if it is to be held.
    other: Client,
    held: Option<Guard>,
}

impl Bench {
    async fn new(is_held: bool) -> Self {
        let world = World::new();
        let other = world.client(FIRST).await;
        let client = world.client(SECOND).await;
        let held = if is_held {
            Some(World::lock(&other).acquire().await.expect("nobody else wants it"))
        } else {
            None
        };
        Self { world, client, other, held }
    }
}

impl cancel::Bench for Bench {
    fn world(&self) -> &World {
        &self.world
    }

    /// First only the holder's znode is left, then nothing.
    async fn check(self, label: &str) {
        let Self { world, client, other, held } = self;
        let held_slots = usize::from(held.is_some());
        for _ in 0..20_000 {
            let is_busy = client.janitor_slots_busy() > 0;
            if !is_busy && world.contenders().len() == held_slots {
                break;
            }
            sleep_ms(1).await;
        }
        world.server.clear_faults();
        assert_eq!(world.contenders().len(), held_slots, "{label}\n{}", world.trace());
        assert_eq!(client.janitor_slots_busy(), 0, "{label}\n{}", world.trace());
        if let Some(held) = held {
            held.validate().await.expect("the holder is undisturbed");
            release(held).await;
        }
        world.check_clean(&[&client, &other]).await;
        assert!(world.server.sessions().contains(&session(&client)), "it was no expiry: {label}");
    }
}

#[test]
fn an_acquire_dropped_after_any_poll_leaves_nothing() {
    let points: usize = [false, true]
        .map(|is_held| {
            at_every_poll(8, |polls, trouble| {
                run(async {
                    let bench = Bench::new(is_held).await;
                    let acquire =
                        |bench: &Bench| World::lock(&bench.client).acquire().into_future();
                    drop_after_polls(bench, acquire, polls, trouble, is_held).await
                })
            })
        })
        .iter()
        .sum();
    eprintln!("{points} acquires dropped");
    assert!(points >= 500, "{points}");
}

fn abort_everywhere(is_try: bool) -> usize {
    let abort = |is_held: bool| {
        at_every_turn(6, move |turns, trouble| {
            run(async {
                let bench = Bench::new(is_held).await;
                let acquire = |bench: &Bench| {
                    let lock = World::lock(&bench.client);
                    async move {
                        if is_try {
                            lock.try_acquire().await
                        } else {
                            lock.acquire().await.map(Some)
                        }
                    }
                };
                abort_after_turns(bench, acquire, turns, trouble, is_held).await
            })
        })
    };
    abort(false) + abort(true)
}

#[test]
fn an_acquire_aborted_after_any_turn_leaves_nothing() {
    let points = abort_everywhere(false);
    eprintln!("{points} acquires aborted");
    assert!(points >= 1_000, "{points}");
}

#[test]
fn a_try_acquire_aborted_after_any_turn_leaves_nothing() {
    let points = abort_everywhere(true);
    eprintln!("{points} try_acquires aborted");
    assert!(points >= 500, "{points}");
}

/// Aborted at a time when the connection is away, and the way back is slow.
#[test]
fn an_acquire_aborted_at_any_time_after_a_cut_leaves_nothing() {
    let session = second_session();
    let mut points = 0;
    for fault in (0..8).flat_map(|nth| cuts_at_request(Some(session), nth)) {
        for after in [0, 1, 20, 60, 149, 151, 299, 301, 340, 400, 600] {
            points += 1;
            run(async {
                let bench = Bench::new(true).await;
                bench.world.server.inject(fault.clone());
                let task = spawn(World::lock(&bench.client).acquire().into_future());
                sleep_ms(after).await;
                task.abort();
                bench.check(&format!("aborted after {after} ms, {fault:?}")).await;
            });
        }
    }
    eprintln!("{points} acquires aborted in time");
}

#[test]
fn a_hand_off_aborted_after_any_turn_leaves_nothing() {
    let mut granted = 0;
    for turns in 0..40 {
        run(async {
            let world = World::new();
            let (other, held) = holder(&world, FIRST).await;
            let client = world.client(SECOND).await;
            let waiter = queue_up(&world, &World::lock(&client)).await;
            let third = world.client(THIRD).await;
            let last = queue_up(&world, &World::lock(&third)).await;
            drop(held);
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            granted += usize::from(waiter.is_finished());
            waiter.abort();
            drop(waiter);
            sleep_ms(10).await;
            release(granted_now(&world, last).await).await;
            world.check_clean(&[&client, &other, &third]).await;
        });
    }
    assert!((1..40).contains(&granted), "before and after the grant: {granted}");
}

#[test]
fn a_release_dropped_after_any_poll_goes_on() {
    let session = second_session();
    let mut points = 0;
    // Acquire has sent its requests before the trouble begins.
    for trouble in Trouble::all(session, 1) {
        for polls in 0..10 {
            points += 1;
            run(async {
                let bench = Bench::new(false).await;
                let guard = World::lock(&bench.client).acquire().await.expect("it is free");
                trouble.begin(&bench.world);
                let patience = Duration::from_millis(1_000);
                let before = || trouble.cancelling(&bench.world);
                let releasing = poll_times(guard.release(), polls, before);
                let _ = tokio::time::timeout(patience, releasing).await;
                trouble.cancelled(&bench.world);
                bench.check(&format!("release dropped after {polls} polls, {trouble:?}")).await;
            });
        }
    }
    eprintln!("{points} releases dropped");
}

/// Each reply takes 3 ms, and the lock becomes free after 20 ms.
#[test]
fn a_timeout_at_any_moment_around_the_grant_is_a_grant_or_leaves_nothing() {
    let (mut granted, mut timed_out) = (0, 0);
    for is_held in [false, true] {
        for timeout in 0..=60 {
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
                let lock = World::lock(&client);
                let waiting = lock.acquire().timeout(Duration::from_millis(timeout));
                let (ended, ()) = tokio::join!(waiting.into_future(), holding);
                world.server.clear_faults();
                match ended {
                    Ok(guard) => {
                        granted += 1;
                        guard.validate().await.expect("it is held");
                        release(guard).await;
                    }
                    Err(error) => {
                        timed_out += 1;
                        assert_eq!(error, LockError::TimedOut);
                    }
                }
                world.check_clean(&[&client, &other]).await;
            });
        }
    }
    assert!(granted >= 60 && timed_out >= 10, "{granted} granted, {timed_out} timed out");
}

#[test]
fn a_timeout_of_zero_is_one_look_without_a_wait() {
    run(async {
        let Bench { world, client, other, held } = Bench::new(true).await;
        let before = client.now();
        let ended = World::lock(&client).acquire().timeout(Duration::ZERO).await.map(drop);
        assert_eq!(ended, Err(LockError::TimedOut));
        assert_eq!(client.now(), before);
        drop(held);
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn a_timeout_is_not_stretched_by_reconnects() {
    run(async {
        let Bench { world, client, other, held } = Bench::new(true).await;
        let timeout = Duration::from_millis(5_000);
        let before = client.now();
        let waiter = spawn(World::lock(&client).acquire().timeout(timeout).into_future());
        while !waiter.is_finished() {
            world.server.disconnect_all();
            sleep_ms(97).await;
        }
        let ended = waiter.await.expect("it does not panic").map(drop);
        assert_eq!(ended, Err(LockError::TimedOut));
        let waited = client.now().saturating_since(before);
        assert!(waited >= timeout && waited <= timeout + Duration::from_millis(97), "{waited:?}");
        drop(held);
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn a_cancelled_acquire_does_not_spoil_the_next() {
    run(async {
        let world = World::new().pace(Pace::of(10));
        let client = world.client(FIRST).await;
        let lock = World::lock(&client);
        for polls in 0..10 {
            drop(poll_times(lock.acquire().into_future(), polls, || {}).await);
            let guard = lock.acquire().await.expect("it becomes free");
            release(guard).await;
        }
        world.check_clean(&[&client]).await;
    });
}

/// What does not leave the process before it is taken back never leaves it.
#[test]
fn an_acquire_cancelled_while_disconnected_sends_no_create() {
    run(async {
        let Bench { world, client, other, held } = Bench::new(true).await;
        crate::partition(&world, 1_000);
        sleep_ms(10).await;
        world.server.clear_requests();
        let waiter = spawn(World::lock(&client).acquire().into_future());
        sleep_ms(100).await;
        waiter.abort();
        sleep_ms(3_000).await;
        let sent = crate::requests_of(&world, session(&client));
        assert_eq!(crate::ops(&sent), [], "{}", world.trace());
        release(held.expect("it is held")).await;
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn an_acquire_polled_by_reference_keeps_its_place() {
    run(async {
        let Bench { world, client, other, held } = Bench::new(true).await;
        let mut acquiring = World::lock(&client).acquire().into_future();
        let mut rounds = 0;
        let mut held = held;
        let guard = loop {
            tokio::select! {
                biased;
                acquired = &mut acquiring => break acquired.expect("it becomes free"),
                () = sleep_ms(1) => rounds += 1,
            }
            if rounds == 500 {
                drop(held.take());
            }
        };
        assert!(rounds >= 500);
        let creates = world.server.commits().into_iter().filter(|commit| {
            commit.session == session(&client) && commit.op == jute_codec::OpCode::CREATE2
        });
        assert_eq!(creates.count(), 1, "{}", world.trace());
        release(guard).await;
        world.check_clean(&[&client, &other]).await;
    });
}
