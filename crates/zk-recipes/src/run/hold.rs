//! A lock that is held: its state, computed when it is asked for, and what proves it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;

use bytestring::ByteString;
use jute_codec::{DataReply, ErrorCode, Response};
use tokio::sync::{oneshot, watch};
use tracing::debug;
use zk_session::machine::Operation;
use zk_session::{Client, OpError, SessionId, SessionState};

use super::Feed;
use super::acquire::Order;
use super::watchdog::Watchdog;
use crate::error::{LockError, LostReason};
use crate::guard::LockState;
use crate::lock::AtRiskPolicy;
use crate::machine::release::Released;
use crate::machine::{
    Held, PAUSE, Removal, Verdict, Znode, barrier, child, multi_refusal, read, replayable,
};
use crate::phase::{Observer, Phase};
use crate::stats::Counters;

/// What a guard and its task share.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) client: Client,
    pub(crate) session: SessionId,
    pub(crate) path: ByteString,
    pub(crate) znode: Znode,
    /// The znode has the name of every other holder's.
    has_fixed_name: bool,
    /// The transaction that created the znode; `None` after a downgrade, which does not tell.
    created_by: Option<i64>,
    /// Guard deadlines of the client that had passed at the grant.
    lapses: u64,
    /// Connection on which the lock was granted or last proven.
    proven_on: AtomicU64,
    /// It was held in full at some time: there was a lease. Until then nobody gives it up because
    /// it is at risk.
    was_held: AtomicBool,
    pub(super) lost: Arc<watch::Sender<Option<LostReason>>>,
    pub(super) at_risk: AtRiskPolicy,
    pub(super) observer: Observer,
    pub(super) counters: Arc<Counters>,
}

/// What the owner of a guard wants of its task.
#[derive(Debug)]
pub(crate) enum Wish {
    Downgrade(oneshot::Sender<Downgraded>),
    Release(oneshot::Sender<Result<Released, ReleaseFailure>>),
}

/// What a guard is made of.
pub(crate) type Parts = (Arc<Hold>, oneshot::Sender<Wish>);

/// The reader, or why there is none, and the writer if it still holds.
pub(crate) type Downgraded = Result<Parts, (LockError, Option<Parts>)>;

/// Why a release did not remove the znode.
#[derive(Debug)]
pub(crate) enum ReleaseFailure {
    Refused { path: ByteString, error: OpError },
    Stopped,
}

impl Hold {
    pub(super) fn new(order: &Order, client: Client, release: &Removal, held: Held) -> Self {
        let (path, has_fixed_name) = match release {
            Removal::Contender(release) => (child(release.directory(), &held.znode.name), false),
            Removal::Exclusive(release) => (release.path().clone(), true),
        };
        Self {
            path,
            has_fixed_name,
            created_by: Some(held.znode.czxid),
            client,
            session: held.session,
            znode: held.znode,
            lapses: held.lapses,
            proven_on: AtomicU64::new(held.connection),
            was_held: AtomicBool::new(false),
            lost: Arc::new(watch::Sender::new(None)),
            at_risk: order.at_risk,
            observer: order.observer.clone(),
            counters: Arc::clone(&order.counters),
        }
    }

    /// The same lock, held by another znode. Who waits for the loss of one waits for the other's.
    pub(super) fn with_znode(&self, path: ByteString, znode: Znode, connection: u64) -> Self {
        Self {
            path,
            znode,
            has_fixed_name: false,
            created_by: None,
            proven_on: AtomicU64::new(connection),
            was_held: AtomicBool::new(self.was_held()),
            client: self.client.clone(),
            session: self.session,
            lapses: self.lapses,
            lost: Arc::clone(&self.lost),
            at_risk: self.at_risk,
            observer: self.observer.clone(),
            counters: Arc::clone(&self.counters),
        }
    }

    /// The lock was proven on this connection.
    pub(crate) fn prove(&self, connection: u64) {
        self.proven_on.fetch_max(connection, Ordering::AcqRel);
    }

    /// Whether it was held in full at some time, with a lease.
    pub(crate) fn was_held(&self) -> bool {
        self.was_held.load(Ordering::Acquire)
    }

    /// State of the lock right now.
    pub(crate) fn state(&self) -> LockState {
        if let Some(reason) = *self.lost.borrow() {
            return LockState::Lost(reason);
        }
        let status = self.client.status();
        let now = self.client.now();
        let is_past = status.guard_deadline().is_none_or(|deadline| deadline <= now);
        let loss = if matches!(status.state, SessionState::Closed | SessionState::AuthFailed) {
            Some(LostReason::Closed)
        } else if status.session != Some(self.session) {
            Some(LostReason::SessionExpired)
        } else if status.lapses != self.lapses || is_past {
            Some(LostReason::DeadlinePassed)
        } else {
            None
        };
        if let Some(reason) = loss {
            self.lose(reason);
            return LockState::Lost(self.lost.borrow().unwrap_or(reason));
        }
        let is_proven = self.proven_on.load(Ordering::Acquire) == status.connection;
        let is_prompt = status.risk_deadline().is_some_and(|overdue| now < overdue);
        let is_connected = status.state == SessionState::Connected;
        if is_connected && is_proven && is_prompt && status.is_leased(now) {
            self.was_held.store(true, Ordering::Release);
            return LockState::Held;
        }
        match self.at_risk {
            AtRiskPolicy::TreatAsLost if self.was_held() => {
                self.lose(LostReason::AtRisk);
                LockState::Lost(self.lost.borrow().unwrap_or(LostReason::AtRisk))
            }
            AtRiskPolicy::GoOn | AtRiskPolicy::TreatAsLost => LockState::AtRisk,
        }
    }

    /// Waits until the lock is held in full for the first time, which takes as long as it takes to
    /// make a lease. The reason, if it is lost before that.
    pub(crate) async fn first_held(&self) -> Result<(), LostReason> {
        let mut states = self.client.states();
        let mut feed = Feed::new(self.client.lane());
        loop {
            // What changes after this look ends the wait below.
            states.current();
            match self.state() {
                LockState::Lost(reason) => return Err(reason),
                LockState::Held => return Ok(()),
                LockState::AtRisk => {}
            }
            // A proof of the lock on a new connection is no change of the session.
            let look_at = self.client.now() + PAUSE;
            tokio::select! {
                Some(_) = states.next() => {}
                _ = feed.next(Some(look_at)) => {}
            }
        }
    }

    /// Whether a znode that was read is the one of this lock: whatever its data say by now, no other
    /// was created by the same transaction.
    fn is_own(&self, found: &DataReply) -> bool {
        found.stat.ephemeral_owner == self.session.0
            && self.created_by.is_none_or(|czxid| found.stat.czxid == czxid)
    }

    /// What proves that the lock is held: a committed write, and for a fixed name a read behind
    /// it. Without `watch` a unique name needs no read.
    pub(crate) fn proof(&self, watch: Option<u64>) -> Vec<Operation> {
        let mut operations = vec![barrier(self.path.clone())];
        if watch.is_some() || self.has_fixed_name {
            operations.push(read(self.path.clone(), watch));
        }
        operations
    }

    /// What the answers to [`proof`](Self::proof) say.
    pub(crate) fn proven(&self, results: Vec<Result<Response, OpError>>) -> Proof {
        let mut verdicts = results.into_iter().map(replayable);
        let by_check = match verdicts.next() {
            Some(Verdict::Done(response)) => match multi_refusal(&response) {
                None => Proof::Held,
                Some(ErrorCode::NO_NODE) => Proof::Lost(LostReason::ZnodeDeleted),
                Some(code) => Proof::Refused(OpError::Server(code)),
            },
            Some(Verdict::SessionOver) => Proof::Lost(LostReason::SessionExpired),
            Some(Verdict::Refused(error)) => Proof::Refused(error),
            Some(Verdict::Later(_)) => Proof::Later,
            Some(Verdict::NotApplied | Verdict::Unknown) | None => Proof::Open,
        };
        if !self.has_fixed_name || by_check != Proof::Held {
            return by_check;
        }
        // Whoever is behind the fixed name has passed the check.
        self.seen(verdicts.next())
    }

    /// What the answer to a read of the own znode says.
    pub(super) fn seen(&self, read: Option<Verdict>) -> Proof {
        match read {
            Some(Verdict::Done(Response::GetData(found))) if self.is_own(&found) => Proof::Held,
            Some(Verdict::Done(_) | Verdict::Refused(OpError::Server(ErrorCode::NO_NODE))) => {
                Proof::Lost(LostReason::ZnodeDeleted)
            }
            Some(Verdict::SessionOver) => Proof::Lost(LostReason::SessionExpired),
            Some(Verdict::Refused(error)) => Proof::Refused(error),
            Some(Verdict::Later(_)) => Proof::Later,
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

    /// Waits until the lock is lost. The keeper wakes whoever waits; should its runtime be stalled,
    /// a watchdog notices that the guard deadline has passed.
    pub(crate) fn lost(self: &Arc<Self>) -> impl Future<Output = LostReason> + Send + use<> {
        let mut lost = self.lost.subscribe();
        let hold = Arc::downgrade(self);
        async move {
            let mut watchdog = Watchdog::default();
            let mut told = pin!(lost.wait_for(Option::is_some));
            let reason = poll_fn(|cx| {
                if let Poll::Ready(told) = told.as_mut().poll(cx) {
                    return Poll::Ready(told.ok().and_then(|reason| *reason));
                }
                // A lock that was released has no state, and is not lost any more.
                let Some(hold) = hold.upgrade() else { return Poll::Pending };
                while let Some(deadline) = hold.client.status().guard_deadline()
                    && watchdog.poll(cx, hold.client.now(), deadline).is_ready()
                {
                    // An acknowledgement may move the deadline on between the two looks.
                    if let LockState::Lost(reason) = hold.state() {
                        return Poll::Ready(Some(reason));
                    }
                }
                Poll::Pending
            })
            .await;
            match reason {
                Some(reason) => reason,
                // The guard was released; nobody is left to lose the lock.
                None => std::future::pending().await,
            }
        }
    }

    /// The lock is lost, for ever; the first reason stays.
    pub(crate) fn lose(&self, reason: LostReason) {
        let is_news = self.lost.send_if_modified(|lost| {
            let is_news = lost.is_none();
            lost.get_or_insert(reason);
            is_news
        });
        if is_news {
            debug!(path = %self.path, %reason, "the lock is lost");
            Counters::count(&self.counters.lost);
            self.observer.end(Phase::Lost(reason));
        }
    }
}

/// What is known after asking whether a lock is still held.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Proof {
    Held,
    Lost(LostReason),
    /// A server could not say it now.
    Later,
    /// The connection was lost.
    Open,
    Refused(OpError),
}
