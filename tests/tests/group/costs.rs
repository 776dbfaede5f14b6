//! The requests of each common path, counted at the server, as the page of the group lists them.

use jute_codec::OpCode;
use zk_recipes::Group;
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND, sent_since, session};
use zk_tests::world::{World, run, sleep_ms};

use crate::{GROUP, changes, check_clean, create_directory, group, join};

const CREATE: OpCode = OpCode::CREATE2;
const TEST: OpCode = OpCode::EXISTS;
const LIST: OpCode = OpCode::GET_CHILDREN;
const READ: OpCode = OpCode::GET_DATA;
const WRITE: OpCode = OpCode::SET_DATA;
const BARRIER: OpCode = OpCode::MULTI;

#[test]
fn a_join_is_one_flight_a_change_one_and_a_leave_one_delete() {
    run(async {
        let world = World::new();
        create_directory(&world);
        let client = world.client(FIRST).await;
        world.server.clear_requests();
        let membership = join(&client, "a", "1").await;
        assert_eq!(sent_since(&world, &client), [CREATE, TEST]);
        membership.set_data("2").await.expect("it may be written");
        assert_eq!(sent_since(&world, &client), [WRITE, TEST]);
        // Nothing happens, so nothing is sent.
        sleep_ms(600_000 / 6).await;
        assert!(sent_since(&world, &client).is_empty());
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

#[test]
fn a_watch_costs_what_its_documentation_says() {
    for watches_data in [true, false] {
        run(async {
            let world = World::new();
            create_directory(&world);
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let (a, b) = (join(&other, "a", "1").await, join(&other, "b", "1").await);
            world.server.clear_requests();
            let mut watch = Group::builder(&client, GROUP)
                .and_then(|group| group.watch_data(watches_data).build())
                .expect("the options are legal")
                .watch();
            assert_eq!(changes(&mut watch).await.len(), 2);
            assert_eq!(sent_since(&world, &client), [LIST, READ, READ]);
            sleep_ms(60_000).await;
            assert!(sent_since(&world, &client).is_empty());

            let c = join(&other, "c", "1").await;
            assert_eq!(changes(&mut watch).await.len(), 1);
            let reads = if watches_data { 1 } else { 3 };
            assert_eq!(sent_since(&world, &client), [&[LIST][..], &vec![READ; reads]].concat());

            a.set_data("2").await.expect("it may be written");
            let changed = changes(&mut watch).await.len();
            let expected: &[OpCode] = if watches_data { &[READ] } else { &[] };
            assert_eq!(changed, expected.len());
            assert_eq!(sent_since(&world, &client), expected);

            c.leave().await.expect("it may be deleted");
            assert_eq!(changes(&mut watch).await.len(), if watches_data { 1 } else { 2 });
            let reads = if watches_data { 0 } else { 2 };
            assert_eq!(sent_since(&world, &client), [&[LIST][..], &vec![READ; reads]].concat());

            // A lost connection costs nothing but the restoring of the watches.
            world.server.disconnect_all();
            assert!(changes(&mut watch).await.is_empty());
            let sent = sent_since(&world, &client);
            assert!(sent.iter().all(|op| *op == OpCode::SET_WATCHES), "{sent:?}");

            world.server.expire(session(&client));
            assert!(changes(&mut watch).await.is_empty());
            assert_eq!(sent_since(&world, &client), [BARRIER, LIST, READ, READ]);
            drop((a, b, watch));
            check_clean(&world, &[&client, &other]).await;
        });
    }
}

/// Members that arrive while a read is in flight share the next list.
#[test]
fn a_storm_of_joins_costs_one_list_per_round_trip() {
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
        assert_eq!(sent.iter().filter(|op| **op == READ).count(), 100);
        assert!(sent.iter().filter(|op| **op == LIST).count() <= 2, "{sent:?}");
        world.server.expire(session(&other));
        assert_eq!(changes(&mut watch).await.len(), 100);
        let sent = sent_since(&world, &client);
        assert!(sent.len() <= 2, "{sent:?}");
        drop(watch);
        check_clean(&world, &[&client, &other]).await;
    });
}
