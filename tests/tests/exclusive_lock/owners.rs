//! Ownership of the znode. The name is the same for every holder, so only the session and the
//! attempt id distinguish the holders: the znode of another holder is neither adopted nor deleted.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{ExclusiveLock, LockError, LockState, LostReason, Released};
use zk_tests::case::{Case as _, LOCK};
use zk_tests::meter::Pace;
use zk_tests::scene::{
    FIRST, SECOND, at_op, at_request, create_directory, granted, granted_now, partition, release,
    replace_by_copy, requests_of, session, settle, spawn,
};
use zk_tests::world::{SESSION_TIMEOUT, World, run, sleep_ms};
use zk_testserver::{Action, Fault, ServerConfig, Until};

use crate::{holder, queue_up};

/// Returns the data of the znode of a client's first attempt. The id of the attempt follows from
/// the seed.
fn data_of_first_attempt(seed: u64) -> Vec<u8> {
    run(async {
        let world = World::new();
        create_directory::<ExclusiveLock>(&world);
        let (_client, _guard) = holder(&world, seed).await;
        world.server.data(LOCK).expect("the lock is held").to_vec()
    })
}

/// The attempt id alone proves nothing. A znode of an older session is deleted when that session
/// ends.
#[test]
fn a_znode_with_our_id_of_another_session_is_not_adopted() {
    let data = data_of_first_attempt(FIRST);
    run(async {
        let world = World::new();
        create_directory::<ExclusiveLock>(&world);
        let client = world.client(FIRST).await;
        let other = world.client(SECOND).await;
        let lost = at_op(session(&client), OpCode::CREATE2, Action::CutBefore);
        world.server.inject(lost.refuse_for(Duration::from_millis(300)));
        let lock = ExclusiveLock::of(&client);
        let waiter = spawn(lock.acquire().into_future());
        sleep_ms(100).await;
        assert!(world.server.pending_faults().is_empty());
        world.server.admin_create(LOCK, &data, Some(session(&other)));
        sleep_ms(3_000).await;
        assert!(!waiter.is_finished(), "adopted\n{}", world.trace());
        world.server.expire(session(&other));
        let guard = granted_now(&world, waiter).await;
        // The lock is granted to the same attempt, with the same id.
        assert_eq!(lock.stats().attempts, 1);
        assert_eq!(world.server.data(LOCK).as_deref(), Some(&data[..]));
        assert_eq!(world.owner(), Some(session(&client)));
        release(guard).await;
        world.check_clean(&[&client, &other]).await;
    });
}

/// The session alone proves nothing either.
#[test]
fn a_znode_of_another_attempt_of_the_same_session_is_not_adopted() {
    for action in [Action::CutBefore, Action::CutAfter, Action::LateCommit(Until::Reads(1))] {
        run(async {
            let world = World::new();
            let (client, held) = holder(&world, FIRST).await;
            world.server.inject(at_op(session(&client), OpCode::CREATE2, action));
            let lock = ExclusiveLock::of(&client);
            let waiter = spawn(lock.acquire().into_future());
            sleep_ms(3_000).await;
            assert!(world.server.pending_faults().is_empty());
            assert!(!waiter.is_finished(), "two holders\n{}", world.trace());
            assert_eq!(held.state(), LockState::Held);
            // A contender that gives up does not delete the znode either.
            waiter.abort();
            sleep_ms(1_000).await;
            held.validate().await.expect("it is undisturbed");
            release(held).await;
            world.check_clean(&[&client]).await;
        });
    }
}

/// The create was applied although its reply is lost, so the znode is the contender's own.
#[test]
fn a_create_whose_reply_was_lost_is_adopted_and_not_waited_for() {
    for action in [
        Action::CutAfter,
        Action::CutAtReplyByte(0),
        Action::CutAtReplyByte(10),
        Action::LateCommit(Until::NextWrite),
        Action::LateCommit(Until::Reads(1)),
    ] {
        run(async {
            let world = World::new();
            create_directory::<ExclusiveLock>(&world);
            let client = world.client(FIRST).await;
            world.server.inject(at_op(session(&client), OpCode::CREATE2, action));
            let lock = ExclusiveLock::of(&client);
            let guard = lock.acquire().await.expect("the lock is free");
            let creates = requests_of(&world, session(&client)).into_iter();
            let creates = creates.filter(|request| request.op == OpCode::CREATE2).count();
            assert_eq!(creates, 1, "{}", world.trace());
            assert_eq!(lock.stats().attempts, 1);
            assert_eq!(guard.state(), LockState::Held);
            guard.validate().await.expect("the lock is held");
            release(guard).await;
            world.check_clean(&[&client]).await;
        });
    }
}

/// The reply to the delete is lost, and another contender holds the lock when the client retries
/// the delete.
#[test]
fn a_release_that_is_replayed_leaves_the_next_holder_alone() {
    let actions = [
        Action::CutAfter,
        Action::CutBefore,
        Action::LateCommit(Until::NextWrite),
        Action::LateCommit(Until::Reads(1)),
        Action::LateCommit(Until::After(Duration::from_millis(100))),
    ];
    for action in actions {
        for by_call in [false, true] {
            // The next holder is another client, or another task of the same client.
            for is_same in [false, true] {
                run(async {
                    let world = World::new();
                    let (client, guard) = holder(&world, FIRST).await;
                    let other = if is_same { client.clone() } else { world.client(SECOND).await };
                    let waiter = queue_up(&world, &ExclusiveLock::of(&other)).await;
                    let fault = at_op(session(&client), OpCode::DELETE, action.clone());
                    world.server.inject(fault.refuse_for(Duration::from_millis(400)));
                    if by_call {
                        assert_eq!(guard.release().await, Ok(Released::Released));
                    } else {
                        drop(guard);
                    }
                    let next = granted(waiter).await;
                    sleep_ms(3_000).await;
                    next.validate().await.expect("its znode was not deleted");
                    assert_eq!(next.state(), LockState::Held, "{}", world.trace());
                    release(next).await;
                    world.check_clean(&[&client, &other]).await;
                });
            }
        }
    }
}

/// The holder releases before or after it learns of the end of its session.
#[test]
fn a_release_after_the_end_of_the_session_leaves_the_next_holder_alone() {
    for after in [0, 1, 50, 3_000] {
        for by_call in [false, true] {
            for refused_for in [0, 500] {
                run(async {
                    let world = World::new();
                    let (client, guard) = holder(&world, FIRST).await;
                    let other = world.client(SECOND).await;
                    let waiter = queue_up(&world, &ExclusiveLock::of(&other)).await;
                    world.server.expire(session(&client));
                    let next = granted_now(&world, waiter).await;
                    world.server.refuse_for(Duration::from_millis(refused_for));
                    sleep_ms(after).await;
                    if by_call {
                        let ended = guard.release().await;
                        assert_eq!(ended, Ok(Released::EndedWithSession), "{}", world.trace());
                    } else {
                        drop(guard);
                    }
                    sleep_ms(5_000).await;
                    next.validate().await.expect("its znode was not deleted");
                    release(next).await;
                    world.check_clean(&[&client, &other]).await;
                });
            }
        }
    }
}

/// The holder is paused while its session ends, and then releases immediately: it sends the delete
/// before it learns of the end.
#[test]
fn a_delete_under_way_at_the_end_of_the_session_leaves_the_next_holder_alone() {
    for action in [Action::Expire, Action::Freeze, Action::Delay(Duration::from_secs(3))] {
        run(async {
            let world = World::new();
            let (client, guard) = holder(&world, FIRST).await;
            let other = world.client(SECOND).await;
            let waiter = queue_up(&world, &ExclusiveLock::of(&other)).await;
            let dead = session(&client);
            world.server.inject(at_op(dead, OpCode::DELETE, action.clone()));
            drop(guard);
            settle().await;
            world.server.expire(dead);
            let next = granted(waiter).await;
            sleep_ms(30_000).await;
            next.validate().await.expect("its znode was not deleted");
            release(next).await;
            world.check_clean(&[&client, &other]).await;
        });
    }
}

/// The holder releases the lock at the moment when the client learns of the end of the connection.
/// A request that has not been sent by then must not be sent in the next session.
#[test]
fn a_release_at_any_turn_around_the_end_of_the_session_leaves_the_next_holder_alone() {
    const REQUESTS: usize = 9_000;
    for is_full in [false, true] {
        for turns in 0..if is_full { 3 } else { 20 } {
            run(async {
                let world = World::new();
                let world = if is_full { world.pace(Pace::CALM.beside(REQUESTS)) } else { world };
                let (client, guard) = holder(&world, FIRST).await;
                let other = world.client(SECOND).await;
                let waiter = queue_up(&world, &ExclusiveLock::of(&other)).await;
                if is_full {
                    // So many requests are in flight that the delete must wait in the client.
                    let dead = session(&client);
                    let slow = Action::Delay(Duration::from_secs(1));
                    world.server.inject(at_op(dead, OpCode::EXISTS, slow));
                    for _ in 0..REQUESTS {
                        let asking = client.exists("/locks");
                        spawn(async move { drop(asking.await) });
                    }
                    settle().await;
                    drop(guard);
                    for _ in 0..turns {
                        tokio::task::yield_now().await;
                    }
                    world.server.expire(dead);
                } else {
                    world.server.expire(session(&client));
                    for _ in 0..turns {
                        tokio::task::yield_now().await;
                    }
                    drop(guard);
                }
                let next = granted(waiter).await;
                sleep_ms(5_000).await;
                next.validate().await.expect("its znode was not deleted");
                release(next).await;
                world.check_clean(&[&client, &other]).await;
            });
        }
    }
}

#[test]
fn a_session_renewed_under_another_id_loses_the_lock_and_deletes_nothing() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        let before = session(&client);
        world.server.inject(Fault::new(zk_testserver::At::connect(0), Action::SwapSession));
        world.server.disconnect_all();
        assert_eq!(guard.lost().await, LostReason::SessionExpired);
        sleep_ms(1_000).await;
        assert_ne!(session(&client), before);
        // The old session stays alive for a while, and the contender in the new session waits for
        // the deletion of the old znode.
        let waiter = queue_up(&world, &ExclusiveLock::of(&client)).await;
        assert_eq!(guard.release().await, Ok(Released::EndedWithSession));
        sleep_ms(1_000).await;
        assert_eq!(world.owner(), Some(before), "not ours any more\n{}", world.trace());
        let next = granted(waiter).await;
        assert!(!world.server.sessions().contains(&before));
        release(next).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_znode_deleted_by_hand_loses_the_lock_and_the_next_holder_is_left_alone() {
    for is_disconnected in [false, true] {
        for by_call in [false, true] {
            run(async {
                let world = World::new();
                let (client, guard) = holder(&world, FIRST).await;
                let other = world.client(SECOND).await;
                let waiter = queue_up(&world, &ExclusiveLock::of(&other)).await;
                if is_disconnected {
                    partition(&world, 500);
                }
                let lost = spawn(guard.lost());
                assert!(world.server.admin_delete(LOCK));
                let next = granted(waiter).await;
                sleep_ms(2_000).await;
                assert_eq!(lost.await.expect("the task does not panic"), LostReason::ZnodeDeleted);
                assert_eq!(guard.state(), LockState::Lost(LostReason::ZnodeDeleted));
                let told = guard.validate().await;
                assert_eq!(told, Err(LockError::Lost(LostReason::ZnodeDeleted)));
                if by_call {
                    assert_eq!(guard.release().await, Ok(Released::AlreadyGone));
                } else {
                    drop(guard);
                }
                sleep_ms(1_000).await;
                next.validate().await.expect("its znode was not deleted");
                release(next).await;
                world.check_clean(&[&client, &other]).await;
            });
        }
    }
}

/// The holder releases the lock before it knows what happened during the partition.
#[test]
fn a_release_while_disconnected_looks_before_it_deletes() {
    for is_replaced in [false, true] {
        run(async {
            let world = World::new();
            let (client, guard) = holder(&world, FIRST).await;
            let other = world.client(SECOND).await;
            sleep_ms(500).await;
            partition(&world, 1_000);
            sleep_ms(10).await;
            assert_eq!(guard.state(), LockState::AtRisk);
            let releasing = spawn(guard.release());
            if is_replaced {
                assert!(world.server.admin_delete(LOCK));
                world.server.admin_create(LOCK, b"next", Some(session(&other)));
            }
            let ended = releasing.await.expect("the task does not panic");
            let expected = if is_replaced { Released::AlreadyGone } else { Released::Released };
            assert_eq!(ended, Ok(expected), "{}", world.trace());
            assert_eq!(world.owner().is_some(), is_replaced);
            if is_replaced {
                assert!(world.server.admin_delete(LOCK));
            }
            world.check_clean(&[&client, &other]).await;
        });
    }
}

/// The test deletes the znode and creates it again, in the same session and with the same data. The
/// new znode is not the znode that the guard's token belongs to.
#[test]
fn a_znode_made_again_by_hand_is_not_the_own() {
    for is_disconnected in [false, true] {
        run(async {
            let world = World::new();
            let (client, guard) = holder(&world, FIRST).await;
            sleep_ms(500).await;
            if is_disconnected {
                partition(&world, 500);
            }
            replace_by_copy(&world, LOCK, session(&client));
            sleep_ms(3_000).await;
            let lost = LockState::Lost(LostReason::ZnodeDeleted);
            assert_eq!(guard.state(), lost, "{}", world.trace());
            assert_eq!(guard.release().await, Ok(Released::AlreadyGone));
            assert_eq!(world.owner(), Some(session(&client)), "it is not ours to delete");
            assert!(world.server.admin_delete(LOCK));
            world.check_clean(&[&client]).await;
        });
    }
}

/// When the client knows the transaction that created the znode, the data is only for human
/// readers.
#[test]
fn changed_data_neither_loses_the_lock_nor_leaves_it_behind() {
    for is_try in [false, true] {
        for is_cut in [false, true] {
            run(async {
                let world = World::new();
                create_directory::<ExclusiveLock>(&world);
                let client = world.client(FIRST).await;
                let lock = ExclusiveLock::of(&client);
                let guard = if is_try {
                    lock.try_acquire().await.expect("it can be read").expect("the lock is free")
                } else {
                    lock.acquire().await.expect("the lock is free")
                };
                for after in [50, 150, 500] {
                    sleep_ms(after).await;
                    world.server.admin_set_data(LOCK, b"somebody was here");
                    sleep_ms(50).await;
                    assert_eq!(guard.state(), LockState::Held, "{}", world.trace());
                }
                guard.validate().await.expect("the lock is held");
                if is_cut {
                    partition(&world, 300);
                    sleep_ms(3_000).await;
                    assert_eq!(guard.state(), LockState::Held, "{}", world.trace());
                }
                assert_eq!(guard.release().await, Ok(Released::Released), "{}", world.trace());
                sleep_ms(100).await;
                assert_eq!(world.owner(), None, "it stays behind\n{}", world.trace());
                world.check_clean(&[&client]).await;
            });
        }
    }
}

/// The deadline has passed but the session is still alive, so the client removes its znode.
#[test]
fn a_lost_lock_is_removed_as_soon_as_a_server_is_reachable() {
    run(async {
        let world = World::with(ServerConfig::default().tick(Duration::from_secs(5)));
        let (client, guard) = holder(&world, FIRST).await;
        sleep_ms(150).await;
        guard.validate().await.expect("the lock is held");
        let other = world.client(SECOND).await;
        let waiter = queue_up(&world, &ExclusiveLock::of(&other)).await;
        partition(&world, 10_500);
        assert_eq!(guard.lost().await, LostReason::DeadlinePassed);
        assert!(!waiter.is_finished());
        assert_eq!(world.owner(), Some(session(&client)));
        let next = granted(waiter).await;
        assert_eq!(client.session_id(), Some(guard.session()), "the session lives");
        sleep_ms(2 * SESSION_TIMEOUT.as_millis() as u64).await;
        assert_eq!(guard.state(), LockState::Lost(LostReason::DeadlinePassed));
        assert_eq!(guard.release().await, Ok(Released::Released));
        next.validate().await.expect("its znode was not deleted");
        release(next).await;
        world.check_clean(&[&client, &other]).await;
    });
}

/// After a create with an unknown outcome, the janitor sweeps once more at the next reconnect, and
/// leaves the znode of another holder alone.
#[test]
fn a_tainted_attempt_is_swept_again_and_spares_the_next_holder() {
    for has_next in [false, true] {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            let other = world.client(SECOND).await;
            create_directory::<ExclusiveLock>(&world);
            world.server.inject(at_request(session(&client), 0, Action::CutAfter));
            let guard = ExclusiveLock::of(&client).acquire().await.expect("the lock is free");
            release(guard).await;
            let next = if has_next {
                Some(ExclusiveLock::of(&other).acquire().await.expect("the lock is free"))
            } else {
                None
            };
            sleep_ms(1_000).await;
            world.server.clear_requests();
            world.server.disconnect_all();
            sleep_ms(2_000).await;
            let requests = requests_of(&world, session(&client));
            let expected = [OpCode::MULTI, OpCode::GET_DATA];
            assert_eq!(zk_tests::scene::ops(&requests), expected, "{}", world.trace());
            if let Some(next) = next {
                next.validate().await.expect("its znode was not deleted");
                release(next).await;
            }
            world.check_clean(&[&client, &other]).await;
        });
    }
}
