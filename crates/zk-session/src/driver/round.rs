//! What happens in one round of the task of a session.

use std::time::Duration;

/// The counts of a round.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Round {
    pub(super) bytes_sent: u64,
    pub(super) bytes_received: u64,
    pub(super) connections: u64,
    pub(super) connections_lost: u64,
    pub(super) attempts: u64,
    pub(super) sessions: u64,
    pub(super) sessions_lost: u64,
    pub(super) watch_events: u64,
    /// Duration of an outage that has ended.
    pub(super) outage: Option<Duration>,
}
