//! Barriers in virtual time: cuts of the connection at every request and event, sessions that
//! expire, futures that are dropped, refusals, options, and costs.

mod changing;
mod costs;
mod options;
mod waiting;

use std::time::Duration;

use zk_recipes::{Barrier, Client, SessionId};
use zk_tests::scene::FIRST;
use zk_tests::world::{World, session_of_first, sleep_ms};

/// The znode of the barrier under test. Its directory is missing at first.
const PATH: &str = "/barriers/x";
/// Longer than the session timeout.
const OUTAGE: Duration = Duration::from_secs(30);

fn barrier(client: &Client) -> Barrier {
    Barrier::new(client, PATH).expect("the path is valid")
}

/// Closes the barrier as another client does.
fn close(world: &World) {
    if world.server.stat("/barriers").is_none() {
        world.server.admin_create("/barriers", b"", None);
    }
    world.server.admin_create(PATH, b"", None);
}

/// Opens the barrier as another client does.
fn open(world: &World) {
    assert!(world.server.admin_delete(PATH), "it is closed");
}

fn is_closed(world: &World) -> bool {
    world.server.stat(PATH).is_some()
}

/// Waits for the end of all cleanup, and checks that no marker is left.
async fn check_clean(world: &World, clients: &[&Client]) {
    world.check_clean(clients).await;
    assert_eq!(world.server.ephemerals(), [], "markers are left\n{}", world.trace());
    let mut others = world.server.children("/barriers").unwrap_or_default();
    others.retain(|name| name != "x");
    assert_eq!(others, [] as [&str; 0]);
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
