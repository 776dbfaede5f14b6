//! A guard while the lock is held: its state, its requests, and when it is at risk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jute_codec::{OpCode, Zxid};
use zk_recipes::{CreateMode, LockError, LockState, LostReason, Released};
use zk_tests::world::{World, cuts_at_request, run, sleep_ms};
use zk_testserver::{Action, ServerConfig};

use crate::{
    FIRST, SECOND, at_op, create_directory, delete_directory, granted_now, holder, ops, partition,
    queue_up, release, requests_of, session,
};

#[test]
fn the_own_znode_is_watched_a_while_after_the_grant_and_not_before() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        world.server.clear_requests();
        sleep_ms(99).await;
        assert_eq!(ops(&requests_of(&world, session(&client))), []);
        sleep_ms(2).await;
        let requests = requests_of(&world, session(&client));
        assert_eq!(ops(&requests), [OpCode::GET_DATA]);
        assert_eq!(requests[0].path.as_deref(), Some(guard.path()));
        sleep_ms(20_000).await;
        assert_eq!(requests_of(&world, session(&client)).len(), 1, "{}", world.trace());
        assert_eq!(world.server.watch_count(), 1);
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_lock_released_at_once_is_never_watched() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        world.server.clear_requests();
        sleep_ms(50).await;
        release(guard).await;
        sleep_ms(1_000).await;
        assert_eq!(ops(&requests_of(&world, session(&client))), [OpCode::DELETE]);
        assert_eq!(world.server.watch_count(), 0);
    });
}

#[test]
fn a_lock_that_was_waited_for_is_watched_from_the_first_moment() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let waiter = queue_up(&world, &World::lock(&client)).await;
        release(held).await;
        let guard = granted_now(&world, waiter).await;
        assert_eq!(guard.state(), LockState::Held);
        assert!(world.server.admin_delete(guard.path()));
        sleep_ms(1).await;
        assert_eq!(guard.state(), LockState::Lost(LostReason::ZnodeDeleted));
        drop(guard);
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn a_guard_is_at_risk_while_disconnected_and_held_again_once_proven() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        sleep_ms(200).await;
        assert_eq!(guard.state(), LockState::Held);
        let slow = Action::Delay(Duration::from_millis(400));
        world.server.inject(at_op(session(&client), OpCode::MULTI, slow));
        partition(&world, 500);
        sleep_ms(1).await;
        assert_eq!(guard.state(), LockState::AtRisk);
        world
            .until("the client asks for the proof", |server| {
                server.requests().iter().any(|request| request.op == OpCode::MULTI)
            })
            .await;
        assert_eq!(client.state(), zk_recipes::SessionState::Connected);
        sleep_ms(300).await;
        assert_eq!(guard.state(), LockState::AtRisk, "not proven yet\n{}", world.trace());
        sleep_ms(150).await;
        assert_eq!(guard.state(), LockState::Held, "{}", world.trace());
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_guard_is_at_risk_when_an_acknowledgement_is_overdue() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        sleep_ms(1_000).await;
        guard.validate().await.expect("the lock is held");
        let slow = Action::Delay(Duration::from_secs(30));
        world.server.inject(at_op(session(&client), OpCode::PING, slow));
        sleep_ms(6_600).await;
        assert_eq!(guard.state(), LockState::Held);
        // Without this, the client could reconnect and prove the lock before the test reads the
        // state.
        world.server.refuse_for(Duration::from_millis(200));
        sleep_ms(100).await;
        assert_eq!(guard.state(), LockState::AtRisk);
        // The client gives up the silent connection, and proves the lock on the next one.
        sleep_ms(3_400).await;
        assert_eq!(guard.state(), LockState::Held, "{}", world.trace());
        drop(guard);
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn changed_data_does_not_lose_the_lock_and_its_end_is_still_noticed() {
    for first_change in [50, 150] {
        run(async {
            let world = World::new();
            let (client, guard) = holder(&world, FIRST).await;
            sleep_ms(first_change).await;
            for _ in 0..3 {
                world.server.admin_set_data(guard.path(), b"somebody was here");
                sleep_ms(200).await;
                assert_eq!(guard.state(), LockState::Held);
            }
            guard.validate().await.expect("the lock is held");
            assert!(world.server.admin_delete(guard.path()));
            sleep_ms(1).await;
            assert_eq!(guard.state(), LockState::Lost(LostReason::ZnodeDeleted));
            drop(guard);
            world.check_clean(&[&client]).await;
        });
    }
}

#[test]
fn validate_survives_a_cut_at_each_of_its_requests() {
    let mut points = 0;
    for is_gone in [false, true] {
        for nth in 0.. {
            let mut fired = 0;
            for kind in 0.. {
                let is_over = run(async {
                    let world = World::new();
                    let (client, guard) = holder(&world, FIRST).await;
                    let faults = cuts_at_request(Some(session(&client)), nth);
                    let Some(fault) = faults.get(kind) else { return true };
                    if is_gone {
                        assert!(world.server.admin_delete(guard.path()));
                    }
                    world.server.inject(fault.clone());
                    let validated = guard.validate().await;
                    fired += usize::from(world.server.pending_faults().is_empty());
                    world.server.clear_faults();
                    let lost = LockError::Lost(LostReason::ZnodeDeleted);
                    let expected = if is_gone { Err(lost) } else { Ok(()) };
                    assert_eq!(validated, expected, "{fault:?}\n{}", world.trace());
                    drop(guard);
                    world.check_clean(&[&client]).await;
                    false
                });
                if is_over {
                    break;
                }
            }
            points += fired;
            if fired == 0 {
                break;
            }
        }
    }
    assert!(points >= 24, "only {points} cuts");
}

#[test]
fn validate_is_one_committed_write_and_a_read() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        world.server.clear_requests();
        let before = world.server.zxid();
        guard.validate().await.expect("the lock is held");
        assert_eq!(ops(&requests_of(&world, session(&client))), [OpCode::MULTI, OpCode::GET_DATA]);
        assert_eq!(world.server.zxid(), Zxid(before.0 + 1));
        release(guard).await;
    });
}

#[test]
fn validate_tells_a_loss_that_nobody_has_noticed() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        // The client does not watch the znode yet.
        assert!(world.server.admin_delete(guard.path()));
        assert_eq!(guard.state(), LockState::Held);
        let lost = LostReason::ZnodeDeleted;
        assert_eq!(guard.validate().await, Err(LockError::Lost(lost)));
        assert_eq!(guard.state(), LockState::Lost(lost));
        drop(guard);

        let guard = World::lock(&client).acquire().await.expect("the lock is free");
        world.server.expire(session(&client));
        let lost = LostReason::SessionExpired;
        assert_eq!(guard.validate().await, Err(LockError::Lost(lost)));
        drop(guard);
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn release_of_a_znode_that_somebody_deleted_says_so() {
    for watched in [false, true] {
        run(async {
            let world = World::new();
            let (client, guard) = holder(&world, FIRST).await;
            sleep_ms(if watched { 200 } else { 0 }).await;
            assert!(world.server.admin_delete(guard.path()));
            sleep_ms(if watched { 10 } else { 0 }).await;
            assert_eq!(guard.release().await, Ok(Released::AlreadyGone), "{}", world.trace());
            world.check_clean(&[&client]).await;
        });
    }
}

#[test]
fn release_after_the_end_of_the_session_says_so() {
    for wait in [0, 5_000] {
        run(async {
            let world = World::new();
            let (client, guard) = holder(&world, FIRST).await;
            world.server.expire(session(&client));
            sleep_ms(wait).await;
            assert_eq!(guard.release().await, Ok(Released::EndedWithSession));
            world.check_clean(&[&client]).await;
        });
    }
}

#[test]
fn release_while_disconnected_waits_for_a_server() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        partition(&world, 2_000);
        sleep_ms(10).await;
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn tokens_grow_over_a_directory_made_again() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        let lock = World::lock(&client);
        let mut newest = guard.fencing_token();
        release(guard).await;
        for round in 0..5 {
            if round % 2 == 0 {
                delete_directory(&world);
            }
            if round == 2 {
                make_directory_again(&world);
            }
            let guard = lock.acquire().await.expect("the lock is free");
            assert!(guard.fencing_token() > newest);
            newest = guard.fencing_token();
            let stat = world.server.stat(guard.path()).expect("the lock is held");
            assert_eq!(newest.get(), stat.czxid.0);
            release(guard).await;
        }
        world.check_clean(&[&client]).await;
    });
}

fn make_directory_again(world: &World) {
    assert!(world.server.admin_delete("/locks"));
    create_directory(world);
}

/// The user's requests use up the limit of outstanding requests. The delete is exempt from it.
#[test]
fn a_full_queue_does_not_delay_a_release() {
    for is_dropped in [false, true] {
        run(async {
            let world = World::new();
            let client = world.client_with(FIRST, |builder| builder.outstanding_limit(2)).await;
            create_directory(&world);
            let guard = World::lock(&client).acquire().await.expect("the lock is free");
            let slow = Action::Delay(Duration::from_millis(500));
            world.server.inject(at_op(session(&client), OpCode::GET_DATA, slow));
            let reads = [client.get_data("/locks"), client.get_data("/locks")];
            sleep_ms(1).await;
            world.server.clear_requests();
            let release = async {
                if is_dropped {
                    drop(guard);
                } else {
                    assert_eq!(guard.release().await, Ok(Released::Released), "{}", world.trace());
                }
            };
            let watch = async {
                sleep_ms(10).await;
                let sent = ops(&requests_of(&world, session(&client)));
                assert_eq!(sent, [OpCode::DELETE], "{}", world.trace());
            };
            tokio::join!(release, watch);
            for read in reads {
                read.await.expect("it is answered");
            }
            world.check_clean(&[&client]).await;
        });
    }
}

/// A flight of two operations exceeds a limit of one outstanding request.
#[test]
fn a_queue_of_one_place_is_enough_for_a_lock_also_while_the_place_is_taken() {
    for is_taken in [false, true] {
        run(async {
            let world = World::new();
            create_directory(&world);
            let client = world.client_with(FIRST, |builder| builder.outstanding_limit(1)).await;
            // A server replies in the order of requests, so later replies are delayed as well.
            let delay = Duration::from_millis(450);
            world.server.inject(at_op(session(&client), OpCode::EXISTS, Action::Delay(delay)));
            let begun = client.now();
            let read = is_taken.then(|| client.exists("/locks"));
            let lock = World::lock(&client);
            let guard = lock.acquire().timeout(Duration::from_secs(5)).await;
            let guard = guard.unwrap_or_else(|error| panic!("{error}\n{}", world.trace()));
            let queue = lock.contenders().await.expect("it can be read");
            assert_eq!(queue.len(), 1);
            assert_eq!(guard.release().await, Ok(Released::Released));
            let expected = if is_taken { delay } else { Duration::ZERO };
            assert_eq!(client.now().saturating_since(begun), expected, "{}", world.trace());
            if let Some(read) = read {
                read.await.expect("it is answered");
            }
            world.check_clean(&[&client]).await;
        });
    }
}

#[test]
fn a_full_queue_leaves_nothing_of_a_cancelled_wait() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client_with(FIRST, |builder| builder.outstanding_limit(2)).await;
        let waiter = queue_up(&world, &World::lock(&client)).await;
        let slow = Action::Delay(Duration::from_millis(500));
        world.server.inject(at_op(session(&client), OpCode::EXISTS, slow));
        let reads = [client.exists("/locks"), client.exists("/locks")];
        sleep_ms(1).await;
        waiter.abort();
        sleep_ms(2_000).await;
        assert_eq!(world.contenders().len(), 1, "{}", world.trace());
        for read in reads {
            read.await.expect("it is answered");
        }
        release(held).await;
        world.check_clean(&[&client, &other]).await;
    });
}

/// The grant is an event, without a reply whose zxid covers what the last holder has written. So
/// the server to which the session moves has to catch up with the event before it serves a read.
#[test]
fn a_new_holder_reads_what_the_last_one_has_written_wherever_its_session_moves() {
    run(async {
        let unapplied = Duration::from_secs(60);
        let world = World::with(ServerConfig::default().members(2).unapplied(unapplied));
        let (writer, held) = holder(&world, FIRST).await;
        writer.create("/data", "old", CreateMode::Persistent).await.expect("it is new");
        let member = Arc::new(AtomicUsize::new(0));
        let client = world.moving_client(SECOND, &member).await;
        let waiter = queue_up(&world, &World::lock(&client)).await;
        sleep_ms(61_000).await;
        writer.set_data("/data", "new", None).await.expect("it exists");
        release(held).await;
        let guard = granted_now(&world, waiter).await;
        member.store(1, Ordering::SeqCst);
        world.server.disconnect_member();
        let data = loop {
            match client.get_data("/data").await {
                Ok((data, _)) => break data,
                Err(error) => assert!(error.is_connection_loss(), "{error}"),
            }
        };
        assert_eq!(data, "new", "{}", world.trace());
        release(guard).await;
        world.check_clean(&[&client, &writer]).await;
    });
}
