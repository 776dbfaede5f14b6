//! Watches of several kinds on one path, and their removal.

use std::time::Duration;

use jute_codec::OpCode;
use zk_session::{CreateMode, EventType, WatchMode, WatchOptions};
use zk_tests::meter::Pace;
use zk_tests::wait::{assert_silent, kind};
use zk_tests::world::{World, run, sleep_ms};

use crate::{VERSIONS, taken, world};

const PERSISTENT: CreateMode = CreateMode::Persistent;

fn sent(world: &World, op: OpCode) -> usize {
    world.server.requests().iter().filter(|request| request.op == op).count()
}

#[test]
fn no_order_of_watches_on_one_path_loses_an_event() {
    run(async {
        // Each digit sets another watch. All orders of five watches are tried.
        let mut orders = 0;
        for version in VERSIONS {
            for order in permutations(5) {
                orders += 1;
                let world = world(version);
                let client = world.client(1).await;
                client.create("/a", "", PERSISTENT).await.unwrap();
                let (mut node, mut tree) = (None, None);
                let (mut data, mut exists, mut children) = (None, None, None);
                for digit in &order {
                    match digit {
                        0 => node = Some(client.watch("/a", WatchMode::Persistent).await.unwrap()),
                        1 => tree = Some(client.watch("/a", WatchMode::Recursive).await.unwrap()),
                        2 => data = Some(client.get_data_and_watch("/a").await.unwrap().1),
                        3 => exists = Some(client.exists_and_watch("/a").await.unwrap().1),
                        _ => children = Some(client.get_children_and_watch("/a").await.unwrap().1),
                    }
                }
                let (mut node, mut tree) = (node.unwrap(), tree.unwrap());
                client.create("/a/b", "", PERSISTENT).await.unwrap();
                assert_eq!(kind(&mut children.unwrap()).await, EventType::NODE_CHILDREN_CHANGED);
                let (mut data, mut exists) = (data.unwrap(), exists.unwrap());
                assert_silent(&client, &mut data).await;
                assert_silent(&client, &mut exists).await;
                assert_eq!(taken(&client, &mut tree).await, ["NODE_CREATED /a/b"]);
                for _ in 0..2 {
                    client.set_data("/a", "x", None).await.unwrap();
                    assert_eq!(taken(&client, &mut tree).await, ["NODE_DATA_CHANGED /a"]);
                }
                assert_eq!(kind(&mut data).await, EventType::NODE_DATA_CHANGED);
                assert_eq!(kind(&mut exists).await, EventType::NODE_DATA_CHANGED);
                client.delete("/a/b", None).await.unwrap();
                client.delete("/a", None).await.unwrap();
                let told = taken(&client, &mut node).await;
                let lists = told.iter().filter(|told| *told == "NODE_CHILDREN_CHANGED /a").count();
                assert!((2..=4).contains(&lists), "{version:?} {order:?}: {told:?}");
                assert_eq!(told.last().unwrap(), "NODE_DELETED /a");
                assert_eq!(
                    taken(&client, &mut tree).await,
                    ["NODE_DELETED /a/b", "NODE_DELETED /a"]
                );
            }
        }
        assert_eq!(orders, 240);
    });
}

/// Returns all orders of the numbers below `count`.
fn permutations(count: usize) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for next in 0..count {
        let insert = |order: Vec<usize>| {
            (0..=order.len()).map(move |at| {
                let mut longer = order.clone();
                longer.insert(at, next);
                longer
            })
        };
        all = all.into_iter().flat_map(insert).collect();
    }
    all
}

#[test]
fn the_last_stream_removes_the_watch_of_the_server() {
    run(async {
        for version in VERSIONS {
            for mode in [WatchMode::Persistent, WatchMode::Recursive] {
                let world = world(version);
                let client = world.client(1).await;
                let (first, second) = (
                    client.watch("/a", mode).await.unwrap(),
                    client.watch("/a", mode).await.unwrap(),
                );
                drop(first);
                client.sync("/").await.unwrap();
                assert_eq!(world.server.watch_count(), 1);
                drop(second);
                client.sync("/").await.unwrap();
                assert_eq!(world.server.watch_count(), 0);
                assert_eq!(sent(&world, OpCode::REMOVE_WATCHES), 1);
            }
        }
    });
}

/// The server would remove the one-shot watch too, and its owner would wait for ever.
#[test]
fn dropping_a_stream_never_removes_a_one_shot_watch() {
    run(async {
        for version in VERSIONS {
            for is_answered in [false, true] {
                let world = world(version);
                let client = world.client(1).await;
                client.create("/a", "", PERSISTENT).await.unwrap();
                let stream = client.watch("/a", WatchMode::Persistent).await.unwrap();
                let read = client.get_data_and_watch("/a");
                let mut watcher = if is_answered {
                    let (_, watcher) = read.await.unwrap();
                    drop(stream);
                    watcher
                } else {
                    drop(stream);
                    read.await.unwrap().1
                };
                assert_silent(&client, &mut watcher).await;
                client.set_data("/a", "x", None).await.unwrap();
                assert_eq!(kind(&mut watcher).await, EventType::NODE_DATA_CHANGED);
                client.sync("/").await.unwrap();
                assert_eq!(world.server.watch_count(), 0, "then it is removed");
            }
        }
    });
}

/// More removals at once than requests may be in flight.
#[test]
fn streams_that_are_dropped_together_leave_no_watch_at_the_server() {
    const STREAMS: usize = 10_000;
    run(async {
        let world = World::new().pace(Pace::CALM.beside(30_000));
        let client = world.client(1).await;
        let mut streams = Vec::new();
        for number in 0..STREAMS {
            let path = format!("/a-rather-long-path-of-a-znode-that-is-watched/{number}");
            streams.push(client.watch(&path, WatchMode::Persistent).await.unwrap());
        }
        let before = world.server.watch_count();
        assert!(before >= STREAMS, "{before}");
        // The server does not reply, so the connection is soon full.
        world.server.pause(Duration::from_millis(300));
        drop(streams);
        sleep_ms(1_000).await;
        assert_eq!(world.server.watch_count(), 0);
        assert_eq!(sent(&world, OpCode::REMOVE_WATCHES), STREAMS, "each is removed once");
    });
}

#[test]
fn a_watch_whose_future_was_dropped_is_removed() {
    run(async {
        for version in VERSIONS {
            let world = world(version);
            let client = world.client(1).await;
            let mut watch = client.watch("/a", WatchMode::Persistent);
            assert!(zk_tests::wait::now(&mut watch).is_none());
            tokio::task::yield_now().await;
            drop(watch);
            sleep_ms(10).await;
            assert_eq!(world.server.watch_count(), 0);
            assert_eq!(client.status().connection, 1);
        }
    });
}

#[test]
fn an_unread_stream_is_bounded_and_disturbs_no_other() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let options = WatchOptions::new(WatchMode::Recursive).capacity(10);
        let mut small = client.watch("/", options).await.unwrap();
        let mut large = client.watch("/", WatchMode::Recursive).await.unwrap();
        for number in 0..25 {
            client.create(&format!("/{number}"), "", PERSISTENT).await.unwrap();
        }
        assert_eq!(taken(&client, &mut large).await.len(), 25);
        let told = taken(&client, &mut small).await;
        assert_eq!(told.first().map(String::as_str), Some("Overflow"));
        assert_eq!(told.last().map(String::as_str), Some("NODE_CREATED /24"));
        assert!(told.len() <= 10, "{told:?}");
        assert_eq!((small.overflows(), large.overflows()), (2, 0));
    });
}
