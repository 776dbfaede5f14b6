//! Whether a process is a member.

use std::fmt;

use zk_session::SessionId;

use crate::presence::Absence;
use crate::presence::state::End;

/// Whether a process is a member of the group, as far as its client knows.
///
/// While the client has no connection, the state stays what it was: a member whose session has
/// expired in the meantime learns of it after the next reconnect. See
/// [`Client::status`](crate::Client::status) for the connection.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum MembershipState {
    /// The znode of the member exists, and this session of the client owns it.
    Member {
        /// The session.
        session: SessionId,
    },
    /// The znode is gone, or was never created in the present session. The membership creates it
    /// as soon as it can.
    Rejoining(Absence),
    /// The membership is over, and does not begin again.
    Ended(Ending),
}

/// Why a membership is over.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Ending {
    /// The client was closed, its credentials were refused, or its runtime has shut down.
    ClientStopped,
    /// Another member has taken the id while this one was absent, and the group was built without
    /// [`wait_if_taken`](crate::GroupBuilder::wait_if_taken).
    IdTaken(SessionId),
    /// The owner of the membership has left the group.
    Left,
    /// A znode that is not ephemeral was created at the path of the member.
    NotEphemeral,
}

impl Ending {
    pub(super) fn of(end: End) -> Self {
        match end {
            End::ClientStopped => Self::ClientStopped,
            End::Left => Self::Left,
            End::NotEphemeral => Self::NotEphemeral,
            End::Taken(session) => Self::IdTaken(session),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientStopped => f.write_str("the client has stopped"),
            Self::IdTaken(session) => write!(f, "session {session} has taken the id"),
            Self::Left => f.write_str("the member has left"),
            Self::NotEphemeral => f.write_str("a znode that is not ephemeral has the id"),
        }
    }
}
