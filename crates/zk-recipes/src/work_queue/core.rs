//! The parts of a work queue that its clones and the items taken from it share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::warn;
use zk_session::Client;

use super::aside::{Aside, BlockReason};
use super::layout::{ItemName, Layout};
use super::machine::look::Listed;
use crate::fair::FairLock;

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
    /// A number that distinguishes this queue from others that began at the same time.
    pub(crate) seed: u128,
}

impl Core {
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

    /// Returns whether takers pass over an item because it cannot be delivered.
    pub(crate) fn is_blocked(&self, item: &ItemName) -> bool {
        self.aside().reason(item).is_some()
    }

    /// Remembers that an item cannot be delivered to this client, and logs it if it is news.
    pub(crate) fn block(&self, item: &ItemName, reason: BlockReason) {
        if self.aside().block(item, reason, self.client.now(), self.seed) {
            let path = self.layout.item(item);
            warn!(%path, "an item of a work queue is passed over: {reason}");
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
