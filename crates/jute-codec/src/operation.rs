//! Records that occur in single requests and replies as well as inside a multi.

use bytes::Bytes;
use bytestring::ByteString;

use crate::data::Stat;
use crate::ids::Version;

record! {
    /// Reads a znode, and optionally watches it.
    pub struct ReadRequest {
        /// The path of the znode.
        path: ByteString,
        /// Whether to set a one-shot watch.
        watch: bool,
    }
}

record! {
    /// Deletes a znode.
    pub struct DeleteRequest {
        /// The path of the znode.
        path: ByteString,
        /// The expected version of the data; [`Version::ANY`] matches every version.
        version: Version,
    }
}

record! {
    /// Fails the multi unless the znode exists and has the expected version.
    pub struct CheckRequest {
        /// The path of the znode.
        path: ByteString,
        /// The expected version of the data; [`Version::ANY`] matches every version.
        version: Version,
    }
}

record! {
    /// Replaces the data of a znode.
    pub struct SetDataRequest {
        /// The path of the znode.
        path: ByteString,
        /// The new data. Null and empty are different values.
        data: Option<Bytes>,
        /// The expected version of the data; [`Version::ANY`] matches every version.
        version: Version,
    }
}

record! {
    /// The path and stat of a new znode.
    pub struct Create2Reply {
        /// The path, with the number that the server appended for a sequential mode.
        path: ByteString,
        /// The stat.
        stat: Stat,
    }
}

record! {
    /// The data and stat of a znode.
    pub struct DataReply {
        /// The data. Null and empty are different values.
        data: Option<Bytes>,
        /// The stat.
        stat: Stat,
    }
}
