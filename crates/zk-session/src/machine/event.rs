//! Events of the session machine, which its driver processes.

use jute_codec::Request;

use super::cause::DisconnectCause;
use super::flight::{Reply, Token, WatchId};
use super::hosts::Attempt;
use super::sasl::SaslInput;
use super::status::Change;
use super::ticket::SessionTicket;
use crate::error::{AuthError, WatchEnded};
use crate::host::Host;
use crate::types::WatchedEvent;

/// An instruction to the driver, or news that the driver passes on. The order of events matters.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub(crate) enum Event {
    /// A change of the credentials is complete, or was given up.
    AuthChanged {
        /// Identifies the change.
        token: Token,
        /// The fate of the flight.
        result: Result<(), AuthError>,
    },
    /// The state of the session changed.
    Change(Change),
    /// This request creates the chroot, or an ancestor of it.
    CreateChroot(Request),
    /// Open a transport to this server within the time of
    /// [`SessionMachine::attempt`](super::SessionMachine::attempt). Then call
    /// [`handle_connected`](super::SessionMachine::handle_connected), or
    /// [`handle_disconnected`](super::SessionMachine::handle_disconnected) if that failed.
    Connect(Host),
    /// Drop the transport, whether open or still opening. The machine expects no call in return.
    Disconnect(DisconnectCause),
    /// The machine has stopped without ending its session, and this is the ticket of the session.
    /// `None` if there is no session to hand over.
    HandedOver(Option<SessionTicket>),
    /// Ask this server whether it accepts writes. If so, call
    /// [`handle_read_write_server`](super::SessionMachine::handle_read_write_server).
    Probe {
        /// The server.
        host: Host,
        /// The number and the time limit of the attempt.
        attempt: Attempt,
    },
    /// A flight is complete.
    Reply {
        /// Identifies the flight.
        token: Token,
        /// Its results.
        reply: Reply,
    },
    /// Ask the SASL mechanism for its next step, and call
    /// [`handle_sasl`](super::SessionMachine::handle_sasl) unless the connection has ended before.
    Sasl(SaslInput),
    /// A one-shot watch fired and is no longer registered.
    Watch {
        /// Identifies the watch.
        id: WatchId,
        /// What happened. The path is the server's, including the chroot.
        event: WatchedEvent,
    },
    /// News of a persistent watch.
    PersistentWatch {
        /// Identifies the stream of the watch.
        id: WatchId,
        /// The news.
        news: WatchNews,
    },
}

/// What a persistent watch reports.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum WatchNews {
    /// The watch has ended, and reports nothing more.
    Ended(WatchEnded),
    /// A znode changed. The path is the server's, including the chroot.
    Event(WatchedEvent),
    /// The connection was lost, so changes may have been missed.
    Gap,
    /// The watch was set again on the same connection, so changes may have been missed.
    Reset,
}
