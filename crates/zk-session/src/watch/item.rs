//! The items of watch streams.

use crate::types::WatchedEvent;

/// An item of a [`WatchStream`](crate::WatchStream).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum WatchItem {
    /// A znode changed.
    Event(WatchedEvent),
    /// Changes may have been missed: read again what you need to know. The watch is in place, so
    /// the events that follow include every change that such a read does not show.
    Gap(GapCause),
}

/// Why a [`WatchStream`](crate::WatchStream) may have missed changes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum GapCause {
    /// The stream was not read in time, and its backlog exceeded the capacity.
    Overflow,
    /// The client was reconnected. Servers do not report what happened in between.
    Reconnected,
    /// [`remove_watches`](crate::Client::remove_watches) has removed another watch on the path, and
    /// servers before 3.9 can remove only all of them, so this one was set again.
    Reset,
}
