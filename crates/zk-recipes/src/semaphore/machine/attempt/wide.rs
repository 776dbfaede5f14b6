//! Waiting with many permits, when a watch for each contender ahead would cost too much.
//!
//! A persistent watch reports each change of the list of the directory, though not what has changed.
//! A contender with `ahead` others ahead is not entitled before `ahead - permits + 1` of them have
//! left, so it counts the changes, and lists only when there were that many since its last list. Of
//! the waiters, only the first lists after each change; the one with *n* others before it in the
//! queue lists after *n* + 1. All of them list when the number of permits changes.
//!
//! On a server without persistent watches, the contender watches the list, and lists after each
//! change.

use jute_codec::EventType;

use super::{SeatStep, SemaphoreAttempt, State, WATCHES_MAX, Wait};
use crate::machine::{News, SessionView, Step, WatchNumber};

/// What the attempt knows about changes of the directory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Changes {
    source: Source,
    /// The attempt has asked for the persistent watch.
    pub(super) is_followed: bool,
    /// Number of changes since the newest list was requested; the maximum if some may be missing.
    count: usize,
    /// The watch on the list of the directory, if there is no persistent watch.
    pub(super) list_watch: Option<WatchNumber>,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Source {
    /// The persistent watch is being set.
    #[default]
    Unset,
    /// The persistent watch is in place.
    Counted,
    /// Each list has to be watched.
    Listed,
}

impl SemaphoreAttempt {
    /// Returns whether the attempt watches the directory instead of its predecessors.
    pub(super) fn is_wide(&self) -> bool {
        self.place.is_blind || self.place.permits.is_some_and(|permits| permits > WATCHES_MAX)
    }

    /// Returns whether the watches that a wait needs are set and have not fired.
    pub(super) fn is_watched(&self) -> bool {
        let is_ahead_watched = match self.is_wide() {
            true => self.is_directory_watched(),
            false => self.place.predecessors.iter().all(|predecessor| predecessor.watch.is_some()),
        };
        let is_number_watched = self.is_counting() || self.place.permits_watch.is_some();
        is_ahead_watched && is_number_watched && self.own_watch.is_some()
    }

    /// Returns whether a list has to watch the number of permits. The persistent watch reports its
    /// changes too; a second watch on the directory would keep the client from removing that watch
    /// when the permit is granted, and so a holder would receive an event for each change.
    pub(super) fn must_watch_number(&self) -> bool {
        self.is_wide() && self.place.changes.source == Source::Listed
    }

    fn is_counting(&self) -> bool {
        self.is_wide() && self.place.changes.source == Source::Counted
    }

    /// Prepares a list, which will show all changes so far. Returns the watch that it sets.
    pub(super) fn watch_list(&mut self) -> Option<WatchNumber> {
        self.place.changes.count = 0;
        let is_listed = self.is_wide() && self.place.changes.source == Source::Listed;
        self.place.changes.list_watch =
            is_listed.then(|| self.number(self.place.changes.list_watch));
        self.place.changes.list_watch
    }

    /// Returns whether the watches that a wide wait needs are set, and too few contenders can have left
    /// for a grant.
    fn is_directory_watched(&self) -> bool {
        match self.place.changes.source {
            Source::Unset => false,
            Source::Counted => !self.may_be_entitled(),
            Source::Listed => self.place.changes.list_watch.is_some(),
        }
    }

    /// Returns whether fewer contenders are ahead than there are permits, if each change since the
    /// list was the end of one of them.
    fn may_be_entitled(&self) -> bool {
        let permits =
            self.place.permits.map_or(0, |permits| usize::try_from(permits).unwrap_or(usize::MAX));
        self.ahead.is_none_or(|ahead| ahead.saturating_sub(self.place.changes.count) < permits)
    }

    /// Lists when a watch reports the changes after the list.
    pub(super) fn list_when_followed(&mut self, view: SessionView) -> SeatStep {
        if self.place.changes.source != Source::Unset {
            return self.list_again(view);
        }
        self.place.changes.is_followed = true;
        self.state = State::Of(Wait::Following);
        Step::Wait(None)
    }

    /// Handles a report of the persistent watch.
    pub(super) fn directory_changed(&mut self, view: SessionView, news: &News) -> SeatStep {
        let Changes { source, count, list_watch, .. } = &mut self.place.changes;
        match news {
            News::Event(EventType::NODE_CHILDREN_CHANGED, _) => *count = count.saturating_add(1),
            // The others are about the number of permits.
            News::Event(..) | News::Missed => *count = usize::MAX,
            News::Set => (*source, *count) = (Source::Counted, usize::MAX),
            News::Lost => *source = Source::Unset,
            News::Unsupported => (*source, *list_watch) = (Source::Listed, None),
        }
        match self.state {
            State::Of(Wait::Following) => self.list_when_followed(view),
            State::Queued if self.is_wide() && !self.is_directory_watched() => {
                self.list_when_followed(view)
            }
            // The reply to a pending flight will show this change.
            State::Claiming | State::Listing(_) | State::Of(_) | State::Queued | State::Granted => {
                self.wait(view)
            }
        }
    }
}
