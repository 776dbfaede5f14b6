//! The requests of acquire, hand-over and release, counted at the server.

use jute_codec::{OpCode, Zxid};
use zk_recipes::{ExclusiveLock, LockError, LockState, LostReason, Released};
use zk_tests::case::Case as _;
use zk_tests::meter::Pace;
use zk_tests::page;
use zk_tests::scene::{
    FIRST, SECOND, THIRD, at_op, create_directory, granted_now, ops, release, requests_of, session,
    spawn,
};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

use crate::{holder, queue_up};

const CREATE: OpCode = OpCode::CREATE2;
const READ: OpCode = OpCode::GET_DATA;

#[test]
fn an_uncontended_acquire_is_one_flight_of_two_requests_and_a_release_one_delete() {
    run(async {
        let world = World::new();
        create_directory::<ExclusiveLock>(&world);
        let client = world.client(FIRST).await;
        let slow = Action::Delay(std::time::Duration::from_millis(50));
        world.server.inject(at_op(session(&client), CREATE, slow));
        let guard = ExclusiveLock::of(&client).acquire().await.expect("the lock is free");
        let requests = world.server.requests();
        assert_eq!(ops(&requests), [CREATE, READ], "{}", world.trace());
        assert_eq!(requests[0].at, requests[1].at, "one flight");
        page::check_round_trips("recipes/exclusive.md", "acquire, free", 1, &ops(&requests));
        // The client already watches its znode, and only tests it from time to time.
        sleep_ms(29_000).await;
        assert_eq!(world.server.requests().len(), 2, "{}", world.trace());
        sleep_ms(21_000).await;
        assert_eq!(ops(&world.server.requests()[2..]), [OpCode::EXISTS], "{}", world.trace());
        assert_eq!(world.server.watch_count(), 1);
        release(guard).await;
        sleep_ms(50_000).await;
        assert_eq!(ops(&world.server.requests()[3..]), [OpCode::DELETE], "{}", world.trace());
        assert_eq!(world.server.watch_count(), 0);
    });
}

#[test]
fn missing_ancestors_are_made_in_one_flight() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        let make = OpCode::CREATE_CONTAINER;
        assert_eq!(ops(&world.server.requests()), [CREATE, READ, make, CREATE, READ]);
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn try_acquire_is_one_read_if_the_lock_is_busy_and_an_acquire_if_it_is_not() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let zxid = world.server.zxid();
        assert!(ExclusiveLock::of(&client).try_acquire().await.expect("it can be read").is_none());
        sleep_ms(1_000).await;
        let sent = ops(&requests_of(&world, session(&client)));
        assert_eq!(sent, [READ], "{}", world.trace());
        page::check_requests("recipes/exclusive.md", "`try_acquire`, taken", &sent, 0);
        assert_eq!(world.server.zxid(), zxid, "nothing was written");
        assert_eq!(world.server.watch_count(), 1, "of the holder");
        release(held).await;
        world.server.clear_requests();
        let acquired = ExclusiveLock::of(&client).try_acquire().await.expect("it can be read");
        assert_eq!(ops(&requests_of(&world, session(&client))), [READ, CREATE, READ]);
        release(acquired.expect("the lock is free")).await;
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn a_hand_over_is_a_flight_of_each_waiter() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, THIRD).await;
        let (first, second) = (world.client(FIRST).await, world.client(SECOND).await);
        let one = queue_up(&world, &ExclusiveLock::of(&first)).await;
        let two = queue_up(&world, &ExclusiveLock::of(&second)).await;
        sleep_ms(100_000).await;
        for client in [&first, &second] {
            let requests = requests_of(&world, session(client));
            assert_eq!(ops(&requests), [CREATE, READ], "waiting is free\n{}", world.trace());
        }
        world.server.clear_requests();
        release(held).await;
        let guard = granted_now(&world, one).await;
        sleep_ms(5_000).await;
        for client in [&first, &second] {
            assert_eq!(ops(&requests_of(&world, session(client))), [CREATE, READ]);
        }
        assert!(!two.is_finished(), "two holders\n{}", world.trace());
        release(guard).await;
        release(granted_now(&world, two).await).await;
        world.check_clean(&[&first, &second, &other]).await;
    });
}

#[test]
fn validate_is_one_flight_of_a_write_and_a_read() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        world.server.clear_requests();
        let before = world.server.zxid();
        guard.validate().await.expect("the lock is held");
        let requests = world.server.requests();
        assert_eq!(ops(&requests), [OpCode::MULTI, READ], "{}", world.trace());
        assert_eq!(requests[0].at, requests[1].at, "one flight");
        assert_eq!(world.server.zxid(), Zxid(before.0 + 1));
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

/// The holder was granted the lock without setting a watch, so no event reports the other holder.
#[test]
fn validate_tells_the_znode_of_another_holder_from_the_own() {
    run(async {
        let world = World::new();
        create_directory::<ExclusiveLock>(&world);
        let client = world.client(FIRST).await;
        let guard = ExclusiveLock::of(&client)
            .try_acquire()
            .await
            .expect("it can be read")
            .expect("the lock is free");
        assert!(world.server.admin_delete(guard.path()));
        let (other, next) = holder(&world, SECOND).await;
        assert_eq!(guard.state(), LockState::Held, "it does not know\n{}", world.trace());
        let lost = LostReason::ZnodeDeleted;
        assert_eq!(guard.validate().await, Err(LockError::Lost(lost)));
        assert_eq!(guard.state(), LockState::Lost(lost));
        assert_eq!(guard.release().await, Ok(Released::AlreadyGone));
        assert_eq!(world.owner(), Some(session(&other)), "{}", world.trace());
        next.validate().await.expect("it is undisturbed");
        release(next).await;
        world.check_clean(&[&client, &other]).await;
    });
}

/// Each release wakes all waiters, so the cost grows with their number. The cost must not grow
/// faster than that.
#[test]
fn a_hundred_waiters_hold_it_one_at_a_time_and_send_one_flight_each_per_hand_over() {
    const WAITERS: usize = 100;
    run(async {
        let world = World::new().pace(Pace::of(100));
        let (first, mut guard) = holder(&world, 1_000).await;
        let mut clients = vec![first];
        let (sender, mut guards) = tokio::sync::mpsc::unbounded_channel();
        for seed in 0..WAITERS as u64 {
            let client = world.client(seed).await;
            let (lock, sender) = (ExclusiveLock::of(&client), sender.clone());
            clients.push(client);
            spawn(async move {
                let guard = lock.acquire().await.expect("the lock becomes free");
                sender.send(guard).expect("the test goes on");
            });
        }
        sleep_ms(100).await;
        let mut most = 0;
        for waiting in (1..=WAITERS).rev() {
            assert!(guards.is_empty(), "two holders\n{}", world.trace());
            world.server.clear_requests();
            release(guard).await;
            guard = guards.recv().await.expect("a waiter gets the lock");
            sleep_ms(50).await;
            let sent = world.server.requests().len();
            assert!(sent <= 2 * waiting + 1, "{sent} requests with {waiting} waiters");
            most = most.max(sent);
            assert_eq!(guard.state(), LockState::Held);
        }
        eprintln!("{WAITERS} waiters: at most {most} requests per hand-over");
        release(guard).await;
        assert_eq!(world.server.watch_count(), 0);
        world.check_clean(&clients.iter().collect::<Vec<_>>()).await;
    });
}

/// Only after a create with a lost reply does the client read the znode again.
#[test]
fn a_release_without_doubt_leaves_nothing_to_do_after_a_reconnect() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        for _ in 0..3 {
            let guard = ExclusiveLock::of(&client).acquire().await.expect("the lock is free");
            release(guard).await;
        }
        world.server.clear_requests();
        world.server.disconnect_all();
        sleep_ms(5_000).await;
        assert_eq!(client.status().connection, 2);
        let requests = requests_of(&world, session(&client));
        assert_eq!(ops(&requests), [], "{}", world.trace());
    });
}
