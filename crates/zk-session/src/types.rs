//! Metadata and events of znodes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytestring::ByteString;
use jute_codec::EventType;
pub use jute_codec::{SessionId, Version, Zxid};

/// The metadata of a znode.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Stat {
    /// Transaction that created the znode.
    pub czxid: Zxid,
    /// Transaction that last changed the data, or created the znode.
    pub mzxid: Zxid,
    /// Transaction that last created or deleted a child.
    pub pzxid: Zxid,
    /// When the znode was created, by the wall clock of the leader at that time.
    pub ctime: SystemTime,
    /// When the data was last changed, by the wall clock of the leader at that time.
    pub mtime: SystemTime,
    /// Number of changes to the data since the znode was created.
    pub version: Version,
    /// Number of times that a child was created or deleted.
    pub cversion: Version,
    /// Number of changes to the access control list.
    pub aversion: Version,
    /// Session that owns the znode, if it is ephemeral.
    pub ephemeral_owner: Option<SessionId>,
    /// Length of the data in bytes.
    pub data_length: usize,
    /// Number of children.
    pub num_children: usize,
}

/// An identity that a server attributes to a connection; see
/// [`Client::who_am_i`](crate::Client::who_am_i).
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Identity {
    /// The scheme, such as `ip`, `digest` or `sasl`.
    pub scheme: ByteString,
    /// The user. For the scheme `digest`, it is the name without the hash of the password. It is
    /// empty for the scheme `super`.
    pub user: ByteString,
}

/// What happened to a watched znode.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct WatchedEvent {
    /// What happened.
    pub kind: EventType,
    /// Path of the znode. A client reports the path without its chroot.
    pub path: ByteString,
    /// Transaction that changed the znode. Servers before 3.9 do not report it, and no server does
    /// for a change that happened while the client was not connected.
    pub zxid: Option<Zxid>,
}

impl From<jute_codec::Stat> for Stat {
    fn from(stat: jute_codec::Stat) -> Self {
        let owner = stat.ephemeral_owner;
        Self {
            czxid: stat.czxid,
            mzxid: stat.mzxid,
            pzxid: stat.pzxid,
            ctime: wall_clock(stat.ctime),
            mtime: wall_clock(stat.mtime),
            version: stat.version,
            cversion: stat.cversion,
            aversion: stat.aversion,
            ephemeral_owner: (owner != SessionId::NONE).then_some(owner),
            data_length: usize::try_from(stat.data_length).unwrap_or(0),
            num_children: usize::try_from(stat.num_children).unwrap_or(0),
        }
    }
}

fn wall_clock(ms: i64) -> SystemTime {
    let distance = Duration::from_millis(ms.unsigned_abs());
    let time =
        if ms < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
    time.unwrap_or(UNIX_EPOCH)
}
