//! Everything that happens to clients and locks and has a number.

use std::collections::{BTreeMap, BTreeSet};
use std::future::IntoFuture as _;

use jute_codec::OpCode;
use zk_recipes::{Acl, Client, ExclusiveLock, FairLock, WorkQueue, WorkQueueError};
use zk_session::metrics::{Figure, Metric};
use zk_session::{CreateMode, OpError, SessionState};
use zk_tests::scene::{FIRST, SECOND, at_op, partition, place_of, session, spawn};
use zk_tests::world::{World, sleep_ms};
use zk_testserver::Action;

/// The label of the locks of a kind. Numbers of clients have none.
pub(crate) const FAIR: &str = " recipe=fair";
pub(crate) const EXCLUSIVE: &str = " recipe=exclusive";
/// Those of queues have none either.
pub(crate) const QUEUE: &str = "";

/// What the counters of clients and locks show.
#[derive(Default)]
pub(crate) struct Shown {
    /// All numbers, as the label of what counts them and the field.
    pub(crate) known: BTreeSet<(&'static str, &'static str)>,
    /// Those that were not 0 at some time.
    pub(crate) changed: BTreeSet<(&'static str, &'static str)>,
    /// The metrics of the numbers that only grow, by series, with the sum of these numbers.
    pub(crate) exported: BTreeMap<String, f64>,
    pub(crate) metrics: Vec<Metric>,
}

impl Shown {
    /// Looks at numbers. A series is the name of the metric and this label.
    fn look(&mut self, label: &'static str, figures: &[Figure]) {
        for Figure { field, value, .. } in figures {
            self.known.insert((label, field));
            if *value > 0.0 {
                self.changed.insert((label, field));
            }
        }
    }

    /// Adds numbers that do not change any more to their metrics.
    fn add(&mut self, label: &'static str, figures: &[Figure]) {
        self.look(label, figures);
        for Figure { metric, value, .. } in figures {
            if let Some(metric) = metric {
                *self.exported.entry(format!("{}{label}", metric.name)).or_default() += value;
                self.metrics.push(*metric);
            }
        }
    }
}

/// A client, and its lock, which is fair.
struct Contender {
    client: Client,
    fair: FairLock,
}

impl Contender {
    fn new(client: Client) -> Self {
        let fair = FairLock::new(&client, "/fair").unwrap();
        Self { client, fair }
    }
}

/// Runs clients and their locks through everything that has a number.
pub(crate) async fn eventful(world: &World) -> Shown {
    let mut shown = Shown::default();
    let it = Contender::new(world.client(FIRST).await);
    let other = Contender::new(world.client(SECOND).await);
    let named = world.client_with(3, |builder| builder.auth("digest", "a:b")).await;
    let named = Contender::new(named);
    let exclusive = ExclusiveLock::new(&it.client, "/exclusive").unwrap();

    requests_and_an_outage_under_a_lock(world, &mut shown, &it, &other).await;
    an_expiry_under_a_lock(world, &it.client, &exclusive).await;
    a_doubt_and_a_missed_watch(world, &it, &named).await;
    a_duplicate_and_a_backlog(world, &mut shown, &it, &other).await;
    let queue = WorkQueue::new(&other.client, "/queue").unwrap();
    items_of_a_queue(world, &mut shown, &queue).await;

    let contenders = [it, other, named];
    for contender in &contenders {
        contender.client.close().await;
    }
    // The task takes its shares of the gauges back when it ends.
    sleep_ms(1_000).await;
    for Contender { client, fair } in &contenders {
        shown.add("", &client.stats().figures());
        shown.add(FAIR, &fair.stats().figures());
    }
    shown.add(EXCLUSIVE, &exclusive.stats().figures());
    shown.add(QUEUE, &queue.stats().figures());
    shown
}

async fn requests_and_an_outage_under_a_lock(
    world: &World,
    shown: &mut Shown,
    Contender { client, fair }: &Contender,
    other: &Contender,
) {
    let guard = fair.acquire().await.unwrap();
    sleep_ms(500).await;
    client.create("/znode", "", CreateMode::Persistent).await.unwrap();
    client.delete("/missing", None).await.unwrap_err();
    let (_, mut watcher) = client.get_data_and_watch("/znode").await.unwrap();
    shown.look("", &client.stats().figures());
    other.client.set_data("/znode", "new", None).await.unwrap();
    watcher.changed().await.unwrap();

    // The connection is lost for two seconds, with a request in flight.
    let pending = client.get_acl("/znode");
    partition(world, 2_000);
    assert!(matches!(pending.await, Err(OpError::ConnectionLoss { .. })));
    let waiting = spawn(client.get_acl("/znode").into_future());
    sleep_ms(100).await;
    shown.look("", &client.stats().figures());
    waiting.await.expect("the task ends").unwrap();
    sleep_ms(500).await;
    assert_eq!(fair.stats().at_risk, 1);
    guard.release().await.unwrap();
}

async fn an_expiry_under_a_lock(world: &World, client: &Client, exclusive: &ExclusiveLock) {
    let guard = exclusive.acquire().await.unwrap();
    world.server.expire(session(client));
    guard.lost().await;
    let mut states = client.states();
    while states.current().state != SessionState::Connected {
        states.next().await.unwrap();
    }
    client.sync("/").await.unwrap();

    let stats = client.stats();
    assert_eq!(stats.request("delete").unwrap().refused, 1);
    assert!(stats.request("create").unwrap().completed >= 1);
    assert_eq!(stats.request("get_acl").unwrap().lost, 1);
    assert_eq!((stats.sessions, stats.sessions_lost), (2, 1));
    assert_eq!((stats.connections, stats.connections_lost), (3, 2));
    assert!(stats.attempts >= stats.connections);
    assert!(stats.disconnected.as_millis() >= 2_000, "{:?}", stats.disconnected);
    assert_eq!(exclusive.stats().lost, 1);
}

/// Loses the reply to a create, and lets a waiter miss an event: a server withholds events from
/// clients that may not read the znode.
async fn a_doubt_and_a_missed_watch(
    world: &World,
    Contender { client, fair }: &Contender,
    named: &Contender,
) {
    world.server.inject(at_op(session(client), OpCode::CREATE2, Action::CutAfter));
    fair.acquire().await.unwrap().release().await.unwrap();

    let held = named.fair.acquire().await.unwrap();
    let waiter = spawn(fair.acquire().into_future());
    sleep_ms(500).await;
    named.client.set_acl(held.path(), Acl::creator_all(), None).await.unwrap();
    held.release().await.unwrap();
    waiter.await.expect("the task ends").unwrap().release().await.unwrap();
}

/// Creates a contender that looks like one that a lost create has left behind, and releases a lock
/// while there is no connection.
async fn a_duplicate_and_a_backlog(
    world: &World,
    shown: &mut Shown,
    Contender { client, fair }: &Contender,
    other: &Contender,
) {
    let held = other.fair.acquire().await.unwrap();
    let waiter = spawn(fair.acquire().into_future());
    sleep_ms(100).await;
    let id = session(client);
    let own = place_of(world, id);
    let prefix = &own[..own.len() - 10];
    world.server.admin_create(&format!("{prefix}0000000077"), b"", Some(id));
    // This change causes the next list, which shows the znode.
    world.server.admin_set_data(held.path(), b"");
    sleep_ms(100).await;
    held.release().await.unwrap();
    let guard = waiter.await.expect("the task ends").unwrap();

    partition(world, 1_000);
    drop(guard);
    sleep_ms(500).await;
    shown.look(FAIR, &fair.stats().figures());
    sleep_ms(3_000).await;
}

/// Puts two items, acknowledges one, and gives the other back, which then cannot be delivered.
async fn items_of_a_queue(world: &World, shown: &mut Shown, queue: &WorkQueue) {
    queue.put_batch(["one", "two"]).await.unwrap();
    let (one, two) = (queue.take().await.unwrap(), queue.take().await.unwrap());
    sleep_ms(1_500).await;
    one.ack().await.unwrap();
    let path = two.path().to_owned();
    two.give_back().await.unwrap();
    // Takers of this queue pass over what they have given back.
    sleep_ms(5_000).await;
    world.server.admin_create(&format!("{path}/note"), b"", None);
    let blocked = queue.try_take().await.unwrap_err();
    assert!(matches!(blocked, WorkQueueError::Blocked { .. }), "{blocked}");
    let stats = queue.stats();
    assert_eq!((stats.put, stats.taken, stats.acknowledged, stats.returned), (2, 2, 1, 1));
    assert_eq!((stats.blocked, stats.leased.as_millis()), (1, 3_000));
    shown.look(QUEUE, &stats.figures());
}
