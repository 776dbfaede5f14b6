//! Whether the znode of a presence exists.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use zk_session::{SessionId, Zxid};

use crate::error::RecipeError;

/// Whether the znode of a [`Presence`](crate::Presence) exists, as far as its client knows.
///
/// While the client has no connection, the state stays what it was: a client whose session has
/// expired in the meantime learns of it after the next reconnect. See
/// [`Client::status`](crate::Client::status) for the connection.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum PresenceState {
    /// The znode exists, and this session of the client owns it.
    Present {
        /// The session.
        session: SessionId,
        /// The transaction that created the znode. A znode that was created again has a greater
        /// one.
        czxid: Zxid,
        /// When the znode was created, by the clock of the server that led the ensemble then.
        since: SystemTime,
    },
    /// The znode is gone, or was never created in the present session. The client creates it as soon
    /// as it can.
    Absent(Absence),
    /// The client was closed, its credentials were refused, or its runtime has shut down. The znode
    /// ends with the session.
    Ended,
}

/// Why a znode that should be present is absent.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Absence {
    /// A znode that is not ephemeral has the path. Only a presence, and no membership, waits until it
    /// is deleted.
    NotEphemeral,
    /// A server refuses to create the znode. The client tries again when another client creates a
    /// parent that is missing, or deletes the one that refuses. It also tries after each pause of at
    /// most 6.25 s, because permissions can be corrected, and no server reports that they were.
    Refused(RecipeError),
    /// The session that owned the znode has ended.
    SessionEnded,
    /// Another session has created a znode at the path, or the id of the member is taken. The client
    /// waits until that znode is gone.
    Taken(SessionId),
    /// Another client has deleted the znode.
    ZnodeDeleted,
}

/// The znode of a presence.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Standing {
    pub(crate) session: SessionId,
    pub(crate) czxid: Zxid,
    /// Milliseconds since 1970.
    pub(crate) ctime: i64,
}

/// The state of the znode, in a form that recipes translate into their own states.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Status {
    Present(Standing),
    Absent(Absence),
    Over(End),
}

/// How a presence has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    ClientStopped,
    /// The owner has ended it.
    Left,
    /// A znode that is not ephemeral has the path.
    NotEphemeral,
    /// Another session has the path.
    Taken(SessionId),
}

impl From<Result<Standing, Absence>> for Status {
    fn from(standing: Result<Standing, Absence>) -> Self {
        standing.map_or_else(Self::Absent, Self::Present)
    }
}

/// Returns when a znode with this time in its stat was created, by the clock of the server that led
/// the ensemble then.
pub(crate) fn created_at(ctime: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(ctime).unwrap_or_default())
}
