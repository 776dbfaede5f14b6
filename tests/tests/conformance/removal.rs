//! Watches of every kind that are checked and removed on request.

use zk_session::{
    Client, CreateMode, ErrorCode, EventType, WatchEnded, WatchItem, WatchMode, WatchStream,
    WatcherType,
};
use zk_tests::target::Fixture;
use zk_tests::wait::{assert_silent, item, kind, soon};

const PERSISTENT: CreateMode = CreateMode::Persistent;

/// Takes items until the event of the data. Removing some kinds of watches sets the others again,
/// which streams report as a gap.
async fn until_changed(stream: &mut WatchStream) {
    loop {
        match item(stream).await {
            WatchItem::Event(event) if event.kind == EventType::NODE_DATA_CHANGED => return,
            WatchItem::Event(_) | WatchItem::Gap(_) | _ => {}
        }
    }
}

async fn are_left(client: &Client, kinds: &[WatcherType]) -> Vec<bool> {
    let mut left = Vec::new();
    for kind in kinds {
        left.push(client.check_watches("/a", *kind).await.unwrap());
    }
    left
}

#[tokio::test]
async fn a_removal_ends_the_watches_of_its_kind_and_keeps_the_others() {
    let kinds = [
        WatcherType::CHILDREN,
        WatcherType::DATA,
        WatcherType::PERSISTENT,
        WatcherType::PERSISTENT_RECURSIVE,
    ];
    for removed in kinds {
        let fixture = Fixture::start().await;
        let client = fixture.client().await;
        assert_eq!(client.check_watches("/a", removed).await, Ok(false));
        let error = client.remove_watches("/a", removed).await.unwrap_err();
        assert_eq!(error.server_code(), Some(ErrorCode::NO_WATCHER), "{removed:?}");

        client.create("/a", "", PERSISTENT).await.unwrap();
        let mut data = client.get_data_and_watch("/a").await.unwrap().1;
        let mut existence = client.exists_and_watch("/a").await.unwrap().1;
        let mut list = client.get_children_and_watch("/a").await.unwrap().1;
        let mut node = client.watch("/a", WatchMode::Persistent).await.unwrap();
        let mut tree = client.watch("/a", WatchMode::Recursive).await.unwrap();
        assert_eq!(are_left(&client, &kinds).await, [true; 4]);
        client.remove_watches("/a", removed).await.unwrap();
        assert_eq!(are_left(&client, &kinds).await, kinds.map(|kind| kind != removed));
        let again = client.remove_watches("/a", removed).await.unwrap_err();
        assert_eq!(again.server_code(), Some(ErrorCode::NO_WATCHER), "{removed:?}");

        client.create("/a/b", "", PERSISTENT).await.unwrap();
        client.set_data("/a", "x", None).await.unwrap();
        for watcher in [&mut data, &mut existence] {
            if removed == WatcherType::DATA {
                assert_eq!(soon("the end", watcher.changed()).await, Err(WatchEnded::Removed));
            } else {
                assert_eq!(kind(watcher).await, EventType::NODE_DATA_CHANGED);
            }
        }
        if removed == WatcherType::CHILDREN {
            assert_eq!(soon("the end", list.changed()).await, Err(WatchEnded::Removed));
        } else {
            assert_eq!(kind(&mut list).await, EventType::NODE_CHILDREN_CHANGED);
        }
        let streams =
            [(&mut node, WatcherType::PERSISTENT), (&mut tree, WatcherType::PERSISTENT_RECURSIVE)];
        for (stream, kind) in streams {
            if removed == kind {
                assert_eq!(soon("the end", stream.next()).await, Err(WatchEnded::Removed));
            } else {
                until_changed(stream).await;
            }
        }
        assert_eq!(client.status().connection, 1);
    }
}

#[tokio::test]
async fn all_watches_of_a_path_can_be_removed_and_set_again() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let mut gone = client.exists_and_watch("/a").await.unwrap().1;
    let mut stream = client.watch("/a", WatchMode::Persistent).await.unwrap();
    let mut tree = client.watch("/a", WatchMode::Recursive).await.unwrap();
    let mut other = client.exists_and_watch("/b").await.unwrap().1;
    assert_eq!(client.check_watches("/a", WatcherType::ANY).await, Ok(true));
    client.remove_watches("/a", WatcherType::ANY).await.unwrap();
    assert_eq!(client.check_watches("/a", WatcherType::ANY).await, Ok(false));
    let error = client.remove_watches("/a", WatcherType::ANY).await.unwrap_err();
    assert_eq!(error.server_code(), Some(ErrorCode::NO_WATCHER));
    assert_eq!(soon("the end", gone.changed()).await, Err(WatchEnded::Removed));
    assert_eq!(soon("the end", stream.next()).await, Err(WatchEnded::Removed));
    assert_eq!(soon("the end", tree.next()).await, Err(WatchEnded::Removed));
    let mut again = client.exists_and_watch("/a").await.unwrap().1;
    assert_silent(&client, &mut other).await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    assert_eq!(kind(&mut again).await, EventType::NODE_CREATED);
    client.create("/b", "", PERSISTENT).await.unwrap();
    assert_eq!(kind(&mut other).await, EventType::NODE_CREATED);
    assert_eq!(client.status().connection, 1);
}
