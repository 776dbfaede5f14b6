//! What pings prove: the window.
//!
//! The server that we talk to may be cut off: it goes on acknowledging until it notices, and our
//! requests of that time count for nothing. But an acknowledgement proves that what we had sent
//! *long enough before* has reached the leader: had the cut come earlier, the server would have
//! noticed before it acknowledged.
//!
//! When a request *a* is acknowledged, let *b* be the newest acknowledged request with
//!
//! ```text
//! sent(b) + 1.05 * (syncLimit + 2) * tick + late(b) + G1 + G2  <=  sent(a)
//! ```
//!
//! - `syncLimit * tick` is how long a server takes to notice that it has lost its leader, or a
//!   leader its followers. Two more ticks are left for the rhythm in which they look, and in which
//!   a follower passes on what it has heard.
//! - `late(b)` is how long the acknowledgement of *b* took: the server may have looked at *b* as
//!   late as that.
//! - A server that stands still notices nothing. `G1` and `G2` are the longest two of the gaps
//!   from *b* to *a*. A gap lies between neighbouring acknowledged requests, handshakes among
//!   them, from the sending of the first to the acknowledgement of the second: no longer pause
//!   fits in unseen. One pause can hide the cut, and another one the end of the time in which it
//!   has to be noticed.
//! - Our clock may be 5 % fast, and the first term is the servers' time.
//!
//! Then the lease counts from *b*.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Gaps, Mark};
use crate::time::Time;

/// Acknowledged requests of a session.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// How long a running server may go on without its leader.
    unnoticed: Duration,
    pub(super) ping_interval: Duration,
    /// Sending of the newest acknowledged request, be it the ConnectRequest.
    newest: Option<Time>,
    /// The longest gaps since the newest entry.
    gaps: Gaps,
    /// Acknowledged requests, the oldest first, at least a quarter of a ping interval apart.
    entries: VecDeque<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    mark: Mark,
    late: Duration,
    /// The longest ones since the entry before.
    gaps: Gaps,
}

impl Window {
    pub(super) fn new(unnoticed: Duration, ping_interval: Duration) -> Self {
        let (gaps, entries) = (Gaps::default(), VecDeque::new());
        Self { unnoticed, ping_interval, newest: None, gaps, entries }
    }

    /// The session was created.
    pub(super) fn created(&mut self, mark: Mark, now: Time) {
        self.newest = Some(mark.sent);
        let late = now.saturating_since(mark.sent);
        self.entries.push_back(Entry { mark, late, gaps: Gaps::default() });
    }

    /// The session was resumed. What was acknowledged before counts still.
    pub(super) fn resumed(&mut self, mark: Mark, now: Time) {
        for entry in &mut self.entries {
            entry.mark.timeout = entry.mark.timeout.min(mark.timeout);
        }
        // A server may have stood still since before the connection was lost.
        if let Some(before) = self.newest {
            self.gaps.add(now.saturating_since(before));
        }
        self.newest = Some(mark.sent);
    }

    /// A request of this connection was acknowledged now; what the lease counts from after it.
    pub(super) fn acknowledged(&mut self, mark: Mark, now: Time) -> Option<Mark> {
        let (sent, before) = (mark.sent, self.newest?);
        if sent <= before {
            return None;
        }
        self.newest = Some(sent);
        self.gaps.add(now.saturating_since(before));
        let is_soon = |entry: &Entry| sent < entry.mark.sent + self.ping_interval / 4;
        if self.entries.back().is_some_and(is_soon) {
            return None;
        }
        let late = now.saturating_since(sent);
        self.entries.push_back(Entry { mark, late, gaps: std::mem::take(&mut self.gaps) });
        while self.entries.front().is_some_and(|entry| entry.mark.deadline() <= sent) {
            self.entries.pop_front();
        }
        self.newest_known_to_the_leader(sent)
    }

    /// `sent`: of the newest entry.
    fn newest_known_to_the_leader(&self, sent: Time) -> Option<Mark> {
        let mut gaps = Gaps::default();
        for entry in self.entries.iter().rev() {
            if entry.mark.sent + self.unnoticed + gaps.sum() + entry.late <= sent {
                return Some(entry.mark);
            }
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
