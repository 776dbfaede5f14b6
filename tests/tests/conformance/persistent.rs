//! Persistent watches: which changes they report, and what they share a path with.

use zk_session::{
    Client, CreateMode, EventType, GapCause, Multi, WatchEnded, WatchItem, WatchMode, WatchStream,
};
use zk_tests::target::Fixture;
use zk_tests::wait::{assert_idle, assert_silent, change, item, kind, soon};

use crate::restore::Outage;

const PERSISTENT: CreateMode = CreateMode::Persistent;
const CREATED: EventType = EventType::NODE_CREATED;
const DELETED: EventType = EventType::NODE_DELETED;
const CHANGED: EventType = EventType::NODE_DATA_CHANGED;
const CHILDREN: EventType = EventType::NODE_CHILDREN_CHANGED;
const GAP: WatchItem = WatchItem::Gap(GapCause::Reconnected);

async fn persistent(client: &Client, path: &str) -> WatchStream {
    client.watch(path, WatchMode::Persistent).await.unwrap()
}

async fn recursive(client: &Client, path: &str) -> WatchStream {
    client.watch(path, WatchMode::Recursive).await.unwrap()
}

async fn changes<const N: usize>(stream: &mut WatchStream) -> [(EventType, String); N] {
    let mut all = Vec::new();
    for _ in 0..N {
        all.push(change(stream).await);
    }
    all.try_into().unwrap()
}

fn event(kind: EventType, path: &str) -> (EventType, String) {
    (kind, path.to_owned())
}

#[tokio::test]
async fn a_persistent_watch_reports_every_change_of_the_znode_and_of_its_list_of_children() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let mut stream = persistent(&client, "/a").await;
    for _ in 0..2 {
        client.create("/a", "", PERSISTENT).await.unwrap();
        client.set_data("/a", "1", None).await.unwrap();
        client.set_data("/a", "2", None).await.unwrap();
        client.create("/a/b", "", PERSISTENT).await.unwrap();
        client.create("/a/b/deep", "", PERSISTENT).await.unwrap();
        client.set_data("/a/b", "x", None).await.unwrap();
        client.delete("/a/b/deep", None).await.unwrap();
        client.delete("/a/b", None).await.unwrap();
        client.delete("/a", None).await.unwrap();
        let expected = [CREATED, CHANGED, CHANGED, CHILDREN, CHILDREN, DELETED];
        assert_eq!(changes(&mut stream).await, expected.map(|kind| event(kind, "/a")));
        assert_idle(&client, &mut stream).await;
    }
}

#[tokio::test]
async fn a_recursive_watch_reports_every_descendant_and_no_list_of_children() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let mut stream = recursive(&client, "/a").await;
    // A one-shot watch makes the server send the event of the list.
    client.create("/a", "", PERSISTENT).await.unwrap();
    let mut list = client.get_children_and_watch("/a").await.unwrap().1;
    client.create("/a/b", "", PERSISTENT).await.unwrap();
    client.create("/a/b/c", "", PERSISTENT).await.unwrap();
    client.create("/ab", "", PERSISTENT).await.unwrap();
    client.set_data("/a/b/c", "x", None).await.unwrap();
    client.delete("/a/b/c", None).await.unwrap();
    client.delete("/a/b", None).await.unwrap();
    client.delete("/a", None).await.unwrap();
    let expected = [
        event(CREATED, "/a"),
        event(CREATED, "/a/b"),
        event(CREATED, "/a/b/c"),
        event(CHANGED, "/a/b/c"),
        event(DELETED, "/a/b/c"),
        event(DELETED, "/a/b"),
        event(DELETED, "/a"),
    ];
    assert_eq!(changes(&mut stream).await, expected);
    assert_eq!(kind(&mut list).await, CHILDREN);
    assert_idle(&client, &mut stream).await;
}

#[tokio::test]
async fn events_of_a_multi_are_separate_items_in_its_order() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let mut stream = recursive(&client, "/").await;
    let multi = Multi::new()
        .create("/a", "", PERSISTENT)
        .set_data("/a", "x", None)
        .create("/a/b", "", PERSISTENT)
        .delete("/a/b", None);
    client.commit(multi).await.unwrap();
    let expected = [
        event(CREATED, "/a"),
        event(CHANGED, "/a"),
        event(CREATED, "/a/b"),
        event(DELETED, "/a/b"),
    ];
    assert_eq!(changes(&mut stream).await, expected);
    client.set_data("/", "root", None).await.unwrap();
    assert_eq!(change(&mut stream).await, event(CHANGED, "/"));
}

#[tokio::test]
async fn one_shot_watches_and_streams_of_one_path_do_not_disturb_each_other() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    for mode in [WatchMode::Persistent, WatchMode::Recursive] {
        let is_persistent = mode == WatchMode::Persistent;
        // Set before the stream, with it, and after it.
        let mut before = client.get_children_and_watch("/a").await.unwrap().1;
        let set = client.watch("/a", mode);
        let with = client.get_data_and_watch("/a");
        let mut stream = set.await.unwrap();
        let mut with = with.await.unwrap().1;
        let mut after = client.exists_and_watch("/a").await.unwrap().1;
        for _ in 0..3 {
            client.set_data("/a", "x", None).await.unwrap();
            assert_eq!(change(&mut stream).await, event(CHANGED, "/a"));
        }
        assert_eq!((kind(&mut with).await, kind(&mut after).await), (CHANGED, CHANGED));
        assert_silent(&client, &mut before).await;
        client.create("/a/b", "", PERSISTENT).await.unwrap();
        assert_eq!(kind(&mut before).await, CHILDREN);
        let mut again = client.get_children_and_watch("/a").await.unwrap().1;
        client.delete("/a/b", None).await.unwrap();
        assert_eq!(kind(&mut again).await, CHILDREN);
        let expected = if is_persistent {
            [event(CHILDREN, "/a"), event(CHILDREN, "/a")]
        } else {
            [event(CREATED, "/a/b"), event(DELETED, "/a/b")]
        };
        assert_eq!(changes(&mut stream).await, expected);
        // The streams have left, and a one-shot watch is one.
        let mut last = client.get_data_and_watch("/a").await.unwrap().1;
        drop(stream);
        client.set_data("/a", "y", None).await.unwrap();
        assert_eq!(kind(&mut last).await, CHANGED);
        assert_idle(&client, &mut recursive(&client, "/a").await).await;
    }
    assert_eq!(client.status().connection, 1);
}

#[tokio::test]
async fn streams_of_both_modes_share_a_path() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let mut first = persistent(&client, "/a").await;
    let mut tree = recursive(&client, "/a").await;
    let mut second = persistent(&client, "/a").await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    client.set_data("/a", "x", None).await.unwrap();
    client.create("/a/b", "", PERSISTENT).await.unwrap();
    let [created, changed, child] = changes(&mut tree).await;
    let expected = [event(CREATED, "/a"), event(CHANGED, "/a"), event(CREATED, "/a/b")];
    assert_eq!([created, changed, child], expected);
    for stream in [&mut first, &mut second] {
        let expected = [event(CREATED, "/a"), event(CHANGED, "/a"), event(CHILDREN, "/a")];
        assert_eq!(changes(stream).await, expected);
    }
    drop(tree);
    client.delete("/a/b", None).await.unwrap();
    assert_eq!(change(&mut first).await.0, CHILDREN);
}

#[tokio::test]
async fn a_dropped_stream_takes_nothing_from_the_others() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let dropped = persistent(&client, "/a").await;
    let mut kept = persistent(&client, "/a").await;
    drop(dropped);
    client.create("/a", "", PERSISTENT).await.unwrap();
    assert_eq!(change(&mut kept).await, event(CREATED, "/a"));
    drop(kept);
    let mut next = persistent(&client, "/a").await;
    client.delete("/a", None).await.unwrap();
    assert_eq!(change(&mut next).await, event(DELETED, "/a"));
    assert_eq!(client.status().connection, 1);
}

#[tokio::test]
async fn streams_survive_reconnects_with_a_gap() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    let other = fixture.client().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    let mut node = persistent(&client, "/a").await;
    let mut tree = recursive(&client, "/").await;
    for round in 0..2 {
        let outage = Outage::begin(&proxy, &client).await;
        other.set_data("/a", "missed", None).await.unwrap();
        // A server that applies the change only after the reconnect would report it.
        fixture.settle().await;
        outage.end().await;
        assert_eq!((item(&mut node).await, item(&mut tree).await), (GAP, GAP));
        client.set_data("/a", format!("{round}"), None).await.unwrap();
        assert_eq!(change(&mut node).await, event(CHANGED, "/a"));
        assert_eq!(change(&mut tree).await, event(CHANGED, "/a"));
        assert_idle(&client, &mut node).await;
    }
}

#[tokio::test]
async fn all_kinds_of_watches_on_one_path_survive_a_reconnect() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    for mode in [WatchMode::Persistent, WatchMode::Recursive] {
        let mut stream = client.watch("/a", mode).await.unwrap();
        let mut data = client.get_data_and_watch("/a").await.unwrap().1;
        let mut children = client.get_children_and_watch("/a").await.unwrap().1;
        Outage::begin(&proxy, &client).await.end().await;
        assert_eq!(item(&mut stream).await, GAP);
        assert_silent(&client, &mut data).await;
        assert_silent(&client, &mut children).await;
        client.set_data("/a", "x", None).await.unwrap();
        client.create("/a/b", "", PERSISTENT).await.unwrap();
        assert_eq!((kind(&mut data).await, kind(&mut children).await), (CHANGED, CHILDREN));
        client.set_data("/a", "y", None).await.unwrap();
        client.delete("/a/b", None).await.unwrap();
        let told: [_; 4] = changes(&mut stream).await;
        let kinds = told.map(|(kind, _)| kind);
        if mode == WatchMode::Persistent {
            assert_eq!(kinds, [CHANGED, CHILDREN, CHANGED, CHILDREN]);
        } else {
            assert_eq!(kinds, [CHANGED, CREATED, CHANGED, DELETED]);
        }
    }
}

#[tokio::test]
async fn streams_end_with_their_client() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let mut stream = persistent(&client, "/a").await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    client.close().await;
    assert_eq!(change(&mut stream).await, event(CREATED, "/a"));
    for _ in 0..2 {
        assert_eq!(soon("the end", stream.next()).await, Err(WatchEnded::Closed));
    }
}
