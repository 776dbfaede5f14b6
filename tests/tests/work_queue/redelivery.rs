//! Items that are given back: the takers of the queue that gave them back pass them over for a while.

use std::time::Duration;

use tokio::time::Instant;
use zk_recipes::{Client, Leased, WorkQueue};
use zk_tests::scene::{FIRST, SECOND, at_op, session};
use zk_tests::work_queue::{
    QUEUE, check_clean, drain, put_all, queue, start_taking, take, text, world,
};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

/// The default of the option.
const DELAY: Duration = Duration::from_secs(1);

/// Returns a queue whose items return with the default delay.
fn delaying(client: &Client) -> WorkQueue {
    WorkQueue::builder(client, QUEUE)
        .and_then(|builder| builder.watch_check(None).build())
        .expect("the options are legal")
}

/// The ways in which an item returns.
const WAYS: [&str; 3] = ["give_back", "drop", "ack"];

/// Returns an item in one of these ways.
async fn give_back(world: &World, client: &Client, item: Leased, way: &str) {
    match way {
        "give_back" => item.give_back().await.expect("the lease can be deleted"),
        "drop" => drop(item),
        _ => {
            let no_auth = Action::Error(jute_codec::ErrorCode::NO_AUTH);
            world.server.inject(at_op(session(client), jute_codec::OpCode::MULTI, no_auth));
            item.ack().await.expect_err("the delete was refused");
        }
    }
}

#[test]
fn an_item_that_is_given_back_again_and_again_does_not_delay_the_others() {
    for way in WAYS {
        run(async {
            let world = world();
            let (client, producer) = (world.client(FIRST).await, world.client(SECOND).await);
            let jobs = delaying(&client);
            put_all(&queue(&producer), &["poison", "a", "b", "c"]).await;
            let begun = Instant::now();
            let mut taken = Vec::new();
            while begun.elapsed() < 10 * DELAY {
                let item = take(&jobs).await;
                taken.push(text(&item));
                if text(&item) == "poison" {
                    give_back(&world, &client, item, way).await;
                } else {
                    item.ack().await.expect("the lease is held");
                }
            }
            assert_eq!(taken[..4], ["poison", "a", "b", "c"], "{way}: {taken:?}");
            assert!((8..=12).contains(&(taken.len() - 3)), "{way}: {taken:?}");
            // A dropped item returns in the background.
            sleep_ms(100).await;
            assert_eq!(drain(&queue(&producer)).await, ["poison"]);
            check_clean(&world, &[&client, &producer]).await;
        });
    }
}

#[test]
fn an_item_that_was_given_back_is_taken_again_when_the_delay_is_over() {
    for way in WAYS {
        run(async {
            let world = world();
            let client = world.client(FIRST).await;
            let jobs = delaying(&client);
            put_all(&jobs, &["a"]).await;
            give_back(&world, &client, take(&jobs).await, way).await;
            let begun = Instant::now();
            sleep_ms(100).await;
            let tried = jobs.try_take().await.expect("the queue can be read");
            assert!(tried.is_none(), "{way}");
            let item = take(&jobs).await;
            let waited = begun.elapsed();
            assert!(waited >= DELAY - Duration::from_millis(20), "{way}: {waited:?}");
            assert!(waited <= DELAY + Duration::from_millis(20), "{way}: {waited:?}");
            item.ack().await.expect("the lease is held");
            check_clean(&world, &[&client]).await;
        });
    }
}

/// A taker that waits has looked before the item was given back.
#[test]
fn a_taker_of_the_same_queue_that_waits_passes_it_over_and_another_gets_it_at_once() {
    for way in WAYS {
        run(async {
            let world = world();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let jobs = delaying(&client);
            put_all(&jobs, &["a"]).await;
            let item = take(&jobs).await;
            let waiting = start_taking(&world, &jobs).await;
            give_back(&world, &client, item, way).await;
            sleep_ms(500).await;
            assert!(!waiting.is_finished(), "{way}\n{}", world.trace());
            let item = queue(&other).try_take().await.expect("the queue can be read");
            let item = item.expect("another client gets it at once");
            drop(item);
            sleep_ms(600).await;
            let item = waiting.await.expect("no panic").expect("there is an item");
            item.ack().await.expect("the lease is held");
            check_clean(&world, &[&client, &other]).await;
        });
    }
}

#[test]
fn without_a_delay_an_item_returns_to_its_own_taker_at_once() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        let jobs = queue(&client);
        put_all(&jobs, &["a", "b"]).await;
        for _ in 0..3 {
            let item = take(&jobs).await;
            assert_eq!(text(&item), "a");
            item.give_back().await.expect("the lease can be deleted");
        }
        assert_eq!(drain(&jobs).await, ["a", "b"]);
        check_clean(&world, &[&client]).await;
    });
}
