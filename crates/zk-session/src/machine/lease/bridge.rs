//! What committed writes prove: the bridge.
//!
//! A follower passes on which sessions it has heard of in its answers to the leader's pings. Those
//! travel in the same stream as the requests that it forwards, and the pings in the same stream as
//! the commits. So let *b* be a request that the follower has answered, and *a'* a later one that
//! the leader has answered. If the leader has pinged the follower between the two, it reads the
//! answer, which tells of *b*, before any request that is sent after the answer to *a'*. Let *a* be
//! such a request. If it is a write and was committed, then the leader had heard of *b* while it
//! was in office. No cut, no pause of the follower and no election breaks this; all it needs is the
//! ping. The leader sends one each half tick, unless it stands still.
//!
//! How long it may have stood still can be seen: no longer than the time between two answers that
//! only the leader can give. So *b* is the newest acknowledged request with
//!
//! ```text
//! got(b+) + 1.05 * tick + G1 + G2  <=  sent(a')
//! ```
//!
//! - *b+* is the acknowledged request that follows *b*. The touch of *b* may get lost when the
//!   follower sends its table at the very same moment; that of the next one does not.
//! - `G1` and `G2` are the longest two gaps between `got(b+)` and `sent(a')`. A gap lies between
//!   neighbouring requests that the leader has answered, from the sending of the first to the
//!   answer to the second, as far as it is between the two ends. So two pauses of the leader are
//!   paid for, of whatever length.
//! - All of it happens on one connection.
//!
//! When *a* is committed, the lease counts from *b*.
//!
//! A single write proves less: that the leader has heard of any request that was answered two thirds
//! of a tick before the write was sent, if the leader does not stand still and no message takes
//! long. That is what a *provisional* lease counts from. The model of `tests/tests/lease_model.rs` says
//! which of these conditions are needed, and what happens with fewer gaps.
//!
//! Requests that are close together count as one, so that a busy session does not remember more
//! than a quiet one. That is safe: *b+* may be any later request, and two pauses that hide in the gap
//! over a request that is not remembered are together no longer than it.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Gaps, Mark};
use crate::time::Time;

/// Requests of one connection.
#[derive(Clone, Debug)]
pub(super) struct Bridge {
    /// A tick, on a clock that is fast.
    span: Duration,
    pub(super) write_interval: Duration,
    /// What may be *b*, the oldest first.
    requests: VecDeque<Request>,
    /// What the leader has answered, the oldest first.
    led: VecDeque<Answered>,
    /// What each *a'* bridges, the oldest first.
    piers: VecDeque<Pier>,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    mark: Mark,
    got: Time,
    /// When the one behind it was answered.
    next_got: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Answered {
    sent: Time,
    got: Time,
}

/// An *a'*.
#[derive(Clone, Copy, Debug)]
struct Pier {
    got: Time,
    /// Its *b*.
    mark: Mark,
}

impl Bridge {
    pub(super) fn new(span: Duration, write_interval: Duration) -> Self {
        let (requests, led, piers) = Default::default();
        Self { span, write_interval, requests, led, piers }
    }

    /// A connection begins, with a handshake that the leader has answered.
    pub(super) fn connected(&mut self, mark: Mark, now: Time) {
        *self = Self::new(self.span, self.write_interval);
        self.acknowledged(mark, now);
        self.led(mark.sent, now);
    }

    /// A request was answered now, by whatever server.
    pub(super) fn acknowledged(&mut self, mark: Mark, now: Time) {
        if let Some(newest) = self.requests.back_mut() {
            newest.next_got.get_or_insert(now);
            if mark.sent < newest.mark.sent + self.write_interval / 4 {
                return;
            }
        }
        self.requests.push_back(Request { mark, got: now, next_got: None });
        while self.requests.front().is_some_and(|front| front.mark.deadline() <= mark.sent) {
            self.requests.pop_front();
        }
    }

    /// A request, sent then, was answered now, and only the leader can have done so.
    pub(super) fn led(&mut self, sent: Time, now: Time) {
        let is_soon = |last: &Answered| sent < last.sent + self.write_interval / 4;
        if self.led.back().is_some_and(is_soon) {
            return;
        }
        if let Some(mark) = self.bridged(sent) {
            self.piers.push_back(Pier { got: now, mark });
        }
        self.led.push_back(Answered { sent, got: now });
        // What no request is old enough for is of no use.
        let Some(oldest) = self.requests.front() else { return };
        while self.led.get(1).is_some_and(|second| second.got <= oldest.mark.sent) {
            self.led.pop_front();
        }
    }

    /// A write, sent then, was committed: what the lease counts from.
    pub(super) fn committed(&mut self, sent: Time) -> Option<Mark> {
        // No write that was sent before is answered any more.
        while self.piers.get(1).is_some_and(|second| second.got < sent) {
            self.piers.pop_front();
        }
        self.piers.front().filter(|pier| pier.got < sent).map(|pier| pier.mark)
    }

    /// A write, sent then, was committed: what a provisional lease counts from.
    pub(super) fn provisional(&self, sent: Time) -> Option<Mark> {
        let span = self.span * 2 / 3;
        let newest = self.requests.iter().rev().find(|request| request.got + span <= sent);
        newest.map(|request| request.mark)
    }

    /// *b* of an *a'* that was sent then.
    fn bridged(&self, to: Time) -> Option<Mark> {
        let is_bridged = |request: &&Request| {
            request.next_got.is_some_and(|from| {
                // Most are too new, whatever the gaps.
                from + self.span <= to && from + self.span + self.gaps(from, to).sum() <= to
            })
        };
        self.requests.iter().rev().find(is_bridged).map(|request| request.mark)
    }

    /// How long the leader may have stood still between the two.
    fn gaps(&self, from: Time, to: Time) -> Gaps {
        let mut gaps = Gaps::default();
        let mut last = from;
        for answered in self.led.iter().filter(|answered| answered.got > from) {
            gaps.add(answered.got.min(to).saturating_since(last));
            last = last.max(answered.sent);
        }
        gaps.add(to.saturating_since(last));
        gaps
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.requests.len() + self.led.len() + self.piers.len()
    }
}
