//! The guard: what can be said of a lock that was obtained.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::oneshot;
use zk_session::{Multi, MultiOutcome, SessionId};

use crate::error::{LockError, LostReason};
use crate::kind::{self, Fenced, Kind, Queued};
use crate::machine::PAUSE;
use crate::machine::release::Released;
use crate::run::body::Run;
use crate::run::hold::{Downgraded, Hold, Parts, Proof, ReleaseFailure, Wish};
use crate::run::{pause, replay};
use crate::transaction::{self, TransactionError};

/// A lock that is held.
///
/// # What a lock cannot protect
///
/// A process may be stopped between looking at its guard and doing what the lock protects, for
/// longer than any timeout. Nothing on this side of the resource can prevent that. What is stored
/// in ZooKeeper can be written in a [`transaction`](Self::transaction), which is committed only
/// while the lock is held. Other resources that can compare should be given the
/// [`fencing_token`](Self::fencing_token) with every write, and refuse a write with a lower token
/// than they have seen. For all others the guard makes the
/// gap as small as it can be made, and says honestly what it knows ([`state`](Self::state)).
///
/// # Lost locks
///
/// A guard is lost when its znode is gone, when its session has ended, or when its deadline has
/// passed: the end of the lease ([`remaining`](Self::remaining)), or without one a session timeout
/// after the newest acknowledged request was sent. A lost guard stays lost, and its znode is
/// removed as soon as a server is reachable. While the connection is down, the lock is *at risk*:
/// go on until it is lost, or stop, as suits the work.
///
/// # Release
///
/// [`release`](Self::release) says how it ended. Dropping the guard releases too, in the
/// background: it never blocks and works anywhere, also outside a runtime. After the runtime has
/// shut down, the lock is free when the session expires.
///
/// # Kinds
///
/// `K` is the kind of lock, and decides what there is besides: a
/// [`fencing_token`](Self::fencing_token) for those who exclude everybody, a
/// [`transaction`](Self::transaction) for those who stand in a queue, and
/// [`downgrade`](Self::downgrade) for a [`WriteGuard`].
#[must_use = "a dropped guard releases the lock"]
pub struct Guard<K = kind::Fair> {
    hold: Arc<Hold>,
    /// Gone once the release is under way. Dropped without a wish, it is a wish all the same.
    wish: Option<oneshot::Sender<Wish>>,
    /// Shows to views that there is a guard. Others keep the hold for a while.
    presence: Arc<()>,
    kind: PhantomData<fn() -> K>,
}

/// A [`RwLock`](crate::RwLock) that is held for reading, perhaps together with other readers.
pub type ReadGuard = Guard<kind::Read>;

/// A [`RwLock`](crate::RwLock) that is held for writing.
pub type WriteGuard = Guard<kind::Write>;

/// An [`ExclusiveLock`](crate::ExclusiveLock) that is held.
pub type ExclusiveGuard = Guard<kind::Exclusive>;

/// State of a lock that was obtained.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "complete by definition")]
pub enum LockState {
    /// Connected to a read-write server in the session that created the znode, the znode is not
    /// known to be gone, an acknowledgement is not overdue, and the guard deadline lies ahead.
    /// With a lease, nobody else can have the lock, as far as clocks and the servers'
    /// configuration are as assumed. Without one, a server that is cut off from its leader may go
    /// on acknowledging for a while after the leader has expired the session.
    Held,
    /// Neither a proof that it is lost nor a fresh one that it is held: disconnected, resumed and
    /// not yet proven, an acknowledgement is overdue, or there is no lease yet because the session
    /// has been idle.
    AtRisk,
    /// Lost, for ever: somebody else may hold the lock.
    Lost(LostReason),
}

/// A number that grows with every holder of a lock: the zxid of the transaction that created its
/// znode.
///
/// It is monotonic over the whole ensemble, also when the directory of the lock is deleted and
/// made again, and over changes of the leader. It goes back when the ensemble is restored from a
/// backup.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FencingToken(i64);

/// A view of a lock that was obtained, for those who do not own it. It keeps nothing alive, and can
/// be cloned.
#[derive(Clone)]
pub struct LockStatus {
    hold: Weak<Hold>,
    guard: Weak<()>,
}

/// Why a writer did not become a reader.
#[derive(Debug, Error)]
#[error("the lock was not downgraded: {error}")]
#[non_exhaustive]
pub struct DowngradeError {
    /// What went wrong.
    #[source]
    pub error: LockError,
    /// The lock, which is held for writing as before, unless it is lost. Dropping it releases.
    pub guard: Option<WriteGuard>,
}

impl<K> Guard<K> {
    /// Waits until there is a lease, if there is none yet.
    pub(crate) fn first_held(&self) -> impl Future<Output = Result<(), LostReason>> + '_ {
        self.hold.first_held()
    }

    pub(crate) fn new((hold, wish): Parts) -> Self {
        Self { hold, wish: Some(wish), presence: Arc::default(), kind: PhantomData }
    }
}

impl<K: Kind> Guard<K> {
    /// State of the lock right now, computed when asked for.
    pub fn state(&self) -> LockState {
        self.hold.state()
    }

    /// A view of the lock for those who do not own it.
    pub fn status(&self) -> LockStatus {
        LockStatus { hold: Arc::downgrade(&self.hold), guard: Arc::downgrade(&self.presence) }
    }

    /// Waits until the lock is lost. The wake-up may come late, under load or after a pause of the
    /// process; [`state`](Self::state) knows at once.
    ///
    /// A lost **connection** alone ends nothing: the lock is at risk, and lost when its deadline
    /// passes or a server says so. After a release or a drop of the guard it waits for ever.
    ///
    /// **Cancel safe.** It can be waited for any number of times, also by others than the owner.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        self.hold.lost()
    }

    /// How long from now nobody else can get the lock, even if nothing more is heard of any server.
    /// `None` if there is no lease; zero if the lock is lost.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
    /// # let address = server.listen("127.0.0.1:0").await?;
    /// use std::time::Duration;
    /// # use zk_recipes::{Client, FairLock};
    ///
    /// // The servers have the tick of the sample configuration, 2 s.
    /// let timeout = Duration::from_secs(30);
    /// let client = Client::builder(address.to_string()).session_timeout(timeout).connect().await?;
    /// let guard = FairLock::new(&client, "/locks/billing")?.acquire().await?;
    ///
    /// let is_enough = guard.remaining().is_some_and(|left| left > Duration::from_secs(2));
    /// assert!(is_enough, "begin nothing that takes two seconds");
    /// # Ok(()) }
    /// ```
    ///
    /// The number counts down, and goes up again as acknowledgements come in. [`lost`](Self::lost)
    /// is due no later than the newest number says, if nobody acknowledges any more: the lock is
    /// then lost by our clock, before the ensemble may give it to another.
    ///
    /// **It holds for** servers that are cut off from each other or stand still, elections,
    /// processes that are frozen and clocks that run up to 5 % apart, if the
    /// [`Lease`](crate::Lease) is that of the servers. It does not hold for somebody who deletes
    /// the znode, or ends the session, by hand.
    ///
    /// **There is no lease yet** right after the grant, if the session has been idle: it takes about
    /// one and a half ticks of the servers to make one, and the lock is at risk until then.
    ///
    /// **There is no lease** if the session timeout that the servers have granted is too short for
    /// it: with the default, below 3.3 s. Then the guard is lost when no server has
    /// acknowledged the session for a whole session timeout, which can be too late; see
    /// [`Status::guard_deadline`](zk_session::Status::guard_deadline).
    ///
    /// **No lease protects** what is done after looking at it: the process may be stopped in
    /// between. See [`transaction`](Self::transaction) and [`fencing_token`](Self::fencing_token).
    pub fn remaining(&self) -> Option<Duration> {
        // The deadline first: it is one of this lock if the lock is not lost afterwards.
        let deadline = self.hold.client.status().lease_deadline();
        match self.state() {
            LockState::Lost(_) => Some(Duration::ZERO),
            LockState::Held | LockState::AtRisk => {
                // One that ended before the lock was granted is none.
                let left = deadline?.saturating_since(self.hold.client.now());
                (!left.is_zero()).then_some(left)
            }
        }
    }

    /// Proves that the lock is held, by a write that is committed only if the znode exists. When
    /// it returns, the lock was held at some moment since the call, and is not at risk for the want
    /// of a proof.
    ///
    /// **Connection loss** is replayed. **Cancel safe.**
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`]; [`LockError::Refused`] if the access control list denies reading the
    /// znode; [`LockError::Closed`] or [`LockError::AuthFailed`] if the client has stopped.
    pub async fn validate(&self) -> Result<(), LockError> {
        loop {
            if let LockState::Lost(reason) = self.state() {
                return Err(LockError::Lost(reason));
            }
            let hold = &self.hold;
            let reply = replay(&hold.client, Some(hold.session), hold.proof(None)).await;
            match hold.proven(reply.results) {
                Proof::Held => {
                    hold.prove(reply.connection);
                    break;
                }
                Proof::Lost(reason) => hold.lose(reason),
                Proof::Later => pause(&hold.client, PAUSE).await,
                Proof::Open => {}
                Proof::Refused(error) => {
                    return Err(LockError::definite(error, "check", &hold.path));
                }
            }
        }
        match self.state() {
            LockState::Lost(reason) => Err(LockError::Lost(reason)),
            LockState::Held | LockState::AtRisk => Ok(()),
        }
    }

    /// Runs a body of work as long as the lock is not lost, and drops it when it is.
    ///
    /// The state is looked at before each poll of the body and after it. So a body whose last poll
    /// ended when the lock was lost is reported as stopped, and its output is dropped.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
    /// # let address = server.listen("127.0.0.1:0").await?;
    /// # let client = zk_recipes::Client::connect(address.to_string()).await?;
    /// # let guard = zk_recipes::FairLock::new(&client, "/locks/billing")?.acquire().await?;
    /// # async fn rebuild() -> u32 { 17 }
    /// let invoices = guard.run(rebuild()).await?;
    /// // Or rather stop than go on in doubt:
    /// let invoices = guard.run(rebuild()).stop_at_risk().await?;
    /// # assert_eq!(invoices, 17);
    /// # Ok(()) }
    /// ```
    ///
    /// **A body is stopped where it waits, and nowhere else.** One that computes or blocks goes on
    /// until its next `.await`, tasks that it has spawned go on by themselves, and a request that
    /// has left may still have its effect. A pause of the process stops nothing: the first thing
    /// after it may be a write. What must not happen too late belongs into a
    /// [`transaction`](Self::transaction), or carries the [`fencing_token`](Self::fencing_token).
    ///
    /// **Connection loss** puts the lock at risk, and the body goes on;
    /// [`stop_at_risk`](Run::stop_at_risk) stops it then.
    ///
    /// **Cancel safe**, as far as the body is: dropping the future drops the body. The guard is
    /// not touched, and can be used again in any case, to look at its state or to release it. No
    /// task is spawned, and the future is `Send` if the body is.
    ///
    /// # Errors
    ///
    /// [`Stopped`](crate::Stopped), when the body was dropped, or was not begun because the lock
    /// was lost already.
    ///
    /// # Panics
    ///
    /// The future panics if the body does, and if it is polled after its end.
    pub fn run<F: Future>(&self, body: F) -> Run<'_, F> {
        Run::new(&self.hold, body)
    }

    /// Path of the znode.
    pub fn path(&self) -> &str {
        &self.hold.path
    }

    /// The session that owns the znode.
    pub fn session(&self) -> SessionId {
        self.hold.session
    }

    /// Releases the lock and says how that ended.
    ///
    /// **Cancel safe**: the duty is handed over before anything is awaited, so dropping this future
    /// changes nothing. **Connection loss** is replayed; without a server it waits for one, or for
    /// the end of the session.
    ///
    /// # Errors
    ///
    /// [`LockError::Refused`] if a server refuses to delete the znode: it is deleted again with
    /// pauses of up to a minute, for as long as the session lives. [`LockError::Closed`] if the
    /// client has stopped meanwhile.
    pub fn release(mut self) -> impl Future<Output = Result<Released, LockError>> + Send + 'static {
        let (sender, ended) = oneshot::channel();
        let is_taken =
            self.wish.take().is_some_and(|wish| wish.send(Wish::Release(sender)).is_ok());
        async move {
            // Without a task there is no runtime, and no session soon.
            let ended = if is_taken { ended.await.ok() } else { None };
            match ended {
                Some(Ok(released)) => Ok(released),
                Some(Err(ReleaseFailure::Refused { path, error })) => {
                    Err(LockError::definite(error, "delete", &path))
                }
                Some(Err(ReleaseFailure::Stopped)) | None => Err(LockError::Closed),
            }
        }
    }
}

impl<K: Queued> Guard<K> {
    /// Commits writes that happen together, and only if the lock is held when the ensemble commits
    /// them: a check of the contender znode is put in front of them. The outcomes are those of the
    /// caller's own operations, without the check.
    ///
    /// This is complete protection for what is stored in ZooKeeper. It depends on no clock and on
    /// no state of this guard: whoever is late, by whatever pause or delay, changes nothing.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
    /// # let address = server.listen("127.0.0.1:0").await?;
    /// # let client = zk_recipes::Client::connect(address.to_string()).await?;
    /// # let guard = zk_recipes::FairLock::new(&client, "/locks/billing")?.acquire().await?;
    /// use zk_recipes::{CreateMode, Multi};
    ///
    /// let invoice = Multi::new()
    ///     .create("/invoice-17", "42.00", CreateMode::Persistent)
    ///     .set_data("/locks", "17", None);
    /// let outcomes = guard.transaction(invoice).await?;
    /// assert_eq!(outcomes.len(), 2);
    /// # Ok(()) }
    /// ```
    ///
    /// The request is queued when this is called, like those of the client, and is sent in the
    /// session of the lock or not at all. **At risk**, it is sent all the same, or waits for the
    /// next connection, because the ensemble decides. **Lost**, it is not sent, and what was not
    /// sent by then is taken back. Only the client's runtime knows what was sent, so if nobody drives
    /// that, the future waits for it, also when the lock is lost.
    ///
    /// **Connection loss** is not replayed, because only the caller knows whether repeating is
    /// harmless: the check holds again after the first one was applied. What can be repeated is a
    /// transaction with a create of a unique name, or a `set_data` at a version.
    ///
    /// **Cancel safe** as [`Op`](zk_session::Op) is: dropping the future takes back what was not
    /// sent; what was sent may be applied.
    ///
    /// # Errors
    ///
    /// See [`TransactionError`]. Nothing was applied, unless its
    /// [`outcome`](TransactionError::outcome) is `Unknown`. Finding the znode gone loses the lock.
    pub fn transaction(
        &self,
        multi: Multi,
    ) -> impl Future<Output = Result<Vec<MultiOutcome>, TransactionError>> + Send {
        transaction::begin(&self.hold, multi)
    }
}

impl<K: Fenced> Guard<K> {
    /// The token of this holder. Every later holder of the same lock has a greater one.
    pub fn fencing_token(&self) -> FencingToken {
        FencingToken(self.hold.znode.czxid)
    }
}

impl Guard<kind::Write> {
    /// Makes a reader of the writer, without a moment at which another writer could enter: the
    /// ensemble replaces the one znode by the other, at the same place in the queue. Readers who
    /// wait behind it enter, up to the next writer.
    ///
    /// What others know of this guard goes on: [`lost`](Self::lost) and
    /// [`phases`](crate::Acquire::phases) are those of the reader from then on;
    /// [`status`](Self::status) ends.
    ///
    /// **Connection loss** is replayed. **Not cancel safe**: a dropped future releases the lock, in
    /// the background and once it is known what is held.
    ///
    /// # Errors
    ///
    /// [`DowngradeError`]; the lock is in it, if it is still held.
    pub fn downgrade(
        mut self,
    ) -> impl Future<Output = Result<ReadGuard, DowngradeError>> + Send + 'static {
        let (sender, answer) = oneshot::channel::<Downgraded>();
        let is_taken =
            self.wish.take().is_some_and(|wish| wish.send(Wish::Downgrade(sender)).is_ok());
        let hold = Arc::clone(&self.hold);
        async move {
            let answer = if is_taken { answer.await.ok() } else { None };
            match answer {
                Some(Ok(parts)) => Ok(Guard::new(parts)),
                Some(Err((error, parts))) => {
                    Err(DowngradeError { error, guard: parts.map(Self::new) })
                }
                // The task of the guard had other things to do: the lock was lost before.
                None => {
                    let error = match hold.state() {
                        LockState::Lost(reason) => LockError::Lost(reason),
                        LockState::Held | LockState::AtRisk => LockError::Closed,
                    };
                    Err(DowngradeError { error, guard: None })
                }
            }
        }
    }
}

impl From<DowngradeError> for LockError {
    /// The guard is dropped, and the lock released.
    fn from(error: DowngradeError) -> Self {
        error.error
    }
}

impl LockStatus {
    /// State of the lock right now; `None` if it was released, or its guard dropped.
    pub fn state(&self) -> Option<LockState> {
        self.guard.upgrade()?;
        Some(self.hold.upgrade()?.state())
    }

    /// True if the lock is held right now.
    pub fn is_held(&self) -> bool {
        self.state() == Some(LockState::Held)
    }
}

impl fmt::Debug for LockStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockStatus").field("state", &self.state()).finish()
    }
}

impl<K> fmt::Debug for Guard<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("path", &self.hold.path)
            .field("fencing_token", &self.hold.znode.czxid)
            .field("state", &self.hold.state())
            .finish_non_exhaustive()
    }
}

impl FencingToken {
    /// The token as a number, as the resource stores it.
    pub fn as_i64(self) -> i64 {
        self.0
    }
}

impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
