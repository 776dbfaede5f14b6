//! What the machines of a queue know about it.

use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::Acl;

use super::naming::QueueNames;

/// What the machines of a queue know about it.
#[derive(Clone, Debug)]
pub struct QueueProfile {
    /// Directory of the contenders.
    pub directory: ByteString,
    /// Their names, and the contender's own role.
    pub names: QueueNames,
    /// Access control list of contender znodes.
    pub acl: Vec<Acl>,
    /// Data of contender znodes.
    pub identity: Bytes,
    /// How often a waiter checks for missed watches although nothing has happened.
    pub watch_check: Option<Duration>,
}
