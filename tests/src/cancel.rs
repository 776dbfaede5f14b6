//! Acquires that are dropped after every poll, or aborted after every turn of the scheduler, with
//! every trouble of the connection around it; the same for every lock.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use zk_recipes::LockError;

use crate::scene::{FIRST, SECOND, TURNS, Trouble, poll_times, session, spawn};
use crate::world::{World, run};

/// How long an acquire may take before it counts as waiting, with nothing to wake it any more.
const PATIENCE: Duration = Duration::from_secs(2);

/// A world with a client whose acquire is cancelled, and perhaps another one that holds the lock.
pub trait Bench {
    /// The world.
    fn world(&self) -> &World;

    /// Checks that first only the holder's znode is left, then nothing.
    fn check(self, label: &str) -> impl Future<Output = ()>;
}

/// Session of the second client of a world, which is the one that is cancelled.
pub fn second_session() -> i64 {
    run(async {
        let world = World::new();
        let (_first, second) = (world.client(FIRST).await, world.client(SECOND).await);
        session(&second)
    })
}

/// Runs one acquire that is dropped after so many polls; true if it had ended by itself before, or
/// only waited.
///
/// # Panics
///
/// If it failed, or something is left.
pub async fn drop_after_polls<B: Bench, T, F>(
    bench: B,
    acquire: impl FnOnce(&B) -> F,
    polls: usize,
    trouble: &Trouble,
    case: impl Debug,
) -> bool
where
    F: Future<Output = Result<T, LockError>>,
{
    trouble.begin(bench.world());
    let before = || trouble.cancelling(bench.world());
    let acquiring = poll_times(acquire(&bench), polls, before);
    let ended = tokio::time::timeout(PATIENCE, acquiring).await;
    trouble.cancelled(bench.world());
    let is_over = match ended {
        Ok(Some(acquired)) => {
            drop(acquired.expect("nothing but the cancellation ends it"));
            true
        }
        Ok(None) => false,
        Err(_) => true,
    };
    bench.check(&format!("dropped after {polls} polls, {case:?}, {trouble:?}")).await;
    is_over
}

/// Runs one acquire that is aborted after so many turns; true if it had ended by itself before.
///
/// # Panics
///
/// If something is left.
pub async fn abort_after_turns<B: Bench, T, F>(
    bench: B,
    acquire: impl FnOnce(&B) -> F,
    turns: usize,
    trouble: &Trouble,
    case: impl Debug,
) -> bool
where
    F: Future<Output = Result<T, LockError>> + Send + 'static,
    T: Send + 'static,
{
    trouble.begin(bench.world());
    let task = spawn(acquire(&bench));
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
    let is_over = task.is_finished();
    trouble.cancelling(bench.world());
    task.abort();
    trouble.cancelled(bench.world());
    drop(task);
    bench.check(&format!("aborted after {turns} turns, {case:?}, {trouble:?}")).await;
    is_over
}

/// Calls `drop_after` with 0, 1, 2, … polls until it says that there was nothing left to drop, with
/// every trouble in the first requests. How often that was.
///
/// # Panics
///
/// If it never says so: every acquire ends, or waits without being woken.
pub fn at_every_poll(requests: usize, drop_after: impl Fn(usize, &Trouble) -> bool) -> usize {
    at_every_point(requests, drop_after, |trouble| panic!("it never ends: {trouble:?}"))
}

/// Calls `abort_after` with 0, 1, 2, … turns until it says that there was nothing left to abort,
/// which an acquire that waits never does. How often that was.
pub fn at_every_turn(requests: usize, abort_after: impl Fn(usize, &Trouble) -> bool) -> usize {
    at_every_point(requests, abort_after, |_| TURNS)
}

fn at_every_point(
    requests: usize,
    cancel: impl Fn(usize, &Trouble) -> bool,
    without_end: impl Fn(&Trouble) -> usize,
) -> usize {
    let count = |trouble: Trouble| {
        let last = (0..=TURNS).find(|point| cancel(*point, &trouble));
        1 + last.unwrap_or_else(|| without_end(&trouble))
    };
    Trouble::all(second_session(), requests).into_iter().map(count).sum()
}
