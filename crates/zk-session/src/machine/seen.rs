//! What the client has seen of the ensemble's history.

use crate::types::Zxid;

/// The newest state that the client has seen. A server that is behind it must not serve the session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// The newest zxid in a reply.
    zxid: Zxid,
    /// The client was told of changes that `zxid` may not cover, so a server that lags behind them
    /// would resume the session. Events tell of changes, and their headers do not count. So did an
    /// earlier session, and the zxid of the transaction that has created this one, which covers
    /// those changes, is unknown.
    is_behind: bool,
}

impl Seen {
    /// Creates the state of a client that has seen nothing.
    pub(super) fn nothing() -> Self {
        Self { zxid: Zxid(0), is_behind: false }
    }

    /// Creates the state of a client that continues with what others have seen. Events may have told
    /// them of changes that this zxid does not cover.
    pub(super) fn inherited(zxid: Zxid) -> Self {
        Self { zxid, is_behind: true }
    }

    /// Returns the newest zxid in a reply.
    pub(super) fn zxid(self) -> Zxid {
        self.zxid
    }

    /// Returns true if the client may have been told of changes that the zxid does not cover.
    pub(super) fn is_behind(self) -> bool {
        self.is_behind
    }

    /// Records the zxid of a reply.
    pub(super) fn reply(&mut self, zxid: Zxid) {
        self.zxid = self.zxid.max(zxid);
    }

    /// Records an event.
    pub(super) fn event(&mut self) {
        self.is_behind = true;
    }

    /// Records that the server has applied everything that it has told the client of, or that it
    /// cannot be made to do so.
    pub(super) fn caught_up(&mut self) {
        self.is_behind = false;
    }
}
