//! What tests observe and change: the calls of the state machine, on a running server.

use std::time::Duration;

use bytes::Bytes;
use jute_codec::{Acl, OpCode, SessionId, Stat, Zxid};

use super::TestServer;
use crate::fault::{Action, CutOff, Fault, Reception};
use crate::journal::{CommitRecord, EventRecord, RequestRecord};
use crate::server::Server;

impl TestServer {
    /// Arms a fault.
    ///
    /// # Panics
    ///
    /// Panics if the action is not possible at the moment that the fault specifies.
    pub fn inject(&self, fault: Fault) {
        self.with(|server, _| server.inject(fault));
    }

    /// Arms the first of these faults, and each other one when the fault before it has fired. So a
    /// test can say what follows what: the reply is lost, and then the next read is refused.
    ///
    /// # Panics
    ///
    /// Panics if an action is not possible at the moment that its fault specifies.
    pub fn inject_in_turn(&self, faults: impl IntoIterator<Item = Fault>) {
        self.with(|server, _| server.inject_in_turn(faults));
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
        &self,
        decide: impl FnMut(SessionId, OpCode, &[&str]) -> Option<Action> + Send + 'static,
    ) {
        self.with(|server, _| server.inject_by(decide));
    }

    /// Disarms all faults.
    pub fn clear_faults(&self) {
        self.with(|server, _| server.clear_faults());
    }

    /// Returns the faults that have not fired.
    pub fn pending_faults(&self) -> Vec<Fault> {
        self.with(|server, _| server.pending_faults())
    }

    /// Refuses new connections for this long. A refusal that ends later goes on, except that zero ends
    /// it at once.
    pub fn refuse_for(&self, duration: Duration) {
        self.with(|server, now| server.refuse_for(duration, now));
    }

    /// Makes the server reply to requests with `THROTTLED_OP` for this long, without executing them,
    /// as an overloaded server does. Zero ends it at once. Pings, authentication and the end of a
    /// session are exempt.
    pub fn throttle_for(&self, duration: Duration) {
        self.with(|server, now| server.throttle_for(duration, now));
    }

    /// Sets how the server treats new connections from now on.
    pub fn set_reception(&self, reception: Reception) {
        self.with(|server, _| server.set_reception(reception));
        self.shared.reception.notify_waiters();
    }

    /// Sets how the server treats new connections for this long. After that, the reception is
    /// [`Open`](Reception::Open).
    pub fn set_reception_for(&self, reception: Reception, duration: Duration) {
        self.with(|server, now| server.set_reception_for(reception, duration, now));
        self.shared.reception.notify_waiters();
    }

    /// Closes all connections, including frozen ones. The sessions continue.
    pub fn disconnect_all(&self) {
        self.with(Server::disconnect_all);
    }

    /// Cuts this member off from the others, so that it serves only reads, as a real server with
    /// `readonlymode.enabled` does. All its connections are closed.
    ///
    /// The other members go on. If all members are partitioned, there is no leader: sessions do not
    /// expire. The call does nothing if the member is already partitioned.
    pub fn partition(&self) {
        self.with(|server, now| server.partition(self.member, now));
    }

    /// Ends the partition of this member. All its connections are closed. If there was no leader,
    /// sessions continue with their full timeouts.
    pub fn heal(&self) {
        self.with(|server, now| server.heal(self.member, now));
    }

    /// Returns whether this member is partitioned.
    pub fn is_partitioned(&self) -> bool {
        self.with(|server, _| server.is_partitioned(self.member))
    }

    /// Makes this member one that led until now, while the others have elected another leader. It
    /// acknowledges pings, serves reads from its state at this time, and resumes the sessions that
    /// existed. It answers syncs until a client sends it a write or starts a session, which it never
    /// answers, and sends no events. Nothing of this renews a session at the other members, where all
    /// sessions continue with their full timeouts. After `notices_after`, it closes its connections
    /// and follows the others; real leaders take up to `syncLimit` ticks.
    ///
    /// The call does nothing if the member is partitioned.
    pub fn depose(&self, notices_after: Duration) {
        self.with(|server, now| server.depose(self.member, notices_after, now));
    }

    /// Returns the sessions that only this member knows, because it is partitioned.
    pub fn read_only_sessions(&self) -> Vec<SessionId> {
        self.with(|server, _| server.read_only_sessions(self.member))
    }

    /// Closes the connections of a session, including frozen ones. The session continues.
    pub fn disconnect(&self, session: SessionId) {
        self.with(|server, now| server.disconnect(session, now));
    }

    /// Makes each request wait for this long before the server processes it. The requests of a
    /// connection wait one after the other, pings included. Zero ends it.
    pub fn delay_requests(&self, delay: Duration) {
        self.with(|server, _| server.delay_requests(delay));
    }

    /// Makes the server reply to this many requests with `API_ERROR` without processing them; to
    /// all of them until [`reset`](Self::reset) if there is no number. A number leaves out pings.
    /// Recipes do not repeat what is refused in this way.
    pub fn fail_requests(&self, number: Option<usize>) {
        self.with(|server, _| server.fail_requests(number));
    }

    /// Makes the server process this many requests without replying; all of them until
    /// [`reset`](Self::reset) if there is no number. A number leaves out pings. The connections
    /// stay open, and watch events still arrive.
    pub fn withhold_replies(&self, number: Option<usize>) {
        self.with(|server, _| server.withhold_replies(number));
    }

    /// Sets how long after the leader's commit the other members learn of a write, instead of
    /// [`ServerConfig::lag`](crate::ServerConfig::lag). They learn of what has already been
    /// committed within this time too.
    pub fn set_lag(&self, lag: Duration) {
        self.with(|server, now| server.set_lag(lag, now));
    }

    /// Leaves the ensemble without a leader for this long, as during an election. All connections
    /// are closed. Meanwhile, only clients that accept a read-only server can connect, and no
    /// session expires. After that, all members are connected, even those that were partitioned
    /// before, and the sessions continue with their full timeouts, which a new leader restarts.
    ///
    /// The leader is the same as before, and its zxids continue in the same epoch.
    pub fn elect(&self, duration: Duration) {
        self.with(|server, now| server.elect(duration, now));
    }

    /// Ends everything that a test has made the server do wrong, except for pauses: disarms all
    /// faults, accepts connections and requests again, ends elections, partitions and the mistakes of
    /// deposed leaders, and restores the configured lag.
    pub fn reset(&self) {
        self.with(Server::reset);
        self.shared.reception.notify_waiters();
    }

    /// Closes the connections to this member. The sessions continue.
    pub fn disconnect_member(&self) {
        self.with(|server, now| server.disconnect_member(self.member, now));
    }

    /// Makes every member apply everything that has been committed.
    pub fn catch_up_all(&self) {
        self.with(Server::catch_up_all);
    }

    /// Expires a session, as if its timeout had passed, and closes its connection.
    pub fn expire(&self, session: SessionId) {
        self.with(|server, now| server.expire(session, now));
    }

    /// Makes the server of this session's connection lose its leader. Other connections are not
    /// affected: they are treated as connections to other servers. The call does nothing if the
    /// session is not connected.
    ///
    /// # Panics
    ///
    /// Panics if [`CutOff::unreported`] is longer than a tick.
    pub fn cut_off(&self, session: SessionId, cut_off: CutOff) {
        self.with(|server, now| server.cut_off(session, cut_off, now));
    }

    /// Pauses the server of this session's connection for this long. After the pause, it processes
    /// the requests that have arrived. The leader keeps running, and expires sessions whose timeout
    /// passes. The call does nothing if the session is not connected.
    pub fn pause_connection(&self, session: SessionId, duration: Duration) {
        self.with(|server, now| server.pause_connection(session, duration, now));
    }

    /// Pauses the whole server for this long. After the pause, it first expires the sessions that
    /// are due, and then processes requests. On real servers, the order depends on a race.
    pub fn pause(&self, duration: Duration) {
        self.with(|server, now| server.pause(duration, now));
    }

    /// Returns the sessions that have not ended.
    pub fn sessions(&self) -> Vec<SessionId> {
        self.with(|server, _| server.sessions())
    }

    /// Returns the last transaction that was applied.
    pub fn zxid(&self) -> Zxid {
        self.with(|server, _| server.zxid())
    }

    /// Returns the recorded requests in the order of arrival, without pings and handshakes.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.with(|server, _| server.requests())
    }

    /// Returns the recorded watch events in the order in which they were sent.
    pub fn events(&self) -> Vec<EventRecord> {
        self.with(|server, _| server.events())
    }

    /// Discards the requests and the watch events recorded so far.
    pub fn clear_requests(&self) {
        self.with(|server, _| server.clear_requests());
    }

    /// Returns the recorded transactions in the order of their zxid.
    pub fn commits(&self) -> Vec<CommitRecord> {
        self.with(|server, _| server.commits())
    }

    /// Returns the sorted names of the children, or `None` if the znode does not exist.
    pub fn children(&self, path: &str) -> Option<Vec<String>> {
        self.with(|server, _| server.children(path))
    }

    /// Returns the stat of a znode, or `None` if it does not exist.
    pub fn stat(&self, path: &str) -> Option<Stat> {
        self.with(|server, _| server.stat(path))
    }

    /// Returns the data of a znode, or `None` if it does not exist. Null data is returned as empty.
    pub fn data(&self, path: &str) -> Option<Bytes> {
        self.with(|server, _| server.data(path))
    }

    /// Returns all ephemerals and the sessions that own them, sorted by path.
    pub fn ephemerals(&self) -> Vec<(String, SessionId)> {
        self.with(|server, _| server.ephemerals())
    }

    /// Returns the number of watches. A persistent watch counts once.
    pub fn watch_count(&self) -> usize {
        self.with(|server, _| server.watch_count())
    }

    /// Does what is due, such as expiring sessions, and commits the write that a fault delays.
    ///
    /// Every change by an administrator ([`admin_create`](Self::admin_create) and the others) begins
    /// with this. So if a change depends on what the tree contains, call this before you look:
    /// otherwise the write that the change commits first may delete what you have seen.
    pub fn do_what_is_due(&self) {
        self.with(Server::do_what_is_due);
    }

    /// Creates a persistent znode, or an ephemeral if there is an owner. Everybody may do everything
    /// with it, and the parent must exist.
    ///
    /// # Panics
    ///
    /// Panics if the server refuses the change.
    pub fn admin_create(&self, path: &str, data: &[u8], ephemeral_owner: Option<SessionId>) {
        self.with(|server, now| server.admin_create(path, data, ephemeral_owner, now));
    }

    /// Deletes a znode. Returns false if the server refuses the delete.
    pub fn admin_delete(&self, path: &str) -> bool {
        self.with(|server, now| server.admin_delete(path, now))
    }

    /// Replaces the data of a znode.
    ///
    /// # Panics
    ///
    /// Panics if the server refuses the change.
    pub fn admin_set_data(&self, path: &str, data: &[u8]) {
        self.with(|server, now| server.admin_set_data(path, data, now));
    }

    /// Returns the access control list of a znode, or `None` if the znode does not exist.
    pub fn acl(&self, path: &str) -> Option<Vec<Acl>> {
        self.with(|server, _| server.acl(path))
    }

    /// Replaces the access control list of a znode, without its permission. Returns false if the
    /// server refuses that: the znode does not exist, or the list is not valid.
    ///
    /// Servers tell nobody that permissions have changed.
    pub fn admin_set_acl(&self, path: &str, acl: Vec<Acl>) -> bool {
        self.with(|server, now| server.admin_set_acl(path, acl, now))
    }

    /// Sets how many children a znode had in its lifetime, which is the next sequence number.
    ///
    /// # Panics
    ///
    /// Panics if the znode does not exist.
    pub fn set_create_count(&self, path: &str, creates: i32) {
        self.with(|server, now| server.set_create_count(path, creates, now));
    }

    /// Deletes the containers and znodes with a time to live that are due. The server also does
    /// this every [`reap_interval`](crate::ServerConfig::reap_interval).
    pub fn reap(&self) {
        self.with(Server::reap);
    }
}
