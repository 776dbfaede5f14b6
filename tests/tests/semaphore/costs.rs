//! The requests of each common path, counted at the server, as the page of the semaphore lists them.

use jute_codec::OpCode;
use zk_tests::case::LOCK;
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND, granted_now, release, requests_of, sent_since, session};
use zk_tests::world::{World, run, sleep_ms};

use crate::{create_directory, hold, queue_up, semaphore};

const LIST: OpCode = OpCode::GET_CHILDREN;
const READ: OpCode = OpCode::GET_DATA;

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
            assert_eq!(sent_since(&world, &client), [OpCode::CREATE2, LIST, READ]);
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

/// Above sixteen permits the list is watched, so a waiter reads no predecessor at all.
#[test]
fn with_many_permits_a_waiter_watches_the_list() {
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
        assert_eq!(sent, [OpCode::CREATE2, LIST, READ, LIST, READ, READ], "{}", world.trace());
        for guard in guards {
            release(guard).await;
        }
        release(granted_now(&world, waiter).await).await;
        world.check_clean(&[&client, &other]).await;
    });
}
