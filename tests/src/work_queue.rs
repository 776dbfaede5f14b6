//! The work queue under test: its directories, its calls, and what must hold at the end of a run.

use std::collections::BTreeSet;
use std::future::IntoFuture as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use zk_recipes::{Client, Leased, LockState, WorkQueue, WorkQueueError};
use zk_session::recipe::Session;

use crate::meter::Pace;
use crate::scene::spawn;
use crate::world::{World, sleep_ms};

/// The directory of the queue under test.
pub const QUEUE: &str = "/queues/jobs";
/// The directory of its items.
pub const ENTRIES: &str = "/queues/jobs/entries";
/// The directory of its leases.
pub const LEASES: &str = "/queues/jobs/taken";
/// The directory of the markers of puts whose producers do not know yet that they succeeded.
pub const PUTS: &str = "/queues/jobs/puts";
/// The directory of its takers.
pub const TAKERS: &str = "/queues/jobs/takers";

/// Creates a world whose clients may have several operations at a time.
pub fn world() -> World {
    World::new().pace(Pace::of(8))
}

/// Returns the queue under test, without its safety timer, which would hide a lost wake-up, and
/// without the delay of items that are given back.
///
/// # Panics
///
/// Never: the options are legal.
pub fn queue(client: &Client) -> WorkQueue {
    WorkQueue::builder(client, QUEUE)
        .and_then(|builder| builder.watch_check(None).redelivery_delay(Duration::ZERO).build())
        .expect("the options are legal")
}

/// Puts items one after the other.
///
/// # Panics
///
/// If a put fails.
pub async fn put_all(queue: &WorkQueue, items: &[&'static str]) {
    for item in items {
        queue.put(*item).await.expect("the item can be put");
    }
}

/// Takes an item that is there.
///
/// # Panics
///
/// If the take fails.
pub async fn take(queue: &WorkQueue) -> Leased {
    queue.take().await.expect("there is an item")
}

/// Takes and acknowledges items until there is none, and returns their data.
///
/// # Panics
///
/// If a take or an acknowledgement fails.
pub async fn drain(queue: &WorkQueue) -> Vec<String> {
    let mut items = Vec::new();
    while let Some(item) = queue.try_take().await.expect("the queue can be read") {
        items.push(text(&item));
        item.ack().await.expect("the item can be acknowledged");
    }
    items
}

/// Returns the data of an item.
///
/// # Panics
///
/// If the data is not UTF-8.
pub fn text(item: &Leased) -> String {
    String::from_utf8(item.data().to_vec()).expect("the items are text")
}

/// Starts to take an item, and returns when the taker waits.
///
/// # Panics
///
/// If the taker has taken something.
pub async fn start_taking(
    world: &World,
    queue: &WorkQueue,
) -> JoinHandle<Result<Leased, WorkQueueError>> {
    let taker = spawn(queue.take().into_future());
    sleep_ms(50).await;
    assert!(!taker.is_finished(), "it has taken something\n{}", world.trace());
    taker
}

/// Returns the names of the children of a directory.
pub fn children(world: &World, directory: &str) -> Vec<String> {
    world.server.children(directory).unwrap_or_default()
}

/// Waits for the end of all cleanup, and checks that no lease, no marker and no taker is left.
///
/// # Panics
///
/// If something is left.
pub async fn check_clean(world: &World, clients: &[&Client]) {
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
pub struct Ledger(Arc<Mutex<Entries>>);

/// The entries of a ledger.
#[derive(Debug, Default)]
pub struct Entries {
    held: BTreeSet<String>,
    /// The items that were taken, in this order.
    pub taken: Vec<String>,
    /// The items that were acknowledged, in this order.
    pub acknowledged: Vec<String>,
}

impl Ledger {
    /// Returns the entries.
    pub fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a taker has an item.
    ///
    /// # Panics
    ///
    /// If another taker has it.
    pub fn took(&self, world: &World, item: &Leased) {
        let mut entries = self.entries();
        entries.taken.push(text(item));
        assert!(entries.held.insert(text(item)), "taken by two at once\n{}", world.trace());
    }

    /// Records that a taker no longer believes that it has an item.
    pub fn left(&self, item: &str) {
        self.entries().held.remove(item);
    }

    /// Acknowledges an item. Returns false if the lease was lost or the outcome is unknown.
    ///
    /// # Panics
    ///
    /// If the acknowledgement fails for another reason.
    pub async fn ack(&self, world: &World, item: Leased) -> bool {
        let name = text(&item);
        if matches!(item.state(), LockState::Lost(_)) {
            self.left(&name);
        }
        let acked = item.ack().await;
        self.left(&name);
        match acked {
            Ok(()) => {
                self.entries().acknowledged.push(name);
                true
            }
            Err(WorkQueueError::LeaseLost(_) | WorkQueueError::Unknown { .. }) => false,
            Err(error) => panic!("{error}\n{}", world.trace()),
        }
    }

    /// Starts a task that takes and acknowledges items until it is aborted.
    pub fn consume(&self, world: &World, queue: &WorkQueue) -> JoinHandle<()> {
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
    pub async fn until_acknowledged(&self, world: &World, count: usize) {
        world
            .until("the items are acknowledged", |_| self.entries().acknowledged.len() >= count)
            .await;
    }
}
