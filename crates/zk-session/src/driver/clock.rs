//! The source of time.

use std::time::Duration;

#[cfg(target_os = "linux")]
use self::system::System;
use crate::time::Time;

/// A clock. By default it counts the time that the machine spends suspended; for tests it can
/// follow tokio's clock instead, which can be paused.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    #[cfg(target_os = "linux")]
    System(System),
    #[cfg(not(target_os = "linux"))]
    Std(std::time::Instant),
    Tokio(tokio::time::Instant),
}

impl Clock {
    /// Creates a clock that keeps running while the machine is suspended, as the servers' clocks
    /// do.
    ///
    /// On Linux it is `CLOCK_BOOTTIME`, or `CLOCK_MONOTONIC_RAW` while that is faster: a daemon that
    /// corrects the time may slow down the former, but not the latter, which does not count
    /// suspension. On other systems it is [`std::time::Instant`], which counts suspension only on
    /// some of them.
    pub fn system() -> Self {
        #[cfg(target_os = "linux")]
        return Self(Source::System(System::start()));
        #[cfg(not(target_os = "linux"))]
        return Self(Source::Std(std::time::Instant::now()));
    }

    /// Creates a clock that follows tokio's clock, which is virtual under `start_paused = true`. It
    /// is meant for tests: on Linux it does not count suspension, and calls of recipes notice their
    /// deadlines only while the client's runtime is driven.
    ///
    /// With this clock, all timers belong to the client's runtime, so a run in virtual time does
    /// not depend on the speed of the machine.
    pub fn tokio() -> Self {
        Self(Source::Tokio(tokio::time::Instant::now()))
    }

    /// Returns the current time, measured from the creation of the clock.
    pub fn now(&self) -> Time {
        Time::from_start(match &self.0 {
            #[cfg(target_os = "linux")]
            Source::System(system) => system.elapsed(),
            #[cfg(not(target_os = "linux"))]
            Source::Std(start) => start.elapsed(),
            Source::Tokio(start) => start.elapsed(),
        })
    }

    /// Returns whether a timer in real time can tell when a time of this clock has come.
    pub(crate) fn is_real(&self) -> bool {
        !matches!(self.0, Source::Tokio(_))
    }
}

/// The clocks of Linux.
#[cfg(target_os = "linux")]
mod system {
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    use nix::time::{ClockId, clock_gettime};

    use super::{Readings, Steps};

    /// A clock whose clones show the same time.
    #[derive(Clone, Debug)]
    pub(super) struct System(Arc<Mutex<Steps>>);

    impl System {
        pub(super) fn start() -> Self {
            Self(Arc::new(Mutex::new(Steps::new(read()))))
        }

        pub(super) fn elapsed(&self) -> Duration {
            let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // The clocks are read under the lock: otherwise an older reading could follow a newer one.
            steps.elapsed(read())
        }
    }

    fn read() -> Readings {
        Readings {
            boot: since_boot(ClockId::CLOCK_BOOTTIME),
            raw: since_boot(ClockId::CLOCK_MONOTONIC_RAW),
        }
    }

    /// Linux has had both clocks since 2011. One that could not be read would stand still, and the
    /// other one would count.
    fn since_boot(clock: ClockId) -> Duration {
        clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
    }
}

/// What two clocks show at the same time.
#[cfg(any(target_os = "linux", test))]
#[derive(Clone, Copy, Debug)]
struct Readings {
    /// Counts suspension. Its speed may be changed.
    boot: Duration,
    /// Does not count suspension. Nothing changes its speed.
    raw: Duration,
}

/// Adds up the larger of the times that two clocks measure, step by step. The larger of the whole
/// times would not do: a clock that was fast for an hour would hide that it is slow in the next.
#[cfg(any(target_os = "linux", test))]
#[derive(Debug)]
struct Steps {
    /// The beginning of the current step, and the time before it.
    begin: Readings,
    before: Duration,
}

#[cfg(any(target_os = "linux", test))]
impl Steps {
    /// The minimum length of a step. The two clocks are read one after the other, and each step may
    /// add the time between the two; so a step is not as short as the time between two calls.
    const STEP: Duration = Duration::from_millis(100);

    fn new(begin: Readings) -> Self {
        Self { begin, before: Duration::ZERO }
    }

    fn elapsed(&mut self, now: Readings) -> Duration {
        let boot = now.boot.saturating_sub(self.begin.boot);
        let raw = now.raw.saturating_sub(self.begin.raw);
        let step = boot.max(raw);
        let elapsed = self.before + step;
        if step >= Self::STEP {
            *self = Self { begin: now, before: elapsed };
        }
        elapsed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two clocks, which count microseconds.
    struct Clocks {
        boot: u64,
        raw: u64,
        steps: Steps,
    }

    impl Clocks {
        fn new() -> Self {
            Self {
                boot: 7_000_000,
                raw: 5_000_000,
                steps: Steps::new(readings(7_000_000, 5_000_000)),
            }
        }

        /// Lets both clocks advance by this many microseconds, and returns what has passed.
        fn advance(&mut self, boot: u64, raw: u64) -> u128 {
            (self.boot, self.raw) = (self.boot + boot, self.raw + raw);
            self.steps.elapsed(readings(self.boot, self.raw)).as_micros()
        }
    }

    fn readings(boot: u64, raw: u64) -> Readings {
        Readings { boot: Duration::from_micros(boot), raw: Duration::from_micros(raw) }
    }

    #[test]
    fn a_clock_that_is_slowed_down_loses_no_time() {
        let mut clocks = Clocks::new();
        for second in 1..=60 {
            assert_eq!(clocks.advance(917_000, 1_000_000), second * 1_000_000);
        }
    }

    #[test]
    fn a_clock_that_was_fast_before_loses_no_time_when_it_is_slowed_down() {
        let mut clocks = Clocks::new();
        for _ in 0..600 {
            clocks.advance(1_083_000, 1_000_000);
        }
        let fast = clocks.advance(0, 0);
        assert_eq!(fast, 600 * 1_083_000);
        for second in 1..=600 {
            assert_eq!(clocks.advance(917_000, 1_000_000), fast + second * 1_000_000);
        }
    }

    #[test]
    fn suspension_counts() {
        let mut clocks = Clocks::new();
        assert_eq!(clocks.advance(1_000_000, 1_000_000), 1_000_000);
        assert_eq!(clocks.advance(3_600_000_000, 1_000), 3_601_000_000);
        assert_eq!(clocks.advance(1_000_000, 1_000_000), 3_602_000_000);
    }

    /// Each reading of one clock is a little later than that of the other, by turns.
    #[test]
    fn frequent_calls_do_not_make_the_clock_fast() {
        let mut clocks = Clocks::new();
        let mut last = 0;
        for _ in 0..500_000 {
            clocks.advance(1, 3);
            last = clocks.advance(3, 1);
        }
        assert!((2_000_000..=2_000_000 + 20 * 2).contains(&last), "{last} microseconds");
    }

    #[test]
    fn the_time_never_goes_back() {
        let mut clocks = Clocks::new();
        let mut last = 0;
        for turn in 0..10_000 {
            let (boot, raw) = ((turn * 7) % 5_000, (turn * 11) % 5_000);
            let now = clocks.advance(boot, raw);
            assert!(now >= last + u128::from(boot.min(raw)), "turn {turn}: {now} after {last}");
            last = now;
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn clones_of_a_clock_show_the_same_time() {
        let clock = Clock::system();
        let twin = clock.clone();
        for _ in 0..1_000 {
            let before = clock.now();
            let between = twin.now();
            assert!(before <= between && between <= clock.now());
        }
    }
}
