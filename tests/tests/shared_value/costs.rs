//! The requests of each operation, counted at the server, as the page of the shared value lists
//! them.

use std::time::Duration;

use jute_codec::OpCode;
use zk_tests::page;
use zk_tests::scene::{FIRST, all_sent_since};
use zk_tests::world::{World, run};

use crate::{check_clean, counter, create, value};

const CREATE: OpCode = OpCode::CREATE2;
const DELETE: OpCode = OpCode::DELETE;
const MULTI: OpCode = OpCode::MULTI;
const READ: OpCode = OpCode::GET_DATA;

const PAGE: &str = "recipes/shared_value.md";

#[test]
fn each_operation_costs_what_the_page_says() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        create(&world, "0");
        let (value, counter) = (value(&client), counter(&client));
        world.server.clear_requests();
        let old = value.get().await.expect("it can be read");
        let sent = all_sent_since(&world, &client).await;
        assert_eq!(sent, [READ]);
        page::check_requests(PAGE, "`get`", &sent, 0);
        value.set("1").await.expect("it can be written");
        let sent = all_sent_since(&world, &client).await;
        assert_eq!(sent, [MULTI, DELETE]);
        page::check_requests(PAGE, "`set`", &sent, 1);
        value.compare_and_set(&old, "2").await.expect_err("it has changed");
        assert_eq!(all_sent_since(&world, &client).await, [READ], "nothing is written");
        let old = value.get().await.expect("it can be read");
        assert_eq!(all_sent_since(&world, &client).await, [READ]);
        value.compare_and_set(&old, "1").await.expect("it is the value");
        let sent = all_sent_since(&world, &client).await;
        assert_eq!(sent, [READ, MULTI, DELETE]);
        page::check_requests(PAGE, "`compare_and_set`, `update`, `add`", &sent, 1);
        value.update(|_| "2".into()).await.expect("it can be written");
        assert_eq!(all_sent_since(&world, &client).await, [READ, MULTI, DELETE]);
        assert_eq!(counter.add(1).await, Ok(3));
        assert_eq!(all_sent_since(&world, &client).await, [READ, MULTI, DELETE]);
        counter.compare_and_set(3, 4).await.expect("it is 3");
        assert_eq!(all_sent_since(&world, &client).await, [READ, MULTI, DELETE]);
        counter.compare_and_set(3, 4).await.expect_err("it is 4");
        assert_eq!(all_sent_since(&world, &client).await, [READ]);
        let mut changes = counter.changes();
        assert_eq!(changes.next().await, Ok(Some(4)));
        assert_eq!(all_sent_since(&world, &client).await, [READ]);
        world.server.admin_set_data(crate::PATH, b"5");
        assert_eq!(changes.next().await, Ok(Some(5)));
        let sent = all_sent_since(&world, &client).await;
        assert_eq!(sent, [READ]);
        page::check_requests(PAGE, "a change that a stream reports", &sent, 0);
        let next = tokio::time::timeout(Duration::from_secs(50), changes.next()).await;
        next.expect_err("nothing changes");
        assert_eq!(all_sent_since(&world, &client).await, [OpCode::EXISTS], "the watch is checked");
        drop(changes);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn the_first_use_creates_the_znode_and_its_ancestors() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        world.server.clear_requests();
        value(&client).get().await.expect("it can be created");
        let container = OpCode::CREATE_CONTAINER;
        let sent = all_sent_since(&world, &client).await;
        assert_eq!(sent, [READ, CREATE, container, CREATE, READ]);
        check_clean(&world, &[&client]).await;
    });
}
