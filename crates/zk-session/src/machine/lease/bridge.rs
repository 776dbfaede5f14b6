//! The bridge: derives the lease from committed writes.
//!
//! A follower reports which sessions were active in its replies to the leader's pings. These
//! replies travel in the same stream as the requests that it forwards, and the leader's pings
//! travel in the same stream as the commits. So let *b* be a request that the follower has replied
//! to, and *a'* a later request that the leader has replied to. If the leader has pinged the
//! follower between the two, the leader reads the report of *b* before it reads any request that we
//! send after the reply to *a'*. Let *a* be such a request. If *a* is a write and was committed,
//! then the leader learned of *b* while it was in office. No partition, no pause of the follower
//! and no election invalidates this proof; it only needs the ping. The leader sends a ping every
//! half tick, unless it is paused.
//!
//! A pause of the leader is no longer than the time between two replies that only the leader can
//! give. So *b* is the newest acknowledged request with
//!
//! ```text
//! got(b+) + 1.05 * tick + G1 + G2  <=  sent(a')
//! ```
//!
//! - *b+* is the acknowledged request that follows *b*. The activity of *b* may be missing from a
//!   report that the follower sends at the same moment, but *b+* is not missing from the next one.
//! - `G1` and `G2` are the two longest gaps between `got(b+)` and `sent(a')`. A gap extends from
//!   the sending of one request that the leader replied to until the reply to the next one, clipped
//!   to these two times. So the formula covers any two pauses of the leader, however long they are.
//! - All of these messages use one connection.
//!
//! When *a* is committed, the lease is based on *b*.
//!
//! A single write proves less: the leader has learned of any request that was acknowledged two
//! thirds of a tick before the write was sent, provided that the leader is not paused and no
//! message is slow. A *provisional* lease is based on that request. The suite `lease_model` shows
//! which of these conditions are necessary, and what goes wrong with fewer gaps.
//!
//! Requests that are close together count as one, so that a busy session needs no more memory than
//! a quiet one, but those at their edges remain: a read does not hide the ping behind it. This is
//! safe: *b+* may be any later request, and two pauses that fall into the gap
//! around an omitted request are together no longer than that gap.

use std::collections::VecDeque;
use std::time::Duration;

use super::config::WriteTerms;
use super::gaps::Gaps;
use super::proof::Proof;
use crate::time::Time;

/// The requests of one connection.
#[derive(Clone, Debug)]
pub(super) struct Bridge {
    pub(super) terms: WriteTerms,
    /// Candidates for *b*, oldest first.
    requests: VecDeque<Request>,
    /// Requests that the leader has replied to, oldest first.
    leader_replies: VecDeque<LeaderReply>,
    /// Candidates for *a'*, oldest first.
    piers: VecDeque<Pier>,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    proof: Proof,
    got: Time,
    /// When *b+* was acknowledged, if this is *b*.
    next_got: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct LeaderReply {
    sent: Time,
    got: Time,
}

/// A request *a'*, and the request *b* that was sent long enough before it.
#[derive(Clone, Copy, Debug)]
struct Pier {
    /// When *a'* was acknowledged.
    got: Time,
    /// The request *b*.
    proof: Proof,
}

impl Bridge {
    pub(super) fn new(terms: WriteTerms) -> Self {
        Self {
            terms,
            requests: VecDeque::new(),
            leader_replies: VecDeque::new(),
            piers: VecDeque::new(),
        }
    }

    /// Starts over on a new connection, with a handshake that the leader has replied to.
    pub(super) fn connected(&mut self, proof: Proof, now: Time) {
        *self = Self::new(self.terms);
        self.acknowledged(proof, now);
        self.leader_replied(proof.sent, now);
    }

    /// Records that some server has acknowledged a request.
    pub(super) fn acknowledged(&mut self, proof: Proof, now: Time) {
        if let Some(newest) = self.requests.back_mut() {
            newest.next_got.get_or_insert(now);
            // Pings and other requests may be acknowledged out of order.
            if proof.sent <= newest.proof.sent {
                return;
            }
        }
        // A request is not kept if both its neighbours are close to it. It has served as *b+* of the
        // one before it.
        let before = self.requests.len().checked_sub(2).and_then(|index| self.requests.get(index));
        if before.is_some_and(|before| proof.sent < before.proof.sent + self.terms.interval / 4) {
            self.requests.pop_back();
        }
        self.requests.push_back(Request { proof, got: now, next_got: None });
        // A lease based on a request that old would already have ended.
        while self.requests.front().is_some_and(|front| front.proof.deadline() <= proof.sent) {
            self.requests.pop_front();
        }
    }

    /// Records a reply that only the leader can have given, to a request sent at `sent`.
    pub(super) fn leader_replied(&mut self, sent: Time, now: Time) {
        let is_soon = |last: &LeaderReply| sent < last.sent + self.terms.interval / 4;
        if self.leader_replies.back().is_some_and(is_soon) {
            return;
        }
        if let Some(proof) = self.bridged(sent) {
            self.piers.push_back(Pier { got: now, proof });
        }
        self.leader_replies.push_back(LeaderReply { sent, got: now });
        // Gaps before the oldest candidate for *b* no longer matter.
        let Some(oldest) = self.requests.front() else { return };
        while self.leader_replies.get(1).is_some_and(|second| second.got <= oldest.proof.sent) {
            self.leader_replies.pop_front();
        }
    }

    /// Records that a write sent at `sent` was committed. Returns the request on which the lease
    /// can be based.
    pub(super) fn committed(&mut self, sent: Time) -> Option<Proof> {
        // Replies arrive in order, so no later reply belongs to a write sent before this one.
        while self.piers.get(1).is_some_and(|second| second.got < sent) {
            self.piers.pop_front();
        }
        let proof = self.piers.front().filter(|pier| pier.got < sent).map(|pier| pier.proof);
        debug_assert!(
            proof.is_none_or(|proof| proof.sent < sent),
            "a write proves only what was sent before it"
        );
        proof
    }

    /// Returns the request on which a provisional lease can be based, given that a write sent at
    /// `sent` was committed.
    pub(super) fn provisional(&self, sent: Time) -> Option<Proof> {
        let span = self.terms.span * 2 / 3;
        let newest = self.requests.iter().rev().find(|request| request.got + span <= sent);
        newest.map(|request| request.proof)
    }

    /// Returns *b* for an *a'* that was sent at `to`.
    fn bridged(&self, to: Time) -> Option<Proof> {
        let span = self.terms.span;
        let is_bridged = |request: &&Request| {
            request.next_got.is_some_and(|from| {
                // Most requests are too new even without gaps, so check that first: it is cheap.
                from + span <= to && from + span + self.gaps(from, to).sum() <= to
            })
        };
        self.requests.iter().rev().find(is_bridged).map(|request| request.proof)
    }

    /// Returns the request on which the next write can base the lease, if it is committed.
    pub(super) fn next_proof(&self) -> Option<Proof> {
        self.piers.back().map(|pier| pier.proof)
    }

    /// Returns the request on which the next committed write will base the lease, and since when
    /// that is so. Returns `None` if the session was idle: the lease would soon be shorter, because
    /// of the gap.
    pub(super) fn next(&self) -> Option<(Time, Proof)> {
        let mut replies = self.leader_replies.iter().rev();
        let (newest, before) = (replies.next()?, replies.next()?);
        let usual = self.terms.interval.max(before.got.saturating_since(before.sent));
        let is_idle = newest.sent > before.sent + usual * 2;
        self.piers.back().filter(|_| !is_idle).map(|pier| (pier.got, pier.proof))
    }

    /// Returns whether renewals extend a lease that is based on this proof before each of its ends,
    /// with half an interval and a commit to spare, until it is based on a request after `from`. The
    /// first renewal is sent an interval after `from`, and each commit takes this long.
    ///
    /// After a session was idle for a moment, the gap stays among the two longest for about a tick, so
    /// the first renewals may extend the lease by nothing.
    pub(super) fn outlasts(&self, proof: Proof, from: Time, commit: Duration) -> bool {
        let mut bridge = self.clone();
        let mut newest = proof;
        // Pings may have been sent since, and no renewal precedes them.
        let last = self.requests.back().map_or(from, |last| last.proof.sent);
        let mut sent = (from + self.terms.interval).max(last);
        while newest.sent < from {
            let got = sent + commit;
            if newest.deadline() <= got + self.terms.interval / 2 + commit {
                return false;
            }
            let renewal = Proof { sent, ..proof };
            // A renewal is acknowledged by the reply to a ping beside it, and by its own.
            bridge.acknowledged(renewal, got);
            bridge.acknowledged(renewal, got);
            newest = Proof::later(Some(newest), bridge.committed(sent)).unwrap_or(newest);
            bridge.leader_replied(sent, got);
            sent = sent + self.terms.interval.max(commit);
        }
        true
    }

    /// Returns the longest times for which the leader may have been paused between `from` and `to`.
    fn gaps(&self, from: Time, to: Time) -> Gaps {
        let mut gaps = Gaps::default();
        let mut last = from;
        for reply in self.leader_replies.iter().filter(|reply| reply.got > from) {
            gaps.add(reply.got.min(to).saturating_since(last));
            last = last.max(reply.sent);
        }
        gaps.add(to.saturating_since(last));
        gaps
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.requests.len() + self.leader_replies.len() + self.piers.len()
    }
}
