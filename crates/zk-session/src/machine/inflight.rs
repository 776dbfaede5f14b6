//! Requests on the current connection, oldest first.
//!
//! A server answers the requests of a connection in their order, so a reply belongs to the front
//! of the queue. Anything else means that the two sides have lost count, and the connection ends.

use std::collections::VecDeque;

use bytestring::ByteString;
use jute_codec::OpCode;

use super::flight::{Token, WatchId};
use super::reply_size::ReplySizes;
use crate::error::Outcome;
use crate::time::Time;

/// What an answer is for.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    /// closeSession of the current session, or of one that was given up.
    Close,
    /// An operation of a flight.
    Operation { token: Token, index: usize, watch: Option<(WatchId, ByteString)> },
    /// A list of this path, for the flights that share it.
    SharedList(ByteString),
    /// A write that renews the lease.
    Renewal,
    /// A batch of restored watches.
    SetWatches,
}

/// A request that was encoded for the current connection.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) xid: i32,
    pub(crate) op: OpCode,
    pub(crate) purpose: Purpose,
    /// When it was handed to the transport at the earliest.
    pub(crate) sent: Time,
    /// Bytes of the connection up to and including its last one.
    pub(crate) end: u64,
}

/// The queue, and the bytes of this connection.
#[derive(Debug, Default)]
pub(crate) struct Inflight {
    queue: VecDeque<Pending>,
    /// Bytes encoded for this connection.
    produced: u64,
    /// Bytes taken by the transport.
    transmitted: u64,
    sizes: ReplySizes,
}

impl Inflight {
    /// Records bytes encoded for the connection; the new total.
    pub(crate) fn produce(&mut self, bytes: usize) -> u64 {
        self.produced += bytes as u64;
        self.produced
    }

    /// Records bytes taken by the transport.
    pub(crate) fn transmit(&mut self, bytes: usize) {
        self.transmitted += bytes as u64;
        assert!(self.transmitted <= self.produced, "the driver reported more bytes than it got");
    }

    /// Bytes the transport has not taken.
    pub(crate) fn backlog(&self) -> u64 {
        self.produced - self.transmitted
    }

    /// The state of both, to come back to.
    pub(crate) fn mark(&self) -> (usize, u64) {
        (self.queue.len(), self.produced)
    }

    /// Forgets what was encoded since. Nothing of it may have been handed to the transport.
    pub(crate) fn revert(&mut self, (length, produced): (usize, u64)) {
        for pending in self.queue.drain(length..) {
            self.sizes.taken_back(pending.op);
        }
        self.produced = produced;
    }

    pub(crate) fn push(&mut self, pending: Pending) {
        debug_assert!(pending.end <= self.produced);
        self.sizes.requested(pending.op);
        self.queue.push_back(pending);
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Bytes of all replies to come, as far as can be told.
    pub(crate) fn expected(&self) -> u64 {
        self.sizes.expected()
    }

    /// Xid of the reply that has to come next.
    pub(crate) fn next_xid(&self) -> Option<i32> {
        self.queue.front().map(|pending| pending.xid)
    }

    /// Takes the request that a reply of this length answers; `None` if it answers none.
    pub(crate) fn complete(&mut self, xid: i32, length: usize) -> Option<Pending> {
        let front = self.queue.front()?;
        // A request whose last byte has not left cannot have an answer.
        if front.xid != xid || front.end > self.transmitted {
            return None;
        }
        let pending = self.queue.pop_front()?;
        self.sizes.answered(pending.op, length);
        Some(pending)
    }

    /// Empties the queue at the end of the connection, oldest first, with what is known of each.
    pub(crate) fn fail(&mut self) -> Vec<(Pending, Outcome)> {
        let transmitted = self.transmitted;
        self.produced = 0;
        self.transmitted = 0;
        let sizes = &mut self.sizes;
        let outcome = |pending: Pending| {
            sizes.taken_back(pending.op);
            let is_sent = pending.end <= transmitted;
            (pending, if is_sent { Outcome::Unknown } else { Outcome::NotApplied })
        };
        self.queue.drain(..).map(outcome).collect()
    }
}
