//! Named locks in virtual time: names, directories that are removed, interleavings, cuts,
//! cancellation and costs. The safety timer is off.

mod cancelling;
mod costs;
mod cuts;
mod interleavings;
mod losing;
mod names;
mod removing;

use zk_recipes::{Client, FairLock, Guard, NamedLocks};
use zk_tests::case::LOCK;
use zk_tests::world::{World, sleep_ms};

/// The root of the locks, so that the lock with the name `x` is the lock of the harness.
const ROOT: &str = "/locks";
const NAME: &str = "x";

fn named(client: &Client) -> NamedLocks {
    NamedLocks::builder(client, ROOT)
        .and_then(|builder| builder.watch_check(None).build())
        .expect("the options are legal")
}

/// Returns the lock under test.
fn lock(client: &Client) -> FairLock {
    named(client).lock(NAME).expect("the name is legal")
}

async fn hold(lock: &FairLock) -> Guard {
    lock.acquire().await.expect("the lock is free")
}

/// Waits for the end of all cleanup, and checks that neither a znode nor the directory is left.
async fn check_gone(world: &World, clients: &[&Client]) {
    for _ in 0..2_000 {
        if world.server.stat(LOCK).is_none() {
            break;
        }
        sleep_ms(1).await;
    }
    world.check_clean(clients).await;
    assert_eq!(world.server.stat(LOCK), None, "the directory is left\n{}", world.trace());
}
