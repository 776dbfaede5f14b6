//! The requests in flight on the current connection, oldest first.
//!
//! A server replies to the requests of a connection in order, so a reply always belongs to the
//! front of the queue. If it does not, the client and the server are out of step and the connection
//! must end.

use std::collections::VecDeque;

use bytestring::ByteString;
use jute_codec::OpCode;

use super::flight::{Token, WatchId};
use super::reply_size::ReplySizes;
use crate::error::Outcome;
use crate::time::Time;

/// Maximum number of requests in flight on a connection; further requests wait.
pub(super) const INFLIGHT_MAX: usize = 8192;

/// The purpose of a request, which determines how its reply is handled.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    /// closeSession, for the current session or for one that was given up.
    Close,
    /// An operation of a flight.
    Operation { token: Token, index: usize, watch: Option<(WatchId, ByteString)> },
    /// A list of the children of this path, for the flights that share it.
    SharedList(ByteString),
    /// A write that renews the lease.
    Renewal,
    /// A batch of watches to restore.
    SetWatches,
}

/// A request that was encoded for the current connection.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) xid: i32,
    pub(crate) op: OpCode,
    pub(crate) purpose: Purpose,
    /// When it was encoded. It cannot have been sent earlier.
    pub(crate) sent: Time,
    /// Number of bytes of the connection up to and including its last byte.
    pub(crate) end: u64,
}

/// The queue of requests in flight, and the byte counts of the connection.
#[derive(Debug, Default)]
pub(crate) struct Inflight {
    queue: VecDeque<Pending>,
    /// Bytes encoded for this connection.
    produced: u64,
    /// Bytes accepted by the transport.
    transmitted: u64,
    sizes: ReplySizes,
}

impl Inflight {
    /// Records bytes encoded for the connection and returns the new total.
    pub(crate) fn produce(&mut self, bytes: usize) -> u64 {
        self.produced += bytes as u64;
        self.produced
    }

    /// Records bytes accepted by the transport.
    pub(crate) fn transmit(&mut self, bytes: usize) {
        self.transmitted += bytes as u64;
        assert!(self.transmitted <= self.produced, "the driver reported more bytes than it got");
    }

    /// Returns the number of bytes that the transport has not accepted yet.
    pub(crate) fn backlog(&self) -> u64 {
        self.produced - self.transmitted
    }

    /// Returns a checkpoint for [`revert`](Self::revert).
    pub(crate) fn checkpoint(&self) -> (usize, u64) {
        (self.queue.len(), self.produced)
    }

    /// Discards the requests encoded since the checkpoint. The driver must not have seen any of
    /// their bytes.
    pub(crate) fn revert(&mut self, (length, produced): (usize, u64)) {
        debug_assert!(self.transmitted <= produced, "a byte that was sent cannot be taken back");
        for pending in self.queue.drain(length..) {
            self.sizes.remove(pending.op);
        }
        self.produced = produced;
    }

    pub(crate) fn push(&mut self, pending: Pending) {
        debug_assert!(pending.end <= self.produced);
        self.sizes.add(pending.op);
        self.queue.push_back(pending);
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns the estimated number of bytes of all replies that are still to arrive.
    pub(crate) fn expected_bytes(&self) -> u64 {
        self.sizes.expected_bytes()
    }

    /// Returns the xid that the next reply must have.
    pub(crate) fn next_xid(&self) -> Option<i32> {
        self.queue.front().map(|pending| pending.xid)
    }

    /// Takes the request that a reply with this xid and length completes. Returns `None` if the
    /// reply does not belong to the oldest request.
    pub(crate) fn complete(&mut self, xid: i32, length: usize) -> Option<Pending> {
        let front = self.queue.front()?;
        // The server cannot reply to a request whose last byte has not left this process.
        if front.xid != xid || front.end > self.transmitted {
            return None;
        }
        let pending = self.queue.pop_front()?;
        self.sizes.complete(pending.op, length);
        Some(pending)
    }

    /// Empties the queue at the end of the connection. Returns the requests, oldest first, with
    /// what is known about the effect of each.
    pub(crate) fn fail(&mut self) -> Vec<(Pending, Outcome)> {
        let transmitted = self.transmitted;
        self.produced = 0;
        self.transmitted = 0;
        let sizes = &mut self.sizes;
        let outcome = |pending: Pending| {
            sizes.remove(pending.op);
            // A server executes whole requests only, and the transport may drop bytes that it has
            // accepted. So only a request whose last byte never left this process is certain to
            // have no effect.
            let is_sent = pending.end <= transmitted;
            (pending, if is_sent { Outcome::Unknown } else { Outcome::NotApplied })
        };
        self.queue.drain(..).map(outcome).collect()
    }
}
