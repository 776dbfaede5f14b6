//! The items that takers pass over for a while.
//!
//! One item that cannot be delivered, or whose consumer gave it back, must not keep the items behind
//! it. So a queue and its clones remember such an item. One that is *blocked* is tried again after
//! pauses that double; one that was *given back* is free again after the delay that the queue was
//! built with.
//!
//! Only the names in the directory that [`enter`](Aside::enter) was last called with are kept,
//! because another directory gives the same names to other items; and the names of items that are
//! gone are removed with the next list.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use zk_session::{Time, Zxid};

use super::layout::ItemName;
use crate::machine::spread;

/// First pause before an item that is blocked is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest of these pauses. With it, a hundred blocked items cost about twenty reads per minute.
const PAUSE_MAX: Duration = Duration::from_secs(5 * 60);

/// Why an item of a work queue cannot be delivered.
#[derive(Clone, Copy, Eq, Error, Hash, PartialEq)]
#[non_exhaustive]
pub enum BlockReason {
    /// The item has children that the queue did not create, so it could not be deleted by an
    /// acknowledgement.
    #[error(
        "it has children that the queue did not create, so nobody can acknowledge it; delete them"
    )]
    HasChildren,
    /// The client may not read the item.
    #[error("this client may not read it; grant it READ and CREATE on the item")]
    NotPermitted,
    /// The data of the item is longer than the client's limit for replies.
    #[error("it is longer than the `response_limit` of this client; raise that limit")]
    TooLarge,
}

jute_codec::debug_by_message!(BlockReason);

/// An item of a work queue that cannot be delivered to this client; see
/// [`WorkQueue::blocked`](crate::WorkQueue::blocked).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct BlockedItem {
    /// The path of the item.
    pub path: String,
    /// Why it cannot be delivered.
    pub reason: BlockReason,
}

/// The items that takers pass over for a while.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aside {
    /// The transaction that created the directory of the items.
    directory: Zxid,
    /// Searches share this map until it changes.
    items: Arc<BTreeMap<ItemName, Entry>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    until: Time,
    /// Why the item is blocked; `None` if it was given back.
    reason: Option<BlockReason>,
    /// The last pause of an item that is blocked.
    pause: Duration,
}

/// How a taker treats an item.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Standing {
    /// Nothing is known about the item.
    Free,
    /// The item was blocked, and the next look tries it again.
    Due,
    /// The item is passed over until this time.
    Aside(Time),
}

impl Aside {
    /// Forgets the items of another directory.
    pub(crate) fn enter(&mut self, directory: Zxid) {
        if self.directory != directory {
            *self = Self { directory, items: Arc::default() };
        }
    }

    /// Returns how to treat an item of a directory.
    pub(crate) fn standing(&self, directory: Zxid, item: &ItemName, now: Time) -> Standing {
        let Some(entry) = self.items.get(item).filter(|_| directory == self.directory) else {
            return Standing::Free;
        };
        // Items that were blocked one after the other are tried again together.
        let is_over = entry.until <= now + entry.pause / 4;
        match entry.reason {
            _ if !is_over => Standing::Aside(entry.until),
            Some(_) => Standing::Due,
            None => Standing::Free,
        }
    }

    /// Remembers that an item was given back, until this time.
    pub(crate) fn postpone(&mut self, item: &ItemName, until: Time) {
        let entry = Entry { until, reason: None, pause: Duration::ZERO };
        Arc::make_mut(&mut self.items).insert(item.clone(), entry);
    }

    /// Returns whether an item of the current directory is passed over at this time.
    pub(crate) fn has(&self, item: &ItemName, now: Time) -> bool {
        matches!(self.standing(self.directory, item, now), Standing::Aside(_))
    }

    /// Remembers that an item cannot be delivered. Returns whether this is news. Queues with
    /// different seeds try their items again at different times.
    pub(crate) fn block(
        &mut self,
        item: &ItemName,
        reason: BlockReason,
        now: Time,
        seed: u128,
    ) -> bool {
        let last = self.items.get(item).and_then(|entry| Some((entry.reason?, entry.pause)));
        let is_news = last.is_none_or(|(last, _)| last != reason);
        let pause = last.map_or(PAUSE, |(_, pause)| pause.saturating_mul(2).min(PAUSE_MAX));
        let entry = Entry { until: now + spread(pause, seed), reason: Some(reason), pause };
        Arc::make_mut(&mut self.items).insert(item.clone(), entry);
        is_news
    }

    /// Forgets an item, which can be delivered or is gone.
    pub(crate) fn forget(&mut self, item: &ItemName) {
        if self.items.contains_key(item) {
            Arc::make_mut(&mut self.items).remove(item);
        }
    }

    /// Returns why an item is blocked, or `None` if it is not.
    pub(crate) fn reason(&self, item: &ItemName) -> Option<BlockReason> {
        self.items.get(item)?.reason
    }

    /// Returns the items that are blocked.
    pub(crate) fn blocked(&self) -> impl Iterator<Item = (&ItemName, BlockReason)> {
        self.items.iter().filter_map(|(item, entry)| Some((item, entry.reason?)))
    }

    /// Returns the items that are not in a list of the directory, which is sorted.
    pub(crate) fn missing_in(&self, items: &[ItemName]) -> Vec<ItemName> {
        self.items.keys().filter(|item| items.binary_search(item).is_err()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: Zxid = Zxid(7);

    fn item(number: u32) -> ItemName {
        ItemName::parse(&format!("entry-100-{number:010}")).expect("an item")
    }

    fn at(secs: u64) -> Time {
        Time::default() + Duration::from_secs(secs)
    }

    fn entered() -> Aside {
        let mut aside = Aside::default();
        aside.enter(DIRECTORY);
        aside
    }

    #[test]
    fn a_blocked_item_is_tried_again_after_pauses_that_double_up_to_a_limit() {
        let mut aside = entered();
        let mut now = at(0);
        let mut pauses = Vec::new();
        for round in 0..12 {
            let is_news = aside.block(&item(1), BlockReason::NotPermitted, now, 0);
            assert_eq!(is_news, round == 0);
            let Standing::Aside(until) = aside.standing(DIRECTORY, &item(1), now) else {
                panic!("{aside:?}")
            };
            pauses.push(until.saturating_since(now).as_secs());
            now = until;
            assert_eq!(aside.standing(DIRECTORY, &item(1), now), Standing::Due);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert!(aside.block(&item(1), BlockReason::TooLarge, now, 0), "another reason is news");
    }

    #[test]
    fn an_item_of_another_directory_and_one_that_was_forgotten_are_free() {
        let mut aside = entered();
        aside.block(&item(1), BlockReason::NotPermitted, at(0), 0);
        assert_eq!(aside.standing(Zxid(8), &item(1), at(0)), Standing::Free);
        aside.enter(DIRECTORY);
        assert_ne!(aside.standing(DIRECTORY, &item(1), at(0)), Standing::Free);
        aside.forget(&item(1));
        assert_eq!(aside.standing(DIRECTORY, &item(1), at(0)), Standing::Free);
        aside.block(&item(1), BlockReason::NotPermitted, at(0), 0);
        aside.enter(Zxid(8));
        assert_eq!(aside.blocked().count(), 0);
    }

    #[test]
    fn an_item_that_was_given_back_is_free_after_the_delay_and_never_blocked() {
        let mut aside = entered();
        aside.postpone(&item(1), at(10));
        assert_eq!(aside.standing(DIRECTORY, &item(1), at(9)), Standing::Aside(at(10)));
        assert!(aside.has(&item(1), at(9)) && !aside.has(&item(1), at(10)));
        assert_eq!(aside.standing(DIRECTORY, &item(1), at(10)), Standing::Free);
        assert_eq!((aside.reason(&item(1)), aside.blocked().count()), (None, 0));
    }

    #[test]
    fn the_items_that_a_list_lacks_are_gone() {
        let mut aside = entered();
        for number in [1, 3, 5] {
            aside.block(&item(number), BlockReason::NotPermitted, at(0), 0);
        }
        assert_eq!(aside.missing_in(&[item(0), item(3), item(4)]), [item(1), item(5)]);
    }
}
