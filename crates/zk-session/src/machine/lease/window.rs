//! The window: derives the lease from pings.
//!
//! The server that we are connected to may be cut off from the leader. It keeps acknowledging
//! requests until it notices, and requests sent in that time do not reach the leader. But an
//! acknowledgement proves that all requests that we sent *long enough before* did reach the leader:
//! if the server had been cut off by then, it would have noticed before it acknowledged.
//!
//! When a request *a* is acknowledged, let *b* be the newest acknowledged request with
//!
//! ```text
//! sent(b) + 1.05 * (syncLimit + 2) * tick + late(b) + G1 + G2  <=  sent(a)
//! ```
//!
//! - `syncLimit * tick` is how long a server takes to notice that it has lost its leader, or a
//!   leader to notice that it has lost its followers. Two more ticks cover the interval between
//!   these checks, and the interval at which a follower forwards session activity.
//! - `late(b)` is how long the acknowledgement of *b* took: the server may have processed *b* that
//!   much later than we sent it.
//! - A paused server notices nothing. `G1` and `G2` are the two longest gaps from *b* to *a*. A gap
//!   extends from sending one acknowledged request, or handshake, to the acknowledgement of the
//!   next one: a longer pause cannot go unnoticed. One pause can hide the moment at which the
//!   server is cut off, and another pause can hide the moment at which the server should have
//!   noticed that.
//! - Our clock may be 5 % fast, and the first term is measured by the servers.
//!
//! Then the lease is based on *b*.
//!
//! Requests that are close together become one entry, so that a busy session needs no more memory
//! than a quiet one. Only an entry with neighbours on both sides is removed: so requests between
//! the pings of a session that sends few of them do not hide a ping, and never shorten the lease.

use std::collections::VecDeque;
use std::time::Duration;

use super::gaps::Gaps;
use super::proof::Proof;
use crate::time::Time;

/// The acknowledged requests of a session.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// How long a running server may take to notice that it is cut off.
    unnoticed: Duration,
    pub(super) ping_interval: Duration,
    /// When the newest acknowledged request was sent, including a ConnectRequest.
    newest: Option<Time>,
    /// The longest gaps since the newest entry.
    gaps: Gaps,
    /// Acknowledged requests, oldest first, any three of them at least a quarter of a ping interval
    /// apart.
    entries: VecDeque<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    proof: Proof,
    late: Duration,
    /// The longest gaps since the previous entry.
    gaps: Gaps,
}

impl Window {
    pub(super) fn new(unnoticed: Duration, ping_interval: Duration) -> Self {
        let gaps = Gaps::default();
        Self { unnoticed, ping_interval, newest: None, gaps, entries: VecDeque::new() }
    }

    /// Records that the session was created.
    pub(super) fn created(&mut self, proof: Proof, now: Time) {
        self.newest = Some(proof.sent);
        let late = now.saturating_since(proof.sent);
        self.entries.push_back(Entry { proof, late, gaps: Gaps::default() });
    }

    /// Records that the session was resumed. Earlier acknowledgements remain valid.
    pub(super) fn resumed(&mut self, proof: Proof, now: Time) {
        for entry in &mut self.entries {
            entry.proof.timeout = entry.proof.timeout.min(proof.timeout);
        }
        // A server may have been paused since before the connection was lost.
        if let Some(before) = self.newest {
            self.gaps.add(now.saturating_since(before));
        }
        self.newest = Some(proof.sent);
    }

    /// Records that a request of this connection was acknowledged. Returns the request on which the
    /// lease can be based from now on.
    pub(super) fn acknowledged(&mut self, proof: Proof, now: Time) -> Option<Proof> {
        let sent = proof.sent;
        let before = self.newest?;
        // Pings and other requests may be acknowledged out of order. Older ones prove nothing new.
        if sent <= before {
            return None;
        }
        self.newest = Some(sent);
        self.gaps.add(now.saturating_since(before));
        self.remove_newest_if_close(sent);
        let late = now.saturating_since(sent);
        self.entries.push_back(Entry { proof, late, gaps: std::mem::take(&mut self.gaps) });
        // A lease based on a request that old would already have ended.
        while self.entries.front().is_some_and(|entry| entry.proof.deadline() <= sent) {
            self.entries.pop_front();
        }
        self.newest_known_to_the_leader(sent)
    }

    /// Removes the newest entry if both the one before it and a request sent at `sent` are close to
    /// it. Its gaps count for the next one.
    fn remove_newest_if_close(&mut self, sent: Time) {
        let before = self.entries.len().checked_sub(2).and_then(|index| self.entries.get(index));
        let are_close =
            before.is_some_and(|before| sent < before.proof.sent + self.ping_interval / 4);
        let Some(removed) = are_close.then(|| self.entries.pop_back()).flatten() else { return };
        removed.gaps.longest().into_iter().for_each(|gap| self.gaps.add(gap));
    }

    /// Returns *b*. `sent` is the time at which the newest entry, *a*, was sent.
    fn newest_known_to_the_leader(&self, sent: Time) -> Option<Proof> {
        let mut gaps = Gaps::default();
        for entry in self.entries.iter().rev() {
            if entry.proof.sent + self.unnoticed + gaps.sum() + entry.late <= sent {
                return Some(entry.proof);
            }
            // These gaps are between this entry and the next older one, so they count for the older
            // one.
            for gap in entry.gaps.longest() {
                gaps.add(gap);
            }
        }
        None
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}
