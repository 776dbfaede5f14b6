//! Every way to lose a lock that is held. A lost guard stays lost, and tasks that wait for the loss
//! are woken.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode, SessionId};
use zk_recipes::{
    Client, CloseOutcome, Guard, LockError, LockState, LostReason, Released, SessionState,
};
use zk_tests::case::LOCK;
use zk_tests::scene::replace_by_copy;
use zk_tests::world::{SESSION_TIMEOUT, World, run, sleep_ms};
use zk_testserver::{Action, At, Fault, ServerConfig};

use crate::{
    FIRST, SECOND, at_op, create_directory, granted, holder, partition, queue_up, release, session,
    spawn,
};

/// Checks the state of a lost guard a moment after the loss, and that all waits for the loss have
/// ended.
async fn check_lost(world: &World, guard: &Guard, reason: LostReason) {
    let lost = spawn(guard.lost());
    sleep_ms(1).await;
    assert_eq!(guard.state(), LockState::Lost(reason), "{}", world.trace());
    assert!(lost.is_finished());
    assert_eq!(lost.await.expect("the task does not panic"), reason);
    assert_eq!(guard.validate().await, Err(LockError::Lost(reason)));
}

#[test]
fn deleting_the_znode_loses_the_lock() {
    for after in [0, 50, 99, 101, 5_000] {
        run(async {
            let world = World::new();
            let (client, guard) = holder(&world, FIRST).await;
            let lost = spawn(guard.lost());
            sleep_ms(after).await;
            assert!(world.server.admin_delete(guard.path()));
            // If the client does not watch the znode yet, only the first read reveals the loss.
            sleep_ms(105_u64.saturating_sub(after).max(1)).await;
            assert!(lost.is_finished(), "deleted after {after} ms\n{}", world.trace());
            check_lost(&world, &guard, LostReason::ZnodeDeleted).await;
            assert_eq!(guard.release().await, Ok(Released::AlreadyGone));
            world.check_clean(&[&client]).await;
        });
    }
}

#[test]
fn deleting_the_znode_while_disconnected_is_found_after_the_resume() {
    for after in [0, 1_000] {
        run(async {
            let world = World::new();
            let (client, guard) = holder(&world, FIRST).await;
            sleep_ms(after).await;
            partition(&world, 500);
            assert!(world.server.admin_delete(guard.path()));
            sleep_ms(400).await;
            assert_eq!(guard.state(), LockState::AtRisk);
            assert_eq!(guard.lost().await, LostReason::ZnodeDeleted);
            assert_eq!(client.session_id(), Some(guard.session()));
            check_lost(&world, &guard, LostReason::ZnodeDeleted).await;
            drop(guard);
            world.check_clean(&[&client]).await;
        });
    }
}

/// The validation waits for the connection, and is sent before the client knows of the copy.
#[test]
fn a_copy_of_the_znode_is_not_the_lock() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        let other = world.client(SECOND).await;
        sleep_ms(1_000).await;
        partition(&world, 500);
        let owner = session_of(&world, &client, &other);
        replace_by_copy(&world, guard.path(), owner);
        // Without this, the holder finds the copy before the reply to the validation arrives.
        let late = Action::Delay(Duration::from_millis(100));
        let second = At::op(OpCode::MULTI).of_session(session(&client)).after(1);
        world.server.inject(Fault::new(second, late));
        assert_eq!(guard.validate().await, Err(LockError::Lost(LostReason::ZnodeDeleted)));
        drop(guard);
        other.close().await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_znode_replaced_by_another_sessions_is_lost() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        let other = world.client(SECOND).await;
        partition(&world, 500);
        assert!(world.server.admin_delete(guard.path()));
        world.server.admin_create(guard.path(), b"", Some(session_of(&world, &client, &other)));
        assert_eq!(guard.lost().await, LostReason::ZnodeDeleted);
        drop(guard);
        sleep_ms(1_000).await;
    });
}

fn session_of(world: &World, client: &Client, other: &Client) -> SessionId {
    let sessions = world.server.sessions();
    assert_eq!(sessions.len(), 2);
    assert!(sessions.contains(&session(client)));
    session(other)
}

#[test]
fn the_end_of_the_session_loses_the_lock() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        sleep_ms(300).await;
        let lost = spawn(guard.lost());
        world.server.expire(session(&client));
        assert_eq!(lost.await.expect("the task does not panic"), LostReason::SessionExpired);
        check_lost(&world, &guard, LostReason::SessionExpired).await;
        sleep_ms(3_000).await;
        assert_ne!(client.session_id(), Some(guard.session()));
        assert_eq!(guard.state(), LockState::Lost(LostReason::SessionExpired));
        assert_eq!(guard.release().await, Ok(Released::EndedWithSession));
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_session_resumed_under_another_id_loses_the_lock() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        let before = session(&client);
        world.server.inject(Fault::new(At::connect(0), Action::SwapSession));
        world.server.disconnect_all();
        assert_eq!(guard.lost().await, LostReason::SessionExpired);
        sleep_ms(1_000).await;
        assert!(world.server.pending_faults().is_empty());
        assert_ne!(session(&client), before);
        check_lost(&world, &guard, LostReason::SessionExpired).await;
        assert_eq!(guard.release().await, Ok(Released::EndedWithSession));
        // The old session expires, and its znode is deleted with it.
        world.until("it is over", |server| !server.sessions().contains(&before)).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn closing_the_client_loses_the_lock_first() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        let slow = Action::Delay(Duration::from_millis(100));
        world.server.inject(at_op(session(&client), OpCode::CLOSE_SESSION, slow));
        let lost = spawn(guard.lost());
        let closer = client.clone();
        let closing = spawn(async move { closer.close().await });
        world.until("it is being closed", |server| server.pending_faults().is_empty()).await;
        assert!(!closing.is_finished());
        assert!(lost.is_finished(), "the guard is lost before the server gets the close");
        check_lost(&world, &guard, LostReason::Closed).await;
        assert_eq!(closing.await.expect("the task does not panic"), CloseOutcome::Closed);
        assert_eq!(world.contenders(), [""; 0]);
        assert_eq!(guard.state(), LockState::Lost(LostReason::Closed));
        assert_eq!(guard.release().await, Err(LockError::Closed));
    });
}

#[test]
fn a_black_hole_loses_the_lock_before_the_server_ends_the_session() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        sleep_ms(150).await;
        guard.validate().await.expect("the lock is held");
        let proven = client.now();
        world.server.inject(at_op(session(&client), OpCode::PING, Action::Freeze));
        world.server.refuse_for(Duration::from_secs(60));
        let znode = guard.path().to_owned();
        assert_eq!(guard.lost().await, LostReason::DeadlinePassed);
        assert_eq!(client.now().saturating_since(proven), SESSION_TIMEOUT);
        assert!(world.server.stat(&znode).is_some(), "another contender may hold the lock already");
        check_lost(&world, &guard, LostReason::DeadlinePassed).await;
        drop(guard);
        world.until("the server ends the session", |server| server.stat(&znode).is_none()).await;
    });
}

/// The clock jumps, as after a pause of the process. The guard is lost at once, before any task has
/// run.
#[test]
fn a_guard_knows_that_its_deadline_has_passed_although_nothing_has_run() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        sleep_ms(200).await;
        assert_eq!(guard.state(), LockState::Held);
        {
            let mut jump = pin!(tokio::time::advance(SESSION_TIMEOUT));
            let polled = jump.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending(), "others have not run yet");
            assert_eq!(guard.state(), LockState::Lost(LostReason::DeadlinePassed));
            jump.await;
        }
        check_lost(&world, &guard, LostReason::DeadlinePassed).await;
        drop(guard);
        world.check_clean(&[&client]).await;
    });
}

/// A task that sees that the client has lost its session also sees that the guard is lost.
#[test]
fn a_guard_is_lost_no_later_than_the_state_of_the_client_says_so() {
    for is_closed in [false, true] {
        run(async {
            let world = World::new();
            let (client, guard) = holder(&world, FIRST).await;
            let mut states = client.states();
            states.current();
            let watching = spawn(async move {
                while let Some(status) = states.next().await {
                    let is_over = status.session != Some(guard.session());
                    if is_over || status.state == SessionState::Closed {
                        return guard.state();
                    }
                }
                panic!("the session never ended");
            });
            let reason = if is_closed {
                client.close().await;
                LostReason::Closed
            } else {
                world.server.expire(session(&client));
                LostReason::SessionExpired
            };
            let state = watching.await.expect("it sees the end");
            assert_eq!(state, LockState::Lost(reason));
        });
    }
}

#[test]
fn a_jump_of_less_than_the_timeout_is_only_a_risk() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        guard.validate().await.expect("the lock is held");
        {
            let mut jump = pin!(tokio::time::advance(SESSION_TIMEOUT - Duration::from_millis(1)));
            let _ = jump.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(guard.state(), LockState::AtRisk);
            jump.await;
        }
        drop(guard);
        world.check_clean(&[&client]).await;
    });
}

/// The session lives longer than the guard deadline, because servers count in ticks. The guard is
/// lost at the deadline.
#[test]
fn a_guard_stays_lost_when_the_session_comes_back_and_its_znode_is_removed() {
    run(async {
        let world = World::with(ServerConfig::default().tick(Duration::from_secs(5)));
        let (client, guard) = holder(&world, FIRST).await;
        sleep_ms(150).await;
        guard.validate().await.expect("the lock is held");
        partition(&world, 10_500);
        assert_eq!(guard.lost().await, LostReason::DeadlinePassed);
        let znode = guard.path().to_owned();
        assert!(world.server.stat(&znode).is_some());
        world.until("it is removed", |server| server.stat(&znode).is_none()).await;
        assert_eq!(client.session_id(), Some(guard.session()), "the session lives");
        assert!(world.server.sessions().contains(&guard.session()));
        check_lost(&world, &guard, LostReason::DeadlinePassed).await;
        sleep_ms(20_000).await;
        assert_eq!(guard.state(), LockState::Lost(LostReason::DeadlinePassed));
        // Only the guard was lost. The next acquire works in the same session.
        let next = World::lock(&client).acquire().await.expect("the lock is free");
        assert_eq!(next.session(), guard.session());
        assert_eq!(guard.state(), LockState::Lost(LostReason::DeadlinePassed));
        assert_eq!(guard.release().await, Ok(Released::Released));
        release(next).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_waiter_behind_a_lost_guard_is_granted_when_its_znode_is_removed() {
    run(async {
        let world = World::with(ServerConfig::default().tick(Duration::from_secs(5)));
        let (client, guard) = holder(&world, FIRST).await;
        guard.validate().await.expect("the lock is held");
        let other = world.client(SECOND).await;
        let waiter = queue_up(&world, &World::lock(&other)).await;
        partition(&world, 10_500);
        assert_eq!(guard.lost().await, LostReason::DeadlinePassed);
        assert!(!waiter.is_finished());
        let next = granted(waiter).await;
        assert!(next.fencing_token() > guard.fencing_token());
        drop((guard, next));
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn losing_twice_keeps_the_first_reason() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        sleep_ms(200).await;
        assert!(world.server.admin_delete(guard.path()));
        sleep_ms(10).await;
        world.server.expire(session(&client));
        sleep_ms(3_000).await;
        client.close().await;
        assert_eq!(guard.state(), LockState::Lost(LostReason::ZnodeDeleted));
    });
}

#[test]
fn nobody_is_told_of_a_loss_after_a_release() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        let lost = spawn(guard.lost());
        release(guard).await;
        world.server.expire(session(&client));
        sleep_ms(5_000).await;
        assert_eq!(lost.await.expect("it does not panic"), LostReason::Released);
    });
}

/// The waiter finds its predecessor gone, and fails to watch its own znode in the same flight. The
/// next list grants the lock, and the waiter must not assume that its znode is watched.
#[test]
fn deleting_the_znode_is_seen_though_the_waiter_failed_to_watch_it() {
    for action in [Action::Error(ErrorCode::THROTTLED_OP), Action::CutBefore] {
        run(async {
            let world = World::new();
            let ahead = format!("{LOCK}/ahead-lock-0000000000");
            create_directory(&world);
            world.server.admin_create(&ahead, b"", None);
            let client = world.client(FIRST).await;
            let session = session(&client);
            let late = Action::Delay(Duration::from_millis(100));
            world.server.inject(at_op(session, OpCode::GET_CHILDREN, late));
            let own_read = At::op(OpCode::GET_DATA).of_session(session).after(1);
            world.server.inject(Fault::new(own_read, action));
            let waiter = spawn(World::lock(&client).acquire().into_future());
            sleep_ms(50).await;
            assert!(world.server.admin_delete(&ahead));
            let guard = granted(waiter).await;
            sleep_ms(1_000).await;
            assert_eq!(guard.state(), LockState::Held);
            assert!(world.server.admin_delete(guard.path()));
            check_lost(&world, &guard, LostReason::ZnodeDeleted).await;
            drop(guard);
            world.check_clean(&[&client]).await;
        });
    }
}
