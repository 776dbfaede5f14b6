//! What can be said of the session right now.

use std::time::Duration;

use crate::time::Time;
use crate::types::SessionId;

/// State of a client, as its user sees it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum SessionState {
    /// The credentials were refused; final.
    AuthFailed,
    /// Closed; final.
    Closed,
    /// Connected to a server that takes writes.
    Connected,
    /// Without a session yet, the first one or the next, and trying to get one.
    Connecting,
    /// The session has expired, and no other is wanted; final.
    Expired,
    /// Without a connection. The session lives on until a server says otherwise.
    Suspended,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum EndCause {
    /// The client has stopped, and no server has confirmed the end of the session. It expires by
    /// itself.
    Abandoned,
    /// The client was closed, and a server has confirmed it.
    Closed,
    /// A server said so.
    Expired,
    /// No server was reached for so long that it must have expired. Should it still live, it is
    /// closed before the next one is opened.
    GaveUp,
    /// A server resumed it under another id, which is another session.
    Swapped,
}

/// A moment's view of the session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Status {
    /// State.
    pub state: SessionState,
    /// The session, if there is one.
    pub session: Option<SessionId>,
    /// Number of the current connection, or of the last one. The first is 1.
    pub connection: u64,
    /// Negotiated session timeout, but never more than the session was created with; the wanted
    /// one before the first connection.
    pub timeout: Duration,
    /// Send time of the newest request that was acknowledged in this session.
    pub acknowledged: Option<Time>,
    pub(crate) guard_deadline: Option<Time>,
    /// The lease is not switched off, and the session timeout leaves room for one.
    pub(crate) can_be_leased: bool,
    pub(crate) lease_deadline: Option<Time>,
    /// How far apart acknowledgements are at most, if the server is prompt.
    pub(crate) beat: Duration,
    /// How often a guard deadline has passed. Whoever relied on the session before that must not
    /// do so again, even if it comes back.
    pub lapses: u64,
}

impl Status {
    /// When the session's ephemerals must no longer be trusted: the end of the
    /// [lease](Self::lease_deadline), if there is one.
    ///
    /// **Before the first lease** of a session that was idle, or after the last, it is the end that
    /// a lease would have if the leader never stood still.
    ///
    /// **If there can be no lease**, it is the send time of the newest acknowledged request plus
    /// the session timeout that was in force then, or the one that is now if that is less. This can
    /// be too late. The server that acknowledged has counted from later than that, but in an
    /// ensemble it is the leader that counts, and it may have heard of the request late or never: a
    /// follower that is cut off from its leader goes on acknowledging for some seconds after the
    /// leader has expired the session. What must not rely on that needs a committed write, or a
    /// fencing token.
    pub fn guard_deadline(&self) -> Option<Time> {
        self.guard_deadline
    }

    /// Whether nobody else can own the session's ephemerals, as far as a lease can tell. Always
    /// true if there can be no lease: see [`guard_deadline`](Self::guard_deadline).
    pub fn is_leased(&self, now: Time) -> bool {
        !self.can_be_leased || self.lease_deadline.is_some_and(|deadline| now < deadline)
    }

    /// Until when no server can have ended the session for lack of a sign of life, if the
    /// assumptions of [`Lease`](crate::Lease) hold; it may lie in the past. `None` if there is no
    /// lease: it is switched off, the session timeout is too short for one, or nothing has proven
    /// one since a lock began to need it.
    pub fn lease_deadline(&self) -> Option<Time> {
        self.lease_deadline
    }

    /// When an acknowledgement is overdue: two intervals after the newest acknowledged request was
    /// sent, but never later than the guard deadline. The interval is that of the pings, or, while
    /// writes keep a lease that a lock needs, that of the writes, but at least half a second.
    /// Without a lease this is two thirds of the way to the guard deadline.
    pub fn risk_deadline(&self) -> Option<Time> {
        self.guard_deadline.min(Some(self.acknowledged? + self.beat * 2))
    }

    /// True if the session is connected and its guard deadline lies ahead of `now`.
    pub fn is_alive(&self, now: Time) -> bool {
        self.state == SessionState::Connected
            && self.guard_deadline.is_some_and(|deadline| now < deadline)
    }
}

/// A change that concerns whoever depends on the session.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// The credentials were refused; final.
    AuthFailed,
    /// The client is being closed; nothing more is sent but what is under way.
    Closing,
    /// The session is connected.
    Connected {
        /// The session.
        session: SessionId,
        /// Number of the connection.
        connection: u64,
        /// False for the first connection of the session.
        resumed: bool,
    },
    /// The session has ended, and with it everything that belonged to it.
    Ended {
        /// The session.
        session: SessionId,
        /// Why.
        cause: EndCause,
    },
    /// The guard deadline has passed without a server's word.
    Lapsed {
        /// The session.
        session: SessionId,
    },
    /// The connection ended.
    Suspended {
        /// The session.
        session: SessionId,
    },
}
