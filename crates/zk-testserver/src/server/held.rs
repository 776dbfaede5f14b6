//! Requests that wait for their commit, and the commit that a fault delays.

use std::time::Duration;

use jute_codec::{ErrorCode, OpCode, RequestHeader, SessionId, Zxid};

use crate::commit::Proposal;
use crate::fault::Until;

/// A request that waits for the commit of its session with its xid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) connection: u64,
    pub(super) session: SessionId,
    pub(super) xid: i32,
    pub(super) op: OpCode,
}

impl Pending {
    pub(super) fn new(connection: u64, session: SessionId, header: RequestHeader) -> Self {
        Self { connection, session, xid: header.xid, op: header.op }
    }
}

/// A proposal whose commit a fault delays. There is at most one: the next proposal releases it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) proposal: Proposal,
    pub(super) until: Until,
    /// How many reads of the session did not see the write.
    pub(super) reads: usize,
    pub(super) since: Duration,
}

impl Held {
    /// Returns when the commit is due, if that depends on the time.
    pub(super) fn due(&self) -> Option<Duration> {
        match self.until {
            Until::After(delay) => Some(self.since.saturating_add(delay)),
            Until::NextWrite | Until::Reads(_) => None,
        }
    }

    pub(super) fn is_due(&self, now: Duration) -> bool {
        match self.until {
            Until::NextWrite => false,
            Until::Reads(number) => self.reads >= number,
            Until::After(delay) => self.since.saturating_add(delay) <= now,
        }
    }
}

/// The result of processing a request.
pub(super) struct Processed {
    pub(super) error: ErrorCode,
    pub(super) zxid: Option<Zxid>,
}

impl Processed {
    pub(super) fn read(error: ErrorCode) -> Self {
        Self { error, zxid: None }
    }
}
