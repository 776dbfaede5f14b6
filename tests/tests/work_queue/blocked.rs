//! Items that cannot be delivered: they keep nobody from the items behind them, they are reported,
//! they cost few requests, and they are delivered once that is possible.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{
    Acl, BlockReason, BlockedItem, Client, ErrorCode, Permissions, RecipeError, WorkQueue,
    WorkQueueError,
};
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND, at_op, session};
use zk_tests::work_queue::{
    ENTRIES, check_clean, children, drain, put_all, queue, start_taking, take, text, world,
};
use zk_tests::world::{World, run, run_within, sleep_ms};
use zk_testserver::{Action, At, Fault};

const THROTTLED: ErrorCode = ErrorCode::THROTTLED_OP;

/// The paths of the items, in their order.
fn items(world: &World) -> Vec<String> {
    let mut names = children(world, ENTRIES);
    names.sort_unstable();
    names.into_iter().map(|name| format!("{ENTRIES}/{name}")).collect()
}

async fn allow(client: &Client, path: &str, permissions: Permissions) {
    let acl = vec![Acl::new(permissions, "world", "anyone")];
    client.set_acl(path, acl, None).await.expect("the list may be changed");
}

async fn hide(client: &Client, path: &str) {
    allow(client, path, Permissions(Permissions::ALL.0 & !Permissions::READ.0)).await;
}

async fn show(client: &Client, path: &str) {
    allow(client, path, Permissions::ALL).await;
}

fn blocked(queue: &WorkQueue) -> Vec<(String, BlockReason)> {
    let pair = |BlockedItem { path, reason, .. }| (path, reason);
    queue.blocked().into_iter().map(pair).collect()
}

/// Takes an item in one of several ways.
async fn take_by(way: usize, queue: &WorkQueue) -> String {
    let item = match way {
        0 => take(queue).await,
        1 => queue.try_take().await.expect("there is an item").expect("there is an item"),
        _ => queue.take_batch(1).await.expect("there is an item").pop().expect("one"),
    };
    let data = text(&item);
    item.ack().await.expect("the lease is held");
    data
}

/// The delete of the lease takes a moment, so the next list shows the lease.
#[test]
fn a_taker_does_not_take_its_own_lease_for_that_of_another_one() {
    run(async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        put_all(&queue(&client), &["a"]).await;
        hide(&client, &items(&world)[0]).await;
        world.server.inject(at_op(session(&other), OpCode::DELETE, Action::Error(THROTTLED)));
        let taken = queue(&other).try_take().await;
        assert!(matches!(taken, Err(WorkQueueError::Blocked { .. })), "{taken:?}");
        assert!(world.server.pending_faults().is_empty(), "{}", world.trace());
    });
}

#[test]
fn items_that_may_not_be_read_keep_nobody_from_the_items_behind_them() {
    for way in 0..3 {
        // More than a taker tries with one list.
        for hidden in [1, 3, 9] {
            run(async {
                let world = world();
                let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
                let data: Vec<_> = (0..hidden).map(|number| format!("hidden {number}")).collect();
                queue(&client).put_batch(data.clone()).await.expect("it can be put");
                put_all(&queue(&client), &["a", "b", "c"]).await;
                let paths = items(&world)[..hidden].to_vec();
                for path in &paths {
                    hide(&client, path).await;
                }
                let queue = queue(&other);
                for item in ["a", "b", "c"] {
                    assert_eq!(take_by(way, &queue).await, item, "\n{}", world.trace());
                }
                let reason = BlockReason::NotPermitted;
                let all: Vec<_> = paths.iter().map(|path| (path.clone(), reason)).collect();
                assert_eq!(blocked(&queue), all);
                // That is not an empty queue.
                let item = paths[0].clone();
                let refused = queue.try_take().await.map(|item| item.is_some());
                assert_eq!(refused, Err(WorkQueueError::Blocked { item, reason }));
                let waited = queue.take().timeout(Duration::from_secs(1)).await;
                assert!(matches!(waited, Err(WorkQueueError::Recipe(RecipeError::TimedOut(_)))));
                for path in &paths {
                    show(&client, path).await;
                }
                let mut delivered = Vec::new();
                for _ in &data {
                    delivered.push(text_of_next(&queue).await);
                }
                delivered.sort_unstable();
                assert_eq!(delivered, data);
                assert!(blocked(&queue).is_empty());
                check_clean(&world, &[&client, &other]).await;
            });
        }
    }
}

/// Waits for an item, and acknowledges it.
async fn text_of_next(queue: &WorkQueue) -> String {
    let item = queue.take().timeout(Duration::from_secs(20)).await.expect("it is tried again");
    let data = text(&item);
    item.ack().await.expect("the lease is held");
    data
}

#[test]
fn a_taker_that_waits_beside_an_item_it_may_not_read_gets_the_next_one_at_once() {
    run_within(Duration::from_secs(3_600), async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        put_all(&queue(&client), &["hidden"]).await;
        hide(&client, &items(&world)[0]).await;
        let taker = start_taking(&world, &queue(&other)).await;
        sleep_ms(10 * 60_000).await;
        put_all(&queue(&client), &["a"]).await;
        sleep_ms(10).await;
        assert!(taker.is_finished(), "not taken at once\n{}", world.trace());
        let item = taker.await.expect("no panic").expect("there is an item");
        assert_eq!(text(&item), "a");
        item.ack().await.expect("the lease is held");
        assert!(world.server.admin_delete(&items(&world)[0]));
        check_clean(&world, &[&client, &other]).await;
    });
}

/// A stranger has created a znode below the first item, before or after it was leased.
#[test]
fn an_item_with_a_child_ends_its_ack_and_is_not_delivered_again_before_the_child_is_gone() {
    for is_leased in [false, true] {
        run(async {
            let world = world();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let queues = [queue(&client), queue(&other)];
            put_all(&queues[0], &["with a child", "a", "b"]).await;
            let path = items(&world).remove(0);
            let child = format!("{path}/child");
            if is_leased {
                let item = take(&queues[0]).await;
                world.server.admin_create(&child, b"", None);
                let refused = item.ack().await;
                assert_eq!(refused, Err(WorkQueueError::HasChildren { item: path.clone() }));
            } else {
                world.server.admin_create(&child, b"", None);
            }
            let reason = BlockReason::HasChildren;
            for (queue, data) in queues.iter().zip(["a", "b"]) {
                assert_eq!(take_by(0, queue).await, data, "\n{}", world.trace());
                assert_eq!(blocked(queue), [(path.clone(), reason)]);
            }
            for queue in &queues {
                let refused = queue.try_take().await.map(|item| item.is_some());
                let item = path.clone();
                assert_eq!(refused, Err(WorkQueueError::Blocked { item, reason }));
            }
            assert!(world.server.admin_delete(&child));
            assert_eq!(text_of_next(&queues[0]).await, "with a child");
            check_clean(&world, &[&client, &other]).await;
        });
    }
}

/// The pin of an earlier acknowledgement is no reason to pass over an item.
#[test]
fn an_item_whose_child_is_a_pin_is_delivered() {
    run(async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        put_all(&queue(&client), &["a"]).await;
        let path = items(&world).remove(0);
        let pin = format!("{path}/{:032x}", 1);
        let owner = session(&other);
        world.server.admin_create(&pin, b"", Some(owner));
        let item = take(&queue(&client)).await;
        assert!(world.server.stat(&pin).is_none(), "the next taker deletes it");
        item.ack().await.expect("the lease is held");
        check_clean(&world, &[&client, &other]).await;
    });
}

/// The acknowledgement of an earlier taker deletes the item, with its pin, between the read of the
/// item and the list of its pins.
#[test]
fn an_item_that_is_gone_before_its_pins_are_listed_is_not_delivered() {
    run(async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let queue = queue(&client);
        put_all(&queue, &["a"]).await;
        let path = items(&world).remove(0);
        let pin = format!("{path}/{:032x}", 1);
        world.server.admin_create(&pin, b"", Some(session(&other)));
        let read = At::op(OpCode::GET_DATA).of_session(session(&client)).below(&path);
        world.server.inject(Fault::new(read, Action::Delay(Duration::from_millis(500))));
        let mut taking = Box::pin(queue.try_take().into_future());
        assert!(tokio::time::timeout(Duration::from_millis(250), &mut taking).await.is_err());
        assert!(world.server.admin_delete(&pin) && world.server.admin_delete(&path));
        let taken = taking.await.expect("nothing is refused");
        assert!(taken.is_none(), "{taken:?}");
        check_clean(&world, &[&client, &other]).await;
    });
}

/// A stranger may create whatever has the name of a pin.
#[test]
fn znodes_with_the_names_of_pins_keep_nobody_from_the_items_behind_them() {
    for way in 0..3 {
        run(async {
            let world = world();
            let client = world.client(FIRST).await;
            let queue = queue(&client);
            put_all(&queue, &["odd", "plain"]).await;
            let path = items(&world).remove(0);
            let pin = format!("{path}/{:032x}", 7);
            world.server.admin_create(&pin, b"", None);
            world.server.admin_create(&format!("{pin}/x"), b"", None);
            assert_eq!(take_by(way, &queue).await, "plain");
            assert_eq!(blocked(&queue), [(path.clone(), BlockReason::HasChildren)]);
            let tries = world.traffic().requests;
            let late = queue.take().timeout(Duration::from_secs(60)).await;
            late.expect_err("it cannot be delivered");
            let tries = world.traffic().requests - tries;
            assert!(tries <= 200, "{tries} requests in a minute");
            assert!(world.server.admin_delete(&format!("{pin}/x")));
            assert!(world.server.admin_delete(&pin));
            assert_eq!(take_by(0, &queue).await, "odd");
            check_clean(&world, &[&client]).await;
        });
    }
}

/// Servers remove the directory once it is empty, and number the next items from 0 again.
#[test]
fn the_next_item_with_the_name_of_a_blocked_one_is_delivered_at_once() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        let queue = queue(&client);
        put_all(&queue, &["hidden"]).await;
        let path = items(&world).remove(0);
        hide(&client, &path).await;
        for _ in 0..2 {
            queue.try_take().await.expect_err("it may not be read");
            // Each of these tries makes the next pause longer.
            sleep_ms(4_000).await;
        }
        assert!(world.server.admin_delete(&path));
        world.server.reap();
        sleep_ms(100).await;
        world.server.reap();
        assert!(world.server.stat(ENTRIES).is_none(), "it is an empty container");
        put_all(&queue, &["a"]).await;
        assert_eq!(items(&world), [path]);
        assert_eq!(drain(&queue).await, ["a"]);
        assert!(blocked(&queue).is_empty());
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn items_that_are_blocked_and_then_deleted_are_forgotten() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        let queue = queue(&client);
        put_all(&queue, &["hidden", "a", "b"]).await;
        let path = items(&world).remove(0);
        hide(&client, &path).await;
        assert_eq!(take_by(0, &queue).await, "a");
        assert_eq!(blocked(&queue).len(), 1);
        assert!(world.server.admin_delete(&path));
        // New items make a new list necessary.
        put_all(&queue, &["c"]).await;
        assert_eq!(drain(&queue).await, ["b", "c"]);
        assert!(blocked(&queue).is_empty());
        check_clean(&world, &[&client]).await;
    });
}

/// Returns the requests in each of some minutes while takers wait beside items that they may not
/// read.
fn requests_beside_hidden_items(hidden: usize, takers: usize, minutes: usize) -> Vec<usize> {
    run_within(Duration::from_secs(3_600), async {
        let world = World::new().pace(Pace::of(2_000));
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let data: Vec<_> = (0..hidden).map(|number| number.to_string()).collect();
        queue(&client).put_batch(data).await.expect("it can be put");
        for path in items(&world) {
            hide(&client, &path).await;
        }
        let queue = queue(&other);
        let mut tasks = Vec::new();
        for _ in 0..takers {
            tasks.push(start_taking(&world, &queue).await);
        }
        let mut each = Vec::new();
        for _ in 0..minutes {
            world.server.clear_requests();
            sleep_ms(60_000).await;
            let requests = world.server.requests();
            let is_counted = |op| op != OpCode::PING && op != OpCode::MULTI;
            each.push(requests.iter().filter(|request| is_counted(request.op)).count());
        }
        assert_eq!(queue.blocked().len(), hidden);
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
        check_clean(&world, &[&client, &other]).await;
        each
    })
}

#[test]
fn items_that_may_not_be_read_cost_few_requests_however_many_takers_wait() {
    for takers in [1, 20] {
        let each = requests_beside_hidden_items(100, takers, 30);
        eprintln!("100 items that {takers} takers may not read: {each:?} requests per minute");
        assert!(each[0] <= 2_500, "{each:?}");
        let last: usize = each[10..].iter().sum();
        assert!(last / 20 <= 100, "{each:?}");
    }
}
