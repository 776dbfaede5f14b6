//! How tests observe and change the server without a client.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jute_codec::{
    Acl, CreateMode, CreateRequest, DeleteRequest, OpCode, SessionId, SetAclRequest,
    SetDataRequest, Stat, Version,
};

use crate::acl::Identities;
use crate::commit::{Committed, Proposal, Write};
use crate::connection::{Connection, Isolation};
use crate::fault::{Action, CutOff, Fault, Reception};
use crate::journal::{CommitRecord, EventRecord, RequestRecord};
use crate::tree::Node;

use super::Server;

impl Server {
    /// Arms a fault.
    ///
    /// # Panics
    ///
    /// Panics if the action is not possible at the moment that the fault specifies.
    pub fn inject(&mut self, fault: Fault) {
        self.faults.inject([fault]);
    }

    /// Arms the first of these faults, and each other one when the fault before it has fired. So a
    /// test can say what follows what: the reply is lost, and then the next read is refused.
    ///
    /// # Panics
    ///
    /// Panics if an action is not possible at the moment that its fault specifies.
    pub fn inject_in_turn(&mut self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.inject(faults);
    }

    /// Lets a function decide at each request, except pings, what goes wrong there: from the session,
    /// the opcode and the paths. The function must not call the server. A fault that is armed for the
    /// same request has precedence. A later function replaces this one, and
    /// [`clear_faults`](Self::clear_faults) removes it.
    ///
    /// # Panics
    ///
    /// The server panics if the function returns an action that is not possible at a request.
    pub fn inject_by(
        &mut self,
        decide: impl FnMut(SessionId, OpCode, &[&str]) -> Option<Action> + Send + 'static,
    ) {
        self.faults.inject_by(Box::new(decide));
    }

    /// Disarms all faults.
    pub fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// Returns the faults that have not fired.
    pub fn pending_faults(&self) -> Vec<Fault> {
        self.faults.pending()
    }

    /// Refuses new connections for this long. A refusal that ends later goes on, except that zero ends
    /// it at once.
    pub fn refuse_for(&mut self, duration: Duration, now: Duration) {
        let until = now.saturating_add(duration);
        self.refuse_until =
            if duration.is_zero() { Duration::ZERO } else { self.refuse_until.max(until) };
    }

    /// Makes the server reply to requests with `THROTTLED_OP` for this long, without executing them,
    /// as an overloaded server does. Zero ends it at once. Pings, authentication and the end of a
    /// session are exempt.
    pub fn throttle_for(&mut self, duration: Duration, now: Duration) {
        self.throttled_until = now.saturating_add(duration);
    }

    /// Sets how the server treats new connections from now on.
    pub fn set_reception(&mut self, reception: Reception) {
        self.reception = reception;
        self.reception_until = None;
    }

    /// Sets how the server treats new connections for this long. After that, the reception is
    /// [`Open`](Reception::Open).
    pub fn set_reception_for(&mut self, reception: Reception, duration: Duration, now: Duration) {
        self.reception = reception;
        self.reception_until = Some(now.saturating_add(duration));
    }

    /// Returns how the server treats new connections at `now`.
    #[must_use]
    pub fn reception(&self, now: Duration) -> Reception {
        match self.reception_until {
            Some(until) if until <= now => Reception::Open,
            _ => self.reception,
        }
    }

    /// Returns when a reception that was set for a limited time ends.
    #[must_use]
    pub fn reception_until(&self) -> Option<Duration> {
        self.reception_until
    }

    /// Closes all connections. The sessions continue.
    pub fn disconnect_all(&mut self, now: Duration) {
        let ids: Vec<u64> = self.connections.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.detach(id);
            if let Some(connection) = self.connections.get_mut(id) {
                connection.abort(now);
            }
        }
    }

    /// Makes the server of this session's connection lose its leader. Other connections are not
    /// affected: they are treated as connections to other servers. The call does nothing if the
    /// session is not connected.
    ///
    /// # Panics
    ///
    /// Panics if [`CutOff::unreported`] is longer than a tick.
    pub fn cut_off(&mut self, session: SessionId, cut_off: CutOff, now: Duration) {
        assert!(
            cut_off.unreported <= self.config.tick,
            "followers report activity every half a tick: {cut_off:?}"
        );
        let Some(known) = self.sessions.get_mut(session) else { return };
        let Some(id) = known.connection.take() else { return };
        self.sessions.forget(session, cut_off.unreported, now);
        self.replica_mut(id).watches.forget(id);
        let replica = self.replica(id);
        let (tree, zxid) = (Arc::new(replica.tree.clone()), replica.zxid);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.cut_off =
                Some(Isolation { until: now.saturating_add(cut_off.notices_after), tree, zxid });
        }
    }

    /// Pauses the server of this session's connection for this long. After the pause, it processes
    /// the requests that have arrived. The leader keeps running, and expires sessions whose timeout
    /// passes. The call does nothing if the session is not connected.
    pub fn pause_connection(&mut self, session: SessionId, duration: Duration, now: Duration) {
        // Pause the newest connection, because an older one may still be open on a follower without
        // a leader.
        let belongs = |c: &Connection| c.is_open() && c.session() == Some(session);
        let newest = self.connections.iter().rev().find(|(_, c)| belongs(c)).map(|(id, _)| id);
        if let Some(connection) = newest.and_then(|id| self.connections.get_mut(id)) {
            connection.pause(now.saturating_add(duration));
        }
    }

    /// Pauses the whole server for this long. After the pause, it first expires the sessions that
    /// are due, and then processes requests. On real servers, the order depends on a race.
    pub fn pause(&mut self, duration: Duration, now: Duration) {
        self.paused_until = self.paused_until.max(now.saturating_add(duration));
    }

    /// Chooses the ids of the next sessions, unless the configuration or an earlier call did. As on
    /// real servers, the highest byte is the number of the server, and the two lowest ones count.
    #[cfg(feature = "tokio")]
    pub(crate) fn draw_session_ids(&mut self, drawn: u64) {
        if self.config.first_session_id.is_none() {
            let random = i64::try_from(drawn >> 24).unwrap_or(0) << 16;
            let id = SessionId(1 << 56 | random);
            self.config.first_session_id = Some(id);
            self.sessions.continue_from(id);
        }
    }

    /// Returns the sessions that have not ended.
    pub fn sessions(&self) -> Vec<SessionId> {
        self.sessions.ids()
    }

    /// Returns the recorded requests in the order of arrival.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.journal.requests()
    }

    /// Returns the recorded watch events in the order in which they were sent.
    pub fn events(&self) -> Vec<EventRecord> {
        self.journal.events()
    }

    /// Discards the requests and the watch events recorded so far.
    pub fn clear_requests(&mut self) {
        self.journal.clear_requests();
    }

    /// Returns the recorded transactions in the order of their zxid.
    pub fn commits(&self) -> Vec<CommitRecord> {
        self.journal.commits()
    }

    /// Returns the sorted names of the children, or `None` if the znode does not exist.
    pub fn children(&self, path: &str) -> Option<Vec<String>> {
        let mut names: Vec<String> =
            self.leader.tree.get(path)?.children.iter().map(str::to_owned).collect();
        names.sort();
        Some(names)
    }

    /// Returns the stat of a znode, or `None` if it does not exist.
    pub fn stat(&self, path: &str) -> Option<Stat> {
        self.leader.tree.get(path).map(Node::stat)
    }

    /// Returns the data of a znode, or `None` if it does not exist. Null data is returned as empty.
    pub fn data(&self, path: &str) -> Option<Bytes> {
        Some(self.leader.tree.get(path)?.data.clone().unwrap_or_default())
    }

    /// Returns all ephemerals and the sessions that own them, sorted by path.
    pub fn ephemerals(&self) -> Vec<(String, SessionId)> {
        let mut all: Vec<_> =
            self.leader.tree.ephemerals().map(|(path, owner)| (path.to_owned(), owner)).collect();
        all.sort();
        all
    }

    /// Returns the number of watches. A persistent watch counts once.
    pub fn watch_count(&self) -> usize {
        let members = (0..self.members()).map(|member| self.member(member).watches.count());
        let islands = self.islands.values().map(|island| island.replica.watches.count());
        members.chain(islands).sum()
    }

    /// Creates a persistent znode, or an ephemeral if there is an owner. Everybody may do everything
    /// with it, and the parent must exist.
    ///
    /// # Panics
    ///
    /// Panics if the server refuses the change.
    pub fn admin_create(
        &mut self,
        path: &str,
        data: &[u8],
        ephemeral_owner: Option<SessionId>,
        now: Duration,
    ) {
        let mode = match ephemeral_owner {
            Some(_) => CreateMode::Ephemeral,
            None => CreateMode::Persistent,
        };
        let data = Some(Bytes::copy_from_slice(data));
        let create =
            CreateRequest { path: path.into(), data, acl: Acl::open(), mode, with_stat: false };
        let write = match ephemeral_owner {
            Some(owner) => Write::CreateFor(owner, create),
            None => Write::Create(create),
        };
        let committed = self.administrate(OpCode::CREATE, write, now);
        assert!(committed.error.is_ok(), "creating {path}: {}", committed.error);
    }

    /// Deletes a znode. Returns false if the server refuses the delete.
    pub fn admin_delete(&mut self, path: &str, now: Duration) -> bool {
        let delete = DeleteRequest { path: path.into(), version: Version::ANY };
        self.administrate(OpCode::DELETE, Write::Delete(delete), now).error.is_ok()
    }

    /// Replaces the data of a znode.
    ///
    /// # Panics
    ///
    /// Panics if the server refuses the change.
    pub fn admin_set_data(&mut self, path: &str, data: &[u8], now: Duration) {
        let data = Some(Bytes::copy_from_slice(data));
        let set_data = SetDataRequest { path: path.into(), data, version: Version::ANY };
        let committed = self.administrate(OpCode::SET_DATA, Write::SetData(set_data), now);
        assert!(committed.error.is_ok(), "setting the data of {path}: {}", committed.error);
    }

    /// Returns the access control list of a znode, or `None` if the znode does not exist.
    pub fn acl(&self, path: &str) -> Option<Vec<Acl>> {
        let node = self.leader.tree.get(path)?;
        Some(node.acl.as_deref().map_or_else(Acl::open, <[Acl]>::to_vec))
    }

    /// Replaces the access control list of a znode. Returns false if the server refuses that.
    pub fn admin_set_acl(&mut self, path: &str, acl: Vec<Acl>, now: Duration) -> bool {
        let set_acl = SetAclRequest { path: path.into(), acl, version: Version::ANY };
        self.administrate(OpCode::SET_ACL, Write::SetAcl(set_acl), now).error.is_ok()
    }

    /// Sets how many children a znode had in its lifetime, which is the next sequence number.
    ///
    /// # Panics
    ///
    /// Panics if the znode does not exist.
    pub fn set_create_count(&mut self, path: &str, creates: i32, now: Duration) {
        self.do_what_is_due(now);
        self.catch_up_all(now);
        let late = self.late_leader.iter_mut();
        for replica in self.followers.iter_mut().chain([&mut self.leader]).chain(late) {
            replica.tree.get_mut(path).expect("the znode exists").creates = creates;
        }
    }

    /// Does what is due, and commits the write that a fault delays. Every change by an administrator
    /// begins with this.
    pub fn do_what_is_due(&mut self, now: Duration) {
        self.handle_timeout(now);
        self.release(None, now);
        self.expire_marked(now);
    }

    fn administrate(&mut self, op: OpCode, write: Write, now: Duration) -> Committed {
        self.do_what_is_due(now);
        let identities = Identities::administrator();
        let time_ms = self.time_ms(now);
        let proposal =
            Proposal { session: SessionId::NONE, xid: 0, op, write, identities, time_ms };
        let committed = self.commit(&proposal, now);
        self.expire_marked(now);
        committed
    }
}
