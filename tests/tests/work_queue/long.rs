//! Queues that are longer than a client can list, and the limits that prevent them.

use zk_recipes::{Acl, Client, Permissions, WorkQueue, WorkQueueError};
use zk_session::RESPONSE_LIMIT_DEFAULT;
use zk_tests::meter::Pace;
use zk_tests::page;
use zk_tests::scene::{FIRST, SECOND, all_sent_since};
use zk_tests::work_queue::{
    ENTRIES, QUEUE, check_clean, children, drain, put_all, queue, take, text,
};
use zk_tests::world::{World, run};
use zk_testserver::{ServerConfig, ServerVersion};

const PAGE: &str = "recipes/work_queue.md";

/// The default limit of a queue.
const ITEMS_MAX: usize = 100_000;

/// Adds items to a queue whose directory exists, as if they had been put.
fn fill(world: &World, items: usize) {
    for number in 0..items {
        world.server.admin_create(&format!("{ENTRIES}/entry-200-{number:010}"), b"x", None);
    }
}

#[test]
fn a_queue_that_a_client_cannot_list_is_reported_with_its_length_and_another_client_drains_it() {
    run(async {
        let world = World::new().pace(Pace::of(200));
        let limited = world.client_with(FIRST, |builder| builder.response_limit(4_096)).await;
        let client = world.client(SECOND).await;
        put_all(&queue(&client), &["a"]).await;
        // Each name has 20 bytes and its length. The list has its length and the header of replies.
        let bytes = |items: usize| 24 * items + 20;
        let most = (4_096 - 20) / 24;
        let default = (RESPONSE_LIMIT_DEFAULT - 20) / 24;
        page::check_text(PAGE, "can list a queue of {} items with its default limit", &[default]);
        page::check_text(PAGE, "at {}, each list is {} kB;", &[10_000, bytes(10_000) / 1_000]);
        fill(&world, most - 1);
        take(&queue(&limited)).await.ack().await.expect("the lease is held");
        fill_one(&world, "entry-201-0000000000");
        fill_one(&world, "entry-201-0000000001");
        let items = most + 1;
        let too_long =
            WorkQueueError::TooLong { directory: QUEUE.into(), items, bytes: bytes(items) };
        let taken = queue(&limited).take().await.map(|item| text(&item));
        assert_eq!(taken, Err(too_long.clone()));
        let taken = queue(&limited).try_take().await.map(|item| item.is_some());
        assert_eq!(taken, Err(too_long.clone()));
        let taken = queue(&limited).take_batch(9).await.map(|items| items.len());
        assert_eq!(taken, Err(too_long));
        assert_eq!(drain(&queue(&client)).await.len(), items);
        check_clean(&world, &[&limited, &client]).await;
    });
}

fn fill_one(world: &World, name: &str) {
    world.server.admin_create(&format!("{ENTRIES}/{name}"), b"x", None);
}

fn limited(client: &Client, items: usize) -> WorkQueue {
    WorkQueue::builder(client, QUEUE)
        .and_then(|builder| builder.limit(items).build())
        .expect("the options are legal")
}

#[test]
fn a_queue_has_a_limit_that_is_lower_than_what_a_client_can_list() {
    run(async {
        let world = World::new().pace(Pace::of(200));
        let (client, consumer) = (world.client(FIRST).await, world.client(SECOND).await);
        put_all(&queue(&client), &["a"]).await;
        fill(&world, ITEMS_MAX - 1);
        let queues = [queue(&client), queue(&client)];
        for queue in &queues {
            let mut puts = 0;
            let full = loop {
                match queue.put("b").await {
                    Ok(()) => puts += 1,
                    Err(full) => break full,
                }
            };
            assert!(puts <= 1_000, "one put in 64 checks the limit: {puts}");
            let length = children(&world, ENTRIES).len();
            let (directory, limit) = (QUEUE.to_owned(), ITEMS_MAX);
            assert_eq!(full, WorkQueueError::Full { directory, length, limit });
            // Each put checks it, until one succeeds.
            for _ in 0..50 {
                queue.put("b").await.expect_err("the queue is full");
            }
        }
        // A consumer with the default options can list the queue.
        take(&queue(&consumer)).await.ack().await.expect("the lease is held");
        // Other limits are possible.
        limited(&client, 2 * ITEMS_MAX).put("b").await.expect("it has a higher limit");
        limited(&client, usize::MAX).put("b").await.expect("it has no limit");
        for name in children(&world, ENTRIES) {
            assert!(world.server.admin_delete(&format!("{ENTRIES}/{name}")));
        }
        put_all(&queues[0], &["c"]).await;
        assert_eq!(drain(&queue(&consumer)).await, ["c"]);
        check_clean(&world, &[&client, &consumer]).await;
    });
}

/// Servers from 3.8.4 and 3.9.2 require READ to tell whether a znode exists.
#[test]
fn a_producer_that_may_not_read_the_number_of_items_puts_them_unless_it_has_set_a_limit() {
    run(async {
        let config = ServerConfig::default().version(ServerVersion::V3_9);
        let world = World::with(config).pace(Pace::of(200));
        let client = world.client(FIRST).await;
        put_all(&queue(&client), &["a"]).await;
        let acl = Permissions(Permissions::ALL.0 & !Permissions::READ.0);
        let acl = vec![Acl::new(acl, "world", "anyone")];
        client.set_acl(ENTRIES, acl, None).await.expect("the list may be changed");
        let queue = queue(&client);
        all_sent_since(&world, &client).await;
        for _ in 0..400 {
            queue.put("b").await.expect("it can be put");
        }
        let sent = all_sent_since(&world, &client).await;
        let reads = sent.iter().filter(|op| **op == jute_codec::OpCode::EXISTS).count();
        assert!((1..=20).contains(&reads), "one put in 64 reads the number: {reads}");
        limited(&client, 1_000).put("b").await.expect_err("the limit cannot be checked");
        client.set_acl(ENTRIES, Acl::open(), None).await.expect("the list may be changed");
        assert_eq!(drain(&queue).await.len(), 401);
        check_clean(&world, &[&client]).await;
    });
}
