//! The server as a state machine: bytes in, bytes out, time as an argument.
//!
//! It owns no socket, no clock and no random numbers. A driver calls `handle_*` with the time
//! since the start, and after every call drains [`poll_transmit`](Server::poll_transmit) and
//! asks [`poll_timeout`](Server::poll_timeout) when to call
//! [`handle_timeout`](Server::handle_timeout).
//!
//! Requests are processed one at a time, in order of arrival: the session is touched, a write is
//! validated and applied, its events go to the connections that watch, then the reply goes to
//! the connection that asked. So an event precedes every reply that reflects its change.
//!
//! Replies that nobody takes hold up the requests behind them, and no others: a connection has a
//! bound of unsent replies, and of requests that wait. A session whose pings wait there expires;
//! real servers go on reading them. A connection whose events pile up beyond another bound is
//! closed.

mod admin;
#[cfg(test)]
mod costs;
mod follower;
mod handshake;
mod read;
mod request;
mod write;

use std::net::IpAddr;
use std::time::Duration;

use jute_codec::OpCode;

use crate::acl::Identities;
use crate::commit::{Proposal, Write};
use crate::config::{ServerConfig, Version};
use crate::connection::{Connection, Phase, Transmit};
use crate::connections::Connections;
use crate::fault::{Action, Fault, Faults, Reception};
use crate::journal::Journal;
use crate::session::Sessions;
use crate::tree::{Owner, Tree};
use crate::watch::Watches;
use crate::words;

use self::write::Held;

/// How long a connection may take for its handshake, at least; and at most twice that.
const HANDSHAKE_INTERVAL: Duration = Duration::from_secs(10);

/// How many bytes of one connection wait to be looked at before no more are asked for. More than
/// clients have under way that write much before they read.
const UNREAD_MAX: usize = 16 << 20;

/// A ZooKeeper server without sockets and without a clock.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    tree: Tree,
    sessions: Sessions,
    watches: Watches,
    faults: Faults,
    journal: Journal,
    /// Last transaction that was applied.
    zxid: i64,
    /// A proposal whose commit is late.
    held: Option<Held>,
    connections: Connections,
    last_connection: u64,
    /// Whose output was taken just now, so that requests may go on.
    drained: Option<u64>,
    refuse_until: Duration,
    reception: Reception,
    /// When it is [`Reception::Open`] again; `None` if only a test says so.
    reception_until: Option<Duration>,
    /// Nothing happens before.
    paused_until: Duration,
    next_reap: Duration,
    /// Sessions that a fault ends as soon as the current request is done.
    condemned: Vec<i64>,
}

impl Server {
    /// A server with an empty tree.
    pub fn new(config: ServerConfig) -> Self {
        Self {
            tree: Tree::new(config.sequence_overflow, config.order),
            sessions: Sessions::new(config.first_session_id, config.tick),
            watches: Watches::new(config.version),
            faults: Faults::default(),
            journal: Journal::new(config.log_capacity),
            zxid: 0,
            held: None,
            connections: Connections::default(),
            last_connection: 0,
            drained: None,
            refuse_until: Duration::ZERO,
            reception: Reception::default(),
            reception_until: None,
            paused_until: Duration::ZERO,
            next_reap: config.reap_interval,
            condemned: Vec::new(),
            config,
        }
    }

    /// A client wants to connect; `None` if it is refused. In a [`Reception::BlackHole`] it is for
    /// the driver to let the client wait instead of asking.
    pub fn handle_connect(&mut self, peer: IpAddr, now: Duration) -> Option<u64> {
        self.handle_timeout(now);
        let reception = self.reception(now);
        if now < self.refuse_until || matches!(reception, Reception::Refused | Reception::BlackHole)
        {
            return None;
        }
        self.last_connection += 1;
        let deadline = next_multiple(now + HANDSHAKE_INTERVAL, HANDSHAKE_INTERVAL);
        let mut connection = Connection::new(Identities::of_peer(peer), deadline);
        if reception == Reception::Silent {
            connection.freeze();
        }
        self.connections.insert(self.last_connection, connection);
        Some(self.last_connection)
    }

    /// Bytes have arrived.
    pub fn handle_bytes(&mut self, id: u64, bytes: &[u8], now: Duration) {
        self.handle_timeout(now);
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.receive(bytes);
        self.take_frames(id, now);
    }

    /// True if the driver should go on reading from this connection. Otherwise it has sent much
    /// that waits, because its replies are not taken or it stands still.
    #[must_use]
    pub fn is_receptive(&self, id: u64) -> bool {
        let limit = UNREAD_MAX.max(self.config.max_frame.saturating_add(4));
        self.connections.get(id).is_none_or(|connection| connection.unread() < limit)
    }

    /// What was transmitted on this connection is not taken, or is taken again. In between,
    /// nothing is transmitted, and requests wait, as they do while 4 MiB of output wait here.
    /// A driver that never says so takes everything.
    pub fn set_writable(&mut self, id: u64, is_writable: bool, now: Duration) {
        self.handle_timeout(now);
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.block(!is_writable);
        self.take_frames(id, now);
    }

    /// Handles what has arrived on a connection.
    fn take_frames(&mut self, id: u64, now: Duration) {
        let Some(connection) = self.connections.get(id) else { return };
        if connection.phase == Phase::Handshake
            && let Some(word) = connection.peek_word()
            && let Some(answer) = words::answer(self, word)
        {
            self.send(id, answer.as_bytes());
            self.close(id);
            return;
        }
        while let Some(connection) = self.connections.get_mut(id)
            && connection.paused_until().is_none()
            && connection.may_process()
            && now >= self.paused_until
        {
            let phase = connection.phase;
            match connection.next_frame(self.config.max_frame) {
                Ok(None) => break,
                Err(_) => self.close(id),
                Ok(Some(payload)) => match phase {
                    Phase::Handshake => self.shake_hands(id, payload, now),
                    Phase::Session(session) => self.handle_request(id, session, payload, now),
                },
            }
            self.end_condemned(now);
        }
    }

    /// The client has closed the connection, or it broke. The session goes on. A server that
    /// stands still notices later: what has arrived is processed first, as TCP has it.
    pub fn handle_disconnect(&mut self, id: u64, now: Duration) {
        self.handle_timeout(now);
        let is_paused = now < self.paused_until;
        if let Some(connection) = self.connections.get_mut(id)
            && (is_paused || connection.paused_until().is_some())
            && connection.leave()
        {
            return;
        }
        self.forget(id);
    }

    fn forget(&mut self, id: u64) {
        self.detach(id);
        self.connections.remove(id);
    }

    /// Does everything that is due by now.
    pub fn handle_timeout(&mut self, now: Duration) {
        if now < self.paused_until {
            return;
        }
        if self.held.as_ref().is_some_and(|held| held.is_due(now)) {
            self.release(None, now);
        }
        while let Some((_, session)) = self.sessions.next_expiry().filter(|(due, _)| *due <= now) {
            self.expire(session, now);
        }
        self.run_chores(now);
        if now >= self.next_reap {
            self.next_reap = next_multiple(now, self.config.reap_interval);
            self.reap(now);
        }
        self.end_condemned(now);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) and
    /// [`poll_transmit`](Self::poll_transmit) next. `None` as long as nothing is to be waited for.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        Some(self.next_timeout()?.max(self.paused_until))
    }

    fn next_timeout(&self) -> Option<Duration> {
        let held = self.held.as_ref().and_then(Held::due);
        let expiry = self.sessions.next_expiry().map(|(due, _)| due);
        let reap = self.tree.mortals().next().map(|_| self.next_reap);
        self.connections.next().into_iter().chain(held).chain(expiry).chain(reap).min()
    }

    /// Takes the next bytes to write.
    #[must_use = "dropped bytes desynchronize the connection"]
    pub fn poll_transmit(&mut self, now: Duration) -> Option<Transmit> {
        if now < self.paused_until {
            return None;
        }
        if let Some(id) = self.drained.take() {
            self.take_frames(id, now);
        }
        let (connection, bytes, is_last) = self.connections.transmit(now)?;
        self.drained = (!is_last).then_some(connection);
        Some(Transmit { connection, bytes, is_last })
    }

    /// Ends a session as its timeout would.
    pub fn expire(&mut self, session: i64, now: Duration) {
        let Some(known) = self.sessions.get_mut(session) else { return };
        known.is_closing = true;
        let connection = known.connection;
        if let Some(connection) = connection.filter(|_| !self.config.events_at_expiry) {
            self.close(connection);
        }
        self.propose_as_server(OpCode::CLOSE_SESSION, session, Write::CloseSession(session), now);
        if let Some(connection) = connection {
            self.close(connection);
        }
    }

    /// Deletes containers and znodes with a time to live that are due, as happens every
    /// [`reap_interval`](ServerConfig::reap_interval).
    pub fn reap(&mut self, now: Duration) {
        let time_ms = self.time_ms(now);
        let is_due = |node: &crate::tree::Node| {
            let age = Duration::from_millis(u64::try_from(time_ms - node.mtime).unwrap_or(0));
            node.children.is_empty()
                && match node.owner {
                    Owner::Container if node.creates > 0 => true,
                    Owner::Container => {
                        self.config.container_max_never_used.is_some_and(|max| age > max)
                    }
                    Owner::Ttl(ttl) => i128::from(time_ms) - i128::from(node.mtime) > ttl.into(),
                    Owner::Nobody | Owner::Session(_) => false,
                }
        };
        let due: Vec<String> = self
            .tree
            .mortals()
            .filter(|(_, node)| is_due(node))
            .map(|(path, _)| path.to_owned())
            .collect();
        for path in due {
            let delete = jute_codec::DeleteRequest { path: path.into(), version: -1 };
            self.propose_as_server(OpCode::DELETE_CONTAINER, 0, Write::Delete(delete), now);
        }
    }

    /// Last transaction that was applied.
    pub fn zxid(&self) -> i64 {
        self.zxid
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(crate) fn version(&self) -> Version {
        self.config.version
    }

    /// Open connections, with a session or without.
    pub(crate) fn connection_count(&self) -> usize {
        self.connections.iter().filter(|(_, connection)| connection.is_open()).count()
    }

    /// A write by the server itself or by a test.
    fn propose_as_server(&mut self, op: OpCode, session: i64, write: Write, now: Duration) -> i64 {
        let proposal = Proposal {
            session,
            xid: 0,
            op,
            write,
            identities: Identities::administrator(),
            time_ms: self.time_ms(now),
        };
        self.release(None, now);
        self.commit(&proposal, now).zxid
    }

    fn send(&mut self, id: u64, bytes: &[u8]) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.send(bytes);
            if connection.is_flooded() {
                connection.abort(Duration::ZERO);
                self.detach(id);
            }
        }
    }

    /// Ends a connection behind what is queued.
    fn close(&mut self, id: u64) {
        if self.connections.get_mut(id).is_some_and(Connection::close) {
            self.detach(id);
        }
    }

    /// Forgets what belongs to a connection that has ended.
    fn detach(&mut self, id: u64) {
        self.watches.forget(id);
        let session = self.connections.get(id).and_then(Connection::session);
        if let Some(session) = session.and_then(|session| self.sessions.get_mut(session))
            && session.connection == Some(id)
        {
            session.connection = None;
        }
    }

    /// The part of a fault that is the same wherever it fires.
    fn begin_fault(&mut self, fault: Option<Fault>, now: Duration) -> Option<Action> {
        let fault = fault?;
        tracing::debug!(?fault, "fault fires");
        if let Some(duration) = fault.refuse_for {
            self.refuse_until = self.refuse_until.max(now + duration);
        }
        Some(fault.action)
    }

    fn end_condemned(&mut self, now: Duration) {
        while let Some(session) = self.condemned.pop() {
            self.expire(session, now);
        }
    }

    fn time_ms(&self, now: Duration) -> i64 {
        let elapsed = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        self.config.start_time_ms.saturating_add(elapsed)
    }
}

/// First multiple of `unit` after `time`.
fn next_multiple(time: Duration, unit: Duration) -> Duration {
    let units = time.as_nanos() / unit.as_nanos() + 1;
    unit * u32::try_from(units).unwrap_or(u32::MAX)
}
