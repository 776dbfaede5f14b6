//! Events of the session machine, which its driver processes.

use super::cause::DisconnectCause;
use super::flight::{Reply, Token, WatchId};
use super::status::Change;
use crate::host::Host;
use crate::types::WatchedEvent;

/// An instruction to the driver, or news that the driver passes on. The order of events matters.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The state of the session changed.
    Change(Change),
    /// Open a transport to this server within the time of
    /// [`SessionMachine::attempt`](super::SessionMachine::attempt). Then call
    /// [`handle_connected`](super::SessionMachine::handle_connected), or
    /// [`handle_disconnected`](super::SessionMachine::handle_disconnected) if that failed.
    Connect(Host),
    /// Drop the transport, whether open or still opening. The machine expects no call in return.
    Disconnect(DisconnectCause),
    /// A flight is complete.
    Reply {
        /// Identifies the flight.
        token: Token,
        /// Its results.
        reply: Reply,
    },
    /// A watch fired and is no longer registered.
    Watch {
        /// Identifies the watch.
        id: WatchId,
        /// What happened. The path is the server's, including the chroot.
        event: WatchedEvent,
    },
}
