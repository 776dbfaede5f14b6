//! A place in the queue, and what the current connection has shown about it.

use zk_session::SessionId;

use crate::machine::{SessionView, WatchNumber};

/// A place in the queue.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) session: SessionId,
    /// Connection on which the newest list was read; `None` after a disconnect.
    pub(super) listed_on: Option<u64>,
    /// The watch on our own znode. It is restored after a disconnect.
    pub(super) own_watch: Option<WatchNumber>,
    /// Connection on which a read set the watch on our own znode.
    pub(super) own_watched_on: Option<u64>,
    /// The watch on the predecessor, or on the directory.
    pub(super) ahead_watch: Option<WatchNumber>,
    /// Name of the predecessor.
    pub(super) nearest: Box<str>,
    /// The predecessor belongs to another session.
    pub(super) is_ahead_foreign: bool,
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

impl Place {
    pub(super) fn new(session: SessionId) -> Self {
        Self {
            session,
            listed_on: None,
            own_watch: None,
            own_watched_on: None,
            ahead_watch: None,
            nearest: Box::default(),
            is_ahead_foreign: false,
            ahead_owner: SessionId::NONE,
            ahead_identity: Box::default(),
            second: None,
            second_number: 0,
            second_watch: None,
        }
    }

    /// Returns whether the watches that step 4 needs are set and have not fired.
    pub(super) fn is_watched(&self) -> bool {
        self.ahead_watch.is_some() && self.own_watch.is_some()
    }

    /// Returns whether the newest list was read on the current connection, and this connection is
    /// alive.
    pub(super) fn is_listed(&self, view: SessionView) -> bool {
        self.listed_on.is_some() && self.listed_on == view.alive
    }

    /// Returns whether our own znode was read on the current connection and has been watched ever
    /// since, and its watch has not fired. If so, it is still the znode that we created.
    pub(super) fn is_own_watched(&self, view: SessionView) -> bool {
        self.own_watch.is_some()
            && self.own_watched_on.is_some()
            && self.own_watched_on == view.connection
    }

    /// Records that our own znode was read on this connection, and is ours.
    pub(super) fn own_seen(&mut self, connection: u64) {
        self.own_watched_on = self.own_watch.and(Some(connection));
    }
}
