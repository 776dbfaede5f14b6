//! A contender of a lock, as other clients see it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::DataReply;
use zk_session::SessionId;

use crate::lock::role::Role;

/// A holder or a waiter of a lock. Its process may use any implementation of the lock.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Contender {
    /// Path of its znode.
    pub path: String,
    /// Position in the queue, from 0. The contender at 0 holds the lock. Readers behind it may hold
    /// it too.
    pub position: usize,
    /// Its role, which decides whether it shares the lock with other contenders.
    pub role: Role,
    /// The data of its znode, which identifies the contender to people. Other implementations store
    /// other data.
    pub identity: Bytes,
    /// The session that owns its znode.
    pub session: SessionId,
    /// When its znode was created, by the clock of the server that led the ensemble then.
    pub since: SystemTime,
}

impl Contender {
    /// Returns how long the znode has existed at the time `now` of the local clock, such as
    /// `SystemTime::now()`. Returns zero if that clock is behind the server's.
    pub fn age(&self, now: SystemTime) -> Duration {
        now.duration_since(self.since).unwrap_or_default()
    }

    pub(crate) fn new(path: &ByteString, position: usize, role: Role, data: DataReply) -> Self {
        let ctime = Duration::from_millis(u64::try_from(data.stat.ctime).unwrap_or_default());
        Self {
            path: path.to_string(),
            position,
            role,
            identity: data.data.unwrap_or_default(),
            session: data.stat.ephemeral_owner,
            since: UNIX_EPOCH + ctime,
        }
    }
}
