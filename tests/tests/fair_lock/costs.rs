//! The requests of acquire, hand-off and release, counted at the server.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::FairLock;
use zk_tests::case::LOCK;
use zk_tests::meter::Pace;
use zk_tests::page;
use zk_tests::world::{World, run, run_within, sleep_ms};
use zk_testserver::Action;

use crate::{
    FIRST, SECOND, at_op, create_directory, granted_now, holder, ops, queue_up, release,
    requests_of, session, spawn,
};

#[test]
fn an_uncontended_acquire_is_one_flight_of_two_requests() {
    run(async {
        let world = World::new();
        create_directory(&world);
        let client = world.client(FIRST).await;
        let id = session(&client);
        // The reply to the first request is delayed, but the second request still arrives.
        let slow = Action::Delay(Duration::from_millis(50));
        world.server.inject(at_op(id, OpCode::CREATE2, slow));
        let guard = World::lock(&client).acquire().await.expect("the lock is free");
        let requests = requests_of(&world, id);
        assert_eq!(ops(&requests), [OpCode::CREATE2, OpCode::GET_CHILDREN]);
        assert_eq!(requests[0].at, requests[1].at, "one flight");
        let sent = ops(&requests);
        page::check_round_trips("recipes/fair.md", "acquire, nobody ahead", 1, &sent);
        // An election is the same queue.
        page::check_round_trips("recipes/election.md", "campaign, nobody leads", 1, &sent);
        page::check_text("performance.md", "| acquire a free lock | {} round trip |", &[1]);
        assert_eq!(requests[1].path.as_deref(), Some(LOCK));
        sleep_ms(99).await;
        assert_eq!(requests_of(&world, id).len(), 2, "nothing more\n{}", world.trace());
        release(guard).await;
        let requests = requests_of(&world, id);
        assert_eq!(ops(&requests[2..]), [OpCode::DELETE]);
        page::check_text("performance.md", "| release it | {} round trip |", &[1]);
        page::check_text("performance.md", "again and again | {} round trips |", &[1 + 1]);
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

/// The third contender in the queue learns without a list that it is now second. Contenders further
/// behind list once, while the contender ahead of them holds the lock.
#[test]
fn a_hand_off_in_a_longer_queue_is_a_grant_without_a_request_too() {
    run(async {
        let world = World::new();
        let (other, mut guard) = holder(&world, 100).await;
        let (mut clients, mut waiters) = (vec![other], Vec::new());
        for seed in 0..5 {
            let client = world.client(seed).await;
            waiters.push(queue_up(&world, &World::lock(&client)).await);
            sleep_ms(100).await;
            let read = OpCode::GET_DATA;
            let expected = [OpCode::CREATE2, OpCode::GET_CHILDREN, read, read, read];
            let reads = if seed == 0 { 2 } else { 3 };
            let requests = ops(&requests_of(&world, session(&client)));
            assert_eq!(requests, expected[..2 + reads], "{}", world.trace());
            clients.push(client);
        }
        for (place, waiter) in waiters.into_iter().enumerate() {
            world.server.clear_requests();
            let before = clients[place + 1].stats().watch_events;
            release(guard).await;
            guard = granted_now(&world, waiter).await;
            let own = requests_of(&world, session(&clients[place + 1]));
            assert_eq!(ops(&own), [], "{}", world.trace());
            let events = (clients[place + 1].stats().watch_events - before) as usize;
            sleep_ms(100).await;
            let lists = usize::from((1..4).contains(&place));
            if lists > 0 {
                let row = "| hand-over | {} event, and {} list in the background, however many";
                page::check_text("recipes/fair.md", row, &[events, lists]);
                let row = "| change of the leader | {} event for the next candidate;";
                page::check_text("recipes/election.md", row, &[events]);
                let row = "| {} delete, and {} event that grants it |";
                page::check_text("performance.md", row, &[1, events]);
            }
            let third = clients.get(place + 2).map(|third| requests_of(&world, session(third)));
            let expected = &[OpCode::GET_CHILDREN][..lists];
            assert_eq!(ops(&third.unwrap_or_default()), expected, "{place}\n{}", world.trace());
            assert_eq!(world.server.requests().len(), 1 + lists);
        }
        release(guard).await;
        assert_eq!(world.server.watch_count(), 0);
        world.check_clean(&clients.iter().collect::<Vec<_>>()).await;
    });
}

/// A waiter whose predecessor gives up watches another contender in its place.
#[test]
fn the_second_ahead_may_give_up() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let mut waiters = Vec::new();
        for seed in 10..13 {
            let waiting = world.client(seed).await;
            waiters.push((queue_up(&world, &World::lock(&waiting)).await, waiting));
        }
        let last = queue_up(&world, &World::lock(&client)).await;
        sleep_ms(100).await;
        world.server.clear_requests();
        // The holder, `first`, `middle` and `nearest` are ahead of this waiter. It watches the last
        // two.
        let (middle, gone) = waiters.remove(1);
        middle.abort();
        world.until("it is gone", |_| world.contenders().len() == 4).await;
        sleep_ms(100).await;
        let list_and_watch = [OpCode::GET_CHILDREN, OpCode::GET_DATA];
        assert_eq!(ops(&requests_of(&world, session(&client))), list_and_watch);
        let mut guard = held;
        let mut clients = vec![other, gone];
        for (waiter, waiting) in waiters {
            release(guard).await;
            guard = granted_now(&world, waiter).await;
            clients.push(waiting);
            sleep_ms(100).await;
        }
        world.server.clear_requests();
        release(guard).await;
        let guard = granted_now(&world, last).await;
        assert_eq!(ops(&requests_of(&world, session(&client))), [], "{}", world.trace());
        release(guard).await;
        clients.push(client);
        world.check_clean(&clients.iter().collect::<Vec<_>>()).await;
    });
}

/// Both contenders that the last waiter watches give up, in either order.
#[test]
fn both_ahead_may_give_up_and_nothing_is_granted() {
    for order in [[0, 1], [1, 0]] {
        run(async {
            let world = World::new();
            let (other, held) = holder(&world, SECOND).await;
            let client = world.client(FIRST).await;
            let (mut ahead, mut clients) = (Vec::new(), vec![other]);
            for seed in 10..12 {
                let waiting = world.client(seed).await;
                ahead.push(queue_up(&world, &World::lock(&waiting)).await);
                clients.push(waiting);
            }
            let last = queue_up(&world, &World::lock(&client)).await;
            sleep_ms(100).await;
            for (index, left) in order.into_iter().zip([3, 2]) {
                ahead[index].abort();
                world.until("it is gone", |_| world.contenders().len() == left).await;
                sleep_ms(100).await;
                assert!(!last.is_finished(), "{order:?}\n{}", world.trace());
            }
            assert_eq!(held.state(), zk_recipes::LockState::Held);
            release(held).await;
            release(granted_now(&world, last).await).await;
            clients.push(client);
            world.check_clean(&clients.iter().collect::<Vec<_>>()).await;
        });
    }
}

/// The deletion of a znode of the same session never grants, so the waiter does not learn early
/// that it is next.
#[test]
fn tasks_of_one_client_watch_only_the_nearest_and_list_once() {
    run(async {
        let world = World::new();
        let (client, held) = holder(&world, FIRST).await;
        let lock = World::lock(&client);
        let second = queue_up(&world, &lock).await;
        let third = queue_up(&world, &lock).await;
        sleep_ms(200).await;
        world.server.clear_requests();
        release(held).await;
        let held = granted_now(&world, second).await;
        sleep_ms(200).await;
        let (delete, list) = (OpCode::DELETE, OpCode::GET_CHILDREN);
        let confirm = OpCode::GET_DATA;
        assert_eq!(ops(&world.server.requests()), [delete, confirm], "{}", world.trace());
        world.server.clear_requests();
        release(held).await;
        let guard = granted_now(&world, third).await;
        assert_eq!(ops(&world.server.requests()), [delete, list], "{}", world.trace());
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

/// Waits behind a holder that releases the lock between the list and the read of its znode. At that
/// moment, `then` changes the waiter's znode. Returns the requests until the grant.
fn behind_one_that_is_gone(then: impl FnOnce(&World)) -> Vec<OpCode> {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let slow = Action::Delay(Duration::from_millis(50));
        world.server.inject(at_op(session(&client), OpCode::GET_CHILDREN, slow));
        let waiter = spawn(World::lock(&client).acquire().into_future());
        world.until("it has a place", |_| world.contenders().len() == 2).await;
        release(held).await;
        then(&world);
        let guard = waiter.await.expect("the task does not panic").expect("the lock is free");
        let requests = ops(&requests_of(&world, session(&client)));
        sleep_ms(1_000).await;
        assert_eq!(guard.state(), zk_recipes::LockState::Held, "{}", world.trace());
        release(guard).await;
        world.check_clean(&[&client, &other]).await;
        requests
    })
}

#[test]
fn a_holder_that_is_gone_before_it_was_read_needs_no_second_list() {
    let requests = behind_one_that_is_gone(|_| {});
    let (list, read) = (OpCode::GET_CHILDREN, OpCode::GET_DATA);
    assert_eq!(requests, [OpCode::CREATE2, list, read, read]);
}

#[test]
fn a_place_that_is_gone_as_well_is_no_grant() {
    let requests = behind_one_that_is_gone(|world| {
        for name in world.contenders() {
            assert!(world.server.admin_delete(&format!("{LOCK}/{name}")));
        }
    });
    let (list, read) = (OpCode::GET_CHILDREN, OpCode::GET_DATA);
    let (create, remove) = (OpCode::CREATE2, OpCode::DELETE);
    assert_eq!(requests, [create, list, read, read, list, read, remove, create, list]);
}

#[test]
fn a_waiter_sends_nothing_while_nothing_happens_and_a_holder_tests_its_znode() {
    run(async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let waiter = queue_up(&world, &World::lock(&client)).await;
        sleep_ms(200).await;
        world.server.clear_requests();
        sleep_ms(80_000).await;
        let sent: Vec<_> =
            world.server.requests().into_iter().map(|it| (it.session, it.op)).collect();
        // Every 30 s, or up to a quarter later.
        assert_eq!(sent, [(session(&other), OpCode::EXISTS); 2], "{}", world.trace());
        page::check_text("recipes/fair.md", "; {} test every 30 s |", &[1]);
        release(held).await;
        release(granted_now(&world, waiter).await).await;
        world.check_clean(&[&client, &other]).await;
    });
}

/// A waiter checks what it watches, in case an event was lost.
#[test]
fn a_long_wait_costs_two_small_reads_at_each_check() {
    const EVERY: usize = 30;
    run_within(Duration::from_secs(1_000), async {
        let world = World::new();
        let (other, held) = holder(&world, SECOND).await;
        let mut clients = vec![other];
        let mut waiters = Vec::new();
        for seed in 10..15 {
            let client = world.client(seed).await;
            let lock = FairLock::new(&client, LOCK).expect("the path is valid");
            waiters.push(queue_up(&world, &lock).await);
            clients.push(client);
        }
        sleep_ms(1_000).await;
        world.server.clear_requests();
        sleep_ms(600_000).await;
        for client in &clients[1..] {
            let sent = requests_of(&world, session(client));
            assert!(sent.iter().all(|it| it.op == OpCode::GET_DATA), "{}", world.trace());
            let checks: Vec<_> = sent.chunk_by(|one, next| one.at == next.at).collect();
            let reads = checks.iter().map(|reads| reads.len()).max().expect("it checks");
            for (one, next) in checks.iter().zip(&checks[1..]) {
                // Each interval is up to a quarter longer.
                let seconds = (next[0].at - one[0].at).as_secs_f64();
                assert!((EVERY as f64..=EVERY as f64 * 1.25).contains(&seconds), "{seconds} s");
            }
            let row = "| waiting | {} small reads every {} s (`watch_check`) |";
            page::check_text("recipes/fair.md", row, &[reads, EVERY]);
        }
        for waiter in waiters {
            waiter.abort();
        }
        release(held).await;
        world.check_clean(&clients.iter().collect::<Vec<_>>()).await;
    });
}

#[test]
fn each_waiter_lengthens_a_list_by_as_much_as_the_page_says() {
    run(async {
        let world = World::new();
        let (client, held) = holder(&world, FIRST).await;
        let lock = World::lock(&client);
        let listed = async || {
            let before = world.traffic();
            lock.contenders().await.expect("they can be listed");
            world.traffic().since(before).listed as usize
        };
        let before = listed().await;
        let waiter = queue_up(&world, &lock).await;
        let bytes = listed().await - before;
        page::check_text("performance.md", "which is {} bytes for each waiter", &[bytes]);
        waiter.abort();
        release(held).await;
        world.check_clean(&[&client]).await;
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
        let sent = ops(&requests);
        assert_eq!(sent, [OpCode::GET_CHILDREN], "{}", world.trace());
        let row = "`try_acquire` of a lock that is held";
        page::check_requests("performance.md", row, &sent, 0);
        assert_eq!(world.server.zxid(), zxid, "nothing was written");
        release(held).await;
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn try_acquire_of_a_free_lock_is_a_read_and_an_acquire() {
    run(async {
        let world = World::new();
        create_directory(&world);
        let client = world.client(FIRST).await;
        let acquired = World::lock(&client).try_acquire().await.expect("it can be read");
        let list = OpCode::GET_CHILDREN;
        assert_eq!(ops(&world.server.requests()), [list, OpCode::CREATE2, list]);
        release(acquired.expect("the lock is free")).await;
        world.check_clean(&[&client]).await;
    });
}

/// Each hand-off wakes one waiter, however long the queue is.
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
            // The requests are the delete, and a list by the waiter that was woken.
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
        let world = World::new().pace(Pace::of(100));
        let (other, held) = holder(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let lock = World::lock(&client);
        for _ in 0..200 {
            let waiter = spawn(lock.acquire().timeout(Duration::from_millis(5)).into_future());
            assert!(waiter.await.expect("the task does not panic").is_err());
        }
        sleep_ms(100).await;
        assert!(world.server.watch_count() <= 2, "{}", world.server.watch_count());
        release(held).await;
        assert_eq!(world.server.watch_count(), 0);
        world.check_clean(&[&client, &other]).await;
    });
}
