//! The guard of a lock that was obtained.

mod hold;
mod keeper;
mod removal;
mod revocation;
mod run;
mod status;
mod token;
mod transaction;

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use zk_session::{Client, Multi, MultiOutcome, SessionId, Time};

use self::hold::{Command, Hold, Holding, Proof, ReleaseFailure, Use};
use crate::engine::call::Call;
use crate::engine::drive::run_to_end;
use crate::lock::error::{LockError, LostReason, Stopped};
use crate::lock::kind::{Fair, Fenced, Kind, Queued};
use crate::lock::outcome::Released;
use crate::lock::recipe::ChangeRequest;
use crate::lock::state::LockState;
use crate::machine::{FailedAction, Failure, Issue, Refusal, Verdict};
use crate::timed_out::{LastSeen, TimedOut};

pub use self::revocation::request_revocation;
pub use self::run::Run;
pub use self::status::LockStatus;
pub use self::token::FencingToken;
pub use self::transaction::TransactionError;

pub(crate) use self::hold::{Holding as GuardParts, Terms};
pub(crate) use self::keeper::start as start_keeper;
pub(crate) use self::removal::RemovalDuty;

/// A lock that is held.
///
/// The methods, in the order in which you meet them:
///
/// - work: [`run`](Self::run), [`transaction`](Guard::transaction),
///   [`fencing_token`](Guard::fencing_token)
/// - what is known: [`state`](Self::state), [`remaining`](Self::remaining),
///   [`validate`](Self::validate), [`lost`](Self::lost), [`status`](Self::status)
/// - the znode: [`path`](Self::path), [`session`](Self::session)
/// - the end: [`release`](Self::release), or [`resign`](Guard::resign) for a leader
/// - other contenders: [`revocation_requested`](Guard::revocation_requested),
///   [`downgrade`](Guard::downgrade)
///
/// # What a lock cannot protect
///
/// A process may be stopped between a check of its guard and the work that the lock protects, for
/// longer than any timeout. No client can prevent that: only the protected resource can refuse late
/// writes. Write data kept in ZooKeeper through a [`transaction`](Self::transaction), which is
/// committed only while the lock is held. Send the [`fencing_token`](Self::fencing_token) with
/// every write to any other resource that can compare tokens, and have that resource refuse each
/// write with a lower token than the highest it has seen. For all other resources the guard keeps
/// the gap as small as possible, and [`state`](Self::state) reports what it knows.
///
/// # Lost locks
///
/// A guard is lost when its znode is gone, when its session has ended, or when its deadline has
/// passed. The deadline is the end of the lease ([`remaining`](Self::remaining)) or, without a
/// lease, one session timeout after the newest acknowledged request was sent. A lost guard stays
/// lost, and its znode is removed as soon as a server is reachable. While the connection is down,
/// the lock is *at risk*: depending on the work, continue until it is lost, or stop.
///
/// # Release
///
/// [`release`](Self::release) reports how the release ended. Dropping the guard also releases the
/// lock, in the background: it never blocks, and works outside a runtime too. If the runtime has
/// shut down, the lock becomes free when the session expires.
///
/// # Kinds
///
/// `K` is the kind of the lock. It decides which additional methods the guard has:
/// [`fencing_token`](Self::fencing_token) if the lock excludes all other contenders,
/// [`transaction`](Self::transaction) and [`revocation_requested`](Self::revocation_requested) if its
/// contenders form a queue, and [`downgrade`](Self::downgrade) if it is a [`WriteGuard`](crate::WriteGuard).
#[must_use = "a dropped guard releases the lock"]
pub struct Guard<K: Kind = Fair> {
    hold: Arc<Hold>,
    /// The channel to the keeper; `None` after a command was sent. Dropping it is the command to
    /// release.
    keeper: Option<oneshot::Sender<Command<ChangeRequest<K>>>>,
    /// Shows each [`LockStatus`] that the guard exists. Other owners of the hold outlive the guard.
    presence: Arc<()>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> Guard<K> {
    pub(crate) fn new(parts: GuardParts<ChangeRequest<K>>) -> Self {
        let Holding { hold, keeper } = parts;
        Self { hold, keeper: Some(keeper), presence: Arc::default(), kind: PhantomData }
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// Returns what a call had seen that has waited until there is a lease.
    pub(crate) fn seen_last(&self) -> Box<TimedOut> {
        let is_leased = self.hold.concern().is_some();
        TimedOut::after(if is_leased { LastSeen::Unproven } else { LastSeen::Unleased })
    }

    /// Waits until there is a lease, if there is none yet.
    pub(crate) fn first_held(&self) -> impl Future<Output = Result<(), Stopped>> + '_ {
        self.hold.first_held()
    }

    /// Returns the state of the lock right now, computed by this call.
    pub fn state(&self) -> LockState {
        self.hold.state()
    }

    pub(crate) fn client(&self) -> &Client {
        self.hold.client()
    }

    /// Returns when the lock is lost because it was held for too long, if it has a limit.
    pub(crate) fn ends_at(&self) -> Option<Time> {
        self.hold.ends_at
    }

    /// Keeps the client from deleting the znode of the lock, even if the lock is lost. Returns `None`
    /// if that has begun.
    pub(crate) fn use_znode(&self) -> Option<Use> {
        self.hold.use_znode()
    }

    /// Returns a view of the lock for code that does not own the guard.
    pub fn status(&self) -> LockStatus {
        LockStatus::new(&self.hold, &self.presence)
    }

    /// Waits until the lock is lost. The wake-up may be late under load or after a pause of the
    /// process, but [`state`](Self::state) always reports the loss immediately.
    ///
    /// A lost **connection** alone does not end the wait: the lock is at risk, and is lost when its
    /// deadline passes or a server reports its loss. When the guard is released or dropped, the
    /// future completes with [`LostReason::Released`].
    ///
    /// **Cancel safe.** Any number of tasks can wait, not only the owner of the guard.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        self.hold.lost()
    }

    /// Returns the time, from now, during which no other contender can get the lock, even if no
    /// server responds again. Returns `None` if there is no lease, and zero if the lock is lost.
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
    /// The value counts down, and rises again when acknowledgements arrive. If no further
    /// acknowledgement arrives, [`lost`](Self::lost) completes no later than the newest value says:
    /// by our clock, the lock is lost before the ensemble may grant it to another contender.
    ///
    /// **Assumptions.** If the [`Lease`](crate::Lease) describes the servers correctly, the value
    /// is valid even while servers are cut off from each other or paused, during elections, after a
    /// process was frozen, and for clocks whose speeds differ by up to 5 %. It is not valid if
    /// somebody deletes the znode, or ends the session, by hand.
    ///
    /// **No lease yet.** Right after the grant there is no lease if the session was idle: creating
    /// one takes about one and a half ticks of the servers, and the lock is at risk until then.
    ///
    /// **No lease at all.** There is no lease if the session timeout that the servers granted is
    /// too short for it: with the default lease, below 3.3 s. In that case the guard is lost when
    /// no server has acknowledged the session for a whole session timeout, which can be too late;
    /// see [`Status::guard_deadline`](zk_session::Status::guard_deadline).
    ///
    /// **A lease does not protect** work that follows a call of this method: the process may be
    /// stopped in between. See [`transaction`](Self::transaction) and
    /// [`fencing_token`](Self::fencing_token).
    pub fn remaining(&self) -> Option<Duration> {
        // Read the deadline first: if the lock is not lost afterwards, the deadline belongs to this
        // lock.
        let deadline = self.hold.client().status().lease_deadline();
        match self.state() {
            LockState::Lost(_) => Some(Duration::ZERO),
            LockState::Held | LockState::AtRisk => {
                // A lease that ended before the grant does not count.
                let left = deadline?.saturating_since(self.hold.client().now());
                (!left.is_zero()).then_some(left)
            }
        }
    }

    /// Proves that the lock is held, by a write that is committed only if the znode exists, and a read
    /// behind it that shows whose znode that is. When the call succeeds, the lock was held at some
    /// moment since the call began, and is no longer at risk for lack of a recent proof.
    ///
    /// After a **connection loss**, the write is repeated. If the server refuses it for a while, it is
    /// repeated after pauses of 200 ms, which grow to 5 s. **Cancel safe**, and a
    /// [timeout](Call::timeout) changes nothing either: the lock is what it was.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the lock is lost; [`LockError::Refused`] if the access control list
    /// denies reading the znode, or if the server refuses the write for about 20 s with a code that
    /// leaves open whether it ever passes; [`LockError::TimedOut`]; [`LockError::Closed`] or
    /// [`LockError::AuthFailed`] if the client has stopped.
    pub fn validate(&self) -> Call<(), LockError> {
        let hold = Arc::clone(&self.hold);
        Call::new(self.hold.client(), &self.hold.path, |deadline| validate(hold, deadline))
    }

    /// Runs a body of work while the lock is not lost, and drops the body when the lock is lost.
    ///
    /// The returned future checks the state before and after each poll of the body. If the lock was
    /// lost during the last poll, the body is reported as stopped and its output is dropped.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
    /// # let address = server.listen("127.0.0.1:0").await?;
    /// # let client = zk_recipes::Client::connect(address.to_string()).await?;
    /// # let guard = zk_recipes::FairLock::new(&client, "/locks/billing")?.acquire().await?;
    /// # async fn rebuild() -> u32 { 17 }
    /// let invoices = guard.run(rebuild()).await?;
    /// // Or, for work that is better stopped than continued in doubt:
    /// let invoices = guard.run(rebuild()).stop_at_risk().await?;
    /// # assert_eq!(invoices, 17);
    /// # Ok(()) }
    /// ```
    ///
    /// **A body is stopped only where it waits.** A body that computes or blocks continues until
    /// its next `.await`, tasks that it has spawned continue on their own, and a request that was
    /// sent may still take effect. A pause of the process stops nothing: the first action after it
    /// may be a write. A write that must never be late needs a [`transaction`](Self::transaction),
    /// or has to carry the [`fencing_token`](Self::fencing_token).
    ///
    /// **Connection loss** puts the lock at risk, and the body continues. With
    /// [`stop_at_risk`](Run::stop_at_risk) it stops.
    ///
    /// **Cancel safe** if the body is: dropping the future drops the body. The guard is not
    /// affected, and can be queried and released afterwards. No task is spawned, and the future is
    /// `Send` if the body is.
    ///
    /// # Errors
    ///
    /// [`Stopped`](crate::Stopped) if the body was dropped, or was not started because the lock was
    /// lost already.
    ///
    /// # Panics
    ///
    /// The future panics if the body panics, and if it is polled after completion.
    pub fn run<F: Future>(&self, body: F) -> Run<'_, F> {
        Run::new(&self.hold, body)
    }

    /// Returns the path of the znode.
    pub fn path(&self) -> &str {
        &self.hold.path
    }

    /// Returns the session that owns the znode.
    pub fn session(&self) -> SessionId {
        self.hold.session
    }

    /// Releases the lock and reports how that ended.
    ///
    /// **Cancel safe**: this method sends the command itself, so dropping what it returns changes
    /// nothing, and neither does a [timeout](Call::timeout): the client goes on. After a **connection
    /// loss**, requests are replayed. If no server is reachable, the call waits for one, or for the
    /// end of the session.
    ///
    /// # Errors
    ///
    /// [`LockError::Refused`] if a server refuses to delete the znode: the client then retries,
    /// with pauses that grow to 75 s, for as long as the session lives. [`LockError::TimedOut`]; the
    /// lock may be free or not, but this client does not hold it any more. [`LockError::Closed`] if
    /// the client was closed before: its session has ended, or will, and the znode with it. If the
    /// keeper of the lock has noticed that end, the result is [`Released::EndedWithSession`] instead.
    pub fn release(mut self) -> Call<Released, LockError> {
        let (reply, released) = oneshot::channel();
        let is_sent = self.send(Command::Release(reply));
        self.hold.release();
        Call::waiting(self.hold.client(), &self.hold.path, async move {
            // If there is no keeper, the runtime is gone, and the session will expire.
            let released = if is_sent { released.await.ok() } else { None };
            match released {
                Some(Ok(released)) => Ok(released),
                Some(Err(ReleaseFailure::Refused(Refusal { path, error }))) => {
                    Err(LockError::of(Failure::new(FailedAction::Delete, path, error)))
                }
                Some(Err(ReleaseFailure::Stopped)) | None => Err(LockError::Closed),
            }
        })
    }

    /// Asks the keeper to change the lock. The error carries the guard if the lock is still held.
    pub(crate) fn change<C>(
        mut self,
        request: ChangeRequest<K>,
    ) -> impl Future<Output = Result<Guard<C>, (LockError, Option<Self>)>> + Send + 'static
    where
        C: Kind<Change = Infallible>,
    {
        let (reply, changed) = oneshot::channel();
        let is_sent = self.send(Command::Change(request, reply));
        let hold = Arc::clone(&self.hold);
        async move {
            match if is_sent { changed.await.ok() } else { None } {
                Some(Ok(parts)) => Ok(Guard::new(parts)),
                Some(Err((error, parts))) => Err((error, parts.map(Self::new))),
                // The keeper did not receive the command, because the lock was lost before.
                None => Err(match hold.state() {
                    LockState::Lost(reason) => (LockError::Lost(reason), None),
                    LockState::Held | LockState::AtRisk => (LockError::Closed, None),
                }),
            }
        }
    }

    fn send(&mut self, command: Command<ChangeRequest<K>>) -> bool {
        self.keeper.take().is_some_and(|keeper| keeper.send(command).is_ok())
    }

    /// Waits until somebody asks for the lock.
    pub(crate) fn asked(&self) -> impl Future<Output = ()> + Send + 'static {
        self.hold.revocation.requested()
    }
}

impl<K: Queued> Guard<K> {
    /// Commits writes in one transaction, and only if the lock is held when the ensemble commits
    /// them: the transaction begins with a check of the contender znode. The outcomes are those of
    /// the caller's operations, without the check.
    ///
    /// This protects data kept in ZooKeeper completely. It depends neither on clocks nor on the
    /// state of this guard: a transaction that is late, for whatever reason, changes nothing.
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
    /// The call enqueues the request, as the methods of the client do. It is sent in the session of
    /// the lock or not at all. If the lock is **at risk**, the request is still sent, or waits for
    /// the next connection, because the ensemble decides whether the lock is held. If the lock is
    /// **lost**, the request is not sent, and a request that is still enqueued is withdrawn. Only
    /// the client's runtime knows which requests were sent, so if that runtime is not driven, a call
    /// without a timeout waits for it, even when the lock is lost.
    ///
    /// The check knows the znode by its name, which no other contender can have. It also passes a
    /// copy, so an administrator who has deleted the znode of a holder must not restore it.
    ///
    /// After a **connection loss**, the transaction is not repeated, because only the caller knows
    /// whether repeating the transaction is harmless: the check passes again even if the first
    /// transaction was applied. A transaction can be repeated if it creates a unique name, or
    /// contains a `set_data` at a version.
    /// [`SettledClient::commit_under`](crate::SettledClient::commit_under) repeats any transaction, and
    /// applies it once.
    ///
    /// **Cancel safe** like [`Op`](zk_session::Op): dropping the future withdraws a request that
    /// was not sent; a request that was sent may be applied. So does a [timeout](Call::timeout), which
    /// ends the call with an [`OpError::TimedOut`](zk_session::OpError::TimedOut), or with an
    /// [`OpError::RuntimeStopped`](zk_session::OpError::RuntimeStopped).
    ///
    /// # Errors
    ///
    /// See [`TransactionError`]. Nothing was applied, unless its
    /// [`outcome`](TransactionError::outcome) is `Unknown`. If the check finds that the znode is
    /// gone, the lock is lost.
    pub fn transaction(&self, multi: Multi) -> Call<Vec<MultiOutcome>, TransactionError> {
        transaction::begin(&self.hold, multi)
    }
}

impl<K: Queued> Guard<K> {
    /// Waits until somebody asks for the lock, by [`request_revocation`] or Curator's `Revoker`.
    /// Nothing happens to the lock: the holder decides whether to finish early, and to release it.
    ///
    /// A request that was written while this contender still waited for the lock is reported too.
    /// Completes immediately if the lock was asked for before. After the guard was lost, released or
    /// dropped, or changed into another one, the future never completes.
    ///
    /// The first call costs a read of the contender znode, unless it was read already. After a
    /// **connection loss**, the znode is read again, so no request is missed. If the access control
    /// list denies READ, no request is ever reported.
    ///
    /// **Cancel safe.** Any number of tasks can wait.
    pub fn revocation_requested(&self) -> impl Future<Output = ()> + Send + 'static {
        self.asked()
    }
}

impl<K: Fenced> Guard<K> {
    /// Returns the token of this holder. Every later holder of the same lock has a greater token.
    pub fn fencing_token(&self) -> FencingToken {
        FencingToken::new(self.hold.znode.czxid)
    }
}

/// Proves that a lock is held.
async fn validate(hold: Arc<Hold>, deadline: Option<Time>) -> Result<(), LockError> {
    let refused =
        |error| LockError::of(Failure::new(FailedAction::Check, hold.path.clone(), error));
    loop {
        if let LockState::Lost(reason) = hold.state() {
            return Err(LockError::Lost(reason));
        }
        let mut issue = Issue::new(hold.session, hold.proof(None));
        let answers = run_to_end(hold.client(), &mut issue, deadline).await?;
        let connection = answers.connection;
        match hold.proven(answers.results.into_iter().map(Verdict::from)) {
            Proof::Held => {
                hold.prove(connection);
                break;
            }
            Proof::Lost(reason) => {
                hold.lose(reason);
            }
            Proof::Open => {}
            Proof::Later(error) | Proof::Refused(error) => return Err(refused(error)),
        }
    }
    match hold.state() {
        LockState::Lost(reason) => Err(LockError::Lost(reason)),
        LockState::Held | LockState::AtRisk => Ok(()),
    }
}

/// Releases the lock in the background.
impl<K: Kind> Drop for Guard<K> {
    fn drop(&mut self) {
        // If a command was sent, the lock is released already, or another guard has it.
        if self.keeper.take().is_some() {
            self.hold.release();
        }
    }
}

impl<K: Kind> fmt::Debug for Guard<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("path", &self.hold.path)
            .field("fencing_token", &self.hold.znode.czxid.0)
            .field("state", &self.hold.state())
            .finish_non_exhaustive()
    }
}
