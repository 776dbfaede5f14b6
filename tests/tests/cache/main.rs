//! Caches on a paused clock: what they show, wherever the connection is lost.

#![expect(clippy::unwrap_used, reason = "helpers fail by a panic, as the tests they serve do")]

mod basics;
mod costs;
mod history;
mod lagging;
mod limits;
mod losing;
mod unreadable;

use std::collections::BTreeMap;
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode};
use zk_recipes::{Cache, CacheError, CacheEvent};
use zk_testserver::{Action, At, Fault, TestServer};

/// Children of the root, as many as are read together.
const WIDE: [&str; 16] = [
    "/t/0", "/t/1", "/t/2", "/t/3", "/t/4", "/t/5", "/t/6", "/t/7", "/t/8", "/t/9", "/t/10",
    "/t/11", "/t/12", "/t/13", "/t/14", "/t/15",
];

/// Makes the server refuse persistent watches this many times, as servers before 3.6 do.
fn refuse_persistent_watches(server: &TestServer, times: usize) {
    for _ in 0..times {
        let unknown = Action::Error(ErrorCode::UNIMPLEMENTED);
        server.inject(Fault::new(At::op(OpCode::ADD_WATCH), unknown));
    }
}

/// Takes all changes that arrive within a time, in virtual time.
async fn settle(cache: &mut Cache, ms: u64) -> Result<Vec<CacheEvent>, CacheError> {
    let mut events = Vec::new();
    while let Ok(event) = tokio::time::timeout(Duration::from_millis(ms), cache.next()).await {
        events.push(event?);
    }
    Ok(events)
}

/// Returns the data by path that the cache shows.
fn shown(cache: &Cache) -> BTreeMap<String, String> {
    let text = |data: &[u8]| String::from_utf8_lossy(data).into_owned();
    cache.iter().map(|(path, node)| (path.to_string(), text(&node.data))).collect()
}

/// Returns the data by path that the server has at a path and below it.
fn actual(server: &TestServer, root: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut paths = vec![root.to_owned()];
    while let Some(path) = paths.pop() {
        let Some(data) = server.data(&path) else { continue };
        for name in server.children(&path).unwrap_or_default() {
            paths.push(format!("{}/{name}", path.trim_end_matches('/')));
        }
        all.insert(path, String::from_utf8_lossy(&data).into_owned());
    }
    all
}
