//! The requests of each common path, counted at the server, as the page of presences lists them.

use jute_codec::OpCode;
use zk_tests::page;
use zk_tests::scene::{FIRST, sent_since, session};
use zk_tests::world::{World, run, sleep_ms};

use crate::{PATH, begin, check_clean, create_parent};

const CREATE: OpCode = OpCode::CREATE2;
const TEST: OpCode = OpCode::EXISTS;

#[test]
fn each_step_is_one_flight_and_idle_hours_cost_a_test_every_30_s() {
    run(async {
        let world = World::new();
        create_parent(&world);
        let client = world.client(FIRST).await;
        world.server.clear_requests();
        let presence = begin(&client, "1").await;
        let begun = sent_since(&world, &client);
        assert_eq!(begun, [CREATE, TEST]);
        presence.set_data("2").await.expect("it may be written");
        let changed = sent_since(&world, &client);
        assert_eq!(changed, [OpCode::SET_DATA, TEST]);
        for sent in [begun, changed] {
            let row = "begin, `set_data`, back again";
            page::check_round_trips("recipes/presence.md", row, 1, &sent);
        }
        sleep_ms(100_000).await;
        let idle = sent_since(&world, &client);
        assert_eq!(idle, [TEST; 3]);
        page::check_text("recipes/presence.md", "| idle | {} test every 30 s |", &[idle.len() / 3]);
        assert!(world.server.admin_delete(PATH));
        sleep_ms(1_000).await;
        assert_eq!(sent_since(&world, &client), [CREATE, TEST], "after a deletion");
        world.server.expire(session(&client));
        sleep_ms(2_000).await;
        assert_eq!(sent_since(&world, &client), [CREATE, TEST], "in a new session");
        presence.close().await.expect("it may be deleted");
        assert_eq!(sent_since(&world, &client), [OpCode::DELETE]);
        check_clean(&world, &[&client]).await;
    });
}
