//! How long commits take, which decides whether writes can keep a lease.

use std::fmt;
use std::time::Duration;

/// Why a session has no lease although its timeout is long enough for one with prompt servers: each
/// commit takes too long.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct SlowCommits {
    /// How long a write takes, from when it is sent until its reply arrives.
    pub commit: Duration,
    /// The session timeout in force.
    pub timeout: Duration,
    /// The session timeout that a lease needs with commits that take that long.
    pub needed: Duration,
}

impl SlowCommits {
    /// Creates a value, for tests of code that handles it.
    pub fn new(commit: Duration, timeout: Duration, needed: Duration) -> Self {
        Self { commit, timeout, needed }
    }
}

impl fmt::Display for SlowCommits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commit, timeout, needed } = self;
        write!(
            f,
            "there is no lease, because a commit takes {commit:?}, which is too long for a session \
             timeout of {timeout:?}; request a timeout of at least {needed:?}"
        )
    }
}

/// Number of commits that decide.
const RECENT: usize = 4;

/// The times that the newest commits took.
#[derive(Clone, Debug, Default)]
pub(super) struct CommitTimes {
    /// Newest first.
    recent: [Duration; RECENT],
    count: usize,
}

impl CommitTimes {
    pub(super) fn add(&mut self, time: Duration) {
        self.recent.rotate_right(1);
        if let Some(first) = self.recent.first_mut() {
            *first = time;
        }
        self.count = RECENT.min(self.count + 1);
    }

    /// Forgets all but the newest time, because the others are old.
    pub(super) fn keep_newest(&mut self) {
        self.count = self.count.min(1);
    }

    /// Returns the longest of the newest times, or zero if nothing was measured.
    pub(super) fn longest(&self) -> Duration {
        self.recent.iter().take(self.count).max().copied().unwrap_or_default()
    }

    /// Returns the shortest of the newest times, if there are enough of them for a verdict: a
    /// single slow commit proves nothing.
    pub(super) fn shortest(&self) -> Option<Duration> {
        (self.count == RECENT).then(|| self.recent.iter().min().copied().unwrap_or_default())
    }
}
