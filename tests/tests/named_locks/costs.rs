//! The requests of each common path, counted at the server.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{Client, ErrorCode};
use zk_tests::case::LOCK;
use zk_tests::page;
use zk_tests::scene::{
    FIRST, SECOND, at_request, granted_now, ops, release, requests_of, session, start_waiting,
};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, RequestRecord};

use crate::{hold, lock};

const MAKE: OpCode = OpCode::CREATE_CONTAINER;
const LIST: OpCode = OpCode::GET_CHILDREN;

/// Returns the requests of a client since the last call, which must have been sent together.
fn flight(world: &World, client: &Client) -> Vec<OpCode> {
    let sent = requests_of(world, session(client));
    assert!(sent.windows(2).all(is_together), "one round trip");
    world.server.clear_requests();
    ops(&sent)
}

fn is_together(pair: &[RequestRecord]) -> bool {
    matches!(pair, [one, next] if one.at == next.at)
}

#[test]
fn an_acquire_and_a_release_are_one_round_trip_each_although_the_directory_comes_and_goes() {
    run(async {
        let world = World::new();
        world.server.admin_create("/locks", b"", None);
        let client = world.client(FIRST).await;
        let lock = lock(&client);
        for _ in 0..3 {
            // The first replies take a while, so a second flight would be sent later.
            let slow = Action::Delay(Duration::from_millis(5));
            world.server.inject(at_request(session(&client), 0, slow.clone()));
            let guard = hold(&lock).await;
            let sent = flight(&world, &client);
            assert_eq!(sent, [MAKE, OpCode::CREATE2, LIST]);
            page::check_round_trips("recipes/named_locks.md", "acquire, free", 1, &sent);
            world.server.inject(at_request(session(&client), 0, slow));
            release(guard).await;
            let sent = flight(&world, &client);
            assert_eq!(sent, [OpCode::DELETE, OpCode::DELETE]);
            page::check_round_trips("recipes/named_locks.md", "release", 1, &sent);
            assert_eq!(world.server.stat(LOCK), None);
        }
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn the_first_use_of_the_root_costs_two_more_round_trips() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let guard = hold(&lock(&client)).await;
        let sent = ops(&requests_of(&world, session(&client)));
        let claim = [MAKE, OpCode::CREATE2, LIST];
        // The path of the root is not below "/locks/", so its create is not counted here.
        assert_eq!(sent, [&claim[..], &[MAKE], &claim].concat(), "\n{}", world.trace());
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

/// The waiter costs what it costs at a fair lock, and the delete of the directory is refused.
#[test]
fn a_hand_off_needs_no_request_and_the_release_finds_the_directory_in_use() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let guard = hold(&lock(&other)).await;
        world.server.clear_requests();
        let waiter = start_waiting(&world, lock(&client).acquire()).await;
        let read = OpCode::GET_DATA;
        let sent = ops(&requests_of(&world, session(&client)));
        assert_eq!(sent, [MAKE, OpCode::CREATE2, LIST, read, read]);
        sleep_ms(1_000).await;
        world.server.clear_requests();
        release(guard).await;
        let next = granted_now(&world, waiter).await;
        assert_eq!(flight(&world, &client), [] as [OpCode; 0]);
        world.server.clear_requests();
        release(next).await;
        let commits = world.server.commits();
        let refused = commits.iter().filter(|commit| commit.error == ErrorCode::NOT_EMPTY);
        assert_eq!(refused.count(), 1, "only while the other waited");
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn a_try_of_a_taken_lock_is_one_read() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let guard = hold(&lock(&other)).await;
        world.server.clear_requests();
        assert!(lock(&client).try_acquire().await.expect("it can be read").is_none());
        assert_eq!(flight(&world, &client), [LIST]);
        release(guard).await;
        world.check_clean(&[&client, &other]).await;
    });
}
