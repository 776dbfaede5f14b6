//! Items: their order, leases, batches, the limit, and options.

use std::future::IntoFuture as _;
use std::time::Duration;

use zk_recipes::{ConfigError, LockState, RecipeError, WorkQueue, WorkQueueError};
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND, spawn};
use zk_tests::work_queue::{
    ENTRIES, LEASES, QUEUE, check_clean, children, drain, put_all, queue, start_taking, take, text,
    world,
};
use zk_tests::world::{World, run, sleep_ms};

#[test]
fn items_of_one_priority_are_taken_in_the_order_of_their_puts() {
    run(async {
        let world = world();
        let (producer, consumer) = (world.client(FIRST).await, world.client(SECOND).await);
        put_all(&queue(&producer), &["a", "b", "c"]).await;
        queue(&producer).put_batch(["d", "e", "f"]).await.expect("it can be put");
        assert_eq!(drain(&queue(&consumer)).await, ["a", "b", "c", "d", "e", "f"]);
        assert_eq!(queue(&producer).length().await, Ok(0));
        check_clean(&world, &[&producer, &consumer]).await;
    });
}

#[test]
fn a_better_priority_is_taken_first_even_if_it_arrives_after_a_list() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        let queue = queue(&client);
        put_all(&queue, &["a", "b", "c"]).await;
        queue.put("last").priority(999).await.expect("it can be put");
        queue.put("sooner").priority(99).await.expect("it can be put");
        let first = take(&queue).await;
        assert_eq!((text(&first).as_str(), first.priority()), ("sooner", 99));
        first.ack().await.expect("the lease is held");
        queue.put("first").priority(0).await.expect("it can be put");
        assert_eq!(drain(&queue).await, ["first", "a", "b", "c", "last"]);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn an_item_that_returns_has_its_old_place() {
    run(async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let queue = queue(&client);
        put_all(&queue, &["a", "b", "c"]).await;
        let (a, b) = (take(&queue).await, take(&queue).await);
        a.give_back().await.expect("the lease can be deleted");
        let a = take(&zk_tests::work_queue::queue(&other)).await;
        assert_eq!(text(&a), "a");
        drop(a);
        drop(b);
        sleep_ms(100).await;
        assert_eq!(drain(&queue).await, ["a", "b", "c"]);
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn a_taker_waits_for_an_item_and_takers_are_served_in_order() {
    run(async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let (queue, others) = (queue(&client), queue(&other));
        let mut takers = Vec::new();
        for queue in [&queue, &others, &queue] {
            takers.push(start_taking(&world, queue).await);
        }
        for (taker, item) in takers.into_iter().zip(["a", "b", "c"]) {
            put_all(&queue, &[item]).await;
            sleep_ms(10).await;
            assert!(taker.is_finished(), "not taken at once\n{}", world.trace());
            let taken = taker.await.expect("no panic").expect("there is an item");
            assert_eq!(text(&taken), item);
            assert_eq!(taken.state(), LockState::Held);
            taken.ack().await.expect("the lease is held");
        }
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn a_taker_that_waits_gets_an_item_that_returns() {
    run(async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        put_all(&queue(&client), &["a"]).await;
        let item = take(&queue(&client)).await;
        let taker = start_taking(&world, &queue(&other)).await;
        assert!(queue(&other).try_take().await.expect("it can be read").is_none());
        drop(item);
        sleep_ms(10).await;
        assert!(taker.is_finished(), "not taken at once\n{}", world.trace());
        let item = taker.await.expect("no panic").expect("there is an item");
        assert_eq!(item.path(), format!("{ENTRIES}/entry-100-0000000000"));
        assert_eq!(children(&world, LEASES), ["entry-100-0000000000"]);
        item.ack().await.expect("the lease is held");
        assert!(children(&world, ENTRIES).is_empty());
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn a_queue_that_is_full_refuses_items_until_one_is_acknowledged() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        let queue = WorkQueue::builder(&client, QUEUE)
            .and_then(|builder| builder.limit(3).build())
            .expect("the options are legal");
        let full = |length| Err(WorkQueueError::Full { directory: QUEUE.into(), length, limit: 3 });
        assert_eq!(queue.put_batch(["a", "b", "c", "d"]).await, full(0));
        put_all(&queue, &["a", "b"]).await;
        assert_eq!(queue.put_batch(["c", "d"]).await, full(2));
        put_all(&queue, &["c"]).await;
        assert_eq!(queue.put("d").await, full(3));
        let item = take(&queue).await;
        assert_eq!(queue.put("d").await, full(3), "a leased item counts");
        item.ack().await.expect("the lease is held");
        put_all(&queue, &["d"]).await;
        assert_eq!(drain(&queue).await, ["b", "c", "d"]);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_timeout_ends_the_wait_and_leaves_nothing() {
    run(async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let head = start_taking(&world, &queue(&other)).await;
        for ms in [0, 300] {
            let taken = queue(&client).take().timeout(Duration::from_millis(ms)).await;
            assert!(matches!(taken, Err(WorkQueueError::Recipe(RecipeError::TimedOut(_)))));
        }
        head.abort();
        let _ = head.await;
        // At the head of the queue of takers.
        let taken = queue(&client).take().timeout(Duration::from_millis(300)).await;
        assert!(matches!(taken, Err(WorkQueueError::Recipe(RecipeError::TimedOut(_)))));
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn many_tries_at_once_get_different_items() {
    run(async {
        let world = World::new().pace(Pace::of(50));
        let client = world.client(FIRST).await;
        let queue = queue(&client);
        let items: Vec<_> = (0..20).map(|number| format!("{number:02}")).collect();
        queue.put_batch(items.clone()).await.expect("it can be put");
        let tries: Vec<_> = (0..25)
            .map(|_| {
                let queue = queue.clone();
                spawn(async move { queue.try_take().await })
            })
            .collect();
        let mut taken = Vec::new();
        for tried in tries {
            taken.extend(tried.await.expect("no panic").expect("it can be read"));
        }
        let mut found: Vec<_> = taken.iter().map(text).collect();
        found.sort_unstable();
        assert_eq!(found, items);
        for item in taken {
            item.ack().await.expect("the lease is held");
        }
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn other_znodes_in_the_directories_are_left_alone() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        let queue = queue(&client);
        put_all(&queue, &["a"]).await;
        for name in ["entry-x", "qn-0000000001", "entry-1-0000000001"] {
            world.server.admin_create(&format!("{ENTRIES}/{name}"), b"", None);
        }
        assert_eq!(drain(&queue).await, ["a"]);
        assert_eq!(children(&world, ENTRIES).len(), 3);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn invalid_options_are_refused_with_their_names() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        let queue = queue(&client);
        let option = |error: &WorkQueueError| {
            let WorkQueueError::Recipe(RecipeError::Config(ConfigError::Option { option, .. })) =
                error
            else {
                panic!("{error}")
            };
            (*option).to_owned()
        };
        let refused = queue.put("a").priority(1_000).await.unwrap_err();
        assert_eq!(option(&refused), "priority of the item");
        let refused = queue.put_batch(vec!["a"; 129]).await.unwrap_err();
        assert_eq!(option(&refused), "items of the batch");
        queue.put_batch(vec!["a"; 0]).await.expect("nothing has to be put");
        let built = |build: fn(zk_recipes::WorkQueueBuilder) -> zk_recipes::WorkQueueBuilder| {
            let builder = WorkQueue::builder(&client, QUEUE).expect("the path is valid");
            build(builder).build().expect_err("it is invalid").to_string()
        };
        assert!(built(|builder| builder.limit(0)).contains("limit of the queue"));
        assert!(built(|builder| builder.lease_for(Duration::ZERO)).contains("lease_for"));
        assert!(built(|builder| builder.acl(vec![])).contains("acl"));
        let interval = Some(Duration::from_millis(9));
        assert!(built_with(&client, interval).contains("watch_check"));
        for path in ["", "jobs", "/", "/a//b"] {
            WorkQueue::new(&client, path).expect_err(path);
        }
        assert!(children(&world, "/").iter().all(|name| name == "zookeeper"));
    });
}

fn built_with(client: &zk_recipes::Client, interval: Option<Duration>) -> String {
    let builder = WorkQueue::builder(client, QUEUE).expect("the path is valid");
    builder.watch_check(interval).build().expect_err("it is too short").to_string()
}

/// The taker at the head of the queue of takers stops polling its future.
#[test]
fn a_taker_that_is_not_polled_delays_the_others_by_the_interval_of_the_check() {
    run(async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let checked = |client| {
            WorkQueue::builder(client, QUEUE)
                .and_then(|builder| builder.watch_check(Some(Duration::from_secs(5))).build())
                .expect("the options are legal")
        };
        let mut stalled = checked(&client).take().into_future();
        let polled = tokio::time::timeout(Duration::from_millis(100), &mut stalled).await;
        assert!(polled.is_err(), "the queue is empty");
        let next = start_taking(&world, &checked(&other)).await;
        put_all(&queue(&client), &["a"]).await;
        sleep_ms(4_000).await;
        assert!(!next.is_finished());
        sleep_ms(3_000).await;
        assert!(next.is_finished(), "the item is stranded\n{}", world.trace());
        let item = next.await.expect("no panic").expect("there is an item");
        item.ack().await.expect("the lease is held");
        drop(stalled);
        check_clean(&world, &[&client, &other]).await;
    });
}
