//! The source of time.

use std::time::Duration;

use crate::time::Time;

/// A clock. By default it counts the time that the machine spends suspended; for tests it can
/// follow tokio's clock instead, which can be paused.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    /// Time since boot, including suspension, when the clock was started.
    #[cfg(target_os = "linux")]
    Boot(Duration),
    #[cfg(not(target_os = "linux"))]
    Std(std::time::Instant),
    Tokio(tokio::time::Instant),
}

impl Clock {
    /// Creates a clock that keeps running while the machine is suspended, as the servers' clocks
    /// do.
    ///
    /// On Linux this is `CLOCK_BOOTTIME`. On other systems it is [`std::time::Instant`], which
    /// counts suspension only on some of them.
    pub fn system() -> Self {
        #[cfg(target_os = "linux")]
        return Self(Source::Boot(since_boot()));
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
            Source::Boot(start) => since_boot().saturating_sub(*start),
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

#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
