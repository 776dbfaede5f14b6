//! Warnings that there is no lease although one is configured.

use std::time::Duration;

use tracing::warn;

use crate::machine::lease::{Lease, SlowCommits};
use crate::time::Time;

/// Minimum time between two warnings that there is no lease.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// What the log was told.
#[derive(Debug, Default)]
pub(super) struct LeaseWarnings {
    /// When the log last said that the session timeout is too short, and the timeout that the
    /// server had granted.
    too_short: Option<(Time, Duration)>,
    has_told_of_slow_commits: bool,
    has_told_of_keeper: bool,
}

impl LeaseWarnings {
    /// Warns that the session timeout is too short for the lease. Sessions may end one after the
    /// other, so this is said again only if the numbers have changed, and at most once in an
    /// interval.
    pub(super) fn too_short(
        &mut self,
        now: Time,
        lease: Lease,
        granted: Duration,
        requested: Duration,
    ) {
        let is_told = self.too_short.is_some_and(|(at, before)| {
            before == granted || now.saturating_since(at) < WARNING_INTERVAL
        });
        if is_told {
            return;
        }
        self.too_short = Some((now, granted));
        warn!(
            ?granted,
            ?requested,
            needed = ?lease.timeout_min(),
            %lease,
            "there is no lease, because the session timeout is too short for it; request a longer \
             timeout, configure the lease for different servers, or disable it"
        );
    }

    /// Warns once that the server is a ClickHouse Keeper.
    pub(super) fn keeper(&mut self) {
        if !std::mem::replace(&mut self.has_told_of_keeper, true) {
            warn!(
                "there is no lease, because the server is a ClickHouse Keeper, whose expiry of \
                 sessions is not proven: check fencing tokens where a lock protects data"
            );
        }
    }

    /// Warns once that commits take too long for a lease that a lock needs.
    pub(super) fn slow_commits(&mut self, slow: SlowCommits) {
        if std::mem::replace(&mut self.has_told_of_slow_commits, true) {
            return;
        }
        warn!(
            commit = ?slow.commit,
            timeout = ?slow.timeout,
            needed = ?slow.needed,
            "there is no lease, because commits take too long for the session timeout: locks are \
             at risk, and acquires that treat this as lost fail; request a longer timeout"
        );
    }
}
