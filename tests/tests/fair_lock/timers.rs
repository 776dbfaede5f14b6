//! Timers and clocks: options at their extremes, clocks that differ.

use std::future::IntoFuture as _;
use std::time::Duration;

use zk_recipes::{Client, FairLock, LockError};
use zk_tests::world::{DIRECTORY, World, run, runtime, sleep_ms};

use crate::{FIRST, SECOND, granted_now, holder, queue_up, release, spawn};

/// Between two looks at the clocks a process may be paused, so a timer may come too early by the
/// clock of the client. Here tokio's clock is virtual and that of the client is not: every timer
/// comes too early.
#[test]
fn a_timer_that_comes_too_early_is_no_timeout() {
    runtime().block_on(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = Client::builder("in-process")
            .transport(world.server.connector())
            .connect()
            .await
            .expect("the server is in this process");
        let lock = FairLock::builder(&client, DIRECTORY)
            .and_then(|lock| lock.safety_relist(Some(Duration::from_millis(100))).build())
            .expect("the options are legal");
        let waiter = spawn(lock.acquire().into_future());
        // Real time, in which several checks are due.
        let begin = client.now();
        while client.now().saturating_since(begin) < Duration::from_millis(500) {
            sleep_ms(1).await;
            assert!(!waiter.is_finished(), "nothing has happened");
        }
        release(held).await;
        let guard = waiter.await.expect("it does not panic").expect("there is no timeout");
        release(guard).await;
        drop(other);
    });
}

#[test]
fn a_deadline_comes_by_the_clock_of_the_client() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        for ms in [0, 1, 999, 100_000] {
            let begin = client.now();
            let timeout = Duration::from_millis(ms);
            let ended = World::lock(&client).acquire().timeout(timeout).await.map(drop);
            assert_eq!(ended, Err(LockError::TimedOut));
            assert_eq!(client.now().saturating_since(begin), timeout);
        }
        release(held).await;
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn no_duration_is_too_long() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        for long in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::MAX / 2] {
            let lock = FairLock::builder(&client, DIRECTORY)
                .and_then(|lock| lock.safety_relist(Some(long)).build())
                .expect("it is never checked");
            assert!(lock.try_acquire().timeout(long).await.expect("it can be asked").is_none());
            let waiter = spawn(lock.acquire().timeout(long).into_future());
            sleep_ms(100).await;
            waiter.abort();
        }
        let waiter = spawn(World::lock(&client).acquire().timeout(Duration::MAX).into_future());
        sleep_ms(100).await;
        release(held).await;
        release(granted_now(&world, waiter).await).await;
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn an_interval_that_would_be_a_hot_loop_is_refused() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        for short in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(9)] {
            let built = FairLock::builder(&client, DIRECTORY)
                .and_then(|lock| lock.safety_relist(Some(short)).build());
            let error = built.expect_err("it is too short").to_string();
            assert!(error.contains("safety_relist") && error.contains("10 ms"), "{error}");
        }
    });
}

/// A lane has one alarm, which may have been asked for by an earlier wait.
#[test]
fn an_alarm_of_an_earlier_wait_is_no_timeout() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let lock = FairLock::builder(&client, DIRECTORY)
            .and_then(|lock| lock.safety_relist(Some(Duration::from_secs(10))).build())
            .expect("the options are legal");
        let ahead = queue_up(&world, &World::lock(&other)).await;
        let waiter = queue_up(&world, &lock).await;
        sleep_ms(5_000).await;
        // The next check is due 10 s from here, and not 10 s from the beginning.
        ahead.abort();
        sleep_ms(9_000).await;
        assert!(!waiter.is_finished(), "nothing has happened");
        release(held).await;
        release(granted_now(&world, waiter).await).await;
        world.check_clean(&[&client, &other]).await;
    });
}
