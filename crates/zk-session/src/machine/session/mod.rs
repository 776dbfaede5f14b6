//! The state of a session, and the entry points that its driver calls.
//!
//! Each value of [`SessionMachine`] has one owner of its invariants: the [`Link`] ends with its
//! connection, and those in the files beside this folder survive it. Each other file next to this
//! one implements one concern of the machine:
//!
//! - `connection`: attempts to connect, and the end of a connection;
//! - `handshake`: creating or resuming a session;
//! - `credentials`: authentication with auth packets, and changes of them;
//! - `sasl`: authentication with SASL;
//! - `flights`: submitting flights, their results and their deadlines;
//! - `outbound` and `inbound`: encoding requests, decoding replies and events;
//! - `liveness`: pings, acknowledgements and the read timeout;
//! - `chroot`: creating a missing chroot before the first flight;
//! - `read_only`: connections to read-only servers;
//! - `hand_over`: leaving the session to another client;
//! - `renewal`: the guard deadline, and the writes that renew the lease;
//! - `watching`: setting, restoring and removing watches, and their events.

mod accepted;
mod chroot;
mod connection;
mod credentials;
mod flights;
mod hand_over;
mod handshake;
mod inbound;
mod lease_warnings;
mod link;
mod liveness;
mod outbound;
mod read_only;
mod renewal;
mod renewal_pace;
mod sasl;
mod watching;

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use self::accepted::Accepted;
pub(crate) use self::credentials::AuthChange;
use self::credentials::PendingChange;
use self::lease_warnings::LeaseWarnings;
use self::link::Link;
pub(super) use self::link::Phase;
use super::cause::DisconnectCause;
use super::config::SessionConfig;
use super::downlink::Downlink;
use super::event::Event;
use super::hosts::{Attempt, Hosts};
use super::open_flights::OpenFlights;
use super::sample::{Sample, Samples};
use super::seen::Seen;
use super::session_timeout::SessionTimeout;
use super::status::{Change, ConnectionStage, EndCause, SessionState, SessionTerms, Status};
use super::support::Support;
use super::timer::{Timer, Timers};
use super::validity::Validity;
use super::watches::Watches;
use crate::error::{OpError, Outcome};
#[cfg(feature = "tokio")]
use crate::host::Host;
use crate::time::Time;
use crate::types::{SessionId, Zxid};

/// What identifies a session to a server.
#[derive(Clone)]
struct Identity {
    id: SessionId,
    password: Bytes,
}

/// The session machine. The documentation of [`machine`](super) describes its contract.
pub(crate) struct SessionMachine {
    config: SessionConfig,
    now: Time,
    pub(super) link: Link,
    hosts: Hosts,
    timers: Timers,
    events: VecDeque<Event>,

    identity: Option<Identity>,
    /// An earlier session that was given up and may still be alive. It is closed before a new
    /// session is opened.
    stale: Option<Identity>,
    /// An earlier session may be alive, and nobody can close it.
    has_left_session: bool,
    /// The server of the newest session is a ClickHouse Keeper.
    is_keeper: bool,
    timeout: SessionTimeout,
    validity: Validity,
    lease_warnings: LeaseWarnings,
    attempt: Attempt,
    connection: u64,
    pub(super) seen: Seen,
    /// Next xid. It is never reset: servers match commits with requests by session and xid, so a
    /// reused xid could get the result of an older request.
    pub(super) next_xid: i32,

    pub(super) flights: OpenFlights,

    watches: Watches,
    /// The chroot exists, or the client does not create it.
    has_chroot: bool,
    samples: Samples,
    pub(super) downlink: Downlink,
    support: Support,
    is_closing: bool,
    /// The machine stops without ending its session.
    is_handing_over: bool,
    is_relied_on: bool,
    accepted: Accepted,
    /// Changes of the credentials, in the order of the calls.
    auth_changes: Vec<PendingChange>,
}

impl SessionMachine {
    /// Creates a machine that requests its first connection at once.
    pub(crate) fn new(mut config: SessionConfig, now: Time) -> Self {
        let mut timers = Timers::default();
        timers.set(Timer::Reconnect, now);
        let mut machine = Self {
            link: Link::first(now, config.response_limit),
            hosts: Hosts::new(std::mem::take(&mut config.hosts), config.seed),
            timers,
            events: VecDeque::new(),
            identity: None,
            stale: None,
            has_left_session: false,
            is_keeper: false,
            timeout: SessionTimeout::requested(config.session_timeout),
            validity: Validity::new(config.lease, config.session_timeout),
            lease_warnings: LeaseWarnings::default(),
            attempt: Attempt::new(0, Duration::ZERO),
            connection: 0,
            seen: Seen::nothing(),
            next_xid: 1,
            flights: OpenFlights::default(),
            watches: Watches::default(),
            has_chroot: false,
            samples: Samples::default(),
            downlink: Downlink::new(),
            support: Support::default(),
            is_closing: false,
            is_handing_over: false,
            is_relied_on: false,
            accepted: Accepted::default(),
            auth_changes: Vec::new(),
            config,
            now,
        };
        if let Some(ticket) = machine.config.resume.take() {
            machine.adopt_ticket(ticket);
        }
        machine
    }

    /// Returns a snapshot of the session.
    pub(crate) fn status(&self) -> Status {
        let state = match self.link.phase {
            Phase::Stopped(state) => state,
            _ if self.is_closing => SessionState::Closed,
            Phase::Established if self.link.is_read_only() => SessionState::ConnectedReadOnly,
            Phase::Established => SessionState::Connected,
            Phase::Idle
            | Phase::Connecting
            | Phase::Handshaking(_)
            | Phase::Sasl(_)
            | Phase::ClosingStale
            | Phase::Authenticating(_) => {
                if self.identity.is_some() {
                    SessionState::Suspended
                } else {
                    SessionState::Connecting
                }
            }
        };
        let lease = self.validity.lease();
        Status {
            state,
            session: self.session_id(),
            connection: self.connection,
            timeout: self.timeout.in_force(),
            acknowledged: self.validity.acknowledged(),
            guard_deadline: self.validity.guard_deadline(),
            can_be_leased: lease.is_possible(),
            lease_deadline: lease.deadline(),
            leased_until: self.validity.leased_until(),
            slow_commits: self.validity.slow_commits(),
            renewal_time: lease.renewal_time(self.now),
            overdue_from: self.validity.overdue_from(),
            lapses: self.validity.lapses(),
            has_left_session: self.has_left_session,
        }
    }

    /// Returns how far the connection has progressed.
    pub(crate) fn stage(&self) -> ConnectionStage {
        match self.link.phase {
            Phase::Idle | Phase::Stopped(_) => ConnectionStage::Idle,
            Phase::Connecting => ConnectionStage::Connecting,
            Phase::Handshaking(_) => ConnectionStage::Handshaking,
            Phase::Sasl(_)
            | Phase::ClosingStale
            | Phase::Authenticating(_)
            | Phase::Established => ConnectionStage::Ready,
        }
    }

    /// Returns the number of operations that wait or are in flight, and count against the limit.
    pub(crate) fn outstanding(&self) -> usize {
        self.flights.outstanding()
    }

    /// Returns what the server has granted on the current connection, next to what was requested.
    pub(crate) fn terms(&self) -> SessionTerms {
        SessionTerms {
            requested: self.config.session_timeout,
            granted: self.timeout.granted(),
            lease: self.config.lease,
            can_be_leased: self.validity.lease().is_possible(),
            is_keeper: self.is_keeper,
        }
    }

    /// Returns true if auth packets are sent on every connection.
    #[cfg(feature = "tokio")]
    pub(crate) fn has_auth(&self) -> bool {
        !self.config.auth.is_empty()
    }

    /// Returns the server of the current or the last attempt to connect.
    #[cfg(feature = "tokio")]
    pub(crate) fn server(&self) -> Option<Host> {
        self.support.host()
    }

    /// Moves what was measured since the last call into an empty buffer.
    pub(crate) fn take_samples(&mut self, buffer: &mut Vec<Sample>) {
        self.samples.swap(buffer);
    }

    /// Returns the number of registered watches.
    pub(crate) fn watch_count(&self) -> usize {
        self.watches.len()
    }

    /// Appends the bytes to send, if any. The driver reports them with
    /// [`handle_transmitted`](Self::handle_transmitted) as the transport accepts them.
    pub(crate) fn poll_transmit(&mut self, into: &mut BytesMut) {
        self.link.take_bytes(into);
    }

    /// Takes the next event.
    #[must_use]
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the time of the last call.
    #[cfg(feature = "tokio")]
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// Returns the events that [`poll_event`](Self::poll_event) will take.
    #[cfg(feature = "tokio")]
    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    /// Returns the time at which to call [`handle_timeout`](Self::handle_timeout), which then moves
    /// this time on.
    #[must_use]
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        // Nothing is admitted without a connection that accepts it.
        let admission = self.flights.next_admission().filter(|_| self.may_send());
        let flights = self.flights.next_deadline().into_iter().chain(admission);
        let flights = flights.chain(self.next_auth_deadline());
        self.timers.next().into_iter().chain(flights).min()
    }

    /// Processes all deadlines that have passed at `now`.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.advance(now);
        while let Some(timer) = self.timers.take_expired(now) {
            match timer {
                Timer::Close => self.stop(SessionState::Closed),
                Timer::Connect => self.give_up_attempt(),
                Timer::Read => self.drop_connection(self.read_timeout_cause()),
                Timer::GiveUp => self.end_session(EndCause::GaveUp),
                Timer::Guard => self.lapse(),
                Timer::Lease => self.give_up_without_lease(),
                Timer::Ping => self.ping_if_possible(),
                Timer::Renew => self.renew(),
                Timer::Reconnect => self.connect(),
                Timer::Seek => self.seek(),
            }
        }
        while let Some(token) = self.flights.take_late(now) {
            self.time_out(token);
        }
        self.time_out_auth_changes();
        self.send_waiting();
    }

    /// Ends the session permanently. Waiting flights are refused, flights in flight complete, and
    /// then the session is closed, which deletes its ephemeral znodes. If no server can be reached,
    /// this takes at most one session timeout.
    pub(crate) fn close(&mut self, now: Time) {
        self.advance(now);
        if self.is_closing || matches!(self.link.phase, Phase::Stopped(_)) {
            return;
        }
        self.is_closing = true;
        self.arm_renewal();
        // Report this before anything is refused or sent: guards must be lost before their znodes
        // are deleted.
        self.emit(Change::Closing);
        self.refuse_waiting(&OpError::closed(Outcome::NotApplied));
        self.refuse_parked(&OpError::closed(Outcome::NotApplied));
        if self.identity.is_none() && self.stale.is_none() {
            self.stop(SessionState::Closed);
            return;
        }
        self.timers.set(Timer::Close, now + self.timeout.in_force());
        if self.link.is_read_only() {
            // Only a server with a quorum can close the session.
            self.drop_connection(DisconnectCause::Stopped);
        } else if self.link.phase == Phase::Established {
            self.send_close();
        }
    }

    fn advance(&mut self, now: Time) {
        debug_assert!(self.now <= now, "time goes backwards");
        self.now = self.now.max(now);
    }

    fn emit(&mut self, change: Change) {
        self.events.push_back(Event::Change(change));
    }

    fn session_id(&self) -> Option<SessionId> {
        self.identity.as_ref().map(|identity| identity.id)
    }

    /// Ends the session, along with everything that belonged to it.
    fn end_session(&mut self, cause: EndCause) {
        let Some(identity) = self.identity.take() else { return };
        self.timers.stop(Timer::GiveUp);
        self.timers.stop(Timer::Guard);
        self.validity.session_ended(self.config.lease);
        self.watches.clear();
        // The next session may be opened on any server, even on one that lags behind.
        self.seen = Seen::inherited(Zxid(0));
        // Waiting flights were submitted when this session was open. They must not be sent in the
        // next one: their senders may rely on ephemeral znodes that no longer exist.
        self.refuse_waiting(&OpError::session_expired(Outcome::NotApplied));
        self.emit(Change::Ended { session: identity.id, cause });
        self.has_left_session |= cause == EndCause::Swapped;
        if cause == EndCause::GaveUp {
            // No server has confirmed the end, so the session may still be alive.
            self.stale = Some(identity);
        }
        if self.is_closing {
            self.stop(SessionState::Closed);
        } else if !self.config.renew {
            self.stop(SessionState::Expired);
        }
    }

    /// Stops the machine permanently.
    fn stop(&mut self, state: SessionState) {
        debug_assert!(state.is_final(), "the machine cannot stop in {state:?}");
        if matches!(self.link.phase, Phase::Stopped(_)) {
            return;
        }
        let is_handing_over = std::mem::take(&mut self.is_handing_over);
        self.end_connection(Some(if state == SessionState::AuthFailed {
            DisconnectCause::CredentialsRefused
        } else {
            DisconnectCause::Stopped
        }));
        self.link.phase = Phase::Stopped(state);
        self.timers = Timers::default();
        self.refuse_waiting(&state.refusal());
        self.end_auth_changes();
        let identity = self.identity.take();
        if is_handing_over {
            let ticket = identity.as_ref().map(|identity| self.ticket(identity));
            self.events.push_back(Event::HandedOver(ticket));
        }
        if let Some(identity) = identity {
            self.watches.clear();
            self.emit(Change::Ended { session: identity.id, cause: EndCause::Abandoned });
        }
    }
}

/// Omits the password of the session, and buffers that may contain credentials.
impl fmt::Debug for SessionMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionMachine")
            .field("phase", &self.link.phase)
            .field("status", &self.status())
            .field("waiting", &self.flights.waiting_len())
            .field("inflight", &self.link.inflight().len())
            .field("watches", &self.watch_count())
            .finish_non_exhaustive()
    }
}
