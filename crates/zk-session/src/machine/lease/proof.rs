//! A request that extends the lease once it is known that the leader has learned of it.

use std::time::Duration;

use super::drift::slow;
use crate::time::Time;

/// A request, and the session timeout that applies to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proof {
    pub(super) sent: Time,
    pub(super) timeout: Duration,
}

impl Proof {
    /// Returns the time at which a lease based on this request ends.
    pub(super) fn deadline(self) -> Time {
        self.sent + slow(self.timeout)
    }

    /// Returns the proof with the later deadline.
    pub(super) fn later(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.into_iter().chain(other).max_by_key(|proof| proof.deadline())
    }
}
