//! A place in the queue, and what is known of it on the current connection.

use std::num::NonZeroU64;

use zk_session::SessionId;

use crate::machine::View;

/// A place in the queue.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) session: SessionId,
    /// Connection of the newest list; `None` after a disconnect.
    pub(super) listed_on: Option<u64>,
    /// The watch on the own znode. It is restored after a disconnect.
    pub(super) own_watch: Option<NonZeroU64>,
    /// Connection on which that watch was set by a read.
    pub(super) own_watched_on: Option<u64>,
    /// The watch on the one ahead, or on the directory.
    pub(super) ahead_watch: Option<NonZeroU64>,
    pub(super) nearest: Box<str>,
    /// The one ahead belongs to another session.
    pub(super) is_ahead_foreign: bool,
    /// The second ahead, until it is watched.
    pub(super) second: Option<Box<str>>,
    /// Its number.
    pub(super) second_number: u32,
    pub(super) second_watch: Option<NonZeroU64>,
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
            second: None,
            second_number: 0,
            second_watch: None,
        }
    }

    /// The watches that are needed are there, and have not fired.
    pub(super) fn is_watched(&self) -> bool {
        self.ahead_watch.is_some() && self.own_watch.is_some()
    }

    /// The newest list was taken on the current connection, which is alive.
    pub(super) fn is_listed(&self, view: View) -> bool {
        self.listed_on.is_some() && self.listed_on == view.alive
    }

    /// The own znode has been watched on the current connection all the time since it was read
    /// there, and no event of it came: it is still the one that was created.
    pub(super) fn is_own_watched(&self, view: View) -> bool {
        self.own_watch.is_some()
            && self.own_watched_on.is_some()
            && self.own_watched_on == view.connection
    }

    /// The own znode was read on this connection, and is ours.
    pub(super) fn own_seen(&mut self, connection: u64) {
        self.own_watched_on = self.own_watch.and(Some(connection));
    }
}
