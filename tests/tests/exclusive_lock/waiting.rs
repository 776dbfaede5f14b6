//! Waiting for the lock, and events during the wait.

use std::time::Duration;

use jute_codec::{OpCode, SessionId};
use zk_recipes::{Acl, ExclusiveLock, LockError, LockState, LostReason, Released, SessionState};
use zk_tests::case::{Case as _, LOCK};
use zk_tests::scene::{
    FIRST, SECOND, THIRD, at_request, create_directory, granted, granted_now, partition, release,
    session, spawn,
};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

use crate::{holder, queue_up};

#[test]
fn one_holds_it_and_the_other_gets_it_after_the_release() {
    for is_dropped in [false, true] {
        run(async {
            let world = World::new();
            let (other, held) = holder(&world, SECOND).await;
            let client = world.client(FIRST).await;
            let waiter = queue_up(&world, &ExclusiveLock::of(&client)).await;
            sleep_ms(50_000).await;
            assert!(!waiter.is_finished(), "two holders\n{}", world.trace());
            let token = held.fencing_token();
            assert_eq!(held.state(), LockState::Held);
            if is_dropped {
                drop(held);
            } else {
                release(held).await;
            }
            let guard = granted_now(&world, waiter).await;
            assert_eq!((guard.path(), guard.state()), (LOCK, LockState::Held));
            assert_eq!(guard.session(), session(&client));
            assert!(guard.fencing_token() > token);
            let stat = world.server.stat(LOCK).expect("the lock is held");
            assert_eq!(guard.fencing_token().get(), stat.czxid.0);
            release(guard).await;
            world.check_clean(&[&client, &other]).await;
        });
    }
}

#[test]
fn tasks_of_one_client_exclude_each_other_too() {
    run(async {
        let world = World::new();
        let (client, held) = holder(&world, FIRST).await;
        let lock = ExclusiveLock::of(&client);
        let waiter = queue_up(&world, &lock).await;
        assert!(lock.try_acquire().await.expect("it can be read").is_none());
        release(held).await;
        release(granted_now(&world, waiter).await).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_wait_that_is_too_long_times_out_and_leaves_nothing() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let before = client.now();
        let timeout = Duration::from_millis(700);
        let ended = ExclusiveLock::of(&client).acquire().timeout(timeout).await.map(drop);
        assert!(matches!(ended, Err(LockError::TimedOut(_))));
        assert_eq!(client.now().saturating_since(before), timeout);
        let none = ExclusiveLock::of(&client).acquire().timeout(Duration::ZERO).await.map(drop);
        assert!(matches!(none, Err(LockError::TimedOut(_))));
        sleep_ms(1_000).await;
        assert_eq!(world.owner(), Some(session(&other)), "{}", world.trace());
        // The holder has one watch, and at most one other watch is left, which fires with the
        // znode.
        assert!(world.server.watch_count() <= 2, "{}", world.server.watch_count());
        release(held).await;
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn a_release_while_the_waiter_is_disconnected_is_noticed() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let lock = ExclusiveLock::of(&client);
        let waiter = queue_up(&world, &lock).await;
        partition(&world, 500);
        assert!(world.server.admin_delete(LOCK));
        sleep_ms(400).await;
        assert!(!waiter.is_finished());
        let before = client.now();
        let guard = granted(waiter).await;
        assert!(client.now().saturating_since(before).as_millis() < 3_000, "{}", world.trace());
        assert_eq!(lock.stats().watches_missed, 0);
        release(guard).await;
        drop(held);
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn a_watch_outlives_reconnects() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let lock = ExclusiveLock::of(&client);
        let waiter = queue_up(&world, &lock).await;
        for _ in 0..3 {
            partition(&world, 100);
            sleep_ms(3_000).await;
            assert_eq!(held.state(), LockState::Held, "connected again\n{}", world.trace());
            assert!(!waiter.is_finished());
        }
        release(held).await;
        let guard = granted_now(&world, waiter).await;
        assert_eq!(lock.stats().watches_missed, 0);
        release(guard).await;
        world.check_clean(&[&client, &other]).await;
    });
}

/// The lock changed hands while the waiter was disconnected, so the waiter now waits for another
/// holder.
#[test]
fn a_hand_over_while_disconnected_is_no_grant_and_loses_no_wake_up() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let third = world.client(THIRD).await;
        let client = world.client(FIRST).await;
        let lock = ExclusiveLock::of(&client);
        let waiter = queue_up(&world, &lock).await;
        partition(&world, 500);
        assert!(world.server.admin_delete(LOCK));
        world.server.admin_create(LOCK, b"somebody", Some(session(&third)));
        sleep_ms(3_000).await;
        assert_eq!(client.state(), SessionState::Connected);
        assert!(!waiter.is_finished(), "granted beside a holder\n{}", world.trace());
        assert_eq!(held.state(), LockState::Lost(LostReason::ZnodeDeleted));
        assert!(world.server.admin_delete(LOCK));
        let guard = granted_now(&world, waiter).await;
        assert_eq!(lock.stats().watches_missed, 0);
        release(guard).await;
        drop(held);
        world.check_clean(&[&client, &other, &third]).await;
    });
}

#[test]
fn changed_data_of_the_holder_is_no_grant_and_loses_no_wake_up() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let waiter = queue_up(&world, &ExclusiveLock::of(&client)).await;
        for _ in 0..3 {
            world.server.admin_set_data(LOCK, b"busy");
            sleep_ms(500).await;
            assert!(!waiter.is_finished(), "{}", world.trace());
        }
        release(held).await;
        release(granted_now(&world, waiter).await).await;
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn a_holder_that_expires_is_followed_by_one_of_the_waiters() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let waiter = queue_up(&world, &ExclusiveLock::of(&client)).await;
        world.server.expire(session(&other));
        let guard = granted_now(&world, waiter).await;
        assert!(guard.fencing_token() > held.fencing_token());
        sleep_ms(1_000).await;
        assert_eq!(held.state(), LockState::Lost(LostReason::SessionExpired));
        assert_eq!(held.release().await, Ok(Released::EndedWithSession));
        guard.validate().await.expect("the lock is held");
        release(guard).await;
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn expiry_while_waiting_starts_again_in_the_next_session() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let waiter = queue_up(&world, &ExclusiveLock::of(&client)).await;
        let before = session(&client);
        world.server.expire(before);
        sleep_ms(3_000).await;
        assert!(!waiter.is_finished());
        assert_ne!(session(&client), before);
        release(held).await;
        let guard = granted_now(&world, waiter).await;
        assert_eq!(guard.session(), session(&client));
        release(guard).await;
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn expiry_at_any_request_leads_to_a_grant_in_a_living_session() {
    let mut points = 0;
    for has_holder in [false, true] {
        for nth in 0.. {
            let fired = run(async {
                let world = World::new();
                let other = world.client(SECOND).await;
                let held = ExclusiveLock::of(&other).acquire().await.expect("the lock is free");
                let held = Some(held).filter(|_| has_holder);
                world.until("it is taken or free", |_| world.owner().is_some() == has_holder).await;
                let client = world.client(FIRST).await;
                world.server.inject(at_request(session(&client), nth, Action::Expire));
                let waiter = spawn(ExclusiveLock::of(&client).acquire().into_future());
                sleep_ms(2_000).await;
                if has_holder {
                    assert!(!waiter.is_finished(), "{}", world.trace());
                }
                drop(held);
                let guard = granted(waiter).await;
                assert_eq!(guard.state(), LockState::Held, "{}", world.trace());
                assert!(world.server.sessions().contains(&guard.session()));
                let fired = world.server.pending_faults().is_empty();
                world.server.clear_faults();
                release(guard).await;
                world.check_clean(&[&client, &other]).await;
                fired
            });
            if !fired {
                break;
            }
            points += 1;
        }
    }
    assert!(points >= 4, "only {points} requests were cut short by an expiry");
}

/// The waiter and the holder have the same session, which ends. The events arrive in any order.
#[test]
fn the_end_of_a_session_is_never_a_grant_in_it() {
    for seed in 1..=4 {
        run(async {
            let world = World::with(zk_testserver::ServerConfig::default().events_at_expiry(true));
            let (client, held) = holder(&world, seed).await;
            let waiter = queue_up(&world, &ExclusiveLock::of(&client)).await;
            let dead = session(&client);
            world.server.expire(dead);
            let guard = granted(waiter).await;
            assert_ne!(guard.session(), dead, "{}", world.trace());
            assert_eq!(guard.state(), LockState::Held);
            assert!(matches!(held.state(), LockState::Lost(_)), "{:?}", held.state());
            drop(held);
            sleep_ms(1_000).await;
            guard.validate().await.expect("the release of another holder does not remove it");
            release(guard).await;
            world.check_clean(&[&client]).await;
        });
    }
}

#[test]
fn a_directory_deleted_while_waiting_is_made_again() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let waiter = queue_up(&world, &ExclusiveLock::of(&client)).await;
        assert!(world.server.admin_delete(LOCK));
        assert!(world.server.admin_delete("/locks"));
        let guard = granted(waiter).await;
        assert_eq!(held.state(), LockState::Lost(LostReason::ZnodeDeleted));
        assert_eq!(guard.state(), LockState::Held);
        release(guard).await;
        drop(held);
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn a_lock_directly_below_the_root_and_one_far_down_work() {
    for path in ["/one", "/a/b/c/d/one"] {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            let lock = ExclusiveLock::new(&client, path).expect("the path is valid");
            for _ in 0..2 {
                let guard = lock.acquire().await.expect("the lock is free");
                assert_eq!((guard.path(), lock.path()), (path, path));
                release(guard).await;
            }
            world.check_clean(&[&client]).await;
        });
    }
}

/// A znode that is not ephemeral belongs to no session, so a wait for its deletion might never end.
#[test]
fn a_znode_that_is_not_ephemeral_is_an_error_and_never_waited_for() {
    run(async {
        let world = World::new();
        create_directory::<ExclusiveLock>(&world);
        world.server.admin_create(LOCK, b"", None);
        let client = world.client(FIRST).await;
        let lock = ExclusiveLock::of(&client);
        let mixed = LockError::MixedKinds { path: LOCK.to_owned() };
        assert_eq!(lock.acquire().await.map(drop), Err(mixed.clone()));
        assert_eq!(lock.try_acquire().await.map(drop), Err(mixed.clone()));
        assert_eq!(lock.holder().await, Err(mixed));
        sleep_ms(1_000).await;
        assert_eq!(world.owner(), Some(SessionId::NONE), "it is not ours to delete");
        assert!(world.server.admin_delete(LOCK));
        release(lock.acquire().await.expect("the lock is free")).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_znode_that_is_not_ephemeral_ends_the_wait_when_it_comes() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let waiter = queue_up(&world, &ExclusiveLock::of(&client)).await;
        assert!(world.server.admin_delete(LOCK));
        world.server.admin_create(LOCK, b"", None);
        let ended = waiter.await.expect("an acquire does not panic").map(drop);
        assert_eq!(ended, Err(LockError::MixedKinds { path: LOCK.to_owned() }));
        drop(held);
        sleep_ms(1_000).await;
        assert_eq!(world.owner(), Some(SessionId::NONE), "it is not ours to delete");
        assert!(world.server.admin_delete(LOCK));
        world.check_clean(&[&client, &other]).await;
    });
}

/// The lock finds a container at its path, because another lock uses it as the directory of a
/// queue.
#[test]
fn the_directory_of_another_lock_is_no_exclusive_lock() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let queue = World::lock(&client).acquire().await.expect("the lock is free");
        let lock = ExclusiveLock::new(&client, LOCK).expect("the path is valid");
        let ended = lock.acquire().await.map(drop);
        assert_eq!(ended, Err(LockError::MixedKinds { path: LOCK.to_owned() }));
        queue.validate().await.expect("it is undisturbed");
        queue.release().await.expect("its znode can be deleted");
        world.check_clean(&[&client]).await;
    });
}

/// The znode of a lock cannot have children.
#[test]
fn nothing_can_be_created_below_a_lock_that_is_held() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        let below = ExclusiveLock::new(&client, "/locks/x/below").expect("the path is valid");
        let ended = below.acquire().await.map(drop);
        let code = zk_recipes::ErrorCode::NO_CHILDREN_FOR_EPHEMERALS;
        assert!(matches!(ended, Err(LockError::Refused { code: told, .. }) if told == code));
        assert_eq!(guard.state(), LockState::Held);
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

/// A server withholds events from clients that may not read the znode. Only the safety check finds
/// the change.
#[test]
fn a_watch_that_does_not_tell_is_made_good_by_the_safety_look() {
    for interval in [None, Some(Duration::from_secs(10))] {
        run(async {
            let world = World::new();
            let other = world.client_with(SECOND, |builder| builder.auth("digest", "a:b")).await;
            let held = ExclusiveLock::of(&other).acquire().await.expect("the lock is free");
            let client = world.client(FIRST).await;
            let lock = ExclusiveLock::builder(&client, LOCK)
                .and_then(|lock| lock.watch_check(interval).build())
                .expect("the options are legal");
            let waiter = queue_up(&world, &lock).await;
            let creator = Acl::creator_all();
            other.set_acl(LOCK, creator, None).await.expect("the znode is its own");
            release(held).await;
            // The safety checks are spread: they happen after the interval, but not much later.
            sleep_ms(9_900).await;
            assert!(!waiter.is_finished(), "the event was withheld\n{}", world.trace());
            sleep_ms(2_700).await;
            assert_eq!(waiter.is_finished(), interval.is_some(), "{}", world.trace());
            assert_eq!(lock.stats().watches_missed, u64::from(interval.is_some()));
            if interval.is_some() {
                release(granted(waiter).await).await;
            } else {
                waiter.abort();
            }
            world.check_clean(&[&client, &other]).await;
        });
    }
}

#[test]
fn the_safety_looks_of_waiters_are_spread_and_find_nothing() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let mut waiters = Vec::new();
        let mut clients = vec![other];
        let interval = Duration::from_secs(10);
        for seed in 10..20 {
            let client = world.client(seed).await;
            let lock = ExclusiveLock::builder(&client, LOCK)
                .and_then(|lock| lock.watch_check(Some(interval)).build())
                .expect("the options are legal");
            waiters.push((queue_up(&world, &lock).await, lock));
            clients.push(client);
        }
        world.server.clear_requests();
        sleep_ms(12_400).await;
        let looks = world.server.requests();
        assert_eq!(looks.len(), 10, "{}", world.trace());
        assert!(looks.iter().all(|look| look.op == OpCode::GET_DATA));
        let mut times: Vec<_> = looks.iter().map(|look| look.at).collect();
        times.dedup();
        assert!(times.len() >= 8, "all at once: {times:?}");
        drop(held);
        for (waiter, lock) in waiters {
            release(granted(waiter).await).await;
            assert_eq!(lock.stats().watches_missed, 0);
        }
        world.check_clean(&clients.iter().collect::<Vec<_>>()).await;
    });
}

#[test]
fn no_interval_is_too_long() {
    for long in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::MAX / 2] {
        run(async {
            let world = World::new();
            let (other, held) = holder(&world, SECOND).await;
            let client = world.client(FIRST).await;
            let lock = ExclusiveLock::builder(&client, LOCK)
                .and_then(|lock| lock.watch_check(Some(long)).build())
                .expect("it never looks");
            let waiter = queue_up(&world, &lock).await;
            release(held).await;
            release(granted(waiter).await).await;
            world.check_clean(&[&client, &other]).await;
        });
    }
}
