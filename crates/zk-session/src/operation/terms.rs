//! What a handle requires of each of its operations.

use std::time::Duration;

use crate::machine::{Limits, OwnerId};
use crate::types::SessionId;

/// The terms of the operations of a handle. A handle without any has no such value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    /// Time limit of each operation.
    pub(crate) timeout: Option<Duration>,
    /// The session in which operations are sent, if they may not be sent in another one.
    pub(crate) session: Option<SessionId>,
    /// The number that the limited handle and its clones have in common, and its limits.
    pub(crate) quota: Option<(OwnerId, Limits)>,
}
