//! Readers share the lock, writers hold it alone, and no contender overtakes one that it excludes.

use std::time::Duration;

use tokio::task::JoinSet;
use zk_recipes::{LockState, RwLock};
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND, THIRD, at_request, release, session, spawn};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

use crate::Access::{self, Read, Write};
use crate::{
    Holding, check_waits, create_directory, granted, granted_now, holder, join, queue_up,
    try_acquire,
};

#[test]
fn readers_hold_together() {
    run(async {
        let world = World::new();
        let (first, one) = holder(&world, FIRST, Read).await;
        let (second, other) = holder(&world, SECOND, Read).await;
        let third = try_acquire(&World::rw_lock(&first), Read).await.expect("it can be listed");
        let third = third.expect("readers share, also within a session");
        for held in [&one, &other, &third] {
            assert_eq!(held.state(), LockState::Held);
            held.validate().await.expect("the lock is held");
        }
        assert_eq!(world.contenders().len(), 3);
        for held in [other, third, one] {
            held.release().await;
        }
        world.check_clean(&[&first, &second]).await;
    });
}

#[test]
fn a_reader_does_not_pass_a_writer_that_waits() {
    run(async {
        let world = World::new();
        let (first, reading) = holder(&world, FIRST, Read).await;
        let (second, third) = (world.client(SECOND).await, world.client(THIRD).await);
        let writer = queue_up(&world, &World::rw_lock(&second), Write).await;
        let reader = queue_up(&world, &World::rw_lock(&third), Read).await;
        sleep_ms(1_000).await;
        assert!(!writer.is_finished() && !reader.is_finished(), "{}", world.trace());
        reading.release().await;
        let writing = granted_now(&world, writer).await;
        sleep_ms(1_000).await;
        assert!(!reader.is_finished(), "a reader beside a writer\n{}", world.trace());
        writing.release().await;
        granted_now(&world, reader).await.release().await;
        check_waits(&world);
        world.check_clean(&[&first, &second, &third]).await;
    });
}

#[test]
fn readers_behind_a_writer_enter_together_up_to_the_next_writer() {
    run(async {
        let world = World::new();
        let (first, writing) = holder(&world, FIRST, Write).await;
        let mut clients = vec![first];
        let mut readers = Vec::new();
        let mut stragglers = Vec::new();
        let mut next = None;
        for seed in 10..30 {
            let client = world.client(seed).await;
            let lock = World::rw_lock(&client);
            clients.push(client);
            match seed {
                20 => next = Some(queue_up(&world, &lock, Write).await),
                _ if next.is_none() => readers.push(queue_up(&world, &lock, Read).await),
                _ => stragglers.push(queue_up(&world, &lock, Read).await),
            }
        }
        let next = next.expect("a writer in the middle");
        writing.release().await;
        let mut together = Vec::new();
        for reader in readers {
            together.push(granted_now(&world, reader).await);
        }
        sleep_ms(1_000).await;
        assert!(!next.is_finished() && stragglers.iter().all(|reader| !reader.is_finished()));
        let last = together.pop().expect("there are ten");
        for reader in together {
            reader.release().await;
        }
        sleep_ms(1_000).await;
        assert!(!next.is_finished(), "a writer beside a reader\n{}", world.trace());
        last.release().await;
        granted_now(&world, next).await.release().await;
        for reader in stragglers {
            granted_now(&world, reader).await.release().await;
        }
        check_waits(&world);
        world.check_clean(&clients.iter().collect::<Vec<_>>()).await;
    });
}

/// Starts an acquire every 5 ms, and holds the lock for 50 ms each time, so that the lock always
/// has a holder with this access. Returns the number of grants.
async fn constant_load(lock: RwLock, side: Access, for_ms: u64) -> usize {
    let mut load = JoinSet::new();
    for _ in 0..for_ms / 5 {
        let lock = lock.clone();
        let use_it = async move {
            let held = crate::acquire(&lock, side).await.expect("the lock becomes free");
            sleep_ms(50).await;
            held.release().await;
        };
        load.spawn(use_it);
        sleep_ms(5).await;
    }
    load.join_all().await.len()
}

#[test]
fn a_constant_load_of_readers_does_not_starve_a_writer() {
    run(async {
        let world = World::new().pace(Pace::of(100));
        let (crowd, client) = (world.client(FIRST).await, world.client(SECOND).await);
        let load = spawn(constant_load(World::rw_lock(&crowd), Read, 3_000));
        sleep_ms(500).await;
        for _ in 0..10 {
            let lock = World::rw_lock(&client);
            let before = client.now();
            let writer = join(&world, &lock, Write).await;
            assert!(!writer.is_finished(), "readers are there all the time");
            let writing = granted(writer).await;
            // The contenders ahead release the lock, and the writer waits for no others.
            let waited = client.now().saturating_since(before).as_millis();
            assert!(waited <= 60, "{waited} ms\n{}", world.trace());
            assert_eq!(holders(&world), 1, "alone");
            sleep_ms(20).await;
            writing.release().await;
            sleep_ms(100).await;
        }
        assert!(!load.is_finished(), "the load lasts");
        assert_eq!(load.await.expect("the task does not panic"), 600);
        world.check_clean(&[&crowd, &client]).await;
    });
}

/// Returns the number of contenders that may hold the lock according to the directory, because no
/// contender ahead excludes them.
fn holders(world: &World) -> usize {
    let mut names = world.contenders();
    names.sort_by_key(|name| crate::number(name));
    let readers = names.iter().take_while(|name| name.contains(Read.mark())).count();
    readers.max(1)
}

#[test]
fn a_constant_load_of_writers_does_not_starve_a_reader() {
    run(async {
        let world = World::new().pace(Pace::of(100));
        let (crowd, client) = (world.client(FIRST).await, world.client(SECOND).await);
        let load = spawn(constant_load(World::rw_lock(&crowd), Write, 200));
        sleep_ms(100).await;
        let ahead = world.contenders().len() as u128;
        let before = client.now();
        let reading = granted(join(&world, &World::rw_lock(&client), Read).await).await;
        let waited = client.now().saturating_since(before).as_millis();
        assert!(waited <= ahead * 50 + 20, "{waited} ms behind {ahead}\n{}", world.trace());
        reading.release().await;
        assert_eq!(load.await.expect("the task does not panic"), 40);
        world.check_clean(&[&crowd, &client]).await;
    });
}

#[test]
fn each_writer_has_a_greater_token_than_those_before() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let lock = World::rw_lock(&client);
        let mut newest = None;
        for _ in 0..5 {
            lock.read()
                .await
                .expect("the lock is free")
                .release()
                .await
                .expect("its znode can be deleted");
            let guard = lock.write().await.expect("the lock is free");
            assert!(newest < Some(guard.fencing_token()));
            newest = Some(guard.fencing_token());
            guard.release().await.expect("its znode can be deleted");
        }
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn two_writers_of_one_session_exclude_each_other() {
    run(async {
        let world = World::new();
        let (client, held) = holder(&world, FIRST, Write).await;
        let waiter = queue_up(&world, &World::rw_lock(&client), Write).await;
        assert_eq!(held.session(), session(&client));
        held.release().await;
        let Holding::Write(next) = granted_now(&world, waiter).await else { panic!("a writer") };
        release(next).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn try_read_and_try_write_take_only_what_need_not_be_waited_for() {
    for (held_by, wanted, is_free) in [
        (None, Read, true),
        (None, Write, true),
        (Some(Read), Read, true),
        (Some(Read), Write, false),
        (Some(Write), Read, false),
        (Some(Write), Write, false),
    ] {
        run(async {
            let world = World::new();
            let other = world.client(SECOND).await;
            let held = match held_by {
                Some(side) => Some(crate::acquire(&World::rw_lock(&other), side).await),
                None => None,
            };
            let client = world.client(FIRST).await;
            let tried = try_acquire(&World::rw_lock(&client), wanted).await.expect("it is listed");
            assert_eq!(tried.is_some(), is_free, "{wanted:?} beside {held_by:?}");
            if let Some(tried) = tried {
                assert_eq!(tried.state(), LockState::Held);
                tried.release().await;
            }
            if let Some(held) = held {
                held.expect("no contender excluded it").release().await;
            }
            world.check_clean(&[&client, &other]).await;
        });
    }
}

/// Readers wait for a waiting writer, because it would starve if they overtook it.
#[test]
fn try_read_does_not_pass_a_writer_that_waits() {
    run(async {
        let world = World::new();
        let (first, reading) = holder(&world, FIRST, Read).await;
        let second = world.client(SECOND).await;
        let writer = queue_up(&world, &World::rw_lock(&second), Write).await;
        let third = world.client(THIRD).await;
        assert!(World::rw_lock(&third).try_read().await.expect("it is listed").is_none());
        assert_eq!(world.contenders().len(), 2);
        reading.release().await;
        granted_now(&world, writer).await.release().await;
        world.check_clean(&[&first, &second, &third]).await;
    });
}

/// Another contender arrives between the read of a `try_` call and its create.
#[test]
fn a_try_that_is_overtaken_leaves_nothing() {
    for wanted in [Read, Write] {
        run(async {
            let world = World::new();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            create_directory(&world);
            let late = Action::Delay(Duration::from_millis(50));
            world.server.inject(at_request(session(&client), 0, late));
            let lock = World::rw_lock(&client);
            let trying = spawn(async move { try_acquire(&lock, wanted).await });
            sleep_ms(10).await;
            let held =
                crate::acquire(&World::rw_lock(&other), Write).await.expect("the lock is free");
            let tried = trying.await.expect("the task does not panic").expect("it can be listed");
            assert!(tried.is_none(), "{}", world.trace());
            sleep_ms(10).await;
            assert_eq!(world.contenders().len(), 1, "{}", world.trace());
            held.release().await;
            world.check_clean(&[&client, &other]).await;
        });
    }
}
