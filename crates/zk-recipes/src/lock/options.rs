//! The options that all locks have.

use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::Acl;

/// The options that all locks have, as far as their machines need them.
#[derive(Clone, Debug, Default)]
pub struct LockOptions {
    /// The path that identifies the lock: its directory, or the znode of an exclusive lock.
    pub path: ByteString,
    /// The access control list of the contender znodes.
    pub acl: Vec<Acl>,
    /// The data of the contender znodes. An exclusive lock stores it behind the attempt's id.
    pub identity: Bytes,
    /// How often a waiter checks for missed watches when no event arrives.
    pub watch_check: Option<Duration>,
}
