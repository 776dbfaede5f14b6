//! Operations that settle, in virtual time: refusals and costs. The judge is the server: what it has
//! applied must be what the callers were told.

mod costs;
mod refusals;

use std::time::Duration;

use zk_recipes::{Client, SettledClient};
use zk_tests::world::World;

/// The directory of the markers. It and its parent are missing at first.
const MARKERS: &str = "/settled/markers";

/// The znode that operations are about.
const PATH: &str = "/data/x";

/// A time in which each operation ends, in virtual time.
const PATIENCE: Duration = Duration::from_secs(60);

fn settled(client: &Client) -> SettledClient {
    SettledClient::new(client, MARKERS).expect("the path is valid").timeout(PATIENCE)
}

/// Creates the parent of the znode, and the directory of the markers.
fn create_directories(world: &World) {
    for path in ["/data", "/settled", MARKERS] {
        world.server.admin_create(path, b"", None);
    }
}

/// Waits for the end of all cleanup, and checks that no marker is left. All handles must have been
/// dropped.
async fn check_clean(world: &World, clients: &[&Client]) {
    world.check_clean(clients).await;
    assert_eq!(world.server.ephemerals(), [], "markers are left\n{}", world.trace());
}
