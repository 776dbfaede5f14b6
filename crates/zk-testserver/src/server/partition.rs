//! Members that have lost the others, and serve only reads.
//!
//! A partitioned member closes its connections, and then serves its last state to clients that
//! accept a read-only server. Their sessions are known to this member only. When the partition
//! ends, it closes the connections again and forgets these sessions.

use std::collections::BTreeSet;
use std::time::Duration;

use jute_codec::{ConnectRequest, ConnectResponse, ErrorCode, Request, SessionId};

use super::Server;
use super::body::Body;
use super::handshake::{accepted, expired};
use super::held::Processed;
use super::members::LEADER;
use crate::replica::Replica;
use crate::session::{self, Sessions};
use crate::words::READ_ONLY;

/// The state of a member while it is partitioned.
#[derive(Debug)]
pub(super) struct Island {
    pub(super) replica: Replica,
    /// The sessions that are connected to this member.
    sessions: Sessions,
    /// The sessions of the ensemble at the time of the partition.
    global: BTreeSet<SessionId>,
}

impl Server {
    /// Cuts a member off from the others, so that it serves only reads, as a real server with
    /// `readonlymode.enabled` does. All its connections are closed.
    ///
    /// The other members go on. If all members are partitioned, there is no leader: sessions do not
    /// expire. The call does nothing if the member is already partitioned.
    ///
    /// # Panics
    ///
    /// Panics if there is no such member.
    pub fn partition(&mut self, member: usize, now: Duration) {
        assert!(member < self.members(), "{member} is not a member of {}", self.members());
        if self.islands.contains_key(&member) {
            return;
        }
        self.disconnect_member(member, now);
        // The highest byte of a session id identifies the server, as on real ones.
        let server = i64::try_from(member).unwrap_or(0).wrapping_add(1) << 56;
        let first_id = SessionId(self.config.first_id().0.wrapping_add(server).max(1));
        let island = Island {
            replica: self.member(member).snapshot(&self.config),
            sessions: Sessions::new(first_id, self.config.tick),
            global: self.sessions.ids().into_iter().collect(),
        };
        self.islands.insert(member, island);
    }

    /// Ends the partition of a member. All its connections are closed. If there was no leader,
    /// sessions continue with their full timeouts.
    pub fn heal(&mut self, member: usize, now: Duration) {
        if !self.islands.contains_key(&member) {
            return;
        }
        self.disconnect_member(member, now);
        if !self.has_leader() {
            self.sessions.touch_all(now);
        }
        self.islands.remove(&member);
        self.catch_up(member, now);
    }

    /// Returns whether this member is partitioned.
    #[must_use]
    pub fn is_partitioned(&self, member: usize) -> bool {
        self.islands.contains_key(&member)
    }

    /// Closes the connections to one member. The sessions continue.
    pub fn disconnect_member(&mut self, member: usize, now: Duration) {
        self.deposed.remove(&member);
        let all = self.connections.iter();
        let ids: Vec<u64> = all.filter(|(_, c)| c.member == member).map(|(id, _)| id).collect();
        for id in ids {
            self.detach(id);
            if let Some(connection) = self.connections.get_mut(id) {
                connection.abort(now);
            }
        }
    }

    pub(super) fn has_leader(&self) -> bool {
        self.islands.len() < self.members()
    }

    /// Returns the role of a member, as the four-letter words report it.
    pub(super) fn mode(&self, member: usize) -> &'static str {
        match member {
            _ if self.is_partitioned(member) => READ_ONLY,
            _ if self.followers.is_empty() => "standalone",
            LEADER => "leader",
            _ => "follower",
        }
    }

    /// Starts or resumes a session on a partitioned member. Returns `None` if the client must
    /// connect to another one.
    pub(super) fn connect_to_island(
        &mut self,
        id: u64,
        request: &ConnectRequest,
        now: Duration,
    ) -> Option<ConnectResponse> {
        let timeout = self.config.negotiate(request.timeout_ms);
        let is_wanted = request.read_only == Some(true);
        let island = self.islands.get_mut(&self.connections.get(id)?.member)?;
        if !is_wanted || request.last_zxid_seen > island.replica.zxid {
            return None;
        }
        let session = request.session_id;
        let is_global = island.global.contains(&session);
        if is_global && self.config.version.keeps_global_sessions_off_islands() {
            return None;
        }
        let response = if session == SessionId::NONE {
            if !self.config.local_sessions {
                let zxid = island.replica.zxid;
                self.reply_error(id, 0, zxid, ErrorCode::NOT_READ_ONLY);
                self.freeze(id);
                return None;
            }
            accepted(request, timeout, island.sessions.create(timeout, id, now))
        } else {
            let older = island.sessions.get_mut(session).and_then(|known| known.connection);
            let is_resumed = session::password(session) == request.password.as_ref()
                && island.sessions.resume(session, timeout, id, now, is_global);
            if let Some(older) = older {
                self.close(older);
            }
            if is_resumed { accepted(request, timeout, session) } else { expired(request) }
        };
        Some(ConnectResponse { read_only: Some(true), ..response })
    }

    /// Processes a request on a partitioned member, unless it is a read. Returns `None` for reads.
    pub(super) fn refuse_on_island(
        &mut self,
        id: u64,
        session: SessionId,
        xid: i32,
        body: &Body,
    ) -> Option<Processed> {
        let island = self.islands.get_mut(&self.connections.get(id)?.member)?;
        let is_sync = matches!(body, Body::Known(Request::Sync(_)));
        if !is_sync && !body.is_write(self.config.version) {
            return None;
        }
        let ends =
            matches!(body, Body::Known(Request::CloseSession)) && !island.global.contains(&session);
        let error = if ends { ErrorCode::OK } else { ErrorCode::NOT_READ_ONLY };
        if ends {
            island.sessions.remove(session);
        }
        let zxid = island.replica.zxid;
        self.reply_error(id, xid, zxid, error);
        if ends {
            self.close(id);
        }
        Some(Processed::read(error))
    }

    /// Renews a session. Returns false if it has ended, or its end is in the log.
    pub(super) fn touch(&mut self, id: u64, session: SessionId, now: Duration) -> bool {
        match self.islands.get_mut(&self.member_of(id)) {
            Some(island) => island.sessions.touch(session, now),
            None => self.sessions.touch(session, now),
        }
    }

    /// Ends the sessions of partitioned members whose timeout has passed.
    pub(super) fn expire_on_islands(&mut self, now: Duration) {
        let mut ended = Vec::new();
        for island in self.islands.values_mut() {
            while let Some((_, session)) =
                island.sessions.next_expiry().filter(|(due, _)| *due <= now)
            {
                ended.extend(island.sessions.get_mut(session).and_then(|known| known.connection));
                island.sessions.remove(session);
            }
        }
        for connection in ended {
            self.close(connection);
        }
    }

    /// Ends a session of a partitioned member, as if its timeout had passed.
    pub(super) fn expire_on_island(&mut self, session: SessionId) {
        for island in self.islands.values_mut() {
            let Some(known) = island.sessions.get_mut(session) else { continue };
            let connection = known.connection;
            island.sessions.remove(session);
            return connection.into_iter().for_each(|connection| self.close(connection));
        }
    }

    /// Returns when a session of a partitioned member expires.
    pub(super) fn next_on_islands(&self) -> Option<Duration> {
        let islands = self.islands.values();
        islands.filter_map(|island| island.sessions.next_expiry()).map(|(due, _)| due).min()
    }

    /// Removes the link of a session to a closed connection.
    pub(super) fn detach_on_island(&mut self, id: u64) {
        let Some(connection) = self.connections.get(id) else { return };
        let Some(island) = self.islands.get_mut(&connection.member) else { return };
        let session = connection.session();
        if let Some(session) = session.and_then(|session| island.sessions.get_mut(session))
            && session.connection == Some(id)
        {
            session.connection = None;
        }
    }

    /// Returns the sessions that only this partitioned member knows.
    #[must_use]
    pub fn read_only_sessions(&self, member: usize) -> Vec<SessionId> {
        self.islands.get(&member).map(|island| island.sessions.ids()).unwrap_or_default()
    }
}
