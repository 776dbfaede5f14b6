//! The crate's own monotonic time.

use std::ops::Add;
use std::time::Duration;

/// A moment, as the time since the client was made.
///
/// It counts time spent suspended, unlike [`std::time::Instant`] on Linux, because servers go on
/// counting while a machine sleeps. Machines take it as an argument; in tests it is virtual.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Time(Duration);

impl Time {
    /// The moment that lies `since_start` after the client was made.
    pub const fn from_start(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// Time since the client was made.
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// Time from `earlier` to this moment; zero if it is not earlier.
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
