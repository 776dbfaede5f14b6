//! A member of a group, as other clients see it.

use std::time::SystemTime;

use bytes::Bytes;
use jute_codec::DataReply;
use zk_session::{SessionId, Zxid};

use crate::presence::state::created_at;

/// A member of a group.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Member {
    /// Its id, which is the name of its znode.
    pub id: String,
    /// What it says about itself.
    pub data: Bytes,
    /// The session that owns its znode.
    pub session: SessionId,
    /// The transaction that created its znode. A member that leaves and joins again has a greater
    /// one.
    pub czxid: Zxid,
    /// When its znode was created, by the clock of the server that led the ensemble then.
    pub since: SystemTime,
}

impl Member {
    /// Returns the member that a znode belongs to; `None` if the znode is not ephemeral, because
    /// then it belongs to none.
    pub(super) fn new(id: &str, found: DataReply) -> Option<Self> {
        if found.stat.ephemeral_owner == SessionId::NONE {
            return None;
        }
        Some(Self {
            id: id.to_owned(),
            data: found.data.unwrap_or_default(),
            session: found.stat.ephemeral_owner,
            czxid: found.stat.czxid,
            since: created_at(found.stat.ctime),
        })
    }
}
