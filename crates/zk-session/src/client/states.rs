//! The stream of a session's states.

use std::fmt;

use crate::driver::latest::Reader;
use crate::machine::Status;

/// A stream of snapshots of the session; see
/// [`Client::states`](crate::Client::states).
#[derive(Clone)]
pub struct StateStream {
    pub(super) status: Reader<Status>,
}

impl StateStream {
    /// Waits for the next change. Returns `None` after the client has stopped and its last state
    /// has been returned. Cancel safe.
    pub async fn next(&mut self) -> Option<Status> {
        self.status.changed().await.ok()?;
        Some(*self.status.borrow_and_update())
    }

    /// Returns the newest snapshot. [`next`](Self::next) does not return it again.
    pub fn current(&mut self) -> Status {
        *self.status.borrow_and_update()
    }
}

impl fmt::Debug for StateStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateStream").field("newest", &*self.status.borrow()).finish()
    }
}
