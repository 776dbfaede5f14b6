//! The work queue in virtual time: order, leases, the limit, cuts of the connection at every request
//! and event, drops at every poll, expiry, administrators, and costs. Each fault is injected exactly
//! where it is meant to happen, and the safety timer is off unless a test is about it.

mod cancelling;
mod costs;
mod cuts;
mod faults;
mod items;

use std::collections::BTreeSet;
use std::future::IntoFuture as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::JoinHandle;
use zk_recipes::{Client, Leased, LockState, WorkQueue, WorkQueueError};
use zk_session::recipe::Session;
use zk_tests::meter::Pace;
use zk_tests::scene::spawn;
use zk_tests::world::{World, sleep_ms};

/// The directory of the queue under test.
const QUEUE: &str = "/queues/jobs";
const ENTRIES: &str = "/queues/jobs/entries";
const LEASES: &str = "/queues/jobs/taken";
const PUTS: &str = "/queues/jobs/puts";
const TAKERS: &str = "/queues/jobs/takers";

/// A world whose clients may have several operations at a time.
fn world() -> World {
    World::new().pace(Pace::of(8))
}

/// The queue under test, without its safety timer, which would hide a lost wake-up.
fn queue(client: &Client) -> WorkQueue {
    WorkQueue::builder(client, QUEUE)
        .and_then(|builder| builder.watch_check(None).build())
        .expect("the options are legal")
}

/// Puts items one after the other.
async fn put_all(queue: &WorkQueue, items: &[&'static str]) {
    for item in items {
        queue.put(*item).await.expect("the item can be put");
    }
}

/// Takes an item that is there.
async fn take(queue: &WorkQueue) -> Leased {
    queue.take().await.expect("there is an item")
}

/// Takes and acknowledges items until there is none, and returns their data.
async fn drain(queue: &WorkQueue) -> Vec<String> {
    let mut items = Vec::new();
    while let Some(item) = queue.try_take().await.expect("the queue can be read") {
        items.push(text(&item));
        item.ack().await.expect("the item can be acknowledged");
    }
    items
}

fn text(item: &Leased) -> String {
    String::from_utf8(item.data().to_vec()).expect("the items are text")
}

/// Starts to take an item, and returns when the taker waits.
async fn start_taking(
    world: &World,
    queue: &WorkQueue,
) -> JoinHandle<Result<Leased, WorkQueueError>> {
    let taker = spawn(queue.take().into_future());
    sleep_ms(50).await;
    assert!(!taker.is_finished(), "it has taken something\n{}", world.trace());
    taker
}

/// Returns the names of the children of a directory.
fn children(world: &World, directory: &str) -> Vec<String> {
    world.server.children(directory).unwrap_or_default()
}

/// Waits for the end of all cleanup, and checks that no lease, no marker and no taker is left.
async fn check_clean(world: &World, clients: &[&Client]) {
    let left = || -> Vec<String> {
        [LEASES, PUTS, TAKERS].iter().flat_map(|directory| children(world, directory)).collect()
    };
    let is_busy = || clients.iter().any(|client| Session::of(client).janitor_slots_busy() > 0);
    for _ in 0..60_000 {
        if !is_busy() && left().is_empty() {
            break;
        }
        sleep_ms(1).await;
    }
    assert!(left().is_empty(), "left: {:?}\n{}", left(), world.trace());
    world.check_clean(clients).await;
    assert!(left().is_empty(), "left later: {:?}\n{}", left(), world.trace());
}

/// Checks what takers have: no item twice at the same time.
#[derive(Clone, Debug, Default)]
struct Ledger(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    held: BTreeSet<String>,
    taken: Vec<String>,
    acknowledged: Vec<String>,
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a taker has an item.
    fn took(&self, world: &World, item: &Leased) {
        let mut entries = self.lock();
        entries.taken.push(text(item));
        assert!(entries.held.insert(text(item)), "taken by two at once\n{}", world.trace());
    }

    /// Records that a taker no longer believes that it has an item.
    fn left(&self, item: &str) {
        self.lock().held.remove(item);
    }

    /// Acknowledges an item. Returns false if the lease was lost or the outcome is unknown.
    async fn ack(&self, world: &World, item: Leased) -> bool {
        let name = text(&item);
        if matches!(item.state(), LockState::Lost(_)) {
            self.left(&name);
        }
        let acked = item.ack().await;
        self.left(&name);
        match acked {
            Ok(()) => {
                self.lock().acknowledged.push(name);
                true
            }
            Err(WorkQueueError::LeaseLost(_) | WorkQueueError::Unknown { .. }) => false,
            Err(error) => panic!("{error}\n{}", world.trace()),
        }
    }

    /// Starts a task that takes and acknowledges items until it is aborted.
    fn consume(&self, world: &World, queue: &WorkQueue) -> JoinHandle<()> {
        let (ledger, world, queue) = (self.clone(), world.clone(), queue.clone());
        spawn(async move {
            loop {
                let item = take(&queue).await;
                ledger.took(&world, &item);
                ledger.ack(&world, item).await;
            }
        })
    }

    /// Waits until this many items were acknowledged.
    async fn until_acknowledged(&self, world: &World, count: usize) {
        world
            .until("the items are acknowledged", |_| self.lock().acknowledged.len() >= count)
            .await;
    }
}
