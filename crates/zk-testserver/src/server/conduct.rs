//! Misbehavior that lasts: delays, failures and missing replies for all requests, elections.

use std::time::Duration;

use jute_codec::{OpCode, SessionId};

use super::Server;
use crate::conduct::{Affected, Conduct};
use crate::connection::Connection;
use crate::fault::Reception;

impl Server {
    /// Makes each request wait for this long before the server processes it. The requests of a
    /// connection wait one after the other, pings included. Zero ends it.
    pub fn delay_requests(&mut self, delay: Duration) {
        self.conduct.delay = delay;
    }

    /// Makes the server reply to this many requests with `API_ERROR` without processing them; to
    /// all of them until [`reset`](Self::reset) if there is no number. A number leaves out pings.
    pub fn fail_requests(&mut self, number: Option<usize>) {
        self.conduct.failing = Affected::new(number);
    }

    /// Makes the server process this many requests without replying; all of them until
    /// [`reset`](Self::reset) if there is no number. A number leaves out pings. The connections
    /// stay open, and watch events still arrive.
    pub fn withhold_replies(&mut self, number: Option<usize>) {
        self.conduct.withholding = Affected::new(number);
    }

    /// Sets how long after the leader's commit the other members learn of a write, instead of
    /// [`ServerConfig::lag`](crate::ServerConfig::lag). They learn of what has already been
    /// committed within this time too.
    pub fn set_lag(&mut self, lag: Duration, now: Duration) {
        self.config.lag = lag;
        if let Some(time) = now.checked_add(lag) {
            for follower in &mut self.followers {
                follower.receive_by(time);
            }
        }
        self.apply_due(now);
    }

    /// Leaves the ensemble without a leader for this long, as during an election. All connections
    /// are closed. Meanwhile, only clients that accept a read-only server can connect, and no
    /// session expires. After that, all members are connected, even those that were partitioned
    /// before, and the sessions continue with their full timeouts, which a new leader restarts.
    ///
    /// The leader is the same as before, and its zxids continue in the same epoch.
    pub fn elect(&mut self, duration: Duration, now: Duration) {
        for member in 0..self.members() {
            self.partition(member, now);
        }
        self.elected_at = Some(now.saturating_add(duration));
    }

    /// Ends everything that a test has made the server do wrong, except for pauses: disarms all
    /// faults, accepts connections and requests again, ends elections, partitions and the mistakes of
    /// deposed leaders, and restores the configured lag.
    pub fn reset(&mut self, now: Duration) {
        self.faults.clear();
        self.conduct = Conduct::default();
        self.refuse_until = Duration::ZERO;
        self.throttled_until = Duration::ZERO;
        self.set_reception(Reception::Open);
        self.end_election(now);
        for member in std::mem::take(&mut self.deposed).into_keys() {
            self.disconnect_member(member, now);
        }
        self.set_lag(self.configured_lag, now);
    }

    /// Closes the connections of a session. The session continues.
    pub fn disconnect(&mut self, session: SessionId, now: Duration) {
        let belongs = |(_, c): &(u64, &Connection)| c.session() == Some(session);
        let ids: Vec<u64> = self.connections.iter().filter(belongs).map(|(id, _)| id).collect();
        for id in ids {
            self.detach(id);
            if let Some(connection) = self.connections.get_mut(id) {
                connection.abort(now);
            }
        }
    }

    pub(super) fn end_due_election(&mut self, now: Duration) {
        if self.elected_at.is_some_and(|at| at <= now) {
            self.end_election(now);
        }
    }

    fn end_election(&mut self, now: Duration) {
        self.elected_at = None;
        for member in 0..self.members() {
            self.heal(member, now);
        }
    }

    /// Puts a request back that has to wait, which happens once for each request.
    pub(super) fn delays(&mut self, id: u64, frame: &[u8], now: Duration) -> bool {
        let delay = self.conduct.delay;
        let Some(connection) = self.connections.get_mut(id) else { return false };
        let has_waited = std::mem::take(&mut connection.has_waited);
        if has_waited || delay.is_zero() {
            return false;
        }
        connection.has_waited = true;
        connection.pause(now.saturating_add(delay));
        connection.put_back(frame);
        true
    }

    pub(super) fn fails(&mut self, op: OpCode) -> bool {
        self.conduct.failing.take(op == OpCode::PING)
    }

    /// Returns whether the reply to a request is withheld.
    pub(super) fn withholds(&mut self, op: OpCode) -> bool {
        self.conduct.withholding.take(op == OpCode::PING)
    }
}
