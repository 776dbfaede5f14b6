//! Bodies of work that are stopped when the lock is lost.

use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{Client, Guard, LockState, LostReason, Released, Stopped};
use zk_tests::scene::settle;
use zk_tests::world::{SESSION_TIMEOUT, World, run, runtime, sleep_ms};
use zk_testserver::Action;

use crate::{FIRST, SECOND, at_op, granted, holder, partition, queue_up, release, session, spawn};

/// The record of a body: its polls and its drop.
#[derive(Clone, Default)]
struct Seen {
    polls: Rc<Cell<usize>>,
    is_dropped: Rc<Cell<bool>>,
}

struct TellDrop(Rc<Cell<bool>>);

impl Drop for TellDrop {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

/// Wraps a body, and records its polls and its drop.
async fn watched<T>(seen: Seen, body: impl Future<Output = T>) -> T {
    let _tell = TellDrop(Rc::clone(&seen.is_dropped));
    let mut body = pin!(body);
    poll_fn(|cx| {
        seen.polls.set(seen.polls.get() + 1);
        body.as_mut().poll(cx)
    })
    .await
}

/// Advances the clock without running any task, as in a pause of the process.
fn pause(duration: Duration) {
    let jump = pin!(tokio::time::advance(duration));
    assert!(jump.poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[test]
fn a_body_that_comes_to_its_end_brings_its_output() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        assert_eq!(guard.run(async { 17 }).await, Ok(17));
        sleep_ms(200).await;
        world.server.clear_requests();
        let body = async {
            sleep_ms(30_000).await;
            "done"
        };
        assert_eq!(guard.run(body).await, Ok("done"));
        assert_eq!(world.server.requests(), [], "running costs nothing\n{}", world.trace());
        assert_eq!(guard.state(), LockState::Held);
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

/// The body is dropped at the same instant at which a wait for the loss ends.
#[test]
fn a_body_is_dropped_as_soon_as_the_lock_is_lost() {
    for reason in [
        LostReason::SessionExpired,
        LostReason::ZnodeDeleted,
        LostReason::DeadlinePassed,
        LostReason::Closed,
    ] {
        for stops_at_risk in [false, true] {
            run(async {
                let world = World::new();
                let (client, guard) = holder(&world, FIRST).await;
                sleep_ms(200).await;
                let told = spawn(stamped(client.clone(), guard.lost()));
                lose(&world, &client, &guard, reason);
                let seen = Seen::default();
                let body = guard.run(watched(seen.clone(), pending::<()>()));
                let body = if stops_at_risk { body.stop_at_risk() } else { body };
                let (stopped, at) = stamped(client.clone(), body).await;
                assert!(seen.is_dropped.get());
                let (lost, lost_at) = told.await.expect("the task does not panic");
                assert_eq!(lost, reason);
                if stopped == Err(Stopped::AtRisk) {
                    // The connection ended first, or was silent for too long.
                    assert!(stops_at_risk && at <= lost_at, "{reason}");
                } else {
                    assert_eq!((stopped, at), (Err(Stopped::Lost(reason)), lost_at));
                }
                assert_eq!(guard.state(), LockState::Lost(reason));
                // The lost guard can still be used.
                assert_eq!(guard.run(async {}).await, Err(Stopped::Lost(reason)));
                if reason == LostReason::ZnodeDeleted {
                    assert_eq!(guard.release().await, Ok(Released::AlreadyGone));
                }
            });
        }
    }
}

/// Causes the loss of the lock, at once or soon.
fn lose(world: &World, client: &Client, guard: &Guard, reason: LostReason) {
    match reason {
        LostReason::SessionExpired => world.server.expire(session(client)),
        LostReason::ZnodeDeleted => assert!(world.server.admin_delete(guard.path())),
        LostReason::Closed => {
            let client = client.clone();
            spawn(async move { client.close().await });
        }
        LostReason::DeadlinePassed | _ => partition(world, 60_000),
    }
}

/// Awaits a future, and returns its output and the time of its completion.
async fn stamped<T>(client: Client, future: impl Future<Output = T>) -> (T, zk_recipes::Time) {
    let output = future.await;
    (output, client.now())
}

#[test]
fn a_lost_lock_begins_no_body() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        world.server.expire(session(&client));
        let reason = guard.lost().await;
        for stops_at_risk in [false, true] {
            let seen = Seen::default();
            let body = guard.run(watched(seen.clone(), async {}));
            let body = if stops_at_risk { body.stop_at_risk() } else { body };
            assert_eq!(body.await, Err(Stopped::Lost(reason)));
            assert_eq!(seen.polls.get(), 0);
        }
        drop(guard);
        world.check_clean(&[&client]).await;
    });
}

/// Pauses, whether the run stops at a risk, and how the run ends: a pause is past the deadline, or
/// only long enough for a risk.
const PAUSES: [(Duration, bool, Stopped); 3] = [
    (SESSION_TIMEOUT, false, Stopped::Lost(LostReason::DeadlinePassed)),
    (SESSION_TIMEOUT, true, Stopped::Lost(LostReason::DeadlinePassed)),
    (Duration::from_secs(9), true, Stopped::AtRisk),
];

/// The process is paused between two polls. No event reports the pause. Only the clock shows it.
#[test]
fn a_body_is_not_polled_again_after_a_pause_that_was_too_long() {
    for (length, stops_at_risk, stopped) in PAUSES {
        run(async {
            let world = World::new();
            let (_client, guard) = holder(&world, FIRST).await;
            // A body that stops at risk begins when the session's task knows of the lock.
            settle().await;
            let seen = Seen::default();
            let body = guard.run(watched(seen.clone(), pending::<()>()));
            let mut body = pin!(if stops_at_risk { body.stop_at_risk() } else { body });
            let mut cx = Context::from_waker(Waker::noop());
            assert!(body.as_mut().poll(&mut cx).is_pending());
            assert_eq!(seen.polls.get(), 1);
            pause(length);
            assert_eq!(body.as_mut().poll(&mut cx), Poll::Ready(Err(stopped)));
            assert_eq!((seen.polls.get(), seen.is_dropped.get()), (1, true));
        });
    }
}

/// A poll takes too long, whether or not it is the last poll of the body.
#[test]
fn a_body_that_ends_with_the_loss_is_reported_as_stopped() {
    for (length, stops_at_risk, stopped) in PAUSES {
        for is_last in [false, true] {
            run(async {
                let world = World::new();
                let (client, guard) = holder(&world, FIRST).await;
                let seen = Seen::default();
                let blocking = async {
                    sleep_ms(300).await;
                    pause(length);
                    if !is_last {
                        pending::<()>().await;
                    }
                };
                let body = guard.run(watched(seen.clone(), blocking));
                let body = if stops_at_risk { body.stop_at_risk() } else { body };
                assert_eq!(body.await, Err(stopped));
                assert!(seen.is_dropped.get());
                drop(guard);
                world.check_clean(&[&client]).await;
            });
        }
    }
}

#[test]
fn at_risk_a_body_goes_on_unless_it_is_to_be_stopped() {
    for stops_at_risk in [false, true] {
        run(async {
            let world = World::new();
            let (client, guard) = holder(&world, FIRST).await;
            sleep_ms(200).await;
            let seen = Seen::default();
            let body = guard.run(watched(seen.clone(), sleep_ms(2_000)));
            let body = if stops_at_risk { body.stop_at_risk() } else { body };
            let begun = client.now();
            let cut = async {
                sleep_ms(100).await;
                partition(&world, 500);
            };
            let (ended, ()) = tokio::join!(stamped(client.clone(), body), cut);
            let (expected, after) =
                if stops_at_risk { (Err(Stopped::AtRisk), 100) } else { (Ok(()), 2_000) };
            assert_eq!(ended.0, expected);
            assert_eq!(ended.1.saturating_since(begun), Duration::from_millis(after));
            assert!(seen.is_dropped.get());
            // The guard keeps the lock, whether the body was stopped or not.
            sleep_ms(2_000).await;
            assert_eq!(guard.state(), LockState::Held);
            assert_eq!(guard.run(async { 17 }).stop_at_risk().await, Ok(17));
            release(guard).await;
            world.check_clean(&[&client]).await;
        });
    }
}

#[test]
fn at_risk_no_body_is_begun_that_is_to_be_stopped() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        partition(&world, 500);
        sleep_ms(10).await;
        let seen = Seen::default();
        let body = guard.run(watched(seen.clone(), async {})).stop_at_risk();
        assert_eq!((body.await, seen.polls.get()), (Err(Stopped::AtRisk), 0));
        assert_eq!(guard.run(async { 17 }).await, Ok(17));
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn an_overdue_acknowledgement_stops_a_body_that_is_to_be_stopped_at_risk() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        sleep_ms(1_000).await;
        guard.validate().await.expect("the lock is held");
        let proven = client.now();
        let slow = Action::Delay(Duration::from_secs(30));
        world.server.inject(at_op(session(&client), OpCode::PING, slow));
        let stopped = guard.run(pending::<()>()).stop_at_risk().await;
        assert_eq!(stopped, Err(Stopped::AtRisk));
        let after = client.now().saturating_since(proven).as_millis();
        assert!((6_667..=6_668).contains(&after), "after {after} ms");
        assert_eq!(guard.state(), LockState::AtRisk);
        drop(guard);
        world.check_clean(&[&client]).await;
    });
}

/// The run does not keep the runtime busy: it wakes no more often than pings are due.
#[test]
fn nothing_stops_a_body_while_the_lock_is_held() {
    for stops_at_risk in [false, true] {
        run(async {
            let world = World::new();
            let (client, guard) = holder(&world, FIRST).await;
            let seen = Seen::default();
            let body = guard.run(watched(seen.clone(), sleep_ms(100_000)));
            let body = if stops_at_risk { body.stop_at_risk() } else { body };
            assert_eq!(body.await, Ok(()));
            // Occasionally, the run checks whether the guard deadline has passed.
            let most = if stops_at_risk {
                100
            } else {
                100_000 / SESSION_TIMEOUT.as_millis() as usize * 2
            };
            assert!(seen.polls.get() <= most, "polled {} times", seen.polls.get());
            release(guard).await;
            world.check_clean(&[&client]).await;
        });
    }
}

#[test]
fn dropping_the_run_drops_the_body_and_keeps_the_lock() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        let seen = Seen::default();
        let body = guard.run(watched(seen.clone(), pending::<()>()));
        let timeout = tokio::time::timeout(Duration::from_millis(300), body).await;
        assert!(timeout.is_err() && seen.is_dropped.get());
        assert_eq!(guard.state(), LockState::Held);
        // This run is never polled.
        let seen = Seen::default();
        let tell = TellDrop(Rc::clone(&seen.is_dropped));
        drop(guard.run(async move { drop(tell) }));
        assert!(seen.is_dropped.get());
        assert_eq!(guard.run(async { 17 }).await, Ok(17));
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn the_next_holder_runs_while_a_stopped_body_is_gone() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        let other = world.client(SECOND).await;
        let waiter = queue_up(&world, &World::lock(&other)).await;
        let first = Seen::default();
        let znode = guard.path().to_owned();
        let stopped = guard.run(watched(first.clone(), pending::<()>()));
        let next = async {
            sleep_ms(200).await;
            assert!(world.server.admin_delete(&znode));
            let next = granted(waiter).await;
            next.run(async { assert!(first.is_dropped.get(), "two bodies at once") }).await?;
            Ok(next)
        };
        let (stopped, next) = tokio::join!(stopped, next);
        assert_eq!(stopped, Err(Stopped::Lost(LostReason::ZnodeDeleted)));
        release(next.unwrap_or_else(|stopped: Stopped| panic!("{stopped}"))).await;
        drop(guard);
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn several_bodies_may_run_under_one_guard_and_use_it() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        let validated = guard.run(guard.validate());
        let inner = guard.run(async { guard.run(async { guard.fencing_token() }).await });
        let (validated, inner) = tokio::join!(validated, inner);
        assert_eq!(validated, Ok(Ok(())));
        assert_eq!(inner, Ok(Ok(guard.fencing_token())));
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

/// The task owns the guard, and is `Send` because the body is.
#[test]
fn a_run_may_be_a_task() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        let lost = spawn(async move { guard.run(pending::<()>()).stop_at_risk().await });
        sleep_ms(200).await;
        world.server.expire(session(&client));
        let stopped = lost.await.expect("the task does not panic");
        assert!(stopped.is_err());
        world.check_clean(&[&client]).await;
    });
}

/// The runtime of the client has ended, so no task is left that could report anything.
#[test]
fn the_end_of_the_clients_runtime_stops_a_body() {
    let clients = runtime();
    let guard = clients.block_on(async {
        let world = World::new();
        holder(&world, FIRST).await.1
    });
    drop(clients);
    let stopped = run(guard.run(pending::<()>()).stop_at_risk());
    assert_eq!(stopped, Err(Stopped::Lost(LostReason::Closed)));
}
