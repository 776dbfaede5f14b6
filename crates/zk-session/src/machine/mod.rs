//! The session machine: what a client does, without a socket, a clock or a random number.
//!
//! ```text
//!            Connect                handle_connected           ConnectResponse
//!   Idle ------------> Connecting -----------------> Handshaking ----------.
//!    ^                     |                              |                 |
//!    |                     |                              |    auth         v
//!    '--- handle_disconnected, or an event Disconnect ----+--- replies -- Authenticating
//!                                                         |                 |
//!                                                         '-- Established <-'
//!
//!   any phase -- closed, authentication failed, or expired and not renewed --> Stopped
//! ```
//!
//! **The contract.** After a call that takes `&mut self`, drain
//! [`poll_event`](Session::poll_event) until it is empty, take the bytes to send with
//! [`poll_transmit`](Session::poll_transmit), and arm one timer for
//! [`poll_timeout`](Session::poll_timeout). Flights that are there at the same time may be
//! submitted one after the other before that, and leave in one write. Bytes for a connection that
//! has ended are never handed out. `now` never goes backwards.
//!
//! **A session and its connections.** A session survives the loss of its connection until a server
//! says that it has expired, or until no server was reached for `give_up`. Then the machine opens
//! the next session, unless told otherwise. Nothing crosses from one session to the next: requests
//! end with [`OpError::SessionExpired`], watches end, ephemerals are gone.
//!
//! **Two deadlines.** The *guard deadline* ([`Status::guard_deadline`]) is when the session's
//! ephemerals must not be trusted any longer, by our own clock; where there is one, it is that of
//! the [lease](LeaseClock). *Session end* is when they are given up for good. Between the two the session may
//! come back, but what relied on it before the guard deadline is lost ([`Status::lapses`]).
//!
//! **Order.** Bytes are accounted for first, because acknowledgements move deadlines; then the
//! deadlines are checked; then events are handed out. Replies and watch events leave through one
//! queue, in the order of the server.
//!
//! **Shared lists.** Flights may share the reply to a list of children. An operation that asks for
//! a [shared list](Operation::shared_list) never gets one that was sent before the rest of its
//! flight, so while one is in flight, it waits for the next. All that share a reply are answered
//! at its place in the order of the server.

mod cause;
mod flight;
mod handshake;
mod heartbeat;
mod hosts;
mod inbound;
mod inflight;
mod lease;
mod outbound;
mod renewal;
mod reply_size;
mod shared_list;
mod status;
mod timer;
mod watch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use jute_codec::{AuthPacket, FrameDecoder, Response};

pub use self::cause::DisconnectCause;
pub use self::flight::{Flight, Operation, Reply, Token, WatchId};
use self::heartbeat::Heartbeat;
pub use self::hosts::Attempt;
use self::hosts::Hosts;
#[cfg(feature = "tokio")]
pub(crate) use self::hosts::SplitMix;
use self::inflight::Inflight;
pub use self::lease::{Lease, LeaseClock};
use self::shared_list::{SharedLists, Subscriber};
pub use self::status::{Change, EndCause, SessionState, Status};
use self::timer::{Timer, Timers};
pub use self::watch::WatchKind;
use self::watch::WatchRegistry;
use crate::connect_string::Host;
use crate::error::{OpError, Outcome};
use crate::time::Time;
use crate::types::{SessionId, WatchedEvent};

/// Operations that may wait or be in flight at a time, by default.
pub const OUTSTANDING_MAX: usize = 65_536;
/// Requests on a connection that were not answered; more of them wait.
const INFLIGHT_MAX: usize = 8192;
/// Bytes handed to the transport and not yet taken; beyond that requests wait.
const BACKLOG_MAX: u64 = 256 * 1024;
/// Shortest time for an attempt, however little is left, unless `connect_timeout` is shorter: some
/// round trips over half of the world, and one of the server to its leader. With less, a client that
/// is far away would never succeed.
const CONNECT_TIME_MIN: Duration = Duration::from_millis(500);
/// How long a connection has to last to be proven. Less than the time in which anybody notices
/// that it is gone, and much more than a handshake and the restoring of watches take.
const USEFUL_AFTER: Duration = Duration::from_secs(5);

/// Options of a session.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "the builder fills in every option")]
pub struct SessionConfig {
    /// Servers to connect to; at least one.
    pub hosts: Vec<Host>,
    /// Decides the order of the hosts and the jitter of pauses.
    pub seed: u64,
    /// Session timeout to ask for; the server may grant another.
    pub session_timeout: Duration,
    /// Longest time for one server to accept and to answer the handshake. It is less while there
    /// is something to save, so that each server has its chance.
    pub connect_timeout: Duration,
    /// Time without any server after which the session is given up.
    pub give_up: Duration,
    /// Credentials, sent on every connection.
    pub auth: Vec<AuthPacket>,
    /// Longest request, in bytes.
    pub request_limit: usize,
    /// Longest reply, in bytes.
    pub response_limit: usize,
    /// Operations that may wait or be in flight at a time, but for uncounted ones.
    pub outstanding_limit: usize,
    /// Whether to open another session after one has expired.
    pub renew: bool,
    /// What keeps the lease; none without it.
    pub lease: Option<Lease>,
}

/// What the driver has to do, and what others have to be told, in order.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The state of the session changed.
    Change(Change),
    /// Open a transport to this server, within the time of [`Session::attempt`], then call
    /// [`Session::handle_connected`], or [`Session::handle_disconnected`] if that fails.
    Connect(Host),
    /// Drop the transport, open or still opening. No answer is expected.
    Disconnect(DisconnectCause),
    /// A flight was answered.
    Reply {
        /// Its name.
        token: Token,
        /// The answer.
        reply: Reply,
    },
    /// A watch fired; it is not registered any more.
    Watch {
        /// Its name.
        id: WatchId,
        /// What happened, with the server's path.
        event: WatchedEvent,
    },
}

/// Where the machine stands with its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// Without a connection; the timer says when to try the next server.
    Idle,
    /// A transport is being opened.
    Connecting,
    /// The ConnectRequest is out, since this time.
    Handshaking(Time),
    /// A session that was given up is being closed, should it still live.
    Burying,
    /// This many auth packets were not answered yet.
    Authenticating(usize),
    /// Requests flow.
    Established,
    /// For ever.
    Stopped(SessionState),
}

/// How far a connection has come, for whoever has to say why it failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stage {
    /// There is none.
    Idle,
    /// The transport is being opened.
    Connecting,
    /// The handshake was not answered.
    Handshaking,
    /// The handshake was answered.
    Ready,
}

/// A session as a server knows it.
#[derive(Clone)]
struct Identity {
    id: SessionId,
    password: Bytes,
}

/// A flight that has no answer yet.
#[derive(Debug)]
struct Open {
    /// Its place in the queue of those that wait.
    place: u64,
    /// On which the first of its operations was sent; 0 before.
    connection: u64,
    session: Option<SessionId>,
    results: Vec<Option<Result<Response, OpError>>>,
    missing: usize,
    /// How much of `outstanding_limit` it takes.
    places: usize,
    deadline: Option<Time>,
    /// Paths of its shared lists that were not sent.
    parked: Vec<ByteString>,
}

/// The session machine; see the module documentation for its contract.
pub struct Session {
    config: SessionConfig,
    now: Time,
    phase: Phase,
    hosts: Hosts,
    timers: Timers,
    frames: FrameDecoder,
    events: VecDeque<Event>,
    out: BytesMut,

    identity: Option<Identity>,
    /// A session that was given up and may still live; it is closed before anything else.
    stale: Option<Identity>,
    /// What the session lives by: the timeout granted now, or with which it was created, whichever
    /// is less.
    timeout: Duration,
    created_timeout: Duration,
    granted: Duration,
    is_lease_missed: bool,
    attempt: Attempt,
    /// Since when the connection has all watches.
    ready_at: Option<Time>,
    /// From when on the connection counts as proven.
    useful_from: Option<Time>,
    connection: u64,
    acknowledged: Option<Time>,
    /// Session timeout that counts for the acknowledged request. A resume may negotiate a longer
    /// one, and proves nothing.
    acknowledged_timeout: Duration,
    lease: LeaseClock,
    /// Since when a lock needs the lease, so that writes have to renew it.
    lease_needed: Option<Time>,
    /// A write that renews the lease is in flight.
    is_renewing: bool,
    /// From when on this connection the time to the next renewal counts.
    renewed: Option<Time>,
    /// Guard deadline that the timer was set for, or that has passed.
    guarded_until: Option<Time>,
    lapses: u64,
    last_zxid: i64,
    /// Next xid. Never reset: servers match commits with requests by session and xid, so a reused
    /// xid gets the answer of an older request.
    next_xid: i32,

    /// Flights that were not sent, by the order in which they were submitted.
    waiting: BTreeMap<u64, (Token, Flight)>,
    next_place: u64,
    inflight: Inflight,
    lists: SharedLists,
    open: BTreeMap<Token, Open>,
    deadlines: BTreeSet<(Time, Token)>,
    outstanding: usize,

    watches: WatchRegistry,
    /// Relative zxid of the watches to restore: frozen at the disconnect, until every batch is
    /// acknowledged, over further disconnects too.
    frozen_zxid: Option<i64>,
    batches_missing: usize,

    heartbeat: Heartbeat,
    closing: bool,
    is_relied_on: bool,
}

impl Session {
    /// A machine that wants its first connection at once.
    pub fn new(config: SessionConfig, now: Time) -> Self {
        let mut timers = Timers::default();
        timers.set(Timer::Reconnect, now);
        Self {
            phase: Phase::Idle,
            hosts: Hosts::new(config.hosts.clone(), config.seed),
            timers,
            frames: FrameDecoder::new(config.response_limit),
            events: VecDeque::new(),
            out: BytesMut::new(),
            identity: None,
            stale: None,
            timeout: config.session_timeout,
            created_timeout: config.session_timeout,
            granted: config.session_timeout,
            is_lease_missed: false,
            attempt: Attempt::new(0, Duration::ZERO),
            ready_at: None,
            useful_from: None,
            connection: 0,
            acknowledged: None,
            acknowledged_timeout: config.session_timeout,
            lease: LeaseClock::new(config.lease),
            lease_needed: None,
            is_renewing: false,
            renewed: None,
            guarded_until: None,
            lapses: 0,
            last_zxid: 0,
            next_xid: 1,
            waiting: BTreeMap::new(),
            next_place: 0,
            inflight: Inflight::default(),
            lists: SharedLists::default(),
            open: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            outstanding: 0,
            watches: WatchRegistry::default(),
            frozen_zxid: None,
            batches_missing: 0,
            heartbeat: Heartbeat::new(now),
            closing: false,
            is_relied_on: false,
            config,
            now,
        }
    }

    /// A view of the session.
    pub fn status(&self) -> Status {
        let state = match self.phase {
            Phase::Stopped(state) => state,
            _ if self.closing => SessionState::Closed,
            Phase::Established => SessionState::Connected,
            Phase::Idle
            | Phase::Connecting
            | Phase::Handshaking(_)
            | Phase::Burying
            | Phase::Authenticating(_) => {
                if self.identity.is_some() {
                    SessionState::Suspended
                } else {
                    SessionState::Connecting
                }
            }
        };
        Status {
            state,
            session: self.identity.as_ref().map(|identity| identity.id),
            connection: self.connection,
            timeout: self.timeout,
            acknowledged: self.acknowledged,
            guard_deadline: self.guard_deadline(),
            can_be_leased: self.lease.is_possible(),
            lease_deadline: self.lease.deadline(),
            beat: self.beat(),
            lapses: self.lapses,
        }
    }

    /// How far the connection has come.
    pub(crate) fn stage(&self) -> Stage {
        match self.phase {
            Phase::Idle | Phase::Stopped(_) => Stage::Idle,
            Phase::Connecting => Stage::Connecting,
            Phase::Handshaking(_) => Stage::Handshaking,
            Phase::Burying | Phase::Authenticating(_) | Phase::Established => Stage::Ready,
        }
    }

    /// Number of registered watches.
    pub fn watch_count(&self) -> usize {
        self.watches.len()
    }

    /// Appends the bytes to send, if any. Report them with
    /// [`handle_transmitted`](Self::handle_transmitted) as the transport takes them.
    pub fn poll_transmit(&mut self, into: &mut BytesMut) {
        if into.is_empty() {
            // Two buffers take turns: one is filled while the other is written.
            into.clear();
            std::mem::swap(into, &mut self.out);
        } else {
            into.extend_from_slice(&self.out);
            self.out.clear();
        }
    }

    /// Takes the next event.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout); it moves on after that call.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let request = self.deadlines.first().map(|(at, _)| *at);
        self.timers.next().into_iter().chain(request).min()
    }

    /// Time has come to `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        self.advance(now);
        while let Some(timer) = self.timers.take_expired(now) {
            match timer {
                Timer::Close => self.stop(SessionState::Closed),
                Timer::Connect => self.give_up_attempt(),
                Timer::Read => self.drop_connection(self.silence()),
                Timer::GiveUp => self.end_session(EndCause::GaveUp),
                Timer::Guard => self.lapse(),
                Timer::Lease => self.give_up_without_lease(),
                Timer::Ping => self.ping(),
                Timer::Renew => self.renew(),
                Timer::Reconnect => self.connect(),
            }
        }
        while let Some((at, token)) = self.deadlines.first().copied() {
            if at > now {
                break;
            }
            self.deadlines.remove(&(at, token));
            self.time_out(token);
        }
        self.pump();
    }

    /// Ends the session for good: what is in flight is answered, what waits is refused, the
    /// session's ephemerals go. Without a server this takes one session timeout at most.
    pub fn close(&mut self, now: Time) {
        self.advance(now);
        if self.closing || matches!(self.phase, Phase::Stopped(_)) {
            return;
        }
        self.closing = true;
        self.arm_renewal();
        self.emit(Change::Closing);
        self.refuse_waiting(&OpError::Closed(Outcome::NotApplied));
        self.refuse_parked(&OpError::Closed(Outcome::NotApplied));
        if self.identity.is_none() && self.stale.is_none() {
            self.stop(SessionState::Closed);
            return;
        }
        self.timers.set(Timer::Close, now + self.timeout);
        if self.phase == Phase::Established {
            self.send_close();
        }
    }

    /// The owner takes none of its watches any more.
    pub fn forget_owner(&mut self, owner: u64) {
        self.watches.remove_owner(owner);
    }

    /// Nobody waits for the flight any more. If it was not sent, it will not be.
    pub fn cancel(&mut self, now: Time, token: Token) {
        self.advance(now);
        if let Some(open) = self.take_open(token) {
            self.waiting.remove(&open.place);
        }
    }

    /// If the flight was not sent yet, it will not be, and is answered with
    /// [`OpError::Recalled`]. If it was sent, its answer comes as ever.
    pub fn recall(&mut self, now: Time, token: Token) {
        self.advance(now);
        if self.withdraw(token) {
            self.answer(token, &OpError::Recalled);
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

    /// A request sent at `sent` was acknowledged: the session lived when the server got it.
    fn acknowledge(&mut self, sent: Time) {
        if self.phase == Phase::Established {
            self.timers.stop(Timer::Connect);
        }
        if let Some(ready) = self.ready_at.filter(|ready| *ready <= sent) {
            self.useful_from.get_or_insert(ready + USEFUL_AFTER);
            self.judge_connection();
        }
        if self.identity.is_none() {
            return;
        }
        self.lease.acknowledged(sent, self.now);
        if self.acknowledged.is_none_or(|newest| newest < sent) {
            self.acknowledged = Some(sent);
            self.acknowledged_timeout = self.timeout;
        }
        self.arm_guard();
    }

    /// Forgets an open flight and returns it.
    fn take_open(&mut self, token: Token) -> Option<Open> {
        let open = self.open.remove(&token)?;
        self.outstanding -= open.places;
        if let Some(at) = open.deadline {
            self.deadlines.remove(&(at, token));
        }
        for path in &open.parked {
            self.lists.leave(path, token);
        }
        Some(open)
    }

    /// Answers an open flight; what has no result yet gets `error`.
    fn answer(&mut self, token: Token, error: &OpError) {
        let Some(open) = self.take_open(token) else { return };
        let results =
            open.results.into_iter().map(|result| result.unwrap_or_else(|| Err(error.clone())));
        let reply = Reply {
            session: open.session,
            connection: open.connection,
            results: results.collect(),
        };
        self.events.push_back(Event::Reply { token, reply });
    }

    /// Records the result of one operation and answers its flight when it was the last.
    fn settle(&mut self, token: Token, index: usize, result: Result<Response, OpError>) {
        let Some(open) = self.open.get_mut(&token) else { return };
        let slot = open.results.get_mut(index).expect("the index came from this flight");
        debug_assert!(slot.is_none());
        *slot = Some(result);
        open.missing -= 1;
        if open.missing == 0 {
            self.answer(token, &OpError::ConnectionLoss(Outcome::Unknown));
        }
    }

    fn time_out(&mut self, token: Token) {
        let outcome = if self.withdraw(token) { Outcome::NotApplied } else { Outcome::Unknown };
        self.answer(token, &OpError::TimedOut(outcome));
    }

    /// Takes a flight out of the queue; false if it was sent, or is not open any more.
    fn withdraw(&mut self, token: Token) -> bool {
        let Some(open) = self.open.get(&token).filter(|open| open.connection == 0) else {
            return false;
        };
        // It is not there if all that it asks for are shared lists, which were not sent.
        self.waiting.remove(&open.place);
        true
    }

    /// Answers everything that waits for a connection with `error`.
    fn refuse_waiting(&mut self, error: &OpError) {
        for (token, _) in std::mem::take(&mut self.waiting).into_values() {
            self.answer(token, error);
        }
    }

    /// Answers each operation that waits for a list with `error`.
    fn refuse_parked(&mut self, error: &OpError) {
        for Subscriber { token, index } in self.lists.take_parked() {
            self.settle(token, index, Err(error.clone()));
        }
    }

    /// Everything that belonged to the session ends with it.
    fn end_session(&mut self, cause: EndCause) {
        let Some(identity) = self.identity.take() else { return };
        self.timers.stop(Timer::GiveUp);
        self.timers.stop(Timer::Guard);
        self.lease = LeaseClock::new(self.config.lease);
        self.guarded_until = None;
        self.watches.clear();
        self.frozen_zxid = None;
        self.last_zxid = 0;
        self.acknowledged = None;
        self.refuse_waiting(&OpError::SessionExpired(Outcome::NotApplied));
        self.emit(Change::Ended { session: identity.id, cause });
        if cause == EndCause::GaveUp {
            self.stale = Some(identity);
        }
        if self.closing {
            self.stop(SessionState::Closed);
        } else if !self.config.renew {
            self.stop(SessionState::Expired);
        }
    }

    /// The machine does nothing more.
    fn stop(&mut self, state: SessionState) {
        if matches!(self.phase, Phase::Stopped(_)) {
            return;
        }
        self.end_connection(Some(if state == SessionState::AuthFailed {
            DisconnectCause::CredentialsRefused
        } else {
            DisconnectCause::Stopped
        }));
        self.phase = Phase::Stopped(state);
        self.timers = Timers::default();
        self.refuse_waiting(&refusal_when_stopped(state));
        if let Some(identity) = self.identity.take() {
            self.watches.clear();
            self.emit(Change::Ended { session: identity.id, cause: EndCause::Abandoned });
        }
    }
}

/// Without the password of the session, and without bytes that may hold credentials.
impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("phase", &self.phase)
            .field("status", &self.status())
            .field("waiting", &self.waiting.len())
            .field("inflight", &self.inflight.len())
            .field("watches", &self.watches.len())
            .finish_non_exhaustive()
    }
}

/// Answer to a flight that comes when the machine has stopped.
pub(crate) fn refusal_when_stopped(state: SessionState) -> OpError {
    match state {
        SessionState::AuthFailed => OpError::AuthFailed,
        SessionState::Expired => OpError::SessionExpired(Outcome::NotApplied),
        SessionState::Closed
        | SessionState::Connected
        | SessionState::Connecting
        | SessionState::Suspended => OpError::Closed(Outcome::NotApplied),
    }
}

#[cfg(test)]
mod tests;
