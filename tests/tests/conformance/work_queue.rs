//! The work queue: order, leases, the limit, and the names of its znodes.

use std::future::IntoFuture as _;

use zk_recipes::{
    Acl, Client, ErrorCode, FailedAction, Leased, LostReason, Permissions, RecipeError, WorkQueue,
    WorkQueueError,
};
use zk_tests::scene::spawn;
use zk_tests::target::{Fixture, short_session};
use zk_tests::wait::{PATIENCE, catch_up, names_in, soon};

const QUEUE: &str = "/jobs";

fn queue(client: &Client) -> WorkQueue {
    WorkQueue::new(client, QUEUE).unwrap()
}

/// Takes and acknowledges all items that are in the queue, and returns their data.
async fn drain(queue: &WorkQueue) -> Vec<String> {
    let mut items = Vec::new();
    while queue.length().await.unwrap() > 0 {
        let item = queue.take().timeout(PATIENCE).await.unwrap();
        items.push(String::from_utf8(item.data().to_vec()).unwrap());
        item.ack().await.unwrap();
    }
    items
}

#[tokio::test]
async fn items_are_taken_in_order_of_priority_and_arrival() {
    let fixture = Fixture::start().await;
    let (producer, consumer) = (fixture.client().await, fixture.client().await);
    let puts = queue(&producer);
    puts.put("b").await.unwrap();
    puts.put_batch(["c", "d"]).await.unwrap();
    puts.put("a").priority(0).await.unwrap();
    puts.put("e").priority(999).await.unwrap();
    catch_up(&consumer).await;
    assert_eq!(drain(&queue(&consumer)).await, ["a", "b", "c", "d", "e"]);
}

#[tokio::test]
async fn a_batch_has_the_first_items_each_with_a_lease_of_its_own() {
    let fixture = Fixture::start().await;
    let (one, other) = (fixture.client().await, fixture.client().await);
    queue(&one).put_batch(["a", "b", "c", "d", "e"]).await.unwrap();
    let text = |items: &[Leased]| -> Vec<_> { items.iter().map(|i| i.data().clone()).collect() };
    let first = queue(&one).take_batch(3).timeout(PATIENCE).await.unwrap();
    assert_eq!(text(&first), ["a", "b", "c"]);
    catch_up(&other).await;
    let second = queue(&other).take_batch(3).timeout(PATIENCE).await.unwrap();
    assert_eq!(text(&second), ["d", "e"]);
    // The second batch was taken through another server of an ensemble.
    catch_up(&one).await;
    assert_eq!(one.get_children("/jobs/taken").await.unwrap().len(), 5);
    for item in first.into_iter().chain(second) {
        item.ack().await.unwrap();
    }
    catch_up(&other).await;
    assert_eq!(queue(&other).length().await, Ok(0));
}

#[tokio::test]
async fn the_znodes_are_those_of_kazoo() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let queue = queue(&client);
    queue.put_batch(["a", "b"]).priority(7).await.unwrap();
    let names = ["entry-007-0000000000", "entry-007-0000000001"];
    let mut entries = client.get_children("/jobs/entries").await.unwrap();
    entries.sort_unstable();
    assert_eq!(entries, names);
    let item = queue.take().await.unwrap();
    assert_eq!(item.path(), "/jobs/entries/entry-007-0000000000");
    assert_eq!(client.get_children("/jobs/taken").await.unwrap(), names[..1]);
    let lease = client.exists("/jobs/taken/entry-007-0000000000").await.unwrap().unwrap();
    assert_eq!(lease.ephemeral_owner, client.session_id());
    item.ack().await.unwrap();
    assert_eq!(client.get_children("/jobs/entries").await.unwrap(), names[1..]);
}

#[tokio::test]
async fn a_taker_waits_for_an_item_that_is_put_or_returns() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let taker = spawn(queue(&other).take().timeout(PATIENCE).into_future());
    queue(&client).put("a").await.unwrap();
    let item = soon("the item", taker).await.unwrap().unwrap();
    let taker = spawn(queue(&client).take().timeout(PATIENCE).into_future());
    item.give_back().await.unwrap();
    let item = soon("the item again", taker).await.unwrap().unwrap();
    assert_eq!(item.data(), "a");
    item.ack().await.unwrap();
    assert_eq!(queue(&client).length().await, Ok(0));
}

#[tokio::test]
async fn an_item_returns_when_the_session_of_its_taker_expires() {
    let fixture = Fixture::start().await;
    let proxy = fixture.proxy().await;
    let builder = fixture.builder_at(proxy.addr()).session_timeout(short_session());
    let client = builder.connect().await.unwrap();
    let other = fixture.client().await;
    queue(&other).put("a").await.unwrap();
    let first = queue(&client).take().timeout(PATIENCE).await.unwrap();
    proxy.pause();
    let second = queue(&other).take().timeout(PATIENCE).await.unwrap();
    assert_eq!(second.data(), "a");
    assert!(second.fencing_token() > first.fencing_token());
    let lost = first.ack().await.unwrap_err();
    assert!(matches!(lost, WorkQueueError::LeaseLost(_)), "{lost}");
    second.ack().await.unwrap();
}

#[tokio::test]
async fn a_lease_that_somebody_deletes_is_lost() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let queue = queue(&client);
    queue.put("a").await.unwrap();
    let item = queue.take().await.unwrap();
    client.delete("/jobs/taken/entry-100-0000000000", None).await.unwrap();
    assert_eq!(item.ack().await, Err(WorkQueueError::LeaseLost(LostReason::ZnodeDeleted)));
    assert_eq!(drain(&queue).await, ["a"]);
}

#[tokio::test]
async fn an_item_that_somebody_deletes_is_gone() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    queue(&client).put("a").await.unwrap();
    let item = queue(&client).take().await.unwrap();
    let path = item.path().to_owned();
    client.delete(&path, None).await.unwrap();
    assert_eq!(item.ack().await, Err(WorkQueueError::ItemGone { item: path }));
}

#[tokio::test]
async fn a_full_queue_and_a_refused_item_leave_nothing() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let limited = WorkQueue::builder(&client, QUEUE).unwrap().limit(2).build().unwrap();
    limited.put_batch(["a", "b"]).await.unwrap();
    let full = WorkQueueError::Full { directory: QUEUE.into(), length: 2, limit: 2 };
    assert_eq!(limited.put("c").await, Err(full));
    let acl = vec![Acl::new(Permissions::READ | Permissions::ADMIN, "world", "anyone")];
    client.set_acl("/jobs/entries", acl, None).await.unwrap();
    fixture.settle().await;
    let refused = RecipeError::Refused {
        code: ErrorCode::NO_AUTH,
        action: FailedAction::Create,
        path: "/jobs/entries/entry-100-".into(),
    };
    assert_eq!(queue(&client).put("c").await, Err(refused.into()));
    client.set_acl("/jobs/entries", Acl::open(), None).await.unwrap();
    fixture.settle().await;
    assert_eq!(drain(&queue(&client)).await, ["a", "b"]);
    soon("the end of the cleanup", async {
        while !names_in(&client, "/jobs/puts").await.is_empty() {
            catch_up(&client).await;
        }
    })
    .await;
}
