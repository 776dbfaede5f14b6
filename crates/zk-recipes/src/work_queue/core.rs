//! The parts of a work queue that its clones and the items taken from it share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jute_codec::Response;
use tokio::sync::Notify;
use tracing::{debug, warn};
use zk_session::recipe::{Abridged, Notice, Session};
use zk_session::{Client, Time};

use super::aside::{Aside, BlockReason};
use super::error::WorkQueueError;
use super::layout::{ItemName, Layout};
use super::machine::look::Listed;
use super::machine::put::Bound;
use super::stall::Stall;
use super::stats::Counters;
use crate::engine::drive::run;
use crate::engine::notice::is_among_first;
use crate::fair::FairLock;
use crate::machine::{FailedAction, ReadAll, exists};

/// The largest number of items, unless the caller sets another one. With the default limit for
/// replies, a client can list 174,000 items. The rest is for the puts that do not check.
const ITEMS_MAX: usize = 100_000;
/// How many puts there are for each that checks the default limit, on average.
const PUTS_PER_CHECK: u128 = 64;

/// The state that clones of a queue and the items taken from it share.
pub(crate) struct Core {
    pub(crate) client: Client,
    pub(crate) layout: Arc<Layout>,
    /// The taker that holds this lock looks for items.
    pub(crate) turn: FairLock,
    /// The newest list of the queue.
    pub(crate) listed: Mutex<Listed>,
    /// The items that takers pass over.
    pub(crate) aside: Mutex<Aside>,
    /// What takers that wait know about the head of their queue.
    pub(crate) stall: Mutex<Stall>,
    /// A taker has taken an item out of turn, so another one that waits should look too.
    pub(crate) taken_out_of_turn: Notify,
    /// The last put that has read the number of items has found too many.
    pub(crate) is_full: AtomicBool,
    pub(super) counters: Counters,
    /// A number that distinguishes this queue from others that began at the same time.
    pub(crate) seed: u128,
}

impl Core {
    /// Reads the number of items, leased ones included.
    pub(crate) async fn length(&self, deadline: Option<Time>) -> Result<usize, WorkQueueError> {
        let entries = &self.layout.entries;
        let mut reading = ReadAll::new(vec![exists(entries.clone())], FailedAction::Check, entries);
        let response = run(&self.client, &mut reading, deadline).await?.pop().flatten();
        let Some(Response::Exists(stat)) = response else { return Ok(0) };
        Ok(usize::try_from(stat.num_children).unwrap_or_default())
    }

    /// Returns the limit that the put with this id has to check.
    pub(crate) fn bound(&self, id: u128) -> Option<Bound> {
        match self.layout.limit {
            Some(usize::MAX) => None,
            Some(items) => Some(Bound { items, is_default: false }),
            // A sweep looks at other bits of the id.
            None if (id >> 64).is_multiple_of(PUTS_PER_CHECK)
                || self.is_full.load(Ordering::Relaxed) =>
            {
                Some(Bound { items: ITEMS_MAX, is_default: true })
            }
            None => None,
        }
    }

    /// Returns a copy of the newest list.
    pub(crate) fn listed(&self) -> Listed {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the newest list.
    pub(crate) fn set_listed(&self, listed: Listed) {
        if let Some(directory) = listed.directory() {
            self.aside().enter(directory);
        }
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = listed;
    }

    /// Returns the items that takers pass over.
    pub(crate) fn aside(&self) -> MutexGuard<'_, Aside> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what takers that wait know about the head of their queue.
    pub(crate) fn stall(&self) -> MutexGuard<'_, Stall> {
        self.stall.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether takers pass over an item because it cannot be delivered.
    pub(crate) fn is_blocked(&self, item: &ItemName) -> bool {
        self.aside().reason(item).is_some()
    }

    /// Remembers that an item cannot be delivered to this client, and logs it if it is news.
    pub(crate) fn block(&self, item: &ItemName, reason: BlockReason) {
        if self.aside().block(item, reason, self.client.now(), self.seed) {
            let item = self.layout.item(item);
            let path = Abridged(&item);
            let number = Session::of(&self.client).count_notice(Notice::Blocked);
            if is_among_first(Notice::Blocked, number) {
                warn!(%path, "an item of a work queue is passed over: {reason}");
            } else {
                debug!(%path, "an item of a work queue is passed over: {reason}");
            }
        }
    }

    /// Remembers that a consumer of this queue has given an item back.
    pub(crate) fn postpone(&self, item: &ItemName) {
        let delay = self.layout.redelivery_delay;
        if !delay.is_zero() {
            self.aside().postpone(item, self.client.now() + delay);
        }
    }

    /// Removes an item that is gone from the newest list.
    pub(crate) fn forget(&self, item: &ItemName) {
        self.aside().forget(item);
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).remove(item);
    }
}
