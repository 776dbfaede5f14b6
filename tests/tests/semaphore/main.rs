//! The semaphore in virtual time: who holds a permit, in every order; the stored number of permits;
//! and costs. Each fault is injected exactly where it is meant to happen, and the safety timer is
//! off. The suites that run with every lock test a semaphore with one permit, and
//! `tests/exhaustive/tests/enumeration/semaphore.rs` cuts the connections of one with several.

mod costs;
mod number;
mod orders;
mod timeouts;
mod wide;

use zk_recipes::{Client, PermitGuard, Semaphore, kind};
use zk_tests::case::{LOCK, OnePermit};
use zk_tests::scene::{self, start_waiting};
use zk_tests::world::World;

/// An acquire that runs as a task.
type Waiter = scene::Waiter<kind::Permit>;

/// The semaphore under test, as a client with this number of permits uses it.
fn semaphore(client: &Client, permits: u32) -> Semaphore {
    Semaphore::builder(client, LOCK)
        .and_then(|builder| builder.permits(permits).watch_check(None).build())
        .expect("the options are legal")
}

/// Acquires a permit that is free.
async fn hold(semaphore: &Semaphore) -> PermitGuard {
    semaphore.acquire().await.expect("a permit is free")
}

/// Starts to wait for a permit, and returns when the contender waits.
async fn queue_up(world: &World, semaphore: &Semaphore) -> Waiter {
    start_waiting(world, semaphore.acquire()).await
}

/// Creates the directory as somebody does who knows nothing of the semaphore: without data.
fn create_directory(world: &World) {
    scene::create_directory::<OnePermit>(world);
}

/// The data of the directory.
fn stored(world: &World) -> Option<String> {
    let data = world.server.data(LOCK)?;
    Some(String::from_utf8(data.to_vec()).expect("the number is text"))
}
