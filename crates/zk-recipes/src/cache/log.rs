//! What the log says about a cache that cannot read, for the person on call.

use std::time::Duration;

use tracing::{debug, warn};
use zk_session::Time;
use zk_session::recipe::Abridged;

use super::event::CacheEvent;

/// Number of unreadable paths in a minute that are logged above DEBUG.
const WARNINGS_MAX: u32 = 10;

/// Counts messages, so that a tree of unreadable znodes does not fill the log.
#[derive(Debug, Default)]
pub(super) struct Log {
    began: Option<Time>,
    warnings: u32,
    has_warned_of_missing: bool,
}

impl Log {
    /// Logs an event that people may have to act on.
    pub(super) fn event(&mut self, now: Time, root: &str, event: &CacheEvent, is_missing: bool) {
        let root = Abridged(root);
        match event {
            CacheEvent::Unreadable { path, error } if self.is_visible(now) => {
                let path = Abridged(path);
                warn!(%root, %path, %error, "the cache cannot read a znode, and shows what it knew last");
            }
            CacheEvent::Unreadable { path, error } => {
                let path = Abridged(path);
                debug!(%root, %path, %error, "the cache cannot read a znode, and shows what it knew last");
            }
            CacheEvent::Complete
                if is_missing && !std::mem::replace(&mut self.has_warned_of_missing, true) =>
            {
                warn!(%root, "the path of the cache does not exist, so the cache is empty");
            }
            CacheEvent::Added { .. }
            | CacheEvent::Changed { .. }
            | CacheEvent::Complete
            | CacheEvent::Gap
            | CacheEvent::Removed { .. } => {}
        }
    }

    fn is_visible(&mut self, now: Time) -> bool {
        if self.began.is_none_or(|began| now.saturating_since(began) >= Duration::from_secs(60)) {
            (self.began, self.warnings) = (Some(now), 0);
        }
        self.warnings += 1;
        self.warnings <= WARNINGS_MAX
    }
}
