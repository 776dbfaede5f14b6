//! Operations that settle, in virtual time: cuts of the connection at every request and event,
//! sessions that expire, futures that are dropped, refusals, and costs. The judge is the server:
//! what it has applied must be what the callers were told.

mod cancelling;
mod changes;
mod costs;
mod cuts;
mod expiry;
mod lagging;
mod refusals;
mod rows;
mod sequential;
mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use zk_recipes::{Client, SessionId, SettledClient};
use zk_tests::random::SplitMix64;
use zk_tests::scene::{FIRST, at_request};
use zk_tests::world::{World, session_of_first, sleep_ms};
use zk_testserver::{Action, ServerConfig, ServerVersion};

/// The directory of the markers. It and its parent are missing at first.
const MARKERS: &str = "/settled/markers";

/// The znode that operations are about.
const PATH: &str = "/data/x";

/// Longer than the session timeout.
const OUTAGE: Duration = Duration::from_secs(30);

/// A time in which each operation ends, in virtual time.
const PATIENCE: Duration = Duration::from_secs(60);

fn settled(client: &Client) -> SettledClient {
    SettledClient::new(client, MARKERS).expect("the path is valid").timeout(PATIENCE)
}

/// A world whose server sends the stats of what a transaction creates.
fn world() -> World {
    World::with(ServerConfig::default().version(ServerVersion::V3_9))
}

/// Creates the parent of the znode, and the directory of the markers.
fn create_directories(world: &World) {
    for path in ["/data", "/settled", MARKERS] {
        world.server.admin_create(path, b"", None);
    }
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

/// Moves the sessions of these clients, loses their requests or replies, and ends them now and then.
/// Some outages are longer than the session timeout.
async fn disturb(world: World, member: Arc<AtomicUsize>, clients: Vec<Client>, seed: u64) {
    let mut random = SplitMix64::new(seed);
    for _ in 0..40 {
        sleep_ms(random.below(40)).await;
        let number = random.below(clients.len() as u64) as usize;
        let client = clients.get(number).expect("the number is smaller");
        let Some(session) = client.session_id() else { continue };
        match random.below(16) {
            0 => world.server.expire(session),
            1..8 => {
                member.store(random.below(3) as usize, Ordering::SeqCst);
                world.server.disconnect_all();
            }
            _ => {
                let is_lost = random.below(2) == 0;
                let action = if is_lost { Action::CutBefore } else { Action::CutAfter };
                let mut cut = at_request(session, random.below(3) as usize, action);
                cut.refuse_for = (random.below(16) == 0).then_some(OUTAGE);
                world.server.inject(cut);
            }
        }
    }
    std::future::pending().await
}

/// Waits for the end of all cleanup, and checks that no marker is left. All handles must have been
/// dropped.
async fn check_clean(world: &World, clients: &[&Client]) {
    world.check_clean(clients).await;
    assert_eq!(world.server.ephemerals(), [], "markers are left\n{}", world.trace());
}
