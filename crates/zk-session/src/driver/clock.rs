//! Where the time comes from.

use std::time::Duration;

use crate::time::Time;

/// A clock. The default counts time spent suspended; the other follows tokio's clock, which tests
/// can pause.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    /// Time since boot, suspension included, at the start of the clock.
    #[cfg(target_os = "linux")]
    Boot(Duration),
    Tokio(tokio::time::Instant),
}

impl Clock {
    /// A clock that goes on while the machine is suspended, as the servers' clocks do.
    ///
    /// On Linux this is `CLOCK_BOOTTIME`. Elsewhere it is [`std::time::Instant`], which counts
    /// suspension on some systems.
    pub fn system() -> Self {
        #[cfg(target_os = "linux")]
        return Self(Source::Boot(since_boot()));
        #[cfg(not(target_os = "linux"))]
        return Self::tokio();
    }

    /// Tokio's clock: virtual under `start_paused = true`. For tests; it does not count
    /// suspension on Linux.
    pub fn tokio() -> Self {
        Self(Source::Tokio(tokio::time::Instant::now()))
    }

    /// Time since the clock was made.
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
