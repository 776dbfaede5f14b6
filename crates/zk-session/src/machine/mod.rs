//! The session machine: the client side of a ZooKeeper session as pure logic, without sockets,
//! clocks or random numbers.
//!
//! Semver guarantees do not cover this module: it may change in any release. Use
//! [`Client`](crate::Client).
//!
//! ```text
//!            Connect                handle_connected           ConnectResponse
//!   Idle ------------> Connecting -----------------> Handshaking ----------.
//!    ^                     |                              |                 |
//!    |                     |                              |   SASL, auth    v
//!    '--- handle_disconnected, or an event Disconnect ----+-- replies -- Sasl, Authenticating
//!                                                         |                 |
//!                                                         '-- Established <-'
//!
//!   any phase -- closed, authentication failed, or expired and not renewed --> Stopped
//! ```
//!
//! **Contract.** After each call that takes `&mut self`, the driver drains
//! [`poll_event`](SessionMachine::poll_event) until it returns `None`, takes the bytes to send with
//! [`poll_transmit`](SessionMachine::poll_transmit), and arms one timer for
//! [`poll_timeout`](SessionMachine::poll_timeout). It may submit several flights before it drains;
//! they are then sent in one write. The machine never hands out bytes of a connection that has
//! ended. `now` must never go backwards.
//!
//! **Sessions and connections.** A session survives the loss of its connection until a server
//! reports that it has expired, or until no server could be reached for `give_up`. The machine then
//! opens the next session, unless its configuration forbids that. Nothing carries over from one
//! session to the next: requests fail with [`OpError::SessionExpired`](crate::OpError), watches
//! end, and ephemeral znodes are gone.
//!
//! **Two deadlines.** After the *guard deadline* ([`Status::guard_deadline`]) the session's
//! ephemeral znodes must no longer be trusted, by our own clock. If there is a [lease](LeaseClock),
//! the guard deadline is the end of the lease. At the *end of the session* the ephemeral znodes are
//! given up permanently. Between the two, the session may be resumed, but any lock that relied on
//! it before the guard deadline is already lost ([`Status::lapses`]).
//!
//! **Order.** Received bytes are processed first, because acknowledgements move deadlines. Then
//! deadlines are checked, and then events are handed out. Replies and watch events leave through
//! one queue, in the order in which the server sent them.
//!
//! **Newer operations.** The first request of an operation that the server may not know is sent
//! alone, because a server closes the connection after an unknown operation.
//!
//! **Shared lists.** Several flights can share the reply to one request for a list of children. An
//! operation that requests a [shared list](Operation::shared_list) never gets a list that was
//! requested before the rest of its flight was sent. So while such a request is in flight, the
//! operation waits for the next one. All operations that share a reply complete when it arrives.

mod batches;
pub(crate) mod cause;
pub(crate) mod config;
mod downlink;
pub(crate) mod event;
pub(crate) mod flight;
mod heartbeat;
pub(crate) mod hosts;
pub(crate) mod inflight;
mod keeper;
pub(crate) mod lease;
mod open_flights;
mod persistent;
mod quota;
mod rebalance;
mod reply_size;
pub(crate) mod sample;
pub(crate) mod sasl;
mod seen;
mod session;
mod session_timeout;
mod shared_list;
pub(crate) mod status;
pub(crate) mod subject;
mod support;
pub(crate) mod ticket;
mod timer;
pub(crate) mod token_map;
mod validity;
mod watch;
mod watches;

pub use self::cause::DisconnectCause;
pub use self::flight::{Flight, Operation, Reply, Token, WatchNumber};
pub use self::hosts::Attempt;
pub use self::lease::{Lease, LeaseClock, LeaseDefect, SlowCommits};
pub use self::persistent::WatchMode;
pub use self::quota::Limits;
pub use self::status::{Change, EndCause, SessionState, Status};
pub use self::ticket::{InvalidTicket, SessionTicket};

pub(crate) use self::config::{OUTSTANDING_MAX, SessionConfig};
pub(crate) use self::event::{Event, WatchNews};
pub(crate) use self::flight::{OwnerId, WatchId};
pub(crate) use self::sasl::{SaslInput, SaslStep};
pub(crate) use self::session::{AuthChange, SessionMachine};

#[cfg(test)]
mod tests;
