//! Attempts to connect, and the end of a connection.

use std::time::Duration;

use jute_codec::FrameDecoder;

use super::{Phase, SessionMachine};
use crate::error::{OpError, Outcome};
use crate::host::Host;
use crate::machine::cause::DisconnectCause;
use crate::machine::event::Event;
use crate::machine::hosts::Attempt;
use crate::machine::inflight::Purpose;
use crate::machine::sample::Fate;
use crate::machine::status::Change;
use crate::machine::timer::Timer;
use crate::time::Time;

/// Minimum time for an attempt, however little time is left to save the session, unless
/// `connect_timeout` is shorter. It covers a few round trips halfway around the world and one from
/// the server to its leader. With less time, a distant client would never succeed.
const CONNECT_TIME_MIN: Duration = Duration::from_millis(500);

impl SessionMachine {
    /// Records that the transport could not be opened, or has ended.
    pub fn handle_disconnected(&mut self, now: Time) {
        self.advance(now);
        if !matches!(self.phase, Phase::Idle | Phase::Stopped(_)) {
            self.end_connection(None);
        }
    }

    /// Requests a connection to the next server.
    pub(super) fn connect(&mut self) {
        debug_assert_eq!(self.phase, Phase::Idle);
        self.phase = Phase::Connecting;
        let time = self.time_to_connect();
        let is_same_server = self.is_anonymous || self.is_expiry_unproven;
        let (host, number) = match self.support.host().filter(|_| is_same_server) {
            Some(host) => (host, self.attempt.number()),
            None => self.hosts.next(),
        };
        self.attempt = Attempt::new(number, time);
        self.timers.set(Timer::Connect, self.now + time);
        self.support.connecting(host.clone());
        self.events.push_back(Event::Connect(host));
    }

    /// Returns the current attempt to connect, or the last one.
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// Returns the number of failed attempts and lost connections since the last proven connection.
    pub fn failures(&self) -> u32 {
        self.hosts.failures()
    }

    /// Returns when the next attempt to connect begins, if it has to wait.
    pub(crate) fn next_attempt(&self) -> Option<Time> {
        self.timers.get(Timer::Reconnect)
    }

    /// Returns the number of servers.
    pub(crate) fn server_count(&self) -> u32 {
        u32::try_from(self.hosts.len()).unwrap_or(u32::MAX)
    }

    /// Returns the time for one server to accept a connection and reply to the handshake.
    ///
    /// The remaining time of the lease or the session is divided among the servers left in this
    /// lap, so that one of them cannot use up the time that the others need. A name may stand for
    /// several servers, so the last name of a lap is not the last chance: no server gets more than
    /// half.
    fn time_to_connect(&self) -> Duration {
        let ceiling = if self.timeout < self.config.session_timeout {
            self.config.connect_timeout.min(self.timeout / self.server_count())
        } else {
            self.config.connect_timeout
        };
        match self.savable_until() {
            Some(until) => {
                let share = until.saturating_since(self.now) / self.hosts.left().max(2);
                share.max(CONNECT_TIME_MIN).min(ceiling)
            }
            None => ceiling,
        }
    }

    /// Returns the time until which a new connection can save what would otherwise be lost: the
    /// guard deadline, if locks rely on the session and this deadline has not passed, or else the
    /// deadline of the session itself.
    pub(super) fn savable_until(&self) -> Option<Time> {
        let guard = self.status().guard_deadline().filter(|_| self.is_relied_on);
        let session = self.acknowledged.map(|sent| sent + self.acknowledged_timeout);
        guard.into_iter().chain(session).find(|until| *until > self.now)
    }

    /// Tells the driver to drop the connection, and then ends it here.
    pub(super) fn drop_connection(&mut self, cause: DisconnectCause) {
        self.end_connection(Some(cause));
    }

    /// Ends an attempt, or a connection that is not proven, because its time has run out.
    pub(super) fn give_up_attempt(&mut self) {
        let time = self.attempt.time();
        self.drop_connection(match self.phase {
            Phase::Idle | Phase::Connecting | Phase::Stopped(_) => {
                DisconnectCause::NoConnection(time)
            }
            Phase::Handshaking(_) => DisconnectCause::NoHandshake(time),
            Phase::Sasl(_) => DisconnectCause::NoSasl(time),
            Phase::ClosingStale => DisconnectCause::NoClose(time),
            Phase::Authenticating(_) => DisconnectCause::NoAuthReply(time),
            Phase::Established => DisconnectCause::NoReply(time),
        });
    }

    /// Ends the connection for this reason as soon as no reply is missing. Until then no request is
    /// sent.
    pub(super) fn leave(&mut self, cause: DisconnectCause) {
        self.leaving = Some(cause);
        self.finish_leaving();
    }

    /// Ends the connection if it is to be left and no reply is missing.
    pub(super) fn finish_leaving(&mut self) {
        if self.inflight.len() == 0
            && let Some(cause) = self.leaving.take()
        {
            self.drop_connection(cause);
        }
    }

    /// Ends an established connection once no reply is missing, and connects again.
    pub fn reconnect(&mut self, now: Time) {
        self.advance(now);
        if self.phase == Phase::Established && !self.is_closing {
            self.leave(DisconnectCause::HandOver);
        }
        self.handle_timeout(now);
    }

    /// Replaces the list of servers, which must not be empty. If the client has to move to another
    /// server, it does so when no reply is missing.
    pub fn set_hosts(&mut self, now: Time, hosts: Vec<Host>) {
        self.advance(now);
        let is_connected =
            matches!(self.phase, Phase::Authenticating(_) | Phase::Established | Phase::Sasl(_));
        let current = self.support.host();
        let has_left = current.as_ref().is_some_and(|current| !hosts.contains(current));
        let must_move = self.hosts.replace(hosts, current.as_ref().filter(|_| is_connected));
        if must_move && !self.is_closing {
            self.leave(DisconnectCause::HostsChanged);
        } else if has_left && matches!(self.phase, Phase::Connecting | Phase::Handshaking(_)) {
            self.drop_connection(DisconnectCause::HostsChanged);
        }
        self.handle_timeout(now);
    }

    /// Resets the back-off if the connection is proven: its watches are in place, a request sent
    /// after that was acknowledged, and it has lasted for a while. A faulty server that clients
    /// should avoid may fulfil any weaker condition.
    pub(super) fn judge_connection(&mut self) {
        if self.proven_from.is_some_and(|from| from <= self.now) {
            self.hosts.succeeded();
        }
    }

    /// Discards the connection, fails what was in flight on it, and schedules the next attempt.
    /// `cause` is given if the driver does not know yet that the connection has ended.
    pub(super) fn end_connection(&mut self, cause: Option<DisconnectCause>) {
        if matches!(self.phase, Phase::Idle | Phase::Stopped(_)) {
            return;
        }
        let is_same_server = cause.is_none() && self.ask_without_session();
        if !is_same_server {
            self.is_anonymous = false;
        }
        self.leaving = None;
        self.unproven = None;
        // A server that has reported the end of the session gets one connection to prove itself.
        self.is_expiry_unproven &= cause == Some(DisconnectCause::ExpiryUnproven);
        let was_read_only = self.read_only.take().is_some();
        if self.identity.is_some() {
            // A stray session expires by itself if it cannot be closed at once.
            self.stale = None;
        }
        self.judge_connection();
        self.ready_at = None;
        self.proven_from = None;
        let is_regular = cause.as_ref().is_some_and(DisconnectCause::is_regular_reply);
        let has_new_list = cause == Some(DisconnectCause::HostsChanged);
        self.events.extend(cause.map(Event::Disconnect));
        let was_established = self.phase == Phase::Established;
        self.phase = Phase::Idle;
        // Bytes that were not sent must never reach the next server.
        self.out.clear();
        self.frames = FrameDecoder::new(self.config.response_limit);
        self.is_renewing = false;
        self.renewal_base = None;
        self.refused_renewals = 0;
        // The guard deadline keeps running: it does not depend on the connection.
        for timer in
            [Timer::Connect, Timer::Lease, Timer::Ping, Timer::Read, Timer::Renew, Timer::Seek]
        {
            self.timers.stop(timer);
        }
        let is_urgent = self.savable_until().is_some();
        // A new list is no failure of a server, and nobody can tell how often it changes.
        let at = if is_same_server || has_new_list {
            self.hosts.pace(self.now)
        } else if is_regular {
            self.hosts.follow_at(self.now, is_urgent)
        } else {
            self.hosts.retry_at(self.now, is_urgent)
        };
        self.timers.set(Timer::Reconnect, at);
        if let Some(session) = self.session_id() {
            // Further lost connections do not overwrite this zxid: until watches are restored, no
            // change since the first loss has been reported.
            self.restore_zxid.get_or_insert(self.last_zxid);
            if !self.timers.is_set(Timer::GiveUp) {
                // A server may have granted a longer timeout than requested.
                let give_up = self.config.give_up.max(self.granted_timeout);
                self.timers.set(Timer::GiveUp, self.now + give_up);
            }
            if was_established && !was_read_only {
                self.emit(Change::Suspended { session });
            }
        } else if was_read_only {
            // The watches that were set there are restored in the first session.
            self.restore_zxid.get_or_insert(self.last_zxid);
        }
        self.support.disconnected();
        // While flights wait for the chroot, none of them is in flight.
        let has_lost_requests = self.inflight.len() > 0 && !self.chroot.is_awaited();
        self.chroot.disconnected();
        self.fail_inflight();
        self.persistent.disconnect();
        self.surplus.clear();
        if was_established && has_lost_requests {
            // These flights were submitted after requests whose outcome is unknown. On the next
            // connection they could overtake those requests, which may still be on their way.
            self.refuse_waiting(&OpError::connection_loss(Outcome::NotApplied));
        }
        self.finish_hand_over();
    }

    /// Fails all requests in flight with what is known about their effect.
    fn fail_inflight(&mut self) {
        for (pending, outcome) in self.inflight.fail() {
            self.measure(&pending, Fate::Lost);
            let error = OpError::connection_loss(outcome).about(pending.target());
            match pending.purpose {
                Purpose::Operation { token, index, .. } => self.settle(token, index, Err(error)),
                Purpose::SharedList(path) => self.settle_list(&path, &Err(error)),
                // The machine repeats these requests on the next connection if they are still
                // needed.
                Purpose::CatchUp
                | Purpose::Close
                | Purpose::CreateChroot { .. }
                | Purpose::FindChroot
                | Purpose::RemoveWatches
                | Purpose::Renewal
                | Purpose::RenewWatches
                | Purpose::Sasl
                | Purpose::SetWatches => {}
            }
        }
        // Parked operations were never sent, so they certainly had no effect.
        self.refuse_parked(&OpError::connection_loss(Outcome::NotApplied));
        debug_assert_eq!(self.inflight.len(), 0);
    }
}
