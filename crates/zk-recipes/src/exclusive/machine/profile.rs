//! What the machines of an exclusive lock know about the lock.

use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::Acl;

/// What the machines of an exclusive lock know about the lock.
#[derive(Clone, Debug)]
pub struct ExclusiveProfile {
    /// The path of the znode.
    pub path: ByteString,
    /// The access control list of the znode.
    pub acl: Vec<Acl>,
    /// The part of the znode's data that follows the attempt's id.
    pub identity: Bytes,
    /// How often a waiter checks for missed watches when no event arrives.
    pub watch_check: Option<Duration>,
}
