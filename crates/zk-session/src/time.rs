//! The crate's own monotonic time.

use std::ops::Add;
use std::time::Duration;

/// Represents "no limit": longer than any process runs, but short enough to be added to any time.
pub(crate) const NO_LIMIT: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// A point in time, measured from the start of the client's clock.
///
/// Unlike [`std::time::Instant`] on Linux, it counts the time that the machine spends suspended,
/// because the servers' clocks keep running during that time. State machines take the time as an
/// argument, so tests can use virtual time.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Time(Duration);

impl Time {
    /// Returns the point in time `since_start` after the start of the clock.
    pub const fn from_start(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// Returns the time elapsed since the start of the clock.
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// Returns the time elapsed since `earlier`, or zero if `earlier` is later than `self`.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}
