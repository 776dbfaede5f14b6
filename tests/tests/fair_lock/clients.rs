//! Several clients that share one lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{LockState, LostReason};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, At, Fault};

use crate::{at_op, granted, granted_now, holder, partition, queue_up, release, session, spawn};

#[test]
fn contenders_are_served_in_the_order_of_their_tokens() {
    run(async {
        let world = World::new();
        let (first, guard) = holder(&world, 10).await;
        let mut clients = vec![first];
        let mut waiters = Vec::new();
        // The ids of the clients, and therefore the names of their znodes, sort differently from
        // their numbers.
        for seed in [4, 2, 5, 1, 3] {
            let client = world.client(seed).await;
            waiters.push(queue_up(&world, &World::lock(&client)).await);
            clients.push(client);
        }
        let names = world.contenders();
        let is_sorted =
            names.is_sorted_by_key(|name| name.rsplit_once('-').map(|(_, n)| n.to_owned()));
        assert!(!is_sorted, "the order of names must not be that of numbers: {names:?}");
        let mut newest = guard.fencing_token();
        release(guard).await;
        for waiter in waiters {
            let guard = granted_now(&world, waiter).await;
            assert!(guard.fencing_token() > newest);
            newest = guard.fencing_token();
            sleep_ms(100).await;
            release(guard).await;
        }
        world.check_clean(&clients.iter().collect::<Vec<_>>()).await;
    });
}

#[test]
fn a_holder_that_expires_is_followed_by_the_next() {
    run(async {
        let world = World::new();
        let (first, held) = holder(&world, 1).await;
        let (second, third) = (world.client(2).await, world.client(3).await);
        let next = queue_up(&world, &World::lock(&second)).await;
        let last = queue_up(&world, &World::lock(&third)).await;
        world.server.expire(session(&first));
        let guard = granted_now(&world, next).await;
        assert!(guard.fencing_token() > held.fencing_token());
        sleep_ms(1_000).await;
        assert_eq!(held.state(), LockState::Lost(LostReason::SessionExpired));
        assert_eq!(guard.state(), LockState::Held);
        assert!(!last.is_finished());
        release(guard).await;
        release(granted_now(&world, last).await).await;
        drop(held);
        world.check_clean(&[&first, &second, &third]).await;
    });
}

#[test]
fn a_waiter_that_expires_is_overtaken_by_those_behind_it() {
    run(async {
        let world = World::new();
        let (first, held) = holder(&world, 1).await;
        let (second, third) = (world.client(2).await, world.client(3).await);
        let overtaken = queue_up(&world, &World::lock(&second)).await;
        let behind = queue_up(&world, &World::lock(&third)).await;
        world.server.expire(session(&second));
        sleep_ms(2_000).await;
        assert!(!behind.is_finished() && !overtaken.is_finished());
        release(held).await;
        let guard = granted_now(&world, behind).await;
        sleep_ms(500).await;
        assert!(!overtaken.is_finished());
        release(guard).await;
        release(granted_now(&world, overtaken).await).await;
        world.check_clean(&[&first, &second, &third]).await;
    });
}

/// All connections end again and again while five clients take turns.
#[test]
fn reconnects_neither_lose_nor_double_the_lock() {
    run(async {
        let world = World::new();
        let inside = Arc::new(AtomicUsize::new(0));
        let mut clients = Vec::new();
        let mut tasks = Vec::new();
        for seed in 0..5 {
            let client = world.client(seed).await;
            let (lock, inside) = (World::lock(&client), Arc::clone(&inside));
            clients.push(client);
            tasks.push(spawn(async move {
                for round in 0..10 {
                    let guard = lock.acquire().await.expect("the lock becomes free");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    sleep_ms(50 + seed * 7 + round).await;
                    assert!(!matches!(guard.state(), LockState::Lost(_)));
                    inside.fetch_sub(1, Ordering::SeqCst);
                    release(guard).await;
                }
                assert_eq!(lock.stats().watches_missed, 0);
            }));
        }
        let mut cuts = 0;
        while tasks.iter().any(|task| !task.is_finished()) {
            sleep_ms(310).await;
            partition(&world, cuts % 3 * 100);
            cuts += 1;
        }
        assert!(cuts > 5, "only {cuts} cuts");
        for task in tasks {
            task.await.expect("it was always held alone");
        }
        world.check_clean(&clients.iter().collect::<Vec<_>>()).await;
    });
}

#[test]
fn a_lock_is_held_by_nobody_while_the_old_holder_may_still_believe_in_it() {
    run(async {
        let world = World::new();
        let (first, held) = holder(&world, 1).await;
        let second = world.client(2).await;
        let waiter = queue_up(&world, &World::lock(&second)).await;
        held.validate().await.expect("the lock is held");
        // From now on, the holder and the server receive nothing from each other.
        let freeze = Action::Freeze;
        world.server.inject(at_op(session(&first), OpCode::PING, freeze.clone()));
        let lost = spawn({
            let lost = held.lost();
            let client = first.clone();
            async move {
                lost.await;
                client.now()
            }
        });
        world.until("the holder is silent", |server| server.pending_faults().is_empty()).await;
        // The freezes cover all retries of the holder before the lock is lost.
        for _ in 0..20 {
            world.server.inject(Fault::new(At::connect(0), freeze.clone()));
        }
        let guard = granted(waiter).await;
        world.server.clear_faults();
        assert!(lost.is_finished(), "two believe to hold\n{}", world.trace());
        assert!(matches!(held.state(), LockState::Lost(_)));
        drop(held);
        release(guard).await;
        world.check_clean(&[&first, &second]).await;
    });
}

/// Another contender arrives between the read of `try_acquire` and its create.
#[test]
fn a_try_acquire_that_is_overtaken_is_busy_and_leaves_nothing() {
    run(async {
        let world = World::new();
        crate::create_directory(&world);
        let (first, second) = (world.client(1).await, world.client(2).await);
        let slow = Action::Delay(Duration::from_millis(50));
        world.server.inject(at_op(session(&second), OpCode::GET_CHILDREN, slow));
        let lock = World::lock(&second);
        let trying = spawn(lock.try_acquire().into_future());
        sleep_ms(10).await;
        let held = World::lock(&first).acquire().await.expect("the lock is free");
        let tried = trying.await.expect("the task does not panic").expect("it can be tried");
        assert!(tried.is_none(), "two holders\n{}", world.trace());
        sleep_ms(100).await;
        assert_eq!(world.contenders().len(), 1, "{}", world.trace());
        release(held).await;
        world.check_clean(&[&first, &second]).await;
    });
}
