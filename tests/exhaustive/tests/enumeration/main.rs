//! Every single cut and every pair of cuts of the connection, at every request and every event in
//! the life of a lock, of a semaphore with several permits, and of a put and a lease of a work queue.
//!
//! The shipped code runs, from the lock to the driver, on a virtual clock and against the
//! in-process server. After each run, the following must be true: the lock was acquired and
//! released, or the acquire timed out; no two contenders that exclude each other held the lock
//! together; no contender znode is left; nothing was created twice. The modules `puts`,
//! `semaphore` and `work_queue` have rules of their own.

mod downgrade;
mod every_lock;
mod puts;
mod semaphore;
mod shipped;
mod transaction;
mod work_queue;

use zk_recipes::SessionId;
use zk_tests::world::session_of_first;

const CONTENDER: u64 = 1;
const HOLDER: u64 = 2;
const OTHER: u64 = 3;
const NEXT: u64 = 4;
const QUITTER: u64 = 5;

/// Returns the session of the contender, which is the same in every world.
fn contender() -> Option<SessionId> {
    Some(session_of_first(CONTENDER))
}
