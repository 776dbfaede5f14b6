//! The client: a cheap handle to a session, with one method per operation.
//!
//! This file has the operations on a znode. The files beside it have the others.

#![expect(clippy::wildcard_enum_match_arm, reason = "a reply of any other kind is a bug")]

pub(crate) mod builder;
pub(crate) mod credentials;
mod ensemble;
mod exposure;
mod first_connection;
mod hosts;
mod parents;
mod queries;
mod rooted;
mod states;
mod terms;

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{
    Acl, DeleteRequest, ErrorCode, ReadRequest, Request, Response, SetAclRequest, SetDataRequest,
};
use tokio::sync::oneshot;

pub use self::states::StateStream;

use crate::chroot::translate::Root;
use crate::driver::command::{Command, WatchSender};
use crate::driver::janitor::Idle;
use crate::driver::lane_event::LaneEvent;
use crate::driver::shared::Shared;
use crate::error::{ConnectionFailure, HandOverError, OpError};
use crate::machine::inflight::write_of_nothing;
use crate::machine::{
    EndCause, Operation, OwnerId, SessionState, SessionTicket, Status, WatchNumber,
};
use crate::operation::create::{CreateOptions, Created};
use crate::operation::multi::{Multi, MultiError, MultiOutcome, outcomes};
use crate::operation::op::{Answer, Op};
use crate::operation::terms::Terms;
use crate::path;
use crate::recipe::lane::Lane;
use crate::report::health::Health;
use crate::report::stats::Stats;
use crate::time::Time;
use crate::types::{SessionId, Stat, Version};
use crate::watch::watcher::Watcher;
use crate::watchdog::{Watchdog, unless_overdue};

/// A handle to a client. Clones share one session.
///
/// The methods, in the order in which you meet them:
///
/// - connecting: [`connect`](Self::connect), [`builder`](Self::builder)
/// - znodes: [`create`](Self::create), [`create_with_parents`](Self::create_with_parents),
///   [`delete`](Self::delete), [`exists`](Self::exists)
/// - data: [`get_data`](Self::get_data), [`set_data`](Self::set_data)
/// - children: [`get_children`](Self::get_children),
///   [`get_children_with_stat`](Self::get_children_with_stat),
///   [`count_descendants`](Self::count_descendants), [`get_ephemerals`](Self::get_ephemerals)
/// - permissions: [`get_acl`](Self::get_acl), [`set_acl`](Self::set_acl),
///   [`who_am_i`](Self::who_am_i), [`exposure`](Self::exposure)
/// - credentials: [`add_auth`](Self::add_auth), [`replace_auth`](Self::replace_auth)
/// - several operations together: [`commit`](Self::commit), [`commit_in`](Self::commit_in),
///   [`multi_read`](Self::multi_read)
/// - one change: [`get_data_and_watch`](Self::get_data_and_watch), and likewise for the other reads
/// - all changes: [`watch`](Self::watch), [`check_watches`](Self::check_watches),
///   [`remove_watches`](Self::remove_watches)
/// - newer data: [`sync`](Self::sync)
/// - other handles of the same session: [`rooted_at`](Self::rooted_at),
///   [`in_session`](Self::in_session), [`with_limits`](Self::with_limits)
/// - time limits: [`with_timeout`](Self::with_timeout), [`Op::timeout`]
/// - the session: [`state`](Self::state), [`states`](Self::states), [`status`](Self::status),
///   [`session_id`](Self::session_id), [`now`](Self::now)
/// - operators: [`health`](Self::health), [`stats`](Self::stats),
///   [`last_failure`](Self::last_failure)
/// - the end: [`close`](Self::close), [`close_within`](Self::close_within),
///   [`hand_over`](Self::hand_over)
/// - the ensemble: [`set_hosts`](Self::set_hosts), [`get_config`](Self::get_config),
///   [`reconfig`](Self::reconfig)
///
/// **Calls.** Each method enqueues its request at once and returns a future of the reply ([`Op`]).
/// Requests reach the server, and complete, in the order of these calls. One write can carry many
/// of them. Paths are absolute, and below the chroot of the connect string, or below the root of the
/// handle ([`rooted_at`](Self::rooted_at)).
///
/// **Cancellation.** Dropping the future discards the reply. A request that was not sent by then
/// is never sent; any other may take effect.
///
/// **Errors.** Each method names the codes with which servers refuse it
/// ([`OpError::Server`]). In addition, any operation may be refused with `NO_AUTH` if an access
/// control list forbids it, and fails with [`OpError::InvalidPath`] if its path is malformed.
///
/// **Connection loss.** When a connection is lost, its pending requests fail with
/// [`OpError::ConnectionLoss`], which says whether a request may have been applied. The client
/// never repeats a request; recipes decide when to repeat one. Requests made without a connection
/// wait for the next one.
///
/// **Sessions.** The session survives lost connections. After it has expired, the client opens
/// another session, and requests of the old session fail with [`OpError::SessionExpired`].
///
/// **Closing.** [`close`](Self::close) ends the session at once. When the last handle is dropped,
/// the session is closed in the background. Watchers, lanes and locks count as handles.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    terms: Option<Arc<Terms>>,
}

/// The result of closing a client.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum CloseOutcome {
    /// A server has confirmed the end of the session, so its ephemeral znodes are deleted. If the
    /// connection was lost meanwhile and the request was repeated, they may be deleted a moment
    /// later: servers call a session expired while they commit its end.
    Closed,
    /// No server has confirmed the end of the session. The session expires after its timeout.
    Abandoned,
}

impl Client {
    pub(crate) fn from_shared(shared: Arc<Shared>) -> Self {
        Self { shared, terms: None }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns why the last connection was lost or could not be opened. Returns `None` if that has
    /// never happened. A later successful connection does not clear this value.
    ///
    /// If the session's task should have run at least a second ago and has not, that is the failure
    /// ([`FailureCause::NotRun`](crate::FailureCause::NotRun)).
    pub fn last_failure(&self) -> Option<ConnectionFailure> {
        self.shared.last_failure()
    }

    /// Returns the access control list with which the znode at this path is created if it gets no list
    /// of its own. See [`ClientBuilder::default_acl`](crate::ClientBuilder::default_acl).
    pub fn default_acl(&self, path: &str) -> Vec<Acl> {
        self.shared.access.default_acl(&self.shared.chroot, path)
    }

    /// Creates a znode. Returns its path, including the number of a sequential znode, and its
    /// metadata.
    ///
    /// Fails with `NODE_EXISTS`, with `NO_NODE` if the parent does not exist, and with
    /// `NO_CHILDREN_FOR_EPHEMERALS` if the parent is ephemeral. After `ConnectionLoss(Unknown)` the
    /// znode may exist, or may still be created.
    pub fn create(
        &self,
        path: &str,
        data: impl Into<Bytes>,
        options: impl Into<CreateOptions>,
    ) -> Op<Created> {
        let request = options.into().request(path, data.into(), || self.default_acl(path));
        if let Err(error) = path::validate_for_create(path, request.mode.is_sequential()) {
            return Op::failed(error);
        }
        self.submit(Request::Create(request), |response| match response {
            Response::Create2(reply) => Created { path: reply.path, stat: reply.stat.into() },
            other => unexpected(&other),
        })
    }

    /// Deletes a znode, which must have no children. If a version is given, the znode must have
    /// that version.
    ///
    /// Fails with `NO_NODE`, `NOT_EMPTY` or `BAD_VERSION`.
    pub fn delete(&self, path: &str, version: Option<Version>) -> Op<()> {
        let version = version.unwrap_or(Version::ANY);
        let request = Request::Delete(DeleteRequest { path: path.into(), version });
        self.checked(path, request, |_| ())
    }

    /// Reads the metadata of a znode. Returns `None` if it does not exist.
    pub fn exists(&self, path: &str) -> Op<Option<Stat>> {
        if let Err(error) = path::validate(path) {
            return Op::failed(error);
        }
        let operation = Operation::new(Request::Exists(read(path, false)));
        self.enqueue(Root::Client, operation, None, |answer| existence(answer.result))
    }

    /// Reads the metadata of a znode and watches it. If the znode exists, the watch fires when it
    /// is changed or deleted, and otherwise when it is created.
    pub fn exists_and_watch(&self, path: &str) -> Op<(Option<Stat>, Watcher)> {
        self.watched(path, Request::Exists(read(path, true)), existence)
    }

    /// Reads the data and metadata of a znode. Data that is null on the server is returned as
    /// empty. Fails with `NO_NODE` if the znode does not exist.
    pub fn get_data(&self, path: &str) -> Op<(Bytes, Stat)> {
        self.checked(path, Request::GetData(read(path, false)), data_and_stat)
    }

    /// Reads the data and metadata of a znode and watches it. The watch fires when the znode is
    /// changed or deleted. If the znode does not exist, the call fails with `NO_NODE` and sets no
    /// watch.
    pub fn get_data_and_watch(&self, path: &str) -> Op<((Bytes, Stat), Watcher)> {
        let convert = |result: Result<_, OpError>| result.map(data_and_stat);
        self.watched(path, Request::GetData(read(path, true)), convert)
    }

    /// Replaces the data of a znode. If a version is given, the znode must have that version.
    /// Returns the new metadata.
    ///
    /// Fails with `NO_NODE` or `BAD_VERSION`.
    pub fn set_data(
        &self,
        path: &str,
        data: impl Into<Bytes>,
        version: Option<Version>,
    ) -> Op<Stat> {
        let data = Some(data.into());
        let version = version.unwrap_or(Version::ANY);
        let request = Request::SetData(SetDataRequest { path: path.into(), data, version });
        self.checked(path, request, |response| match response {
            Response::SetData(stat) => stat.into(),
            other => unexpected(&other),
        })
    }

    /// Lists the names of a znode's children, in no particular order. Fails with `NO_NODE` if the
    /// znode does not exist.
    pub fn get_children(&self, path: &str) -> Op<Vec<ByteString>> {
        self.checked(path, Request::GetChildren(read(path, false)), names)
    }

    /// Lists the names of a znode's children and watches them. The watch fires when a child is
    /// created or deleted, or the znode itself is deleted.
    pub fn get_children_and_watch(&self, path: &str) -> Op<(Vec<ByteString>, Watcher)> {
        let convert = |result: Result<_, OpError>| result.map(names);
        self.watched(path, Request::GetChildren(read(path, true)), convert)
    }

    /// Lists the names of a znode's children, in no particular order, and reads the znode's own
    /// metadata. Fails with `NO_NODE` if the znode does not exist.
    pub fn get_children_with_stat(&self, path: &str) -> Op<(Vec<ByteString>, Stat)> {
        self.checked(path, Request::GetChildren2(read(path, false)), names_and_stat)
    }

    /// Lists the names of a znode's children, reads the znode's own metadata, and watches like
    /// [`get_children_and_watch`](Self::get_children_and_watch).
    pub fn get_children_with_stat_and_watch(
        &self,
        path: &str,
    ) -> Op<((Vec<ByteString>, Stat), Watcher)> {
        let convert = |result: Result<_, OpError>| result.map(names_and_stat);
        self.watched(path, Request::GetChildren2(read(path, true)), convert)
    }

    /// Reads the access control list and the metadata of a znode. Fails with `NO_NODE` if the znode
    /// does not exist.
    pub fn get_acl(&self, path: &str) -> Op<(Vec<Acl>, Stat)> {
        self.checked(path, Request::GetAcl(path.into()), |response| match response {
            Response::GetAcl(reply) => (reply.acl, reply.stat.into()),
            other => unexpected(&other),
        })
    }

    /// Replaces the access control list of a znode. If a version is given, the list must have that
    /// version ([`Stat::aversion`]). Returns the new metadata.
    ///
    /// Fails with `NO_NODE`, `BAD_VERSION` or `INVALID_ACL`.
    pub fn set_acl(&self, path: &str, acl: Vec<Acl>, version: Option<Version>) -> Op<Stat> {
        let version = version.unwrap_or(Version::ANY);
        let request = Request::SetAcl(SetAclRequest { path: path.into(), acl, version });
        self.checked(path, request, |response| match response {
            Response::SetAcl(stat) => stat.into(),
            other => unexpected(&other),
        })
    }

    /// Waits until the session's server has applied everything that was committed before the call,
    /// by any client. Later reads of this session are not older, even on other servers.
    ///
    /// It commits a write that changes nothing, so it costs the ensemble as much as a small write. It
    /// needs no permission. If the connection is lost, call it again.
    ///
    /// ```
    /// # async fn read(client: &zk_session::Client) -> Result<(), zk_session::OpError> {
    /// // Another client has written the znode, and has told this one to read it.
    /// client.catch_up().await?;
    /// let (data, _) = client.get_data("/config").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn catch_up(&self) -> Op<()> {
        // Whether the check passes does not matter: a failed one is committed too.
        self.submit(write_of_nothing(), |_| ())
    }

    /// Sends a sync, which asks the server to apply what its leader has committed.
    ///
    /// That is all a sync does, and it is not always enough; [`catch_up`](Self::catch_up) is. A
    /// leader replies to the syncs of its own clients at once, although it may not have applied what
    /// it has committed and what clients of other servers have seen (`CommitProcessor.needCommit` in
    /// ZooKeeper 3.5 to 3.9). A leader that was deposed but does not know it yet also replies
    /// (ZOOKEEPER-1675).
    pub fn sync(&self, path: &str) -> Op<()> {
        self.checked(path, Request::Sync(path.into()), |_| ())
    }

    /// Commits writes together or not at all. Returns one result per write.
    ///
    /// If the server refuses one of them, none is applied, and the error is
    /// [`MultiError::Refused`].
    pub fn commit(&self, multi: Multi) -> Op<Vec<MultiOutcome>, MultiError> {
        if let Some(error) = multi.invalid {
            return Op::failed(error);
        }
        let operation =
            Operation::new(Request::Multi(multi.into_ops(|path| self.default_acl(path))));
        self.enqueue(Root::Client, operation, None, |answer| match answer.result? {
            Response::Multi(results) => outcomes(results, answer.refused),
            other => unexpected(&other),
        })
    }

    /// Like [`commit`](Self::commit), but only in the given session. If that session has ended,
    /// nothing is sent and the commit fails with [`OpError::SessionExpired`]. For other operations, see
    /// [`in_session`](Self::in_session).
    pub fn commit_in(&self, session: SessionId, multi: Multi) -> Op<Vec<MultiOutcome>, MultiError> {
        self.in_session(session).commit(multi)
    }

    /// Returns the current state of the client.
    pub fn state(&self) -> SessionState {
        self.shared.status().state
    }

    /// Returns a snapshot of the session.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Returns the current session, if there is one.
    pub fn session_id(&self) -> Option<SessionId> {
        self.shared.status().session
    }

    /// Returns the current time of the client's clock.
    pub fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// Returns a stream of snapshots. It yields the newest snapshot and may skip states in between,
    /// but a changed session id always shows that one session has ended and another has begun.
    pub fn states(&self) -> StateStream {
        StateStream::new(&self.shared.ends.status)
    }

    /// Ends the session, which deletes its ephemeral znodes. Guards are lost first. Then waiting
    /// requests are refused, requests in flight complete, and the session is closed. If no server
    /// can be reached, this takes at most one session timeout. If the client's runtime is blocked or
    /// nobody drives it, it takes one second longer: the result is [`CloseOutcome::Abandoned`], and
    /// the session is closed when the runtime runs again.
    ///
    /// Cancel safe: the session is closed even if the future is dropped.
    pub async fn close(&self) -> CloseOutcome {
        let (sender, end) = oneshot::channel();
        self.shared.send(Command::Close(sender));
        let deadline = self.now() + self.status().timeout;
        let end = unless_overdue(deadline, &self.shared.clock, end).await;
        let Some(end) = end else { return CloseOutcome::Abandoned };
        // If the task ended earlier, it left the result for later callers.
        match end.unwrap_or_else(|_| self.shared.ends.last_end.get()) {
            EndCause::Closed | EndCause::Expired => CloseOutcome::Closed,
            EndCause::Abandoned | EndCause::GaveUp | EndCause::Swapped => CloseOutcome::Abandoned,
        }
    }

    /// Closes the client like [`close`](Self::close), and waits for at most this time, which may be
    /// zero. Afterwards the client goes on closing the session, as long as its runtime runs.
    ///
    /// A service that has to stop while no server is reachable cannot wait for a session timeout:
    /// use a limit that is shorter than the time until the service is killed. If the process ends
    /// after [`CloseOutcome::Abandoned`], its locks are free after the session timeout.
    ///
    /// The limit holds even if the client's runtime is blocked. Cancel safe: the session is closed
    /// even if the future is dropped.
    pub async fn close_within(&self, limit: Duration) -> CloseOutcome {
        let deadline = self.now() + limit;
        let outcome = self.before(deadline, self.close()).await;
        outcome.unwrap_or(CloseOutcome::Abandoned)
    }

    /// Stops this client without ending its session, so that another client can continue it, in this
    /// process or another one: give the ticket to
    /// [`ClientBuilder::resume`](crate::ClientBuilder::resume).
    ///
    /// First, the client waits for what recipes have to remove: the znodes of guards that were
    /// dropped, of acquires that were cancelled, of writes that were repeated; a removal that a server
    /// refuses is retried meanwhile. If the reply to a create of a lock was lost, the client
    /// reconnects once, and looks for what the create may have left. It waits for at most one session
    /// timeout. Nobody could delete these znodes later, and they would block others for as long as
    /// the session lives. Locks that are held, acquires that wait, memberships, leases of work items
    /// and places in double barriers are not ended: if there are any, the hand-over is refused, and
    /// the client goes on. Release them first. New acquires wait meanwhile.
    ///
    /// Then waiting requests are refused, requests in flight complete, and the connection is closed.
    /// If it ends before, the outcome of the requests in flight is unknown, and the hand-over
    /// continues. It takes at most another session timeout. All handles of this client are closed
    /// afterwards.
    ///
    /// Other ephemeral znodes stay. Watches are not handed over.
    ///
    /// The other client has to connect within the session timeout. Do not use the ticket twice.
    ///
    /// # Errors
    ///
    /// [`HandOverError::Unfinished`] with the paths of recipes, if they still use the session, or if
    /// the client has to look for what a create may have left, and no server answers in time. The
    /// client goes on as before. [`HandOverError::NoSession`] if there is no session.
    /// [`HandOverError::RuntimeStopped`] if the client's runtime is blocked or nobody drives it.
    ///
    /// Not cancel safe: if the future is dropped, the client may stop and the ticket is lost, so the
    /// session expires.
    pub async fn hand_over(&self) -> Result<SessionTicket, HandOverError> {
        let within = self.status().timeout;
        let deadline = self.now() + within;
        let idle = self.before(deadline, self.finish_duties()).await;
        let mut paths = self.shared.janitor.duties();
        paths.append(&mut self.shared.janitor.sweeps());
        let is_open = !self.status().state.is_final() && self.status().session.is_some();
        if is_open && (idle.is_none() || !paths.is_empty()) {
            let seen = |path: String| self.shared.chroot.to_client(&path.into()).to_string();
            let paths = paths.into_iter().map(seen).collect();
            return Err(HandOverError::Unfinished { within, paths });
        }
        let (sender, ticket) = oneshot::channel();
        self.shared.send(Command::HandOver(sender));
        let deadline = self.now() + within;
        // The slots stay taken until then, so that nobody begins something else.
        let ticket = unless_overdue(deadline, &self.shared.clock, ticket).await;
        let ticket = ticket.ok_or(HandOverError::RuntimeStopped)?;
        ticket.ok().flatten().ok_or(HandOverError::NoSession)
    }

    /// Waits until the janitor has nothing to do. Until the result is dropped, nobody begins anything.
    async fn finish_duties(&self) -> Idle {
        let janitor = &self.shared.janitor;
        let idle = janitor.idle().await;
        // A removal that was refused pauses without a slot.
        janitor.done().await;
        // A session that has ended has taken its znodes with it.
        let is_open = !self.status().state.is_final() && self.status().session.is_some();
        if is_open && !janitor.sweeps().is_empty() {
            // What a lost request has left shows after a reconnect.
            self.shared.send(Command::Reconnect);
            janitor.swept().await;
            // A removal that a sweep has begun may have been refused.
            janitor.done().await;
        }
        idle
    }

    /// Waits for a future until the deadline. Returns `None` if it was not ready by then.
    async fn before<T>(&self, deadline: Time, future: impl Future<Output = T>) -> Option<T> {
        let mut alarm = Lane::open(Arc::clone(&self.shared));
        alarm.wake_at(deadline);
        let mut watchdog = Watchdog::of(&self.shared.clock);
        let mut future = pin!(future);
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            // The alarm follows the client's clock, which may be virtual, and the watchdog needs no
            // runtime.
            while let Poll::Ready(event) = alarm.poll_next(cx) {
                if event == LaneEvent::Stopped {
                    break;
                }
            }
            watchdog.poll(cx, self.now(), deadline).map(|()| None)
        })
        .await
    }

    /// Returns what an operator asks first: whether a server answers, which one, since when, and
    /// how many operations wait.
    ///
    /// It reads only what the client knows already, and sends nothing, so a probe may call it at
    /// any rate. See [`Health::is_ready`].
    pub fn health(&self) -> Health {
        Health::of(&self.shared)
    }

    /// Returns counters of what the client has done: requests and their latency by operation, bytes,
    /// connections, sessions, watches.
    ///
    /// It reads only what the client knows already, and sends nothing. With the feature `metrics`,
    /// the same numbers are exported through the `metrics` facade.
    pub fn stats(&self) -> Stats {
        let pending = self.shared.ends.queued.total();
        Stats { pending, ..self.shared.ends.totals.read() }
    }

    fn submit<T: 'static>(
        &self,
        request: Request,
        convert: impl FnOnce(Response) -> T + Send + 'static,
    ) -> Op<T> {
        let operation = Operation::new(request);
        self.enqueue(Root::Client, operation, None, |answer| answer.result.map(convert))
    }

    /// Submits an operation on the terms of this handle.
    pub(crate) fn enqueue<T, E: From<OpError>>(
        &self,
        root: Root,
        operation: Operation,
        watcher: Option<(OwnerId, WatchSender)>,
        convert: impl FnOnce(Answer) -> Result<T, E> + Send + 'static,
    ) -> Op<T, E> {
        Op::submit(&self.shared, self.terms.as_deref(), root, operation, watcher, convert)
    }

    fn checked<T: 'static>(
        &self,
        path: &str,
        request: Request,
        convert: impl FnOnce(Response) -> T + Send + 'static,
    ) -> Op<T> {
        match path::validate(path) {
            Ok(()) => self.submit(request, convert),
            Err(error) => Op::failed(error),
        }
    }

    /// Submits an operation that sets a watch. Its result includes the watcher.
    fn watched<T: 'static>(
        &self,
        path: &str,
        request: Request,
        convert: impl FnOnce(Result<Response, OpError>) -> Result<T, OpError> + Send + 'static,
    ) -> Op<(T, Watcher)> {
        if let Err(error) = path::validate(path) {
            return Op::failed(error);
        }
        self.watched_from(Root::Client, path, request, convert)
    }

    /// Like [`watched`](Self::watched), for a path that is valid and has this root. The watcher
    /// reports `path`.
    fn watched_from<T: 'static>(
        &self,
        root: Root,
        path: &str,
        request: Request,
        convert: impl FnOnce(Result<Response, OpError>) -> Result<T, OpError> + Send + 'static,
    ) -> Op<(T, Watcher)> {
        let owner = self.shared.fresh_owner();
        let (sender, event) = oneshot::channel();
        // Created before the request is sent, so that no event can arrive before the watcher
        // exists.
        let shared = Arc::clone(&self.shared);
        let watcher = Watcher { shared, owner, path: path.into(), event };
        let operation = Operation::watched(request, WatchNumber::FIRST);
        let recipient = Some((owner, WatchSender::Once(sender)));
        self.enqueue(root, operation, recipient, move |answer| {
            Ok((convert(answer.result)?, watcher))
        })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("hosts", &self.shared.hosts)
            .field("chroot", &self.shared.chroot.as_str())
            .field("state", &self.state())
            .field("session", &self.session_id())
            .finish_non_exhaustive()
    }
}

fn read(path: &str, watch: bool) -> ReadRequest {
    ReadRequest { path: path.into(), watch }
}

fn existence(result: Result<Response, OpError>) -> Result<Option<Stat>, OpError> {
    match result {
        Ok(Response::Exists(stat)) => Ok(Some(stat.into())),
        Ok(other) => unexpected(&other),
        Err(OpError::Server { code: ErrorCode::NO_NODE, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn data_and_stat(response: Response) -> (Bytes, Stat) {
    match response {
        Response::GetData(reply) => (reply.data.unwrap_or_default(), reply.stat.into()),
        other => unexpected(&other),
    }
}

fn names(response: Response) -> Vec<ByteString> {
    match response {
        Response::GetChildren(names) => names.into(),
        other => unexpected(&other),
    }
}

fn names_and_stat(response: Response) -> (Vec<ByteString>, Stat) {
    match response {
        Response::GetChildren2(reply) => (reply.children.into(), reply.stat.into()),
        other => unexpected(&other),
    }
}

/// Panics, because replies are decoded by the opcode of their request: a reply of any other kind is
/// a bug.
fn unexpected<T>(response: &Response) -> T {
    unreachable!("the reply was decoded as that of another operation: {response:?}")
}
