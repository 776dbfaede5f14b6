//! The crate's own monotonic time.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::Add;
use std::time::Duration;

/// Represents "no limit": longer than any process runs, but short enough to be added to any time.
pub(crate) const NO_LIMIT: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// A point in time, measured from the start of the client's clock.
///
/// Unlike [`std::time::Instant`] on Linux, it counts the time that the machine spends suspended,
/// because the servers' clocks keep running during that time. State machines take the time as an
/// argument, so tests can use virtual time.
///
/// It is the number of nanoseconds plus one, so an optional time needs no more memory. Thousands of
/// waiters have several each. It is exact for five centuries.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Time(NonZeroU64);

impl Time {
    /// Returns the point in time `since_start` after the start of the clock.
    pub const fn from_start(since_start: Duration) -> Self {
        let nanos = since_start.as_nanos();
        Self::from_nanos(if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 })
    }

    /// Returns the time elapsed since the start of the clock.
    pub const fn since_start(self) -> Duration {
        Duration::from_nanos(self.0.get() - 1)
    }

    /// Returns the time elapsed since `earlier`, or zero if `earlier` is later than `self`.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }

    const fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }
}

impl Default for Time {
    fn default() -> Self {
        Self(NonZeroU64::MIN)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Time").field(&self.since_start()).finish()
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_saturate_and_an_optional_one_is_as_small() {
        let start = Time::default();
        let late = start + Duration::MAX;
        assert_eq!(late, Time::from_start(Duration::MAX));
        assert_eq!(late + Duration::from_nanos(1), late);
        assert_eq!(start.saturating_since(late), Duration::ZERO);
        let nano = Duration::from_nanos(1);
        assert_eq!(((start + nano).since_start(), start.since_start()), (nano, Duration::ZERO));
        assert_eq!(
            (late.saturating_since(late), (start + nano).saturating_since(start)),
            (Duration::ZERO, nano)
        );
        assert_eq!(format!("{:?}", start + nano), "Time(1ns)");
        assert_eq!(size_of::<Option<Time>>(), 8);
    }
}
