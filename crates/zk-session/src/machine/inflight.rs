//! The requests in flight on the current connection, oldest first.
//!
//! A server replies to the requests of a connection in order, so a reply always belongs to the
//! front of the queue. If it does not, the client and the server are out of step and the connection
//! must end.

use std::collections::VecDeque;

use bytestring::ByteString;
use jute_codec::{CheckRequest, MultiOp, OpCode, Request, Version, WatcherType};

use super::flight::{Token, WatchId};
use super::persistent::WatchMode;
use super::reply_size::ReplySizes;
use super::subject::Subject;
use crate::error::{Outcome, Target};
use crate::time::Time;

/// Maximum number of requests in flight on a connection; further requests wait.
pub(super) const INFLIGHT_MAX: usize = 8192;

/// The purpose of a request, which determines how its reply is handled.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    /// A write that makes the server catch up with what the client was told elsewhere.
    CatchUp,
    /// A create of the chroot or of an ancestor of it, which this many others follow.
    CreateChroot { path: ByteString, following: usize },
    /// closeSession, for the current session or for one that was given up.
    Close,
    /// A read that shows whether the chroot exists.
    FindChroot,
    /// An operation of a flight, with its paths, for the watch and for the message of an error.
    Operation { token: Token, index: usize, subject: Subject, watch: Option<RequestedWatch> },
    /// A list of the children of this path, for the flights that share it.
    SharedList(ByteString),
    /// A write that renews the lease.
    Renewal,
    /// Removes the watches of a path that nobody wants any longer.
    RemoveWatches,
    /// A batch of watches that a request on this connection has replaced at the server.
    RenewWatches,
    /// A message of a SASL mechanism.
    Sasl,
    /// A batch of watches to restore.
    SetWatches,
}

/// The watch that a request sets, or the watches that it checks or removes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestedWatch {
    /// Checks whether there are such watches.
    Check(WatcherType),
    /// Removes such watches.
    Removal(WatcherType),
    /// A one-shot watch.
    OneShot(WatchId),
    /// A persistent watch. `sent` is the mode in the request, which may cover more.
    Persistent { id: Option<WatchId>, mode: WatchMode, sent: WatchMode },
}

/// A request that was encoded for the current connection.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) xid: i32,
    pub(crate) op: OpCode,
    pub(crate) purpose: Purpose,
    /// When the transport was about to take its last byte, or when it was encoded, until then. No
    /// server can have received it earlier.
    pub(crate) sent: Time,
    /// Number of bytes of the connection up to and including its last byte.
    pub(crate) end: u64,
}

impl Pending {
    /// Returns the operation and the path that an error of this request names.
    pub(crate) fn target(&self) -> Target {
        match &self.purpose {
            Purpose::Operation { subject, .. } => subject.target(self.op),
            Purpose::SharedList(path) => Target::new(self.op, path.clone()),
            Purpose::CatchUp
            | Purpose::Close
            | Purpose::CreateChroot { .. }
            | Purpose::FindChroot
            | Purpose::RemoveWatches
            | Purpose::Renewal
            | Purpose::RenewWatches
            | Purpose::Sasl
            | Purpose::SetWatches => Target::default(),
        }
    }

    fn sets_one_shot_watch_on(&self, watched: &str) -> bool {
        let Purpose::Operation { subject, watch: Some(RequestedWatch::OneShot(_)), .. } =
            &self.purpose
        else {
            return false;
        };
        subject.path() == watched
    }
}

/// Creates a write that changes nothing, needs no permission, and is committed like any other. It
/// does not matter whether its check passes.
pub(crate) fn write_of_nothing() -> Request {
    Request::Multi(vec![MultiOp::Check(CheckRequest { path: "/".into(), version: Version::ANY })])
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

    /// Records bytes that the transport has accepted since `now`, and sets when the requests that
    /// end with them were sent: they may have waited behind megabytes of other requests.
    pub(crate) fn transmit(&mut self, now: Time, bytes: usize) {
        let begin = self.queue.partition_point(|pending| pending.end <= self.transmitted);
        self.transmitted += bytes as u64;
        assert!(self.transmitted <= self.produced, "the driver reported more bytes than it got");
        let transmitted = self.transmitted;
        let left = self.queue.range_mut(begin..).take_while(|pending| pending.end <= transmitted);
        for pending in left {
            pending.sent = now;
        }
    }

    /// Returns the number of bytes encoded for the connection.
    pub(crate) fn produced(&self) -> u64 {
        self.produced
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

    /// Returns whether a read that sets a one-shot watch on this path has no reply yet.
    pub(crate) fn is_watching(&self, path: &str) -> bool {
        self.queue.iter().any(|pending| pending.sets_one_shot_watch_on(path))
    }

    /// Returns whether a read that sets a watch on the children of this path has no reply yet.
    pub(crate) fn is_watching_children(&self, path: &str) -> bool {
        let lists = |op| matches!(op, OpCode::GET_CHILDREN | OpCode::GET_CHILDREN2);
        let mut queue = self.queue.iter();
        queue.any(|pending| lists(pending.op) && pending.sets_one_shot_watch_on(path))
    }

    /// Returns the estimated number of bytes of all replies that are still to arrive.
    pub(crate) fn expected_bytes(&self) -> u64 {
        self.sizes.expected_bytes()
    }

    /// Returns the estimated number of bytes of those replies to the operations that may be long.
    pub(crate) fn long_reply_bytes(&self, ops: &mut dyn Iterator<Item = OpCode>) -> u64 {
        self.sizes.long_reply_bytes(ops)
    }

    /// Returns true if replies that may be long are still to arrive.
    pub(crate) fn expects_long_replies(&self) -> bool {
        self.sizes.expects_long_replies()
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

    /// Takes the request with this xid, wherever it is in the queue, after a reply out of turn.
    /// Returns `None` if no request that was sent has this xid.
    pub(crate) fn take(&mut self, xid: i32) -> Option<Pending> {
        let transmitted = self.transmitted;
        let is_it = |pending: &Pending| pending.xid == xid && pending.end <= transmitted;
        let pending = self.queue.remove(self.queue.iter().position(is_it)?)?;
        self.sizes.remove(pending.op);
        Some(pending)
    }

    /// Returns the operation and the path that an error of this operation of a flight names. Searches
    /// the queue, which is acceptable for a request that has timed out.
    pub(crate) fn target(&self, of: Token, at: usize) -> Option<Target> {
        let is_wanted = |pending: &&Pending| matches!(pending.purpose, Purpose::Operation { token, index, .. } if (token, index) == (of, at));
        self.queue.iter().find(is_wanted).map(Pending::target)
    }

    /// Returns the empty queue of the next connection. It keeps the estimates of the lengths of
    /// replies, which depend on the requests and not on the connection.
    pub(crate) fn next_connection(&self) -> Self {
        Self { sizes: self.sizes.without_requests(), ..Self::default() }
    }

    /// Returns the requests at the end of the connection, oldest first, with what is known about the
    /// effect of each.
    pub(crate) fn fail(self) -> impl Iterator<Item = (Pending, Outcome)> {
        let transmitted = self.transmitted;
        let outcome = move |pending: Pending| {
            // A server executes whole requests only, and the transport may drop bytes that it has
            // accepted. So only a request whose last byte never left this process is certain to
            // have no effect.
            let is_sent = pending.end <= transmitted;
            (pending, if is_sent { Outcome::Unknown } else { Outcome::NotApplied })
        };
        self.queue.into_iter().map(outcome)
    }
}
