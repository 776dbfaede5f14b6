//! Estimates how many bytes of replies are still to arrive.
//!
//! A request is short, but its reply may be megabytes long. A server buffers the replies that a
//! slow connection does not take, so thousands of reads of large znodes can exhaust its memory. The
//! length of a reply is unknown until it arrives, so the machine estimates it from earlier ones.
//! Each kind of read has its own estimate. The estimate starts high, rises at once to the length of
//! a longer reply, and falls by an eighth of the difference with each shorter one. It applies to
//! all reads in flight, including those that were sent before the estimate changed.
//!
//! A flight with such reads waits, and others behind it, if more bytes would be expected with it than
//! the link may carry at once. If no such read is in flight, one flight is always sent, however large
//! the estimate is.

use jute_codec::OpCode;

use crate::operation::table::{Facts, ReplyKind};

/// First estimate for a read: the maximum length of a znode's data on a server with default
/// settings. If the replies turn out to be short, hundreds of reads may be sent after a few tens of
/// them.
const FIRST_ESTIMATE: u64 = 1024 * 1024;
/// Estimate for any other reply.
const SHORT_REPLY: u64 = 128;

/// The requests in flight, and estimates of the lengths of their replies.
#[derive(Debug, Default)]
pub(crate) struct ReplySizes {
    children: Reads,
    data: Reads,
    others: u64,
}

/// One kind of read.
#[derive(Debug)]
struct Reads {
    estimate: u64,
    in_flight: u64,
}

impl Default for Reads {
    fn default() -> Self {
        Self { estimate: FIRST_ESTIMATE, in_flight: 0 }
    }
}

impl ReplySizes {
    /// Returns the estimates without the requests.
    pub(crate) fn without_requests(&self) -> Self {
        let idle = |reads: &Reads| Reads { estimate: reads.estimate, in_flight: 0 };
        Self { children: idle(&self.children), data: idle(&self.data), others: 0 }
    }

    /// Records a request.
    pub(crate) fn add(&mut self, op: OpCode) {
        *self.in_flight(op) += 1;
    }

    /// Removes a request that was not sent after all, or whose reply will never arrive.
    pub(crate) fn remove(&mut self, op: OpCode) {
        *self.in_flight(op) -= 1;
    }

    /// Records the reply to a request.
    pub(crate) fn complete(&mut self, op: OpCode, length: usize) {
        self.remove(op);
        if let Some(reads) = self.reads(op) {
            let length = length as u64;
            reads.estimate = length.max(reads.estimate - reads.estimate.saturating_sub(length) / 8);
        }
    }

    /// Returns the estimated number of bytes of those replies to the operations that may be long.
    pub(crate) fn long_reply_bytes(&self, ops: &mut dyn Iterator<Item = OpCode>) -> u64 {
        ops.map(|op| match Facts::of(op).reply {
            ReplyKind::Names => self.children.estimate,
            ReplyKind::Data => self.data.estimate,
            ReplyKind::Short => 0,
        })
        .sum()
    }

    /// Returns true if replies that may be long are still to arrive.
    pub(crate) fn expects_long_replies(&self) -> bool {
        self.children.in_flight + self.data.in_flight > 0
    }

    /// Returns the estimated number of bytes of all replies that are still to arrive.
    pub(crate) fn expected_bytes(&self) -> u64 {
        let reads = |reads: &Reads| reads.estimate * reads.in_flight;
        reads(&self.children) + reads(&self.data) + SHORT_REPLY * self.others
    }

    fn in_flight(&mut self, op: OpCode) -> &mut u64 {
        match Facts::of(op).reply {
            ReplyKind::Names => &mut self.children.in_flight,
            ReplyKind::Data => &mut self.data.in_flight,
            ReplyKind::Short => &mut self.others,
        }
    }

    fn reads(&mut self, op: OpCode) -> Option<&mut Reads> {
        match Facts::of(op).reply {
            ReplyKind::Names => Some(&mut self.children),
            ReplyKind::Data => Some(&mut self.data),
            ReplyKind::Short => None,
        }
    }
}
