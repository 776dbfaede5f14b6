//! The multi-lock in virtual time: order, failures at every position, losses, cancellation, cuts
//! and costs. The safety timer is off.

mod cancelling;
mod costs;
mod cuts;
mod failing;
mod holding;
mod orders;

use zk_recipes::{Client, ExclusiveLock, FairLock, MultiGuard, MultiLock, RwLock, Semaphore};
use zk_session::recipe::Session;
use zk_tests::world::{World, sleep_ms};

/// The paths of [`all_kinds`], in the order in which they are acquired.
const PATHS: [&str; 5] = ["/locks/a", "/locks/b", "/locks/c", "/locks/d", "/locks/e"];

fn fair(client: &Client, path: &str) -> FairLock {
    FairLock::builder(client, path)
        .and_then(|builder| builder.watch_check(None).build())
        .expect("the options are legal")
}

fn exclusive(client: &Client, path: &str) -> ExclusiveLock {
    ExclusiveLock::builder(client, path)
        .and_then(|builder| builder.watch_check(None).build())
        .expect("the options are legal")
}

fn rw_lock(client: &Client, path: &str) -> RwLock {
    RwLock::builder(client, path)
        .and_then(|builder| builder.watch_check(None).build())
        .expect("the options are legal")
}

fn semaphore(client: &Client, path: &str) -> Semaphore {
    Semaphore::builder(client, path)
        .and_then(|builder| builder.permits(1).watch_check(None).build())
        .expect("the options are legal")
}

/// Returns a multi-lock with one lock of each kind, which were added in another order.
fn all_kinds(client: &Client) -> MultiLock {
    let [a, b, c, d, e] = PATHS;
    MultiLock::builder()
        .with(semaphore(client, d))
        .with(exclusive(client, b))
        .with(rw_lock(client, e).read_side())
        .with(fair(client, a))
        .with(rw_lock(client, c).write_side())
        .build()
        .expect("the paths differ")
}

/// Returns a multi-lock of fair locks at these paths.
fn fair_locks(client: &Client, paths: &[&str]) -> MultiLock {
    let add = |builder: zk_recipes::MultiLockBuilder, path: &&str| builder.with(fair(client, path));
    paths.iter().fold(MultiLock::builder(), add).build().expect("the paths differ")
}

/// Acquires locks that are free.
async fn hold(lock: &MultiLock) -> MultiGuard {
    lock.acquire().await.expect("the locks are free")
}

/// Returns the paths of all contender znodes.
fn znodes(world: &World) -> Vec<String> {
    world.server.ephemerals().into_iter().map(|(path, _)| path).collect()
}

/// Waits for the end of all cleanup, and checks that no contender znode and no duty is left.
async fn check_clean(world: &World, clients: &[&Client]) {
    let is_busy = || clients.iter().any(|client| Session::of(client).janitor_slots_busy() > 0);
    for _ in 0..60_000 {
        if !is_busy() && znodes(world).is_empty() {
            break;
        }
        sleep_ms(1).await;
    }
    // A late commit becomes visible now: with time, or with the next write.
    sleep_ms(1_000).await;
    world.server.admin_create("/flush", b"", None);
    sleep_ms(1_000).await;
    assert!(!is_busy(), "unfinished duties\n{}", world.trace());
    assert!(znodes(world).is_empty(), "orphans: {:?}\n{}", znodes(world), world.trace());
    world.check_history();
}
