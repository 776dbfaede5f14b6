//! Counts messages about single locks and items, so that an outage of a client with thousands of
//! them does not fill the log.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::time::Time;

/// What a message is about; each kind is counted on its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Notice {
    /// A lock is at risk.
    AtRisk,
    /// A lock that was at risk is held.
    HeldAgain,
    /// A lock is lost.
    Lost,
    /// An acquire waits behind its own session.
    OwnSession,
    /// A server refuses to remove a znode.
    Refused,
    /// A check has found a change that no watch has reported.
    Missed,
    /// An item of a work queue cannot be delivered.
    Blocked,
}

/// How long messages are counted before the count starts again.
const WINDOW: Duration = Duration::from_secs(60);

/// Maximum number of locks that are remembered in one window. Far fewer messages are visible.
const PATHS_MAX: usize = 32;

/// The number of recent messages of each kind.
#[derive(Debug, Default)]
pub(crate) struct Notices(Mutex<[Window; 7]>);

#[derive(Clone, Debug, Default)]
struct Window {
    began: Option<Time>,
    count: u32,
    /// Hashes of the locks that were counted by their path.
    paths: Vec<u64>,
}

impl Notices {
    /// Counts a message, and returns its number, from 1. The count starts again a minute after its
    /// first message.
    pub(crate) fn count(&self, notice: Notice, now: Time) -> u32 {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(window) = windows.get_mut(notice as usize) else { return u32::MAX };
        window.begin(now);
        window.count = window.count.saturating_add(1);
        window.count
    }

    /// Like [`count`](Self::count), but counts each path once. Returns `None` for a path that was
    /// counted before.
    pub(crate) fn count_path(&self, notice: Notice, path: &str, now: Time) -> Option<u32> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window = windows.get_mut(notice as usize)?;
        window.begin(now);
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        let path = hasher.finish();
        if window.paths.contains(&path) {
            return None;
        }
        if window.paths.len() < PATHS_MAX {
            window.paths.push(path);
        }
        window.count = window.count.saturating_add(1);
        Some(window.count)
    }
}

impl Window {
    /// Starts a new window if this one is over.
    fn begin(&mut self, now: Time) {
        if self.began.is_none_or(|began| now.saturating_since(began) >= WINDOW) {
            *self = Self { began: Some(now), count: 0, paths: Vec::new() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_counted_on_its_own_and_anew_after_a_minute() {
        let notices = Notices::default();
        let at = |seconds| Time::from_start(Duration::from_secs(seconds));
        let counted = [(Notice::AtRisk, 1), (Notice::AtRisk, 1), (Notice::Lost, 50)];
        assert_eq!(counted.map(|(notice, s)| notices.count(notice, at(s))), [1, 2, 1]);
        let counted = [(Notice::HeldAgain, 60), (Notice::AtRisk, 60), (Notice::AtRisk, 61)];
        assert_eq!(counted.map(|(notice, s)| notices.count(notice, at(s))), [1, 3, 1]);
        assert_eq!(notices.count(Notice::Lost, at(109)), 2);
        assert_eq!(notices.count(Notice::Lost, at(110)), 1);
    }

    #[test]
    fn a_path_is_counted_once_a_minute_and_the_memory_is_bounded() {
        let notices = Notices::default();
        let count = |path: &str, seconds| {
            let now = Time::from_start(Duration::from_secs(seconds));
            notices.count_path(Notice::OwnSession, path, now)
        };
        assert_eq!(
            [("/a", 1), ("/a", 2), ("/b", 2)].map(|(p, s)| count(p, s)),
            [Some(1), None, Some(2)]
        );
        assert_eq!([("/a", 60), ("/a", 61)].map(|(p, s)| count(p, s)), [None, Some(1)]);
        for number in 0..1_000 {
            assert!(count(&format!("/{number}"), 62).is_some());
        }
        let windows = notices.0.lock().expect("no test panics with it");
        assert!(windows.iter().all(|window| window.paths.len() <= PATHS_MAX));
    }
}
