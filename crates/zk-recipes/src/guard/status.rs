//! A view of a lock for code that does not own the guard.

use std::fmt;
use std::sync::{Arc, Weak};

use super::hold::Hold;
use crate::lock::state::LockState;

/// A view of a lock that was obtained, for code that does not own the guard. It keeps nothing
/// alive, and can be cloned.
#[derive(Clone)]
pub struct LockStatus {
    hold: Weak<Hold>,
    guard: Weak<()>,
}

impl LockStatus {
    pub(super) fn new(hold: &Arc<Hold>, guard: &Arc<()>) -> Self {
        Self { hold: Arc::downgrade(hold), guard: Arc::downgrade(guard) }
    }

    /// Returns the state of the lock right now, or `None` if the lock was released or its guard was
    /// dropped.
    pub fn state(&self) -> Option<LockState> {
        self.guard.upgrade()?;
        Some(self.hold.upgrade()?.state())
    }

    /// Returns whether the lock is held right now.
    pub fn is_held(&self) -> bool {
        self.state() == Some(LockState::Held)
    }
}

impl fmt::Debug for LockStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockStatus").field("state", &self.state()).finish()
    }
}
