//! Acquires, tries and releases of every lock that are dropped at every moment, with every cut of
//! the connection around that moment. They leave nothing behind, and do not disturb the holder.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::LockError;
use zk_tests::cancel::{Bench, Held, Start, at_every_poll, at_every_turn, second_session};
use zk_tests::case::Case;
use zk_tests::for_each_lock;
use zk_tests::meter::Pace;
use zk_tests::scene::{
    FIRST, SECOND, THIRD, Trouble, at_request, granted, granted_now, hold, holder, ops, partition,
    poll_times, release, requests_of, session, spawn, start_waiting,
};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

for_each_lock! {
    #[test] pairs: [
        an_acquire_dropped_after_any_poll_leaves_nothing,
        a_try_dropped_after_any_poll_leaves_nothing,
        an_acquire_aborted_after_any_turn_leaves_nothing,
        a_try_aborted_after_any_turn_leaves_nothing,
        an_acquire_aborted_at_any_time_after_a_cut_leaves_nothing,
        a_hand_off_aborted_after_any_turn_leaves_nothing,
        a_release_dropped_after_any_poll_goes_on_and_leaves_the_next_alone,
        a_timeout_at_any_moment_around_the_grant_is_a_grant_or_leaves_nothing,
        a_timeout_of_zero_is_one_look_without_a_wait,
        a_timeout_is_not_stretched_by_reconnects,
        an_acquire_cancelled_while_disconnected_sends_no_create,
    ]
    #[test] locks: [a_cancelled_acquire_does_not_spoil_the_next]
}

/// Number of requests of an acquire or a try at which the connection is cut.
const REQUESTS: usize = 8;

fn drop_everywhere<H: Case, W: Case>(is_try: bool) -> usize {
    let drop_from = |start: Start| {
        at_every_poll(REQUESTS, |polls, trouble| {
            run(async {
                let bench = Bench::<H, W>::new(start).await;
                bench.drop_after_polls(is_try, polls, trouble, start).await
            })
        })
    };
    Start::all::<H, W>().into_iter().map(drop_from).sum()
}

fn an_acquire_dropped_after_any_poll_leaves_nothing<H: Case, W: Case>() {
    let points = drop_everywhere::<H, W>(false);
    eprintln!("{} behind {}: {points} acquires dropped", W::NAME, H::NAME);
    assert!(points >= 500 * Start::all::<H, W>().len(), "{points}");
}

fn a_try_dropped_after_any_poll_leaves_nothing<H: Case, W: Case>() {
    let points = drop_everywhere::<H, W>(true);
    eprintln!("{} behind {}: {points} tries dropped", W::NAME, H::NAME);
    assert!(points >= 300 * Start::all::<H, W>().len(), "{points}");
}

fn abort_everywhere<H: Case, W: Case>(is_try: bool) -> usize {
    let abort_from = |start: Start| {
        at_every_turn(REQUESTS, |turns, trouble| {
            run(async {
                let bench = Bench::<H, W>::new(start).await;
                bench.abort_after_turns(is_try, turns, trouble, start).await
            })
        })
    };
    Start::all::<H, W>().into_iter().map(abort_from).sum()
}

fn an_acquire_aborted_after_any_turn_leaves_nothing<H: Case, W: Case>() {
    let points = abort_everywhere::<H, W>(false);
    eprintln!("{} behind {}: {points} acquires aborted", W::NAME, H::NAME);
    assert!(points >= 4_000 * Start::all::<H, W>().len(), "{points}");
}

fn a_try_aborted_after_any_turn_leaves_nothing<H: Case, W: Case>() {
    let points = abort_everywhere::<H, W>(true);
    eprintln!("{} behind {}: {points} tries aborted", W::NAME, H::NAME);
    assert!(points >= 1_000 * Start::all::<H, W>().len(), "{points}");
}

/// The acquire is aborted while the client is disconnected, or while it reconnects.
fn an_acquire_aborted_at_any_time_after_a_cut_leaves_nothing<H: Case, W: Case>() {
    let mut points = 0;
    for trouble in Trouble::all(second_session(), REQUESTS) {
        for after in [0, 1, 20, 60, 149, 151, 299, 301, 340, 400, 600] {
            points += 1;
            run(async {
                let bench = Bench::<H, W>::new(Start::Held).await;
                trouble.begin(&bench.world);
                let task = spawn(bench.acquire(false));
                sleep_ms(after).await;
                trouble.cancelling(&bench.world);
                task.abort();
                trouble.cancelled(&bench.world);
                bench.check(&format!("aborted after {after} ms, {trouble:?}")).await;
            });
        }
    }
    eprintln!("{} behind {}: {points} acquires aborted in time", W::NAME, H::NAME);
}

/// The contender in the middle is aborted around the moment of its grant, and the contender behind
/// it always gets the lock.
fn a_hand_off_aborted_after_any_turn_leaves_nothing<H: Case, W: Case>() {
    let mut granted_before = 0;
    for turns in 0..50 {
        run(async {
            let world = World::new();
            let (other, held) = holder::<H>(&world, FIRST).await;
            let (client, third) = (world.client(SECOND).await, world.client(THIRD).await);
            let waiter = start_waiting(&world, W::of(&client).acquire()).await;
            let last = start_waiting(&world, W::Rival::of(&third).acquire()).await;
            drop(held);
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            granted_before += usize::from(waiter.is_finished());
            waiter.abort();
            drop(waiter);
            sleep_ms(10).await;
            release(granted_now(&world, last).await).await;
            world.check_clean(&[&client, &other, &third]).await;
        });
    }
    assert!((1..50).contains(&granted_before), "before and after the grant: {granted_before}");
}

/// Another contender may be waiting. Its znode survives whatever happens to the release.
fn a_release_dropped_after_any_poll_goes_on_and_leaves_the_next_alone<H: Case, W: Case>() {
    let id = second_session();
    let mut points = 0;
    for has_waiter in [false, true] {
        for trouble in Trouble::all(id, 3) {
            for polls in 0..10 {
                points += 1;
                run(async {
                    // The client releases as `H`, so that a `W` can wait for it.
                    let bench = Bench::<W, H>::new(Start::Free).await;
                    let Bench { world, client, other, .. } = bench;
                    let guard = hold(&H::of(&client)).await;
                    let waiter = if has_waiter {
                        Some(start_waiting(&world, W::of(&other).acquire()).await)
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
                        Some(waiter) => Some(Held::Excluding(granted(waiter).await)),
                        None => None,
                    };
                    let label = format!("release dropped after {polls} polls, {trouble:?}");
                    Bench::<W, H> { world, client, other, held }.check(&label).await;
                });
            }
        }
    }
    eprintln!("{} behind {}: {points} releases dropped", W::NAME, H::NAME);
}

/// Each reply takes 3 ms, and the lock becomes free after 20 ms.
fn a_timeout_at_any_moment_around_the_grant_is_a_grant_or_leaves_nothing<H: Case, W: Case>() {
    let (mut acquired, mut timed_out) = (0, 0);
    for start in Start::all::<H, W>() {
        for timeout in 0..=60 {
            run(async {
                let bench = Bench::<H, W>::new(start).await;
                let lock = bench.lock();
                let Bench { world, client, other, held } = bench;
                for nth in 0..8 {
                    let slow = Action::Delay(Duration::from_millis(3));
                    world.server.inject(at_request(session(&client), nth, slow));
                }
                let holding = async {
                    sleep_ms(20).await;
                    drop(held);
                };
                let waiting = lock.acquire().timeout(Duration::from_millis(timeout));
                let (ended, ()) = tokio::join!(waiting.into_future(), holding);
                world.server.clear_faults();
                match ended {
                    Ok(guard) => {
                        acquired += 1;
                        guard.validate().await.expect("the lock is held");
                        release(guard).await;
                    }
                    Err(error) => {
                        timed_out += 1;
                        assert!(error.is_timed_out());
                    }
                }
                world.check_clean(&[&client, &other]).await;
            });
        }
    }
    let acquired_min = 30 * Start::all::<H, W>().len();
    assert!(
        acquired >= acquired_min && timed_out >= 10,
        "{acquired} acquired, {timed_out} timed out"
    );
}

fn a_timeout_of_zero_is_one_look_without_a_wait<H: Case, W: Case>() {
    run(async {
        let bench = Bench::<H, W>::new(Start::Held).await;
        let before = bench.client.now();
        let ended = bench.lock().acquire().timeout(Duration::ZERO).await.map(drop);
        assert!(matches!(ended, Err(LockError::TimedOut(_))));
        assert_eq!(bench.client.now(), before);
        bench.check("after a timeout of zero").await;
    });
}

fn a_timeout_is_not_stretched_by_reconnects<H: Case, W: Case>() {
    run(async {
        let bench = Bench::<H, W>::new(Start::Held).await;
        let timeout = Duration::from_millis(5_000);
        let before = bench.client.now();
        let waiter = spawn(bench.lock().acquire().timeout(timeout).into_future());
        while !waiter.is_finished() {
            bench.world.server.disconnect_all();
            sleep_ms(97).await;
        }
        let ended = waiter.await.expect("an acquire does not panic").map(drop);
        assert!(matches!(ended, Err(LockError::TimedOut(_))));
        let waited = bench.client.now().saturating_since(before);
        assert!(waited >= timeout && waited <= timeout + Duration::from_millis(97), "{waited:?}");
        bench.check("after reconnects").await;
    });
}

fn a_cancelled_acquire_does_not_spoil_the_next<C: Case>() {
    run(async {
        let world = World::new().pace(Pace::of(10));
        let client = world.client(FIRST).await;
        let lock = C::of(&client);
        for polls in 0..10 {
            drop(poll_times(lock.acquire().into_future(), polls, || {}).await);
            release(hold(&lock).await).await;
        }
        world.check_clean(&[&client]).await;
    });
}

/// A request that is withdrawn before the client has sent it is never sent.
fn an_acquire_cancelled_while_disconnected_sends_no_create<H: Case, W: Case>() {
    run(async {
        let bench = Bench::<H, W>::new(Start::Held).await;
        let Bench { world, client, .. } = &bench;
        partition(world, 1_000);
        sleep_ms(10).await;
        world.server.clear_requests();
        let waiter = spawn(bench.acquire(false));
        sleep_ms(100).await;
        waiter.abort();
        sleep_ms(3_000).await;
        let sent = requests_of(world, session(client));
        assert_eq!(ops(&sent), [] as [OpCode; 0], "{}", world.trace());
        bench.check("cancelled while disconnected").await;
    });
}
