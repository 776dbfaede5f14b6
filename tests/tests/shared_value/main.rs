//! Shared values and counters in virtual time: cuts of the connection at every request and event,
//! sessions that expire, futures that are dropped, refusals, contention, and costs. Each fault is
//! injected exactly where it is meant to happen.

mod cancelling;
mod changes;
mod contention;
mod costs;
mod cuts;
mod expiry;
mod formats;
mod recreated;
mod refusals;

use std::time::Duration;

use zk_recipes::{Client, Counter, SessionId, SharedValue};
use zk_tests::scene::FIRST;
use zk_tests::world::{World, session_of_first, sleep_ms};

/// The znode of the value under test. Its ancestors are missing at first.
const PATH: &str = "/values/x";

/// A time in which each operation ends, in virtual time.
const PATIENCE: Duration = Duration::from_secs(60);

fn value(client: &Client) -> SharedValue {
    let builder = SharedValue::builder(client, PATH).expect("the path is valid");
    builder.initial("first").timeout(PATIENCE).build().expect("the options are legal")
}

fn counter(client: &Client) -> Counter {
    let builder = Counter::builder(client, PATH).expect("the path is valid");
    builder.timeout(PATIENCE).build().expect("the options are legal")
}

/// Creates the znode with this data.
fn create(world: &World, data: &str) {
    world.server.admin_create("/values", b"", None);
    world.server.admin_create(PATH, data.as_bytes(), None);
}

/// The data of the znode.
fn stored(world: &World) -> Option<String> {
    let data = world.server.data(PATH)?;
    Some(String::from_utf8(data.to_vec()).expect("the tests write text"))
}

/// Waits for the end of all cleanup, and checks that no marker is left.
async fn check_clean(world: &World, clients: &[&Client]) {
    world.check_clean(clients).await;
    assert_eq!(world.server.ephemerals(), [], "markers are left\n{}", world.trace());
    assert_eq!(world.server.children(PATH).unwrap_or_default(), [] as [&str; 0]);
}

/// The session of the first client, which is the same in every world.
fn first_session() -> Option<SessionId> {
    Some(session_of_first(FIRST))
}

/// Lets a late commit become visible.
async fn flush(world: &World) {
    sleep_ms(2_000).await;
    world.server.admin_create("/flushed", b"", None);
    sleep_ms(10).await;
}
