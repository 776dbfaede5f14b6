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
    /// Session timeout that counts for that request.
    pub(crate) acknowledged_timeout: Duration,
    pub(crate) lease_deadline: Option<Time>,
    /// How often pings are sent, if there can be a lease.
    pub(crate) ping_interval: Option<Duration>,
    /// How often a guard deadline has passed. Whoever relied on the session before that must not
    /// do so again, even if it comes back.
    pub lapses: u64,
}

impl Status {
    /// When the session's ephemerals must no longer be trusted: the end of the
    /// [lease](Self::lease_deadline), if there is one. Otherwise the send time of the newest
    /// acknowledged request plus the session timeout that was in force then, or the one that is
    /// now if that is less.
    ///
    /// Without a lease this can be too late. The server that acknowledged has counted from later
    /// than that, but in an ensemble it is the leader that counts, and it may have heard of the
    /// request late or never: a follower that is cut off from its leader goes on acknowledging for
    /// some seconds after the leader has expired the session. What must not rely on that needs a
    /// committed write, or a fencing token.
    pub fn guard_deadline(&self) -> Option<Time> {
        self.lease_deadline.or_else(|| Some(self.acknowledged? + self.acknowledged_timeout))
    }

    /// Until when no server can have ended the session for lack of a sign of life, if the
    /// assumptions of [`LeaseConfig`](crate::LeaseConfig) hold; it may lie in the past. `None` if
    /// there is no lease: it is switched off, or the session timeout is too short for one.
    pub fn lease_deadline(&self) -> Option<Time> {
        self.lease_deadline
    }

    /// When an acknowledgement is overdue: two ping intervals after the newest acknowledged
    /// request was sent, but never later than the guard deadline. Without a lease this is two
    /// thirds of the way to it.
    pub fn risk_deadline(&self) -> Option<Time> {
        let interval = self.ping_interval.unwrap_or(self.acknowledged_timeout / 3);
        self.guard_deadline().min(Some(self.acknowledged? + interval * 2))
    }

    /// True if the session is connected and its guard deadline lies ahead of `now`.
    pub fn is_alive(&self, now: Time) -> bool {
        self.state == SessionState::Connected
            && self.guard_deadline().is_some_and(|deadline| now < deadline)
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
