//! The timeouts that servers have granted to the session.

use std::time::Duration;

/// The timeouts of a session. Before a server has granted any, they are the one to request.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionTimeout {
    /// The one that the session was created with.
    created: Duration,
    /// The one that the last server has granted.
    granted: Duration,
}

impl SessionTimeout {
    /// Creates the timeouts of a session that is requested with this one.
    pub(super) fn requested(timeout: Duration) -> Self {
        Self { created: timeout, granted: timeout }
    }

    /// Creates the timeouts of a session that another client has opened.
    pub(super) fn inherited(created: Duration, granted: Duration) -> Self {
        Self { created, granted }
    }

    /// Records the timeout that a server has granted to a new session, or to one that it resumes.
    pub(super) fn grant(&mut self, granted: Duration, is_new: bool) {
        self.granted = granted;
        if is_new {
            self.created = granted;
        }
    }

    /// Returns the timeout that the session was created with.
    pub(super) fn created(self) -> Duration {
        self.created
    }

    /// Returns the timeout that the last server has granted.
    pub(super) fn granted(self) -> Duration {
        self.granted
    }

    /// Returns the timeout that applies. After an election, the new leader uses the one of the
    /// createSession transaction, whatever its predecessor has granted since.
    pub(super) fn in_force(self) -> Duration {
        self.granted.min(self.created)
    }
}
