//! Contents of the directory: other znodes, other locks, and a sequence counter at its limit.

use std::future::IntoFuture as _;

use zk_recipes::{FairLock, LockError, LockState, Naming};
use zk_tests::case::LOCK;
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{SequenceOverflow, ServerConfig};

use crate::{
    FIRST, SECOND, create_directory, granted_now, holder, queue_up, release, session, spawn,
};

#[test]
fn strangers_in_the_directory_are_ignored() {
    run(async {
        let world = World::new();
        create_directory(&world);
        let strangers = [
            "config",
            "lock-",
            "lock-12",
            "lock-00000000001",
            "unlock-0000000000",
            "x-lock-000000000\u{e9}",
            "\u{e9}-lock-1",
            "0000000000",
        ];
        for name in strangers {
            world.server.admin_create(&format!("{LOCK}/{name}"), b"", None);
        }
        world.server.set_create_count(LOCK, 0);
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let lock = World::lock(&client);
        assert!(lock.try_acquire().await.expect("it can be listed").is_none());
        let waiter = queue_up(&world, &lock).await;
        release(held).await;
        let guard = granted_now(&world, waiter).await;
        release(guard).await;
        let free = lock.try_acquire().await.expect("it can be listed").expect("the lock is free");
        release(free).await;
        assert_eq!(world.contenders().len(), strangers.len());
        for name in strangers {
            assert!(world.server.admin_delete(&format!("{LOCK}/{name}")));
        }
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn locks_of_other_kinds_are_an_error_and_never_a_grant() {
    let others = [
        "a-__READ__0000000000",
        "a-__WRIT__0000000009",
        "lease-0000000000",
        "a-latch-0000000003",
        "a__lock__0000000000",
        "a__rlock__0000000000",
        "a__lease__0000000000",
    ];
    for other in others {
        run(async {
            let world = World::new();
            create_directory(&world);
            let client = world.client(FIRST).await;
            let path = format!("{LOCK}/{other}");
            world.server.admin_create(&path, b"", None);
            let lock = World::lock(&client);
            let mixed = LockError::MixedKinds { path: path.clone() };
            assert_eq!(lock.acquire().await.map(drop), Err(mixed.clone()));
            assert_eq!(lock.try_acquire().await.map(drop), Err(mixed));
            sleep_ms(100).await;
            assert_eq!(world.contenders(), [other], "own znode\n{}", world.trace());
            assert!(world.server.admin_delete(&path));
            world.check_clean(&[&client]).await;
        });
    }
}

#[test]
fn another_kind_that_comes_while_waiting_ends_the_wait() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let waiter = queue_up(&world, &World::lock(&client)).await;
        let path = format!("{LOCK}/a-__READ__0000000001");
        world.server.admin_create(&path, b"", None);
        // This change causes the next list, which shows the znode.
        world.server.admin_set_data(held.path(), b"");
        let ended = waiter.await.expect("an acquire does not panic").map(drop);
        assert!(matches!(ended, Err(LockError::MixedKinds { .. })), "{ended:?}");
        assert!(world.server.admin_delete(&path));
        sleep_ms(100).await;
        assert_eq!(world.contenders().len(), 1);
        assert_eq!(held.state(), LockState::Held);
        release(held).await;
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn a_counter_at_its_end_grants_to_nobody() {
    for overflow in [SequenceOverflow::Sticky, SequenceOverflow::Wrapping] {
        run(async {
            let world = World::with(ServerConfig::default().sequence_overflow(overflow));
            create_directory(&world);
            world.server.set_create_count(LOCK, i32::MAX - 1);
            // This is the last number that still sorts correctly.
            let (other, held) = holder(&world, SECOND).await;
            assert!(held.path().ends_with("-lock-2147483646"), "{}", held.path());
            let client = world.client(FIRST).await;
            let lock = World::lock(&client);
            let exhausted = LockError::QueueExhausted { directory: LOCK.into() };
            for _ in 0..3 {
                assert_eq!(lock.acquire().await.map(drop), Err(exhausted.clone()), "{overflow:?}");
                sleep_ms(100).await;
                assert_eq!(world.contenders().len(), 1, "own znode\n{}", world.trace());
            }
            release(held).await;
            let tried = lock.try_acquire().await.map(drop);
            assert_eq!(tried, Err(exhausted), "{overflow:?}");
            world.check_clean(&[&client, &other]).await;
        });
    }
}

#[test]
fn a_number_below_zero_ends_the_wait() {
    for number in ["-2147483648", "-000000001"] {
        run(async {
            let world = World::new();
            let (other, held) = holder(&world, SECOND).await;
            let path = format!("{LOCK}/a-lock-{number}");
            world.server.admin_create(&path, b"", None);
            let client = world.client(FIRST).await;
            let exhausted = LockError::QueueExhausted { directory: LOCK.into() };
            assert_eq!(World::lock(&client).acquire().await.map(drop), Err(exhausted));
            assert!(world.server.admin_delete(&path));
            release(held).await;
            world.check_clean(&[&client, &other]).await;
        });
    }
}

/// A contender that gets the last number gives up, and a greater number is not a valid sequence
/// number. Neither disturbs the contenders ahead, whatever the naming.
#[test]
fn a_name_with_the_last_number_or_a_greater_one_is_in_nobodys_way() {
    let dashed = Naming::custom("x-{id}-{sequence}").expect("it can carry an id");
    for (naming, stray) in [(Naming::curator(), "a-lock-"), (dashed, "x-backup-")] {
        for number in ["2147483647", "9999999999"] {
            run(async {
                let world = World::new();
                create_directory(&world);
                let path = format!("{LOCK}/{stray}{number}");
                world.server.admin_create(&path, b"", None);
                let client = world.client(FIRST).await;
                let lock = FairLock::builder(&client, LOCK)
                    .and_then(|lock| lock.naming(naming.clone()).watch_check(None).build())
                    .expect("the options are legal");
                let tried = lock.try_acquire().await.expect("the server replies");
                release(tried.expect("the lock is free")).await;
                let held = lock.acquire().await.expect("no contender is ahead");
                let waiter = spawn(lock.acquire().into_future());
                sleep_ms(100).await;
                release(held).await;
                release(granted_now(&world, waiter).await).await;
                assert!(world.server.admin_delete(&path));
                world.check_clean(&[&client]).await;
            });
        }
    }
}

#[test]
fn two_contenders_with_one_number_are_an_error() {
    run(async {
        let world = World::new();
        let (client, held) = holder(&world, FIRST).await;
        let path = format!("{LOCK}/a-lock-0000000001");
        world.server.admin_create(&path, b"", Some(session(&client)));
        world.server.set_create_count(LOCK, 1);
        let ended = World::lock(&client).acquire().await.map(drop);
        assert!(matches!(ended, Err(LockError::QueueExhausted { .. })), "{ended:?}");
        assert!(world.server.admin_delete(&path));
        release(held).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn numbers_need_not_follow_each_other() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        world.server.set_create_count(LOCK, 1_000_000_000);
        let client = world.client(FIRST).await;
        let waiter = spawn(World::lock(&client).acquire().into_future());
        sleep_ms(100).await;
        assert!(!waiter.is_finished());
        release(held).await;
        let guard = granted_now(&world, waiter).await;
        assert!(guard.path().ends_with("-lock-1000000000"));
        release(guard).await;
        world.check_clean(&[&client, &other]).await;
    });
}
