//! Watches whose connection is lost: they report changes during the outage, and nothing else.

use std::time::Duration;

use zk_session::{Client, CreateMode, EventType, Status, Watcher};
use zk_tests::proxy::Proxy;
use zk_tests::target::Fixture;
use zk_tests::wait::{assert_silent, catch_up, kind, reconnected, status};

const PERSISTENT: CreateMode = CreateMode::Persistent;

/// Separates the client from its server until [`Outage::end`].
pub(crate) struct Outage<'a> {
    proxy: &'a Proxy,
    client: &'a Client,
    before: Status,
}

impl<'a> Outage<'a> {
    pub(crate) async fn begin(proxy: &'a Proxy, client: &'a Client) -> Self {
        let before = client.status();
        proxy.pause();
        proxy.cut_all();
        status(client, "the loss", |now| now.state != before.state).await;
        Self { proxy, client, before }
    }

    pub(crate) async fn end(self) {
        self.proxy.resume();
        let after = reconnected(self.client, self.before).await;
        assert_eq!(after.session, self.before.session, "the session survives");
    }
}

async fn on_existence(client: &Client, path: &str) -> Watcher {
    client.exists_and_watch(path).await.unwrap().1
}

async fn on_data(client: &Client, path: &str) -> Watcher {
    client.get_data_and_watch(path).await.unwrap().1
}

async fn on_children(client: &Client, path: &str) -> Watcher {
    client.get_children_and_watch(path).await.unwrap().1
}

#[tokio::test]
async fn without_a_change_nothing_fires_and_every_watch_goes_on() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    let mut watchers = vec![
        on_data(&client, "/a").await,
        on_existence(&client, "/a").await,
        on_children(&client, "/a").await,
        on_existence(&client, "/missing").await,
    ];
    for _ in 0..2 {
        Outage::begin(&proxy, &client).await.end().await;
        for watcher in &mut watchers {
            assert_silent(&client, watcher).await;
        }
    }
    let other = fixture.client().await;
    other.create("/a/b", "", PERSISTENT).await.unwrap();
    other.set_data("/a", "x", None).await.unwrap();
    other.create("/missing", "", PERSISTENT).await.unwrap();
    let mut kinds = Vec::new();
    for watcher in &mut watchers {
        kinds.push(kind(watcher).await);
    }
    let (changed, created) = (EventType::NODE_DATA_CHANGED, EventType::NODE_CREATED);
    assert_eq!(kinds, [changed, changed, EventType::NODE_CHILDREN_CHANGED, created]);
}

#[tokio::test]
async fn changes_made_meanwhile_are_told_after_the_reconnect() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    let other = fixture.client().await;
    for path in ["/changed", "/deleted", "/parent", "/parent/gone", "/same"] {
        client.create(path, "", PERSISTENT).await.unwrap();
    }
    let mut changed = on_data(&client, "/changed").await;
    let mut existing_changed = on_existence(&client, "/changed").await;
    let mut deleted = on_data(&client, "/deleted").await;
    let mut existing_deleted = on_existence(&client, "/deleted").await;
    let mut childless = on_children(&client, "/deleted").await;
    let mut created = on_existence(&client, "/created").await;
    let mut children = on_children(&client, "/parent").await;
    let mut same = [
        on_data(&client, "/same").await,
        on_children(&client, "/same").await,
        on_existence(&client, "/same").await,
        on_data(&client, "/parent").await,
    ];

    let outage = Outage::begin(&proxy, &client).await;
    catch_up(&other).await;
    other.set_data("/changed", "x", None).await.unwrap();
    other.delete("/deleted", None).await.unwrap();
    other.create("/created", "", PERSISTENT).await.unwrap();
    other.delete("/parent/gone", None).await.unwrap();
    outage.end().await;

    for watcher in [&mut changed, &mut existing_changed] {
        assert_eq!(kind(watcher).await, EventType::NODE_DATA_CHANGED);
    }
    for watcher in [&mut deleted, &mut existing_deleted, &mut childless] {
        assert_eq!(kind(watcher).await, EventType::NODE_DELETED);
    }
    assert_eq!(kind(&mut created).await, EventType::NODE_CREATED);
    assert_eq!(kind(&mut children).await, EventType::NODE_CHILDREN_CHANGED);
    for watcher in &mut same {
        assert_silent(&client, watcher).await;
    }
}

#[tokio::test]
async fn a_znode_made_again_meanwhile_counts_as_changed() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    let other = fixture.client().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    let mut data = on_data(&client, "/a").await;
    let outage = Outage::begin(&proxy, &client).await;
    other.delete("/a", None).await.unwrap();
    other.create("/a", "", PERSISTENT).await.unwrap();
    // A server that has not applied both would report the delete.
    fixture.settle().await;
    outage.end().await;
    assert_eq!(kind(&mut data).await, EventType::NODE_DATA_CHANGED);
}

/// The watch reports changes since the zxid that the client knew before it lost the first
/// connection.
#[tokio::test]
async fn a_change_is_told_although_the_next_connections_are_lost_too() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    let other = fixture.client().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    let mut data = on_data(&client, "/a").await;
    let mut outage = Outage::begin(&proxy, &client).await;
    other.set_data("/a", "x", None).await.unwrap();
    proxy.resume();
    // Some of these cuts hit between the handshake and the reply to the restored watches.
    for _ in 0..10 {
        outage.before = reconnected(&client, outage.before).await;
        proxy.cut_all();
    }
    outage.end().await;
    assert_eq!(kind(&mut data).await, EventType::NODE_DATA_CHANGED);
}

#[tokio::test]
async fn own_changes_of_before_the_loss_do_not_fire_again() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    client.set_data("/a", "x", None).await.unwrap();
    client.create("/a/b", "", PERSISTENT).await.unwrap();
    let mut data = on_data(&client, "/a").await;
    let mut children = on_children(&client, "/a").await;
    Outage::begin(&proxy, &client).await.end().await;
    assert_silent(&client, &mut data).await;
    assert_silent(&client, &mut children).await;
}

#[tokio::test]
async fn a_watcher_dropped_during_the_loss_is_not_missed() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    let dropped = on_data(&client, "/a").await;
    let mut kept = on_children(&client, "/a").await;
    let outage = Outage::begin(&proxy, &client).await;
    drop(dropped);
    outage.end().await;
    client.set_data("/a", "x", None).await.unwrap();
    client.create("/a/b", "", PERSISTENT).await.unwrap();
    assert_eq!(kind(&mut kept).await, EventType::NODE_CHILDREN_CHANGED);
}

/// The watches have more paths than fit into one request that restores watches.
#[tokio::test]
async fn thousands_of_watches_are_restored() {
    let fixture = Fixture::start().await;
    let proxy = fixture.proxy().await;
    // A server may need more time to restore the watches than for a handshake.
    let builder = fixture.builder_at(proxy.addr()).connect_timeout(Duration::from_secs(2));
    let client = builder.connect().await.unwrap();
    let padding = "x".repeat(150);
    let path = |number: usize| format!("/{padding}-{number}");
    let reads: Vec<_> = (0..3000).map(|number| client.exists_and_watch(&path(number))).collect();
    let mut watchers = Vec::new();
    for read in reads {
        watchers.push(read.await.unwrap().1);
    }
    Outage::begin(&proxy, &client).await.end().await;
    for number in [0, 1, 1500, 2998, 2999] {
        let watcher = watchers.get_mut(number).unwrap();
        assert_silent(&client, watcher).await;
        client.create(&path(number), "", PERSISTENT).await.unwrap();
        assert_eq!(kind(watcher).await, EventType::NODE_CREATED);
    }
}
