//! The requests of a round, counted at the server, as the page of the barrier lists them.

use jute_codec::OpCode;
use zk_tests::meter::Pace;
use zk_tests::page;
use zk_tests::scene::{FIRST, SECOND, all_sent_since, session};
use zk_tests::world::{World, run, sleep_ms};

use crate::{PATH, check_clean, enter, entered, leave, left};

const DELETE: OpCode = OpCode::DELETE;
const EXISTS: OpCode = OpCode::EXISTS;
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
        sleep_ms(20).await;
        // The one with the lower name writes; the other one watches it.
        let requests = world.server.requests();
        let of = |client| {
            let own = session(client);
            let sent = requests.iter().filter(|request| request.session == own);
            sent.map(|request| request.op).filter(|op| *op != OpCode::PING).collect::<Vec<_>>()
        };
        let (mut behind, mut ahead) = (of(&other), of(&client));
        if behind.contains(&WRITE) {
            (behind, ahead) = (ahead, behind);
        }
        let ahead: Vec<_> = ahead.into_iter().filter(|op| *op != MULTI).collect();
        let behind: Vec<_> = behind.into_iter().filter(|op| *op != MULTI).collect();
        assert!(ahead.ends_with(&[READ, LIST, WRITE, READ, LIST]), "\n{}", world.trace());
        assert!(ahead.len() <= 7 && behind.len() <= 6, "\n{}", world.trace());
        assert!(behind.ends_with(&[EXISTS, EXISTS, READ, LIST]), "\n{}", world.trace());
        world.server.clear_requests();
        // The janitor deletes the znode meanwhile.
        let first = leave(first);
        assert_eq!(all_sent_since(&world, &client).await, [LIST, DELETE, EXISTS]);
        left(&world, leave(second)).await;
        left(&world, first).await;
        assert_eq!(all_sent_since(&world, &client).await, [LIST]);
        check_clean(&world, &[&client, &other]).await;
    });
}

/// All participants arrive at once or one by one, and leave at once or one by one.
#[test]
fn the_requests_of_a_round_do_not_grow_with_the_square() {
    const PARTICIPANTS: usize = 300;
    const CLIENTS: usize = 10;
    /// Lists, reads and tests together, for each participant.
    const TO_ENTER: usize = 8;
    const TO_LEAVE: usize = 9;
    let row = "up to {} *n* lists, reads and tests to enter, {} *n* to leave (*n* = {})";
    page::check_text("recipes/barrier.md", row, &[TO_ENTER, TO_LEAVE, PARTICIPANTS]);
    for pause_ms in [0, 5] {
        run(async {
            let world = World::new().pace(Pace::of(PARTICIPANTS / CLIENTS));
            let mut clients = Vec::new();
            for seed in 0..CLIENTS as u64 {
                clients.push(world.client(FIRST + seed).await);
            }
            let sent =
                |op| world.server.requests().iter().filter(|request| request.op == op).count();
            let mut entering = Vec::new();
            for number in 0..PARTICIPANTS {
                entering.push(enter(&clients[number % CLIENTS], PARTICIPANTS as u32));
                if pause_ms > 0 {
                    sleep_ms(pause_ms).await;
                }
            }
            let mut inside = Vec::new();
            for entering in entering {
                inside.push(entered(&world, entering).await);
            }
            let (lists, reads, writes) = (sent(LIST), sent(READ), sent(WRITE));
            let exists = sent(EXISTS);
            assert!(reads >= PARTICIPANTS, "{reads} reads");
            eprintln!("enter: {lists} lists, {reads} reads, {exists} exists, {writes} writes");
            assert!(lists + reads + exists <= TO_ENTER * PARTICIPANTS);
            assert!(writes <= 2, "{writes} writes");
            world.server.clear_requests();
            let mut leaving = Vec::new();
            for inside in inside {
                leaving.push(leave(inside));
                if pause_ms > 0 {
                    sleep_ms(pause_ms).await;
                }
            }
            for leaving in leaving {
                left(&world, leaving).await;
            }
            let (lists, reads, exists) = (sent(LIST), sent(READ), sent(EXISTS));
            eprintln!("leave: {lists} lists, {reads} reads, {exists} exists");
            // n ln n is 1,711.
            assert!(lists + reads + exists <= TO_LEAVE * PARTICIPANTS);
            check_clean(&world, &clients.iter().collect::<Vec<_>>()).await;
        });
    }
}
