//! Waiting in the queue, and events during the wait.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{Acl, Client, FairLock, Guard, LockError, LockState, LostReason, Permissions};
use zk_tests::case::LOCK;
use zk_tests::scene::{create_directory, place_of};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, At, Fault, ServerConfig};

use crate::{
    FIRST, SECOND, THIRD, at_op, at_request, delete_directory, granted, granted_now, holder, ops,
    partition, queue_up, release, requests_of, session, spawn,
};

#[test]
fn a_predecessor_deleted_while_disconnected_is_noticed() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let lock = World::lock(&client);
        let waiter = queue_up(&world, &lock).await;
        partition(&world, 500);
        assert!(world.server.admin_delete(held.path()));
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
fn a_predecessor_deleted_after_a_reconnect_is_noticed() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let lock = World::lock(&client);
        let waiter = queue_up(&world, &lock).await;
        partition(&world, 100);
        sleep_ms(3_000).await;
        assert_eq!(held.state(), LockState::Held, "connected again\n{}", world.trace());
        assert!(!waiter.is_finished());
        assert!(world.server.admin_delete(held.path()));
        let guard = granted_now(&world, waiter).await;
        assert_eq!(lock.stats().watches_missed, 0);
        release(guard).await;
        drop(held);
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn a_middle_contender_that_gives_up_wakes_nobody_into_the_lock() {
    run(async {
        let world = World::new();
        let (first, held) = holder(&world, FIRST).await;
        let (second, third) = (world.client(SECOND).await, world.client(THIRD).await);
        let middle = queue_up(&world, &World::lock(&second)).await;
        let last = queue_up(&world, &World::lock(&third)).await;
        middle.abort();
        world.until("the middle one is gone", |_| world.contenders().len() == 2).await;
        sleep_ms(2_000).await;
        assert!(!last.is_finished(), "{}", world.trace());
        release(held).await;
        release(granted_now(&world, last).await).await;
        world.check_clean(&[&first, &second, &third]).await;
    });
}

#[test]
fn a_middle_contender_deleted_by_hand_goes_to_the_end() {
    run(async {
        let world = World::new();
        let (first, held) = holder(&world, FIRST).await;
        let (second, third) = (world.client(SECOND).await, world.client(THIRD).await);
        let middle = queue_up(&world, &World::lock(&second)).await;
        let middle_znode = place_of(&world, session(&second));
        let last = queue_up(&world, &World::lock(&third)).await;
        assert!(world.server.admin_delete(&middle_znode));
        sleep_ms(2_000).await;
        assert!(!last.is_finished() && !middle.is_finished(), "{}", world.trace());
        assert_eq!(world.contenders().len(), 3);
        release(held).await;
        let guard = granted_now(&world, last).await;
        sleep_ms(1_000).await;
        assert!(!middle.is_finished(), "two holders\n{}", world.trace());
        release(guard).await;
        release(granted_now(&world, middle).await).await;
        world.check_clean(&[&first, &second, &third]).await;
    });
}

#[test]
fn a_waiter_whose_znode_is_deleted_takes_a_new_place() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let waiter = queue_up(&world, &World::lock(&client)).await;
        let place = place_of(&world, session(&client));
        assert!(world.server.admin_delete(&place));
        sleep_ms(1_000).await;
        let next = place_of(&world, session(&client));
        assert!(number(&next) > number(&place) && next != place, "{}", world.trace());
        assert!(!waiter.is_finished());
        release(held).await;
        let guard = granted_now(&world, waiter).await;
        assert_eq!(guard.path(), next);
        release(guard).await;
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn a_waiter_whose_znodes_are_all_deleted_gives_up_in_the_end() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let waiter = queue_up(&world, &World::lock(&client)).await;
        let id = session(&client);
        let mut places = 0;
        while !waiter.is_finished() {
            if let Some((path, _)) =
                world.server.ephemerals().into_iter().find(|(_, owner)| *owner == id)
            {
                places += 1;
                assert!(world.server.admin_delete(&path));
            }
            sleep_ms(1).await;
        }
        let ended = waiter.await.expect("an acquire does not panic").map(drop);
        assert_eq!(ended, Err(LockError::Lost(LostReason::ZnodeDeleted)));
        assert_eq!(places, 6, "a place and five new ones\n{}", world.trace());
        assert_eq!(held.state(), LockState::Held);
        release(held).await;
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn changed_data_of_the_predecessor_is_no_grant_and_loses_no_wake_up() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let lock = World::lock(&client);
        let waiter = queue_up(&world, &lock).await;
        for _ in 0..3 {
            world.server.admin_set_data(held.path(), b"busy");
            sleep_ms(500).await;
            assert!(!waiter.is_finished(), "{}", world.trace());
        }
        release(held).await;
        release(granted_now(&world, waiter).await).await;
        assert_eq!(lock.stats().watches_missed, 0);
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn changed_data_of_the_own_znode_keeps_the_place() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let lock = World::lock(&client);
        let waiter = queue_up(&world, &lock).await;
        let place = place_of(&world, session(&client));
        world.server.admin_set_data(&place, b"touched");
        sleep_ms(500).await;
        release(held).await;
        let guard = granted_now(&world, waiter).await;
        assert_eq!(guard.path(), place);
        release(guard).await;
        assert_eq!(lock.stats().watches_missed, 0);
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn own_znode_deleted_after_its_data_changed_is_noticed_at_the_hand_off() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let waiter = queue_up(&world, &World::lock(&client)).await;
        let place = place_of(&world, session(&client));
        // The first change uses up the watch, so the second one causes no event.
        world.server.admin_set_data(&place, b"touched");
        sleep_ms(100).await;
        assert!(world.server.admin_delete(&place));
        sleep_ms(100).await;
        release(held).await;
        let guard = granted(waiter).await;
        assert_ne!(guard.path(), place, "granted without a znode\n{}", world.trace());
        assert!(world.server.stat(guard.path()).is_some());
        release(guard).await;
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn a_directory_made_again_starts_a_new_queue() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let waiter = queue_up(&world, &World::lock(&client)).await;
        let token = held.fencing_token();
        delete_directory(&world);
        // Another contender is first in the new directory, with the number that the holder had.
        world.server.admin_create(LOCK, b"", None);
        let first = format!("{LOCK}/somebody-lock-0000000000");
        world.server.admin_create(&first, b"", Some(session(&other)));
        world.server.set_create_count(LOCK, 1);
        sleep_ms(2_000).await;
        assert_eq!(held.state(), LockState::Lost(LostReason::ZnodeDeleted));
        assert!(!waiter.is_finished(), "{}", world.trace());
        assert!(world.server.admin_delete(&first));
        let guard = granted_now(&world, waiter).await;
        assert!(guard.fencing_token() > token);
        assert!(number(guard.path()) <= 2);
        release(guard).await;
        drop(held);
        world.check_clean(&[&client, &other]).await;
    });
}

/// The directory was deleted and created again, and another contender in it has the waiter's
/// number.
#[test]
fn a_number_given_to_somebody_else_in_a_new_directory_is_no_error() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let waiter = queue_up(&world, &World::lock(&client)).await;
        world.server.disconnect_all();
        delete_directory(&world);
        world.server.admin_create(LOCK, b"", None);
        let namesake = format!("{LOCK}/somebody-lock-0000000001");
        world.server.admin_create(&namesake, b"", Some(session(&other)));
        world.server.set_create_count(LOCK, 2);
        sleep_ms(2_000).await;
        assert!(!waiter.is_finished(), "{:?}\n{}", waiter.await, world.trace());
        assert!(world.server.admin_delete(&namesake));
        release(granted_now(&world, waiter).await).await;
        drop(held);
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn a_directory_deleted_while_waiting_is_made_again() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let waiter = queue_up(&world, &World::lock(&client)).await;
        delete_directory(&world);
        let guard = granted(waiter).await;
        assert_eq!(held.state(), LockState::Lost(LostReason::ZnodeDeleted));
        assert_eq!(guard.state(), LockState::Held);
        release(guard).await;
        drop(held);
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn expiry_while_waiting_starts_again_in_the_next_session() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let waiter = queue_up(&world, &World::lock(&client)).await;
        let before = session(&client);
        world.server.expire(before);
        sleep_ms(3_000).await;
        assert!(!waiter.is_finished());
        assert_ne!(session(&client), before);
        assert_eq!(world.contenders().len(), 2, "{}", world.trace());
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
    for nth in 0.. {
        let fired = run(async {
            let world = World::new();
            let (other, held) = holder(&world, SECOND).await;
            let client = world.client(FIRST).await;
            world.server.inject(at_request(session(&client), nth, Action::Expire));
            let waiter = spawn(World::lock(&client).acquire().into_future());
            sleep_ms(2_000).await;
            assert!(!waiter.is_finished());
            release(held).await;
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
    assert!(points >= 4, "only {points} requests were cut short by an expiry");
}

#[test]
fn a_throttled_create_survives_expiry_during_its_pause() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let code = zk_recipes::ErrorCode::THROTTLED_OP;
        let id = session(&client);
        world.server.inject(at_op(id, OpCode::CREATE2, Action::Error(code)));
        let waiter = spawn(World::lock(&client).acquire().into_future());
        sleep_ms(100).await;
        assert!(world.server.pending_faults().is_empty());
        world.server.expire(id);
        sleep_ms(100).await;
        release(held).await;
        let guard = granted(waiter).await;
        release(guard).await;
        world.check_clean(&[&client, &other]).await;
    });
}

/// A server may send an expiring session the events of its own znodes' deletion, in any order. If
/// the predecessor belongs to the same session, its deletion looks like a release.
#[test]
fn the_end_of_a_session_is_never_a_grant_in_it() {
    // The seed determines the names, which determine the order in which the znodes are deleted.
    for (seed, is_slow) in (1..=8).flat_map(|seed| [(seed, false), (seed, true)]) {
        run(async {
            let world = World::with(ServerConfig::default().events_at_expiry(true));
            let (client, held) = holder(&world, seed).await;
            let waiter = queue_up(&world, &World::lock(&client)).await;
            if is_slow {
                // For a while, only the first of the two events arrives.
                let slow = Action::Delay(Duration::from_millis(50));
                world.server.inject(Fault::new(At::event(1), slow));
            }
            let dead = session(&client);
            world.server.expire(dead);
            let guard = granted(waiter).await;
            assert_ne!(guard.session(), dead, "{}", world.trace());
            assert!(world.server.pending_faults().is_empty(), "two events");
            assert_eq!(guard.state(), LockState::Held);
            assert!(matches!(held.state(), LockState::Lost(_)), "{:?}", held.state());
            release(guard).await;
            drop(held);
            world.check_clean(&[&client]).await;
        });
    }
}

#[test]
fn a_predecessor_of_the_own_session_is_confirmed_by_one_read() {
    run(async {
        let world = World::new();
        let (client, held) = holder(&world, FIRST).await;
        let waiter = queue_up(&world, &World::lock(&client)).await;
        sleep_ms(500).await;
        let place = place_of_waiter(&world, held.path());
        world.server.clear_requests();
        release(held).await;
        let guard = granted_now(&world, waiter).await;
        let requests = requests_of(&world, session(&client));
        assert_eq!(ops(&requests), [OpCode::DELETE, OpCode::GET_DATA], "{}", world.trace());
        assert_eq!(requests[1].path.as_deref(), Some(place.as_str()));
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

/// Connects a client that acquires the lock with a znode that no other client may read, in a
/// directory that everyone may use.
async fn unreadable_holder(world: &World) -> (Client, Guard) {
    create_directory::<FairLock>(world);
    let client = world.client_with(SECOND, |builder| builder.auth("digest", "a:b")).await;
    let lock = FairLock::builder(&client, LOCK)
        .and_then(|lock| lock.acl(Acl::creator_all()).watch_check(None).build())
        .expect("the options are legal");
    let held = lock.acquire().await.expect("the lock is free");
    (client, held)
}

#[test]
fn a_predecessor_that_may_not_be_read_is_waited_for_by_the_directory() {
    run(async {
        let world = World::new();
        let (other, held) = unreadable_holder(&world).await;
        let client = world.client(FIRST).await;
        let lock = World::lock(&client);
        let waiter = queue_up(&world, &lock).await;
        // Another contender joins the queue: the directory changes, but the waiter is not granted
        // the lock.
        let third = world.client(THIRD).await;
        let behind = queue_up(&world, &World::lock(&third)).await;
        sleep_ms(500).await;
        assert!(!waiter.is_finished(), "{}", world.trace());
        release(held).await;
        let guard = granted_now(&world, waiter).await;
        assert!(!behind.is_finished());
        release(guard).await;
        release(granted_now(&world, behind).await).await;
        assert_eq!(lock.stats().watches_missed, 0);
        world.check_clean(&[&client, &other, &third]).await;
    });
}

/// The waiter's list was part of the repeated claim, so it did not set a watch.
#[test]
fn a_blind_waiter_that_had_to_create_again_watches_the_directory() {
    run(async {
        let world = World::new();
        let (other, held) = unreadable_holder(&world).await;
        let client = world.client(FIRST).await;
        let waiter = queue_up(&world, &World::lock(&client)).await;
        // The test replaces the waiter's znode by one with the same id.
        let place = place_of_waiter(&world, held.path());
        let (prefix, _) = place.rsplit_once('-').expect("it has a number");
        let stranger = format!("{prefix}-0000000777");
        world.server.admin_create(&stranger, b"", Some(session(&other)));
        assert!(world.server.admin_delete(&place));
        sleep_ms(500).await;
        assert_eq!(world.contenders().len(), 3, "{}", world.trace());
        release(held).await;
        let guard = granted_now(&world, waiter).await;
        assert_ne!(guard.path(), stranger);
        release(guard).await;
        assert!(world.server.admin_delete(&stranger), "it is left alone");
        // `check_clean` would fail, because an attempt whose znode was deleted creates twice.
        world.until("nothing is left", |_| world.contenders().is_empty()).await;
        drop((client, other));
    });
}

/// A list shows only names. The znode with the waiter's name must be the znode that the waiter has
/// created.
#[test]
fn a_znode_that_somebody_has_created_again_under_the_own_name_is_no_place() {
    for (is_ephemeral, is_cut) in [(false, false), (false, true), (true, false), (true, true)] {
        run(async {
            let world = World::new();
            let (other, held) = holder(&world, SECOND).await;
            let client = world.client(FIRST).await;
            let own = session(&client);
            let waiter = queue_up(&world, &World::lock(&client)).await;
            sleep_ms(500).await;
            let place = place_of_waiter(&world, held.path());
            if is_cut {
                world.server.refuse_for(Duration::from_millis(300));
                world.server.disconnect_all();
            }
            assert!(world.server.admin_delete(&place));
            world.server.admin_create(&place, b"", is_ephemeral.then_some(own));
            release(held).await;
            sleep_ms(3_000).await;
            // The znode has the id of the waiter's attempt, so the attempt removes it when it gives
            // up.
            assert_eq!(world.server.stat(&place), None, "{}", world.trace());
            let guard = granted_now(&world, waiter).await;
            assert_ne!(guard.path(), place, "{}", world.trace());
            release(guard).await;
            world.check_clean(&[&client, &other]).await;
        });
    }
}

/// Both events arrive together. The second event is irrelevant, and must not hide the grant.
#[test]
fn an_event_that_arrives_with_the_grant_does_not_stop_it() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let waiter = queue_up(&world, &World::lock(&client)).await;
        sleep_ms(500).await;
        let place = place_of_waiter(&world, held.path());
        assert!(world.server.admin_delete(held.path()));
        world.server.admin_set_data(&place, b"x");
        let guard = granted_now(&world, waiter).await;
        assert_eq!(guard.path(), place);
        release(guard).await;
        drop(held);
        world.check_clean(&[&client, &other]).await;
    });
}

/// A holder's znode must also be the znode that the holder has created.
#[test]
fn a_lock_whose_znode_was_created_again_by_somebody_is_lost() {
    for is_cut in [false, true] {
        run(async {
            let world = World::new();
            let (client, held) = holder(&world, FIRST).await;
            sleep_ms(500).await;
            if is_cut {
                world.server.refuse_for(Duration::from_millis(300));
                world.server.disconnect_all();
            }
            let path = held.path().to_owned();
            assert!(world.server.admin_delete(&path));
            world.server.admin_create(&path, b"", Some(session(&client)));
            sleep_ms(3_000).await;
            assert_eq!(held.state(), LockState::Lost(LostReason::ZnodeDeleted));
            drop(held);
            world.server.admin_delete(&path);
            world.check_clean(&[&client]).await;
        });
    }
}

#[test]
fn an_own_znode_that_may_not_be_read_fails_the_wait_and_leaves_nothing() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let acl = vec![Acl::new(Permissions::WRITE | Permissions::ADMIN, "world", "anyone")];
        let lock = FairLock::builder(&client, LOCK)
            .and_then(|lock| lock.acl(acl).watch_check(None).build())
            .expect("the options are legal");
        let refused = lock.acquire().await.map(drop);
        let Err(LockError::Refused { code, path, .. }) = refused else {
            panic!("{refused:?}\n{}", world.trace());
        };
        assert_eq!(code, zk_recipes::ErrorCode::NO_AUTH);
        assert!(path.starts_with(LOCK) && path != held.path(), "{path}");
        sleep_ms(100).await;
        assert_eq!(world.contenders().len(), 1, "{}", world.trace());
        release(held).await;
        world.check_clean(&[&client, &other]).await;
    });
}

/// Returns the path of the contender that does not hold the lock.
fn place_of_waiter(world: &World, held: &str) -> String {
    let mut paths = world.contenders().into_iter().map(|name| format!("{LOCK}/{name}"));
    paths.rfind(|path| path != held).expect("a contender waits")
}

/// Returns the sequence number of a contender.
fn number(path: &str) -> u32 {
    path.rsplit_once('-').expect("a contender").1.parse().expect("digits")
}
