//! Guards and handles that are dropped in unusual places, and what each of them keeps alive.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{Client, CloseOutcome, Guard, LockError, LockState};
use zk_tests::world::{World, run, runtime, sleep_ms};
use zk_testserver::Action;

use crate::{FIRST, SECOND, at_request, holder, queue_up, release, session, spawn};

#[test]
fn a_guard_dropped_in_a_plain_thread_releases() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        std::thread::scope(|scope| {
            scope.spawn(move || drop(guard));
        });
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_guard_dropped_by_a_panic_releases() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        let caught = catch_unwind(AssertUnwindSafe(move || {
            let _held = guard;
            resume_unwind(Box::new("wanted"));
        }));
        assert!(caught.is_err());
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_task_that_panics_while_holding_releases() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        let task = spawn(async move {
            let _held = guard;
            sleep_ms(200).await;
            resume_unwind(Box::new("wanted"));
        });
        assert!(task.await.is_err_and(|error| error.is_panic()));
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_task_that_is_aborted_while_holding_releases() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        let task = spawn(async move {
            let _held = guard;
            std::future::pending::<()>().await;
        });
        sleep_ms(200).await;
        task.abort();
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_guard_dropped_while_disconnected_releases_later() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        crate::partition(&world, 1_000);
        drop(guard);
        sleep_ms(900).await;
        assert_eq!(world.contenders().len(), 1);
        world.check_clean(&[&client]).await;
        assert!(world.server.sessions().contains(&session(&client)), "without an expiry");
    });
}

/// Returns a client and its guard after their runtime has ended, with all its tasks.
fn after_shutdown() -> (Client, Guard) {
    let runtime = runtime();
    runtime.block_on(async {
        let world = World::new();
        holder(&world, FIRST).await
    })
}

/// Polls a future once, without a runtime.
fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_guard_dropped_after_the_runtime_has_shut_down_does_nothing() {
    let (client, guard) = after_shutdown();
    drop(guard);
    drop(client);
}

#[test]
fn a_client_dropped_after_the_runtime_has_shut_down_does_nothing() {
    let (client, guard) = after_shutdown();
    drop(client);
    drop(guard);
}

#[test]
fn a_guard_that_outlives_the_runtime_is_not_held_for_ever() {
    let (client, guard) = after_shutdown();
    // The clock of the runtime has stopped. The test only checks that nothing panics or hangs.
    let _ = guard.state();
    assert!(poll_once(client.close()).is_ready());
    let ended = poll_once(guard.release());
    assert_eq!(ended, Poll::Ready(Err(LockError::Closed)));
}

#[test]
fn an_acquire_dropped_after_the_runtime_has_shut_down_does_nothing() {
    let runtime = runtime();
    let (client, waiting, held) = runtime.block_on(async {
        let world = World::new();
        let (client, held) = holder(&world, FIRST).await;
        let mut waiting = Box::pin(World::lock(&client).acquire().into_future());
        tokio::select! {
            _ = &mut waiting => panic!("it is held"),
            () = sleep_ms(100) => {}
        }
        (client, waiting, held)
    });
    drop(runtime);
    drop(waiting);
    drop(held);
    drop(client);
}

#[test]
fn closing_the_client_frees_a_lock_whose_guard_was_forgotten() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        std::mem::forget(guard);
        sleep_ms(1_000).await;
        assert_eq!(world.contenders().len(), 1);
        assert_eq!(client.close().await, CloseOutcome::Closed);
        assert_eq!(world.contenders(), [""; 0]);
        assert_eq!(world.server.sessions(), []);
    });
}

#[test]
fn a_guard_outlives_the_handle_of_its_client() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        drop(client);
        sleep_ms(60_000).await;
        assert_eq!(guard.state(), LockState::Held);
        guard.validate().await.expect("the lock is held");
        crate::partition(&world, 500);
        sleep_ms(3_000).await;
        assert_eq!(guard.state(), LockState::Held);
        release(guard).await;
        world.until("the session is closed", |server| server.sessions().is_empty()).await;
    });
}

#[test]
fn the_session_is_closed_when_all_handles_and_guards_are_gone() {
    for is_dropped_last in ["client", "guard", "waiter"] {
        run(async {
            let world = World::new();
            let (client, guard) = holder(&world, FIRST).await;
            let waiter = queue_up(&world, &World::lock(&client)).await;
            match is_dropped_last {
                "client" => {
                    waiter.abort();
                    drop(guard);
                    sleep_ms(100).await;
                    drop(client);
                }
                "guard" => {
                    drop(client);
                    waiter.abort();
                    sleep_ms(100).await;
                    assert_eq!(guard.state(), LockState::Held);
                    drop(guard);
                }
                _ => {
                    drop((client, guard));
                    let next =
                        waiter.await.expect("the task does not panic").expect("the lock is free");
                    drop(next);
                }
            }
            let soon = Duration::from_secs(1);
            let closed = world.until("the session is closed", |s| s.sessions().is_empty());
            tokio::time::timeout(soon, closed).await.expect("without waiting for an expiry");
            assert_eq!(world.server.ephemerals(), []);
            let is_close = |op| op == OpCode::CLOSE_SESSION;
            assert!(world.server.requests().iter().any(|request| is_close(request.op)));
        });
    }
}

#[test]
fn a_client_closed_while_somebody_waits_ends_the_wait() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let waiter = queue_up(&world, &World::lock(&client)).await;
        client.close().await;
        let ended = waiter.await.expect("the task does not panic").map(drop);
        assert_eq!(ended, Err(LockError::Closed));
        assert_eq!(World::lock(&client).acquire().await.map(drop), Err(LockError::Closed));
        assert_eq!(World::lock(&client).try_acquire().await.map(drop), Err(LockError::Closed));
        assert_eq!(world.contenders().len(), 1);
        release(held).await;
        world.check_clean(&[&client, &other]).await;
    });
}

/// After a create with an unknown outcome, the janitor sweeps once more at the next reconnect, even
/// if the guard was dropped instead of released.
#[test]
fn a_tainted_attempt_is_swept_again_after_the_next_reconnect() {
    for is_dropped in [false, true] {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            crate::create_directory(&world);
            world.server.inject(at_request(session(&client), 0, Action::CutAfter));
            let guard = World::lock(&client).acquire().await.expect("the lock is free");
            if is_dropped {
                drop(guard);
            } else {
                release(guard).await;
            }
            sleep_ms(1_000).await;
            assert_eq!(world.contenders(), [""; 0]);
            world.server.clear_requests();
            world.server.disconnect_all();
            sleep_ms(2_000).await;
            let requests = crate::requests_of(&world, session(&client));
            let expected = [OpCode::MULTI, OpCode::GET_CHILDREN];
            assert_eq!(crate::ops(&requests), expected, "dropped: {is_dropped}");
            world.check_clean(&[&client]).await;
        });
    }
}
