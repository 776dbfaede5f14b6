//! Waiting in the queue, and events during the wait.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{LockError, LockState, LostReason};
use zk_tests::case::LOCK;
use zk_tests::scene::{
    FIRST, SECOND, THIRD, at_op, at_request, delete_directory, partition, place_of, session, spawn,
};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, At, Fault};

use crate::Access::{Read, Write};
use crate::{
    WAITS, acquire_within, check_waits, granted, granted_now, holder, number, queue_up, try_acquire,
};

#[test]
fn a_timeout_while_waiting_leaves_nothing_and_disturbs_nobody() {
    for (ahead, behind) in WAITS {
        run(async {
            let world = World::new();
            let (other, held) = holder(&world, SECOND, ahead).await;
            let client = world.client(FIRST).await;
            let lock = World::rw_lock(&client);
            let before = client.now();
            let patience = Some(Duration::from_millis(700));
            let ended = acquire_within(lock.clone(), behind, patience).await.map(drop);
            assert!(matches!(ended, Err(LockError::TimedOut(_))), "{ahead:?}, {behind:?}");
            assert_eq!(client.now().saturating_since(before).as_millis(), 700);
            sleep_ms(10).await;
            assert_eq!(world.contenders().len(), 1, "{}", world.trace());
            assert_eq!(held.state(), LockState::Held);
            held.release().await;
            world.check_clean(&[&client, &other]).await;
        });
    }
}

/// A reader that waited for a waiting writer shares the lock with the holder when the writer gives
/// up.
#[test]
fn a_writer_that_gives_up_lets_the_readers_behind_it_in() {
    run(async {
        let world = World::new();
        let (first, reading) = holder(&world, FIRST, Read).await;
        let (second, third) = (world.client(SECOND).await, world.client(THIRD).await);
        let writer = queue_up(&world, &World::rw_lock(&second), Write).await;
        let reader = queue_up(&world, &World::rw_lock(&third), Read).await;
        writer.abort();
        let beside = granted(reader).await;
        assert_eq!((reading.state(), beside.state()), (LockState::Held, LockState::Held));
        reading.release().await;
        beside.release().await;
        check_waits(&world);
        world.check_clean(&[&first, &second, &third]).await;
    });
}

#[test]
fn a_predecessor_deleted_by_hand_lets_the_waiter_in() {
    for (ahead, behind) in WAITS {
        for is_away in [false, true] {
            run(async {
                let world = World::new();
                let (other, held) = holder(&world, SECOND, ahead).await;
                let client = world.client(FIRST).await;
                let lock = World::rw_lock(&client);
                let waiter = queue_up(&world, &lock, behind).await;
                if is_away {
                    partition(&world, 500);
                }
                assert!(world.server.admin_delete(held.path()));
                let guard = granted(waiter).await;
                assert_eq!(held.lost().await, LostReason::ZnodeDeleted);
                assert_eq!(guard.state(), LockState::Held);
                assert_eq!(lock.stats().watches_missed, 0);
                guard.release().await;
                drop(held);
                world.check_clean(&[&client, &other]).await;
            });
        }
    }
}

/// A contender between the holder and the last waiter leaves. If this wakes the last waiter, it
/// still has another contender ahead.
#[test]
fn a_middle_contender_that_goes_wakes_nobody_into_the_lock() {
    let queues = [
        [Write, Write, Read],
        [Write, Write, Write],
        [Read, Write, Write],
        [Write, Read, Write],
        [Write, Read, Read],
        [Read, Read, Write],
    ];
    for queue in queues {
        for is_by_hand in [false, true] {
            run(async {
                let world = World::new();
                let (first, held) = holder(&world, FIRST, queue[0]).await;
                let (second, third) = (world.client(SECOND).await, world.client(THIRD).await);
                let middle = crate::join(&world, &World::rw_lock(&second), queue[1]).await;
                let last = queue_up(&world, &World::rw_lock(&third), queue[2]).await;
                let place = place_of(&world, session(&second));
                let middle = if is_by_hand {
                    assert!(world.server.admin_delete(&place));
                    Some(middle)
                } else if middle.is_finished() {
                    granted(middle).await.release().await;
                    None
                } else {
                    middle.abort();
                    None
                };
                sleep_ms(2_000).await;
                assert!(world.server.stat(&place).is_none());
                assert!(!last.is_finished(), "{queue:?}\n{}", world.trace());
                held.release().await;
                let guard = granted_now(&world, last).await;
                assert_eq!(guard.state(), LockState::Held);
                guard.release().await;
                // The middle contender, if it lost its znode, is now at the end of the queue.
                if let Some(middle) = middle {
                    drop(granted(middle).await);
                }
                world.check_clean(&[&first, &second, &third]).await;
            });
        }
    }
}

/// Two readers hold the lock, and either of them releases first.
#[test]
fn a_writer_waits_for_every_reader_ahead() {
    for is_nearer_first in [false, true] {
        run(async {
            let world = World::new();
            let (first, one) = holder(&world, FIRST, Read).await;
            let (second, other) = holder(&world, SECOND, Read).await;
            let third = world.client(THIRD).await;
            let writer = queue_up(&world, &World::rw_lock(&third), Write).await;
            let (earlier, later) = if is_nearer_first { (other, one) } else { (one, other) };
            earlier.release().await;
            sleep_ms(2_000).await;
            assert!(!writer.is_finished(), "{}", world.trace());
            later.release().await;
            granted_now(&world, writer).await.release().await;
            check_waits(&world);
            world.check_clean(&[&first, &second, &third]).await;
        });
    }
}

#[test]
fn a_waiter_whose_znode_is_deleted_takes_a_new_place() {
    for (ahead, behind) in WAITS {
        run(async {
            let world = World::new();
            let (other, held) = holder(&world, SECOND, ahead).await;
            let client = world.client(FIRST).await;
            let waiter = queue_up(&world, &World::rw_lock(&client), behind).await;
            let place = place_of(&world, session(&client));
            assert!(world.server.admin_delete(&place));
            sleep_ms(1_000).await;
            let next = place_of(&world, session(&client));
            assert!(number(&next) > number(&place), "{}", world.trace());
            assert!(!waiter.is_finished());
            held.release().await;
            let guard = granted_now(&world, waiter).await;
            assert_eq!(guard.path(), next);
            guard.release().await;
            world.check_clean(&[&client, &other]).await;
        });
    }
}

#[test]
fn a_directory_deleted_while_waiting_is_made_again() {
    for (ahead, behind) in WAITS {
        run(async {
            let world = World::new();
            let (other, held) = holder(&world, SECOND, ahead).await;
            let client = world.client(FIRST).await;
            let waiter = queue_up(&world, &World::rw_lock(&client), behind).await;
            delete_directory(&world);
            let guard = granted(waiter).await;
            assert_eq!(held.lost().await, LostReason::ZnodeDeleted);
            assert_eq!(guard.state(), LockState::Held);
            guard.release().await;
            drop(held);
            world.check_clean(&[&client, &other]).await;
        });
    }
}

/// The directory was deleted and created again, and another contender in it has the waiter's
/// number.
#[test]
fn a_number_given_to_somebody_else_in_a_new_directory_is_no_error() {
    for (ahead, behind) in WAITS {
        run(async {
            let world = World::new();
            let (other, held) = holder(&world, SECOND, ahead).await;
            let client = world.client(FIRST).await;
            let waiter = queue_up(&world, &World::rw_lock(&client), behind).await;
            let namesake = number(&place_of(&world, session(&client)));
            world.server.disconnect_all();
            delete_directory(&world);
            world.server.admin_create(LOCK, b"", None);
            let path = format!("{LOCK}/somebody{}{namesake:010}", Write.mark());
            world.server.admin_create(&path, b"", Some(session(&other)));
            world.server.set_create_count(LOCK, 2);
            sleep_ms(2_000).await;
            assert!(!waiter.is_finished(), "{:?}\n{}", waiter.await, world.trace());
            assert!(world.server.admin_delete(&path));
            let guard = granted_now(&world, waiter).await;
            guard.release().await;
            drop(held);
            world.check_clean(&[&client, &other]).await;
        });
    }
}

#[test]
fn expiry_while_waiting_starts_again_in_the_next_session() {
    for (ahead, behind) in WAITS {
        for is_swapped in [false, true] {
            run(async {
                let world = World::new();
                let (other, held) = holder(&world, SECOND, ahead).await;
                let client = world.client(FIRST).await;
                let waiter = queue_up(&world, &World::rw_lock(&client), behind).await;
                let before = session(&client);
                if is_swapped {
                    world.server.inject(at_op(before, OpCode::PING, Action::CutBefore));
                    world.server.inject(Fault::new(At::connect(0), Action::SwapSession));
                } else {
                    world.server.expire(before);
                }
                // The swapped session expires, and its znode is deleted with it.
                sleep_ms(30_000).await;
                assert!(world.server.pending_faults().is_empty());
                assert!(!waiter.is_finished());
                assert_ne!(session(&client), before);
                assert_eq!(world.contenders().len(), 2, "{}", world.trace());
                held.release().await;
                let guard = granted_now(&world, waiter).await;
                assert_eq!(guard.session(), session(&client));
                guard.release().await;
                world.check_clean(&[&client, &other]).await;
            });
        }
    }
}

#[test]
fn expiry_at_any_request_leads_to_a_grant_in_a_living_session() {
    for (ahead, behind) in WAITS {
        let mut points = 0;
        for nth in 0.. {
            let fired = run(async {
                let world = World::new();
                let (other, held) = holder(&world, SECOND, ahead).await;
                let client = world.client(FIRST).await;
                world.server.inject(at_request(session(&client), nth, Action::Expire));
                let waiter = spawn(acquire_within(World::rw_lock(&client), behind, None));
                sleep_ms(2_000).await;
                assert!(!waiter.is_finished());
                held.release().await;
                let guard = granted(waiter).await;
                assert_eq!(guard.state(), LockState::Held, "{}", world.trace());
                assert!(world.server.sessions().contains(&guard.session()));
                let fired = world.server.pending_faults().is_empty();
                world.server.clear_faults();
                guard.release().await;
                world.check_clean(&[&client, &other]).await;
                fired
            });
            if !fired {
                break;
            }
            points += 1;
        }
        assert!(points >= 4, "only {points} requests were cut short by an expiry");
    }
}

/// The session of the holder ends, and its znode with it, so the waiters get the lock.
#[test]
fn the_end_of_the_holders_session_lets_the_waiter_in() {
    for (ahead, behind) in WAITS {
        run(async {
            let world = World::new();
            let (other, held) = holder(&world, SECOND, ahead).await;
            let client = world.client(FIRST).await;
            let waiter = queue_up(&world, &World::rw_lock(&client), behind).await;
            world.server.expire(session(&other));
            let guard = granted(waiter).await;
            assert_eq!(held.lost().await, LostReason::SessionExpired);
            let tried = try_acquire(&World::rw_lock(&other), Write).await;
            assert!(tried.expect("it can be listed").is_none());
            guard.release().await;
            drop(held);
            world.check_clean(&[&client, &other]).await;
        });
    }
}

/// A server may send an expiring session the events of its own znodes' deletion, in any order.
#[test]
fn the_end_of_a_session_is_never_a_grant_in_it() {
    for (ahead, behind) in WAITS {
        for seed in 1..=8 {
            run(async {
                let config = zk_testserver::ServerConfig::default().events_at_expiry(true);
                let world = World::with(config);
                let (client, held) = holder(&world, seed, ahead).await;
                let waiter = queue_up(&world, &World::rw_lock(&client), behind).await;
                let dead = session(&client);
                world.server.expire(dead);
                let guard = granted(waiter).await;
                assert_ne!(guard.session(), dead, "{}", world.trace());
                guard.release().await;
                drop(held);
                world.check_clean(&[&client]).await;
            });
        }
    }
}

#[test]
fn changed_data_is_no_grant_and_loses_no_wake_up() {
    for (ahead, behind) in WAITS {
        run(async {
            let world = World::new();
            let (other, held) = holder(&world, SECOND, ahead).await;
            let client = world.client(FIRST).await;
            let lock = World::rw_lock(&client);
            let waiter = queue_up(&world, &lock, behind).await;
            let place = place_of(&world, session(&client));
            for touched in [held.path(), place.as_str(), held.path()] {
                world.server.admin_set_data(touched, b"touched");
                sleep_ms(500).await;
                assert!(!waiter.is_finished(), "{}", world.trace());
            }
            held.release().await;
            let guard = granted_now(&world, waiter).await;
            assert_eq!(guard.path(), place);
            assert_eq!(lock.stats().watches_missed, 0);
            guard.release().await;
            world.check_clean(&[&client, &other]).await;
        });
    }
}
