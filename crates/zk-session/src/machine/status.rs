//! A snapshot of the session, and its changes.

use std::fmt;
use std::time::Duration;

use super::lease::{Lease, SlowCommits};
use crate::error::{OpError, Outcome};
use crate::time::Time;
use crate::types::SessionId;

/// State of a client as its user sees it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum SessionState {
    /// A server refused the credentials. This state is final.
    AuthFailed,
    /// The client is closed. This state is final.
    Closed,
    /// The session is connected to a server that accepts writes.
    Connected,
    /// The client is connected to a read-only server: one that has lost contact with the majority of
    /// its ensemble. Reads show what that server knows, writes fail with `NOT_READ_ONLY`, and locks
    /// and other recipes wait as they do in the state [`Suspended`](Self::Suspended). The session, if
    /// there was one, continues to exist until a server reports its end. Only clients with
    /// [`read_only`](crate::ClientBuilder::read_only) reach this state.
    ConnectedReadOnly,
    /// The client has no session and is trying to open one, either its first or a new one.
    Connecting,
    /// The session has expired and the client is configured not to open another. This state is
    /// final.
    Expired,
    /// The session has no connection. The session continues to exist until a server reports its
    /// end.
    Suspended,
}

impl SessionState {
    /// Returns true if the client has stopped permanently.
    pub(crate) fn is_final(self) -> bool {
        match self {
            Self::AuthFailed | Self::Expired | Self::Closed => true,
            Self::Connected | Self::ConnectedReadOnly | Self::Connecting | Self::Suspended => false,
        }
    }

    /// Returns the error of a request that is submitted after the client has stopped in this state.
    pub(crate) fn refusal(self) -> OpError {
        match self {
            Self::AuthFailed => OpError::AuthFailed,
            Self::Expired => OpError::session_expired(Outcome::NotApplied),
            Self::Closed
            | Self::Connected
            | Self::ConnectedReadOnly
            | Self::Connecting
            | Self::Suspended => OpError::closed(Outcome::NotApplied),
        }
    }
}

/// How far a connection has progressed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ConnectionStage {
    /// There is no connection.
    Idle,
    /// The transport is being opened.
    Connecting,
    /// The ConnectRequest was sent, and no reply has arrived.
    Handshaking,
    /// The handshake is complete.
    Ready,
}

/// What a server has granted to a session, next to what was requested.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionTerms {
    /// Session timeout that the client has requested.
    pub(crate) requested: Duration,
    /// Session timeout that the server has granted.
    pub(crate) granted: Duration,
    /// The lease that is configured.
    pub(crate) lease: Option<Lease>,
    /// The session timeout is long enough for the lease.
    pub(crate) can_be_leased: bool,
    /// The server is a ClickHouse Keeper.
    pub(crate) is_keeper: bool,
}

impl SessionTerms {
    /// Describes the lease, or says why there is none.
    pub(crate) fn lease(&self) -> String {
        match self.lease {
            None => "none, it is disabled".to_owned(),
            Some(lease) if self.can_be_leased => format!("by {lease}"),
            Some(_) if self.is_keeper => "none, the server is a ClickHouse Keeper".to_owned(),
            Some(lease) => {
                let needed = lease.timeout_min();
                format!("none, it needs a session timeout of at least {needed:?}")
            }
        }
    }
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum EndCause {
    /// The client stopped before a server confirmed the end of the session. The session will expire
    /// on its own.
    Abandoned,
    /// The client closed the session, and a server confirmed it.
    Closed,
    /// A server reported that the session has expired.
    Expired,
    /// No server could be reached for so long that the session must have expired. In case it is
    /// still alive, the client closes it before it opens the next one.
    GaveUp,
    /// A server gave the client another session than the one requested. A ClickHouse Keeper does so
    /// whenever the client reconnects. The ephemeral znodes of the session that ended may remain
    /// until it expires, and its requests that were in flight may still be applied.
    Swapped,
}

impl fmt::Display for EndCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Abandoned => "the client has stopped without a reply of a server",
            Self::Closed => "the client has closed it",
            Self::Expired => "a server reports that it has expired",
            Self::GaveUp => "no server could be reached for so long that it must have expired",
            Self::Swapped => "a server has given another session instead",
        })
    }
}

/// A snapshot of the session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Status {
    /// State of the client.
    pub state: SessionState,
    /// The session, if there is one.
    pub session: Option<SessionId>,
    /// Number of the current connection, or of the last one. The first connection has number 1.
    pub connection: u64,
    /// Session timeout in force: the negotiated one, but never longer than the timeout with which
    /// the session was created. Before the first connection, it is the requested timeout.
    pub timeout: Duration,
    /// When the newest acknowledged request of this session was sent.
    pub acknowledged: Option<Time>,
    pub(crate) guard_deadline: Option<Time>,
    /// The lease is enabled, and the session timeout is long enough for one.
    pub(crate) can_be_leased: bool,
    pub(crate) lease_deadline: Option<Time>,
    /// Until when a lock may rely on the lease, or begin to rely on it if no lock needs it yet.
    pub(crate) leased_until: Option<Time>,
    pub(crate) slow_commits: Option<SlowCommits>,
    /// How long it takes at most until the next write has moved the guard deadline; zero if writes do
    /// not move it.
    pub(crate) renewal_time: Duration,
    /// The time from which an acknowledgement is overdue, whether there is a lease or not. An idle
    /// session lets its lease end.
    pub(crate) overdue_from: Option<Time>,
    /// How many guard deadlines have passed. Code that relied on the session before one of them
    /// must not rely on it again, even if the session is resumed.
    pub lapses: u64,
    pub(crate) has_left_session: bool,
}

impl Status {
    /// Returns true if an earlier session of this client may still be alive although the client has
    /// the next one: a server has [swapped](EndCause::Swapped) it, or is a ClickHouse Keeper, where
    /// nobody can close a session that was given up. Requests of that session may still be applied.
    pub fn has_left_session(&self) -> bool {
        self.has_left_session
    }

    /// Returns the time from which the session's ephemeral znodes must no longer be trusted. This
    /// is the end of the [lease](Self::lease_deadline), if there is one.
    ///
    /// **Before the first lease** of a session that was idle, and after its last lease, it is the
    /// time at which a lease would end if the leader never paused.
    ///
    /// **If no lease is possible**, it is the send time of the newest acknowledged request plus the
    /// session timeout: the one in force then or the one in force now, whichever is shorter. This
    /// can be too late. The server that acknowledged the request received it after we sent it, but
    /// in an ensemble the leader decides when a session expires, and it may have learned of the
    /// request late or never. A follower that is cut off from its leader keeps acknowledging
    /// requests for a few seconds after the leader has expired the session. Code that cannot
    /// tolerate that needs a committed write or a fencing token.
    pub fn guard_deadline(&self) -> Option<Time> {
        self.guard_deadline
    }

    /// Returns true if, according to the lease, no other session can own this session's ephemeral
    /// znodes. The result is always true if no lease is possible; see
    /// [`guard_deadline`](Self::guard_deadline). It is false while no lock needs the lease and too
    /// little of it is left to begin with.
    pub fn is_leased(&self, now: Time) -> bool {
        !self.can_be_leased || self.leased_until.is_some_and(|until| now < until)
    }

    /// Returns the time until which no server can have expired the session for lack of contact,
    /// provided that the assumptions of [`Lease`](crate::Lease) hold. This time may be in the
    /// past.
    ///
    /// Returns `None` if there is no lease: leases are disabled, the session timeout is too short
    /// for one, or nothing has established one since a lock last began to need it.
    pub fn lease_deadline(&self) -> Option<Time> {
        self.lease_deadline
    }

    /// Returns why a lock that needs a lease has none, if that is because commits take too long for
    /// the session timeout. Locks can be used meanwhile, at risk.
    pub fn slow_commits(&self) -> Option<SlowCommits> {
        self.slow_commits
    }

    /// Returns the time from which an acknowledgement is overdue: two intervals after the newest
    /// acknowledged request was sent, but never later than the guard deadline.
    ///
    /// Normally, the interval is the ping interval. While writes keep a lease that a lock needs, it
    /// is the interval of those writes instead, but at least half a second, and counted from the time
    /// at which the lock began to need the lease, if that is later: no write was due before. Without a
    /// lease, the result is two thirds of the way to the guard deadline.
    pub fn risk_deadline(&self) -> Option<Time> {
        self.guard_deadline.min(Some(self.overdue_from?))
    }

    /// Returns true if the guard deadline is so near that a lock which begins now may be lost before
    /// a write moves the deadline, although the servers are prompt. A write that is committed first
    /// prevents it. A client that waits for a lock far back in a queue commits none.
    pub fn is_running_out(&self, now: Time) -> bool {
        self.guard_deadline.is_none_or(|deadline| deadline <= now + self.renewal_time)
    }

    /// Returns true if the session is connected and its guard deadline is later than `now`.
    pub fn is_alive(&self, now: Time) -> bool {
        self.state == SessionState::Connected
            && self.guard_deadline.is_some_and(|deadline| now < deadline)
    }
}

/// A change of the session.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// A server refused the credentials. The client stops.
    AuthFailed,
    /// The client is being closed. It sends no further requests, but waits for pending replies.
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
    /// The session has ended, along with everything that belonged to it.
    Ended {
        /// The session.
        session: SessionId,
        /// Why it ended.
        cause: EndCause,
    },
    /// The guard deadline has passed without a sufficient acknowledgement from a server.
    Lapsed {
        /// The session.
        session: SessionId,
    },
    /// The connection was lost.
    Suspended {
        /// The session.
        session: SessionId,
    },
}
