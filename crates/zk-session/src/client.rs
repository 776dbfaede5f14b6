//! The client: a cheap handle of a session, with one method for each operation.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a reply of another kind is a bug, whatever the kind"
)]

use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{
    Acl, CreateMode, DeleteRequest, ErrorCode, ReadRequest, Request, Response, SetAclRequest,
    SetDataRequest,
};
use tokio::sync::{oneshot, watch};

use crate::builder::ClientBuilder;
use crate::create::{CreateOptions, Created};
use crate::driver::janitor::Slot;
use crate::driver::shared::{Command, Shared};
use crate::error::{ConnectError, OpError};
use crate::lane::Lane;
use crate::machine::{EndCause, Operation, SessionState, Status, WatchId};
use crate::multi::{Multi, MultiError, MultiOutcome, outcomes};
use crate::op::Op;
use crate::path;
use crate::time::Time;
use crate::types::{SessionId, Stat, Version};
use crate::watcher::Watcher;

/// A handle of a client; clones share its session.
///
/// **Calls.** A method queues its request at once and returns a future of the answer
/// ([`Op`]). Requests reach the server in the order of calls, many of them in one write, and are
/// answered in that order.
///
/// **Connection loss.** When a connection ends, its unanswered requests fail with
/// [`OpError::ConnectionLoss`], which says whether a request may have been applied. None is ever
/// repeated here: replay is a decision, and recipes make it. Requests made without a connection
/// wait for the next one.
///
/// **Sessions.** The session survives connections. After it has expired, the client opens another
/// by itself; what belonged to the old one fails with [`OpError::SessionExpired`].
///
/// **End.** [`close`](Self::close) ends the session at once. It is also closed, in the background,
/// when the last handle is gone; watchers, lanes and locks count as handles.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

/// How a close ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "complete by definition")]
pub enum CloseOutcome {
    /// A server has confirmed that the session is over; its ephemerals are gone.
    Closed,
    /// No server has confirmed it. The session ends by itself after its timeout.
    Abandoned,
}

impl Client {
    /// Starts to describe a client of the servers in a connect string,
    /// `host:port,host:port/chroot`.
    pub fn builder(connect_string: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(connect_string.into())
    }

    /// Connects with default options.
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect`].
    pub async fn connect(connect_string: impl Into<String>) -> Result<Self, ConnectError> {
        Self::builder(connect_string).connect().await
    }

    pub(crate) fn from_shared(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Why the last connection ended, or could not be made: the server, and the cause. `None` if
    /// none has failed so far. For messages to people; it stays after the next connection.
    pub fn last_failure(&self) -> Option<String> {
        self.shared.seen.borrow().last_failure.clone()
    }

    /// Creates a znode, with the path that the server made of a sequential one, and its stat.
    ///
    /// After `ConnectionLoss(Unknown)` the znode may exist, or appear later.
    pub fn create(
        &self,
        path: &str,
        data: impl Into<Bytes>,
        options: impl Into<CreateOptions>,
    ) -> Op<Created> {
        let request = options.into().request(path, data.into());
        if let Err(error) = path::validate_for_create(path, request.mode.is_sequential()) {
            return Op::failed(error);
        }
        self.submit(Request::Create(request), |response| match response {
            Response::Create2(reply) => Created { path: reply.path, stat: reply.stat.into() },
            other => unexpected(&other),
        })
    }

    /// Deletes a znode without children; with a version, only if it has that.
    pub fn delete(&self, path: &str, version: Option<Version>) -> Op<()> {
        let version = Version::to_wire(version);
        let request = Request::Delete(DeleteRequest { path: path.into(), version });
        self.checked(path, request, |_| ())
    }

    /// Reads the stat of a znode; `None` if it does not exist.
    pub fn exists(&self, path: &str) -> Op<Option<Stat>> {
        if let Err(error) = path::validate(path) {
            return Op::failed(error);
        }
        let operation = Operation::new(Request::Exists(read(path, false)));
        Op::submit(&self.shared, operation, None, existence)
    }

    /// Reads the stat of a znode and watches it: for its creation if it does not exist, for
    /// changes and its deletion if it does.
    pub fn exists_and_watch(&self, path: &str) -> Op<(Option<Stat>, Watcher)> {
        self.watched(path, Request::Exists(read(path, true)), existence)
    }

    /// Reads data and stat. Data that is null on the server reads as empty.
    pub fn get_data(&self, path: &str) -> Op<(Bytes, Stat)> {
        self.checked(path, Request::GetData(read(path, false)), data_and_stat)
    }

    /// Reads data and stat and watches the znode for changes and its deletion.
    pub fn get_data_and_watch(&self, path: &str) -> Op<((Bytes, Stat), Watcher)> {
        let convert = |result: Result<_, OpError>| result.map(data_and_stat);
        self.watched(path, Request::GetData(read(path, true)), convert)
    }

    /// Replaces the data; with a version, only if the znode has that. The stat afterwards.
    pub fn set_data(
        &self,
        path: &str,
        data: impl Into<Bytes>,
        version: Option<Version>,
    ) -> Op<Stat> {
        let (data, version) = (Some(data.into()), Version::to_wire(version));
        let request = Request::SetData(SetDataRequest { path: path.into(), data, version });
        self.checked(path, request, |response| match response {
            Response::SetData(stat) => stat.into(),
            other => unexpected(&other),
        })
    }

    /// Lists the names of the children, in no particular order.
    pub fn get_children(&self, path: &str) -> Op<Vec<ByteString>> {
        self.checked(path, Request::GetChildren(read(path, false)), names)
    }

    /// Lists the names of the children and watches for children that come or go, and for the
    /// deletion of the znode itself.
    pub fn get_children_and_watch(&self, path: &str) -> Op<(Vec<ByteString>, Watcher)> {
        let convert = |result: Result<_, OpError>| result.map(names);
        self.watched(path, Request::GetChildren(read(path, true)), convert)
    }

    /// Lists the names of the children, and reads the stat of the znode itself.
    pub fn get_children_with_stat(&self, path: &str) -> Op<(Vec<ByteString>, Stat)> {
        self.checked(path, Request::GetChildren2(read(path, false)), names_and_stat)
    }

    /// Lists the names of the children, reads the stat of the znode itself, and watches as
    /// [`get_children_and_watch`](Self::get_children_and_watch) does.
    pub fn get_children_with_stat_and_watch(
        &self,
        path: &str,
    ) -> Op<((Vec<ByteString>, Stat), Watcher)> {
        let convert = |result: Result<_, OpError>| result.map(names_and_stat);
        self.watched(path, Request::GetChildren2(read(path, true)), convert)
    }

    /// Reads the access control list and the stat.
    pub fn get_acl(&self, path: &str) -> Op<(Vec<Acl>, Stat)> {
        self.checked(path, Request::GetAcl(path.into()), |response| match response {
            Response::GetAcl(reply) => (reply.acl, reply.stat.into()),
            other => unexpected(&other),
        })
    }

    /// Replaces the access control list; with a version, only if the list has that
    /// ([`Stat::aversion`]). The stat afterwards.
    pub fn set_acl(&self, path: &str, acl: Vec<Acl>, version: Option<Version>) -> Op<Stat> {
        let version = Version::to_wire(version);
        let request = Request::SetAcl(SetAclRequest { path: path.into(), acl, version });
        self.checked(path, request, |response| match response {
            Response::SetAcl(stat) => stat.into(),
            other => unexpected(&other),
        })
    }

    /// Waits until the server has applied everything its leader had committed when the sync came
    /// there. It is no write: a leader that was deposed without knowing it answers too
    /// (ZOOKEEPER-1675).
    pub fn sync(&self, path: &str) -> Op<()> {
        self.checked(path, Request::Sync(path.into()), |_| ())
    }

    /// Commits writes that happen together or not at all, with one outcome for each.
    pub fn commit(&self, multi: Multi) -> Op<Vec<MultiOutcome>, MultiError> {
        self.commit_within(None, multi)
    }

    /// As [`commit`](Self::commit), but for one session: when that is over, nothing is sent, and
    /// the commit fails with [`OpError::SessionExpired`].
    pub fn commit_in(&self, session: SessionId, multi: Multi) -> Op<Vec<MultiOutcome>, MultiError> {
        self.commit_within(Some(session), multi)
    }

    /// State of the client right now.
    pub fn state(&self) -> SessionState {
        self.shared.status().state
    }

    /// Everything that can be said of the session right now.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// The session, if there is one.
    pub fn session_id(&self) -> Option<SessionId> {
        self.shared.status().session
    }

    /// The client's time.
    pub fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// A stream of states. It yields the newest one; states in between may be skipped, but a
    /// changed session id always shows that one session ended and another began.
    pub fn states(&self) -> StateStream {
        StateStream { status: self.shared.status.clone() }
    }

    /// Opens a lane: for recipes.
    pub fn lane(&self) -> Lane {
        Lane::open(Arc::clone(&self.shared))
    }

    /// Reserves a slot with the janitor, for cleanup that must outlive its caller; waits while
    /// all are taken.
    pub async fn reserve_slot(&self) -> Slot {
        self.shared.janitor.reserve().await
    }

    /// Locks held, attempts and cleanups of this client at the moment.
    pub fn janitor_slots_busy(&self) -> usize {
        self.shared.janitor.busy()
    }

    /// A random 128-bit number, another one at each call.
    pub fn unique_id(&self) -> u128 {
        self.shared.unique_id()
    }

    /// Ends the session, and with it its ephemerals: guards are lost first, what waits is
    /// refused, what is in flight is answered, then the session is closed. Without a server this
    /// takes one session timeout at most.
    ///
    /// Cancel safe: the close goes on without the caller.
    pub async fn close(&self) -> CloseOutcome {
        let (sender, end) = oneshot::channel();
        let end = match self.shared.commands.send(Command::Close(sender)) {
            Ok(()) => end.await.ok(),
            Err(_) => None,
        };
        // Whoever comes late is told how it ended.
        match end.unwrap_or_else(|| *self.shared.end.lock().unwrap_or_else(PoisonError::into_inner))
        {
            EndCause::Closed | EndCause::Expired => CloseOutcome::Closed,
            EndCause::Abandoned | EndCause::GaveUp | EndCause::Swapped => CloseOutcome::Abandoned,
        }
    }

    /// Whether a znode exists, by its path on the server; `NO_NODE` if not.
    pub(crate) fn probe_chroot_znode(&self, path: &str) -> Op<()> {
        let operation = Operation::new(Request::Exists(read(path, false)));
        Op::submit_to_server(&self.shared, operation)
    }

    /// Creates a znode by its path on the server.
    pub(crate) fn create_chroot_znode(&self, path: &str) -> Op<()> {
        let options = CreateOptions::from(CreateMode::Persistent);
        let request = Request::Create(options.request(path, Bytes::new()));
        let operation = Operation::new(request);
        Op::submit_to_server(&self.shared, operation)
    }

    fn commit_within(
        &self,
        session: Option<SessionId>,
        multi: Multi,
    ) -> Op<Vec<MultiOutcome>, MultiError> {
        if let Some(error) = multi.invalid {
            return Op::failed(error);
        }
        let operation = Operation::new(Request::Multi(multi.ops));
        Op::submit_in(&self.shared, session, operation, |result| match result? {
            Response::Multi(results) => outcomes(results),
            other => unexpected(&other),
        })
    }

    fn submit<T: 'static>(
        &self,
        request: Request,
        convert: impl FnOnce(Response) -> T + Send + 'static,
    ) -> Op<T> {
        let operation = Operation::new(request);
        Op::submit(&self.shared, operation, None, |result| result.map(convert))
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

    /// An operation that leaves a watch, and the watcher that waits for it.
    fn watched<T: 'static>(
        &self,
        path: &str,
        request: Request,
        convert: impl FnOnce(Result<Response, OpError>) -> Result<T, OpError> + Send + 'static,
    ) -> Op<(T, Watcher)> {
        if let Err(error) = path::validate(path) {
            return Op::failed(error);
        }
        let owner = self.shared.fresh_id();
        let (sender, event) = oneshot::channel();
        // It exists before the request does, so no event can come too early for it.
        let shared = Arc::clone(&self.shared);
        let watcher = Watcher { shared, owner, path: path.into(), event };
        let operation = Operation::watched(request, WatchId { owner, local: 0 });
        Op::submit(&self.shared, operation, Some((owner, sender)), move |result| {
            Ok((convert(result)?, watcher))
        })
    }
}

/// A stream of states; see [`Client::states`].
#[derive(Clone, Debug)]
pub struct StateStream {
    status: watch::Receiver<Status>,
}

impl StateStream {
    /// Waits for the next change. `None` when the client has stopped and its last state was seen.
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<Status> {
        self.status.changed().await.ok()?;
        Some(*self.status.borrow_and_update())
    }

    /// The newest state, which counts as seen.
    pub fn current(&mut self) -> Status {
        *self.status.borrow_and_update()
    }
}

fn read(path: &str, watch: bool) -> ReadRequest {
    ReadRequest { path: path.into(), watch }
}

fn existence(result: Result<Response, OpError>) -> Result<Option<Stat>, OpError> {
    match result {
        Ok(Response::Exists(stat)) => Ok(Some(stat.into())),
        Ok(other) => unexpected(&other),
        Err(OpError::Server(ErrorCode::NO_NODE)) => Ok(None),
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

/// Replies are decoded by the opcode of their request, so no other kind can come.
fn unexpected<T>(response: &Response) -> T {
    unreachable!("the reply was decoded as another operation's: {response:?}")
}
