//! What the client has seen of the ensemble's history.

use crate::time::Time;
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
    /// Whether `zxid` covers the transaction that has opened the session.
    session: Session,
}

/// Whether what the client has seen covers the transaction that has opened the session. If not, a
/// server that does not know the session may accept this client.
#[derive(Clone, Copy, Debug)]
enum Session {
    /// A reply in the session has named its zxid or a later one, or nothing is known of the session.
    Covered,
    /// Nothing was requested in the session.
    Unused,
    /// The newest request was sent at this time, and no reply that covers the session has arrived.
    Unanswered(Time),
}

impl Seen {
    /// Creates the state of a client that has seen nothing.
    pub(super) fn nothing() -> Self {
        Self { zxid: Zxid(0), is_behind: false, session: Session::Covered }
    }

    /// Creates the state of a client that continues with what others have seen. Events may have told
    /// them of changes that this zxid does not cover.
    pub(super) fn inherited(zxid: Zxid) -> Self {
        Self { zxid, is_behind: true, session: Session::Covered }
    }

    /// Returns the newest zxid in a reply.
    pub(super) fn zxid(self) -> Zxid {
        self.zxid
    }

    /// Returns true if the client may have been told of changes that the zxid does not cover.
    pub(super) fn is_behind(self) -> bool {
        self.is_behind
    }

    /// Returns when the newest request was sent, if no reply covers the session. A server that does not
    /// know the session may accept this client then.
    pub(super) fn unanswered(self) -> Option<Time> {
        match self.session {
            Session::Unanswered(sent) => Some(sent),
            Session::Covered | Session::Unused => None,
        }
    }

    /// Records that a session was opened. Its zxid is not known.
    pub(super) fn session_opened(&mut self) {
        self.session = Session::Unused;
    }

    /// Records that a request is sent in the session.
    pub(super) fn requested(&mut self, now: Time) {
        if !matches!(self.session, Session::Covered) {
            self.session = Session::Unanswered(now);
        }
    }

    /// Records the zxid of a reply.
    pub(super) fn reply(&mut self, zxid: Zxid) {
        self.zxid = self.zxid.max(zxid);
    }

    /// Records that a reply has named the zxid of the session, or a later one.
    pub(super) fn session_covered(&mut self) {
        self.session = Session::Covered;
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
