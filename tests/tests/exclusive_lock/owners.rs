//! Whose znode it is. The name is the same for every holder, so nothing but the session and the
//! attempt tells them apart: what is somebody else's is neither adopted nor deleted.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{LockError, LockState, LostReason, Released};
use zk_tests::exclusive::{ZNODE, check_clean, lock, make_directory, owner};
use zk_tests::meter::Pace;
use zk_tests::scene::{at_op, at_request, partition, requests_of, session, settle, spawn};
use zk_tests::world::{SESSION_TIMEOUT, World, run, sleep_ms};
use zk_testserver::{Action, Fault, ServerConfig, Until};

use crate::{FIRST, SECOND, granted, granted_now, holder, release, wait_for};

/// What the znode of a client's first attempt says: its ids come from the seed.
fn data_of_first_attempt(seed: u64) -> Vec<u8> {
    run(async {
        let world = World::new();
        make_directory(&world);
        let (_client, _guard) = holder(&world, seed).await;
        world.server.data(ZNODE).expect("it is held").to_vec()
    })
}

/// X2: the id alone proves nothing. A znode of an older session goes when that has ended.
#[test]
fn a_znode_with_our_id_of_another_session_is_not_adopted() {
    let data = data_of_first_attempt(FIRST);
    run(async {
        let world = World::new();
        make_directory(&world);
        let client = world.client(FIRST).await;
        let other = world.client(SECOND).await;
        let lost = at_op(session(&client), OpCode::CREATE2, Action::CutBefore);
        world.server.inject(lost.refuse_for(Duration::from_millis(300)));
        let lock = lock(&client);
        let waiter = spawn(lock.acquire().into_future());
        sleep_ms(100).await;
        assert!(world.server.pending_faults().is_empty());
        world.server.admin_create(ZNODE, &data, Some(session(&other)));
        sleep_ms(3_000).await;
        assert!(!waiter.is_finished(), "adopted\n{}", world.trace());
        world.server.expire(session(&other));
        let guard = granted_now(&world, waiter).await;
        // It was the very id, and the same attempt.
        assert_eq!(lock.stats().attempts, 1);
        assert_eq!(world.server.data(ZNODE).as_deref(), Some(&data[..]));
        assert_eq!(owner(&world), Some(session(&client)));
        release(guard).await;
        check_clean(&world, &[&client, &other]).await;
    });
}

/// X3: the session alone proves nothing either.
#[test]
fn a_znode_of_another_attempt_of_the_same_session_is_not_adopted() {
    for action in [Action::CutBefore, Action::CutAfter, Action::LateCommit(Until::Reads(1))] {
        run(async {
            let world = World::new();
            let (client, held) = holder(&world, FIRST).await;
            world.server.inject(at_op(session(&client), OpCode::CREATE2, action));
            let lock = lock(&client);
            let waiter = spawn(lock.acquire().into_future());
            sleep_ms(3_000).await;
            assert!(world.server.pending_faults().is_empty());
            assert!(!waiter.is_finished(), "two holders\n{}", world.trace());
            assert_eq!(held.state(), LockState::Held);
            // Nor is it deleted by one that gives up.
            waiter.abort();
            sleep_ms(1_000).await;
            held.validate().await.expect("it is undisturbed");
            release(held).await;
            check_clean(&world, &[&client]).await;
        });
    }
}

/// X1: the lost create was applied, so the znode is our own.
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
            make_directory(&world);
            let client = world.client(FIRST).await;
            world.server.inject(at_op(session(&client), OpCode::CREATE2, action));
            let lock = lock(&client);
            let guard = lock.acquire().await.expect("it is free");
            let creates = requests_of(&world, session(&client)).into_iter();
            let creates = creates.filter(|request| request.op == OpCode::CREATE2).count();
            assert_eq!(creates, 1, "{}", world.trace());
            assert_eq!(lock.stats().attempts, 1);
            assert_eq!(guard.state(), LockState::Held);
            guard.validate().await.expect("it is held");
            release(guard).await;
            check_clean(&world, &[&client]).await;
        });
    }
}

/// X4: the reply to the delete is lost, and somebody else has the lock when it is asked for again.
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
            // The next one is another client, or another task of the same.
            for is_same in [false, true] {
                run(async {
                    let world = World::new();
                    let (client, guard) = holder(&world, FIRST).await;
                    let other = if is_same { client.clone() } else { world.client(SECOND).await };
                    let waiter = wait_for(&world, &other, &lock(&other)).await;
                    let fault = at_op(session(&client), OpCode::DELETE, action.clone());
                    world.server.inject(fault.refuse_for(Duration::from_millis(400)));
                    if by_call {
                        assert_eq!(guard.release().await, Ok(Released::Released));
                    } else {
                        drop(guard);
                    }
                    let next = granted(waiter).await;
                    sleep_ms(3_000).await;
                    next.validate().await.expect("nobody has deleted it");
                    assert_eq!(next.state(), LockState::Held, "{}", world.trace());
                    release(next).await;
                    check_clean(&world, &[&client, &other]).await;
                });
            }
        }
    }
}

/// X5: whether the holder knows of the end of its session or not, and whatever it does then.
#[test]
fn a_release_after_the_end_of_the_session_leaves_the_next_holder_alone() {
    for after in [0, 1, 50, 3_000] {
        for by_call in [false, true] {
            for refused_for in [0, 500] {
                run(async {
                    let world = World::new();
                    let (client, guard) = holder(&world, FIRST).await;
                    let other = world.client(SECOND).await;
                    let waiter = wait_for(&world, &other, &lock(&other)).await;
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
                    next.validate().await.expect("nobody has deleted it");
                    release(next).await;
                    check_clean(&world, &[&client, &other]).await;
                });
            }
        }
    }
}

/// The holder sleeps over the end of its session, and its first thing is to release: the delete is
/// on its way before anybody tells it.
#[test]
fn a_delete_under_way_at_the_end_of_the_session_leaves_the_next_holder_alone() {
    for action in [Action::Expire, Action::Freeze, Action::Delay(Duration::from_secs(3))] {
        run(async {
            let world = World::new();
            let (client, guard) = holder(&world, FIRST).await;
            let other = world.client(SECOND).await;
            let waiter = wait_for(&world, &other, &lock(&other)).await;
            let dead = session(&client);
            world.server.inject(at_op(dead, OpCode::DELETE, action.clone()));
            drop(guard);
            settle().await;
            world.server.expire(dead);
            let next = granted(waiter).await;
            sleep_ms(30_000).await;
            next.validate().await.expect("nobody has deleted it");
            release(next).await;
            check_clean(&world, &[&client, &other]).await;
        });
    }
}

/// Released in the very moment in which the client learns of the end of the connection, whatever it
/// learns first: what was not sent then must not be sent in the next session.
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
                let waiter = wait_for(&world, &other, &lock(&other)).await;
                if is_full {
                    // So much is under way that the delete has to wait in the client.
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
                next.validate().await.expect("nobody has deleted it");
                release(next).await;
                check_clean(&world, &[&client, &other]).await;
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
        // The old session lives on for a while, with its znode, which the new one waits for.
        let waiter = wait_for(&world, &client, &lock(&client)).await;
        assert_eq!(guard.release().await, Ok(Released::EndedWithSession));
        sleep_ms(1_000).await;
        assert_eq!(owner(&world), Some(before), "not ours any more\n{}", world.trace());
        let next = granted(waiter).await;
        assert!(!world.server.sessions().contains(&before));
        release(next).await;
        check_clean(&world, &[&client]).await;
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
                let waiter = wait_for(&world, &other, &lock(&other)).await;
                if is_disconnected {
                    partition(&world, 500);
                }
                let lost = spawn(guard.lost());
                assert!(world.server.admin_delete(ZNODE));
                let next = granted(waiter).await;
                sleep_ms(2_000).await;
                assert_eq!(lost.await.expect("it does not panic"), LostReason::ZnodeDeleted);
                assert_eq!(guard.state(), LockState::Lost(LostReason::ZnodeDeleted));
                let told = guard.validate().await;
                assert_eq!(told, Err(LockError::Lost(LostReason::ZnodeDeleted)));
                if by_call {
                    assert_eq!(guard.release().await, Ok(Released::AlreadyGone));
                } else {
                    drop(guard);
                }
                sleep_ms(1_000).await;
                next.validate().await.expect("nobody has deleted it");
                release(next).await;
                check_clean(&world, &[&client, &other]).await;
            });
        }
    }
}

/// Released while nothing is known of what happened behind the partition.
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
                assert!(world.server.admin_delete(ZNODE));
                world.server.admin_create(ZNODE, b"next", Some(session(&other)));
            }
            let ended = releasing.await.expect("it does not panic");
            let expected = if is_replaced { Released::AlreadyGone } else { Released::Released };
            assert_eq!(ended, Ok(expected), "{}", world.trace());
            assert_eq!(owner(&world).is_some(), is_replaced);
            if is_replaced {
                assert!(world.server.admin_delete(ZNODE));
            }
            check_clean(&world, &[&client, &other]).await;
        });
    }
}

/// Somebody deletes it and makes it again, in the very session and with the very data: it is not
/// the znode of the token.
#[test]
fn a_znode_made_again_by_hand_is_not_the_own() {
    for is_disconnected in [false, true] {
        run(async {
            let world = World::new();
            let (client, guard) = holder(&world, FIRST).await;
            sleep_ms(500).await;
            let data = world.server.data(ZNODE).expect("it is held");
            if is_disconnected {
                partition(&world, 500);
            }
            assert!(world.server.admin_delete(ZNODE));
            world.server.admin_create(ZNODE, &data, Some(session(&client)));
            sleep_ms(3_000).await;
            let lost = LockState::Lost(LostReason::ZnodeDeleted);
            assert_eq!(guard.state(), lost, "{}", world.trace());
            assert_eq!(guard.release().await, Ok(Released::AlreadyGone));
            assert_eq!(owner(&world), Some(session(&client)), "it is not ours to delete");
            assert!(world.server.admin_delete(ZNODE));
            check_clean(&world, &[&client]).await;
        });
    }
}

/// X11. What the data says is for people, once the transaction of the znode is known.
#[test]
fn changed_data_neither_loses_the_lock_nor_leaves_it_behind() {
    for is_try in [false, true] {
        for is_cut in [false, true] {
            run(async {
                let world = World::new();
                make_directory(&world);
                let client = world.client(FIRST).await;
                let lock = lock(&client);
                let guard = if is_try {
                    lock.try_acquire().await.expect("it can be read").expect("it is free")
                } else {
                    lock.acquire().await.expect("it is free")
                };
                for after in [50, 150, 500] {
                    sleep_ms(after).await;
                    world.server.admin_set_data(ZNODE, b"somebody was here");
                    sleep_ms(50).await;
                    assert_eq!(guard.state(), LockState::Held, "{}", world.trace());
                }
                guard.validate().await.expect("it is held");
                if is_cut {
                    partition(&world, 300);
                    sleep_ms(3_000).await;
                    assert_eq!(guard.state(), LockState::Held, "{}", world.trace());
                }
                assert_eq!(guard.release().await, Ok(Released::Released), "{}", world.trace());
                sleep_ms(100).await;
                assert_eq!(owner(&world), None, "it stays behind\n{}", world.trace());
                check_clean(&world, &[&client]).await;
            });
        }
    }
}

/// The deadline has passed, and the session lives on: the znode is removed by whoever owns it.
#[test]
fn a_lost_lock_is_removed_as_soon_as_a_server_is_reachable() {
    run(async {
        let world = World::with(ServerConfig::default().tick(Duration::from_secs(5)));
        let (client, guard) = holder(&world, FIRST).await;
        sleep_ms(150).await;
        guard.validate().await.expect("it is held");
        let other = world.client(SECOND).await;
        let waiter = wait_for(&world, &other, &lock(&other)).await;
        partition(&world, 10_500);
        assert_eq!(guard.lost().await, LostReason::DeadlinePassed);
        assert!(!waiter.is_finished());
        assert_eq!(owner(&world), Some(session(&client)));
        let next = granted(waiter).await;
        assert_eq!(client.session_id(), Some(guard.session()), "the session lives");
        sleep_ms(2 * SESSION_TIMEOUT.as_millis() as u64).await;
        assert_eq!(guard.state(), LockState::Lost(LostReason::DeadlinePassed));
        assert_eq!(guard.release().await, Ok(Released::Released));
        next.validate().await.expect("nobody has deleted it");
        release(next).await;
        check_clean(&world, &[&client, &other]).await;
    });
}

/// A create in doubt is looked for once more after the next reconnect, and somebody else's znode
/// is left alone then.
#[test]
fn a_tainted_attempt_is_swept_again_and_spares_the_next_holder() {
    for has_next in [false, true] {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            let other = world.client(SECOND).await;
            make_directory(&world);
            world.server.inject(at_request(session(&client), 0, Action::CutAfter));
            let guard = lock(&client).acquire().await.expect("nobody else wants it");
            release(guard).await;
            let next = if has_next {
                Some(lock(&other).acquire().await.expect("it is free"))
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
                next.validate().await.expect("nobody has deleted it");
                release(next).await;
            }
            check_clean(&world, &[&client, &other]).await;
        });
    }
}
