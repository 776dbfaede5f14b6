//! The requests of a round, counted at the server, as the page of the barrier lists them.

use jute_codec::OpCode;
use zk_tests::scene::{FIRST, SECOND, all_sent_since};
use zk_tests::world::{World, run, sleep_ms};

use crate::{PATH, check_clean, enter, entered, leave, left};

const DELETE: OpCode = OpCode::DELETE;
const LIST: OpCode = OpCode::GET_CHILDREN;
const MULTI: OpCode = OpCode::MULTI;
const READ: OpCode = OpCode::GET_DATA;
const WRITE: OpCode = OpCode::SET_DATA;

#[test]
fn a_round_of_two_costs_what_the_page_says() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        world.server.admin_create("/barriers", b"", None);
        world.server.admin_create(PATH, b"", None);
        world.server.clear_requests();
        let first = enter(&client, 2);
        assert_eq!(all_sent_since(&world, &client).await, [MULTI, READ, LIST]);
        sleep_ms(30_000).await;
        assert_eq!(all_sent_since(&world, &client).await, [], "waiting is free");
        let second = enter(&other, 2);
        let (first, second) = (entered(&world, first).await, entered(&world, second).await);
        let sent = all_sent_since(&world, &client).await;
        // Both see that the round is complete, and both write; one of the writes is refused.
        assert_eq!(sent, [READ, LIST, WRITE, READ, LIST], "\n{}", world.trace());
        // The janitor deletes the znode meanwhile.
        let first = leave(first);
        assert_eq!(all_sent_since(&world, &client).await, [LIST, DELETE, LIST]);
        left(&world, leave(second)).await;
        left(&world, first).await;
        assert_eq!(all_sent_since(&world, &client).await, [LIST]);
        check_clean(&world, &[&client, &other]).await;
    });
}
