//! Producers and consumers of a work queue.

use std::future::IntoFuture as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use zk_recipes::{Leased, LockState, WorkQueue};

use super::task::{Called, TIMEOUT_MAX, Task};
use crate::history::{Failure, Id, Share, Told, What};
use crate::world::clients::CommonQueue;
use crate::world::kinds::WorldKind;
use crate::world::plan::FaultKind;
use crate::world::registry::{Guarded, Standing};

/// The directory of the queue.
pub const QUEUE: &str = "/queue";

/// How many items a queue may have that has a limit.
const LIMIT: usize = 3;
/// How many items are acknowledged, in percent, and how many where most are given back.
const ACKED_PERCENT: u64 = 70;
const RETURNING_ACKED_PERCENT: u64 = 30;
/// How many uses of the queue are by a value that all tasks of the client have in common, in percent.
const COMMON_PERCENT: u64 = 60;
/// For how long the takers of that value pass over what one of them has given back. A longer time would
/// look as if nobody knew of the item.
const DELAYS_MS: [u64; 4] = [500, 1_000, 2_000, 3_000];

/// How many round trips there are between the last acknowledgements and the end of their leases.
const ROUND_TRIPS: u64 = 3;
/// By how much longer a lease may look as if it were held.
const LEASE_SLACK: Duration = Duration::from_millis(500);

/// Puts an item whose name no other item has.
pub async fn put(task: &mut Task) {
    let (queue, _) = queue(task);
    let items: Vec<String> =
        (0..task.draw.pick(&[1, 1, 1, 3])).map(|_| format!("item-{}", task.id())).collect();
    let mut put = match items.as_slice() {
        [item] => queue.put(item.clone()),
        items => queue.put_batch(items.to_vec()),
    };
    if task.draw.chance(20) {
        put = put.priority(task.draw.pick(&[0, 1, 100, 200, 999]));
    }
    let told = task.call_within("put", QUEUE, put).await.told();
    for item in items {
        task.push(What::Put { queue: QUEUE.to_owned(), item, told });
    }
}

/// Takes items, keeps them for a while, and acknowledges them or gives them back.
pub async fn take(task: &mut Task) {
    let (queue, common) = queue(task);
    let timeout = task.draw.ms(1, u64::try_from(TIMEOUT_MAX.as_millis()).unwrap_or(1));
    let taken = match task.draw.between(0, 3) {
        0 => {
            let from = task.zxid();
            let called = task.call("try_take", QUEUE, None, queue.try_take()).await;
            if matches!(called, Called::Done(None)) {
                let session = task.client.session_id();
                task.push(What::SaidEmpty { from, to: task.zxid(), session });
            }
            called.done().flatten().into_iter().collect()
        }
        1 => {
            let batch = queue.take_batch(3).timeout(timeout);
            let called = task.call("take_batch", QUEUE, Some(timeout), batch.into_future()).await;
            called.done().unwrap_or_default()
        }
        _ => {
            let take = queue.take().timeout(timeout);
            let called = task.call("take", QUEUE, Some(timeout), take.into_future()).await;
            called.done().into_iter().collect::<Vec<_>>()
        }
    };
    let kept: Vec<Kept> = taken.into_iter().map(|item| Kept::new(task, item)).collect();
    if let Some(common) = &common {
        for item in kept.iter().map(|kept| kept.item.clone()) {
            task.push(What::Delivered { by: common.id, item });
        }
    }
    task.hold().await;
    for kept in kept {
        let Some(item) = kept.take() else { continue };
        let is_returning = task.world.plan.is_of(WorldKind::Returning);
        let acknowledged = if is_returning { RETURNING_ACKED_PERCENT } else { ACKED_PERCENT };
        if task.draw.chance(acknowledged) || task.is_calm() {
            let told = task.call_within("ack", QUEUE, item.ack()).await.told();
            task.push(kept.acked(told));
            continue;
        }
        if let Some(common) = &common {
            let (until, item) = (task.world.history.now() + common.delay, kept.item.clone());
            task.push(What::Returned { by: common.id, item, until });
        }
        if task.draw.chance(50) {
            task.call_within("give_back", QUEUE, item.give_back()).await;
        } else {
            drop(item);
        }
    }
}

/// Puts an item, or takes one and perhaps hangs, with options from their whole ranges.
pub async fn use_options(task: &mut Task) {
    let lease_for = task.draw.ms(1_000, 8_000);
    // The takers of a queue pass over what one of them has given back. A longer time would look as if
    // nobody knew of the item.
    let delay = task.draw.pick(&[0, 100, 1_000, 2_000]);
    let check = task.draw.pick(&[Some(1), Some(5), Some(30), None]).map(Duration::from_secs);
    let check = check.or_else(|| task.check_least());
    let built = WorkQueue::builder(&task.client, QUEUE).and_then(|queue| {
        let queue = queue.watch_check(check).redelivery_delay(Duration::from_millis(delay));
        queue.lease_for(lease_for).limit(LIMIT).build()
    });
    let Ok(queue) = built else { unreachable!("the options are valid") };
    if task.draw.chance(50) {
        return put_within(task, &queue).await;
    }
    let timeout = task.draw.ms(1, u64::try_from(TIMEOUT_MAX.as_millis()).unwrap_or(1));
    let take = queue.take().timeout(timeout).into_future();
    let Some(item) = task.call("take", QUEUE, Some(timeout), take).await.done() else { return };
    let taken = task.world.history.now();
    let kept = Kept::new(task, item);
    let mut aside = task.aside();
    if aside.chance(35) {
        // Its acknowledgement takes about as long as the lease goes on.
        let early = aside.ms(1, ROUND_TRIPS * ms(task.world.plan.round_trip_max()).max(5));
        let ends_at = taken + lease_for;
        task.hold_for(ends_at.saturating_sub(task.world.history.now() + early)).await;
    } else if task.draw.chance(50) {
        let longer = task.draw.ms(1_000, 10_000);
        task.hold_for(lease_for + longer).await;
    } else {
        task.hold().await;
    }
    let Some(item) = kept.take() else { return };
    let left = (taken + lease_for + LEASE_SLACK).saturating_sub(task.world.history.now());
    if item.remaining().is_some_and(|remaining| remaining > left) {
        task.push(What::Hung { item: kept.item.clone() });
    }
    // The client ends the lease, and its task may run after this one.
    let is_over = task.world.history.now() > taken + lease_for + LEASE_SLACK;
    if is_over && !matches!(item.state(), LockState::Lost(_)) {
        task.push(What::Hung { item: kept.item.clone() });
    }
    let told = task.call_within("ack", QUEUE, item.ack()).await.told();
    if is_over && told == Told::Applied {
        task.push(What::Hung { item: kept.item.clone() });
    }
    task.push(kept.acked(told));
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Puts an item into a queue that is full with few of them.
async fn put_within(task: &mut Task, queue: &WorkQueue) {
    let item = format!("item-{}", task.id());
    let items = task.world.server.children(&format!("{QUEUE}/entries")).unwrap_or_default();
    let items = items.iter().filter(|name| name.starts_with("entry-")).count();
    let from = task.zxid();
    let called = task.call_within("put_within", QUEUE, queue.put(item.clone())).await;
    // What strangers have put there counts too.
    let is_shared = task.world.plan.faults.contains(&FaultKind::Stranger);
    if matches!(called, Called::Failed(Failure::Full, _)) && !is_shared {
        task.push(What::SaidFull { limit: LIMIT, items, from, to: task.zxid() });
    }
    let told = called.told();
    if told == Told::Applied {
        task.push(What::PutWithin { limit: LIMIT, items, from, to: task.zxid() });
    }
    task.push(What::Put { queue: QUEUE.to_owned(), item, told });
}

/// Returns a queue, and what is known of it if the tasks of the client have it in common.
fn queue(task: &mut Task) -> (WorkQueue, Option<CommonQueue>) {
    let check =
        task.draw.pick(&[Some(Duration::from_secs(30)), None]).or_else(|| task.check_least());
    let build = |delay: Option<Duration>| {
        let built = WorkQueue::builder(&task.client, QUEUE).and_then(|queue| {
            let queue = queue.watch_check(check);
            if let Some(delay) = delay { queue.redelivery_delay(delay) } else { queue }.build()
        });
        let Ok(queue) = built else { unreachable!("the options are valid") };
        queue
    };
    let common = task.aim("a queue in common").and_then(|mut aim| {
        let is_common = aim.chance(COMMON_PERCENT);
        let delay = Duration::from_millis(aim.pick(&DELAYS_MS));
        let create = || CommonQueue { queue: build(Some(delay)), id: task.id(), delay };
        is_common.then(|| task.life.queue(create)).flatten()
    });
    match common {
        Some(common) => (common.queue.clone(), Some(common)),
        None => (build(None), None),
    }
}

/// A leased item that its taker keeps, and that the registry asks about.
struct Kept {
    item: String,
    lease: Id,
    leased: Arc<Mutex<Option<Leased>>>,
}

impl Kept {
    fn new(task: &Task, leased: Leased) -> Self {
        let item = String::from_utf8_lossy(leased.data()).into_owned();
        let (lease, token) = (task.id(), leased.fencing_token().get());
        let is_held = task.is_promised(leased.state());
        let name = format!("{QUEUE} {item}");
        let (queue, share) = (QUEUE.to_owned(), Share::Alone);
        let at = leased.path().to_owned();
        task.push(What::Taken { queue, item: item.clone(), path: at, lease, token, is_held });
        let (lock, token) = (name.clone(), Some(token));
        let (path, zxid) = (None, task.zxid());
        task.push(What::Granted { lock, guard: lease, share, path, token, is_held, zxid });
        let leased = Arc::new(Mutex::new(Some(leased)));
        let asked = Arc::clone(&leased);
        let (leased_by, znode) = (None, None);
        let guarded = Guarded {
            lock: &name,
            guard: lease,
            share,
            leased: leased_by,
            znode,
            is_lost_at_risk: false,
        };
        task.register(guarded, move || {
            let leased = asked.lock().unwrap_or_else(PoisonError::into_inner);
            leased.as_ref().map(|leased| Standing::from(leased.state()))
        });
        Self { item, lease, leased }
    }

    fn take(&self) -> Option<Leased> {
        self.leased.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn acked(self, told: Told) -> What {
        What::Acked { queue: QUEUE.to_owned(), item: self.item, lease: self.lease, told }
    }
}
