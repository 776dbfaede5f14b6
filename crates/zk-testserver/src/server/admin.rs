//! What a test sees and does behind the clients' backs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jute_codec::{Acl, CreateMode, CreateRequest, DeleteRequest, OpCode, SetDataRequest, Stat};

use crate::acl::Identities;
use crate::commit::{Committed, Proposal, Write};
use crate::connection::{Connection, Isolation};
use crate::fault::{CutOff, Fault, Reception};
use crate::journal::{CommitRecord, RequestRecord};
use crate::tree::Node;

use super::Server;

impl Server {
    /// Arms a fault.
    ///
    /// # Panics
    ///
    /// If the action has no meaning where the fault is to fire.
    pub fn inject(&mut self, fault: Fault) {
        self.faults.inject(fault);
    }

    /// Disarms all faults.
    pub fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// Faults that have not fired.
    pub fn pending_faults(&self) -> Vec<Fault> {
        self.faults.pending()
    }

    /// Refuses new connections for that long.
    pub fn refuse_for(&mut self, duration: Duration, now: Duration) {
        self.refuse_until = self.refuse_until.max(now + duration);
    }

    /// Receives clients like this from now on, until told otherwise.
    pub fn set_reception(&mut self, reception: Reception) {
        self.reception = reception;
        self.reception_until = None;
    }

    /// Receives clients like this for that long, and then as [`Reception::Open`].
    pub fn set_reception_for(&mut self, reception: Reception, duration: Duration, now: Duration) {
        self.reception = reception;
        self.reception_until = Some(now + duration);
    }

    /// How clients are received now.
    #[must_use]
    pub fn reception(&self, now: Duration) -> Reception {
        match self.reception_until {
            Some(until) if until <= now => Reception::Open,
            _ => self.reception,
        }
    }

    /// When the reception that was set for a while is over.
    #[must_use]
    pub fn reception_until(&self) -> Option<Duration> {
        self.reception_until
    }

    /// Ends all connections. The sessions go on.
    pub fn disconnect_all(&mut self, now: Duration) {
        let ids: Vec<u64> = self.connections.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.detach(id);
            if let Some(connection) = self.connections.get_mut(id) {
                connection.abort(now);
            }
        }
    }

    /// The server that this session is connected to loses its leader. Other connections are to
    /// other servers. Nothing happens if the session is not connected.
    ///
    /// # Panics
    ///
    /// If more is to be unlearned than servers can have missed, which is a tick.
    pub fn cut_off(&mut self, session: i64, cut_off: CutOff, now: Duration) {
        assert!(
            cut_off.unlearned <= self.config.tick,
            "followers report twice a tick: {cut_off:?}"
        );
        let Some(known) = self.sessions.get_mut(session) else { return };
        let Some(id) = known.connection.take() else { return };
        self.sessions.forget(session, cut_off.unlearned, now);
        self.watches.forget(id);
        let (tree, zxid) = (Arc::new(self.tree.clone()), self.zxid);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.cut_off = Some(Isolation { until: now + cut_off.notices_after, tree, zxid });
        }
    }

    /// The server that this session is connected to stands still for that long. Requests that
    /// arrive are looked at afterwards. The leader goes on, and ends sessions of which it hears
    /// nothing. Nothing happens if the session is not connected.
    pub fn pause_connection(&mut self, session: i64, duration: Duration, now: Duration) {
        // The newest one: an older one may go on behind the back of the leader.
        let belongs = |c: &Connection| c.is_open() && c.session() == Some(session);
        let newest = self.connections.iter().rev().find(|(_, c)| belongs(c)).map(|(id, _)| id);
        if let Some(connection) = newest.and_then(|id| self.connections.get_mut(id)) {
            connection.pause(now + duration);
        }
    }

    /// Everything stands still for that long. Afterwards sessions whose time has come end first,
    /// and then requests are looked at: on real servers this is a race.
    pub fn pause(&mut self, duration: Duration, now: Duration) {
        self.paused_until = self.paused_until.max(now + duration);
    }

    /// Sessions that have not ended.
    pub fn sessions(&self) -> Vec<i64> {
        self.sessions.ids()
    }

    /// Requests in order of arrival.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.journal.requests()
    }

    /// Forgets the requests so far.
    pub fn clear_requests(&mut self) {
        self.journal.clear_requests();
    }

    /// Transactions in order of their zxid.
    pub fn commits(&self) -> Vec<CommitRecord> {
        self.journal.commits()
    }

    /// Names of the children, in order of their names.
    pub fn children(&self, path: &str) -> Option<Vec<String>> {
        let mut names: Vec<String> =
            self.tree.get(path)?.children.iter().map(str::to_owned).collect();
        names.sort();
        Some(names)
    }

    /// Stat of a znode.
    pub fn stat(&self, path: &str) -> Option<Stat> {
        self.tree.get(path).map(Node::stat)
    }

    /// Data of a znode; empty for null.
    pub fn data(&self, path: &str) -> Option<Bytes> {
        Some(self.tree.get(path)?.data.clone().unwrap_or_default())
    }

    /// All ephemerals and the sessions that own them.
    pub fn ephemerals(&self) -> Vec<(String, i64)> {
        let mut all: Vec<_> =
            self.tree.ephemerals().map(|(path, owner)| (path.to_owned(), owner)).collect();
        all.sort();
        all
    }

    /// Number of watches; a persistent one counts once.
    pub fn watch_count(&self) -> usize {
        self.watches.count()
    }

    /// Creates a znode, as an ephemeral if it has an owner.
    ///
    /// # Panics
    ///
    /// If the server refuses it.
    pub fn admin_create(
        &mut self,
        path: &str,
        data: &[u8],
        ephemeral_owner: Option<i64>,
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

    /// Deletes a znode; false if the server refuses it.
    pub fn admin_delete(&mut self, path: &str, now: Duration) -> bool {
        let delete = DeleteRequest { path: path.into(), version: -1 };
        self.administrate(OpCode::DELETE, Write::Delete(delete), now).error.is_ok()
    }

    /// Replaces the data of a znode.
    ///
    /// # Panics
    ///
    /// If the server refuses it.
    pub fn admin_set_data(&mut self, path: &str, data: &[u8], now: Duration) {
        let data = Some(Bytes::copy_from_slice(data));
        let set_data = SetDataRequest { path: path.into(), data, version: -1 };
        let committed = self.administrate(OpCode::SET_DATA, Write::SetData(set_data), now);
        assert!(committed.error.is_ok(), "setting the data of {path}: {}", committed.error);
    }

    /// Makes a znode believe that it had so many children in its life.
    ///
    /// # Panics
    ///
    /// If there is no such znode.
    pub fn set_create_count(&mut self, path: &str, creates: i32, now: Duration) {
        self.release(None, now);
        let node = self.tree.get_mut(path).expect("the znode exists");
        node.creates = creates;
    }

    fn administrate(&mut self, op: OpCode, write: Write, now: Duration) -> Committed {
        self.handle_timeout(now);
        self.release(None, now);
        let identities = Identities::administrator();
        let time_ms = self.time_ms(now);
        let proposal = Proposal { session: 0, xid: 0, op, write, identities, time_ms };
        let committed = self.commit(&proposal, now);
        self.end_condemned(now);
        committed
    }
}
