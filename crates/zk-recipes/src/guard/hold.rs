//! A lock that is held: its state, which is computed on demand, and the proof that it is held.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytestring::ByteString;
use jute_codec::{DataReply, ErrorCode, Response, Stat};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, oneshot, watch};
use zk_session::recipe::{Lane, LeaseNeed, Operation, Session};
use zk_session::{Client, OpError, SessionId, SessionState, StateStream, Status, Time, Zxid};

use super::revocation::Revocation;
use crate::lock::error::{LockError, LostReason, Stopped};
use crate::lock::log::{self, Risk};
use crate::lock::options::GuardOptions;
use crate::lock::outcome::{Held, Released, Znode};
use crate::lock::phase::{Observer, Phase};
use crate::lock::state::{AtRiskPolicy, LockState};
use crate::lock::stats::Counters;
use crate::machine::{PAUSE, Refusal, Verdict, WatchNumber, barrier, multi_refusal, read};

/// The parts of a lock that its acquires take over, and the guards from them.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) client: Client,
    pub(crate) options: GuardOptions,
    pub(crate) observer: Observer,
    pub(crate) counters: Arc<Counters>,
    /// How long the lock may be held.
    pub(crate) hold_for: Option<Duration>,
}

/// The state that a guard and its keeper share.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) session: SessionId,
    pub(crate) path: ByteString,
    pub(crate) znode: Znode,
    /// The transaction that created the znode; `None` after a change, because the reply to a change
    /// does not contain it.
    created_by: Option<Zxid>,
    /// Number of guard deadlines of the client that had passed before the grant.
    lapses: u64,
    /// The connection on which the lock was granted or last proven.
    proven_on: AtomicU64,
    /// The lock was held with a lease at some time. Until then, a lock at risk is not given up.
    was_held: AtomicBool,
    /// The lock seemed to be held before the session's task knew of it.
    began_held: AtomicBool,
    /// The keeper's need for the lease.
    need: LeaseNeed,
    lost: Arc<watch::Sender<Option<LostReason>>>,
    pub(super) revocation: Arc<Revocation>,
    /// When the lock is lost because it was held for too long.
    pub(crate) ends_at: Option<Time>,
    /// While somebody reads this, the keeper does not delete the znode of a lock that is lost.
    uses: Arc<RwLock<()>>,
    pub(super) terms: Terms,
}

/// The use of a znode whose existence a request relies on. While it lasts, the client does not delete
/// the znode, so no other client can have created another one with the same name. It does not outlast
/// the limit of a lock, or the client.
#[derive(Debug)]
pub(crate) struct Use(#[allow(dead_code, reason = "it is kept")] OwnedRwLockReadGuard<()>);

/// The commands that the owner of a guard sends to its keeper. `R` is the request for a change.
#[derive(Debug)]
pub(crate) enum Command<R> {
    Change(R, oneshot::Sender<ChangeReply<R>>),
    Release(oneshot::Sender<Result<Released, ReleaseFailure>>),
}

/// The two halves of a guard: the state it reads, and the channel to its keeper.
#[derive(Debug)]
pub(crate) struct Holding<R> {
    pub(crate) hold: Arc<Hold>,
    pub(crate) keeper: oneshot::Sender<Command<R>>,
}

/// The result of a change: either the lock after the change, which cannot change again, or the
/// error, with the unchanged lock if it is still held.
pub(crate) type ChangeReply<R> =
    Result<Holding<std::convert::Infallible>, (LockError, Option<Holding<R>>)>;

/// Why a release did not remove the znode.
#[derive(Debug)]
pub(crate) enum ReleaseFailure {
    Refused(Refusal),
    Stopped,
}

/// The result of a proof that a lock is held.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Proof {
    Held,
    Lost(LostReason),
    /// The server cannot answer at present, for this reason.
    Later(OpError),
    /// The connection was lost, so nothing is proven.
    Open,
    Refused(OpError),
}

impl Hold {
    pub(super) fn new(terms: Terms, path: ByteString, held: Held, need: LeaseNeed) -> Self {
        Self {
            path,
            created_by: Some(held.znode.czxid),
            session: held.session,
            znode: held.znode,
            lapses: held.lapses,
            proven_on: AtomicU64::new(held.connection),
            was_held: AtomicBool::new(false),
            began_held: AtomicBool::new(false),
            need,
            lost: Arc::new(watch::Sender::new(None)),
            revocation: Arc::default(),
            ends_at: terms.hold_for.map(|length| terms.client.now() + length),
            uses: Arc::default(),
            terms,
        }
    }

    /// Returns the same lock, held by another znode. Tasks that wait for the loss of one hold are
    /// notified of the loss of the other. A request to revoke the old znode does not concern the new
    /// one.
    pub(super) fn with_znode(&self, path: ByteString, znode: Znode, connection: u64) -> Self {
        Self {
            path,
            znode,
            created_by: None,
            proven_on: AtomicU64::new(connection),
            was_held: AtomicBool::new(self.was_held()),
            began_held: AtomicBool::new(false),
            need: self.need.clone(),
            session: self.session,
            lapses: self.lapses,
            lost: Arc::clone(&self.lost),
            revocation: Arc::default(),
            ends_at: self.ends_at,
            uses: Arc::clone(&self.uses),
            terms: self.terms.clone(),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.terms.client
    }

    /// Keeps the client from deleting the znode. Returns `None` if that has begun.
    pub(super) fn use_znode(&self) -> Option<Use> {
        Arc::clone(&self.uses).try_read_owned().ok().map(Use)
    }

    /// Waits until nobody uses the znode. Nobody does so until the result is dropped.
    pub(super) fn unused(&self) -> impl Future<Output = OwnedRwLockWriteGuard<()>> + use<> {
        Arc::clone(&self.uses).write_owned()
    }

    /// Records that the lock was proven on this connection.
    pub(crate) fn prove(&self, connection: u64) {
        self.proven_on.fetch_max(connection, Ordering::AcqRel);
    }

    /// Returns whether the lock was held with a lease at some time.
    pub(crate) fn was_held(&self) -> bool {
        self.was_held.load(Ordering::Acquire)
            || self.began_held.load(Ordering::Acquire) && self.need.began_leased()
    }

    /// Returns the state of the lock right now.
    pub(crate) fn state(&self) -> LockState {
        if let Some(reason) = self.lost_reason() {
            return LockState::Lost(reason);
        }
        // Ask this before reading the status. A status from before the session's task knew of the
        // lock may show the rest of an old lease, which the task then discards.
        let is_lease_kept = self.was_held() || self.need.is_kept();
        let status = self.client().status();
        let now = self.client().now();
        let is_past = status.guard_deadline().is_none_or(|deadline| deadline <= now);
        let loss = if matches!(status.state, SessionState::Closed | SessionState::AuthFailed) {
            Some(LostReason::Closed)
        } else if status.session != Some(self.session) {
            Some(LostReason::SessionExpired)
        } else if status.lapses != self.lapses || is_past {
            // A deadline that passed is final, even if the session turns out to be alive: another
            // contender may have been granted the lock in the meantime.
            Some(LostReason::DeadlinePassed)
        } else if self.ends_at.is_some_and(|at| at <= now) {
            Some(LostReason::HeldTooLong)
        } else {
            None
        };
        if let Some(reason) = loss {
            return LockState::Lost(self.lose(reason));
        }
        if self.risk(&status, now).is_none() {
            let seen = if is_lease_kept { &self.was_held } else { &self.began_held };
            seen.store(true, Ordering::Release);
            return LockState::Held;
        }
        match self.terms.options.at_risk {
            AtRiskPolicy::TreatAsLost if self.was_held() => {
                LockState::Lost(self.lose(LostReason::AtRisk))
            }
            AtRiskPolicy::GoOn | AtRiskPolicy::TreatAsLost => LockState::AtRisk,
        }
    }

    /// Returns why the lock is at risk, provided that it is not lost.
    fn risk(&self, status: &Status, now: Time) -> Option<Risk> {
        if status.state != SessionState::Connected {
            Some(Risk::Disconnected)
        } else if self.proven_on.load(Ordering::Acquire) != status.connection {
            Some(Risk::Unproven)
        } else if status.risk_deadline().is_none_or(|overdue| overdue <= now) {
            Some(Risk::Silent)
        } else if !status.is_leased(now) {
            Some(Risk::Unleased)
        } else {
            None
        }
    }

    /// Returns why the lock is at risk, unless it is lost, or has no lease yet on a session that was
    /// idle: that is not a cause for concern.
    pub(super) fn concern(&self) -> Option<Risk> {
        if matches!(self.state(), LockState::Lost(_)) {
            return None;
        }
        let risk = self.risk(&self.client().status(), self.client().now());
        risk.filter(|risk| *risk != Risk::Unleased || self.was_held())
    }

    /// Waits until the lock is held with a lease for the first time. Returns the reason if the lock
    /// is lost before that.
    pub(crate) async fn first_held(&self) -> Result<(), Stopped> {
        let mut states = self.client().states();
        let mut lane = Session::of(self.client()).lane();
        loop {
            // A change after this call ends the wait below.
            states.current();
            match self.state() {
                LockState::Lost(reason) => return Err(Stopped::Lost(reason)),
                LockState::Held if self.was_held() => return Ok(()),
                LockState::Held | LockState::AtRisk => {}
            }
            if let Some(slow) = self.client().status().slow_commits() {
                return Err(Stopped::NoLease(slow));
            }
            self.next_change(&mut states, &mut lane).await;
        }
    }

    /// Waits for a change of a lock that was not held with a lease yet.
    pub(super) async fn next_change(&self, states: &mut StateStream, lane: &mut Lane) {
        if self.state() == LockState::Held {
            // The session's task is about to learn of the lock.
            lane.turn().await;
            return;
        }
        // A proof of the lock on a new connection is not a change of the session.
        lane.wake_at(self.client().now() + PAUSE);
        tokio::select! {
            biased;
            Some(_) = states.next() => {}
            _ = lane.next() => {}
        }
    }

    /// Returns whether a znode that was read is the one of this lock. The data of the znode does
    /// not matter: no other znode was created by the same transaction.
    fn is_own(&self, found: &Stat) -> bool {
        found.ephemeral_owner == self.session
            && self.created_by.is_none_or(|czxid| found.czxid == czxid)
    }

    /// Returns the operations that prove that the lock is held: a committed write, and a read after
    /// it. The write alone proves only that there is a znode with this name. It may be that of
    /// another holder if all share one name, or a copy that an administrator has restored.
    pub(crate) fn proof(&self, watch: Option<WatchNumber>) -> Vec<Operation> {
        vec![barrier(self.path.clone()), read(self.path.clone(), watch)]
    }

    /// Evaluates the results of [`proof`](Self::proof).
    pub(crate) fn proven(&self, mut verdicts: impl Iterator<Item = Verdict>) -> Proof {
        let by_check = match verdicts.next() {
            Some(Verdict::Done(response)) => match multi_refusal(&response) {
                None => Proof::Held,
                Some(ErrorCode::NO_NODE) => Proof::Lost(LostReason::ZnodeDeleted),
                Some(code) => Proof::Refused(OpError::server(code)),
            },
            Some(Verdict::SessionEnded) => Proof::Lost(LostReason::SessionExpired),
            Some(Verdict::Refused(error)) => Proof::Refused(error),
            Some(Verdict::Later(error)) => Proof::Later(error),
            Some(Verdict::NotApplied | Verdict::Unknown) | None => Proof::Open,
        };
        if by_check != Proof::Held {
            return by_check;
        }
        self.seen(verdicts.next())
    }

    /// Takes note of the data of our own znode. Returns when they were written, if this is a reply to
    /// their read.
    pub(super) fn note_data(&self, read: &Result<Response, OpError>) -> Option<Zxid> {
        match read {
            Ok(Response::GetData(found)) if self.is_own(&found.stat) => {
                self.revocation.found(found.data.as_ref());
                Some(found.stat.mzxid)
            }
            _ => None,
        }
    }

    /// Evaluates a read or a test of our own znode.
    pub(super) fn seen(&self, read: Option<Verdict>) -> Proof {
        match read {
            Some(Verdict::Done(
                Response::GetData(DataReply { stat, .. }) | Response::Exists(stat),
            )) if self.is_own(&stat) => Proof::Held,
            Some(
                Verdict::Done(_)
                | Verdict::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }),
            ) => Proof::Lost(LostReason::ZnodeDeleted),
            Some(Verdict::SessionEnded) => Proof::Lost(LostReason::SessionExpired),
            Some(Verdict::Refused(error)) => Proof::Refused(error),
            Some(Verdict::Later(error)) => Proof::Later(error),
            Some(Verdict::NotApplied | Verdict::Unknown) | None => Proof::Open,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        match self.state() {
            LockState::Held => Phase::Held,
            LockState::AtRisk => Phase::AtRisk,
            LockState::Lost(reason) => Phase::Lost(reason),
        }
    }

    /// Returns why the lock was lost, or `None` if it is not known to be lost.
    pub(super) fn lost_reason(&self) -> Option<LostReason> {
        self.lost.borrow().filter(is_loss)
    }

    /// Returns a receiver that reports the loss or the release of the lock.
    pub(super) fn losses(&self) -> watch::Receiver<Option<LostReason>> {
        self.lost.subscribe()
    }

    /// Waits until the lock is lost or released. The keeper wakes the waiter. If the keeper's runtime
    /// is stalled, a watchdog notices that the guard deadline, or the limit of the lock, has passed.
    pub(crate) fn lost(self: &Arc<Self>) -> impl Future<Output = LostReason> + Send + use<> {
        let mut losses = self.losses();
        let mut watchdog = Session::of(self.client()).watchdog();
        let hold = Arc::downgrade(self);
        async move {
            let mut loss = pin!(losses.wait_for(Option::is_some));
            let reason = poll_fn(|cx| {
                if let Poll::Ready(loss) = loss.as_mut().poll(cx) {
                    return Poll::Ready(loss.ok().and_then(|reason| *reason));
                }
                // The lock was changed. Its keeper wakes this task.
                let Some(hold) = hold.upgrade() else { return Poll::Pending };
                while let Some(deadline) =
                    hold.client().status().guard_deadline().into_iter().chain(hold.ends_at).min()
                    && watchdog.poll(cx, hold.client().now(), deadline).is_ready()
                {
                    // An acknowledgement between the two calls may have postponed the deadline.
                    if let LockState::Lost(reason) = hold.state() {
                        return Poll::Ready(Some(reason));
                    }
                }
                Poll::Pending
            })
            .await;
            reason.unwrap_or(LostReason::Released)
        }
    }

    /// Wakes the tasks that wait for the loss of the lock, because it is released.
    pub(super) fn release(&self) {
        self.lost.send_if_modified(|lost| {
            let is_first = lost.is_none();
            lost.get_or_insert(LostReason::Released);
            is_first
        });
    }

    /// Records that the lock is lost for good. Keeps and returns the first reason that was
    /// recorded.
    pub(crate) fn lose(&self, reason: LostReason) -> LostReason {
        let mut is_first = false;
        self.lost.send_if_modified(|lost| {
            is_first = lost.is_none();
            lost.get_or_insert(reason);
            is_first
        });
        if is_first {
            log::lost(self.client(), &self.path, reason);
            self.terms.counters.lost();
            self.terms.observer.end(Phase::Lost(reason));
        }
        self.lost_reason().unwrap_or(reason)
    }
}

/// Returns true unless the lock was released by its owner.
pub(super) fn is_loss(reason: &LostReason) -> bool {
    *reason != LostReason::Released
}
