//! Groups in virtual time: members that rejoin, streams of changes, cuts of the connection at every
//! request and event, cancellation at every poll, and costs. Each fault is injected exactly where
//! it is meant to happen.

mod costs;
mod cuts;
mod lagging;
mod membership;
mod permissions;
mod sources;
mod watching;

use std::time::Duration;

use jute_codec::{ErrorCode, OpCode};
use zk_recipes::{Client, Group, GroupChange, GroupWatch, Membership, MembershipState};
use zk_session::recipe::Session;
use zk_tests::world::{World, sleep_ms};
use zk_testserver::{Action, At, Fault, TestServer};

/// The directory of the group.
const GROUP: &str = "/services/x/members";

/// The group under test.
fn group(client: &Client) -> Group {
    Group::new(client, GROUP).expect("the options are legal")
}

/// A watch of the client, with or without data watches.
fn watch(client: &Client, watches_data: bool) -> GroupWatch {
    Group::builder(client, GROUP)
        .and_then(|group| group.watch_data(watches_data).build())
        .expect("the options are legal")
        .watch()
}

/// Makes the server refuse persistent watches this many times, as servers before 3.6 do.
fn refuse_persistent_watches(server: &TestServer, times: usize) {
    for _ in 0..times {
        let unknown = Action::Error(ErrorCode::UNIMPLEMENTED);
        server.inject(Fault::new(At::op(OpCode::ADD_WATCH), unknown));
    }
}

/// The path of a member.
fn path(id: &str) -> String {
    format!("{GROUP}/{id}")
}

/// Creates the directory, so that a join does not have to.
fn create_directory(world: &World) {
    for path in ["/services", "/services/x", GROUP] {
        world.server.admin_create(path, b"", None);
    }
}

/// Joins a group whose id is free.
async fn join(client: &Client, id: &str, data: &'static str) -> Membership {
    group(client).join(id, data).await.expect("the id is free")
}

/// Returns whether this process is a member.
fn is_member(membership: &Membership) -> bool {
    matches!(membership.state(), MembershipState::Member { .. })
}

/// The ids and data of the members, as the servers have them.
fn stored(world: &World) -> Vec<(String, String)> {
    let mut ids = world.server.children(GROUP).unwrap_or_default();
    ids.sort();
    let data = |id: &str| {
        let data = world.server.data(&path(id)).expect("it was listed");
        String::from_utf8(data.to_vec()).expect("the data are text")
    };
    ids.into_iter().map(|id| (data(&id), id)).map(|(data, id)| (id, data)).collect()
}

/// A change in a form that is easy to compare.
fn said(change: &GroupChange) -> String {
    let (what, member) = match change {
        GroupChange::Joined(member) => ("joined", member),
        GroupChange::Left(member) => ("left", member),
        GroupChange::Changed(member) => ("changed", member),
        _ => panic!("an unknown change"),
    };
    format!("{what} {} {}", member.id, String::from_utf8_lossy(&member.data))
}

/// The changes until nothing changes for five seconds.
async fn changes(watch: &mut GroupWatch) -> Vec<String> {
    let mut changes = Vec::new();
    while let Ok(change) = watch.next_within(Duration::from_secs(5)).await {
        changes.push(said(&change));
    }
    changes
}

/// Waits for the end of all cleanup, and checks that no member and no duty is left.
async fn check_clean(world: &World, clients: &[&Client]) {
    let is_busy = || clients.iter().any(|client| Session::of(client).janitor_slots_busy() > 0);
    for _ in 0..60_000 {
        if !is_busy() && stored(world).is_empty() {
            break;
        }
        sleep_ms(1).await;
    }
    // A late commit becomes visible now: with time, or with the next write.
    sleep_ms(1_000).await;
    world.server.admin_create("/flush", b"", None);
    sleep_ms(1_000).await;
    assert!(stored(world).is_empty(), "left behind: {:?}\n{}", stored(world), world.trace());
    assert!(!is_busy(), "unfinished duties\n{}", world.trace());
    world.check_history();
}
