//! The requests of readers and writers, counted at the server.

use std::time::Duration;

use jute_codec::{OpCode, SessionId};
use zk_recipes::LockState;
use zk_tests::case::LOCK;
use zk_tests::meter::Pace;
use zk_tests::page;
use zk_tests::scene::{FIRST, SECOND, at_op, ops, requests_of, session};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

use crate::Access::{Read, Write};
use crate::{
    WAITS, acquire, check_waits, create_directory, granted_now, holder, queue_up, try_acquire,
};

#[test]
fn an_uncontended_acquire_is_one_flight_of_two_requests() {
    for side in [Read, Write] {
        run(async {
            let world = World::new();
            create_directory(&world);
            let client = world.client(FIRST).await;
            let id = session(&client);
            // The reply to the first request is delayed, but the second request still arrives.
            let slow = Action::Delay(Duration::from_millis(50));
            world.server.inject(at_op(id, OpCode::CREATE2, slow));
            let held = acquire(&World::rw_lock(&client), side).await.expect("the lock is free");
            let requests = requests_of(&world, id);
            assert_eq!(ops(&requests), [OpCode::CREATE2, OpCode::GET_CHILDREN]);
            assert_eq!(requests[0].at, requests[1].at, "one flight");
            let row = "acquire, nobody in the way";
            page::check_round_trips("recipes/rwlock.md", row, 1, &ops(&requests));
            assert_eq!(requests[1].path.as_deref(), Some(LOCK));
            held.release().await;
            let requests = requests_of(&world, id);
            assert_eq!(ops(&requests[2..]), [OpCode::DELETE]);
            sleep_ms(60_000).await;
            assert_eq!(world.server.requests().len(), 3, "nothing behind\n{}", world.trace());
        });
    }
}

/// A reader ahead makes no difference to a reader.
#[test]
fn a_reader_beside_others_is_one_flight_too() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND, Read).await;
        let client = world.client(FIRST).await;
        let beside = acquire(&World::rw_lock(&client), Read).await.expect("readers share");
        let requests = requests_of(&world, session(&client));
        assert_eq!(ops(&requests), [OpCode::CREATE2, OpCode::GET_CHILDREN]);
        beside.release().await;
        held.release().await;
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn a_queued_acquire_is_two_flights_and_a_hand_off_one_list() {
    for (ahead, behind) in WAITS {
        run(async {
            let world = World::new();
            let (other, held) = holder(&world, SECOND, ahead).await;
            let client = world.client(FIRST).await;
            let id = session(&client);
            let waiter = queue_up(&world, &World::rw_lock(&client), behind).await;
            let requests = requests_of(&world, id);
            let read = OpCode::GET_DATA;
            let expected = [OpCode::CREATE2, OpCode::GET_CHILDREN, read, read];
            assert_eq!(ops(&requests), expected, "{}", world.trace());
            assert_eq!(requests[2].at, requests[3].at, "one flight");
            assert_eq!(requests[2].path.as_deref(), Some(held.path()));
            sleep_ms(5_000).await;
            world.server.clear_requests();
            held.release().await;
            let guard = granted_now(&world, waiter).await;
            let requests = requests_of(&world, id);
            assert_eq!(ops(&requests), [OpCode::GET_CHILDREN], "{}", world.trace());
            page::check_text("recipes/rwlock.md", "| hand-over | {} list;", &[requests.len()]);
            assert_eq!(guard.state(), LockState::Held);
            sleep_ms(5_000).await;
            assert_eq!(requests_of(&world, id).len(), 1, "it is watched already");
            guard.release().await;
            world.check_clean(&[&client, &other]).await;
        });
    }
}

#[test]
fn a_hand_off_after_a_reconnect_lists_once() {
    for (ahead, behind) in WAITS {
        run(async {
            let world = World::new();
            let (other, held) = holder(&world, SECOND, ahead).await;
            let client = world.client(FIRST).await;
            let waiter = queue_up(&world, &World::rw_lock(&client), behind).await;
            zk_tests::scene::partition(&world, 100);
            sleep_ms(3_000).await;
            world.server.clear_requests();
            held.release().await;
            let guard = granted_now(&world, waiter).await;
            let requests = requests_of(&world, session(&client));
            assert_eq!(ops(&requests), [OpCode::GET_CHILDREN]);
            guard.release().await;
            world.check_clean(&[&client, &other]).await;
        });
    }
}

#[test]
fn waiters_send_nothing_while_nothing_happens_and_a_holder_tests_its_znode() {
    run(async {
        let world = World::new();
        let (first, held) = holder(&world, 1, Read).await;
        let (second, third) = (world.client(2).await, world.client(3).await);
        let writer = queue_up(&world, &World::rw_lock(&second), Write).await;
        let reader = queue_up(&world, &World::rw_lock(&third), Read).await;
        sleep_ms(200).await;
        world.server.clear_requests();
        sleep_ms(80_000).await;
        assert_eq!(ops(&world.server.requests()), [OpCode::EXISTS; 2], "{}", world.trace());
        assert_eq!(requests_of(&world, session(&first)).len(), 2);
        held.release().await;
        granted_now(&world, writer).await.release().await;
        granted_now(&world, reader).await.release().await;
        world.check_clean(&[&first, &second, &third]).await;
    });
}

#[test]
fn a_try_of_a_busy_lock_is_one_read() {
    for (ahead, wanted) in WAITS {
        run(async {
            let world = World::new();
            let (other, held) = holder(&world, SECOND, ahead).await;
            let client = world.client(FIRST).await;
            let zxid = world.server.zxid();
            let tried = try_acquire(&World::rw_lock(&client), wanted).await;
            assert!(tried.expect("it can be read").is_none());
            sleep_ms(1_000).await;
            let requests = requests_of(&world, session(&client));
            assert_eq!(ops(&requests), [OpCode::GET_CHILDREN], "{}", world.trace());
            assert_eq!(world.server.zxid(), zxid, "nothing was written");
            held.release().await;
            world.check_clean(&[&client, &other]).await;
        });
    }
}

#[test]
fn a_try_that_succeeds_is_a_read_and_an_acquire() {
    for (ahead, wanted) in [(None, Read), (None, Write), (Some(Read), Read)] {
        run(async {
            let world = World::new();
            create_directory(&world);
            let other = world.client(SECOND).await;
            let held = match ahead {
                Some(side) => Some(acquire(&World::rw_lock(&other), side).await),
                None => None,
            };
            let client = world.client(FIRST).await;
            let tried = try_acquire(&World::rw_lock(&client), wanted).await;
            let tried = tried.expect("it can be listed").expect("it need not wait");
            let requests = requests_of(&world, session(&client));
            let list = OpCode::GET_CHILDREN;
            assert_eq!(ops(&requests), [list, OpCode::CREATE2, list]);
            tried.release().await;
            drop(held);
            world.check_clean(&[&client, &other]).await;
        });
    }
}

/// All readers watch the writer, and each of them reads the queue once when the writer's znode is
/// deleted.
#[test]
fn a_hundred_readers_behind_a_writer_send_no_more_each_than_one_does() {
    let mut costs = Vec::new();
    for readers in [1, 10, 100] {
        run(async {
            let world = World::new();
            let (other, held) = holder(&world, 1_000, Write).await;
            let mut clients = vec![other];
            let mut waiters = Vec::new();
            for seed in 0..readers {
                let client = world.client(seed).await;
                waiters.push(queue_up(&world, &World::rw_lock(&client), Read).await);
                clients.push(client);
            }
            held.release().await;
            let mut together = Vec::new();
            for waiter in waiters {
                together.push(granted_now(&world, waiter).await);
            }
            sleep_ms(1_000).await;
            for held in together {
                held.release().await;
            }
            check_waits(&world);
            let sent = requests_of_others(&world, session(&clients[0]));
            assert_eq!(sent % readers as usize, 0, "{}", world.trace());
            costs.push(sent / readers as usize);
            assert_eq!(world.server.watch_count(), 0);
            world.check_clean(&clients.iter().collect::<Vec<_>>()).await;
        });
    }
    // The requests are the flight of the claim, the flight of the watches, a list, and the release.
    assert_eq!(costs, [6, 6, 6]);
}

fn requests_of_others(world: &World, session: SessionId) -> usize {
    world.server.requests().iter().filter(|request| request.session != session).count()
}

/// Readers that release one after the other wake the writer behind them only if it watches them.
#[test]
fn a_writer_behind_a_hundred_readers_lists_when_the_nearest_goes() {
    run(async {
        let world = World::new().pace(Pace::of(100));
        create_directory(&world);
        let crowd = world.client(SECOND).await;
        let lock = World::rw_lock(&crowd);
        let mut readers = Vec::new();
        for _ in 0..100 {
            readers.push(acquire(&lock, Read).await.expect("readers share"));
        }
        let client = world.client(FIRST).await;
        let writer = queue_up(&world, &World::rw_lock(&client), Write).await;
        world.server.clear_requests();
        // The oldest reader releases first, because no waiter watches it.
        for reader in readers {
            assert!(!writer.is_finished());
            reader.release().await;
        }
        let guard = granted_now(&world, writer).await;
        let requests = requests_of(&world, session(&client));
        assert_eq!(ops(&requests), [OpCode::GET_CHILDREN], "{}", world.trace());
        guard.release().await;
        world.check_clean(&[&client, &crowd]).await;
    });
}
