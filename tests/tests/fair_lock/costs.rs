//! What acquire, hand-off and release send, counted at the server.

use std::time::Duration;

use jute_codec::OpCode;
use zk_tests::world::{DIRECTORY, World, run, sleep_ms};
use zk_testserver::Action;

use crate::{
    FIRST, SECOND, at_op, granted_now, holder, make_directory, ops, queue_up, release, requests_of,
    session, spawn,
};

#[test]
fn an_uncontended_acquire_is_one_flight_of_two_requests() {
    run(async {
        let world = World::new();
        make_directory(&world);
        let client = world.client(FIRST).await;
        let id = session(&client);
        // The reply to the first is slow, and the second is there all the same.
        let slow = Action::Delay(Duration::from_millis(50));
        world.server.inject(at_op(id, OpCode::CREATE2, slow));
        let guard = World::lock(&client).acquire().await.expect("it is free");
        let requests = requests_of(&world, id);
        assert_eq!(ops(&requests), [OpCode::CREATE2, OpCode::GET_CHILDREN]);
        assert_eq!(requests[0].at, requests[1].at, "one flight");
        assert_eq!(requests[1].path.as_deref(), Some(DIRECTORY));
        sleep_ms(99).await;
        assert_eq!(requests_of(&world, id).len(), 2, "nothing more\n{}", world.trace());
        release(guard).await;
        let requests = requests_of(&world, id);
        assert_eq!(ops(&requests[2..]), [OpCode::DELETE]);
        sleep_ms(60_000).await;
        assert_eq!(world.server.requests().len(), 3, "nothing behind\n{}", world.trace());
    });
}

#[test]
fn the_first_use_of_a_directory_takes_three_flights() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        let create = OpCode::CREATE2;
        let list = OpCode::GET_CHILDREN;
        let make = OpCode::CREATE_CONTAINER;
        let requests = world.server.requests();
        assert_eq!(ops(&requests), [create, list, make, make, create, list]);
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_hand_off_from_another_session_is_a_grant_without_a_request() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let lock = World::lock(&client);
        let waiter = queue_up(&world, &lock).await;
        let requests = requests_of(&world, session(&client));
        let read = OpCode::GET_DATA;
        let expected = [OpCode::CREATE2, OpCode::GET_CHILDREN, read, read];
        assert_eq!(ops(&requests), expected, "{}", world.trace());
        assert_eq!(requests[2].path.as_deref(), Some(held.path()));
        sleep_ms(5_000).await;
        world.server.clear_requests();
        release(held).await;
        let guard = granted_now(&world, waiter).await;
        assert_eq!(ops(&requests_of(&world, session(&client))), [], "{}", world.trace());
        assert_eq!(guard.state(), zk_recipes::LockState::Held);
        sleep_ms(5_000).await;
        assert_eq!(ops(&requests_of(&world, session(&client))), [], "it is watched already");
        release(guard).await;
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn a_hand_off_after_a_reconnect_lists_once() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let waiter = queue_up(&world, &World::lock(&client)).await;
        crate::partition(&world, 100);
        sleep_ms(3_000).await;
        world.server.clear_requests();
        release(held).await;
        let guard = granted_now(&world, waiter).await;
        assert_eq!(ops(&requests_of(&world, session(&client))), [OpCode::GET_CHILDREN]);
        release(guard).await;
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn a_waiter_and_a_holder_send_nothing_while_nothing_happens() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let waiter = queue_up(&world, &World::lock(&client)).await;
        sleep_ms(200).await;
        world.server.clear_requests();
        sleep_ms(80_000).await;
        assert_eq!(world.server.requests(), [], "{}", world.trace());
        release(held).await;
        release(granted_now(&world, waiter).await).await;
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn try_acquire_of_a_busy_lock_is_one_read() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let zxid = world.server.zxid();
        assert!(World::lock(&client).try_acquire().await.expect("it can be read").is_none());
        sleep_ms(1_000).await;
        let requests = requests_of(&world, session(&client));
        assert_eq!(ops(&requests), [OpCode::GET_CHILDREN], "{}", world.trace());
        assert_eq!(world.server.zxid(), zxid, "nothing was written");
        release(held).await;
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn try_acquire_of_a_free_lock_is_a_read_and_an_acquire() {
    run(async {
        let world = World::new();
        make_directory(&world);
        let client = world.client(FIRST).await;
        let acquired = World::lock(&client).try_acquire().await.expect("it can be read");
        let list = OpCode::GET_CHILDREN;
        assert_eq!(ops(&world.server.requests()), [list, OpCode::CREATE2, list]);
        release(acquired.expect("it is free")).await;
        world.check_clean(&[&client]).await;
    });
}

/// Each hand-off wakes one, whatever the length of the queue.
#[test]
fn a_hand_off_costs_the_same_in_a_long_queue() {
    const CONTENDERS: u64 = 20;
    run(async {
        let world = World::new();
        let (first, mut guard) = holder(&world, 100).await;
        let mut clients = vec![first];
        let mut waiters = Vec::new();
        for seed in 0..CONTENDERS {
            let client = world.client(seed).await;
            waiters.push(queue_up(&world, &World::lock(&client)).await);
            clients.push(client);
        }
        sleep_ms(500).await;
        for waiter in waiters {
            world.server.clear_requests();
            release(guard).await;
            guard = granted_now(&world, waiter).await;
            sleep_ms(1_000).await;
            let requests = world.server.requests();
            // The delete, and a list of the one that was woken.
            assert!(requests.len() <= 2, "{}", world.trace());
        }
        release(guard).await;
        assert_eq!(world.server.watch_count(), 0);
        world.check_clean(&clients.iter().collect::<Vec<_>>()).await;
    });
}

#[test]
fn many_timeouts_behind_one_holder_leave_few_watches() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let lock = World::lock(&client);
        for _ in 0..200 {
            let waiter = spawn(lock.acquire().timeout(Duration::from_millis(5)).into_future());
            assert!(waiter.await.expect("it does not panic").is_err());
        }
        sleep_ms(100).await;
        assert!(world.server.watch_count() <= 2, "{}", world.server.watch_count());
        release(held).await;
        assert_eq!(world.server.watch_count(), 0);
        world.check_clean(&[&client, &other]).await;
    });
}
