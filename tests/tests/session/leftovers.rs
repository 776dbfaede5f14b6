//! What recipes have to remove is removed before a session is handed over, or the hand-over is
//! refused: nobody could delete it later, and it would block others for as long as the session lives.

use std::future::IntoFuture as _;
use std::time::Duration;

use zk_recipes::{Client, DoubleBarrier, Group, Presence, SharedValue, WorkQueue};
use zk_session::{ErrorCode, HandOverError, SessionState};
use zk_tests::case::{Case, LOCK};
use zk_tests::for_each_lock;
use zk_tests::scene::{hold, spawn};
use zk_tests::world::{SESSION_TIMEOUT, World, run, sleep_ms};
use zk_testserver::{Action, Reception};

use crate::at_op;
use jute_codec::OpCode;

for_each_lock! {
    #[test] locks: [
        a_dropped_guard_blocks_nobody_after_a_hand_over,
        a_cancelled_acquire_blocks_nobody_after_a_hand_over,
        a_hand_over_names_a_lock_that_is_held_or_waited_for,
        a_removal_that_is_refused_prevents_a_hand_over_until_it_succeeds,
        a_create_that_takes_effect_after_the_removal_blocks_nobody_after_a_hand_over,
        a_sweep_that_cannot_be_made_prevents_a_hand_over,
    ]
}

/// Hands the session over, continues it, and checks that another client gets the lock.
async fn is_free_after_a_hand_over<C: Case>(world: &World, client: &Client) {
    let ticket = client.hand_over().await.expect("nothing is left to do");
    let heir = world.client_with(5, |builder| builder.resume(ticket)).await;
    let other = world.client(6).await;
    let guard = C::of(&other).acquire().timeout(SESSION_TIMEOUT * 10).await;
    guard.expect("no znode of the session is in the way").release().await.expect("it is held");
    assert_eq!(heir.state(), SessionState::Connected);
}

/// Fails unless the hand-over is refused because of this path, after at most a session timeout, and
/// the client goes on.
async fn is_refused_for(client: &Client, path: &str) {
    let begun = client.now();
    let refused = client.hand_over().await;
    let within = SESSION_TIMEOUT;
    assert_eq!(refused, Err(HandOverError::Unfinished { within, paths: vec![path.to_owned()] }));
    assert!(client.now().saturating_since(begun) <= within, "it waits for a bounded time");
    assert_eq!(client.state(), SessionState::Connected);
    client.exists("/").await.expect("the client goes on");
}

/// Like [`is_refused_for`], for a path that begins like this one.
async fn is_refused_below(client: &Client, directory: &str) {
    match client.hand_over().await {
        Err(HandOverError::Unfinished { paths, .. }) => {
            assert!(paths.iter().all(|path| path.starts_with(directory)), "{paths:?}");
        }
        other => panic!("{other:?}"),
    }
}

fn a_dropped_guard_blocks_nobody_after_a_hand_over<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        drop(hold(&C::of(&client)).await);
        is_free_after_a_hand_over::<C>(&world, &client).await;
    });
}

fn a_cancelled_acquire_blocks_nobody_after_a_hand_over<C: Case>() {
    // The acquire is dropped at each stage of its first requests, and while it waits.
    for wait_ms in [0, 10, 60, 110, 1000] {
        run(async {
            let world = World::new();
            let (holder, client) = (world.client(2).await, world.client(1).await);
            let held = hold(&C::Rival::of(&holder)).await;
            let acquire = C::of(&client).acquire().into_future();
            let _ = tokio::time::timeout(Duration::from_millis(wait_ms), acquire).await;
            let ticket = client.hand_over().await.expect("nothing is left to do");
            let _heir = world.client_with(5, |builder| builder.resume(ticket)).await;
            held.release().await.expect("it is held");
            let other = world.client(6).await;
            let guard = C::of(&other).acquire().timeout(SESSION_TIMEOUT * 10).await;
            drop(guard.unwrap_or_else(|error| panic!("cancelled after {wait_ms} ms: {error}")));
        });
    }
}

fn a_hand_over_names_a_lock_that_is_held_or_waited_for<C: Case>() {
    run(async {
        let world = World::new();
        let (holder, client) = (world.client(2).await, world.client(1).await);
        let held = hold(&C::Rival::of(&holder)).await;
        let waiting = spawn(C::of(&client).acquire().into_future());
        sleep_ms(1000).await;
        is_refused_for(&client, LOCK).await;
        held.release().await.expect("it is held");
        let guard = waiting.await.expect("it does not panic").expect("its turn has come");
        is_refused_for(&client, LOCK).await;
        guard.release().await.expect("it is held");
        is_free_after_a_hand_over::<C>(&world, &client).await;
    });
}

fn a_removal_that_is_refused_prevents_a_hand_over_until_it_succeeds<C: Case>() {
    // A retry follows after a second, and others after twice the pause before: those that are refused
    // for good are not over in a session timeout.
    for (refusals, waits) in [(1, true), (5, false)] {
        run(async {
            let world = World::new();
            let client = world.client(1).await;
            let guard = hold(&C::of(&client)).await;
            for op in [OpCode::DELETE, OpCode::MULTI].repeat(refusals) {
                world.server.inject(at_op(op, Action::Error(ErrorCode::NO_AUTH)));
            }
            drop(guard);
            if !waits {
                let begun = client.now();
                let refused = client.hand_over().await.expect_err("the znode is still there");
                assert!(matches!(&refused, HandOverError::Unfinished { .. }), "{refused}");
                assert!(client.now().saturating_since(begun) <= SESSION_TIMEOUT, "it ends in time");
                // All retries are over by then.
                sleep_ms(60_000).await;
            }
            is_free_after_a_hand_over::<C>(&world, &client).await;
        });
    }
}

/// Holds a lock whose first create has lost its reply, drops the guard, and returns the znode that
/// was deleted.
async fn drop_a_tainted_guard<C: Case>(world: &World, client: &Client) -> (String, Vec<u8>) {
    // Nobody else has created the directories.
    drop(hold(&C::of(client)).await);
    sleep_ms(1000).await;
    for op in [OpCode::CREATE, OpCode::CREATE2] {
        world.server.inject(at_op(op, Action::CutAfter));
    }
    let guard = hold(&C::of(client)).await;
    let [(path, _)] = &world.server.ephemerals()[..] else { panic!("one znode holds the lock") };
    let data = world.server.data(path).expect("it is there");
    drop(guard);
    sleep_ms(1000).await;
    assert_eq!(world.server.ephemerals(), []);
    (path.clone(), data.to_vec())
}

fn a_create_that_takes_effect_after_the_removal_blocks_nobody_after_a_hand_over<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let (path, data) = drop_a_tainted_guard::<C>(&world, &client).await;
        // The removal of the guard has deleted the empty directory, and somebody needs it again.
        let (directory, _) = path.rsplit_once('/').expect("it is a path");
        for (end, _) in directory.match_indices('/').skip(1).chain([(directory.len(), "")]) {
            if world.server.stat(&directory[..end]).is_none() {
                world.server.admin_create(&directory[..end], b"", None);
            }
        }
        world.server.admin_create(&path, &data, client.session_id());
        is_free_after_a_hand_over::<C>(&world, &client).await;
    });
}

fn a_sweep_that_cannot_be_made_prevents_a_hand_over<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let (path, _) = drop_a_tainted_guard::<C>(&world, &client).await;
        world.server.refuse_for(SESSION_TIMEOUT / 2);
        world.server.disconnect_all();
        sleep_ms(10).await;
        let begun = client.now();
        world.server.set_reception(Reception::Silent);
        match client.hand_over().await {
            Err(HandOverError::Unfinished { paths, .. }) => {
                let [place] = &paths[..] else { panic!("{paths:?}") };
                assert!(path.starts_with(place), "{path} is at or below {place}");
            }
            other => panic!("{other:?}"),
        }
        assert!(
            client.now().saturating_since(begun) <= SESSION_TIMEOUT,
            "it waits for a bounded time"
        );
    });
}

#[test]
fn other_recipes_are_named_too_and_ended_in_time() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let group = Group::new(&client, "/group").expect("the path is valid");
        let membership = group.join("me", "").await.expect("it is new");
        is_refused_for(&client, "/group/me").await;
        membership.leave().await.expect("it is a member");

        let presence = Presence::builder(&client, "/presence").expect("the path is valid");
        let presence = presence.begin("").await.expect("it is new");
        is_refused_for(&client, "/presence").await;
        presence.close().await.expect("it is present");

        let queue = WorkQueue::new(&client, "/queue").expect("the path is valid");
        queue.put("item").await.expect("there is room");
        let leased = queue.take().await.expect("there is an item");
        is_refused_below(&client, "/queue").await;
        leased.ack().await.expect("the lease is held");

        let barrier = DoubleBarrier::new(&client, "/barrier", 1).expect("the path is valid");
        let passage = barrier.enter().await.expect("it is alone");
        is_refused_below(&client, "/barrier").await;
        drop(passage);

        let value = SharedValue::new(&client, "/value").expect("the path is valid");
        value.set("1").await.expect("the value is new");
        client.hand_over().await.expect("all of them have ended");
    });
}

#[test]
fn a_write_that_was_dropped_leaves_no_marker() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let value = SharedValue::new(&client, "/value").expect("the path is valid");
        value.set("1").await.expect("the value is new");
        for wait_ms in [0, 10, 60, 110] {
            let write = value.set("2");
            let _ = tokio::time::timeout(Duration::from_millis(wait_ms), write.into_future()).await;
        }
        let ticket = client.hand_over().await.expect("nothing is left to do");
        assert_eq!(world.server.children("/value"), Some(vec![]));
        drop(ticket);
    });
}
