//! Clients that do not run for a while.
//!
//! All clients are suspended by a jump of their clock, which the servers' clock makes too. Nothing
//! runs meanwhile, so the servers notice afterwards what has ended, but before anybody else does
//! anything. One client alone cannot be suspended in a runtime that it shares with the servers: only
//! its callers stop, and perhaps its links.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, advance, sleep_until};

use super::World;
use super::trouble::STRUCK;
use crate::history::What;

/// How often a caller may run at one moment.
const POLLS_MAX: u64 = 100_000;

/// The clients whose callers do not run, and until when.
#[derive(Debug, Default)]
pub struct Freezer(Mutex<BTreeMap<usize, Instant>>);

impl Freezer {
    /// Lets no caller of this client run for this long.
    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    pub(super) fn stop(&self, client: usize, duration: Duration) {
        let mut stopped = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stopped.insert(client, Instant::now() + duration);
    }

    /// Returns whether the callers of this client do not run.
    pub fn is_stopped(&self, client: usize) -> bool {
        self.stopped_until(client).is_some()
    }

    /// Returns how long the callers of this client have run again. `None`: they were never stopped, or
    /// are still.
    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    pub fn running_for(&self, client: usize) -> Option<Duration> {
        let stopped = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Instant::now().checked_duration_since(*stopped.get(&client)?)
    }

    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    fn stopped_until(&self, client: usize) -> Option<Instant> {
        let stopped = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stopped.get(&client).copied().filter(|until| *until > Instant::now())
    }

    /// Runs a caller of this client, except while it is stopped.
    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    pub async fn run<T>(&self, client: usize, caller: impl Future<Output = T>) -> T {
        let mut caller = pin!(caller);
        let mut alarm = None;
        poll_fn(|cx| {
            if let Some(until) = self.stopped_until(client) {
                let waiting = alarm.insert(Box::pin(sleep_until(until)));
                if waiting.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
            alarm = None;
            caller.as_mut().poll(cx)
        })
        .await
    }
}

impl World {
    /// Runs a caller of this client, except while it is stopped. A caller that runs without end while
    /// no time passes is stopped for ever, so that the others go on.
    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    pub async fn run_caller<T>(&self, client: usize, caller: impl Future<Output = T>) -> T {
        let mut caller = pin!(self.freezer.run(client, caller));
        let (mut moment, mut polls) = (Instant::now(), 0_u64);
        poll_fn(|cx| {
            let now = Instant::now();
            if moment != now && polls < POLLS_MAX {
                (moment, polls) = (now, 0);
            }
            polls += 1;
            if polls == POLLS_MAX {
                self.history.note(What::Spinning);
            }
            if polls < POLLS_MAX { caller.as_mut().poll(cx) } else { Poll::Pending }
        })
        .await
    }

    /// Suspends all clients for this long, and asks the guards before anything else runs.
    pub fn suspend(&self, duration: Duration) {
        // Everybody has to notice it, and to connect again.
        self.disturb(duration + STRUCK);
        self.history.note(What::Suspended { duration });
        // The first poll advances the clock. The next ones would only let others run.
        let jump = pin!(advance(duration));
        let is_pending = jump.poll(&mut Context::from_waker(Waker::noop())).is_pending();
        debug_assert!(is_pending, "nobody else has run");
        self.registry.look();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    async fn a_caller_does_not_run_while_its_client_is_stopped() {
        let (freezer, steps) = (Freezer::default(), AtomicU64::new(0));
        let caller = async {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                steps.fetch_add(1, Ordering::Relaxed);
            }
        };
        freezer.stop(7, Duration::from_secs(100));
        let count = async |seconds| {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            steps.load(Ordering::Relaxed)
        };
        tokio::select! {
            biased;
            () = freezer.run(7, caller) => unreachable!("it has no end"),
            counts = async { [count(99).await, count(10).await] } => {
                assert!(freezer.stopped_until(7).is_none());
                // Its first second began when it ran first.
                assert_eq!(counts[0], 0);
                assert!((8..=9).contains(&counts[1]), "{counts:?}");
            }
        }
    }
}
