//! Tracks what moves on the connection, and what is overdue.
//!
//! Any received byte proves that the peer is alive, so silence is measured from the last one. So
//! does room for more bytes in a transport that had none, because the peer has taken those before:
//! a request that is sent slowly has no reply yet. Bytes that a transport accepts without having
//! been full prove nothing, because they may only be in its buffer.
//!
//! But a received byte does not prove that our requests arrive, because watch events are sent without a
//! request. The reply to a ping does prove that. A server replies in the order of requests, so the
//! reply to a ping arrives after the replies to all requests sent before it, and those may be long.
//! The time of a ping is therefore measured from when it was sent or from the last progress of the
//! bytes ahead of it, in either direction, whichever is later. A transport may buffer up to
//! [`BUFFER_MAX`] bytes, so those sent after the ping count for it up to that number. Later replies and events do not count as progress,
//! because the reply to the ping is due before them.
//!
//! Progress is a whole reply, or another [`PROGRESS_MIN`] bytes of one, or of what is sent. For a reply longer than 4
//! MiB, progress is another 256th of its length. A connection ends if a read timeout passes with
//! less progress than that. So a peer may send a reply slowly, but no single reply takes longer
//! than 256 read timeouts, and only a limited number of replies is ahead of a ping.

use std::collections::VecDeque;

use crate::time::Time;

/// Minimum bytes of an unfinished reply, or of what is sent, that count as progress.
const PROGRESS_MIN: usize = 16 * 1024;
/// Maximum number of bytes in the buffers of a transport: the limit of Linux for a socket.
const BUFFER_MAX: u64 = 4 * 1024 * 1024;

/// Tracks the bytes of a connection, and pings without a reply.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    /// When the last bytes arrived, or the last progress in sending.
    last_moved: Time,
    /// Number of bytes that the transport has accepted.
    accepted: u64,
    /// The transport had no room when it was last tried.
    is_blocked: bool,
    /// Bytes accepted by a transport that had had no room, since the last progress in sending.
    unblocked: usize,
    /// Pings without a reply, oldest first.
    pings: VecDeque<Ping>,
    /// Number of completed requests of this connection, not counting pings.
    completed: u64,
    unfinished: Option<UnfinishedReply>,
}

#[derive(Debug)]
struct Ping {
    /// When the transport was about to take its last byte, or when it was encoded, until then.
    sent: Time,
    /// When the ping was sent, or when the bytes ahead of it last made progress.
    since: Time,
    /// Number of bytes of the connection up to and including its last byte.
    end: u64,
    /// Number of requests sent on this connection before the ping.
    ahead: u64,
}

/// A reply of which only a part has arrived.
#[derive(Clone, Copy, Debug)]
struct UnfinishedReply {
    /// The reply exceeds the limit. Its first bytes completed the request; the rest is discarded.
    is_skipped: bool,
    /// Number of bytes that were missing at the last progress.
    missing: usize,
    /// Number of further bytes that count as progress.
    step: usize,
}

impl Heartbeat {
    /// Starts to track a new connection.
    pub(super) fn new(now: Time) -> Self {
        Self {
            last_moved: now,
            accepted: 0,
            is_blocked: false,
            unblocked: 0,
            pings: VecDeque::new(),
            completed: 0,
            unfinished: None,
        }
    }

    pub(super) fn last_moved(&self) -> Time {
        self.last_moved
    }

    /// Records that bytes arrived.
    pub(super) fn received(&mut self, now: Time) {
        self.last_moved = now;
    }

    /// Records that the transport has no room for more bytes.
    pub(super) fn blocked(&mut self) {
        self.is_blocked = true;
    }

    /// Records that the transport has accepted bytes. Returns true if this moves
    /// [`overdue_since`](Self::overdue_since).
    pub(super) fn transmitted(&mut self, now: Time, bytes: usize) -> bool {
        let before = self.accepted;
        self.accepted += bytes as u64;
        let mut has_moved = false;
        for ping in &mut self.pings {
            if before < ping.end && ping.end <= self.accepted {
                ping.sent = now;
                ping.since = now;
                has_moved = true;
            }
        }
        if std::mem::take(&mut self.is_blocked) {
            self.unblocked += bytes;
        }
        if self.unblocked >= PROGRESS_MIN {
            self.unblocked = 0;
            self.last_moved = now;
            for ping in self.pings.iter_mut().filter(|ping| before < ping.end + BUFFER_MAX) {
                ping.since = now;
            }
            has_moved = true;
        }
        has_moved
    }

    /// Records a ping that ends with this byte of the connection, after this many requests without
    /// a reply.
    pub(super) fn ping_encoded(&mut self, now: Time, in_flight: usize, end: u64) {
        let ahead = self.completed + in_flight as u64;
        self.pings.push_back(Ping { sent: now, since: now, end, ahead });
    }

    /// Records the reply to the oldest ping. Returns the time at which that ping was sent.
    pub(super) fn ping_completed(&mut self) -> Option<Time> {
        self.pings.pop_front().map(|ping| ping.sent)
    }

    /// Records that the oldest request is complete.
    pub(super) fn request_completed(&mut self, now: Time) {
        self.completed += 1;
        self.progress(now, self.completed);
    }

    /// Records that another frame begins. The request of a skipped reply completed earlier, so the
    /// end of that reply is the last progress it makes.
    pub(super) fn frame_finished(&mut self, now: Time) {
        if self.unfinished.take().is_some_and(|reply| reply.is_skipped) {
            self.progress(now, self.completed);
        }
    }

    /// Records that a part of a reply of `length` bytes has arrived, and `missing` bytes have not.
    pub(super) fn part_received(
        &mut self,
        now: Time,
        is_skipped: bool,
        length: usize,
        missing: usize,
    ) {
        if self.unfinished.is_some_and(|reply| reply.is_skipped != is_skipped) {
            self.frame_finished(now);
        }
        let step = PROGRESS_MIN.max(length / 256);
        let begun = UnfinishedReply { is_skipped, missing: length, step };
        let reply = self.unfinished.unwrap_or(begun);
        self.unfinished = Some(reply);
        if reply.missing.saturating_sub(missing) >= reply.step {
            self.unfinished = Some(UnfinishedReply { missing, ..reply });
            // The first bytes of a skipped reply have already completed its request.
            self.progress(now, self.completed + u64::from(!is_skipped));
        }
    }

    /// Records progress of the reply to the request with this number. It counts for all pings sent
    /// after that request.
    fn progress(&mut self, now: Time, number: u64) {
        for ping in self.pings.iter_mut().filter(|ping| number <= ping.ahead) {
            ping.since = now;
        }
    }

    /// Returns the time since which the peer has owed us bytes.
    pub(super) fn overdue_since(&self) -> Time {
        self.pings.front().map_or(self.last_moved, |ping| self.last_moved.min(ping.since))
    }
}
