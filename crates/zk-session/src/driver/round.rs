//! What happens in one round of the task of a session.

use std::time::Duration;

use crate::report::stats::{Counts, Times};

/// The counts of a round, and the times that were measured in it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Round {
    pub(super) counts: Counts<u64>,
    pub(super) times: Times<Option<Duration>>,
}
