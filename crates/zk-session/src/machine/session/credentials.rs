//! Credentials that are added or replaced while the machine runs.
//!
//! A change is sent on the present connection, or, if there is none, on the next one. It counts from
//! the moment in which a server has accepted all of it: only then is it sent on every connection. So
//! a refusal costs a connection, because servers close it, and the machine goes on with the
//! credentials that it had.

use jute_codec::{AuthPacket, ErrorCode, Request, xid};

use super::{Phase, SessionMachine};
use crate::error::{AuthError, Outcome};
use crate::machine::cause::DisconnectCause;
use crate::machine::event::Event;
use crate::machine::flight::Token;
use crate::time::Time;

/// Maximum number of changes that have no result yet.
const CHANGES_MAX: usize = 16;
/// Number of connections on which a change is sent without a result before it is given up.
const TRIES_MAX: u32 = 5;
/// Maximum number of credentials of a client. All of them are sent on every connection.
const CREDENTIALS_MAX: usize = 64;

/// A change of the credentials that are sent on every connection.
#[derive(Clone)]
pub(crate) struct AuthChange {
    /// The new credentials.
    pub packets: Vec<AuthPacket>,
    /// They replace all others, which are no longer sent. Otherwise they are added.
    pub replaces: bool,
}

/// A change without a result.
pub(super) struct PendingChange {
    token: Token,
    change: AuthChange,
    /// The packets were sent on this connection.
    is_sent: bool,
    /// Number of packets that have no reply on this connection.
    missing: usize,
    /// Number of connections that ended after the packets were sent.
    tries: u32,
    /// When the caller stops to wait.
    deadline: Option<Time>,
}

impl SessionMachine {
    /// Changes the credentials. [`Event::AuthChanged`] reports the result.
    pub(crate) fn change_auth(&mut self, now: Time, token: Token, change: AuthChange) {
        self.advance(now);
        let refusal = if self.is_closing || matches!(self.link.phase, Phase::Stopped(_)) {
            Some(AuthError::Closed)
        } else if self.auth_changes.len() == CHANGES_MAX {
            Some(AuthError::TooMany { pending: CHANGES_MAX })
        } else {
            let pending = self.auth_changes.iter().map(|it| it.change.packets.len());
            let total = self.config.auth.len() + pending.sum::<usize>() + change.packets.len();
            (total > CREDENTIALS_MAX).then_some(AuthError::TooMany { pending: total })
        };
        if let Some(error) = refusal {
            self.events.push_back(Event::AuthChanged { token, result: Err(error) });
            return;
        }
        let pending =
            PendingChange { token, change, is_sent: false, missing: 0, tries: 0, deadline: None };
        self.auth_changes.push(pending);
        if matches!(self.link.phase, Phase::Authenticating(_) | Phase::Established)
            && !self.link.probes.is_probing()
        {
            self.send_auth_changes();
        }
        self.handle_timeout(now);
    }

    /// Sends the credentials at the beginning of a connection. Nothing else is sent before the
    /// server has accepted all of them.
    pub(super) fn authenticate(&mut self) {
        // A server may no longer accept what is about to be replaced.
        let is_replaced = self.auth_changes.iter().any(|it| it.change.replaces);
        let packets = if is_replaced { Vec::new() } else { self.config.auth.clone() };
        self.link.phase = Phase::Authenticating(packets.len());
        for packet in packets {
            self.link.send(self.now, xid::AUTH, &Request::Auth(packet), None);
        }
        self.send_auth_changes();
        self.finish_authentication();
        if matches!(self.link.phase, Phase::Authenticating(_)) {
            self.begin_time_again();
        }
    }

    /// Handles the reply to an auth packet. Servers answer them in order: first those of the
    /// beginning of the connection, then those of changes.
    ///
    /// A refusal is final only if it says that the credentials are wrong, as long as no server has
    /// accepted them, as with SASL. The refusal of a change is never final.
    pub(super) fn handle_auth(&mut self, code: ErrorCode) -> Result<(), DisconnectCause> {
        let Phase::Authenticating(missing @ 1..) = self.link.phase else {
            return self.handle_auth_change(code);
        };
        if !code.is_ok() && (self.accepted.has_auth() || code != ErrorCode::AUTH_FAILED) {
            return Err(DisconnectCause::AuthRefused(code));
        }
        if !code.is_ok() {
            self.stop_for_refused_credentials(code);
            return Ok(());
        }
        self.link.phase = Phase::Authenticating(missing - 1);
        if missing == 1 {
            self.accepted.note_auth();
        }
        self.finish_authentication();
        Ok(())
    }

    fn handle_auth_change(&mut self, code: ErrorCode) -> Result<(), DisconnectCause> {
        let is_asked = |it: &PendingChange| it.is_sent && it.missing > 0;
        let front = self.auth_changes.first_mut().filter(|it| is_asked(it));
        let Some(front) = front else { return Err(DisconnectCause::Xid(xid::AUTH)) };
        if code.is_ok() {
            front.missing -= 1;
            self.apply_auth_changes();
            self.finish_authentication();
            return Ok(());
        }
        if code == ErrorCode::AUTH_FAILED {
            let token = self.auth_changes.remove(0).token;
            self.events.push_back(Event::AuthChanged { token, result: Err(AuthError::Refused) });
        }
        Err(DisconnectCause::AuthRefused(code))
    }

    /// Starts to use the connection if the server has accepted all credentials.
    fn finish_authentication(&mut self) {
        let is_complete = self.auth_changes.iter().all(|it| it.is_sent && it.missing == 0);
        if is_complete && self.link.phase == Phase::Authenticating(0) {
            self.establish();
        }
    }

    /// Sends the changes that were not sent on this connection.
    pub(super) fn send_auth_changes(&mut self) {
        for pending in self.auth_changes.iter_mut().filter(|it| !it.is_sent) {
            pending.is_sent = true;
            pending.missing = pending.change.packets.len();
            for packet in &pending.change.packets {
                self.link.send(self.now, xid::AUTH, &Request::Auth(packet.clone()), None);
            }
        }
        self.apply_auth_changes();
    }

    /// Applies, in their order, the changes that a server has accepted completely.
    fn apply_auth_changes(&mut self) {
        while self.auth_changes.first().is_some_and(|it| it.is_sent && it.missing == 0) {
            let PendingChange { token, change, .. } = self.auth_changes.remove(0);
            let AuthChange { packets, replaces } = change;
            if replaces {
                self.config.auth.clear();
            }
            for packet in packets {
                if !self.config.auth.contains(&packet) {
                    self.config.auth.push(packet);
                }
            }
            if !self.config.auth.is_empty() {
                self.accepted.note_auth();
            }
            self.events.push_back(Event::AuthChanged { token, result: Ok(()) });
        }
    }

    /// Records that the connection has ended. A change is not tried again and again: a server that
    /// hangs up instead of refusing it would keep the client away for ever.
    pub(super) fn auth_interrupted(&mut self) {
        let Self { auth_changes, events, .. } = self;
        auth_changes.retain_mut(|pending| {
            pending.tries += u32::from(pending.is_sent);
            pending.is_sent = false;
            pending.missing = 0;
            let is_kept = pending.tries < TRIES_MAX;
            if !is_kept {
                let result = Err(AuthError::Unanswered { connections: TRIES_MAX });
                events.push_back(Event::AuthChanged { token: pending.token, result });
            }
            is_kept
        });
    }

    /// Sets the deadline of a change, replacing any earlier one.
    pub(super) fn set_auth_deadline(&mut self, token: Token, at: Time) {
        if let Some(pending) = self.auth_changes.iter_mut().find(|it| it.token == token) {
            pending.deadline = Some(at);
        }
    }

    /// Returns the earliest deadline of a change.
    pub(super) fn next_auth_deadline(&self) -> Option<Time> {
        self.auth_changes.iter().filter_map(|it| it.deadline).min()
    }

    /// Ends the wait for changes whose deadlines have passed. A change that no server of an open
    /// connection has is withdrawn. Any other one goes on, because its packets cannot be taken back:
    /// if the server accepts them, they must be sent on later connections too.
    pub(super) fn time_out_auth_changes(&mut self) {
        let now = self.now;
        let Self { auth_changes, events, .. } = self;
        let is_late = |it: &PendingChange| it.deadline.is_some_and(|at| at <= now);
        auth_changes.retain_mut(|pending| {
            if !is_late(pending) {
                return true;
            }
            pending.deadline = None;
            let outcome = if pending.is_sent { Outcome::Unknown } else { Outcome::NotApplied };
            let result = Err(AuthError::TimedOut { outcome });
            events.push_back(Event::AuthChanged { token: pending.token, result });
            pending.is_sent
        });
    }

    /// Ends the changes of a machine that stops.
    pub(super) fn end_auth_changes(&mut self) {
        for PendingChange { token, .. } in std::mem::take(&mut self.auth_changes) {
            self.events.push_back(Event::AuthChanged { token, result: Err(AuthError::Closed) });
        }
    }
}
