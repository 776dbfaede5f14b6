//! How attempts, removals and changes of a lock end.

use bytestring::ByteString;
use jute_codec::DataReply;
use zk_session::{SessionId, Zxid};

use super::error::{LockError, LostReason};
use crate::machine::{Failure, WatchNumber};

/// A lock that was granted to an attempt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Held {
    /// The contender znode.
    pub znode: Znode,
    /// The session that owns it.
    pub session: SessionId,
    /// The connection on which the lock was granted.
    pub connection: u64,
    /// The watch on our own znode, if there is one.
    pub own_watch: Option<WatchNumber>,
    /// Number of guard deadlines of the client that had passed before the grant.
    pub lapses: u64,
}

/// Why an attempt ended without the lock.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NotHeld {
    /// Another contender holds the lock or waits for it, and the attempt may not wait.
    Busy,
    /// The lock cannot be obtained. The znodes that the attempt may have left have to be removed.
    Failed(LockError),
    /// Start again with a new attempt and a new id, and remove the znodes that this attempt may
    /// have left.
    Restart(Restart),
}

/// Why an attempt starts again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Restart {
    /// The session has ended: the next attempt runs in the next session.
    SessionEnded,
    /// The contender znode is gone although the session lives.
    ZnodeGone,
}

/// One of our contender znodes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Znode {
    /// Its name in the directory.
    pub name: ByteString,
    /// Its sequence number; 0 for a fixed name.
    pub sequence: u32,
    /// The transaction that created it.
    pub czxid: Zxid,
}

/// How a release ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Released {
    /// Another client had already deleted the znode, and no reply to a delete was lost.
    AlreadyGone,
    /// The session ended, which deleted the znode.
    EndedWithSession,
    /// The znode was deleted.
    Released,
}

/// A lock that was changed while it was held, such as a writer that became a reader.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Changed {
    /// The znode that holds the lock now. Its `czxid` is still that of the znode before the change.
    pub znode: Znode,
    /// The connection on which the change was confirmed.
    pub connection: u64,
}

/// Why a lock was not changed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NotChanged {
    /// The lock is lost.
    Lost(LostReason),
    /// The change was refused, and the lock is held as before.
    Refused(LockError),
}

/// Counts of events in a machine since the last call that took the counts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Tally {
    /// Duplicates of our own znode that were found and removed.
    pub duplicates: u32,
    /// Flights issued again because a lost connection had left their outcome open.
    pub replays: u32,
    /// Changes that no watch had reported and that the periodic check found.
    pub watches_missed: u32,
}

impl Tally {
    /// Counts flights that were issued again.
    pub(crate) fn replayed(&mut self, times: u64) {
        self.replays = self.replays.saturating_add(u32::try_from(times).unwrap_or(u32::MAX));
    }
}

impl NotHeld {
    /// Converts the failure of an operation that the attempt cannot do without.
    pub(crate) fn of(failure: Failure) -> Self {
        Self::Failed(LockError::of(failure))
    }
}

impl Znode {
    /// Returns whether the data and stat that were read are those of this znode. Its name alone
    /// proves nothing, because another session may have created it again: the owner and the
    /// creating transaction have to match.
    pub(crate) fn is_read(&self, session: SessionId, found: &DataReply) -> bool {
        is_created_by(found, session, self.czxid)
    }
}

/// Returns whether a znode that was read was created by this transaction and belongs to this
/// session.
pub(crate) fn is_created_by(found: &DataReply, session: SessionId, czxid: Zxid) -> bool {
    found.stat.ephemeral_owner == session && found.stat.czxid == czxid
}
