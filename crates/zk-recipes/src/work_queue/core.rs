//! The parts of a work queue that its clones and the items taken from it share.

use std::sync::{Arc, Mutex, PoisonError};

use zk_session::Client;

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
}

impl Core {
    /// Returns a copy of the newest list.
    pub(crate) fn listed(&self) -> Listed {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the newest list.
    pub(crate) fn set_listed(&self, listed: Listed) {
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = listed;
    }

    /// Removes an item that is gone from the newest list.
    pub(crate) fn forget(&self, item: &ItemName) {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).remove(item);
    }
}
