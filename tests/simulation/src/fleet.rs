//! Runs many seeds on several threads, and hands over what they gave in the order of the seeds.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Returns how many threads the machine can run at once.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Works on each seed, on this many threads, and takes the results in the order of the seeds, until
/// the seeds end or `take` breaks.
///
/// A seed uses one thread from its beginning to its end, so that runs do not meet.
pub fn work_in_order<T: Send>(
    seeds: impl Iterator<Item = u64> + Send,
    jobs: usize,
    work: impl Fn(u64) -> T + Sync,
    mut take: impl FnMut(T) -> ControlFlow<()>,
) {
    let is_over = AtomicBool::new(false);
    let seeds = Mutex::new((0_u64..).zip(seeds));
    let next = || {
        let mut seeds = seeds.lock().unwrap_or_else(PoisonError::into_inner);
        seeds.next().filter(|_| !is_over.load(Ordering::Relaxed))
    };
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..jobs.max(1) {
            let sender = sender.clone();
            scope.spawn(|| {
                let sender = sender;
                while let Some((index, seed)) = next() {
                    // Nobody takes the result after a break.
                    let _ = sender.send((index, work(seed)));
                }
            });
        }
        drop(sender);
        let (mut due, mut early) = (0, BTreeMap::new());
        while let Ok((index, result)) = receiver.recv() {
            early.insert(index, result);
            while let Some(result) = early.remove(&due) {
                due += 1;
                if take(result).is_break() {
                    is_over.store(true, Ordering::Relaxed);
                    return;
                }
            }
        }
    });
}

/// What runs at the moment, and since when.
#[derive(Debug)]
pub struct Watch(Mutex<BTreeMap<u64, Instant>>);

impl Watch {
    /// Nothing runs.
    #[expect(clippy::new_without_default, reason = "a static needs a constant")]
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Works on a seed, and says so meanwhile.
    #[expect(clippy::disallowed_methods, reason = "a seed that spins stops the virtual time")]
    pub fn during<T>(&self, seed: u64, work: impl FnOnce() -> T) -> T {
        self.lock().insert(seed, Instant::now());
        let output = work();
        self.lock().remove(&seed);
        output
    }

    /// Returns a seed on which somebody has worked for longer than this.
    pub fn overdue(&self, limit: Duration) -> Option<u64> {
        let working = self.lock();
        working.iter().find(|(_, since)| since.elapsed() > limit).map(|(seed, _)| *seed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::run;
    use crate::sample;

    #[test]
    fn results_come_in_the_order_of_the_seeds() {
        let mut taken = Vec::new();
        // The first is ready last.
        let (sender, receiver) = mpsc::channel();
        let receiver = Mutex::new(receiver);
        let work = |seed: u64| {
            if seed == 7 {
                receiver.lock().unwrap().recv().unwrap();
            }
            if seed == 9 {
                sender.send(()).unwrap();
            }
            seed
        };
        work_in_order(7..12, 2, work, |seed| {
            taken.push(seed);
            ControlFlow::Continue(())
        });
        assert_eq!(taken, [7, 8, 9, 10, 11]);
    }

    #[test]
    fn a_seed_that_does_not_end_is_named() {
        let watch = Watch::new();
        assert_eq!(watch.during(7, || watch.overdue(Duration::ZERO)), Some(7));
        assert_eq!(watch.during(7, || watch.overdue(Duration::from_secs(1_000))), None);
        assert_eq!(watch.overdue(Duration::ZERO), None);
    }

    #[test]
    fn nothing_is_taken_after_a_break() {
        let mut taken = Vec::new();
        work_in_order(
            1..,
            2,
            |seed| seed,
            |seed| {
                taken.push(seed);
                if seed == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        assert_eq!(taken, [1, 2, 3]);
    }

    #[test]
    fn a_seed_gives_the_same_run_beside_others() {
        for report in sample::newest().iter().take(8) {
            assert_eq!(run(report.seed).hash, report.hash, "{}", report.seed);
        }
    }
}
