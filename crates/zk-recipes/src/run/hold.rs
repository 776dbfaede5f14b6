//! Holding a lock: a task that watches over it, and removes it in the end.
//!
//! The state of a guard is computed when it is asked for. The task only wakes those who wait for
//! the loss, renews the proof after a reconnect, and releases.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytestring::ByteString;
use jute_codec::{DataReply, ErrorCode, EventType, Response};
use tokio::sync::{oneshot, watch};
use tracing::{Instrument as _, Span, debug};
use zk_session::machine::{Operation, Reply};
use zk_session::{Client, OpError, SessionId, SessionState, Slot, Time};

use super::acquire::Order;
use super::{Fed, Feed, release};
use crate::error::{LockError, LostReason};
use crate::guard::{Guard, LockState};
use crate::lock::AtRiskPolicy;
use crate::machine::downgrade::{Downgrade, DowngradeStep};
use crate::machine::release::Released;
use crate::machine::{
    Held, Input, PAUSE, Removal, Verdict, Znode, barrier, flight, multi_refusal, read, replayable,
};
use crate::phase::{Observer, Phase};
use crate::stats::Counters;

/// When the own znode is watched after a grant without waiting: most locks are gone by then, and
/// their acquire stays one round trip.
const WATCH_AFTER: Duration = Duration::from_millis(100);

/// What a guard and its task share.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) client: Client,
    pub(crate) session: SessionId,
    pub(crate) path: ByteString,
    pub(crate) znode: Znode,
    /// The znode has the name of every other holder's.
    has_fixed_name: bool,
    /// Guard deadlines of the client that had passed at the grant.
    lapses: u64,
    /// Connection on which the lock was granted or last proven.
    proven_on: AtomicU64,
    lost: Arc<watch::Sender<Option<LostReason>>>,
    at_risk: AtRiskPolicy,
    observer: Observer,
    counters: Arc<Counters>,
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
        if status.state == SessionState::Connected && is_proven && is_prompt {
            return LockState::Held;
        }
        match self.at_risk {
            AtRiskPolicy::GoOn => LockState::AtRisk,
            AtRiskPolicy::TreatAsLost => {
                self.lose(LostReason::AtRisk);
                LockState::Lost(self.lost.borrow().unwrap_or(LostReason::AtRisk))
            }
        }
    }

    /// Whether a znode that was read is the one of this lock: whatever its data say by now, no other
    /// was created by the same transaction.
    fn is_own(&self, found: &DataReply) -> bool {
        found.stat.ephemeral_owner == self.session.0
            && (!self.has_fixed_name || found.stat.czxid == self.znode.czxid)
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
            Some(Verdict::Later) => Proof::Later,
            Some(Verdict::NotApplied | Verdict::Unknown) | None => Proof::Open,
        };
        if !self.has_fixed_name || by_check != Proof::Held {
            return by_check;
        }
        // Whoever is behind the fixed name has passed the check.
        self.seen(verdicts.next())
    }

    /// What the answer to a read of the own znode says.
    fn seen(&self, read: Option<Verdict>) -> Proof {
        match read {
            Some(Verdict::Done(Response::GetData(found))) if self.is_own(&found) => Proof::Held,
            Some(Verdict::Done(_) | Verdict::Refused(OpError::Server(ErrorCode::NO_NODE))) => {
                Proof::Lost(LostReason::ZnodeDeleted)
            }
            Some(Verdict::SessionOver) => Proof::Lost(LostReason::SessionExpired),
            Some(Verdict::Refused(error)) => Proof::Refused(error),
            Some(Verdict::Later) => Proof::Later,
            Some(Verdict::NotApplied | Verdict::Unknown) | None => Proof::Open,
        }
    }

    fn phase(&self) -> Phase {
        match self.state() {
            LockState::Held => Phase::Held,
            LockState::AtRisk => Phase::AtRisk,
            LockState::Lost(reason) => Phase::Lost(reason),
        }
    }

    /// Waits until the lock is lost.
    pub(crate) fn lost(&self) -> impl Future<Output = LostReason> + Send + use<> {
        let mut lost = self.lost.subscribe();
        async move {
            let reason = lost.wait_for(Option::is_some).await.ok().and_then(|reason| *reason);
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

/// Starts to hold.
pub(crate) fn start<K>(
    order: &Order,
    feed: Feed,
    slot: Slot,
    release: Removal,
    held: Held,
    span: Span,
) -> Guard<K> {
    let now = feed.lane.now();
    let (path, has_fixed_name) = match &release {
        Removal::Contender(release) => {
            (crate::machine::child(release.directory(), &held.znode.name), false)
        }
        Removal::Exclusive(release) => (release.path().clone(), true),
    };
    let hold = Arc::new(Hold {
        path,
        has_fixed_name,
        session: held.session,
        lapses: held.lapses,
        proven_on: AtomicU64::new(held.connection),
        lost: Arc::new(watch::Sender::new(None)),
        client: feed.lane.client(),
        znode: held.znode,
        at_risk: order.at_risk,
        observer: order.observer.clone(),
        counters: Arc::clone(&order.counters),
    });
    hold.observer.tell(Phase::Held);
    let (wish, wished) = oneshot::channel();
    let keeper = Keeper {
        own_watch: held.own_watch,
        next_watch: held.own_watch.unwrap_or(0),
        watch_at: held.own_watch.is_none().then(|| now + WATCH_AFTER),
        needs_proof: false,
        granted_on: held.connection,
        since: now,
        is_at_risk: false,
        hold: Arc::clone(&hold),
        feed,
    };
    slot.run(keep(keeper, release, wished, span.clone()).instrument(span));
    Guard::new((hold, wish))
}

struct Keeper {
    hold: Arc<Hold>,
    feed: Feed,
    /// The watch on the own znode.
    own_watch: Option<u64>,
    next_watch: u64,
    /// When to read and watch the own znode.
    watch_at: Option<Time>,
    /// The connection is a new one, and nothing has proven the lock on it yet.
    needs_proof: bool,
    /// Connection of the grant.
    granted_on: u64,
    since: Time,
    /// As far as this task has noticed.
    is_at_risk: bool,
}

async fn keep(
    mut keeper: Keeper,
    mut release: Removal,
    mut wished: oneshot::Receiver<Wish>,
    span: Span,
) {
    let end = loop {
        match keeper.until_released(&mut wished).await {
            End::Downgrade(sender) => {
                wished = keeper.downgrade(&mut release, sender).await;
            }
            end @ (End::Dropped | End::Lost | End::Released(_)) => break end,
        }
    };
    let Keeper { mut feed, hold, granted_on, since, .. } = keeper;
    hold.counters.held(feed.lane.now().saturating_since(since));
    if hold.state() != LockState::Held || feed.lane.status().connection != granted_on {
        release.doubt();
    }
    let (counters, observer) = (Arc::clone(&hold.counters), hold.observer.clone());
    // From here on it is not held, whatever the release meets.
    drop(hold);
    let ended = release::run(&mut feed, &mut release, false).await;
    counters.replays(release.replays());
    observer.end(Phase::Released);
    // A guard that was lost may still be released by its owner, who wants to know.
    let wish = match end {
        End::Dropped | End::Downgrade(_) => None,
        End::Lost => wish_of_loser(&mut feed, wished).await,
        End::Released(wish) => Some(wish),
    };
    if let Some(wish) = wish {
        let _ = wish.send(match &ended {
            release::Ended::Released(released) => Ok(*released),
            release::Ended::Refused { path, error } => {
                Err(ReleaseFailure::Refused { path: path.clone(), error: error.clone() })
            }
            release::Ended::Stopped => Err(ReleaseFailure::Stopped),
        });
    }
    release::after(feed, release, &ended, span);
}

/// What the task of a guard has to do next.
enum End {
    Downgrade(oneshot::Sender<Downgraded>),
    /// The guard was dropped.
    Dropped,
    Lost,
    Released(oneshot::Sender<Result<Released, ReleaseFailure>>),
}

impl End {
    fn of(wish: Result<Wish, oneshot::error::RecvError>) -> Self {
        match wish {
            Ok(Wish::Downgrade(sender)) => Self::Downgrade(sender),
            Ok(Wish::Release(sender)) => Self::Released(sender),
            Err(_) => Self::Dropped,
        }
    }
}

/// Waits until the owner of a lost guard lets go of it, and takes what the lane brings meanwhile.
async fn wish_of_loser(
    feed: &mut Feed,
    mut wished: oneshot::Receiver<Wish>,
) -> Option<oneshot::Sender<Result<Released, ReleaseFailure>>> {
    let wish = loop {
        let fed = tokio::select! {
            biased;
            wish = &mut wished => break wish,
            fed = feed.next(None) => fed,
        };
        if matches!(fed, Fed::AuthFailed | Fed::Closed) {
            break wished.await;
        }
    };
    match End::of(wish) {
        End::Released(sender) => Some(sender),
        // Dropped unanswered, it says that nothing was done.
        End::Downgrade(_) | End::Dropped | End::Lost => None,
    }
}

impl Keeper {
    /// Runs until the owner wants something else, or the lock is lost.
    async fn until_released(&mut self, wished: &mut oneshot::Receiver<Wish>) -> End {
        let mut lost = self.hold.lost.subscribe();
        loop {
            let until = self.watch_at.into_iter().chain(self.next_look()).min();
            let fed = tokio::select! {
                biased;
                wish = &mut *wished => return End::of(wish),
                _ = lost.wait_for(Option::is_some) => return End::Lost,
                fed = self.feed.next(until) => fed,
            };
            match fed {
                Fed::Input(Input::Timer) => self.prove_if_due(),
                Fed::Input(Input::Watch { local, kind }) => self.event(local, kind),
                Fed::Input(Input::Reply(reply)) => self.answered(reply),
                Fed::Connected(session) if session == self.hold.session => self.prove(),
                Fed::AuthFailed | Fed::Closed => self.hold.lose(LostReason::Closed),
                Fed::Lapsed => self.hold.lose(LostReason::DeadlinePassed),
                Fed::Input(Input::Ended(session)) if session == self.hold.session => {
                    self.hold.lose(LostReason::SessionExpired);
                }
                Fed::Connected(_) | Fed::Input(Input::Ended(_) | Input::Suspended) => {}
            }
            self.notice();
        }
    }

    /// When to look at the state of the lock although nothing has happened: an acknowledgement
    /// that is overdue is no event. Nobody has to know, unless somebody watches.
    fn next_look(&self) -> Option<Time> {
        if self.hold.at_risk == AtRiskPolicy::GoOn && !self.hold.observer.is_watched() {
            return None;
        }
        let status = self.feed.lane.status();
        let now = self.feed.lane.now();
        status
            .risk_deadline()
            .filter(|overdue| *overdue > now)
            // An acknowledgement that has come at last is no event either.
            .or_else(|| (status.state == SessionState::Connected).then(|| now + PAUSE))
    }

    /// Counts, and tells those who watch.
    fn notice(&mut self) {
        let phase = self.hold.phase();
        let was_at_risk = std::mem::replace(&mut self.is_at_risk, phase == Phase::AtRisk);
        if self.is_at_risk && !was_at_risk {
            Counters::count(&self.hold.counters.at_risk);
        }
        self.hold.observer.tell(phase);
    }

    fn prove_if_due(&mut self) {
        if self.watch_at.is_some_and(|at| at <= self.feed.lane.now()) {
            self.watch_at = None;
            self.submit();
        }
    }

    /// After a resume: a committed check, and a watch that is known to be set.
    fn prove(&mut self) {
        self.watch_at = None;
        self.needs_proof = true;
        self.submit();
    }

    fn submit(&mut self) {
        self.next_watch += 1;
        self.own_watch = Some(self.next_watch);
        let operations = if self.needs_proof {
            self.hold.proof(self.own_watch)
        } else {
            vec![read(self.hold.path.clone(), self.own_watch)]
        };
        if self.feed.submit(flight(Some(self.hold.session), operations)).is_err() {
            self.own_watch = None;
            self.watch_at = Some(self.feed.lane.now() + PAUSE);
        }
    }

    fn event(&mut self, local: u64, kind: EventType) {
        if self.own_watch != Some(local) {
            return;
        }
        self.own_watch = None;
        if kind == EventType::NODE_DELETED {
            self.hold.lose(LostReason::ZnodeDeleted);
        } else {
            // Data that changed is nobody's business, but the watch is used up.
            self.submit();
        }
    }

    fn answered(&mut self, mut reply: Reply) {
        // The read is always the last, and there is more than it where a proof was asked for.
        let is_proof = reply.results.len() > 1;
        let seen = self.hold.seen(reply.results.last().cloned().map(replayable));
        if is_proof {
            let proof = self.hold.proven(std::mem::take(&mut reply.results));
            if proof == Proof::Held {
                self.needs_proof = false;
                self.hold.proven_on.store(reply.connection, Ordering::Release);
            }
            self.conclude(&proof);
        }
        self.conclude(&seen);
    }

    fn conclude(&mut self, proof: &Proof) {
        match proof {
            Proof::Lost(reason) => self.hold.lose(*reason),
            Proof::Later => self.watch_at = Some(self.feed.lane.now() + PAUSE),
            // A lost connection is followed by a new one, and a new proof. Without the right to
            // read, nothing can prove anything: stay at risk.
            Proof::Held | Proof::Open | Proof::Refused(_) => {}
        }
    }

    /// Makes a reader of a writer, and answers. Whatever becomes of it, a wish comes next: the
    /// guard that holds now can be given back, or is dropped, also by an owner that is gone.
    async fn downgrade(
        &mut self,
        release: &mut Removal,
        sender: oneshot::Sender<Downgraded>,
    ) -> oneshot::Receiver<Wish> {
        let (wish, wished) = oneshot::channel();
        let writer = Parts::from((Arc::clone(&self.hold), wish));
        let answer = match self.become_reader(release).await {
            Ok(reader) => {
                self.hold = Arc::new(reader);
                Ok((Arc::clone(&self.hold), writer.1))
            }
            Err(error @ LockError::Lost(_)) => Err((error, None)),
            Err(error) => Err((error, Some(writer))),
        };
        let _ = sender.send(answer);
        wished
    }

    async fn become_reader(&mut self, release: &mut Removal) -> Result<Hold, LockError> {
        let hold = Arc::clone(&self.hold);
        // What is lost already is left alone.
        if let LockState::Lost(reason) = hold.state() {
            return Err(LockError::Lost(reason));
        }
        let Removal::Contender(release) = release else {
            unreachable!("only a writer of a queue can become a reader");
        };
        let profile = release.profile().clone();
        let mut downgrade = Downgrade::new(profile, hold.session, hold.znode.clone())
            .expect("the name is one that a writer was given");
        // Whatever happens from here on, either of the two may be what stands in the queue.
        release.rename(downgrade.names());
        let mut lost = hold.lost.subscribe();
        let mut step = downgrade.start();
        let (znode, connection) = loop {
            let until = match step {
                DowngradeStep::Done { znode, connection } => break (znode, connection),
                DowngradeStep::Lost(reason) => {
                    hold.lose(reason);
                    return Err(LockError::Lost(reason));
                }
                DowngradeStep::Refused(error) => {
                    release.rename(vec![hold.znode.name.clone()]);
                    // What was missed of the own znode is asked for again.
                    self.prove();
                    return Err(error);
                }
                DowngradeStep::Submit(flight) => {
                    if let Err(error) = self.feed.submit_patiently(flight).await {
                        hold.lose(LostReason::Closed);
                        return Err(LockError::definite(error, "create", &hold.path));
                    }
                    None
                }
                DowngradeStep::Wait(until) => until,
            };
            step = loop {
                let fed = tokio::select! {
                    biased;
                    _ = lost.wait_for(Option::is_some) => {
                        let reason = hold.lost.borrow().unwrap_or(LostReason::DeadlinePassed);
                        return Err(LockError::Lost(reason));
                    }
                    fed = self.feed.next(until) => fed,
                };
                match fed {
                    Fed::Input(input @ (Input::Reply(_) | Input::Timer | Input::Ended(_))) => {
                        break downgrade.handle(self.feed.view(), input);
                    }
                    Fed::AuthFailed | Fed::Closed => hold.lose(LostReason::Closed),
                    Fed::Lapsed => hold.lose(LostReason::DeadlinePassed),
                    Fed::Connected(_) | Fed::Input(Input::Suspended | Input::Watch { .. }) => {}
                }
                self.notice();
            };
        };
        hold.counters.replays(downgrade.replays());
        release.rename(vec![znode.name.clone()]);
        // The watch was on the znode that is gone.
        self.own_watch = None;
        self.needs_proof = false;
        self.granted_on = connection;
        self.watch_at = Some(self.feed.lane.now() + WATCH_AFTER);
        Ok(Hold {
            path: crate::machine::child(release.directory(), &znode.name),
            znode,
            proven_on: AtomicU64::new(connection),
            client: hold.client.clone(),
            session: hold.session,
            has_fixed_name: false,
            lapses: hold.lapses,
            lost: Arc::clone(&hold.lost),
            at_risk: hold.at_risk,
            observer: hold.observer.clone(),
            counters: Arc::clone(&hold.counters),
        })
    }
}
