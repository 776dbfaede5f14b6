//! Names that return: servers remove the directory of the items once it is empty, and the items of
//! the next one are numbered from 0 again. A write that means one item must never hit another.

use std::cell::Cell;
use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{LostReason, SessionId, WorkQueueError};
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND, at_op, poll_times, session, settle, spawn};
use zk_tests::work_queue::{
    ENTRIES, LEASES, check_clean, children, drain, put_all, queue, take, world,
};
use zk_tests::world::{Enumeration, World, run, session_of_first, sleep_ms};
use zk_testserver::{Action, At, Fault, ServerConfig};

/// The client whose connections are cut.
const CUT: u64 = 1;
const OTHER: u64 = 2;

fn cut_session() -> Option<SessionId> {
    Some(session_of_first(CUT))
}

/// Creates a world whose servers remove empty directories at once.
fn reaping() -> World {
    let config = ServerConfig::default().reap_interval(Duration::from_millis(10));
    World::with(config).pace(Pace::of(8))
}

/// As soon as the item is gone, its directory goes too, and the next item gets its name while the
/// acknowledgement is still being repeated.
#[test]
fn an_ack_that_is_repeated_never_deletes_the_next_item_of_that_name() {
    let mut enumeration = Enumeration::new("acknowledge, names return", cut_session());
    let same_names = Cell::new(0);
    enumeration.run(&|faults| {
        run(async {
            let world = reaping();
            let (client, other) = (world.client(CUT).await, world.client(OTHER).await);
            put_all(&queue(&other), &["a"]).await;
            let item = take(&queue(&client)).await;
            let path = item.path().to_owned();
            sleep_ms(10).await;
            world.inject(faults);
            let next = {
                let (world, queue) = (world.clone(), queue(&other));
                spawn(async move {
                    world.until("the directory is gone", |now| now.stat(ENTRIES).is_none()).await;
                    put_all(&queue, &["b"]).await;
                })
            };
            item.ack().await.expect("the lease is held");
            next.await.expect("no panic");
            same_names.set(same_names.get() + usize::from(world.server.stat(&path).is_some()));
            // The lease of the first item is removed in the background.
            sleep_ms(1_000).await;
            assert_eq!(drain(&queue(&other)).await, ["b"], "\n{}", world.trace());
            check_clean(&world, &[&client, &other]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(20, 100), "{enumeration:?}");
    assert!(same_names.get() > 100, "names do not return: {same_names:?}");
}

/// The reply to the create of a lease is lost, and the item goes before its taker reads it. Leases of
/// others have greater tokens by the time the next item has that name.
#[test]
fn a_lease_that_is_older_than_its_item_does_not_count() {
    let mut interrupted = 0;
    for nth in 0..6 {
        run(async {
            let world = reaping();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            put_all(&queue(&other), &["a"]).await;
            let at_lease = At::request(nth).of_session(session(&client)).below(LEASES);
            let fault = Fault::new(at_lease, Action::CutAfter);
            world.server.inject(fault.refuse_for(Duration::from_millis(300)));
            let taking = {
                let queue = queue(&client);
                spawn(async move { take(&queue).await })
            };
            settle().await;
            if !taking.is_finished() && !children(&world, LEASES).is_empty() {
                interrupted += 1;
                assert!(world.server.admin_delete(&format!("{ENTRIES}/entry-100-0000000000")));
                world.until("the directory is gone", |now| now.stat(ENTRIES).is_none()).await;
                put_all(&queue(&other), &["b"]).await;
            }
            let item = taking.await.expect("no panic");
            let created = world.server.stat(item.path()).expect("it is leased").czxid;
            let token = item.fencing_token().get();
            assert!(token > created.0, "{token}, {created:?}\n{}", world.trace());
            item.ack().await.expect("the lease is held");
            check_clean(&world, &[&client, &other]).await;
        });
    }
    assert!(interrupted > 0, "no lease was created before its reply was lost");
}

/// Somebody deletes the item by hand while it is leased.
#[test]
fn a_first_ack_never_deletes_the_next_item_of_that_name() {
    run(async {
        let world = reaping();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        put_all(&queue(&other), &["a"]).await;
        let item = take(&queue(&client)).await;
        let path = item.path().to_owned();
        assert!(world.server.admin_delete(&path));
        sleep_ms(100).await;
        assert!(world.server.stat(ENTRIES).is_none(), "it is an empty container");
        put_all(&queue(&other), &["b"]).await;
        assert!(world.server.stat(&path).is_some(), "the name returns");
        assert_eq!(item.ack().await, Err(WorkQueueError::ItemGone { item: path }));
        sleep_ms(100).await;
        assert_eq!(drain(&queue(&other)).await, ["b"]);
        check_clean(&world, &[&client, &other]).await;
    });
}

/// Somebody deletes the lease by hand when the first taker has pinned the item, and that one is not
/// notified before its multi is executed.
#[test]
fn an_ack_never_deletes_the_item_of_the_next_taker() {
    run(async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        put_all(&queue(&client), &["a"]).await;
        let first = take(&queue(&client)).await;
        let (path, lease) = (first.path().to_owned(), first.path().replace(ENTRIES, LEASES));
        let late = Action::Delay(Duration::from_millis(50));
        world.server.inject(at_op(session(&client), OpCode::EXISTS, late));
        let acked = spawn(first.ack().into_future());
        world.until("the item is pinned", |_| !children(&world, &path).is_empty()).await;
        assert!(world.server.admin_delete(&lease));
        let second = take(&queue(&other)).await;
        assert!(children(&world, &path).is_empty(), "{}", world.trace());
        let refused = acked.await.expect("no panic");
        assert_eq!(refused, Err(WorkQueueError::LeaseLost(LostReason::ZnodeDeleted)));
        second.ack().await.expect("the lease is held");
        check_clean(&world, &[&client, &other]).await;
    });
}

/// The multi of the first taker is executed right before the next one would delete its pin.
#[test]
fn a_taker_does_not_get_an_item_whose_ack_was_faster() {
    run(async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        put_all(&queue(&client), &["a"]).await;
        let first = take(&queue(&client)).await;
        let (path, lease) = (first.path().to_owned(), first.path().replace(ENTRIES, LEASES));
        let late = |ms| Action::Delay(Duration::from_millis(ms));
        world.server.inject(at_op(session(&client), OpCode::EXISTS, late(50)));
        let listed = At::op(OpCode::GET_CHILDREN).of_session(session(&other)).below(&path);
        world.server.inject(Fault::new(listed, late(100)));
        let acked = spawn(first.ack().into_future());
        world.until("the item is pinned", |_| !children(&world, &path).is_empty()).await;
        assert!(world.server.admin_delete(&lease));
        let taking = {
            let queue = queue(&other);
            spawn(async move { take(&queue).await })
        };
        acked.await.expect("no panic").expect("no other taker had the item");
        assert!(world.server.stat(&path).is_none());
        put_all(&queue(&client), &["b"]).await;
        let second = taking.await.expect("no panic");
        assert_eq!(second.data(), "b");
        second.ack().await.expect("the lease is held");
        check_clean(&world, &[&client, &other]).await;
    });
}

/// Somebody deletes all znodes of an acknowledgement by hand whose multi may have been applied.
#[test]
fn an_ack_without_its_lease_does_not_know_who_has_deleted_its_item() {
    for action in [Action::CutBefore, Action::CutAfter] {
        run(async {
            let world = world();
            let client = world.client(FIRST).await;
            put_all(&queue(&client), &["a"]).await;
            let item = take(&queue(&client)).await;
            let path = item.path().to_owned();
            let fault = at_op(session(&client), OpCode::MULTI, action.clone());
            world.server.inject(fault.refuse_for(Duration::from_millis(300)));
            let acked = spawn(item.ack().into_future());
            settle().await;
            assert!(!acked.is_finished());
            world.server.admin_delete(&path.replace(ENTRIES, LEASES));
            for pin in children(&world, &path) {
                assert!(world.server.admin_delete(&format!("{path}/{pin}")));
            }
            world.server.admin_delete(&path);
            let refused = acked.await.expect("no panic");
            assert_eq!(refused, Err(WorkQueueError::Unknown { item: path }), "{action:?}");
            check_clean(&world, &[&client]).await;
        });
    }
}

/// Neither taker has been notified.
#[test]
fn an_ack_never_takes_the_lease_of_the_next_taker_for_its_own() {
    run(async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        put_all(&queue(&client), &["a"]).await;
        let first = take(&queue(&client)).await;
        assert!(world.server.admin_delete(&first.path().replace(ENTRIES, LEASES)));
        // The first taker is not notified, because its connection is silent.
        world.server.pause_connection(session(&client), Duration::from_millis(50));
        let second = take(&queue(&other)).await;
        let refused = first.ack().await;
        assert_eq!(refused, Err(WorkQueueError::LeaseLost(LostReason::ZnodeDeleted)));
        second.ack().await.expect("the lease is held");
        check_clean(&world, &[&client, &other]).await;
    });
}

/// The multi of an acknowledgement is lost with its connection. Until the client is back, its lease is
/// gone, and another taker has one.
#[test]
fn an_ack_that_is_repeated_never_takes_the_lease_of_the_next_taker_for_its_own() {
    run(async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        put_all(&queue(&client), &["a"]).await;
        let first = take(&queue(&client)).await;
        let lease = first.path().replace(ENTRIES, LEASES);
        let fault = at_op(session(&client), OpCode::MULTI, Action::CutBefore);
        world.server.inject(fault.refuse_for(Duration::from_millis(300)));
        let ack = spawn(first.ack());
        settle().await;
        assert!(!ack.is_finished() && world.server.pending_faults().is_empty());
        assert!(world.server.admin_delete(&lease));
        let second = take(&queue(&other)).await;
        let acked = ack.await.expect("no panic");
        assert_eq!(acked, Err(WorkQueueError::LeaseLost(LostReason::ZnodeDeleted)));
        second.ack().await.expect("the lease is held");
        check_clean(&world, &[&client, &other]).await;
    });
}

/// A lease outlives its item when the acknowledgement was applied and its client is gone. It keeps
/// the next item of that name from others until its session ends, but does not give it to anybody.
#[test]
fn a_lease_of_an_item_that_is_gone_delays_the_next_one_until_its_session_ends() {
    run(async {
        let world = reaping();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        put_all(&queue(&other), &["a"]).await;
        let item = take(&queue(&client)).await;
        let session = session(&client);
        assert!(world.server.admin_delete(item.path()));
        sleep_ms(100).await;
        put_all(&queue(&other), &["b"]).await;
        assert!(queue(&other).try_take().await.expect("it can be read").is_none());
        world.server.expire(session);
        sleep_ms(100).await;
        assert_eq!(drain(&queue(&other)).await, ["b"]);
        item.ack().await.expect_err("the item is gone");
        check_clean(&world, &[&client, &other]).await;
    });
}

/// Every znode that a list of names remembers may be another one by now.
#[test]
fn a_list_of_a_directory_that_was_removed_is_not_used() {
    run(async {
        let world = reaping();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let consumer = queue(&client);
        let items = ["a", "b", "c"];
        put_all(&queue(&other), &items).await;
        // The consumer keeps the list.
        take(&consumer).await.ack().await.expect("the lease is held");
        assert_eq!(drain(&queue(&other)).await, ["b", "c"]);
        world.until("the directory is gone", |now| now.stat(ENTRIES).is_none()).await;
        put_all(&queue(&other), &["d", "e"]).await;
        queue(&other).put("f").priority(1).await.expect("it can be put");
        assert_eq!(drain(&consumer).await, ["f", "d", "e"]);
        check_clean(&world, &[&client, &other]).await;
    });
}

/// The caller drops an acknowledgement at every poll. Others can acknowledge the item.
#[test]
fn an_ack_that_is_dropped_at_any_poll_leaves_no_pin() {
    let mut ended = 0;
    for polls in 0..60 {
        run(async {
            let world = reaping();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            put_all(&queue(&other), &["a", "b"]).await;
            let item = take(&queue(&client)).await;
            let path = item.path().to_owned();
            let polled = poll_times(item.ack(), polls, || {}).await;
            ended += usize::from(polled.is_some());
            sleep_ms(1_000).await;
            assert!(children(&world, &path).is_empty(), "{polls} polls\n{}", world.trace());
            let left = drain(&queue(&other)).await;
            assert_eq!(left.last().map(String::as_str), Some("b"), "{polls} polls");
            check_clean(&world, &[&client, &other]).await;
        });
    }
    assert!((1..60).contains(&ended), "{ended}");
}

/// Somebody has created a znode below an item.
#[test]
fn an_item_with_a_child_is_refused_clearly_and_can_be_acknowledged_without_it() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        put_all(&queue(&client), &["a", "b"]).await;
        let item = take(&queue(&client)).await;
        let path = item.path().to_owned();
        world.server.admin_create(&format!("{path}/child"), b"", None);
        let refused = item.ack().await;
        assert_eq!(refused, Err(WorkQueueError::HasChildren { item: path.clone() }));
        settle().await;
        assert_eq!(children(&world, &path), ["child"], "the pin is gone");
        assert!(world.server.admin_delete(&format!("{path}/child")));
        assert_eq!(drain(&queue(&client)).await, ["a", "b"]);
        check_clean(&world, &[&client]).await;
    });
}

/// The counter of the directory stays at its end, so the last number is appended again and again.
#[test]
fn the_end_of_the_sequence_numbers_is_reported_and_ends_with_the_directory() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        let queue = queue(&client);
        put_all(&queue, &["a"]).await;
        world.server.set_create_count(ENTRIES, i32::MAX - 1);
        put_all(&queue, &["b"]).await;
        let exhausted = || Err(WorkQueueError::QueueExhausted { directory: ENTRIES.into() });
        assert_eq!(queue.put_batch(["c", "d"]).await, exhausted());
        put_all(&queue, &["c"]).await;
        for _ in 0..3 {
            assert_eq!(queue.put("d").await, exhausted());
        }
        assert_eq!(drain(&queue).await, ["a", "b", "c"]);
        world.server.reap();
        sleep_ms(100).await;
        world.server.reap();
        assert!(world.server.stat(ENTRIES).is_none(), "it is an empty container");
        put_all(&queue, &["e", "f"]).await;
        assert_eq!(drain(&queue).await, ["e", "f"]);
        check_clean(&world, &[&client]).await;
    });
}
