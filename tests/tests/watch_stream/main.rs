//! Streams of persistent watches on a paused clock, with servers of both kinds: before 3.9 a
//! connection has one kind of watch per path, and since then it can have all of them.

#![expect(clippy::unwrap_used, reason = "helpers fail by a panic, as the tests they serve do")]

mod losing;
mod removing;
mod sharing;

use zk_recipes::Client;
use zk_session::{WatchItem, WatchStream};
use zk_tests::world::World;
use zk_testserver::{ServerConfig, ServerVersion};

const VERSIONS: [ServerVersion; 2] = [ServerVersion::V3_8, ServerVersion::V3_9];

fn world(version: ServerVersion) -> World {
    World::with(ServerConfig::default().version(version))
}

/// Takes everything that has arrived so far, as types and paths of events, or gaps.
async fn taken(client: &Client, stream: &mut WatchStream) -> Vec<String> {
    client.sync("/").await.unwrap();
    let mut all = Vec::new();
    while let Some(item) = stream.try_next().unwrap() {
        all.push(match item {
            WatchItem::Event(event) => format!("{:?} {}", event.kind, event.path),
            WatchItem::Gap(cause) => format!("{cause:?}"),
            other => format!("{other:?}"),
        });
    }
    all
}
