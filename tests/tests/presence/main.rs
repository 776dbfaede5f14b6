//! Presences in virtual time: znodes that come back after deletions, expiries, refusals, strange
//! znodes and missing parents, cuts of the connection at every request, cancellation at every poll,
//! and costs. The suite of groups tests the same keeper as members.

mod cancelling;
mod costs;
mod cuts;
mod directories;
mod lasting;
mod obstacles;

use std::time::Duration;

use zk_recipes::{Client, Presence, PresenceBuilder, PresenceError, PresenceState, SessionId};
use zk_session::recipe::Session;
use zk_tests::world::{World, sleep_ms};

/// The parent of the znode.
const PARENT: &str = "/services/x";
/// The znode.
const PATH: &str = "/services/x/host-7";
/// Longer than a round trip, and shorter than any pause.
const AT_ONCE: Duration = Duration::from_millis(100);
/// The limit of virtual time of tests that wait for minutes.
const LONG: Duration = Duration::from_secs(1_200);

fn builder(client: &Client) -> PresenceBuilder {
    Presence::builder(client, PATH).expect("the path is valid")
}

async fn begin(client: &Client, data: &'static str) -> Presence {
    builder(client).begin(data).await.expect("nothing is in the way")
}

/// Creates the parent, so that a presence does not have to.
fn create_parent(world: &World) {
    for path in ["/services", PARENT] {
        world.server.admin_create(path, b"", None);
    }
}

/// The data of the znode and its owner, as the servers have them.
fn stored(world: &World) -> Option<(String, SessionId)> {
    let data = world.server.data(PATH)?;
    let owner = world.server.stat(PATH)?.ephemeral_owner;
    Some((String::from_utf8(data.to_vec()).expect("the data are text"), owner))
}

fn is_present(presence: &Presence) -> bool {
    matches!(presence.state(), PresenceState::Present { .. })
}

/// Waits until the znode is present, and returns how long that took.
async fn until_present(world: &World, client: &Client, presence: &mut Presence) -> Duration {
    let began = client.now();
    while !is_present(presence) {
        let changed = tokio::time::timeout(Duration::from_secs(60), presence.changed()).await;
        assert!(changed.is_ok(), "{presence:?}\n{}", world.trace());
    }
    client.now().saturating_since(began)
}

/// Checks that the presence says what the servers have, and returns its session.
fn check_honest(world: &World, presence: &Presence) -> SessionId {
    let state = presence.state();
    let PresenceState::Present { session, czxid, since } = state else { panic!("{state:?}") };
    let stat = world.server.stat(PATH).unwrap_or_else(|| panic!("absent\n{}", world.trace()));
    assert_eq!((stat.ephemeral_owner, stat.czxid), (session, czxid), "{}", world.trace());
    let since = since.duration_since(std::time::UNIX_EPOCH).expect("it is later");
    assert_eq!(i128::from(stat.ctime), since.as_millis() as i128);
    session
}

/// Waits for the end of all cleanup, and checks that no znode and no duty is left.
async fn check_clean(world: &World, clients: &[&Client]) {
    let is_busy = || clients.iter().any(|client| Session::of(client).janitor_slots_busy() > 0);
    for _ in 0..60_000 {
        if !is_busy() && stored(world).is_none() {
            break;
        }
        sleep_ms(1).await;
    }
    // A late commit becomes visible now: with time, or with the next write.
    sleep_ms(1_000).await;
    world.server.admin_create("/flush", b"", None);
    sleep_ms(1_000).await;
    assert!(stored(world).is_none(), "left behind\n{}", world.trace());
    assert!(!is_busy(), "unfinished duties\n{}", world.trace());
    world.check_history();
}

/// What `begin` returns while this session has the path.
fn taken(session: SessionId) -> PresenceError {
    PresenceError::Taken { path: PATH.to_owned(), session }
}
