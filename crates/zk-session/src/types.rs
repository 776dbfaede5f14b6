//! ZooKeeper's numbers as types, so that a zxid is not taken for a session.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytestring::ByteString;
use jute_codec::EventType;

/// Identifies a session. Prints as servers log it, in hexadecimal.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[allow(clippy::exhaustive_structs, reason = "an opaque number")]
pub struct SessionId(pub i64);

/// Identifies a transaction; ordered over the whole ensemble.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[allow(clippy::exhaustive_structs, reason = "a number")]
pub struct Zxid(pub i64);

/// Number of changes of a znode's data, or of its access control list.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[allow(clippy::exhaustive_structs, reason = "a number")]
pub struct Version(pub i32);

/// What a server knows of a znode besides its data.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Stat {
    /// Transaction that created the znode.
    pub czxid: Zxid,
    /// Transaction that changed the data last; the create counts.
    pub mzxid: Zxid,
    /// Transaction that created or deleted a child last.
    pub pzxid: Zxid,
    /// Time of the create, by the wall clock of the leader of that time.
    pub ctime: SystemTime,
    /// Time of the last change of the data, likewise.
    pub mtime: SystemTime,
    /// Number of changes of the data.
    pub version: Version,
    /// Number of creates and deletes of children.
    pub cversion: i32,
    /// Number of changes of the access control list.
    pub aversion: Version,
    /// Session that owns the znode, if it is ephemeral.
    pub ephemeral_owner: Option<SessionId>,
    /// Length of the data in bytes.
    pub data_length: usize,
    /// Number of children.
    pub num_children: usize,
}

/// What happened to a watched znode.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct WatchedEvent {
    /// What happened.
    pub kind: EventType,
    /// Path of the znode, as the caller knows it.
    pub path: ByteString,
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for Zxid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Zxid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl From<jute_codec::Stat> for Stat {
    fn from(stat: jute_codec::Stat) -> Self {
        let owner = stat.ephemeral_owner;
        Self {
            czxid: Zxid(stat.czxid),
            mzxid: Zxid(stat.mzxid),
            pzxid: Zxid(stat.pzxid),
            ctime: wall_clock(stat.ctime),
            mtime: wall_clock(stat.mtime),
            version: Version(stat.version),
            cversion: stat.cversion,
            aversion: Version(stat.aversion),
            ephemeral_owner: (owner != 0).then_some(SessionId(owner)),
            data_length: usize::try_from(stat.data_length).unwrap_or(0),
            num_children: usize::try_from(stat.num_children).unwrap_or(0),
        }
    }
}

impl Version {
    /// The protocol's number for an expected version; `None` matches any.
    pub(crate) fn to_wire(version: Option<Self>) -> i32 {
        version.map_or(-1, |version| version.0)
    }
}

fn wall_clock(ms: i64) -> SystemTime {
    let distance = Duration::from_millis(ms.unsigned_abs());
    let time =
        if ms < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
    time.unwrap_or(UNIX_EPOCH)
}
