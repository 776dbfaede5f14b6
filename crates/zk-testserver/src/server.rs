//! The server as a state machine: bytes in, bytes out, time as an argument.
//!
//! It uses no sockets, no clock and no random numbers. A driver calls `handle_*` with the time
//! since the start. After every call it drains [`poll_transmit`](Server::poll_transmit), and calls
//! [`poll_timeout`](Server::poll_timeout) to find out when to call
//! [`handle_timeout`](Server::handle_timeout).
//!
//! The server processes requests one at a time, in the order of arrival: it renews the session,
//! validates and applies a write, sends the events to the connections with matching watches, and
//! then replies. Therefore an event precedes every reply that reflects its change.
//!
//! If a client does not read its replies, the server stops processing requests of that connection,
//! and only of that one: the numbers of unsent and unprocessed bytes per connection are limited.
//! Pings wait in the same queue, so the session of such a client can expire; real servers keep
//! reading them. A connection with too many unsent events is closed.

mod admin;
mod body;
mod conduct;
#[cfg(test)]
mod costs;
mod deposed;
mod follower;
mod handshake;
mod held;
mod login;
mod members;
mod partition;
mod read;
mod request;
mod write;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use jute_codec::{OpCode, SessionId, Zxid};

use crate::acl::Identities;
use crate::commit::{Proposal, Write};
use crate::conduct::Conduct;
use crate::config::ServerConfig;
use crate::connection::{Connection, Phase, Transmit};
use crate::connections::Connections;
use crate::fault::{Action, Fault, Faults, Reception};
use crate::journal::Journal;
use crate::replica::Replica;
use crate::session::Sessions;
use crate::tree::Lifetime;
use crate::words::{self, Figures};

use self::deposed::Deposed;
use self::held::Held;
use self::members::LEADER;
use self::partition::Island;

/// Minimum time that a connection has for its handshake. The maximum is twice that time.
const HANDSHAKE_INTERVAL: Duration = Duration::from_secs(10);

/// How many unprocessed bytes a connection may have before the driver should stop reading from it.
/// The limit is higher than the number of bytes that a client sends if it writes many requests
/// before it reads the first reply.
const UNREAD_MAX: usize = 16 << 20;

/// A ZooKeeper server without sockets and without a clock.
pub struct Server {
    config: ServerConfig,
    /// What the leader has committed: the newest state.
    leader: Replica,
    /// What the leader has applied, and shows to its clients, if it applies its commits late.
    late_leader: Option<Replica>,
    /// The other members of the ensemble, from number 1.
    followers: Vec<Replica>,
    /// Members that have lost the others, and serve only reads.
    islands: BTreeMap<usize, Island>,
    /// Members that led, and do not know yet that they do not any more.
    deposed: BTreeMap<usize, Deposed>,
    sessions: Sessions,
    faults: Faults,
    conduct: Conduct,
    /// The lag at the start; tests change that in `config`.
    configured_lag: Duration,
    /// When the ensemble has a leader again.
    elected_at: Option<Duration>,
    journal: Journal,
    /// A proposal whose commit a fault delays.
    held: Option<Held>,
    connections: Connections,
    last_connection: u64,
    /// The connection whose output was taken last, so that its requests may continue.
    drained: Option<u64>,
    refuse_until: Duration,
    /// The server executes no requests before this time, but refuses them.
    throttled_until: Duration,
    reception: Reception,
    /// When `reception` becomes [`Reception::Open`] again; `None` if it stays the same until a test
    /// changes it.
    reception_until: Option<Duration>,
    /// The server does nothing before this time.
    paused_until: Duration,
    next_reap: Duration,
    /// Sessions that a fault expires as soon as the current request has been processed.
    to_expire: Vec<SessionId>,
}

impl Server {
    /// Creates a server that contains only the built-in znodes.
    pub fn new(config: ServerConfig) -> Self {
        Self {
            leader: Replica::new(&config),
            late_leader: (config.members > 1 && !config.leader_unapplied.is_zero())
                .then(|| Replica::new(&config)),
            followers: (1..config.members).map(|_| Replica::new(&config)).collect(),
            islands: BTreeMap::new(),
            deposed: BTreeMap::new(),
            sessions: Sessions::new(config.first_id(), config.tick),
            faults: Faults::default(),
            conduct: Conduct::default(),
            configured_lag: config.lag,
            elected_at: None,
            journal: Journal::new(config.log_capacity),
            held: None,
            connections: Connections::default(),
            last_connection: 0,
            drained: None,
            refuse_until: Duration::ZERO,
            throttled_until: Duration::ZERO,
            reception: Reception::default(),
            reception_until: None,
            paused_until: Duration::ZERO,
            next_reap: config.reap_interval,
            to_expire: Vec::new(),
            config,
        }
    }

    /// Accepts a connection and returns its number, or returns `None` to refuse it. During a
    /// [`Reception::BlackHole`] the driver should make the client wait instead of calling this.
    pub fn handle_connect(&mut self, peer: IpAddr, now: Duration) -> Option<u64> {
        self.handle_connect_to(LEADER, peer, now)
    }

    /// Does the same as [`handle_connect`](Self::handle_connect) for a connection to this
    /// [member](ServerConfig::members).
    ///
    /// # Panics
    ///
    /// Panics if there is no such member.
    pub fn handle_connect_to(&mut self, member: usize, peer: IpAddr, now: Duration) -> Option<u64> {
        assert!(member < self.members(), "{member} is not a member of {}", self.members());
        self.handle_timeout(now);
        let is_deposed = self.is_deposed(member, now);
        let reception = if is_deposed { Reception::Open } else { self.reception(now) };
        let refuses = matches!(reception, Reception::Refused | Reception::BlackHole)
            || (now < self.refuse_until && !is_deposed);
        if refuses {
            return None;
        }
        self.last_connection += 1;
        let deadline = next_multiple(now + HANDSHAKE_INTERVAL, HANDSHAKE_INTERVAL);
        let mut connection = Connection::new(Identities::of_peer(peer), deadline, member);
        if reception == Reception::Silent {
            connection.freeze();
        }
        self.connections.insert(self.last_connection, connection);
        Some(self.last_connection)
    }

    /// Handles bytes that have arrived on a connection.
    pub fn handle_bytes(&mut self, id: u64, bytes: &[u8], now: Duration) {
        self.handle_timeout(now);
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.receive(bytes);
        self.take_frames(id, now);
    }

    /// Returns whether the driver should keep reading from this connection. If not, too many of its
    /// bytes are unprocessed, because the client does not read its replies or the connection is
    /// paused.
    #[must_use]
    pub fn is_receptive(&self, id: u64) -> bool {
        let limit = UNREAD_MAX.max(self.config.max_frame.saturating_add(4));
        self.connections.get(id).is_none_or(|connection| connection.unread() < limit)
    }

    /// Sets whether the client reads what was transmitted on this connection. While it does not,
    /// the server transmits nothing and processes no requests of this connection. Requests also
    /// wait while 4 MiB of output are queued. A driver that never calls this accepts all output.
    pub fn set_writable(&mut self, id: u64, is_writable: bool, now: Duration) {
        self.handle_timeout(now);
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.block(!is_writable);
        self.take_frames(id, now);
    }

    /// Processes the input of a connection.
    fn take_frames(&mut self, id: u64, now: Duration) {
        let Some(connection) = self.connections.get(id) else { return };
        if connection.phase == Phase::Handshake
            && let Some(word) = connection.peek_word()
            && let Some(reply) = words::reply(word, || self.figures(id))
        {
            self.send(id, reply.as_bytes());
            self.close(id);
            return;
        }
        while let Some(connection) = self.connections.get_mut(id)
            && connection.paused_until().is_none()
            && connection.can_process()
            && now >= self.paused_until
        {
            let phase = connection.phase;
            match connection.next_frame(self.config.max_frame) {
                Ok(None) => break,
                Err(_) => self.close(id),
                Ok(Some(payload)) => match phase {
                    Phase::Handshake => self.handle_handshake(id, payload, now),
                    Phase::Session(session) => self.handle_request(id, session, payload, now),
                },
            }
            self.expire_marked(now);
        }
    }

    /// Handles the end of a connection that the client has closed or that broke. The session
    /// continues. A paused server notices later and first processes the input, which TCP has
    /// already received.
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

    /// Does everything that is due at `now`.
    pub fn handle_timeout(&mut self, now: Duration) {
        if now < self.paused_until {
            return;
        }
        if self.held.as_ref().is_some_and(|held| held.is_due(now)) {
            self.release(None, now);
        }
        self.apply_due(now);
        self.end_due_election(now);
        if self.has_leader() {
            while let Some((_, session)) =
                self.sessions.next_expiry().filter(|(due, _)| *due <= now)
            {
                self.expire(session, now);
            }
        }
        self.expire_on_islands(now);
        self.run_chores(now);
        if now >= self.next_reap && self.has_leader() {
            self.next_reap = next_multiple(now, self.config.reap_interval);
            self.reap(now);
        }
        self.expire_marked(now);
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout) and
    /// [`poll_transmit`](Self::poll_transmit) next. Returns `None` if nothing is scheduled.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        // A paused server does nothing before the end of its pause, and then takes the frames that
        // have arrived meanwhile, even if nothing else is scheduled.
        if self.paused_until.is_zero() { self.next_timeout() } else { Some(self.paused_until) }
    }

    fn next_timeout(&self) -> Option<Duration> {
        let held = self.held.as_ref().and_then(Held::due);
        let expiry = self.sessions.next_expiry().map(|(due, _)| due);
        let reap = self.leader.tree.reapable().next().map(|_| self.next_reap);
        let by_leader = expiry.into_iter().chain(reap).filter(|_| self.has_leader()).min();
        let others = held.into_iter().chain(self.next_lag()).chain(self.next_on_islands());
        let others = others.chain(self.elected_at);
        self.connections.next().into_iter().chain(by_leader).chain(others).min()
    }

    /// Takes the next bytes to write to a connection.
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

    /// Expires a session, as if its timeout had passed.
    pub fn expire(&mut self, session: SessionId, now: Duration) {
        let Some(known) = self.sessions.get_mut(session) else {
            return self.expire_on_island(session);
        };
        // From here on the session cannot be renewed or resumed.
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

    /// Deletes the containers and znodes with a time to live that are due. The server also does
    /// this every [`reap_interval`](ServerConfig::reap_interval).
    pub fn reap(&mut self, now: Duration) {
        let time_ms = self.time_ms(now);
        let is_due = |node: &crate::tree::Node| {
            let age = Duration::from_millis(u64::try_from(time_ms - node.mtime).unwrap_or(0));
            node.children.is_empty()
                && match node.lifetime {
                    Lifetime::Container if node.creates > 0 => true,
                    Lifetime::Container => {
                        self.config.container_max_never_used.is_some_and(|max| age > max)
                    }
                    Lifetime::Ttl(ttl) => i128::from(time_ms) - i128::from(node.mtime) > ttl.into(),
                    Lifetime::Persistent | Lifetime::Ephemeral(_) => false,
                }
        };
        let due: Vec<String> = self
            .leader
            .tree
            .reapable()
            .filter(|(_, node)| is_due(node))
            .map(|(path, _)| path.to_owned())
            .collect();
        for path in due {
            let delete =
                jute_codec::DeleteRequest { path: path.into(), version: jute_codec::Version::ANY };
            self.propose_as_server(
                OpCode::DELETE_CONTAINER,
                SessionId::NONE,
                Write::Delete(delete),
                now,
            );
        }
    }

    /// Returns the last transaction that was applied.
    pub fn zxid(&self) -> Zxid {
        self.leader.zxid
    }

    fn figures(&self, id: u64) -> Figures {
        let replica = self.replica(id);
        let is_open = |(_, connection): &(u64, &Connection)| connection.is_open();
        Figures {
            version: self.config.version,
            mode: self.mode(self.member_of(id)),
            zxid: replica.zxid,
            connections: self.connections.iter().filter(is_open).count(),
            sessions: self.sessions.ids().len(),
            watches: replica.watches.count(),
            // Real servers count the root twice.
            nodes: replica.tree.len() + 1,
            ephemerals: replica.tree.ephemerals().count(),
            data_size: replica.tree.data_size(),
        }
    }

    /// Commits a write by the server itself or by a test.
    fn propose_as_server(
        &mut self,
        op: OpCode,
        session: SessionId,
        write: Write,
        now: Duration,
    ) -> Zxid {
        let proposal = Proposal {
            session,
            xid: 0,
            op,
            write,
            identities: Identities::administrator(),
            time_ms: self.time_ms(now),
        };
        // Commits happen in log order, so a delayed one comes first.
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

    /// Closes a connection after its queued output.
    fn close(&mut self, id: u64) {
        if self.connections.get_mut(id).is_some_and(Connection::close) {
            self.detach(id);
        }
    }

    /// Removes the watches of a closed connection, and its link from the session.
    fn detach(&mut self, id: u64) {
        self.replica_mut(id).watches.forget(id);
        self.detach_on_island(id);
        let session = self.connections.get(id).and_then(Connection::session);
        if let Some(session) = session.and_then(|session| self.sessions.get_mut(session))
            && session.connection == Some(id)
        {
            session.connection = None;
        }
    }

    /// Applies the effects that all faults have in common, and returns the action.
    fn begin_fault(&mut self, fault: Option<Fault>, now: Duration) -> Option<Action> {
        let fault = fault?;
        tracing::debug!(?fault, "fault fires");
        if let Some(duration) = fault.refuse_for {
            self.refuse_until = self.refuse_until.max(now.saturating_add(duration));
        }
        Some(fault.action)
    }

    fn expire_marked(&mut self, now: Duration) {
        while let Some(session) = self.to_expire.pop() {
            self.expire(session, now);
        }
    }

    fn time_ms(&self, now: Duration) -> i64 {
        let elapsed = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        self.config.start_time_ms.saturating_add(elapsed)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("zxid", &self.leader.zxid)
            .field("sessions", &self.sessions.ids())
            .field("nodes", &self.leader.tree.len())
            .finish_non_exhaustive()
    }
}

/// Returns the first multiple of `unit` after `time`.
fn next_multiple(time: Duration, unit: Duration) -> Duration {
    let units = time.as_nanos() / unit.as_nanos() + 1;
    unit * u32::try_from(units).unwrap_or(u32::MAX)
}
