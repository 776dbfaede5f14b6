//! The requests of each operation, counted at the server, as the page of the barrier lists them.

use jute_codec::OpCode;
use zk_tests::page;
use zk_tests::scene::{FIRST, all_sent_since, spawn};
use zk_tests::world::{World, run, sleep_ms};

use crate::{barrier, check_clean, close, open};

const DELETE: OpCode = OpCode::DELETE;
const EXISTS: OpCode = OpCode::EXISTS;
const READ: OpCode = OpCode::GET_DATA;
const MULTI: OpCode = OpCode::MULTI;

#[test]
fn each_operation_costs_what_the_page_says() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let barrier = barrier(&client);
        world.server.clear_requests();
        barrier.close().await.expect("it can be closed");
        let first = [MULTI, OpCode::CREATE_CONTAINER, MULTI, DELETE];
        assert_eq!(all_sent_since(&world, &client).await, first, "the directory is missing");
        barrier.close().await.expect("it is closed");
        assert_eq!(all_sent_since(&world, &client).await, [MULTI], "no marker to delete");
        assert_eq!(barrier.is_open().await, Ok(false));
        assert_eq!(all_sent_since(&world, &client).await, [EXISTS]);
        barrier.open().await.expect("it can be opened");
        let sent = all_sent_since(&world, &client).await;
        assert_eq!(sent, [MULTI, DELETE]);
        page::check_requests("recipes/barrier.md", "`close`, `open`", &sent, 1);
        barrier.wait().await.expect("it is open");
        assert_eq!(all_sent_since(&world, &client).await, [READ]);
        if world.server.stat("/barriers").is_none() {
            world.server.admin_create("/barriers", b"", None);
        }
        close(&world);
        let waiting = spawn(IntoFuture::into_future(barrier.wait()));
        assert_eq!(all_sent_since(&world, &client).await, [READ]);
        sleep_ms(50_000).await;
        assert_eq!(all_sent_since(&world, &client).await, [EXISTS], "the watch is checked");
        open(&world);
        assert_eq!(all_sent_since(&world, &client).await, [READ]);
        let row = "| `wait` | {} read, {} every 30 s, and {} when it is opened, of each waiter |";
        page::check_text("recipes/barrier.md", row, &[1, 1, 1]);
        waiting.await.expect("no panic").expect("it is open");
        check_clean(&world, &[&client]).await;
    });
}
