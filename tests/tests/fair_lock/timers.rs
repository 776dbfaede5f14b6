//! Timers and clocks: extreme options, and clocks that run at different speeds.

use std::future::IntoFuture as _;
use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{Client, FairLock, LockError, LockState};
use zk_tests::case::LOCK;
use zk_tests::lockstep::Lockstep;
use zk_tests::world::{World, run, runtime, sleep_ms};
use zk_testserver::ServerConfig;

use crate::{
    FIRST, SECOND, granted_now, holder, ops, queue_up, release, requests_of, session, spawn,
};

/// A process may be paused between two reads of its clocks, so a timer may fire too early according
/// to the client's clock. In this test, tokio's clock is virtual and the client's clock is not, so
/// every timer fires too early.
#[test]
fn a_timer_that_comes_too_early_is_no_timeout() {
    runtime().block_on(async {
        // In half a second of real time an hour of virtual time may pass, but no ping is due.
        let ages = Duration::from_secs(1_000_000);
        let world = World::with(ServerConfig::default().max_session_timeout(ages));
        let (other, held) = holder(&world, SECOND).await;
        let client = Client::builder("in-process")
            .session_timeout(ages)
            .transport(world.server.connector())
            .connect()
            .await
            .expect("the server is in this process");
        let lock = FairLock::builder(&client, LOCK)
            .and_then(|lock| lock.watch_check(Some(Duration::from_millis(100))).build())
            .expect("the options are legal");
        world.server.clear_requests();
        let patience = Duration::from_secs(3_600);
        let waiter = spawn(lock.acquire().timeout(patience).into_future());
        // In this real time, several safety checks are due.
        let begin = client.now();
        while client.now().saturating_since(begin) < Duration::from_millis(500) {
            sleep_ms(1).await;
            assert!(!waiter.is_finished(), "nothing has happened");
        }
        // The first two reads happen on arrival: the waiter reads its predecessor and its own
        // znode.
        let reads = ops(&requests_of(&world, session(&client)));
        let reads = reads.iter().filter(|op| **op == OpCode::GET_DATA).count();
        assert!(reads > 2, "no check was due: {}", world.trace());
        release(held).await;
        let guard = waiter.await.expect("the task does not panic").expect("there is no timeout");
        release(guard).await;
        drop(other);
    });
}

/// The deadline is accurate to the 2 ms of a step, measured by the faster clock.
#[test]
fn a_deadline_comes_by_the_clock_of_the_client() {
    const SLACK: Duration = Duration::from_millis(2);
    for rate in [950, 1000, 1050] {
        let mut sides = Lockstep::new(ServerConfig::default(), rate);
        let other = sides.client(|builder| builder.seed(SECOND));
        let held = sides.hold(&other);
        let client = sides.client(|builder| builder.seed(FIRST));
        for ms in [0, 1, 999, 8_000] {
            let begin = (sides.now, sides.look(|| client.now()));
            let timeout = Duration::from_millis(ms);
            let acquire =
                sides.look(|| World::lock(&client).acquire().timeout(timeout).into_future());
            let ended = sides.finish(acquire);
            assert!(matches!(ended.map(drop), Err(LockError::TimedOut(_))));
            let (passed, by_client) = (
                sides.now.saturating_sub(begin.0),
                sides.look(|| client.now()).saturating_since(begin.1),
            );
            let label = format!("{ms} ms at {rate}: {by_client:?}, and {passed:?} by the servers");
            assert!((timeout..=timeout + SLACK).contains(&by_client), "{label}");
            let expected = timeout * 1000 / rate;
            assert!((expected..=expected + SLACK).contains(&passed), "{label}");
        }
        assert_eq!(sides.look(|| held.state()), LockState::Held);
    }
}

#[test]
fn no_duration_is_too_long() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        for long in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::MAX / 2] {
            let lock = FairLock::builder(&client, LOCK)
                .and_then(|lock| lock.watch_check(Some(long)).build())
                .expect("it is never checked");
            assert!(lock.try_acquire().timeout(long).await.expect("the server replies").is_none());
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
            let built = FairLock::builder(&client, LOCK)
                .and_then(|lock| lock.watch_check(Some(short)).build());
            let error = built.expect_err("it is too short").to_string();
            assert!(error.contains("watch_check") && error.contains("10ms"), "{error}");
        }
    });
}

/// A lane has one alarm, which an earlier wait may have set.
#[test]
fn an_alarm_of_an_earlier_wait_is_no_timeout() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let lock = FairLock::builder(&client, LOCK)
            .and_then(|lock| lock.watch_check(Some(Duration::from_secs(10))).build())
            .expect("the options are legal");
        let ahead = queue_up(&world, &World::lock(&other)).await;
        let waiter = queue_up(&world, &lock).await;
        sleep_ms(5_000).await;
        // The next safety check is due 10 s from now, not 10 s after the beginning.
        ahead.abort();
        sleep_ms(9_000).await;
        assert!(!waiter.is_finished(), "nothing has happened");
        release(held).await;
        release(granted_now(&world, waiter).await).await;
        world.check_clean(&[&client, &other]).await;
    });
}
