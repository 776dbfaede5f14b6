//! Whether the connection lives: pings, silence, and what stands ahead of an answer.
//!
//! Any byte proves that the peer is alive, so silence counts from the last one. But it does not
//! prove that our requests arrive: watch events come by themselves. A ping does, because it must be
//! answered. A server answers in the order of requests, so the answer to a ping comes behind the
//! replies to all that was sent before it, and those may be long. So its time counts from its
//! sending, or from the last progress of the replies ahead of it, whichever is later. What comes
//! after those, and events, are no progress: the ping is due.
//!
//! Progress is a whole reply, or another [`PROGRESS_MIN`] bytes of one, and if it is longer than
//! 4 MiB, another 256th of it. A read timeout that brings less ends the connection. So a peer may
//! let a reply trickle, but no single one takes longer than 256 read timeouts, and what stands
//! ahead of a ping is a limited number of replies.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::BytesMut;
use jute_codec::{Request, xid};

use super::DisconnectCause;
use super::Session;
use super::timer::Timer;
use crate::time::Time;

/// Bytes of an unfinished reply that are progress.
const PROGRESS_MIN: usize = 16 * 1024;

/// Acknowledgements that are less far apart are not expected: any server is busy for so long.
const BEAT_MIN: Duration = Duration::from_millis(500);

/// What was heard on the connection, and what has to come.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    /// When bytes arrived last.
    heard: Time,
    /// Unanswered ones, the oldest first.
    pings: VecDeque<Ping>,
    /// Requests of this connection that were answered. Pings are not among them.
    answered: u64,
    unfinished: Option<Unfinished>,
}

#[derive(Debug)]
struct Ping {
    sent: Time,
    /// Since when nothing but its answer is missing, or the replies ahead of it make no progress.
    since: Time,
    /// Requests of this connection that were sent before it.
    ahead: u64,
}

/// A reply that is arriving.
#[derive(Clone, Copy, Debug)]
struct Unfinished {
    /// It is too long, its head was taken for the answer, and the rest is thrown away.
    is_skipped: bool,
    /// Bytes of it that were missing at the last progress.
    missing: usize,
    /// How many more of them are progress.
    step: usize,
}

impl Heartbeat {
    /// Begins with a connection.
    pub(crate) fn new(now: Time) -> Self {
        Self { heard: now, pings: VecDeque::new(), answered: 0, unfinished: None }
    }

    fn heard(&mut self, now: Time) {
        self.heard = now;
    }

    /// A ping goes out behind this many unanswered requests.
    fn ping(&mut self, now: Time, in_flight: usize) {
        let ahead = self.answered + in_flight as u64;
        self.pings.push_back(Ping { sent: now, since: now, ahead });
    }

    /// A ping was answered; when it was sent.
    pub(super) fn pong(&mut self) -> Option<Time> {
        self.pings.pop_front().map(|ping| ping.sent)
    }

    /// The oldest request was answered.
    pub(super) fn answered(&mut self, now: Time) {
        self.answered += 1;
        self.progress(now, self.answered);
    }

    /// Another frame begins. What was skipped has been answered before, and ends here.
    fn finished(&mut self, now: Time) {
        if self.unfinished.take().is_some_and(|reply| reply.is_skipped) {
            self.progress(now, self.answered);
        }
    }

    /// `missing` bytes of a reply are to come, of as many as `length`.
    fn arriving(&mut self, now: Time, is_skipped: bool, length: usize, missing: usize) {
        if self.unfinished.is_some_and(|reply| reply.is_skipped != is_skipped) {
            self.finished(now);
        }
        let step = PROGRESS_MIN.max(length / 256);
        let begun = Unfinished { is_skipped, missing: length, step };
        let reply = self.unfinished.unwrap_or(begun);
        self.unfinished = Some(reply);
        if reply.missing.saturating_sub(missing) >= reply.step {
            self.unfinished = Some(Unfinished { missing, ..reply });
            // The head of a long reply was its answer.
            self.progress(now, self.answered + u64::from(!is_skipped));
        }
    }

    /// The reply to the request with this number moves on: good for whatever stands behind it.
    fn progress(&mut self, now: Time, number: u64) {
        for ping in self.pings.iter_mut().filter(|ping| number <= ping.ahead) {
            ping.since = now;
        }
    }

    /// Since when the peer owes us something.
    fn since(&self) -> Time {
        self.pings.front().map_or(self.heard, |ping| self.heard.min(ping.since))
    }
}

impl Session {
    /// Bytes have arrived.
    pub(super) fn hear(&mut self, bytes: &BytesMut) {
        if !bytes.is_empty() {
            self.heartbeat.heard(self.now);
        }
    }

    /// The next frame was taken.
    pub(super) fn hear_frame(&mut self) {
        self.heartbeat.finished(self.now);
    }

    /// What is left of the bytes is the front of a frame. It counts if it is of the next reply.
    pub(super) fn hear_part(&mut self, bytes: &BytesMut) {
        let skipped = self.frames.skipping();
        let xid = bytes.get(4..).and_then(|payload| payload.first_chunk()).copied();
        if skipped > 0 {
            // Its length does not matter: it begins with what is to be skipped.
            self.heartbeat.arriving(self.now, true, skipped, skipped);
        } else if xid.is_some() && xid.map(i32::from_be_bytes) == self.inflight.next_xid() {
            let missing = self.frames.missing(bytes);
            self.heartbeat.arriving(self.now, false, missing + bytes.len(), missing);
        } else {
            self.heartbeat.finished(self.now);
        }
    }

    pub(super) fn arm_heartbeat(&mut self) {
        self.timers.set(Timer::Ping, self.now + self.ping_interval());
        self.timers.set(Timer::Read, self.now + self.read_timeout());
    }

    /// Silence of two thirds of the session timeout means that the connection is dead, as in
    /// `ClientCnxn`, so that the last third is left for another server. Where a lock relies on the
    /// lease there is less time.
    pub(super) fn read_timeout(&self) -> Duration {
        let usual = self.timeout * 2 / 3;
        // Writes keep it only where it is needed; pings, on all sessions.
        let is_kept =
            self.is_relied_on && (self.lease_needed.is_some() || !self.lease.is_written());
        self.lease.silence().filter(|_| is_kept).map_or(usual, |most| most.min(usual))
    }

    /// What the end of the read timeout means.
    pub(super) fn silence(&self) -> DisconnectCause {
        let timeout = self.read_timeout();
        if self.heartbeat.heard + timeout <= self.now {
            DisconnectCause::Silence(timeout)
        } else {
            DisconnectCause::PingOverdue(timeout)
        }
    }

    /// Pings go by the schedule, whatever else is sent: some servers do not count reads, and a
    /// long queue of requests must not delay the proof that the session lives.
    pub(super) fn ping(&mut self) {
        self.send_internal(xid::PING, &Request::Ping, None);
        self.heartbeat.ping(self.now, self.inflight.len());
        self.timers.set(Timer::Ping, self.now + self.ping_interval());
    }

    /// How far apart acknowledgements are at most, if the server is prompt.
    pub(super) fn beat(&self) -> Duration {
        match self.lease.interval() {
            Some(interval) if !self.lease.is_written() => interval,
            Some(interval) if self.lease_needed.is_some() => interval.max(BEAT_MIN),
            Some(_) | None => self.acknowledged_timeout / 3,
        }
    }

    /// A third of the session timeout, or as often as the lease needs it.
    fn ping_interval(&self) -> Duration {
        self.lease.ping_interval().unwrap_or(self.timeout / 3)
    }

    /// The connection lives while something is heard, and while no ping waits too long.
    pub(super) fn rearm_read(&mut self) {
        // Before the lease was needed, the limit was another, and pings were as far apart.
        let since = self.heartbeat.since().max(self.lease_needed.unwrap_or_default());
        let at = (since + self.read_timeout()).max(self.now);
        self.timers.set(Timer::Read, at);
    }
}
