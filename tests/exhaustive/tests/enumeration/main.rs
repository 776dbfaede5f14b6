//! Every single cut and every pair of cuts of the connection, at every request and every event in
//! the life of a lock.
//!
//! The shipped code runs, from the lock to the driver, on a virtual clock and against the
//! in-process server. After each run, the following must be true: the lock was acquired and
//! released, or the acquire timed out; no two contenders that exclude each other held the lock
//! together; no contender znode is left; nothing was created twice.

mod downgrade;
mod every_lock;
mod shipped;
mod transaction;

use zk_recipes::SessionId;
use zk_tests::world::{Ran, World, run};
use zk_testserver::Fault;

const CONTENDER: u64 = 1;
const HOLDER: u64 = 2;
const OTHER: u64 = 3;
const NEXT: u64 = 4;
const QUITTER: u64 = 5;

/// Returns the session of the contender, which is the same in every world.
fn contender() -> Option<SessionId> {
    run(async { World::new().client(CONTENDER).await.session_id() })
}

fn inject(world: &World, faults: Vec<Fault>) {
    for fault in faults {
        world.server.inject(fault);
    }
}

fn ran(world: &World) -> Ran {
    Ran { left: world.server.pending_faults().len(), trace: world.trace() }
}
