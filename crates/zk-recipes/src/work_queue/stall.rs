//! Takers that take an item although it is not their turn.
//!
//! The taker at the head of the queue of takers may have stopped polling its future, while its
//! session lives. So takers that wait look for items from time to time. If the first item that nobody
//! has taken is still the same a moment later, the head is *stalled*, and the taker takes the item.
//! From then on, the takers of this queue look each time that one of them begins to wait, and often
//! enough for items that arrive, until one of them gets its turn or none has found an item for long.
//!
//! The takers of a queue and its clones share what they have seen, so that a look of one of them
//! counts for all. A look costs one read if there are no items, and two reads if neither the items
//! nor the leases have changed since a look that found nothing.

use std::time::Duration;

use zk_session::{Time, Zxid};

use crate::machine::spread;

/// How many times more often takers look while the head is stalled.
pub(crate) const HASTE: u32 = 32;
/// For how many intervals the head counts as stalled after an item was taken out of turn.
const STALLED_INTERVALS: u32 = 20;

/// What the takers of a queue know about the head of the queue of takers.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    /// When one of them last looked; `None` if they have to look at once.
    pub(crate) looked_at: Option<Time>,
    /// When one of them last took an item because the head was stalled.
    taken_at: Option<Time>,
    /// The directories of the items and of the leases before the last look that found no item.
    pub(crate) quiet: Option<Quiet>,
}

/// The last changes of the directories of the items and of the leases.
pub(crate) type Quiet = [Option<(Zxid, Zxid)>; 2];

impl Stall {
    /// A taker got its turn, so the head is not stalled.
    pub(crate) fn end(&mut self) {
        self.taken_at = None;
    }

    pub(crate) fn is_stalled(&self, interval: Duration, now: Time) -> bool {
        self.taken_at.is_some_and(|taken_at| {
            now.saturating_since(taken_at) < interval.saturating_mul(STALLED_INTERVALS)
        })
    }

    /// Returns when a taker has to look that has waited since this time. Takers of different seeds
    /// look at different times.
    pub(crate) fn next(&self, interval: Duration, since: Time, seed: u128, now: Time) -> Time {
        if self.is_stalled(interval, now) {
            return self.looked_at.map_or(now, |looked_at| looked_at + interval / HASTE);
        }
        let last = self.looked_at.map_or(since, |looked_at| looked_at.max(since));
        last + spread(interval, seed)
    }

    pub(crate) fn taken(&mut self, now: Time) {
        self.taken_at = Some(now);
        self.looked_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(32);

    fn at(secs: u64) -> Time {
        Time::default() + Duration::from_secs(secs)
    }

    #[test]
    fn takers_look_once_per_interval_together_and_often_while_the_head_is_stalled() {
        let mut shared = Stall::default();
        assert_eq!(shared.next(INTERVAL, at(5), 0, at(5)), at(37));
        shared.looked_at = Some(at(20));
        assert_eq!(shared.next(INTERVAL, at(5), 0, at(30)), at(52), "another taker has looked");
        shared.taken(at(60));
        assert_eq!(shared.next(INTERVAL, at(61), 0, at(61)), at(61), "there may be more items");
        shared.looked_at = Some(at(61));
        assert_eq!(shared.next(INTERVAL, at(62), 0, at(62)), at(62), "a second later");
        shared.looked_at = Some(at(700));
        assert_eq!(shared.next(INTERVAL, at(5), 0, at(700)), at(732), "the stall is over");
        shared.taken(at(700));
        shared.end();
        shared.looked_at = Some(at(701));
        assert_eq!(shared.next(INTERVAL, at(5), 0, at(701)), at(733), "a taker got its turn");
    }
}
