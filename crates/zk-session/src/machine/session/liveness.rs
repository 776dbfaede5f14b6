//! Keeping the connection alive: pings, and the read timeout.

use std::time::Duration;

use bytes::BytesMut;

use super::{Phase, SessionMachine};
use crate::machine::cause::DisconnectCause;
use crate::machine::timer::Timer;
use crate::time::Time;

impl SessionMachine {
    /// Records that bytes have arrived.
    pub(super) fn note_bytes(&mut self, bytes: &BytesMut) {
        if !bytes.is_empty() {
            self.link.received(self.now);
            self.downlink.received(self.now, bytes.len(), self.timeout.in_force());
        }
    }

    /// Records that the received bytes end with a part of a frame.
    pub(super) fn note_partial_frame(&mut self, bytes: &BytesMut) {
        if self.link.skipping() > 0 || !bytes.is_empty() {
            self.downlink.part_received(self.now, bytes.len());
        }
        self.link.part_received(self.now, bytes);
    }

    /// Records that a request sent at `sent` was acknowledged: the session was alive when the
    /// server received it.
    pub(super) fn acknowledge(&mut self, sent: Time) {
        debug_assert!(sent <= self.now, "a reply arrives after its request was sent");
        if self.link.phase == Phase::Established {
            self.timers.stop(Timer::Connect);
        }
        if self.link.acknowledged(sent) {
            self.judge_connection();
        }
        // The reply to closing a stale session says nothing about the next one.
        // A read-only server does not know whether the session is alive.
        if self.identity.is_none() || self.link.is_read_only() {
            return;
        }
        self.validity.acknowledge(sent, self.now, self.timeout.in_force());
        self.arm_guard();
    }

    pub(super) fn arm_heartbeat(&mut self) {
        self.timers.set(Timer::Ping, self.now + self.ping_interval());
        self.timers.set(Timer::Read, self.now + self.read_timeout());
    }

    /// Returns how long the peer may be silent. Two thirds of the session timeout, as in
    /// `ClientCnxn`, leave the last third for another server. The result is shorter while a lock
    /// relies on the lease, so that another connection can still renew the lease in time.
    fn read_timeout(&self) -> Duration {
        if self.link.is_read_only() {
            return self.connection_timeout() * 2 / 3;
        }
        let usual = self.timeout.in_force() * 2 / 3;
        let of_lease = if self.is_relied_on { self.validity.silence_max() } else { None };
        of_lease.map_or(usual, |most| most.min(usual))
    }

    /// Returns why the connection ends when the read timeout has passed.
    pub(super) fn read_timeout_cause(&self) -> DisconnectCause {
        let timeout = self.read_timeout();
        if self.link.last_moved() + timeout <= self.now {
            DisconnectCause::Silence(timeout)
        } else {
            DisconnectCause::PingOverdue(timeout)
        }
    }

    /// Sends a ping and schedules the next one. Other requests do not postpone it: some servers do
    /// not count reads as a sign of life, and a long queue of requests must not delay the proof
    /// that the session is alive.
    pub(super) fn ping(&mut self) {
        // A server that requires SASL refuses even pings until the exchange is complete.
        debug_assert!(!matches!(self.link.phase, Phase::Sasl(_)), "pings begin after the exchange");
        self.timers.set(Timer::Ping, self.now + self.ping_interval());
        self.link.ping(self.now);
    }

    /// Sends the ping that is due, or postpones it until the reply to a request that is in flight
    /// alone. That request is a sign of life as well.
    pub(super) fn ping_if_possible(&mut self) {
        if self.link.probes.postpone_ping() {
            self.timers.set(Timer::Ping, self.now + self.ping_interval());
        } else {
            self.ping();
        }
    }

    /// Returns a third of the session timeout, or the interval that the lease needs.
    fn ping_interval(&self) -> Duration {
        if self.link.is_read_only() {
            return self.connection_timeout() / 3;
        }
        let of_lease = self.validity.lease().ping_interval();
        of_lease.unwrap_or_else(|| self.timeout.in_force() / 3)
    }

    /// Moves the read timeout after bytes have arrived, or after its length has changed. Does
    /// nothing before the server has authenticated, because until then another timer limits the
    /// attempt.
    pub(super) fn rearm_read(&mut self) {
        if !matches!(self.link.phase, Phase::Established | Phase::Authenticating(_)) {
            return;
        }
        // Before a lock needed the lease, a longer limit applied and pings were further apart. So
        // silence before that moment does not count against the shorter limit.
        let since = self.link.overdue_since().max(self.validity.needed_since().unwrap_or_default());
        let at = (since + self.read_timeout()).max(self.now);
        self.timers.set(Timer::Read, at);
    }
}
