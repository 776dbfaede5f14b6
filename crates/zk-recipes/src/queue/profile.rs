//! What the machines of a queue know about the queue.

use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::Acl;

use super::naming::QueueNames;

/// What the machines of a queue know about the queue.
#[derive(Clone, Debug)]
pub struct QueueProfile {
    /// Directory of the contenders.
    pub directory: ByteString,
    /// The names of the contenders, and the role of this contender.
    pub names: QueueNames,
    /// Access control list of contender znodes.
    pub acl: Vec<Acl>,
    /// Data of contender znodes.
    pub identity: Bytes,
    /// How often a waiter checks for missed watches when no event arrives.
    pub watch_check: Option<Duration>,
}
