//! The requests of each common path, counted at the server, as the page of the semaphore lists them.

use std::collections::VecDeque;

use jute_codec::OpCode;
use zk_recipes::Semaphore;
use zk_tests::case::LOCK;
use zk_tests::meter::Pace;
use zk_tests::page;
use zk_tests::scene::{FIRST, SECOND, granted_now, release, requests_of, sent_since, session};
use zk_tests::world::{World, run, sleep_ms};

use crate::{create_directory, hold, queue_up, semaphore};

const LIST: OpCode = OpCode::GET_CHILDREN;
const READ: OpCode = OpCode::GET_DATA;

const PAGE: &str = "recipes/semaphore.md";

/// A world in which the semaphore has this number of permits. Its clients may be busy, because some
/// of them are a crowd.
fn with_permits(permits: u32) -> World {
    let world = World::new().pace(Pace::of(200));
    create_directory(&world);
    world.server.admin_set_data(LOCK, permits.to_string().as_bytes());
    world
}

#[test]
fn an_uncontended_acquire_is_one_flight_and_a_release_one_delete() {
    run(async {
        let world = with_permits(3);
        let client = world.client(FIRST).await;
        let semaphore = semaphore(&client, 3);
        for _ in 0..3 {
            let guard = hold(&semaphore).await;
            let sent = requests_of(&world, session(&client));
            assert!(sent.iter().all(|request| request.at == sent[0].at), "one flight");
            let sent = sent_since(&world, &client);
            assert_eq!(sent, [OpCode::CREATE2, LIST, READ]);
            let row = "acquire, a permit is free";
            page::check_round_trips("recipes/semaphore.md", row, 1, &sent);
            release(guard).await;
            assert_eq!(sent_since(&world, &client), [OpCode::DELETE]);
        }
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_try_without_a_free_permit_is_one_list() {
    run(async {
        let world = with_permits(1);
        let (other, client) = (world.client(SECOND).await, world.client(FIRST).await);
        let guard = hold(&semaphore(&other, 1)).await;
        world.server.clear_requests();
        let tried = semaphore(&client, 1).try_acquire().await.expect("it can be listed");
        assert!(tried.is_none());
        assert_eq!(sent_since(&world, &client), [LIST]);
        release(guard).await;
        world.check_clean(&[&client, &other]).await;
    });
}

/// A waiter watches as many predecessors as there are permits, however many there are.
#[test]
fn a_waiter_reads_as_many_predecessors_as_there_are_permits() {
    for permits in [1, 2, 5, 16] {
        run(async {
            let world = with_permits(permits);
            let (other, client) = (world.client(SECOND).await, world.client(FIRST).await);
            let (crowd, semaphore) = (semaphore(&other, permits), semaphore(&client, permits));
            let mut guards = Vec::new();
            for _ in 0..permits {
                guards.push(hold(&crowd).await);
            }
            let mut waiters = Vec::new();
            for _ in 0..3 {
                waiters.push(queue_up(&world, &crowd).await);
            }
            world.server.clear_requests();
            let last = queue_up(&world, &semaphore).await;
            let reads = vec![READ; permits as usize + 2];
            assert_eq!(
                sent_since(&world, &client),
                [&[OpCode::CREATE2, LIST, READ], &reads[..]].concat(),
                "{permits} permits"
            );
            // A minute passes without a request, since nothing happens.
            sleep_ms(60_000).await;
            assert!(sent_since(&world, &client).iter().all(|op| *op == OpCode::PING));
            for guard in guards {
                release(guard).await;
            }
            for waiter in waiters {
                release(granted_now(&world, waiter).await).await;
            }
            world.server.clear_requests();
            release(granted_now(&world, last).await).await;
            world.check_clean(&[&client, &other]).await;
        });
    }
}

/// Each of the watched contenders that leaves costs a list, and only the new predecessors are read.
#[test]
fn a_hand_over_is_one_list_and_one_read() {
    run(async {
        let world = with_permits(2);
        let (other, client) = (world.client(SECOND).await, world.client(FIRST).await);
        let (one, two) = (hold(&semaphore(&other, 2)).await, hold(&semaphore(&other, 2)).await);
        let waiter = queue_up(&world, &semaphore(&client, 2)).await;
        sleep_ms(1_000).await;
        world.server.clear_requests();
        release(one).await;
        let guard = granted_now(&world, waiter).await;
        assert_eq!(sent_since(&world, &client), [LIST, READ]);
        release(guard).await;
        release(two).await;
        world.check_clean(&[&client, &other]).await;
    });
}

/// The waiters that watch the holder that releases list too, and watch another contender instead.
#[test]
fn a_hand_over_costs_what_the_page_says() {
    for permits in [1, 2, 5, 16] {
        let mut others_most = 0;
        for is_oldest in [true, false] {
            run(async {
                let world = with_permits(permits);
                let other = world.client(SECOND).await;
                let crowd = semaphore(&other, permits);
                let mut guards = VecDeque::new();
                for _ in 0..permits {
                    guards.push_back(hold(&crowd).await);
                }
                let (mut clients, mut waiting) = (Vec::new(), VecDeque::new());
                for seed in 0..20 {
                    let client = world.client(10 + seed).await;
                    waiting.push_back(queue_up(&world, &semaphore(&client, permits)).await);
                    clients.push(client);
                }
                for place in 0..clients.len() {
                    sleep_ms(1_000).await;
                    world.server.clear_requests();
                    let leaving = if is_oldest { guards.pop_front() } else { guards.pop_back() };
                    release(leaving.expect("they hold it")).await;
                    let waiter = waiting.pop_front().expect("they wait");
                    guards.push_back(granted_now(&world, waiter).await);
                    sleep_ms(1_000).await;
                    let sent = clients[place..].iter().map(|client| {
                        let sent = requests_of(&world, session(client));
                        sent.iter().map(|request| request.op).collect::<Vec<_>>()
                    });
                    let mut sent: VecDeque<_> = sent.filter(|sent| !sent.is_empty()).collect();
                    assert_eq!(sent.pop_front(), Some(vec![LIST, READ]), "{}", world.trace());
                    let is_other = |sent: &Vec<OpCode>| *sent == [LIST, READ, READ];
                    assert!(sent.iter().all(is_other), "{}", world.trace());
                    others_most = others_most.max(sent.len());
                }
                for guard in guards {
                    release(guard).await;
                }
                world.check_clean(&clients.iter().chain([&other]).collect::<Vec<_>>()).await;
            });
        }
        let row = "with up to {} permits (*n*), a list and {} reads of up to *n* - {} others |";
        page::check_text(PAGE, row, &[16, 2, permits as usize - others_most]);
    }
}

/// A waiter checks what it watches, in case an event was lost.
#[test]
fn a_long_wait_costs_what_the_page_says_at_each_check() {
    const EVERY: usize = 30;
    for permits in [1, 16, 17] {
        run(async {
            let world = with_permits(permits);
            let (other, client) = (world.client(SECOND).await, world.client(FIRST).await);
            let crowd = semaphore(&other, permits);
            let mut guards = Vec::new();
            for _ in 0..permits {
                guards.push(hold(&crowd).await);
            }
            let ahead = queue_up(&world, &crowd).await;
            let checked = Semaphore::new(&client, LOCK, permits).expect("the options are legal");
            let waiter = queue_up(&world, &checked).await;
            sleep_ms(1_000).await;
            world.server.clear_requests();
            sleep_ms(100_000).await;
            let sent = requests_of(&world, session(&client));
            let checks: Vec<_> = sent.chunk_by(|one, next| one.at == next.at).collect();
            // Each interval is up to a quarter longer.
            let seconds = (checks[1][0].at - checks[0][0].at).as_secs_f64();
            assert!((EVERY as f64..=EVERY as f64 * 1.25).contains(&seconds), "{seconds} s");
            for check in checks {
                let sent: Vec<_> = check.iter().map(|request| request.op).collect();
                if permits > 16 {
                    assert_eq!(sent, [LIST, READ]);
                    page::check_text(PAGE, "; above {} permits a list and a read |", &[16]);
                } else {
                    assert!(sent.iter().all(|op| *op == READ), "{sent:?}");
                    let row = "| waiting | *n* + {} reads every {} s;";
                    page::check_text(PAGE, row, &[check.len() - permits as usize, EVERY]);
                }
            }
            waiter.abort();
            ahead.abort();
            for guard in guards {
                release(guard).await;
            }
            world.check_clean(&[&client, &other]).await;
        });
    }
}

/// Above sixteen permits the directory is watched, so a waiter reads no predecessor at all.
#[test]
fn with_many_permits_a_waiter_watches_the_directory() {
    run(async {
        let world = with_permits(17);
        let (other, client) = (world.client(SECOND).await, world.client(FIRST).await);
        let crowd = semaphore(&other, 17);
        let mut guards = Vec::new();
        for _ in 0..17 {
            guards.push(hold(&crowd).await);
        }
        world.server.clear_requests();
        let waiter = queue_up(&world, &semaphore(&client, 17)).await;
        let sent = sent_since(&world, &client);
        let expected = [OpCode::CREATE2, LIST, READ, OpCode::ADD_WATCH, LIST, READ, READ];
        assert_eq!(sent, expected, "{}", world.trace());
        // A minute passes without a request, since nothing happens.
        sleep_ms(60_000).await;
        assert!(sent_since(&world, &client).iter().all(|op| *op == OpCode::PING));
        release(guards.remove(5)).await;
        let guard = granted_now(&world, waiter).await;
        let sent = sent_since(&world, &client);
        // The page does not count the end of a watch that is not needed any more.
        assert_eq!(sent, [LIST, READ, OpCode::REMOVE_WATCHES], "{}", world.trace());
        guards.push(guard);
        for guard in guards {
            release(guard).await;
        }
        world.check_clean(&[&client, &other]).await;
    });
}

/// How many lists and reads of the directory were sent since the last call.
fn requests(world: &World) -> (usize, usize) {
    let requests = world.server.requests();
    world.server.clear_requests();
    let count = |op| requests.iter().filter(|request| request.op == op).count();
    (count(LIST), count(READ))
}

/// The waiter that is granted the permit lists, and no other. With a list for each waiter, one
/// release cost 60 lists here, and 198 with 200 waiters.
#[test]
fn with_many_permits_and_many_waiters_a_release_costs_one_list() {
    const PERMITS: u32 = 100;
    const WAITERS: u64 = 60;
    run(async {
        let world = with_permits(PERMITS);
        let other = world.client(SECOND).await;
        let crowd = semaphore(&other, PERMITS);
        let mut guards = Vec::new();
        for _ in 0..PERMITS {
            guards.push(hold(&crowd).await);
        }
        let (mut clients, mut waiters) = (Vec::new(), VecDeque::new());
        for seed in 0..WAITERS {
            let client = world.client(10 + seed).await;
            requests(&world);
            waiters.push_back(queue_up(&world, &semaphore(&client, PERMITS)).await);
            sleep_ms(10).await;
            // Those that wait list after as many arrivals as there are waiters before them, and one.
            let (lists, _) = requests(&world);
            let before = (1..=seed).map(|rank| 1.0 / rank as f64).sum::<f64>();
            assert!((lists as f64) <= 2.0 * before + 4.0, "{lists} lists of {seed} waiters");
            clients.push(client);
        }
        // The changes since its last list tell a waiter more than one change, so each lists once.
        let mut total = 0;
        for number in 0..WAITERS as usize {
            // In any order: from both ends of the holders.
            let place = if number % 2 == 0 { 0 } else { guards.len() - 1 };
            release(guards.remove(place)).await;
            guards.push(granted_now(&world, waiters.pop_front().expect("they wait")).await);
            sleep_ms(10).await;
            let (lists, reads) = requests(&world);
            assert!(
                lists <= 8 && reads <= 8,
                "{lists} lists and {reads} reads of release {number}"
            );
            total += lists;
        }
        // Before: 1,830, the sum of the numbers of waiters.
        assert!(total <= 3 * WAITERS as usize, "{total} lists");
        for guard in guards {
            release(guard).await;
        }
        let clients: Vec<_> = clients.iter().chain([&other]).collect();
        world.check_clean(&clients).await;
    });
}
