//! Configures how a lease is kept, which depends on settings of the servers.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

use super::drift::{fast, slow};

/// Minimum ping interval. A shorter interval is not worth its traffic, so there is no lease.
const PING_INTERVAL_MIN: Duration = Duration::from_millis(250);
/// `tickTime` in the sample configuration that ships with ZooKeeper.
const TICK_DEFAULT: Duration = Duration::from_secs(2);
/// Longest delay of a ping's acknowledgement that the schedule of pings allows for.
const ACKNOWLEDGEMENT_MAX: Duration = Duration::from_secs(1);
/// Minimum interval between writes.
const WRITE_INTERVAL_MIN: Duration = Duration::from_millis(10);
/// Maximum of each configured duration.
const CONFIGURED_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How a session keeps its lease: the time until which no other session can own its ephemeral
/// znodes, even if no server can be reached.
///
/// **Writes** are the default. While a lock is held, or may be granted next, the session regularly
/// commits a small write, which proves that the leader knows of the session. The lease lasts for
/// about two thirds of the session timeout, so that the ensemble can elect a new leader in that
/// time. Its configuration needs the servers' `tickTime`, or a larger value. Each such session
/// costs the ensemble one write per [interval](Self::writes); a session without locks costs
/// nothing.
///
/// **Pings** alone keep a shorter lease. It ends before an election is over, and exists only with
/// session timeouts of 19 s or more. It costs no writes, and its configuration needs the servers'
/// `syncLimit` in addition to `tickTime`.
///
/// ```
/// use std::time::Duration;
/// use zk_session::Lease;
///
/// // A tick of 3 s, and the default interval.
/// let lease = Lease::default().tick(Duration::from_secs(3));
/// // A write every 500 ms.
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

/// How writes keep a lease with one session timeout. It is computed when a server grants the timeout,
/// because the state of the lease is published after each reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteTerms {
    /// The interval between writes.
    pub(super) interval: Duration,
    /// See [`Lease::bridge_span`].
    pub(super) span: Duration,
    /// How much of the lease remains at the end of an interval, if the servers reply promptly. Five
    /// intervals are lost: two for the gaps, one between *b* and *b+*, one between *a'* and *a*, and
    /// the interval that ends.
    pub(super) remaining_min: Duration,
    /// How long intervals and commits may be together, so that enough of the lease remains.
    spare: Duration,
}

impl WriteTerms {
    /// Returns whether writes can keep the lease if each commit takes this long. The next write waits
    /// for the last commit, so it may determine the interval. Besides, a commit lengthens both gaps,
    /// and delays *b+* and the end.
    pub(super) fn is_reachable(&self, commit: Duration) -> bool {
        self.interval.max(commit) * 5 + commit * 4 <= self.spare
    }
}

/// What renews a lease.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum By {
    /// Committed writes at this interval, or at a twentieth of the session timeout.
    Writes(Option<Duration>),
    /// Replies to pings. A server notices within this many ticks that it is cut off.
    Pings { sync_limit: u32 },
}

/// Why a [`Lease`] cannot be used.
#[derive(Clone, Copy, Eq, Error, Hash, PartialEq)]
#[non_exhaustive]
pub enum LeaseDefect {
    /// The sync limit is longer than a day.
    #[error("the sync limit is longer than a day")]
    SyncLimitTooLong,
    /// The sync limit is zero.
    #[error("the sync limit is zero")]
    SyncLimitZero,
    /// The tick is longer than a day.
    #[error("the tick is longer than a day")]
    TickTooLong,
    /// The tick is shorter than 1 ms.
    #[error("the tick is shorter than 1 ms")]
    TickTooShort,
    /// The interval between writes is longer than a day.
    #[error("the interval between writes is longer than a day")]
    WriteIntervalTooLong,
    /// The interval between writes is shorter than 10 ms.
    #[error("the interval between writes is shorter than 10 ms")]
    WriteIntervalTooShort,
}

jute_codec::debug_by_message!(LeaseDefect);

impl Default for Lease {
    /// Returns a lease kept by writes, at intervals of a twentieth of the session timeout, with a
    /// tick of 2 s.
    fn default() -> Self {
        Self { by: By::Writes(None), tick: TICK_DEFAULT }
    }
}

impl Lease {
    /// Creates a lease that is kept by committed writes at this interval. A shorter interval makes
    /// the lease longer: the lease lasts about 0.95 times the session timeout, minus five intervals
    /// and a tick; with the interval of the default, it lasts as long as the first table of the
    /// guide's page about guarantees says. The tick is 2 s, unless [`tick`](Self::tick) sets it.
    pub fn writes(interval: Duration) -> Self {
        Self { by: By::Writes(Some(interval)), ..Self::default() }
    }

    /// Creates a lease that is kept by pings, given the servers' `syncLimit`, in ticks, and their
    /// `tickTime`. With smaller values than those of the servers, the lease ends too late.
    pub fn pings(sync_limit: u32, tick: Duration) -> Self {
        Self { by: By::Pings { sync_limit }, tick }
    }

    /// Sets the servers' `tickTime`, or a larger value. With a smaller value, the lease ends too
    /// late.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Returns the interval between the writes that renew the lease while a lock needs it, for this
    /// session timeout. Returns `None` if pings keep the lease, or if the timeout is too short for
    /// a lease.
    pub fn write_interval(&self, timeout: Duration) -> Option<Duration> {
        Some(self.write_terms(timeout)?.interval)
    }

    /// Returns on which terms writes keep the lease with this session timeout. Returns `None` if
    /// pings keep it, or if the timeout is too short for a lease.
    pub(super) fn write_terms(&self, timeout: Duration) -> Option<WriteTerms> {
        let By::Writes(interval) = self.by else { return None };
        let interval = interval.unwrap_or(timeout / 20).max(WRITE_INTERVAL_MIN);
        let span = self.bridge_span();
        let left = slow(timeout).checked_sub(span)?;
        let remaining_min = left.checked_sub(interval.saturating_mul(5))?;
        let spare = left.checked_sub(timeout / 20)?;
        (remaining_min >= timeout / 20).then_some(WriteTerms {
            interval,
            span,
            remaining_min,
            spare,
        })
    }

    /// Returns the shortest session timeout with which writes can keep a lease if each commit takes
    /// this long.
    pub(super) fn timeout_min_for(&self, commit: Duration) -> Duration {
        let ms = Duration::from_millis;
        let is_reachable =
            |timeout| self.write_terms(timeout).is_some_and(|terms| terms.is_reachable(commit));
        let (mut short, mut long) = (0, 1);
        while long < CONFIGURED_MAX.as_millis() as u64 && !is_reachable(ms(long)) {
            (short, long) = (long, long * 2);
        }
        while short + 1 < long {
            let middle = u64::midpoint(short, long);
            if is_reachable(ms(middle)) { long = middle } else { short = middle }
        }
        ms(long)
    }

    /// Returns the ping interval for this session timeout. Returns `None` if writes keep the lease,
    /// or if the timeout is too short for a lease.
    ///
    /// The window and the acknowledgement of a ping use up part of the timeout, and the interval is
    /// a sixth of the rest. Gaps and waiting use up four intervals, and the lease lasts for the
    /// remaining time even then.
    pub fn ping_interval(&self, timeout: Duration) -> Option<Duration> {
        let spare = slow(timeout).checked_sub(self.window_span()?)?;
        let interval = (spare.checked_sub(ACKNOWLEDGEMENT_MAX)? / 6).min(timeout / 3);
        (interval >= PING_INTERVAL_MIN).then_some(interval)
    }

    /// Returns the shortest session timeout that is long enough for a lease.
    pub fn timeout_min(&self) -> Duration {
        let timeout = match self.by {
            // With this timeout, the span of the bridge is 0.95 - 5/20 - 1/20 of the timeout.
            By::Writes(None) => self.bridge_span().saturating_mul(20) / 13,
            By::Writes(Some(interval)) => {
                self.bridge_span().saturating_add(interval.saturating_mul(5)).saturating_mul(10) / 9
            }
            By::Pings { .. } => {
                let spare = ACKNOWLEDGEMENT_MAX + PING_INTERVAL_MIN * 6;
                let slow = self.window_span().unwrap_or_default().saturating_add(spare);
                slow.saturating_mul(20) / 19
            }
        };
        // Servers grant whole milliseconds.
        let ms = timeout.as_nanos().div_ceil(1_000_000);
        Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
    }

    /// Returns the maximum silence of a connection after which a new connection can still save the
    /// lease. Returns `None` if there is no lease.
    pub(crate) fn silence_max(&self, timeout: Duration) -> Option<Duration> {
        match self.by {
            By::Writes(_) => {
                // Silence of less than a second may just mean that the server is busy.
                Some((self.write_terms(timeout)?.remaining_min / 2).max(Duration::from_secs(1)))
            }
            By::Pings { .. } => Some(self.ping_interval(timeout)? * 2 + ACKNOWLEDGEMENT_MAX),
        }
    }

    /// Returns how long the leader takes to fetch a follower's report of active sessions, unless it
    /// is paused. The time is extended in case our clock is fast.
    pub(super) fn bridge_span(&self) -> Duration {
        fast(self.tick)
    }

    /// Returns how long a running server may continue without its leader, or a leader without its
    /// followers. The time is extended in case our clock is fast. Returns `None` if writes keep the
    /// lease, because then that time does not matter.
    pub(super) fn window_span(&self) -> Option<Duration> {
        match self.by {
            By::Writes(_) => None,
            By::Pings { sync_limit } => {
                Some(fast(self.tick.saturating_mul(sync_limit.saturating_add(2))))
            }
        }
    }

    /// Returns why the configured values are invalid, or `None` if they are valid.
    pub(crate) fn defect(&self) -> Option<LeaseDefect> {
        if self.tick < Duration::from_millis(1) {
            return Some(LeaseDefect::TickTooShort);
        }
        if self.tick > CONFIGURED_MAX {
            return Some(LeaseDefect::TickTooLong);
        }
        match self.by {
            By::Writes(Some(interval)) if interval < WRITE_INTERVAL_MIN => {
                Some(LeaseDefect::WriteIntervalTooShort)
            }
            By::Writes(Some(interval)) if interval > CONFIGURED_MAX => {
                Some(LeaseDefect::WriteIntervalTooLong)
            }
            By::Pings { sync_limit: 0 } => Some(LeaseDefect::SyncLimitZero),
            By::Pings { sync_limit } if self.tick.saturating_mul(sync_limit) > CONFIGURED_MAX => {
                Some(LeaseDefect::SyncLimitTooLong)
            }
            By::Writes(_) | By::Pings { .. } => None,
        }
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.by {
            By::Writes(None) => f.write_str("writes")?,
            By::Writes(Some(interval)) => write!(f, "writes every {interval:?}")?,
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
        // What the guide says.
        let rounded = Duration::from_secs_f64(3.3);
        let min = Lease::default().timeout_min();
        assert!(rounded - Duration::from_millis(100) < min && min <= rounded, "{min:?}");
        let second = Lease::writes(Duration::from_secs(1));
        for lease in [Lease::default(), second, Lease::pings(5, TICK_DEFAULT)] {
            let min = lease.timeout_min();
            let ms = Duration::from_millis(1);
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
            // Unusable values must not cause a panic either.
            let _ = (lease.ping_interval(TIMEOUT), lease.write_interval(TIMEOUT));
            let _ = (lease.timeout_min(), lease.silence_max(TIMEOUT));
        }
    }
}
