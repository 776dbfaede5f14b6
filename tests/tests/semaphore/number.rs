//! The stored number of permits: who stores it, what happens if it differs, and changing it.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{
    Acl, ConfigError, ErrorCode, FailedAction, FairLock, LockError, LockState, Permissions,
    Semaphore,
};
use zk_tests::case::LOCK;
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND, THIRD, granted_now, release, sent_since, spawn};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, At, Fault, Filter};

use crate::{create_directory, hold, queue_up, semaphore, stored};

fn differs(stored: &str, expected: u32) -> LockError {
    LockError::PermitsDiffer { directory: LOCK.into(), stored: stored.into(), expected }
}

#[test]
fn the_first_contender_stores_the_number_and_others_compare() {
    run(async {
        for is_there in [false, true] {
            let world = World::new();
            if is_there {
                create_directory(&world);
            }
            let (first, second) = (world.client(FIRST).await, world.client(SECOND).await);
            assert_eq!(semaphore(&first, 3).stored_permits().await, Ok(None));
            let guard = hold(&semaphore(&first, 3)).await;
            assert_eq!(stored(&world).as_deref(), Some("3"));
            for permits in [1, 2, 4, u32::MAX] {
                let other = semaphore(&second, permits);
                assert_eq!(other.acquire().await.unwrap_err(), differs("3", permits));
                assert_eq!(other.stored_permits().await, Ok(Some(3)));
            }
            let other = semaphore(&second, 4).try_acquire().await;
            assert_eq!(other.unwrap_err(), differs("3", 4));
            let builder = Semaphore::builder(&second, LOCK).expect("the path is valid");
            let accepting = builder.permits(1).accept_stored_permits().build();
            let accepted = hold(&accepting.expect("the options are legal")).await;
            assert_eq!(world.contenders().len(), 2, "the refused ones left nothing");
            release(accepted).await;
            release(guard).await;
            world.check_clean(&[&first, &second]).await;
        }
    });
}

#[test]
fn of_two_that_store_a_first_number_at_once_one_succeeds_and_the_other_compares() {
    run(async {
        let world = World::new();
        create_directory(&world);
        let (first, second) = (world.client(FIRST).await, world.client(SECOND).await);
        let (two, three) = (semaphore(&first, 2), semaphore(&second, 3));
        let (two, three) = tokio::join!(two.acquire(), three.acquire());
        match stored(&world).as_deref() {
            Some("2") => {
                assert_eq!(three.unwrap_err(), differs("2", 3));
                release(two.expect("its number is stored")).await;
            }
            Some("3") => {
                assert_eq!(two.unwrap_err(), differs("3", 2));
                release(three.expect("its number is stored")).await;
            }
            other => panic!("{other:?} is stored\n{}", world.trace()),
        }
        world.check_clean(&[&first, &second]).await;
    });
}

#[test]
fn data_that_is_no_number_is_refused_and_shown() {
    run(async {
        for data in ["0", "-1", "+2", "2 ", "two", "1.5", "4294967296", "\u{fffd}"] {
            let world = World::new();
            create_directory(&world);
            world.server.admin_set_data(LOCK, data.as_bytes());
            let client = world.client(FIRST).await;
            let semaphore = semaphore(&client, 2);
            assert_eq!(semaphore.acquire().await.unwrap_err(), differs(data, 2), "{data}");
            assert_eq!(semaphore.stored_permits().await, Err(differs(data, 2)), "{data}");
            assert_eq!(stored(&world).as_deref(), Some(data), "it is left alone");
            world.check_clean(&[&client]).await;
        }
    });
}

#[test]
fn the_data_and_the_children_of_another_kind_of_lock_are_left_alone() {
    run(async {
        let world = World::new();
        let (first, second) = (world.client(FIRST).await, world.client(SECOND).await);
        let fair = FairLock::new(&first, LOCK).expect("the path is valid");
        let held = fair.acquire().await.expect("it is free");
        let mut other = semaphore(&second, 2);
        for refused in [other.acquire().await.map(drop), other.set_permits(3).await] {
            assert!(matches!(refused, Err(LockError::MixedKinds { .. })), "{refused:?}");
            assert_eq!(stored(&world).as_deref(), Some(""), "\n{}", world.trace());
            assert_eq!(world.contenders().len(), 1, "\n{}", world.trace());
        }
        assert!(fair.try_acquire().await.expect("nothing of the semaphore is left").is_none());
        held.release().await.expect("it is held");
        world.check_clean(&[&first, &second]).await;
    });
}

#[test]
fn no_permits_at_all_are_refused() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let refused = Semaphore::new(&client, LOCK, 0).expect_err("nobody could hold it");
        assert!(refused.to_string().contains("permits of the semaphore"), "{refused}");
        let set = semaphore(&client, 1).set_permits(0).await;
        assert!(matches!(set, Err(LockError::Config(ConfigError::Option { .. }))), "{set:?}");
    });
}

#[test]
fn waiters_follow_a_change_and_holders_keep_their_permits() {
    run(async {
        let world = World::new();
        let (first, second, third) =
            (world.client(FIRST).await, world.client(SECOND).await, world.client(THIRD).await);
        let mut changing = semaphore(&third, 1);
        let one = hold(&semaphore(&first, 1)).await;
        let two = queue_up(&world, &semaphore(&second, 1)).await;
        let three = queue_up(&world, &semaphore(&second, 1)).await;
        let four = queue_up(&world, &semaphore(&first, 1)).await;

        changing.set_permits(3).await.expect("it may be written");
        let (two, three) = (granted_now(&world, two).await, granted_now(&world, three).await);
        sleep_ms(1_000).await;
        assert!(!four.is_finished(), "a fourth beside three\n{}", world.trace());

        changing.set_permits(1).await.expect("it may be written");
        for guard in [&one, &two, &three] {
            assert_eq!(guard.state(), LockState::Held);
            guard.validate().await.expect("a reduction takes no permit away");
        }
        for guard in [two, one] {
            release(guard).await;
            sleep_ms(1_000).await;
            assert!(!four.is_finished(), "beside another, with one permit\n{}", world.trace());
        }
        release(three).await;
        release(granted_now(&world, four).await).await;

        // The value that has changed the number expects the new one, and others the old one.
        assert_eq!(changing.stored_permits().await, Ok(Some(1)));
        changing.set_permits(2).await.expect("it may be written");
        release(hold(&changing).await).await;
        assert_eq!(semaphore(&first, 1).acquire().await.unwrap_err(), differs("2", 1));
        world.check_clean(&[&first, &second, &third]).await;
    });
}

#[test]
fn a_change_of_a_semaphore_that_does_not_exist_creates_it() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let mut changing = semaphore(&client, 1);
        changing.set_permits(7).await.expect("the directory can be created");
        assert_eq!(stored(&world).as_deref(), Some("7"));
        release(hold(&changing).await).await;
        world.check_clean(&[&client]).await;
    });
}

/// With many permits a waiter watches the list of the directory.
#[test]
fn every_number_of_permits_up_to_forty_is_granted_and_no_more() {
    for permits in 1..=40 {
        run(async {
            // One client is a crowd.
            let world = World::new().pace(Pace::of(500));
            let client = world.client(FIRST).await;
            let semaphore = semaphore(&client, permits);
            let mut guards = Vec::new();
            for _ in 0..permits {
                guards.push(hold(&semaphore).await);
            }
            assert!(semaphore.try_acquire().await.expect("it can be listed").is_none());
            let next = queue_up(&world, &semaphore).await;
            let after = queue_up(&world, &semaphore).await;
            // One in the middle leaves.
            release(guards.swap_remove(guards.len() / 2)).await;
            let next = granted_now(&world, next).await;
            sleep_ms(1_000).await;
            assert!(!after.is_finished(), "{permits} permits\n{}", world.trace());
            release(next).await;
            release(granted_now(&world, after).await).await;
            for guard in guards {
                release(guard).await;
            }
            world.check_clean(&[&client]).await;
        });
    }
}

#[test]
fn a_number_that_may_not_be_written_is_a_refusal_with_its_path() {
    run(async {
        let world = World::new();
        create_directory(&world);
        let client = world.client(FIRST).await;
        let read_only = Acl::new(
            Permissions::READ | Permissions::CREATE | Permissions::DELETE | Permissions::ADMIN,
            "world",
            "anyone",
        );
        client.set_acl(LOCK, vec![read_only], None).await.expect("the list may be changed");
        let refused = LockError::Refused {
            code: ErrorCode::NO_AUTH,
            action: FailedAction::Write,
            path: LOCK.into(),
        };
        let mut semaphore = semaphore(&client, 2);
        assert_eq!(semaphore.acquire().await.unwrap_err(), refused);
        assert_eq!(semaphore.set_permits(3).await, Err(refused));
        world.check_clean(&[&client]).await;
    });
}

/// A server removes an empty container with its data. The number that an operator has set stays, for
/// clients that accept it and for those that expect another one.
#[test]
fn a_number_that_was_set_outlives_the_contenders() {
    for is_new in [true, false] {
        run(async {
            // This server removes empty containers each second.
            let world = World::new();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let accepting = Semaphore::builder(&client, LOCK)
                .and_then(|builder| builder.permits(3).accept_stored_permits().build())
                .expect("the options are legal");
            if !is_new {
                // A number that a contender has stored goes with the last one.
                release(hold(&accepting).await).await;
                sleep_ms(5_000).await;
                assert_eq!(accepting.stored_permits().await, Ok(None));
                release(hold(&accepting).await).await;
            }
            semaphore(&other, 3).set_permits(1).await.expect("it may be written");
            for _ in 0..2 {
                sleep_ms(5_000).await;
                assert_eq!(accepting.stored_permits().await, Ok(Some(1)));
                assert_eq!(semaphore(&other, 3).acquire().await.unwrap_err(), differs("1", 3));
                let guard = hold(&accepting).await;
                let second = accepting.try_acquire().await.expect("it can be listed");
                assert!(second.is_none(), "a reduction is forgotten\n{}", world.trace());
                release(guard).await;
            }
            // Another change costs no second pin, and the same number nothing but a look.
            semaphore(&other, 1).set_permits(2).await.expect("it may be written");
            world.server.clear_requests();
            semaphore(&other, 1).set_permits(2).await.expect("it may be read");
            let sent = sent_since(&world, &other);
            assert_eq!(sent, [OpCode::MULTI, OpCode::GET_DATA, OpCode::GET_CHILDREN]);
            // Without the pin, the number lasts as long as there are contenders.
            other.delete(&format!("{LOCK}/permits-set"), None).await.expect("it is there");
            release(hold(&accepting).await).await;
            sleep_ms(5_000).await;
            assert_eq!(accepting.stored_permits().await, Ok(None));
            world.check_clean(&[&client, &other]).await;
        });
    }
}

/// Servers may remove an empty directory after it was read, and another client may create it again with
/// its own number.
#[test]
fn a_directory_that_was_created_again_gets_the_number_and_the_pin() {
    let pin = &format!("{LOCK}/permits-set");
    for is_pinned in [false, true] {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            let (first, again) = if is_pinned { (b"3", b"5") } else { (b"2", b"3") };
            create_directory(&world);
            assert!(world.server.admin_delete(LOCK), "it is empty");
            world.server.admin_create(LOCK, first, None);
            if is_pinned {
                world.server.admin_create(pin, b"", None);
            }
            // The first multi is a barrier, and the second one writes.
            let filter = Filter { op: Some(OpCode::MULTI), ..Filter::default() };
            let pause = Action::Pause(Duration::from_secs(1));
            world.server.inject(Fault::new(At::Request { nth: 1, filter }, pause));
            let mut changing = semaphore(&client, 3);
            let set = spawn(async move { changing.set_permits(2).await });
            sleep_ms(500).await;
            assert!(!is_pinned || world.server.admin_delete(pin));
            assert!(world.server.admin_delete(LOCK), "it is empty");
            world.server.admin_create(LOCK, again, None);
            set.await.expect("it does not panic").expect("it may be written");
            assert_eq!(stored(&world).as_deref(), Some("2"));
            assert!(world.server.stat(pin).is_some(), "the number stays");
            world.check_clean(&[&client]).await;
        });
    }
}

/// The number and its pin are one transaction, so a refusal of the pin stores nothing.
#[test]
fn a_pin_that_may_not_be_created_is_a_refusal_with_its_path_and_nothing_is_stored() {
    run(async {
        let world = World::new();
        create_directory(&world);
        world.server.admin_set_data(LOCK, b"5");
        let client = world.client(FIRST).await;
        let perms = Permissions::READ | Permissions::WRITE | Permissions::ADMIN;
        let acl = vec![Acl::new(perms, "world", "anyone")];
        client.set_acl(LOCK, acl, None).await.expect("the list may be changed");
        let set = semaphore(&client, 5).set_permits(2).await;
        let path = format!("{LOCK}/permits-set");
        let (code, action) = (ErrorCode::NO_AUTH, FailedAction::Create);
        assert_eq!(set, Err(LockError::Refused { code, action, path }));
        assert_eq!(stored(&world).as_deref(), Some("5"));
        world.check_clean(&[&client]).await;
    });
}
