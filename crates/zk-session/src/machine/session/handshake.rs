//! Creating or resuming a session, and authentication.

use std::time::Duration;

use bytes::Bytes;
use jute_codec::{ConnectRequest, ConnectResponse};

use super::link::Opening;
use super::{Identity, Phase, SessionMachine};
use crate::machine::cause::DisconnectCause;
use crate::machine::keeper;
use crate::machine::lease::slow;
use crate::machine::status::{Change, EndCause, SessionState};
use crate::machine::timer::Timer;
use crate::time::Time;
use crate::types::{SessionId, Zxid};

impl SessionMachine {
    /// Records that the transport is open, and starts the handshake.
    pub(crate) fn handle_connected(&mut self, now: Time) {
        self.advance(now);
        self.downlink.connected();
        debug_assert!(
            self.stale.is_none() || self.identity.is_none(),
            "no session is opened before the one that was given up is gone"
        );
        let known = self.stale.as_ref().or(self.identity.as_ref());
        let presented = known.filter(|_| self.link.opening() == Opening::Regular);
        // A stale session can only be closed where writes are accepted.
        let is_closing_stale = self.stale.is_some() && !self.is_anonymous();
        let no_password = Bytes::from_static(&[0; 16]);
        let request = ConnectRequest {
            protocol_version: 0,
            // A server refuses clients that have seen newer states than its own. Any server may
            // close a stale session, so that case requires no state.
            last_zxid_seen: if self.stale.is_some() { Zxid(0) } else { self.seen.zxid() },
            timeout_ms: timeout_ms(self.config.session_timeout),
            session_id: presented.map_or(SessionId::NONE, |identity| identity.id),
            password: presented.map_or(no_password, |identity| identity.password.clone()),
            read_only: Some(self.accepts_read_only() && !is_closing_stale),
        };
        self.link.greet(now, &request);
    }

    fn is_anonymous(&self) -> bool {
        self.link.opening() == Opening::Anonymous
    }

    /// Returns true if a server says that the requested session is gone, but cannot know it: it has
    /// lost contact with the majority, and the session may have been opened since.
    fn is_ignorant(&self, response: &ConnectResponse) -> bool {
        let is_requested = self.identity.is_some() || self.stale.is_some();
        let is_gone = response.timeout_ms <= 0 && response.read_only == Some(true);
        is_gone && is_requested && self.link.opening() == Opening::Regular
    }

    /// Returns true if a server says that the requested session is gone, but may not know it: a leader
    /// that was deposed before the session was opened replies for some seconds, and refuses only
    /// clients that have seen a newer state. This is believed if nothing was requested in the session,
    /// or after its timeout, because then requests that are still on their way are refused.
    fn may_lag(&self, response: &ConnectResponse) -> bool {
        let is_gone = response.timeout_ms <= 0 && self.identity.is_some();
        let Some(sent) = self.seen.unanswered() else { return false };
        // Servers keep the session for its timeout after the newest request or ping.
        let heard =
            self.validity.acknowledged().map_or(sent, |acknowledged| acknowledged.max(sent));
        let is_over = heard + self.timeout.in_force() <= self.now;
        is_gone && !is_over && self.link.opening() == Opening::Regular
    }

    /// Handles the reply to a ConnectRequest that was sent at `sent`.
    ///
    /// With SASL, the server has proven nothing yet, so nothing in its reply counts before the
    /// exchange is complete: neither the session and its timeout, nor that the server is read-only
    /// or has resumed another session. A server that reports the end of the session closes the
    /// connection, so it cannot authenticate there. It is asked for a new session instead, and the
    /// old one is over when the server has authenticated on that connection. A client that is
    /// closing needs no such proof.
    pub(super) fn receive_connect_response(&mut self, response: ConnectResponse, sent: Time) {
        if self.is_ignorant(&response) {
            self.drop_connection(DisconnectCause::SessionUnknown);
        } else if keeper::refuses(&response) {
            self.drop_connection(DisconnectCause::SessionRefused);
        } else if self.may_lag(&response) {
            self.drop_connection(DisconnectCause::SessionTooNew);
        } else if !self.config.sasl {
            self.handle_connect_response(response, sent);
        } else if response.timeout_ms > 0 {
            self.link.unproven = Some((response, sent));
            self.begin_sasl();
        } else if self.link.opening() == Opening::ExpiryUnproven {
            self.drop_connection(DisconnectCause::SessionRefused);
        } else if self.identity.is_some() && !self.is_anonymous() && !self.is_closing {
            self.drop_connection(DisconnectCause::ExpiryUnproven);
        } else {
            self.handle_connect_response(response, sent);
        }
    }

    /// Handles the reply to a ConnectRequest that was sent at `sent`, from a server that is trusted.
    pub(super) fn handle_connect_response(&mut self, response: ConnectResponse, sent: Time) {
        debug_assert!(sent <= self.now, "a reply arrives after its request was sent");
        let granted = u64::try_from(response.timeout_ms).ok().filter(|ms| *ms > 0);
        let id = response.session_id;
        // A Keeper resumes no session, so one that it reports is new, and owns nothing.
        let is_offered = granted.is_some() && keeper::has_opened(&response.password);
        if let Some(stale) = &self.stale
            && !self.is_anonymous()
        {
            if granted.is_some() && stale.id == id {
                // The session that was given up is still alive. Close it, so that its ephemeral
                // znodes do not block other sessions until it expires.
                return self.begin_use();
            }
            if !is_offered || self.is_closing {
                return self.stale_is_gone();
            }
            // Nobody can close the old session, and the next one is already open.
            self.stale = None;
            self.has_left_session = true;
        }
        let is_read_only = granted.is_some() && response.read_only == Some(true);
        if self.link.opening() == Opening::ExpiryUnproven && !is_read_only {
            // The server that has reported the end of the session has proven itself. If it is
            // read-only now, it does not know whether the session has ended.
            self.end_session(EndCause::Expired);
            if matches!(self.link.phase, Phase::Stopped(_)) {
                return;
            }
        }
        let requested = self.session_id();
        if let Some(ms) = granted {
            if is_read_only {
                // A server that resumes the session although it is read-only does not know whether
                // it still exists.
                return if self.accepts_read_only() {
                    self.adopt_read_only(Duration::from_millis(ms));
                } else {
                    self.drop_connection(DisconnectCause::SessionRefused);
                };
            }
            if self.is_anonymous() && self.stale.is_some() {
                // The session that was given up must be closed first. The one that was opened now
                // owns nothing, and expires.
                return self.drop_connection(DisconnectCause::ReadWriteServer);
            }
            if self.is_anonymous() {
                return self.close_stray(id, response.password);
            }
        } else if self.is_anonymous() {
            return self.drop_connection(DisconnectCause::SessionRefused);
        }
        match (requested, granted) {
            (None, None) => self.drop_connection(DisconnectCause::SessionRefused),
            (Some(_), None) => {
                // A timeout of 0 is how a server reports that the session has expired. Only a
                // server may say so: our own clock proves nothing here.
                self.end_session(EndCause::Expired);
                self.drop_connection(DisconnectCause::SessionExpired);
            }
            (Some(requested), Some(ms)) if requested != id && is_offered => {
                self.end_session(EndCause::Swapped);
                if !matches!(self.link.phase, Phase::Stopped(_)) {
                    // Left alone, it would be a session that nobody uses, for each lost connection.
                    self.adopt_session(id, response.password, Duration::from_millis(ms), sent);
                }
            }
            (Some(requested), Some(_)) if requested != id => {
                // Adopting a different session would make us the owner of another client's
                // ephemeral znodes. This server does not know our session, so our session must have
                // ended.
                self.end_session(EndCause::Swapped);
                self.drop_connection(DisconnectCause::SessionSwapped);
            }
            (None | Some(_), Some(ms)) => {
                self.adopt_session(id, response.password, Duration::from_millis(ms), sent);
            }
        }
    }

    /// Adopts the session that a server has created or resumed.
    fn adopt_session(&mut self, id: SessionId, password: Bytes, granted: Duration, sent: Time) {
        debug_assert!(
            self.session_id().is_none_or(|requested| requested == id),
            "only the requested session is resumed"
        );
        let is_new = self.identity.is_none();
        self.link.is_new_session = is_new;
        self.timeout.grant(granted, is_new);
        self.is_keeper = keeper::has_opened(&password);
        self.identity = Some(Identity { id, password });
        self.timers.stop(Timer::GiveUp);
        if is_new {
            self.seen.session_opened();
            if self.is_keeper {
                self.validity.forgo_lease();
            }
            self.validity.created(sent, self.now, self.timeout.in_force());
            // Creating a session is a transaction, so the reply acknowledges it like any request.
            self.acknowledge(sent);
        } else {
            self.resume(sent);
        }
        self.warn_of_missing_lease();
        self.connection += 1;
        self.arm_heartbeat();
        self.begin_use();
    }

    /// Starts to use a connection whose server accepts this client.
    pub(super) fn begin_use(&mut self) {
        if self.stale.is_some() && !self.link.is_read_only() {
            self.link.phase = Phase::ClosingStale;
            self.send_close();
        } else {
            self.authenticate();
        }
    }

    /// Handles a resume, which proves nothing by itself.
    fn resume(&mut self, sent: Time) {
        let timeout = self.timeout.in_force();
        self.validity.resumed(sent, self.now, timeout);
        self.arm_guard();
        // Pings need a long time to establish a lease. If there is no lease when this timer fires,
        // another connection can establish one sooner.
        if self.validity.lease().ping_interval().is_some() {
            self.timers.set(Timer::Lease, sent + slow(timeout));
        }
    }

    /// Warns if a lease is configured but the server is a Keeper, or the session timeout is too
    /// short.
    fn warn_of_missing_lease(&mut self) {
        let Some(lease) = self.config.lease else { return };
        if self.is_keeper {
            self.lease_warnings.keeper();
        } else if !self.validity.lease().is_possible() {
            let (granted, requested) = (self.timeout.granted(), self.config.session_timeout);
            self.lease_warnings.too_short(self.now, lease, granted, requested);
        }
    }

    /// Handles the end of the session that was given up.
    pub(super) fn stale_is_gone(&mut self) {
        let stale = self.stale.take();
        if self.is_closing && self.identity.is_none() {
            if let Some(stale) = stale {
                self.emit(Change::Ended { session: stale.id, cause: EndCause::Closed });
            }
            self.stop(SessionState::Closed);
        } else {
            self.drop_connection(DisconnectCause::StaleSessionEnded);
        }
    }

    /// Starts to use the connection, after the session was adopted and the credentials accepted.
    pub(super) fn establish(&mut self) {
        self.link.phase = Phase::Established;
        if self.link.is_read_only() {
            self.timers.stop(Timer::Connect);
            self.restore_watches();
            self.arm_seek();
            self.send_waiting();
            return;
        }
        let session = self.session_id().expect("the session was adopted before");
        let connection = self.connection;
        let resumed = self.watches.restore_zxid().is_some() && !self.link.is_new_session;
        // While locks rely on a lease or session that can still be saved, the attempt keeps its
        // time limit until the server acknowledges a request. The server might complete handshakes
        // only.
        if !resumed || !self.is_relied_on || self.savable_until().is_none() {
            self.timers.stop(Timer::Connect);
        }
        self.emit(Change::Connected { session, connection, resumed });
        // Restore watches before any waiting flight is sent: the server replies in order, so the
        // event of a change that a restored watch has missed arrives before any reply that reveals
        // the change.
        debug_assert_eq!(self.link.inflight().len(), 0, "watches are restored first");
        if resumed {
            self.catch_up();
        }
        self.restore_watches();
        if resumed && self.timers.is_set(Timer::Connect) {
            self.extend_time();
            // Its reply is the acknowledgement that stops the timer.
            self.ping();
        }
        if self.is_closing {
            self.send_close();
        }
        self.arm_renewal();
        self.find_chroot();
        self.send_waiting();
    }
}

fn timeout_ms(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
}
