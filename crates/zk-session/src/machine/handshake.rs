//! Connecting, resuming, ending a connection.

use std::time::Duration;

use bytes::Bytes;
use jute_codec::{ConnectRequest, ConnectResponse, FrameDecoder, Record, Request, encode_frame};
use tracing::warn;

use super::heartbeat::Heartbeat;
use super::hosts::Attempt;
use super::inflight::Purpose;
use super::timer::Timer;
use super::{
    CONNECT_TIME_MIN, Change, DisconnectCause, EndCause, Event, Identity, Phase, Session,
    SessionState,
};
use crate::error::{OpError, Outcome};
use crate::time::Time;
use crate::types::SessionId;

impl Session {
    /// The transport is open: starts the handshake.
    pub fn handle_connected(&mut self, now: Time) {
        self.advance(now);
        assert_eq!(self.phase, Phase::Connecting, "the machine asked for no connection");
        self.phase = Phase::Handshaking(now);
        self.heartbeat = Heartbeat::new(now);
        let presented = self.stale.as_ref().or(self.identity.as_ref());
        let fresh = Bytes::from_static(&[0; 16]);
        let request = ConnectRequest {
            protocol_version: 0,
            // A stale session may be older than any server's state, but never newer.
            last_zxid_seen: if self.stale.is_some() { 0 } else { self.last_zxid },
            timeout_ms: timeout_ms(self.config.session_timeout),
            session_id: presented.map_or(0, |identity| identity.id.0),
            password: presented.map_or(fresh, |identity| identity.password.clone()),
            read_only: Some(false),
        };
        let before = self.out.len();
        encode_frame(&mut self.out, usize::MAX, |out| request.encode(out))
            .expect("a handshake is shorter than any limit");
        self.inflight.produce(self.out.len() - before);
    }

    /// The transport could not be opened, or has ended.
    pub fn handle_disconnected(&mut self, now: Time) {
        self.advance(now);
        if !matches!(self.phase, Phase::Idle | Phase::Stopped(_)) {
            self.end_connection(None);
        }
    }

    /// Asks for the next server.
    pub(super) fn connect(&mut self) {
        debug_assert_eq!(self.phase, Phase::Idle);
        self.phase = Phase::Connecting;
        let time = self.time_to_connect();
        let (host, number) = self.hosts.next();
        self.attempt = Attempt::new(number, time);
        self.timers.set(Timer::Connect, self.now + time);
        self.events.push_back(Event::Connect(host));
    }

    /// The current attempt to connect, or the last one.
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// Attempts that failed, and connections that ended, since a connection was proven.
    pub fn failures(&self) -> u32 {
        self.hosts.failures()
    }

    /// Number of servers.
    pub(crate) fn servers(&self) -> u32 {
        u32::try_from(self.hosts.len()).unwrap_or(u32::MAX)
    }

    /// Time for one server to accept the connection and to answer the handshake.
    ///
    /// What is at stake is divided among the servers that are left in this lap, so that one of
    /// them cannot use up what the others need. A name may stand for several servers, and the last
    /// of a lap is not the last chance, so a server never gets more than half of it.
    fn time_to_connect(&self) -> Duration {
        let ceiling = if self.timeout < self.config.session_timeout {
            self.config.connect_timeout.min(self.timeout / self.servers())
        } else {
            self.config.connect_timeout
        };
        match self.stake() {
            Some(until) => {
                let share = until.saturating_since(self.now) / self.hosts.left().max(2);
                share.max(CONNECT_TIME_MIN).min(ceiling)
            }
            None => ceiling,
        }
    }

    /// Until when a connection can save what would be lost without one: the lease, or the guard
    /// deadline, if anybody relies on it; otherwise the session itself.
    pub(super) fn stake(&self) -> Option<Time> {
        let guard = self.status().guard_deadline().filter(|_| self.is_relied_on);
        let session = self.acknowledged.map(|sent| sent + self.acknowledged_timeout);
        guard.into_iter().chain(session).find(|until| *until > self.now)
    }

    /// The connection is of no use any more: tells the driver, then ends it here.
    pub(super) fn drop_connection(&mut self, cause: DisconnectCause) {
        self.end_connection(Some(cause));
    }

    /// The connection, or the attempt, has used up its time.
    pub(super) fn give_up_attempt(&mut self) {
        let time = self.attempt.time();
        self.drop_connection(match self.phase {
            Phase::Idle | Phase::Connecting | Phase::Stopped(_) => {
                DisconnectCause::NoConnection(time)
            }
            Phase::Handshaking(_) => DisconnectCause::NoHandshake(time),
            Phase::Burying => DisconnectCause::NoClose(time),
            Phase::Authenticating(_) => DisconnectCause::NoAuthReply(time),
            Phase::Established => DisconnectCause::NoReply(time),
        });
    }

    /// Looks whether the connection is proven: watches restored, a later
    /// request answered, and some time gone by. Everything less can be had from a server that
    /// should be left alone.
    pub(super) fn judge_connection(&mut self) {
        if self.useful_from.is_some_and(|from| from <= self.now) {
            self.hosts.succeeded();
        }
    }

    /// Forgets the connection and answers what was on it. With a cause if the driver does not know
    /// yet.
    pub(super) fn end_connection(&mut self, cause: Option<DisconnectCause>) {
        if matches!(self.phase, Phase::Idle | Phase::Stopped(_)) {
            return;
        }
        self.judge_connection();
        self.ready_at = None;
        self.useful_from = None;
        let is_an_answer = cause.as_ref().is_some_and(DisconnectCause::is_an_answer);
        self.events.extend(cause.map(Event::Disconnect));
        let was_established = self.phase == Phase::Established;
        self.phase = Phase::Idle;
        self.out.clear();
        self.frames = FrameDecoder::new(self.config.response_limit);
        self.is_renewing = false;
        self.renewed = None;
        for timer in [Timer::Connect, Timer::Lease, Timer::Ping, Timer::Read, Timer::Renew] {
            self.timers.stop(timer);
        }
        let is_urgent = self.stake().is_some();
        let at = if is_an_answer {
            self.hosts.follow_at(self.now, is_urgent)
        } else {
            self.hosts.retry_at(self.now, is_urgent)
        };
        self.timers.set(Timer::Reconnect, at);
        if let Some(session) = self.session_id() {
            self.frozen_zxid.get_or_insert(self.last_zxid);
            if !self.timers.is_set(Timer::GiveUp) {
                // A server may have granted a longer timeout than was asked for.
                self.timers.set(Timer::GiveUp, self.now + self.config.give_up.max(self.granted));
            }
            if was_established {
                self.emit(Change::Suspended { session });
            }
        }
        self.fail_inflight();
        if was_established {
            // They stand behind requests whose fate is unknown. Sending them on the next
            // connection could let them overtake those.
            self.refuse_waiting(&OpError::ConnectionLoss(Outcome::NotApplied));
        }
    }

    fn fail_inflight(&mut self) {
        for (pending, outcome) in self.inflight.fail() {
            match pending.purpose {
                Purpose::Operation { token, index, .. } => {
                    self.settle(token, index, Err(OpError::ConnectionLoss(outcome)));
                }
                Purpose::SharedList(path) => {
                    self.settle_list(&path, &Err(OpError::ConnectionLoss(outcome)));
                }
                Purpose::Close | Purpose::Renewal | Purpose::SetWatches => {}
            }
        }
        self.refuse_parked(&OpError::ConnectionLoss(Outcome::NotApplied));
        debug_assert_eq!(self.inflight.len(), 0);
    }

    pub(super) fn handle_connect_response(&mut self, response: ConnectResponse, sent: Time) {
        let granted = u64::try_from(response.timeout_ms).ok().filter(|ms| *ms > 0);
        let id = SessionId(response.session_id);
        if let Some(stale) = &self.stale {
            // Its ephemerals go with it, so that nobody waits for them longer than needed.
            if granted.is_some() && stale.id == id {
                self.phase = Phase::Burying;
                self.send_close();
            } else {
                self.stale_is_gone();
            }
            return;
        }
        let asked = self.session_id();
        match (asked, granted) {
            (None, None) => self.drop_connection(DisconnectCause::SessionRefused),
            (Some(_), None) => {
                self.end_session(EndCause::Expired);
                self.drop_connection(DisconnectCause::SessionExpired);
            }
            (Some(asked), Some(_)) if asked != id => {
                // Whatever this server is, our session is not the one it serves.
                self.end_session(EndCause::Swapped);
                self.drop_connection(DisconnectCause::SessionSwapped);
            }
            (asked, Some(ms)) => {
                self.granted = Duration::from_millis(ms);
                if asked.is_none() {
                    self.created_timeout = self.granted;
                }
                // The next leader counts with the timeout of the createSession transaction,
                // whatever its predecessor has granted since.
                self.timeout = self.granted.min(self.created_timeout);
                self.identity = Some(Identity { id, password: response.password });
                self.timers.stop(Timer::GiveUp);
                if asked.is_none() {
                    self.is_lease_missed = false;
                    self.lease.created(sent, self.now, self.timeout);
                    self.acknowledge(sent);
                } else {
                    self.resume(sent);
                }
                self.report_missing_lease();
                self.connection += 1;
                self.arm_heartbeat();
                self.authenticate();
            }
        }
    }

    /// The session was resumed. By itself this proves nothing: a deposed leader grants it too. But
    /// the server may count less time from now on.
    fn resume(&mut self, sent: Time) {
        self.acknowledged_timeout = self.acknowledged_timeout.min(self.timeout);
        self.lease.resumed(sent, self.now, self.timeout);
        self.arm_guard();
        // Pings take long to make a lease; without one by then, another connection is better.
        if self.lease.ping_interval().is_some() {
            self.timers.set(Timer::Lease, sent + self.timeout * 19 / 20);
        }
    }

    /// A lease was wanted, and the session timeout is too short for one: said once a session.
    fn report_missing_lease(&mut self) {
        let Some(lease) = self.config.lease else { return };
        if self.lease.is_possible() || std::mem::replace(&mut self.is_lease_missed, true) {
            return;
        }
        warn!(
            granted = ?self.granted,
            asked = ?self.config.session_timeout,
            needed = ?lease.timeout_min(),
            %lease,
            "there is no lease, because the session timeout is too short for it; ask for a longer \
             one, or configure the lease for other servers, or switch it off"
        );
    }

    /// The session that was given up does not exist any more.
    pub(super) fn stale_is_gone(&mut self) {
        let stale = self.stale.take();
        if self.closing && self.identity.is_none() {
            if let Some(stale) = stale {
                self.emit(Change::Ended { session: stale.id, cause: EndCause::Closed });
            }
            self.stop(SessionState::Closed);
        } else {
            self.drop_connection(DisconnectCause::StaleIsGone);
        }
    }

    fn authenticate(&mut self) {
        let packets = self.config.auth.clone();
        self.phase = Phase::Authenticating(packets.len());
        for packet in &packets {
            self.send_internal(jute_codec::xid::AUTH, &Request::Auth(packet.clone()), None);
        }
        if packets.is_empty() {
            self.establish();
        }
    }

    pub(super) fn establish(&mut self) {
        self.phase = Phase::Established;
        let session = self.session_id().expect("a handshake came before");
        let connection = self.connection;
        let resumed = self.frozen_zxid.is_some();
        // As long as somebody relies on what can still be saved, the time of the attempt goes on
        // until a request is answered.
        if !resumed || !self.is_relied_on || self.stake().is_none() {
            self.timers.stop(Timer::Connect);
        }
        self.emit(Change::Connected { session, connection, resumed });
        self.restore_watches();
        if resumed && self.timers.is_set(Timer::Connect) {
            // Its answer shows that the server does more than to answer handshakes.
            self.ping();
        }
        if self.closing {
            self.send_close();
        }
        self.arm_renewal();
        self.pump();
    }

    fn restore_watches(&mut self) {
        let Some(relative_zxid) = self.frozen_zxid else {
            self.ready_at = Some(self.now);
            return;
        };
        let batches = self.watches.batches(relative_zxid);
        self.batches_missing = batches.len();
        for batch in batches {
            let request = Request::SetWatches(batch);
            let purpose = Some(Purpose::SetWatches);
            self.send_internal(jute_codec::xid::SET_WATCHES, &request, purpose);
        }
        if self.batches_missing == 0 {
            self.frozen_zxid = None;
            self.ready_at = Some(self.now);
        }
    }
}

fn timeout_ms(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
}
