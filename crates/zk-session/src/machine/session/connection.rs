//! Attempts to connect, and the end of a connection.

use std::time::Duration;

use super::link::{Link, Opening};
use super::{Phase, SessionMachine};
use crate::error::{OpError, Outcome};
use crate::host::Host;
use crate::machine::cause::DisconnectCause;
use crate::machine::event::Event;
use crate::machine::hosts::{Attempt, Hosts, Stake};
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
    pub(crate) fn handle_disconnected(&mut self, now: Time) {
        self.advance(now);
        if !matches!(self.link.phase, Phase::Idle | Phase::Stopped(_)) {
            self.end_connection(None);
        }
    }

    /// Requests a connection to the next server.
    pub(super) fn connect(&mut self) {
        debug_assert_eq!(self.link.phase, Phase::Idle);
        self.link.phase = Phase::Connecting;
        let time = self.time_to_connect();
        let (host, number) = match self.same_server() {
            Some(host) => (host, self.attempt.number()),
            None => {
                self.link.open_regularly();
                self.hosts.next()
            }
        };
        self.attempt = Attempt::new(number, time);
        self.timers.set(Timer::Connect, self.now + time);
        self.support.connecting(host.clone());
        self.events.push_back(Event::Connect(host));
    }

    /// Begins the time limit of the attempt again for an exchange that follows the handshake. Without
    /// that, a distant server could answer a handshake in time, but never the credentials behind it.
    pub(super) fn begin_time_again(&mut self) {
        if self.timers.is_set(Timer::Connect) {
            self.timers.set(Timer::Connect, self.now + self.attempt.time());
        }
    }

    /// Gives the server at least as much time for its first reply as it took for what came before. So a
    /// distant server, which needs most of the time for the handshake, is not left right before its
    /// reply arrives, and a near one gets hardly more.
    pub(super) fn extend_time(&mut self) {
        let Some(end) = self.timers.get(Timer::Connect) else { return };
        let left = end.saturating_since(self.now);
        let taken = self.attempt.time().saturating_sub(left);
        self.timers.set(Timer::Connect, end.max(self.now + taken));
    }

    /// Returns the server to ask once more, unless it has left the list since.
    fn same_server(&self) -> Option<Host> {
        let is_same = self.link.opening() != Opening::Regular;
        self.support.host().filter(|host| is_same && self.hosts.lists(host))
    }

    /// Returns the current attempt to connect, or the last one.
    pub(crate) fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// Returns the number of failed attempts and lost connections since the last proven connection.
    pub(crate) fn failures(&self) -> u32 {
        self.hosts.failures()
    }

    /// Returns when the next attempt to connect begins, if it has to wait.
    pub(crate) fn next_attempt(&self) -> Option<Time> {
        self.timers.get(Timer::Reconnect)
    }

    /// Returns the number of servers, including those to fall back to.
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
        let ceiling = if self.timeout.in_force() < self.config.session_timeout {
            self.config.connect_timeout.min(self.timeout.in_force() / self.server_count())
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
        let guard = self.validity.guard_deadline().filter(|_| self.is_relied_on);
        let session = self.validity.session_deadline();
        guard.into_iter().chain(session).find(|until| *until > self.now)
    }

    /// Returns what the next attempt to connect can save.
    fn stake(&self) -> Stake {
        let of_lock = self.validity.guard_deadline().filter(|_| self.validity.is_needed());
        match of_lock.filter(|until| *until > self.now) {
            Some(until) => Stake::Lease(until),
            None if self.savable_until().is_some() => Stake::Session,
            None => Stake::Nothing,
        }
    }

    /// Tells the driver to drop the connection, and then ends it here.
    pub(super) fn drop_connection(&mut self, cause: DisconnectCause) {
        self.end_connection(Some(cause));
    }

    /// Ends an attempt, or a connection that is not proven, because its time has run out.
    pub(super) fn give_up_attempt(&mut self) {
        let time = self.attempt.time();
        self.drop_connection(match self.link.phase {
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
        self.link.leave(cause);
        self.finish_leaving();
    }

    /// Ends the connection if the client is leaving it and no reply is pending.
    pub(super) fn finish_leaving(&mut self) {
        if let Some(cause) = self.link.take_departure() {
            self.drop_connection(cause);
        }
    }

    /// Ends an established connection once no reply is missing, and connects again.
    pub(crate) fn reconnect(&mut self, now: Time) {
        self.advance(now);
        if self.link.phase == Phase::Established && !self.is_closing {
            self.leave(DisconnectCause::HandOver);
        }
        self.handle_timeout(now);
    }

    /// Replaces the list of servers, which must not be empty. If the client has to move to another
    /// server, it does so when no reply is missing.
    pub(crate) fn set_hosts(&mut self, now: Time, hosts: Vec<Host>) {
        self.replace_hosts(now, hosts, Hosts::replace);
    }

    /// Replaces the list like [`set_hosts`](Self::set_hosts) by the servers that the ensemble itself
    /// names. When none of them can be reached, the client tries those of the list that it was given.
    pub(crate) fn follow_hosts(&mut self, now: Time, hosts: Vec<Host>) {
        self.replace_hosts(now, hosts, Hosts::follow);
    }

    fn replace_hosts(
        &mut self,
        now: Time,
        hosts: Vec<Host>,
        replace: impl FnOnce(&mut Hosts, Vec<Host>, Option<&Host>) -> bool,
    ) {
        self.advance(now);
        let is_connected = matches!(
            self.link.phase,
            Phase::Authenticating(_) | Phase::Established | Phase::Sasl(_)
        );
        let current = self.support.host();
        let has_left = current.as_ref().is_some_and(|current| !hosts.contains(current));
        let in_use = current.as_ref().filter(|_| is_connected);
        let must_move = replace(&mut self.hosts, hosts, in_use);
        if must_move && !self.is_closing {
            self.leave(DisconnectCause::HostsChanged);
        } else if has_left && matches!(self.link.phase, Phase::Connecting | Phase::Handshaking(_)) {
            self.drop_connection(DisconnectCause::HostsChanged);
        }
        self.handle_timeout(now);
    }

    /// Resets the back-off if the connection is proven.
    pub(super) fn judge_connection(&mut self) {
        if self.link.is_proven(self.now) {
            self.hosts.succeeded();
        }
    }

    /// Discards the connection, fails what was in flight on it, and schedules the next attempt.
    /// `cause` is given if the driver does not know yet that the connection has ended.
    pub(super) fn end_connection(&mut self, cause: Option<DisconnectCause>) {
        if matches!(self.link.phase, Phase::Idle | Phase::Stopped(_)) {
            return;
        }
        let is_refused = matches!(cause, None | Some(DisconnectCause::SessionUnknown));
        let is_same_server = is_refused && self.may_be_read_only();
        let opening = match &cause {
            _ if is_same_server => Opening::Anonymous,
            // The server gets one connection to prove itself.
            Some(DisconnectCause::ExpiryUnproven) => Opening::ExpiryUnproven,
            None | Some(_) => Opening::Regular,
        };
        if self.identity.is_some() {
            // A stray session expires by itself if it cannot be closed at once.
            self.stale = None;
        }
        self.judge_connection();
        let is_regular = cause.as_ref().is_some_and(DisconnectCause::is_regular_reply);
        let has_new_list = cause == Some(DisconnectCause::HostsChanged);
        self.events.extend(cause.map(Event::Disconnect));
        // Bytes that were not sent must never reach the next server.
        let ended = self.link.end(self.now, self.config.response_limit, opening);
        let was_established = ended.phase == Phase::Established;
        let was_read_only = ended.is_read_only();
        // While flights wait for the chroot, none of them is in flight.
        let has_lost_requests = ended.inflight().len() > 0 && !ended.is_seeking_chroot;
        self.timers.stop_those_of_connection();
        self.auth_interrupted();
        let stake = self.stake();
        // A new list is not a failure of a server, and it may change at any rate. Nor is an unknown
        // operation, and each server refuses an operation once in a while: a client that begins to
        // use an old ensemble may lose a connection for each server and each newer operation.
        let at = if is_same_server || has_new_list || ended.has_taught {
            self.hosts.pace(self.now)
        } else if is_regular {
            self.hosts.follow_at(self.now, stake)
        } else {
            self.hosts.retry_at(self.now, stake)
        };
        self.timers.set(Timer::Reconnect, at);
        if let Some(session) = self.session_id() {
            self.watches.interrupted(self.seen.zxid());
            if !self.timers.is_set(Timer::GiveUp) {
                // A server may have granted a longer timeout than requested.
                let give_up = self.config.give_up.max(self.timeout.granted());
                self.timers.set(Timer::GiveUp, self.now + give_up);
            }
            if was_established && !was_read_only {
                self.emit(Change::Suspended { session });
            }
        } else if was_read_only {
            // The watches that were set there are restored in the first session.
            self.watches.interrupted(self.seen.zxid());
        }
        self.fail_inflight(ended);
        self.watches.persistent.disconnect();
        if was_established && has_lost_requests {
            // These flights were submitted after requests whose outcome is unknown. On the next
            // connection they could overtake those requests, which may still be on their way.
            self.refuse_waiting(&OpError::connection_loss(Outcome::NotApplied));
        }
        self.finish_hand_over();
    }

    /// Fails all requests that were in flight with what is known about their effect.
    fn fail_inflight(&mut self, ended: Link) {
        for (pending, outcome) in ended.into_lost() {
            self.measure(&pending, Fate::Lost);
            let error = OpError::connection_loss(outcome).about(pending.target());
            match pending.purpose {
                Purpose::Operation { token, index, .. } => {
                    self.flights.release(token);
                    self.settle(token, index, Err(error));
                }
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
    }
}
