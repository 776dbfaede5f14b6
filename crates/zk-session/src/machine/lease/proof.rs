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
        let (Some(first), Some(second)) = (one, other) else { return one.or(other) };
        let is_later = if first.timeout == second.timeout {
            // Nearly always: a timeout changes with a resume only.
            first.sent <= second.sent
        } else {
            first.deadline() <= second.deadline()
        };
        if is_later { other } else { one }
    }
}
