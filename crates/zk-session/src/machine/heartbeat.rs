//! Tracks what was received on the connection, and what is overdue.
//!
//! Any received byte proves that the peer is alive, so silence is measured from the last one. But a
//! received byte does not prove that our requests arrive, because watch events are sent without a
//! request. The reply to a ping does prove that. A server replies in the order of requests, so the
//! reply to a ping arrives after the replies to all requests sent before it, and those may be long.
//! The time of a ping is therefore measured from when it was sent or from the last progress of the
//! replies ahead of it, whichever is later. Later replies and events do not count as progress,
//! because the reply to the ping is due before them.
//!
//! Progress is a whole reply, or another [`PROGRESS_MIN`] bytes of one. For a reply longer than 4
//! MiB, progress is another 256th of its length. A connection ends if a read timeout passes with
//! less progress than that. So a peer may send a reply slowly, but no single reply takes longer
//! than 256 read timeouts, and only a limited number of replies is ahead of a ping.

use std::collections::VecDeque;

use crate::time::Time;

/// Minimum bytes of an unfinished reply that count as progress.
const PROGRESS_MIN: usize = 16 * 1024;

/// Tracks received bytes, and pings without a reply.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    /// When the last bytes arrived.
    last_received: Time,
    /// Pings without a reply, oldest first.
    pings: VecDeque<Ping>,
    /// Number of completed requests of this connection, not counting pings.
    completed: u64,
    unfinished: Option<UnfinishedReply>,
}

#[derive(Debug)]
struct Ping {
    sent: Time,
    /// When the ping was sent, or when the replies ahead of it last made progress.
    since: Time,
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
        Self { last_received: now, pings: VecDeque::new(), completed: 0, unfinished: None }
    }

    pub(super) fn last_received(&self) -> Time {
        self.last_received
    }

    /// Records that bytes arrived.
    pub(super) fn received(&mut self, now: Time) {
        self.last_received = now;
    }

    /// Records that a ping is sent after this many requests without a reply.
    pub(super) fn ping_sent(&mut self, now: Time, in_flight: usize) {
        let ahead = self.completed + in_flight as u64;
        self.pings.push_back(Ping { sent: now, since: now, ahead });
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
        self.pings.front().map_or(self.last_received, |ping| self.last_received.min(ping.since))
    }
}
