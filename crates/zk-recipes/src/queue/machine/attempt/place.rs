//! What an attempt knows about the contenders that it waits for.

use zk_session::SessionId;

use crate::machine::WatchNumber;

/// A place in a queue whose contenders wait for their turn.
#[derive(Clone, Debug)]
pub struct QueuePlace {
    /// The watch on the predecessor, or on the directory.
    pub(super) ahead_watch: Option<WatchNumber>,
    /// Name of the predecessor.
    pub(super) nearest: Box<str>,
    /// The predecessor belongs to another session.
    pub(super) is_ahead_foreign: bool,
    /// The client may not read the predecessor, so the attempt watches the directory instead.
    pub(super) is_blind: bool,
    /// The session of the predecessor, or `NONE` until it was read. There are many places, and an
    /// `Option` would be twice as large.
    pub(super) ahead_owner: SessionId,
    /// The beginning of the predecessor's identity, once it was read.
    pub(super) ahead_identity: Box<str>,
    /// Name of the second nearest predecessor, until it is watched.
    pub(super) second: Option<Box<str>>,
    /// Number of the second nearest predecessor.
    pub(super) second_number: u32,
    pub(super) second_watch: Option<WatchNumber>,
}

impl Default for QueuePlace {
    fn default() -> Self {
        Self {
            ahead_watch: None,
            nearest: Box::default(),
            is_ahead_foreign: false,
            is_blind: false,
            ahead_owner: SessionId::NONE,
            ahead_identity: Box::default(),
            second: None,
            second_number: 0,
            second_watch: None,
        }
    }
}
