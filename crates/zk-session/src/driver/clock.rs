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
        return Self::tokio();
    }

    /// Creates a clock that follows tokio's clock, which is virtual under `start_paused = true`. It
    /// is meant for tests, because on Linux it does not count suspension.
    pub fn tokio() -> Self {
        Self(Source::Tokio(tokio::time::Instant::now()))
    }

    /// Returns the current time, measured from the creation of the clock.
    pub fn now(&self) -> Time {
        Time::from_start(match &self.0 {
            #[cfg(target_os = "linux")]
            Source::Boot(start) => since_boot().saturating_sub(*start),
            Source::Tokio(start) => start.elapsed(),
        })
    }
}

#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
