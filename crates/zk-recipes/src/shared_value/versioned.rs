//! Data with its version.

use bytes::Bytes;
use jute_codec::DataReply;
use zk_session::Version;

/// Data of a znode, with the version that identifies it.
///
/// Each write of the znode increments the version. If the znode is deleted and created again, its
/// versions start at 0 again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Versioned {
    bytes: Bytes,
    version: Version,
}

impl Versioned {
    pub(super) fn new(bytes: Bytes, version: Version) -> Self {
        Self { bytes, version }
    }

    pub(super) fn of(found: &DataReply) -> Self {
        Self { bytes: found.data.clone().unwrap_or_default(), version: found.stat.version }
    }

    /// The data.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The version of the data.
    pub fn version(&self) -> Version {
        self.version
    }
}
