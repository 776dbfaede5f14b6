//! Members that led, and do not know yet that the others have elected another leader.
//!
//! Such a member answers whatever needs no quorum. That is more than what a follower answers that has
//! lost its leader: also syncs, until it has proposed something, and resumes of the sessions that it
//! knows (`Leader.processSync`, `LeaderZooKeeperServer.revalidateSession`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jute_codec::{ConnectRequest, ConnectResponse, SessionId};

use super::Server;
use super::body::Body;
use super::handshake::{accepted, expired};
use crate::connection::{Connection, Isolation};
use crate::session;

/// The state of a member that does not know that it was deposed.
#[derive(Debug)]
pub(super) struct Deposed {
    past: Isolation,
    /// The sessions at that time.
    sessions: BTreeSet<SessionId>,
    /// It waits for a quorum, which it has lost.
    has_proposed: bool,
}

impl Server {
    /// Makes a member one that led until now, while the others have elected another leader. It
    /// acknowledges pings, serves reads from its state at this time, and resumes the sessions that
    /// existed. It answers syncs until a client sends it a write or starts a session, which it never
    /// answers, and sends no events. Nothing of this renews a session at the other members, where all
    /// sessions continue with their full timeouts. After `notices_after`, it closes its connections and
    /// follows the others; real leaders take up to `syncLimit` ticks.
    ///
    /// The call does nothing if the member is partitioned.
    ///
    /// # Panics
    ///
    /// Panics if there is no such member.
    pub fn depose(&mut self, member: usize, notices_after: Duration, now: Duration) {
        assert!(member < self.members(), "{member} is not a member of {}", self.members());
        if self.is_partitioned(member) {
            return;
        }
        // It has committed all that there is.
        self.catch_up(member, now);
        let replica = self.member(member);
        let (tree, zxid) = (Arc::new(replica.tree.clone()), replica.zxid);
        let past = Isolation { until: now.saturating_add(notices_after), tree, zxid };
        let all = self.connections.iter();
        let of_session =
            |c: &Connection| c.member == member && c.is_open() && c.session().is_some();
        let ids: Vec<u64> = all.filter(|(_, c)| of_session(c)).map(|(id, _)| id).collect();
        for id in ids {
            self.detach(id);
            if let Some(connection) = self.connections.get_mut(id) {
                connection.cut_off = Some(past.clone());
            }
        }
        let sessions = self.sessions.ids().into_iter().collect();
        self.sessions.touch_all(now);
        self.deposed.insert(member, Deposed { past, sessions, has_proposed: false });
    }

    /// Returns whether this member was deposed and does not know it yet.
    #[must_use]
    pub fn is_deposed(&self, member: usize, now: Duration) -> bool {
        self.deposed.get(&member).is_some_and(|deposed| now < deposed.past.until)
    }

    /// Resumes a session on a deposed member. Returns `None` if the client gets no answer, or must
    /// connect to another member.
    pub(super) fn connect_to_deposed(
        &mut self,
        id: u64,
        request: &ConnectRequest,
    ) -> Option<ConnectResponse> {
        let timeout = self.config.negotiate(request.timeout_ms);
        let deposed = self.deposed.get_mut(&self.connections.get(id)?.member)?;
        if request.last_zxid_seen > deposed.past.zxid {
            return None;
        }
        let session = request.session_id;
        if session == SessionId::NONE {
            deposed.has_proposed = true;
            self.freeze(id);
            return None;
        }
        let is_resumed = session::password(session) == request.password.as_ref()
            && deposed.sessions.contains(&session);
        self.connections.get_mut(id)?.cut_off = Some(deposed.past.clone());
        Some(if is_resumed { accepted(request, timeout, session) } else { expired(request) })
    }

    /// Returns whether a connection that has lost the others gets an answer to a sync.
    pub(super) fn syncs_alone(&self, id: u64) -> bool {
        self.deposed_of(id).is_some_and(|deposed| !deposed.has_proposed)
    }

    /// Records what a deposed member proposes.
    pub(super) fn propose_alone(&mut self, id: u64, body: &Body) {
        let member = self.member_of(id);
        if body.is_write(self.config.version)
            && self.deposed_of(id).is_some()
            && let Some(deposed) = self.deposed.get_mut(&member)
        {
            deposed.has_proposed = true;
        }
    }

    /// Returns the deposed member of a connection, which may be an older one of that member.
    fn deposed_of(&self, id: u64) -> Option<&Deposed> {
        let connection = self.connections.get(id)?;
        let deposed = self.deposed.get(&connection.member)?;
        let past = connection.cut_off.as_ref()?;
        Arc::ptr_eq(&past.tree, &deposed.past.tree).then_some(deposed)
    }
}
