//! The requests of each common path, counted at the server, as the page of the group lists them.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{Client, GroupChange};
use zk_tests::meter::Pace;
use zk_tests::page;
use zk_tests::scene::{FIRST, SECOND, sent_since, session};
use zk_tests::world::{World, run, sleep_ms};

use crate::{
    changes, check_clean, create_directory, group, join, refuse_persistent_watches, watch,
};

/// How long requests and replies of a client that is far away take.
const DELAY: Duration = Duration::from_millis(1);

const CREATE: OpCode = OpCode::CREATE2;
const TEST: OpCode = OpCode::EXISTS;
const LIST: OpCode = OpCode::GET_CHILDREN;
const READ: OpCode = OpCode::GET_DATA;
const WRITE: OpCode = OpCode::SET_DATA;
const BARRIER: OpCode = OpCode::MULTI;
const WATCH: OpCode = OpCode::ADD_WATCH;

#[test]
fn a_join_is_one_flight_a_change_one_and_a_leave_one_delete() {
    run(async {
        let world = World::new();
        create_directory(&world);
        let client = world.client(FIRST).await;
        world.server.clear_requests();
        let membership = join(&client, "a", "1").await;
        let sent = sent_since(&world, &client);
        assert_eq!(sent, [CREATE, TEST]);
        page::check_round_trips("recipes/group.md", "join", 1, &sent);
        membership.set_data("2").await.expect("it may be written");
        assert_eq!(sent_since(&world, &client), [WRITE, TEST]);
        // Nothing happens, so it only tests its znode.
        sleep_ms(100_000).await;
        let idle = sent_since(&world, &client);
        assert_eq!(idle, [TEST; 3]);
        page::check_text("recipes/group.md", "member or watch | {} test every", &[idle.len() / 3]);
        membership.leave().await.expect("it may be deleted");
        assert_eq!(sent_since(&world, &client), [OpCode::DELETE]);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_rejoin_in_a_new_session_is_one_flight() {
    run(async {
        let world = World::new();
        create_directory(&world);
        let client = world.client(FIRST).await;
        let membership = join(&client, "a", "1").await;
        world.server.expire(session(&client));
        sleep_ms(2_000).await;
        assert_eq!(sent_since(&world, &client), [CREATE, TEST]);
        drop(membership);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_look_at_the_members_is_a_list_and_their_reads() {
    run(async {
        let world = World::new();
        create_directory(&world);
        let client = world.client(FIRST).await;
        let members = [join(&client, "a", "1").await, join(&client, "b", "1").await];
        world.server.clear_requests();
        assert_eq!(group(&client).members().await.map(|members| members.len()), Ok(2));
        assert_eq!(sent_since(&world, &client), [LIST, READ, READ]);
        drop(members);
        check_clean(&world, &[&client]).await;
    });
}

/// What a watch has sent, but for the stats of lists and for the checks, which this test runs long
/// enough to see.
fn counted(world: &World, client: &Client) -> Vec<OpCode> {
    sent_since(world, client).into_iter().filter(|op| *op != TEST).collect()
}

#[test]
fn a_watch_costs_what_its_documentation_says() {
    for (is_old, watches_data) in [(false, true), (false, false), (true, true), (true, false)] {
        run(async {
            let world = World::new();
            create_directory(&world);
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let (a, b) = (join(&other, "a", "1").await, join(&other, "b", "1").await);
            if is_old {
                refuse_persistent_watches(&world.server, 10);
            }
            world.server.clear_requests();
            let mut watch = watch(&client, watches_data);
            assert_eq!(changes(&mut watch).await.len(), 2);
            assert_eq!(counted(&world, &client), [WATCH, LIST, READ, READ]);
            sleep_ms(60_000).await;
            assert!(counted(&world, &client).is_empty());

            // What a join or a leave costs on an old server: a list, and all reads if the members
            // have no watches.
            let listed = |reads| [&[LIST][..], &vec![READ; reads]].concat();
            let c = join(&other, "c", "1").await;
            assert_eq!(changes(&mut watch).await, ["joined c 1"]);
            let all = if watches_data { 1 } else { 3 };
            let joined = if is_old { listed(all) } else { vec![READ] };
            assert_eq!(counted(&world, &client), joined);

            a.set_data("2").await.expect("it may be written");
            let changed = changes(&mut watch).await.len();
            let expected: &[OpCode] = if watches_data { &[READ] } else { &[] };
            assert_eq!(changed, expected.len());
            assert_eq!(counted(&world, &client), expected);

            c.leave().await.expect("it may be deleted");
            // Without data watches, the new data of the other member are read too.
            assert_eq!(changes(&mut watch).await.len(), if watches_data { 1 } else { 2 });
            let left = match (is_old, watches_data) {
                (false, true) => vec![],
                (false, false) => vec![READ; 2],
                (true, true) => listed(0),
                (true, false) => listed(2),
            };
            assert_eq!(counted(&world, &client), left);
            if !is_old && watches_data {
                let row = "| a member joins or changes its data | {} read of each watch; {} if it leaves |";
                page::check_text("recipes/group.md", row, &[joined.len(), left.len()]);
                page::check_text("recipes/group.md", row, &[expected.len(), left.len()]);
            }

            // After a lost connection, the members whose data are watched are not read.
            world.server.disconnect_all();
            assert!(changes(&mut watch).await.is_empty());
            let mut sent = counted(&world, &client);
            // The barrier makes the server catch up with the last event.
            sent.retain(|op| !is_restoring(*op) && *op != BARRIER);
            let again = match (is_old, watches_data) {
                (false, true) => listed(0),
                (false, false) => listed(2),
                (true, _) => vec![],
            };
            assert_eq!(sent, again);

            world.server.expire(session(&client));
            assert!(changes(&mut watch).await.is_empty());
            let mut sent = counted(&world, &client);
            sent.retain(|op| !is_restoring(*op));
            // The watch and the barrier are on their way at the same time.
            assert!(sent.contains(&WATCH) && sent.contains(&BARRIER), "{sent:?}");
            sent.retain(|op| !matches!(*op, WATCH | BARRIER));
            assert_eq!(sent, [LIST, READ, READ]);
            drop((a, b, watch));
            check_clean(&world, &[&client, &other]).await;
        });
    }
}

#[test]
fn a_watch_starts_within_three_round_trips() {
    run(async {
        let world = World::new();
        create_directory(&world);
        let (near, far) = (world.client(SECOND).await, world.far_client(FIRST, DELAY).await);
        let members = [join(&near, "a", "1").await, join(&near, "b", "1").await];
        let begun = far.now();
        let mut watch = watch(&far, true);
        for _ in &members {
            watch.next().await.expect("it may be read");
        }
        let round_trips = far.now().saturating_since(begun).as_millis() / (2 * DELAY).as_millis();
        let row = "| start of a watch, *n* members | {} round trips and *n* reads |";
        page::check_text("recipes/group.md", row, &[round_trips as usize]);
        drop((members, watch));
        check_clean(&world, &[&near, &far]).await;
    });
}

/// Returns whether the client sends this request by itself after a reconnect.
fn is_restoring(op: OpCode) -> bool {
    matches!(op, OpCode::SET_WATCHES | OpCode::SET_WATCHES2)
}

/// The requests of an observer do not depend on the number of members: a join is a read, and a leave
/// is nothing. Before, each of both was a list of all members.
#[test]
fn a_change_in_a_group_of_two_thousand_costs_each_observer_at_most_one_read() {
    const OBSERVERS: u64 = 5;
    const MEMBERS: usize = 2_000;
    run(async {
        let world = World::new().pace(Pace::of(10_000));
        create_directory(&world);
        let other = world.client(SECOND).await;
        let id = |number: usize| crate::path(&format!("host-{number:04}.example.com:8080"));
        let join = |number| world.server.admin_create(&id(number), b"x", Some(session(&other)));
        (0..MEMBERS).for_each(join);
        let mut observers = Vec::new();
        for seed in 0..OBSERVERS {
            let client = world.client(10 + seed).await;
            let mut watch = group(&client).watch();
            assert_eq!(changes(&mut watch).await.len(), MEMBERS);
            observers.push((client, watch));
        }
        world.server.clear_requests();
        let before = world.traffic();
        for number in 0..50 {
            assert!(world.server.admin_delete(&id(number)));
            join(MEMBERS + number);
            for (_, watch) in &mut observers {
                for _ in 0..2 {
                    let change = watch.next().await.expect("it may be read");
                    assert!(matches!(change, GroupChange::Joined(_) | GroupChange::Left(_)));
                }
            }
        }
        let bytes = world.traffic().since(before).bytes();
        for (_, watch) in &mut observers {
            assert!(changes(watch).await.is_empty());
        }
        let mut sent = world.server.requests();
        sent.retain(|request| request.op != OpCode::PING);
        for (client, _) in &observers {
            let sent = sent.iter().filter(|request| request.session == session(client));
            assert_eq!(sent.map(|request| request.op).collect::<Vec<_>>(), [READ; 50]);
        }
        // Before: 500 lists of 74 kB.
        assert!(bytes < 200_000, "{bytes} bytes");
        drop(observers);
        world.server.expire(session(&other));
        check_clean(&world, &[&other]).await;
    });
}

/// Members that arrive together are read together, and their end costs nothing.
#[test]
fn a_storm_of_joins_costs_their_reads_and_a_storm_of_leaves_nothing() {
    run(async {
        let world = World::new().pace(Pace::of(200));
        create_directory(&world);
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let mut watch = group(&client).watch();
        assert!(changes(&mut watch).await.is_empty());
        world.server.clear_requests();
        for number in 0..100 {
            let path = crate::path(&format!("m{number:03}"));
            world.server.admin_create(&path, b"x", Some(session(&other)));
        }
        assert_eq!(changes(&mut watch).await.len(), 100);
        let sent = sent_since(&world, &client);
        assert_eq!(sent, vec![READ; 100]);
        world.server.expire(session(&other));
        assert_eq!(changes(&mut watch).await.len(), 100);
        assert!(sent_since(&world, &client).is_empty());
        drop(watch);
        check_clean(&world, &[&client, &other]).await;
    });
}
