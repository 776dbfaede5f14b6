//! The exclusive lock in a world in virtual time.

use jute_codec::{ErrorCode, OpCode};
use zk_recipes::{Client, ExclusiveLock};

use crate::world::{World, sleep_ms};

/// The znode of the lock under test.
pub const ZNODE: &str = "/locks/one";

/// The lock under test, without the safety timer that would hide a lost wake-up.
///
/// # Panics
///
/// Never: the options are legal.
pub fn lock(client: &Client) -> ExclusiveLock {
    ExclusiveLock::builder(client, ZNODE)
        .and_then(|lock| lock.safety_relist(None).build())
        .expect("the options are legal")
}

/// The session that holds the lock.
pub fn owner(world: &World) -> Option<i64> {
    world.server.stat(ZNODE).map(|stat| stat.ephemeral_owner)
}

/// Makes the directory, so that an acquire needs no round for it.
pub fn make_directory(world: &World) {
    world.server.admin_create("/locks", b"", None);
}

/// Lets cleanup come to its end and checks that nothing is left, and that nobody has deleted what
/// was somebody else's.
///
/// # Panics
///
/// If something is left, or was deleted by the wrong one.
pub async fn check_clean(world: &World, clients: &[&Client]) {
    for _ in 0..60_000 {
        let is_busy = clients.iter().any(|client| client.janitor_slots_busy() > 0);
        if !is_busy && owner(world).is_none() {
            break;
        }
        sleep_ms(1).await;
    }
    world.check_clean(clients).await;
    assert_eq!(owner(world), None, "an orphan\n{}", world.trace());
    check_history(world);
}

/// A delete is only ever by the session that owns the znode, and transactions only grow.
///
/// # Panics
///
/// If it is not so.
pub fn check_history(world: &World) {
    // What the test itself has made is anybody's.
    let mut owner = None;
    let mut newest = 0;
    let commits = world.server.commits().into_iter();
    for commit in commits.filter(|commit| commit.path.as_deref() == Some(ZNODE)) {
        if commit.error != ErrorCode::OK {
            continue;
        }
        assert!(commit.zxid > newest, "{commit:?}\n{}", world.trace());
        newest = commit.zxid;
        match commit.op {
            OpCode::CREATE | OpCode::CREATE2 => owner = Some(commit.session),
            OpCode::DELETE if commit.session != 0 && owner != Some(0) => {
                let whose = (commit.session, owner);
                assert_eq!(Some(whose.0), whose.1, "not its own\n{}", world.trace());
                owner = None;
            }
            OpCode::DELETE | OpCode::CLOSE_SESSION => owner = None,
            _ => {}
        }
    }
}
