//! Options of a session machine.

use std::fmt;
use std::time::Duration;

use jute_codec::{AuthPacket, CreateRequest};

use super::lease::Lease;
use super::ticket::SessionTicket;
use crate::host::Host;

/// Default limit on the number of operations that wait or are in flight at a time.
pub(crate) const OUTSTANDING_MAX: usize = 65_536;

/// Options of a session machine.
#[derive(Clone)]
pub(crate) struct SessionConfig {
    /// Servers to connect to; at least one.
    pub hosts: Vec<Host>,
    /// Determines the order of the hosts and the jitter of pauses.
    pub seed: u64,
    /// Session timeout to request. The server may grant a different one.
    pub session_timeout: Duration,
    /// Maximum time for one server to accept a connection and reply to the handshake. While a lease
    /// or a session can still be saved, each server gets less time, so that all of them can be
    /// tried.
    pub connect_timeout: Duration,
    /// Maximum time without any server, after which the session is given up.
    pub give_up: Duration,
    /// Whether to authenticate with SASL on every connection. The driver owns the mechanism.
    pub sasl: bool,
    /// Credentials, sent on every connection.
    pub auth: Vec<AuthPacket>,
    /// Maximum length of a request, in bytes.
    pub request_limit: usize,
    /// Maximum length of a reply, in bytes.
    pub response_limit: usize,
    /// Limit on the operations that wait or are in flight at a time. Uncounted flights
    /// ([`submit_uncounted`](super::SessionMachine::submit_uncounted)) are exempt.
    pub outstanding_limit: usize,
    /// Whether to open another session after one has expired.
    pub renew: bool,
    /// Whether read-only servers are acceptable.
    pub read_only: bool,
    /// The session to continue, instead of opening a new one first.
    pub resume: Option<SessionTicket>,
    /// The creates of the chroot and its ancestors, to be sent before the first flight if the chroot
    /// is missing; empty if the client does not create it.
    pub chroot: Vec<CreateRequest>,
    /// How to keep a lease; `None` for no lease.
    pub lease: Option<Lease>,
}

/// Omits the credentials and the seed.
impl fmt::Debug for SessionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionConfig")
            .field("hosts", &self.hosts)
            .field("session_timeout", &self.session_timeout)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
