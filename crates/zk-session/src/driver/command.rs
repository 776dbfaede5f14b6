//! Commands from the handles of a client to the session's task.

use tokio::sync::oneshot;

use super::lane_queue::LaneSender;
use super::watch_queue::StreamSender;
use crate::error::{AuthError, WatchEnded};
use crate::host::Host;
use crate::machine::{AuthChange, EndCause, Flight, Limits, OwnerId, Reply, SessionTicket, Token};
use crate::time::Time;
use crate::types::WatchedEvent;

/// A request to the session's task.
pub(crate) enum Command {
    /// Discards a flight and its reply.
    Cancel(Token),
    /// Changes the credentials, and reports the result.
    ChangeAuth(Token, AuthChange, AuthSender),
    /// Closes the session, and reports how it ended.
    Close(oneshot::Sender<EndCause>),
    /// Stops without closing the session, and reports its ticket.
    HandOver(oneshot::Sender<Option<SessionTicket>>),
    /// Sets whether the user of a lane holds a lock.
    HoldLock(OwnerId, bool),
    /// Closes a lane, or removes a watcher.
    RemoveOwner(OwnerId),
    /// Sets whether a lane needs the lease. The number tells the needs of a lane apart.
    NeedLease(OwnerId, Option<u32>),
    /// Withdraws a flight if it was not sent.
    Recall(Token),
    /// Ends the connection once no reply is missing, and connects again.
    Reconnect,
    /// Replaces the list of servers, which is not empty.
    SetHosts(Vec<Host>),
    /// Replaces the list by the servers that the ensemble names, of which there is at least one.
    FollowHosts(Vec<Host>),
    /// Sets the deadline of a flight, or of a change of the credentials, replacing any earlier one.
    SetDeadline(Token, Time),
    /// Opens a lane.
    OpenLane(OwnerId, LaneSender),
    /// Sets the alarm of a lane, replacing any earlier one.
    WakeLane(OwnerId, Time),
    /// Submits a flight. What few flights have is boxed, because the queue of commands, which each
    /// client has, consists of blocks for 32 of the longest ones.
    Submit {
        token: Token,
        owner: OwnerId,
        flight: Flight,
        sink: ReplySink,
        extras: Option<Box<Extras>>,
    },
}

/// What few flights have.
pub(crate) struct Extras {
    /// Receives the events of the flight's watch.
    pub(crate) watcher: Option<WatchSender>,
    /// The number of the limited handle that submits the flight, and its limits.
    pub(crate) quota: Option<(OwnerId, Limits)>,
}

/// The recipient of the result of a change of the credentials.
pub(crate) type AuthSender = oneshot::Sender<Result<(), AuthError>>;

/// The recipient of the reply to a flight.
pub(crate) enum ReplySink {
    /// The lane that owns the flight.
    Lane(OwnerId),
    /// The future of a single operation.
    Once(oneshot::Sender<Reply>),
    /// The client itself.
    Own(oneshot::Sender<Reply>),
}

impl ReplySink {
    /// Returns whether the flight counts against `outstanding_limit`. Flights of lanes do not
    /// count: each lane has its own limit, and exists only as long as a caller holds it. Those of
    /// the client do not either, because it has at most one.
    pub(crate) fn is_counted(&self) -> bool {
        matches!(self, Self::Once(_))
    }
}

/// Sends a watcher its event, or a stream its items.
pub(crate) enum WatchSender {
    /// The watcher of a one-shot watch.
    Once(oneshot::Sender<Result<WatchedEvent, WatchEnded>>),
    /// The stream of a persistent watch.
    Stream(StreamSender),
}

impl WatchSender {
    /// Reports that the watch has ended.
    pub(crate) fn end(self, ended: WatchEnded) {
        match self {
            Self::Once(watcher) => drop(watcher.send(Err(ended))),
            Self::Stream(stream) => stream.end(ended),
        }
    }
}
