//! The events that a lane receives.

use jute_codec::EventType;

use crate::machine::{Change, Reply, Token, WatchNumber};

/// An event of a [`Lane`](crate::recipe::Lane). Events arrive in the order in which the server sent
/// their causes.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum LaneEvent {
    /// The time set with [`Lane::wake_at`](crate::recipe::Lane::wake_at) has been reached.
    Alarm,
    /// The state of the session changed.
    Change(Change),
    /// A flight is complete.
    Reply {
        /// Identifies the flight.
        token: Token,
        /// Its results.
        reply: Reply,
    },
    /// The client has stopped. This is the last event.
    Stopped,
    /// A watch of the lane fired.
    Watch {
        /// Identifies the watch within the lane.
        number: WatchNumber,
        /// What happened. The recipe knows the path.
        kind: EventType,
    },
}
