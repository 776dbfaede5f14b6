//! Contents of the directory: other znodes, other locks, a sequence counter at its limit, and two
//! znodes with one number.

use zk_recipes::{Client, FairLock, LockError, LockState, Naming, RwLock, RwNaming};
use zk_tests::case::LOCK;
use zk_tests::scene::{FIRST, SECOND, THIRD, session, spawn};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{SequenceOverflow, ServerConfig};

use crate::Access::{Read, Write};
use crate::{
    acquire, create_directory, granted, granted_now, holder, join, number, queue_up, try_acquire,
};

fn path(name: &str) -> String {
    format!("{LOCK}/{name}")
}

#[test]
fn strangers_in_the_directory_are_ignored() {
    run(async {
        let world = World::new();
        create_directory(&world);
        let strangers = [
            "config",
            "__READ__",
            "__WRIT__12",
            "a-__READ__000000001",
            "a-__WRIT__0000000000x",
            "a-__SOME__0000000000",
            "a-__WRIT_\u{e9}0000000000",
            "0000000000",
        ];
        for name in strangers {
            world.server.admin_create(&path(name), b"", None);
        }
        world.server.set_create_count(LOCK, 0);
        for (ahead, behind) in crate::WAITS {
            let (other, held) = holder(&world, SECOND, ahead).await;
            let client = world.client(FIRST).await;
            let lock = World::rw_lock(&client);
            assert!(try_acquire(&lock, behind).await.expect("it can be listed").is_none());
            let before = world.contenders().len();
            let waiter = spawn(crate::acquire_within(lock, behind, None));
            world.until("it waits", |_| world.contenders().len() > before).await;
            sleep_ms(10).await;
            held.release().await;
            granted_now(&world, waiter).await.release().await;
            drop(other);
        }
        assert_eq!(world.contenders().len(), strangers.len());
    });
}

#[test]
fn locks_of_other_kinds_are_an_error_and_never_a_grant() {
    let others = [
        "a-lock-0000000000",
        "lock-0000000009",
        "lease-0000000000",
        "a-latch-0000000003",
        "a__lock__0000000000",
        "a__rlock__0000000000",
        "a__lease__0000000000",
    ];
    for other in others {
        for side in [Read, Write] {
            run(async {
                let world = World::new();
                create_directory(&world);
                let client = world.client(FIRST).await;
                world.server.admin_create(&path(other), b"", None);
                let lock = World::rw_lock(&client);
                let mixed = LockError::MixedKinds { path: path(other) };
                assert_eq!(acquire(&lock, side).await.map(drop), Err(mixed.clone()));
                assert_eq!(try_acquire(&lock, side).await.map(drop), Err(mixed));
                sleep_ms(100).await;
                assert_eq!(world.contenders(), [other], "own znode\n{}", world.trace());
                assert!(world.server.admin_delete(&path(other)));
                world.check_clean(&[&client]).await;
            });
        }
    }
}

fn fair(client: &Client, naming: Naming) -> FairLock {
    let lock = FairLock::builder(client, LOCK);
    lock.and_then(|lock| lock.naming(naming).build()).expect("the options are legal")
}

fn read_write(client: &Client, naming: RwNaming) -> RwLock {
    let lock = RwLock::builder(client, LOCK);
    lock.and_then(|lock| lock.naming(naming).watch_check(None).build())
        .expect("the options are legal")
}

/// Kazoo's writers are named like its mutex, so only its readers reveal the mixture.
#[test]
fn a_fair_lock_and_a_read_write_lock_refuse_each_other() {
    let mixtures = [
        (Naming::curator(), RwNaming::curator()),
        (Naming::kazoo(), RwNaming::curator()),
        (Naming::curator(), RwNaming::kazoo()),
    ];
    for (one, other) in mixtures {
        for side in [Read, Write] {
            run(async {
                let world = World::new();
                let (first, second) = (world.client(FIRST).await, world.client(SECOND).await);
                let (mutex, shared) =
                    (fair(&first, one.clone()), read_write(&second, other.clone()));
                let held = mutex.acquire().await.expect("the lock is free");
                let refused = acquire(&shared, side).await.map(drop);
                assert!(matches!(refused, Err(LockError::MixedKinds { .. })), "{refused:?}");
                held.release().await.expect("its znode can be deleted");
                let held = acquire(&shared, side).await.expect("the lock is free");
                let refused = mutex.acquire().await.map(drop);
                assert!(matches!(refused, Err(LockError::MixedKinds { .. })), "{refused:?}");
                let refused = mutex.try_acquire().await.map(drop);
                assert!(matches!(refused, Err(LockError::MixedKinds { .. })), "{refused:?}");
                assert_eq!(held.state(), LockState::Held);
                held.release().await;
                world.check_clean(&[&first, &second]).await;
            });
        }
    }
}

#[test]
fn two_namings_refuse_each_other() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let curator = World::rw_lock(&client);
        let kazoo = read_write(&client, RwNaming::kazoo());
        for (one, other) in [(&curator, &kazoo), (&kazoo, &curator)] {
            for (first, second) in [(Read, Read), (Read, Write), (Write, Read)] {
                let held = acquire(one, first).await.expect("the lock is free");
                let refused = acquire(other, second).await.map(drop);
                assert!(matches!(refused, Err(LockError::MixedKinds { .. })), "{refused:?}");
                held.release().await;
            }
        }
        world.check_clean(&[&client]).await;
    });
}

/// The rules are the same with the names of other implementations, even for downgrades.
#[test]
fn kazoos_names_and_ones_own_work_alike() {
    let own = RwNaming::custom("r-{id}-r-{sequence}", "w-{id}-w-{sequence}").expect("a good form");
    for naming in [RwNaming::kazoo(), own] {
        run(async {
            let world = World::new();
            let clients = [world.client(1).await, world.client(2).await, world.client(3).await];
            let [writing, reading, last] =
                clients.each_ref().map(|client| read_write(client, naming.clone()));
            let guard = writing.write().await.expect("the lock is free");
            let reader = queue_up(&world, &reading, Read).await;
            let writer = queue_up(&world, &last, Write).await;
            let guard = guard.downgrade().await.expect("the lock is held");
            let beside = granted_now(&world, reader).await;
            sleep_ms(500).await;
            assert!(!writer.is_finished(), "{}", world.trace());
            guard.release().await.expect("its znode can be deleted");
            beside.release().await;
            granted_now(&world, writer).await.release().await;
            world.check_clean(&clients.each_ref()).await;
        });
    }
}

#[test]
fn a_counter_at_its_end_grants_to_nobody() {
    for overflow in [SequenceOverflow::Sticky, SequenceOverflow::Wrapping] {
        for side in [Read, Write] {
            run(async {
                let world = World::with(ServerConfig::default().sequence_overflow(overflow));
                create_directory(&world);
                world.server.set_create_count(LOCK, i32::MAX - 1);
                // This is the last number that still sorts correctly.
                let (other, held) = holder(&world, SECOND, side).await;
                assert_eq!(number(held.path()), 2_147_483_646);
                let client = world.client(FIRST).await;
                let lock = World::rw_lock(&client);
                let exhausted = LockError::QueueExhausted { directory: LOCK.into() };
                for next in [Read, Write, Read] {
                    let ended = acquire(&lock, next).await.map(drop);
                    assert_eq!(ended, Err(exhausted.clone()), "{overflow:?}, {side:?}");
                    sleep_ms(100).await;
                    assert_eq!(world.contenders().len(), 1, "own znode\n{}", world.trace());
                }
                assert_eq!(held.state(), LockState::Held);
                held.release().await;
                let tried = try_acquire(&lock, side).await.map(drop);
                assert_eq!(tried, Err(exhausted), "{overflow:?}");
                world.check_clean(&[&client, &other]).await;
            });
        }
    }
}

#[test]
fn a_contender_with_the_own_number_is_an_error() {
    for (own, other) in [(Read, Read), (Read, Write), (Write, Read), (Write, Write)] {
        run(async {
            let world = World::new();
            create_directory(&world);
            let client = world.client(FIRST).await;
            let twin = path(&format!("a{}0000000001", other.mark()));
            world.server.admin_create(&twin, b"", None);
            world.server.set_create_count(LOCK, 1);
            let ended = acquire(&World::rw_lock(&client), own).await.map(drop);
            assert!(matches!(ended, Err(LockError::QueueExhausted { .. })), "{ended:?}");
            sleep_ms(100).await;
            assert_eq!(world.contenders().len(), 1, "own znode\n{}", world.trace());
            assert!(world.server.admin_delete(&twin));
            world.check_clean(&[&client]).await;
        });
    }
}

/// While a writer of Curator becomes a reader, it has two znodes at the same time. A writer behind
/// them waits for both znodes, and a reader waits for the writer's znode.
#[test]
fn a_reader_and_a_writer_of_one_number_both_count() {
    for is_writer_first in [false, true] {
        for behind in [Read, Write] {
            run(async {
                let world = World::new();
                create_directory(&world);
                let (other, client) = (world.client(SECOND).await, world.client(FIRST).await);
                let pair = [path("a-__READ__0000000000"), path("b-__WRIT__0000000000")];
                for twin in &pair {
                    world.server.admin_create(twin, b"", Some(session(&other)));
                }
                world.server.set_create_count(LOCK, 1);
                let lock = World::rw_lock(&client);
                assert!(try_acquire(&lock, behind).await.expect("it is listed").is_none());
                let waiter = queue_up(&world, &lock, behind).await;
                let third = world.client(THIRD).await;
                let last = queue_up(&world, &World::rw_lock(&third), Write).await;
                let [reader, writer] = pair;
                let (earlier, later) =
                    if is_writer_first { (&writer, &reader) } else { (&reader, &writer) };
                assert!(world.server.admin_delete(earlier));
                sleep_ms(500).await;
                // Only a reader may hold the lock beside a reader.
                let may_enter = is_writer_first && behind == Read;
                assert_eq!(waiter.is_finished(), may_enter, "{behind:?}\n{}", world.trace());
                assert!(!last.is_finished());
                assert!(world.server.admin_delete(later));
                let guard = granted_now(&world, waiter).await;
                sleep_ms(500).await;
                assert!(!last.is_finished());
                guard.release().await;
                granted_now(&world, last).await.release().await;
                assert_eq!(lock.stats().watches_missed, 0);
                world.check_clean(&[&client, &other, &third]).await;
            });
        }
    }
}

/// A writer of Curator becomes a reader while contenders of this project wait. It creates the
/// reader's znode first.
#[test]
fn a_downgrade_of_curators_lets_readers_in_and_no_writer() {
    run(async {
        let world = World::new();
        create_directory(&world);
        let other = world.client(SECOND).await;
        let (writer, reader) = (path("a-__WRIT__0000000000"), path("a-__READ__0000000000"));
        world.server.admin_create(&writer, b"", Some(session(&other)));
        world.server.set_create_count(LOCK, 1);
        let (first, third) = (world.client(FIRST).await, world.client(THIRD).await);
        let reading = queue_up(&world, &World::rw_lock(&first), Read).await;
        let writing = queue_up(&world, &World::rw_lock(&third), Write).await;
        world.server.admin_create(&reader, b"", Some(session(&other)));
        sleep_ms(500).await;
        assert!(!reading.is_finished());
        assert!(world.server.admin_delete(&writer));
        let beside = granted_now(&world, reading).await;
        beside.release().await;
        sleep_ms(500).await;
        assert!(!writing.is_finished(), "{}", world.trace());
        assert!(world.server.admin_delete(&reader));
        granted(writing).await.release().await;
        world.check_clean(&[&first, &other, &third]).await;
    });
}

#[test]
fn numbers_need_not_follow_each_other() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND, Write).await;
        world.server.set_create_count(LOCK, 1_000_000_000);
        let client = world.client(FIRST).await;
        let waiter = join(&world, &World::rw_lock(&client), Read).await;
        assert!(!waiter.is_finished());
        held.release().await;
        let guard = granted_now(&world, waiter).await;
        assert_eq!(number(guard.path()), 1_000_000_000);
        guard.release().await;
        world.check_clean(&[&client, &other]).await;
    });
}
