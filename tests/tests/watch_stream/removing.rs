//! Watches that are removed and checked on request.

use zk_session::{
    CreateMode, ErrorCode, EventType, GapCause, WatchEnded, WatchItem, WatchMode, WatcherType,
};
use zk_tests::wait::{assert_silent, kind};
use zk_tests::world::run;

use crate::{VERSIONS, taken, world};

const TYPES: [WatcherType; 4] = [
    WatcherType::CHILDREN,
    WatcherType::DATA,
    WatcherType::PERSISTENT,
    WatcherType::PERSISTENT_RECURSIVE,
];

#[test]
fn a_removal_ends_the_watches_of_its_type_and_keeps_the_others() {
    run(async {
        for version in VERSIONS {
            for removed in TYPES {
                let world = world(version);
                let client = world.client(1).await;
                client.create("/a", "", CreateMode::Persistent).await.unwrap();
                let mut data = client.get_data_and_watch("/a").await.unwrap().1;
                let mut list = client.get_children_and_watch("/a").await.unwrap().1;
                let mut node = client.watch("/a", WatchMode::Persistent).await.unwrap();
                let mut tree = client.watch("/a", WatchMode::Recursive).await.unwrap();
                for kind in TYPES {
                    assert_eq!(client.check_watches("/a", kind).await, Ok(true));
                }
                client.remove_watches("/a", removed).await.unwrap();
                for kind in TYPES {
                    let is_left = client.check_watches("/a", kind).await;
                    assert_eq!(is_left, Ok(kind != removed), "{version:?} {removed:?}");
                }
                let again = client.remove_watches("/a", removed).await.unwrap_err();
                assert_eq!(again.server_code(), Some(ErrorCode::NO_WATCHER));

                client.create("/a/b", "", CreateMode::Persistent).await.unwrap();
                client.set_data("/a", "x", None).await.unwrap();
                if removed == WatcherType::DATA {
                    assert_eq!(data.changed().await, Err(WatchEnded::Removed));
                } else {
                    assert_eq!(kind(&mut data).await, EventType::NODE_DATA_CHANGED);
                }
                if removed == WatcherType::CHILDREN {
                    assert_eq!(list.changed().await, Err(WatchEnded::Removed));
                } else {
                    assert_eq!(kind(&mut list).await, EventType::NODE_CHILDREN_CHANGED);
                }
                for (stream, kind) in [
                    (&mut node, WatcherType::PERSISTENT),
                    (&mut tree, WatcherType::PERSISTENT_RECURSIVE),
                ] {
                    if removed == kind {
                        assert_eq!(stream.next().await, Err(WatchEnded::Removed));
                    } else {
                        let gap = WatchItem::Gap(GapCause::Reset);
                        assert_eq!(stream.next().await, Ok(gap));
                        let told = taken(&client, stream).await;
                        assert_eq!(told.last().unwrap(), "NODE_DATA_CHANGED /a");
                        assert!(told.len() >= 2, "{told:?}");
                    }
                }
                assert_eq!(client.status().connection, 1);
            }
        }
    });
}

#[test]
fn all_watches_of_a_path_can_be_removed_and_set_again() {
    run(async {
        for version in VERSIONS {
            let world = world(version);
            let client = world.client(1).await;
            let mut gone = client.exists_and_watch("/a").await.unwrap().1;
            let mut stream = client.watch("/a", WatchMode::Persistent).await.unwrap();
            let mut other = client.exists_and_watch("/b").await.unwrap().1;
            client.remove_watches("/a", WatcherType::ANY).await.unwrap();
            assert_eq!(gone.changed().await, Err(WatchEnded::Removed));
            assert_eq!(stream.next().await, Err(WatchEnded::Removed));
            assert_eq!(world.server.watch_count(), 1);
            let mut again = client.exists_and_watch("/a").await.unwrap().1;
            assert_silent(&client, &mut other).await;
            client.create("/a", "", CreateMode::Persistent).await.unwrap();
            assert_eq!(kind(&mut again).await, EventType::NODE_CREATED);
            assert_eq!(client.status().connection, 1);
        }
    });
}
