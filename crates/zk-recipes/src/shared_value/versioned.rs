//! Data with its version.

use std::fmt;

use bytes::Bytes;
use jute_codec::{DataReply, Stat};
use zk_session::{Version, Zxid};

/// Data of a znode, with the version that identifies it.
///
/// Each write of the znode increments the version. If the znode is deleted and created again, its
/// versions start at 0 again, and its czxid is a larger one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Versioned {
    bytes: Bytes,
    revision: Revision,
}

/// Identifies a write of a znode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Revision {
    /// The number of writes since the znode was created.
    pub(crate) version: Version,
    /// The transaction that created the znode.
    pub(crate) czxid: Zxid,
}

impl Versioned {
    pub(crate) fn new(bytes: Bytes, revision: Revision) -> Self {
        Self { bytes, revision }
    }

    pub(super) fn of(found: &DataReply) -> Self {
        Self::new(found.data.clone().unwrap_or_default(), Revision::of(&found.stat))
    }

    /// The data.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The version of the data.
    pub fn version(&self) -> Version {
        self.revision.version
    }

    /// The transaction that created the znode. It distinguishes znodes that were created at the same
    /// path one after another.
    pub fn czxid(&self) -> Zxid {
        self.revision.czxid
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision
    }
}

impl Revision {
    pub(super) fn of(stat: &Stat) -> Self {
        Self { version: stat.version, czxid: stat.czxid }
    }

    /// Returns the revision after the next write, as servers count.
    pub(super) fn next(self) -> Self {
        Self { version: Version(self.version.0.wrapping_add(1)), ..self }
    }
}

/// Shows the data as text.
impl fmt::Display for Versioned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy(&self.bytes);
        write!(f, "{text:?} (version {})", self.version().0)
    }
}
