//! Takes of several items: how many they return, who gets which, items that cannot be read, and
//! costs. The cuts are in the exhaustive suite.

use std::future::IntoFuture as _;
use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{Acl, ConfigError, Leased, Permissions, RecipeError, WorkQueue, WorkQueueError};
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND, all_sent_since, spawn};
use zk_tests::work_queue::{
    ENTRIES, Ledger, QUEUE, check_clean, children, put_all, queue, text, world,
};
use zk_tests::world::{World, run, sleep_ms};

async fn take_batch(queue: &WorkQueue, items: usize) -> Vec<Leased> {
    queue.take_batch(items).await.expect("there are items")
}

fn texts(items: &[Leased]) -> Vec<String> {
    items.iter().map(text).collect()
}

async fn ack_all(items: Vec<Leased>) {
    for item in items {
        item.ack().await.expect("the lease is held");
    }
}

#[test]
fn a_batch_has_the_first_items_in_order_and_as_many_as_there_are() {
    run(async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let (queue, others) = (queue(&client), queue(&other));
        put_all(&queue, &["a", "b", "c", "d", "e"]).await;
        queue.put("first").priority(1).await.expect("it can be put");
        let first = take_batch(&queue, 3).await;
        assert_eq!(texts(&first), ["first", "a", "b"]);
        let second = take_batch(&others, 128).await;
        assert_eq!(texts(&second), ["c", "d", "e"]);
        let late = others.take_batch(2).timeout(Duration::from_millis(100)).await;
        assert!(matches!(late, Err(WorkQueueError::Recipe(RecipeError::TimedOut(_)))), "{late:?}");
        drop(second);
        sleep_ms(10).await;
        let second = take_batch(&queue, 2).await;
        assert_eq!(texts(&second), ["c", "d"]);
        ack_all(first.into_iter().chain(second).collect()).await;
        let last = take_batch(&queue, 2).await;
        assert_eq!(texts(&last), ["e"]);
        ack_all(last).await;
        check_clean(&world, &[&client, &other]).await;
        assert!(children(&world, ENTRIES).is_empty());
    });
}

#[test]
fn a_batch_does_not_wait_until_it_is_complete() {
    run(async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let waiting = spawn(queue(&client).take_batch(10).into_future());
        sleep_ms(100).await;
        assert!(!waiting.is_finished(), "the queue is empty");
        queue(&other).put_batch(["a", "b"]).await.expect("they can be put");
        let items = waiting.await.expect("no panic").expect("there are items");
        assert_eq!(texts(&items), ["a", "b"]);
        ack_all(items).await;
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn a_batch_of_none_or_of_too_many_is_refused() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        for items in [0, 129, usize::MAX] {
            let refused = queue(&client).take_batch(items).await.unwrap_err();
            assert!(
                matches!(
                    &refused,
                    WorkQueueError::Recipe(RecipeError::Config(ConfigError::Option { .. }))
                ),
                "{refused}"
            );
        }
        check_clean(&world, &[&client]).await;
    });
}

/// The page of the recipe has these figures.
#[test]
fn the_items_of_a_batch_share_the_turn_and_the_list() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        let queue = queue(&client);
        put_all(&queue, &["a"]).await;
        ack_all(take_batch(&queue, 1).await).await;
        queue.put_batch(vec!["x"; 20]).await.expect("they can be put");
        all_sent_since(&world, &client).await;
        let items = take_batch(&queue, 20).await;
        assert_eq!(items.len(), 20);
        let sent = all_sent_since(&world, &client).await;
        let count = |op| sent.iter().filter(|sent| **sent == op).count();
        // The turn, and a lease for each item.
        assert_eq!((count(OpCode::CREATE2), count(OpCode::DELETE)), (21, 1), "{sent:?}");
        // Each lease and each item.
        assert_eq!(count(OpCode::GET_DATA), 40, "{sent:?}");
        // The takers, the leases with the state of the old list, and the new list.
        assert_eq!(sent.len(), 62 + 4, "{sent:?}");
        ack_all(items).await;
        assert_eq!(all_sent_since(&world, &client).await.len(), 5 * 20);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn consumers_that_take_batches_at_the_same_time_share_the_items() {
    run(async {
        let world = World::new().pace(Pace::of(100));
        let producer = world.client(FIRST).await;
        let ledger = Ledger::default();
        let (mut clients, mut consumers) = (vec![producer.clone()], Vec::new());
        for number in 0..5 {
            let client = world.client(SECOND + number).await;
            let (ledger, world, queue) = (ledger.clone(), world.clone(), queue(&client));
            clients.push(client);
            consumers.push(spawn(async move {
                loop {
                    let items = take_batch(&queue, 7).await;
                    items.iter().for_each(|item| ledger.took(&world, item));
                    sleep_ms(20).await;
                    for item in items {
                        assert!(ledger.ack(&world, item).await, "the lease is held");
                    }
                }
            }));
        }
        let items: Vec<_> = (0..250).map(|number| format!("{number:03}")).collect();
        for items in items.chunks(25) {
            queue(&producer).put_batch(items.to_vec()).await.expect("they can be put");
            sleep_ms(15).await;
        }
        ledger.until_acknowledged(&world, items.len()).await;
        for consumer in consumers {
            assert!(!consumer.is_finished(), "it has panicked");
            consumer.abort();
            let _ = consumer.await;
        }
        let mut acknowledged = ledger.entries().acknowledged.clone();
        acknowledged.sort_unstable();
        assert_eq!(acknowledged, items);
        check_clean(&world, &clients.iter().collect::<Vec<_>>()).await;
    });
}

/// An item that nobody may read is passed over.
#[test]
fn an_item_that_cannot_be_read_is_in_no_batch_and_a_batch_waits_for_others() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        let queue = queue(&client);
        let unreadable = Acl::new(Permissions::DELETE, "world", "anyone");
        let secretive = WorkQueue::builder(&client, QUEUE)
            .and_then(|builder| builder.acl(vec![unreadable]).build())
            .expect("the options are legal");
        put_all(&secretive, &["secret"]).await;
        put_all(&queue, &["a", "b"]).await;
        let items = take_batch(&queue, 3).await;
        assert_eq!(texts(&items), ["a", "b"]);
        ack_all(items).await;
        let waited = queue.take_batch(3).timeout(Duration::from_secs(1)).await.unwrap_err();
        let is_late = matches!(waited, WorkQueueError::Recipe(RecipeError::TimedOut(_)));
        assert!(is_late, "{waited}");
        let blocked = queue.try_take().await.map(|item| item.is_some()).unwrap_err();
        assert!(matches!(blocked, WorkQueueError::Blocked { .. }), "{blocked}");
        check_clean(&world, &[&client]).await;
    });
}
