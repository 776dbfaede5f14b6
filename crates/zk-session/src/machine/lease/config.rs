//! What keeps a lease, and what it has to know about the servers.

use std::fmt;
use std::time::Duration;

use super::{fast, slow};

/// A shorter ping interval is not worth its traffic; then there is no lease.
const PING_INTERVAL_MIN: Duration = Duration::from_millis(250);
/// `tickTime` of the sample configuration that comes with ZooKeeper.
const TICK_DEFAULT: Duration = Duration::from_secs(2);
/// Longest time to the answer of a ping that is planned for.
const ACKNOWLEDGEMENT: Duration = Duration::from_secs(1);
/// Shortest interval between writes that is derived from a session timeout.
const WRITE_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// What keeps the lease of a session: until when nobody else can own its ephemerals, even if
/// nothing more is heard of any server.
///
/// **Writes** are the default. While a lock is held, or may be granted next, the session commits a
/// small write now and then, which proves that the leader knows of the session. The lease lasts for
/// about two thirds of the session timeout, so that the ensemble can elect another leader
/// meanwhile. It has to know `tickTime` of the servers, or more. Each such session costs the
/// ensemble a write per [interval](Self::writes); a session without locks costs nothing.
///
/// **Pings** alone keep a shorter lease, which ends before an election does, and only with session
/// timeouts from 19 s on. They cost no writes, and have to know `syncLimit` too.
///
/// ```
/// use std::time::Duration;
/// use zk_session::Lease;
///
/// // A tick of 3 s, and the default interval.
/// let lease = Lease::default().tick(Duration::from_secs(3));
/// // A write each 500 ms.
/// let lease = Lease::writes(Duration::from_millis(500));
/// // No writes; syncLimit=10, tickTime=1000.
/// let lease = Lease::pings(10, Duration::from_secs(1));
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[must_use = "a lease does nothing until a client is built with it"]
pub struct Lease {
    by: By,
    tick: Duration,
}

/// What renews it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum By {
    /// Committed writes, this far apart, or a twentieth of the session timeout.
    Writes(Option<Duration>),
    /// The answers to pings, if a server notices within so many ticks that it is cut off.
    Pings { sync_limit: u32 },
}

impl Default for Lease {
    /// Kept by writes, a twentieth of the session timeout apart, with a tick of 2 s.
    fn default() -> Self {
        Self { by: By::Writes(None), tick: TICK_DEFAULT }
    }
}

impl Lease {
    /// Kept by committed writes, this far apart: the shorter, the longer the lease. It loses five
    /// intervals and a tick of 0.95 times the session timeout. The tick is 2 s, unless
    /// [said otherwise](Self::tick).
    pub fn writes(interval: Duration) -> Self {
        Self { by: By::Writes(Some(interval)), ..Self::default() }
    }

    /// Kept by pings, with `syncLimit` in ticks, and `tickTime`, of the servers. With less than
    /// they have, the lease promises too much.
    pub fn pings(sync_limit: u32, tick: Duration) -> Self {
        Self { by: By::Pings { sync_limit }, tick }
    }

    /// `tickTime` of the servers, or more. With less than they have, the lease promises too much.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// How often the session is written to while a lock needs the lease, with this session
    /// timeout. `None` if writes do not keep it, or the timeout is too short for a lease.
    pub fn write_interval(&self, timeout: Duration) -> Option<Duration> {
        let By::Writes(interval) = self.by else { return None };
        let interval = interval.unwrap_or(timeout / 20).max(WRITE_INTERVAL_MIN);
        let left =
            slow(timeout).checked_sub(self.bridge())?.checked_sub(interval.saturating_mul(5))?;
        (left >= timeout / 20).then_some(interval)
    }

    /// What is left of a lease that writes keep, at the end of an interval, if servers are prompt:
    /// two gaps, one interval each between *b* and *b+*, *a'* and *a*, and the one that ends.
    pub(super) fn least(&self, timeout: Duration) -> Option<Duration> {
        let interval = self.write_interval(timeout)?;
        Some(slow(timeout) - self.bridge() - interval * 5)
    }

    /// How often to ping with this session timeout. `None` if pings do not keep the lease, or the
    /// timeout is too short for one.
    ///
    /// A sixth of what the timeout leaves: four intervals of it go into gaps and waiting, the rest
    /// is the lease that remains even then.
    pub fn ping_interval(&self, timeout: Duration) -> Option<Duration> {
        let spare = slow(timeout).checked_sub(self.window()?)?;
        let interval = (spare.checked_sub(ACKNOWLEDGEMENT)? / 6).min(timeout / 3);
        (interval >= PING_INTERVAL_MIN).then_some(interval)
    }

    /// The shortest session timeout that leaves room for a lease.
    pub fn timeout_min(&self) -> Duration {
        let timeout = match self.by {
            // 0.95 - 5/20 - 1/20 of it are the bridge.
            By::Writes(None) => self.bridge().saturating_mul(20) / 13,
            By::Writes(Some(interval)) => {
                self.bridge().saturating_add(interval.saturating_mul(5)).saturating_mul(10) / 9
            }
            By::Pings { .. } => {
                let spare = ACKNOWLEDGEMENT + PING_INTERVAL_MIN * 6;
                let slow = self.window().unwrap_or_default().saturating_add(spare);
                slow.saturating_mul(20) / 19
            }
        };
        // What is granted comes in whole milliseconds.
        let ms = timeout.as_nanos().div_ceil(1_000_000);
        Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
    }

    /// How long a connection may be silent, if it is to be left in time for a new one to save the
    /// lease. `None` without a lease.
    pub(crate) fn silence(&self, timeout: Duration) -> Option<Duration> {
        match self.by {
            By::Writes(_) => {
                // Less than a second cannot be told from a server that is busy.
                Some((self.least(timeout)? / 2).max(Duration::from_secs(1)))
            }
            By::Pings { .. } => Some(self.ping_interval(timeout)? * 2 + ACKNOWLEDGEMENT),
        }
    }

    /// How long the leader takes to fetch what a follower has heard, unless it stands still, on a
    /// clock that is fast.
    pub(super) fn bridge(&self) -> Duration {
        fast(self.tick)
    }

    /// How long a running server may go on without its leader, or a leader without its followers,
    /// on a clock that is fast. `None` if writes keep the lease: they do not depend on it.
    pub(super) fn window(&self) -> Option<Duration> {
        match self.by {
            By::Writes(_) => None,
            By::Pings { sync_limit } => {
                Some(fast(self.tick.saturating_mul(sync_limit.saturating_add(2))))
            }
        }
    }

    /// What is wrong with the values.
    pub(crate) fn defect(&self) -> Option<&'static str> {
        const LONG: Duration = Duration::from_secs(24 * 60 * 60);
        if self.tick < Duration::from_millis(1) {
            return Some("the tick is shorter than 1 ms");
        }
        if self.tick > LONG {
            return Some("the tick is longer than a day");
        }
        match self.by {
            By::Writes(Some(interval)) if interval < WRITE_INTERVAL_MIN => {
                Some("the interval between writes is shorter than 10 ms")
            }
            By::Writes(Some(interval)) if interval > LONG => {
                Some("the interval between writes is longer than a day")
            }
            By::Pings { sync_limit: 0 } => Some("the sync limit is zero"),
            By::Pings { sync_limit } if self.tick.saturating_mul(sync_limit) > LONG => {
                Some("the sync limit is longer than a day")
            }
            By::Writes(_) | By::Pings { .. } => None,
        }
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.by {
            By::Writes(None) => f.write_str("writes")?,
            By::Writes(Some(interval)) => write!(f, "writes each {interval:?}")?,
            By::Pings { sync_limit } => write!(f, "pings, syncLimit {sync_limit}")?,
        }
        write!(f, ", tickTime {:?}", self.tick)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    #[test]
    fn the_interval_says_whether_there_can_be_a_lease() {
        let pings = |ms| Lease::pings(5, TICK_DEFAULT).ping_interval(Duration::from_millis(ms));
        assert_eq!(pings(18_100), None);
        assert_eq!(pings(18_106), Some(Duration::from_nanos(250_116_666)));
        assert_eq!(pings(0), None);
        let writes = |ms| Lease::default().write_interval(Duration::from_millis(ms));
        assert_eq!(writes(3_230), None);
        assert_eq!(writes(3_231), Some(Duration::from_micros(161_550)));
        assert_eq!(writes(30_000), Some(Duration::from_millis(1500)));
        assert_eq!(writes(0), None);
        let second = Lease::writes(Duration::from_secs(1));
        for lease in [Lease::default(), second, Lease::pings(5, TICK_DEFAULT)] {
            let (min, ms) = (lease.timeout_min(), Duration::from_millis(1));
            let is_possible = |timeout| {
                lease.write_interval(timeout).or_else(|| lease.ping_interval(timeout)).is_some()
            };
            assert!(is_possible(min) && !is_possible(min - ms), "{lease:?}: {min:?}");
        }
    }

    #[test]
    fn values_that_cannot_be_meant_are_refused() {
        let pings = Lease::pings(5, TICK_DEFAULT);
        for lease in [Lease::default(), Lease::writes(TICK_DEFAULT), pings] {
            assert_eq!(lease.defect(), None);
        }
        let bad = [
            Lease::default().tick(Duration::ZERO),
            Lease::default().tick(Duration::MAX),
            Lease::writes(Duration::ZERO),
            Lease::writes(Duration::MAX),
            pings.tick(Duration::ZERO),
            pings.tick(Duration::MAX),
            Lease::pings(0, TICK_DEFAULT),
            Lease::pings(u32::MAX, TICK_DEFAULT),
        ];
        for lease in bad {
            assert!(lease.defect().is_some(), "{lease:?}");
            // None of them panics either.
            let _ = (lease.ping_interval(TIMEOUT), lease.write_interval(TIMEOUT));
            let _ = (lease.timeout_min(), lease.silence(TIMEOUT));
        }
    }
}
