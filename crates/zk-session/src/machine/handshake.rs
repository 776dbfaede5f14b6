//! Connecting, resuming, ending a connection.

use std::time::Duration;

use bytes::Bytes;
use jute_codec::{ConnectRequest, ConnectResponse, FrameDecoder, Record, Request, encode_frame};

use super::heartbeat::Heartbeat;
use super::inflight::Purpose;
use super::timer::Timer;
use super::{Change, EndCause, Event, Identity, Phase, Session, SessionState};
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
            self.end_connection(false);
        }
    }

    /// Asks for the next server.
    pub(super) fn connect(&mut self) {
        debug_assert_eq!(self.phase, Phase::Idle);
        self.phase = Phase::Connecting;
        self.timers.set(Timer::Connect, self.now + self.connect_timeout());
        let host = self.hosts.next();
        self.events.push_back(Event::Connect(host));
    }

    /// Time for one server to accept the connection and to answer the handshake: as configured,
    /// but if a shorter session timeout was granted than was asked for, no more than its share of
    /// that.
    pub fn connect_timeout(&self) -> Duration {
        if self.timeout < self.config.session_timeout {
            let hosts = u32::try_from(self.config.hosts.len()).unwrap_or(u32::MAX);
            return self.config.connect_timeout.min(self.timeout / hosts);
        }
        self.config.connect_timeout
    }

    /// The connection is of no use any more: tells the driver, then ends it here.
    pub(super) fn drop_connection(&mut self) {
        self.end_connection(true);
    }

    /// Forgets the connection and answers what was on it. `tell`: the driver does not know yet.
    pub(super) fn end_connection(&mut self, tell: bool) {
        if matches!(self.phase, Phase::Idle | Phase::Stopped(_)) {
            return;
        }
        if tell {
            self.events.push_back(Event::Disconnect);
        }
        let was_established = self.phase == Phase::Established;
        self.phase = Phase::Idle;
        self.out.clear();
        self.frames = FrameDecoder::new(self.config.response_limit);
        for timer in [Timer::Connect, Timer::Lease, Timer::Ping, Timer::Read] {
            self.timers.stop(timer);
        }
        let pause = self.hosts.pause(self.timeout);
        self.timers.set(Timer::Reconnect, self.now + pause);
        if let Some(session) = self.session_id() {
            self.frozen_zxid.get_or_insert(self.last_zxid);
            if !self.timers.is_set(Timer::GiveUp) {
                // A server may have granted a longer timeout than was asked for.
                self.timers.set(Timer::GiveUp, self.now + self.config.give_up.max(self.timeout));
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
                Purpose::Close | Purpose::SetWatches => {}
            }
        }
        self.refuse_parked(&OpError::ConnectionLoss(Outcome::NotApplied));
        debug_assert_eq!(self.inflight.len(), 0);
    }

    pub(super) fn handle_connect_response(&mut self, response: ConnectResponse, sent: Time) {
        self.hosts.succeeded();
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
            (None, None) => self.drop_connection(),
            (Some(_), None) => {
                self.end_session(EndCause::Expired);
                self.reconnect_at_once();
            }
            (Some(asked), Some(_)) if asked != id => {
                // Whatever this server is, our session is not the one it serves.
                self.end_session(EndCause::Swapped);
                self.reconnect_at_once();
            }
            (asked, Some(ms)) => {
                self.timeout = Duration::from_millis(ms);
                self.identity = Some(Identity { id, password: response.password });
                self.timers.stop(Timer::Connect);
                self.timers.stop(Timer::GiveUp);
                if asked.is_none() {
                    self.lease.created(sent, self.now, self.timeout);
                    self.acknowledge(sent);
                } else {
                    self.resume(sent);
                }
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
        if self.lease.ping_interval().is_some() {
            self.timers.set(Timer::Lease, sent + self.timeout * 19 / 20);
        }
    }

    /// The server was right to refuse; there is nothing to back off from.
    fn reconnect_at_once(&mut self) {
        self.end_connection(true);
        if self.phase == Phase::Idle {
            self.timers.set(Timer::Reconnect, self.now);
        }
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
            self.reconnect_at_once();
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
        self.emit(Change::Connected { session, connection, resumed });
        self.restore_watches();
        if self.closing {
            self.send_close();
        }
        self.pump();
    }

    fn restore_watches(&mut self) {
        let Some(relative_zxid) = self.frozen_zxid else { return };
        let batches = self.watches.batches(relative_zxid);
        self.batches_missing = batches.len();
        for batch in batches {
            let request = Request::SetWatches(batch);
            let purpose = Some(Purpose::SetWatches);
            self.send_internal(jute_codec::xid::SET_WATCHES, &request, purpose);
        }
        if self.batches_missing == 0 {
            self.frozen_zxid = None;
        }
    }
}

fn timeout_ms(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
}
