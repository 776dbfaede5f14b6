//! A queue with a leased item and two takers that wait. During the outage, a producer puts two items,
//! and the worker may acknowledge its item.

use std::collections::BTreeMap;
use std::future::IntoFuture as _;

use zk_recipes::{Client, Leased, LockState, WorkQueue, WorkQueueError};

use crate::outage::{Outage, Plan, Worst, for_each_outage, now};

const QUEUE: &str = "/queues/jobs";
/// The client that has leased an item.
const WORKER: usize = 0;
/// The clients whose takes wait.
const TAKERS: [usize; 2] = [1, 2];
const PRODUCER: usize = 3;

/// Requests of four clients: three takes and acknowledgements, a put, and the rest of the run, in
/// which the worker takes whatever is left. A take and its acknowledgement are 30 requests at most.
const REQUESTS_MAX: u64 = 95;

fn queue(client: &Client) -> WorkQueue {
    WorkQueue::new(client, QUEUE).expect("the path is valid")
}

fn text(item: &Leased) -> String {
    String::from_utf8(item.data().to_vec()).expect("the items are text")
}

async fn survive(plan: Plan, acks_during: bool) -> Worst {
    let mut outage = Outage::prepare(plan, 4).await;
    queue(&outage.clients[PRODUCER]).put("a").await.expect("it can be put");
    let leased = queue(&outage.clients[WORKER]).take().await.expect("there is an item");
    let takes: Vec<_> = TAKERS
        .map(|client| {
            let take = queue(&outage.clients[client]).take().into_future();
            outage.call("a take", client, take)
        })
        .into();
    outage.settle().await;
    assert!(takes.iter().all(|take| take.is_pending()), "the queue is empty");
    outage.begin();
    outage.middle().await;
    let put = queue(&outage.clients[PRODUCER]).put_batch(["b", "c"]).into_future();
    let put = outage.call("a put", PRODUCER, put);
    let (mut leased, mut acking) = (Some(leased), None);
    if acks_during {
        let leased = leased.take().expect("it was taken");
        acking = Some(outage.call("an acknowledgement", WORKER, leased.ack()));
    }
    outage.end().await;
    let cause = now();
    let (put, put_at) = outage.done(put, cause).await;
    assert_eq!(put, Ok(()), "{plan:?}\n{}", outage.world.trace());
    // The items that were acknowledged, in the order of the acknowledgements.
    let mut done: BTreeMap<String, usize> = BTreeMap::new();
    for take in takes {
        let (taken, _) = outage.done(take, put_at).await;
        let item = taken.unwrap_or_else(|error| panic!("{plan:?}: {error}"));
        let name = text(&item);
        // The work on this item takes no time, so its lease is held.
        item.ack().await.unwrap_or_else(|error| panic!("{plan:?}: {name}: {error}"));
        *done.entry(name).or_default() += 1;
    }
    if let Some(leased) = leased {
        if plan.may_expire() {
            assert!(matches!(leased.state(), LockState::Lost(_)), "{plan:?}");
        }
        acking = Some(outage.call("an acknowledgement", WORKER, leased.ack()));
    }
    let (acked, _) = outage.done(acking.expect("it was started"), cause.max(put_at)).await;
    match acked {
        Ok(()) => *done.entry("a".to_owned()).or_default() += 1,
        Err(WorkQueueError::LeaseLost(_)) if plan.may_expire() => {}
        Err(error) => panic!("{plan:?}: {error}\n{}", outage.world.trace()),
    }
    let worker = queue(&outage.clients[WORKER]);
    while let Some(item) = worker.try_take().await.expect("the queue can be read") {
        let name = text(&item);
        item.ack().await.unwrap_or_else(|error| panic!("{plan:?}: {name}: {error}"));
        *done.entry(name).or_default() += 1;
    }
    let expected = ["a", "b", "c"].map(|name| (name.to_owned(), 1));
    assert_eq!(done, expected.into(), "{plan:?}\n{}", outage.world.trace());
    assert_eq!(worker.length().await, Ok(0), "{plan:?}");
    let world = outage.world.clone();
    let worst = outage.finish().await;
    for directory in ["entries", "taken", "puts", "takers"] {
        let left = world.server.children(&format!("{QUEUE}/{directory}")).unwrap_or_default();
        assert!(left.is_empty(), "{plan:?}: left in {directory}: {left:?}");
    }
    worst
}

#[test]
fn items_are_delivered_after_an_outage_of_any_length() {
    for_each_outage("a work queue", REQUESTS_MAX, |plan| survive(plan, false));
}

#[test]
fn an_item_is_acknowledged_once_in_an_outage_of_any_length() {
    for_each_outage("a work queue, acknowledged meanwhile", REQUESTS_MAX, |plan| {
        survive(plan, true)
    });
}
