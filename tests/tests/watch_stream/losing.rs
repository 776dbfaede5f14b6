//! Streams whose connection is lost at any request, reply or event, and streams whose session ends.

use jute_codec::OpCode;
use zk_session::{CreateMode, EventType, OpError, SessionState, WatchEnded, WatchItem, WatchMode};
use zk_tests::wait::status;
use zk_tests::world::{Enumeration, World, run, sleep_ms};
use zk_testserver::{Action, At, Fault};

use crate::{VERSIONS, world};

const PERSISTENT: CreateMode = CreateMode::Persistent;

/// A reader that reads again after each item knows the newest state, wherever the connection is
/// lost.
#[test]
fn no_change_is_missed_wherever_the_connection_is_lost() {
    for version in VERSIONS {
        for mode in [WatchMode::Persistent, WatchMode::Recursive] {
            let scenario = |faults: Vec<Fault>| {
                run(async {
                    let world = world(version);
                    let client = world.client(1).await;
                    world.server.admin_create("/a", b"0", None);
                    world.inject(faults);
                    let mut stream = loop {
                        match client.watch("/a", mode).await {
                            Ok(stream) => break stream,
                            Err(OpError::ConnectionLoss { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    };
                    // A one-shot watch of the same path is lost and restored with it.
                    let mut one_shot = loop {
                        match client.get_data_and_watch("/a").await {
                            Ok((_, watcher)) => break watcher,
                            Err(OpError::ConnectionLoss { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    };
                    let mut known = String::new();
                    for value in 1..=3 {
                        let value = value.to_string();
                        world.server.admin_set_data("/a", value.as_bytes());
                        while known != value {
                            if known.is_empty() {
                                known = "0".to_owned();
                            }
                            stream.next().await.expect("the session lives on");
                            if let Ok((data, _)) = client.get_data("/a").await {
                                known = String::from_utf8(data.to_vec()).unwrap();
                            } else {
                                // The connection is lost, so a gap follows.
                            }
                        }
                    }
                    let fired = one_shot.changed().await.expect("the session lives on");
                    assert_eq!(fired.kind, EventType::NODE_DATA_CHANGED);
                    world.ran()
                })
            };
            let mut enumeration = Enumeration::new(format!("{mode:?} {version:?}"), None);
            enumeration.run(&scenario);
            assert!(enumeration.is_complete(30, 500), "{enumeration:?}");
        }
    }
}

#[test]
fn a_stream_ends_with_its_session() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let mut stream = client.watch("/a", WatchMode::Persistent).await.unwrap();
        let first = client.session_id();
        world.server.expire(first.unwrap());
        assert_eq!(stream.next().await, Err(WatchEnded::SessionExpired));
        status(&client, "another session", |now| {
            now.session.is_some() && now.session != first && now.state == SessionState::Connected
        })
        .await;
        assert_eq!(world.server.watch_count(), 0);
        // The next session has its own.
        let mut next = client.watch("/a", WatchMode::Persistent).await.unwrap();
        client.create("/a", "", PERSISTENT).await.unwrap();
        assert!(matches!(next.next().await, Ok(WatchItem::Event(_))));
        assert_eq!(stream.next().await, Err(WatchEnded::SessionExpired));
    });
}

#[test]
fn a_server_that_knows_no_persistent_watches_says_so_and_is_asked_once() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let stream = client.watch("/a", WatchMode::Persistent).await.unwrap();
        let refuse =
            |op| Fault::new(At::op(op), Action::Error(jute_codec::ErrorCode::UNIMPLEMENTED));
        world.inject(vec![refuse(OpCode::SET_WATCHES2), refuse(OpCode::ADD_WATCH)]);
        world.server.disconnect_all();
        let mut stream = stream;
        assert_eq!(stream.next().await.map(|item| matches!(item, WatchItem::Gap(_))), Ok(true));
        assert_eq!(stream.next().await, Err(WatchEnded::Unsupported));
        let refused = client.watch("/a", WatchMode::Persistent).await;
        assert!(matches!(refused.map(drop), Err(OpError::Unsupported { .. })));
        sleep_ms(60_000).await;
        assert_eq!(client.state(), SessionState::Connected);
        let asked = world.server.requests();
        let asked = asked.iter().filter(|request| request.op == OpCode::SET_WATCHES2).count();
        assert_eq!(asked, 1);
    });
}
