//! When the next write that renews the lease is due on a connection.

use std::time::Duration;

use crate::time::Time;

/// Longest interval to the next renewal after refusals, unless the usual one is longer. A lock may be
/// at risk for this long after the server has begun to accept writes again.
const REFUSED_INTERVAL_MAX: Duration = Duration::from_secs(5);

/// The renewals of one connection. One of them is in flight at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct RenewalPace {
    /// A write that renews the lease is in flight.
    is_renewing: bool,
    /// Start of the interval to the next renewing write.
    base: Option<Time>,
    /// Number of renewals in a row that the server has refused.
    refused: u32,
}

impl RenewalPace {
    /// Returns true if a renewal is in flight.
    pub(super) fn is_renewing(&self) -> bool {
        self.is_renewing
    }

    /// Starts the interval to the next renewal at this time.
    pub(super) fn restart(&mut self, now: Time) {
        self.base = Some(now);
    }

    /// Returns when the next renewal is due if there is one in each interval. The first interval
    /// starts now.
    ///
    /// The interval doubles with each refusal after the first, since a server that refuses for a
    /// long time is overloaded or does not permit the write.
    pub(super) fn next(&mut self, now: Time, interval: Duration) -> Time {
        let doublings = self.refused.saturating_sub(1).min(16);
        let pause = interval.saturating_mul(1 << doublings).min(REFUSED_INTERVAL_MAX.max(interval));
        *self.base.get_or_insert(now) + pause
    }

    /// Records that a renewal was sent.
    pub(super) fn sent(&mut self) {
        debug_assert!(!self.is_renewing, "one renewal is in flight at a time");
        self.is_renewing = true;
    }

    /// Records the reply to a renewal.
    pub(super) fn completed(&mut self) {
        debug_assert!(self.is_renewing, "one renewal is in flight at a time");
        self.is_renewing = false;
    }

    /// Records that the server has refused a renewal. Such a write proves nothing, and repeating it
    /// at once would only add load.
    pub(super) fn refused(&mut self, now: Time) {
        self.refused = self.refused.saturating_add(1);
        self.base = Some(now);
    }

    /// Records that a write that was sent at this time was committed. It renews the lease as a
    /// renewal would.
    pub(super) fn committed(&mut self, sent: Time) {
        self.refused = 0;
        self.base = Some(sent);
    }
}
