//! The keeper of a lock that is held: a task that detects the loss of the lock, renews the proof
//! after a reconnect, changes the lock if its owner requests it, and finally removes the znode.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use jute_codec::{EventType, Response};
use tokio::sync::oneshot;
use tracing::{Instrument as _, Span};
use zk_session::recipe::{Reply, Slot};
use zk_session::{OpError, SessionState, StateStream, Time, Zxid};

use super::hold::{ChangeReply, Command, Hold, Holding, Proof, ReleaseFailure, Terms, is_loss};
use crate::engine::drive::{Supervisor, drive};
use crate::engine::feed::{Feed, FeedEvent};
use crate::engine::removal::{self, Ended};
use crate::lock::error::{LockError, LostReason};
use crate::lock::log;
use crate::lock::outcome::{Changed, Held, NotChanged, Released};
use crate::lock::phase::Phase;
use crate::lock::recipe::{Change, ChangeRequest, LockRemoval as _, Recipe};
use crate::lock::state::{AtRiskPolicy, LockState};
use crate::machine::{
    FailedAction, Failure, Input, Machine, PAUSE, Pauses, Repeating, WatchNumber, WatchNumbers,
    flight, is_check_due, next_check, read, replayable, watch_existence,
};

/// Time between a grant without waiting and the keeper's watch on our own znode. Most locks are
/// released earlier, so that their acquire costs only one round trip.
const WATCH_AFTER: Duration = Duration::from_millis(100);

/// Starts the keeper of a lock that was just granted.
pub(crate) fn start<K: Recipe>(
    terms: Terms,
    mut feed: Feed,
    slot: Slot,
    removal: K::Removal,
    held: Held,
    span: Span,
) -> Holding<ChangeRequest<K>> {
    // An attempt that was granted the lock from further back in the queue has not needed a lease so
    // far.
    feed.lane.need_lease(true);
    feed.lane.hold_lock(true);
    let now = feed.lane.now();
    let own_watch = held.own_watch;
    let granted_on = held.connection;
    let path = removal.path_of(&held.znode);
    let hold = Arc::new(Hold::new(terms, path, held, feed.lane.lease_need()));
    let phase = hold.phase();
    hold.terms.counters.began();
    hold.terms.observer.report(phase);
    let (commands, received) = oneshot::channel();
    let keeper = Keeper::<K> {
        own_watch,
        watches: WatchNumbers::after(own_watch),
        watch_at: own_watch.is_none().then(|| now + WATCH_AFTER),
        check_at: next_check(feed.view()),
        known: None,
        pauses: Pauses::default(),
        knows_data: false,
        needs_proof: false,
        granted_on,
        since: now,
        at_risk_since: hold.concern().map(|_| now),
        attendance: Attendance(Some(Arc::clone(&hold))),
        hold: Arc::clone(&hold),
        feed,
        removal,
    };
    slot.keep(keep(keeper, received, span.clone()).instrument(span));
    Holding { hold, keeper: commands }
}

struct Keeper<K: Recipe> {
    hold: Arc<Hold>,
    feed: Feed,
    removal: K::Removal,
    /// The watch on our own znode.
    own_watch: Option<WatchNumber>,
    watches: WatchNumbers,
    /// When to read and watch our own znode.
    watch_at: Option<Time>,
    /// When to test whether it exists, because servers do not report its deletion if somebody has
    /// taken the permission to read it.
    check_at: Time,
    /// The last change of its data that was read.
    known: Option<Zxid>,
    /// The pauses after proofs that the server could not answer.
    pauses: Pauses,
    /// The data of our own znode was read, and is watched since then, so that no request to revoke
    /// the lock is missed.
    knows_data: bool,
    /// The connection is new, and nothing has proven the lock on it yet.
    needs_proof: bool,
    /// The connection on which the lock was granted.
    granted_on: u64,
    since: Time,
    /// Since when the lock has been at risk, as far as the keeper has noticed.
    at_risk_since: Option<Time>,
    attendance: Attendance,
}

/// Shows that the lock has a keeper. If the task is dropped before it has finished, its runtime has
/// shut down: the session is no longer renewed, and a loss of the lock would go unnoticed.
struct Attendance(Option<Arc<Hold>>);

impl Attendance {
    fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        if let Some(hold) = self.0.take() {
            hold.lose(LostReason::Closed);
        }
    }
}

type ReleaseReply = oneshot::Sender<Result<Released, ReleaseFailure>>;

/// Why the keeper stops watching.
enum End<R> {
    Change(R, oneshot::Sender<ChangeReply<R>>),
    /// The guard was dropped.
    Dropped,
    Lost,
    Released(ReleaseReply),
}

impl<R> From<Result<Command<R>, oneshot::error::RecvError>> for End<R> {
    fn from(command: Result<Command<R>, oneshot::error::RecvError>) -> Self {
        match command {
            Ok(Command::Change(request, reply)) => Self::Change(request, reply),
            Ok(Command::Release(reply)) => Self::Released(reply),
            Err(_) => Self::Dropped,
        }
    }
}

async fn keep<K: Recipe>(
    mut keeper: Keeper<K>,
    mut commands: oneshot::Receiver<Command<ChangeRequest<K>>>,
    span: Span,
) {
    let owner = loop {
        match keeper.watch(&mut commands).await {
            End::Change(request, reply) => match keeper.change(request, reply).await {
                AfterChange::Unchanged(next) => commands = next,
                AfterChange::Changed(commands) => break keeper.watch_changed(commands).await,
            },
            End::Dropped => break Owner::Gone,
            End::Lost => break Owner::Unknown(Box::pin(owner_of_lost(commands))),
            End::Released(reply) => break Owner::Waits(reply),
        }
    };
    let Keeper {
        mut feed, hold, mut removal, granted_on, since, at_risk_since, attendance, ..
    } = keeper;
    attendance.end();
    let Terms { counters, observer, .. } = hold.terms.clone();
    let now = feed.lane.now();
    counters.ended(now.saturating_since(since));
    if let Some(since) = at_risk_since {
        counters.was_at_risk(now.saturating_since(since));
    }
    // Another holder may have replaced the znode while the lock was not certainly ours.
    if hold.state() != LockState::Held || feed.lane.status().connection != granted_on {
        removal.doubt();
    }
    // From here on the lock is not held, whatever happens to the removal.
    hold.release();
    let (unused, ends_at) = (hold.unused(), hold.ends_at);
    drop(hold);
    let due = feed.lane.due();
    feed.lane.need_lease(false);
    feed.lane.hold_lock(false);
    // The reply to a pending proof means nothing any more.
    feed.pending = None;
    let _unused = wait_until_unused(&mut feed, unused, ends_at).await;
    let count = |removal: &K::Removal| counters.replays(removal.replays());
    let ended = removal::run(&mut feed, removal, span, count).await;
    observer.end(Phase::Released);
    drop(due);
    let reply = match owner {
        Owner::Gone => None,
        Owner::Waits(reply) => Some(reply),
        Owner::Unknown(owner) => drain_until(&mut feed, owner).await,
    };
    if let Some(reply) = reply {
        let _ = reply.send(match ended {
            Ended::Removed(released) => Ok(released),
            Ended::Refused(refusal) => Err(ReleaseFailure::Refused(refusal)),
            Ended::Stopped => Err(ReleaseFailure::Stopped),
        });
    }
}

/// The receiver of the result of the removal.
enum Owner {
    /// The owner of the guard dropped it.
    Gone,
    /// The owner of a lost guard may still release it, and then expects the result.
    Unknown(Pin<Box<dyn Future<Output = Option<ReleaseReply>> + Send>>),
    /// The owner is waiting for the release.
    Waits(ReleaseReply),
}

/// Waits until the owner of a lost guard releases or drops it.
async fn owner_of_lost<R>(commands: oneshot::Receiver<Command<R>>) -> Option<ReleaseReply> {
    match commands.await {
        Ok(Command::Release(reply)) => Some(reply),
        // Dropping the reply channel reports that nothing was done.
        Ok(Command::Change(..)) | Err(_) => None,
    }
}

/// Waits for the owner. Until then, discards the events of the lane.
async fn drain_until(
    feed: &mut Feed,
    mut owner: Pin<Box<dyn Future<Output = Option<ReleaseReply>> + Send>>,
) -> Option<ReleaseReply> {
    loop {
        let event = tokio::select! {
            biased;
            reply = &mut owner => return reply,
            event = feed.next(None) => event,
        };
        if matches!(event, FeedEvent::AuthFailed | FeedEvent::Closed) {
            return owner.await;
        }
    }
}

/// Waits until no request that was sent relies on the znode any more, at most until the limit of the
/// lock. Meanwhile, discards the events of the lane.
async fn wait_until_unused<T>(
    feed: &mut Feed,
    unused: impl Future<Output = T>,
    ends_at: Option<Time>,
) -> Option<T> {
    let mut unused = pin!(unused);
    loop {
        let event = tokio::select! {
            biased;
            unused = &mut unused => return Some(unused),
            event = feed.next(ends_at) => event,
        };
        let is_late = ends_at.is_some_and(|at| at <= feed.lane.now());
        if is_late || matches!(event, FeedEvent::AuthFailed | FeedEvent::Closed) {
            return None;
        }
    }
}

/// The result of a change, with the channel for further commands.
enum AfterChange<R> {
    Changed(oneshot::Receiver<Command<Infallible>>),
    Unchanged(oneshot::Receiver<Command<R>>),
}

impl<K: Recipe> Keeper<K> {
    /// Runs until the owner sends a command, or the lock is lost.
    async fn watch<R>(&mut self, commands: &mut oneshot::Receiver<Command<R>>) -> End<R> {
        let mut losses = self.hold.losses();
        let revocation = Arc::clone(&self.hold.revocation);
        let mut states = None;
        loop {
            let ends_at = self.hold.ends_at;
            if self.must_look() {
                // A change after this call ends the wait below.
                states.get_or_insert_with(|| self.hold.client().states()).current();
            }
            let until = self.watch_at.into_iter().chain(self.next_look()).chain(ends_at);
            let until = until.chain([self.check_at]).min();
            let event = tokio::select! {
                biased;
                command = &mut *commands => return End::from(command),
                _ = losses.wait_for(|lost| lost.as_ref().is_some_and(is_loss)) => return End::Lost,
                () = revocation.interest(), if !self.knows_data => {
                    // Every pending flight reads the znode.
                    if self.feed.pending.is_none() {
                        self.watch_at = None;
                        self.submit();
                    }
                    continue;
                }
                event = self.feed.next(until) => event,
                // The time of the next look may be an earlier one now.
                () = changed(&mut states) => {
                    notice(&self.hold, self.feed.lane.now(), &mut self.at_risk_since);
                    continue;
                }
            };
            match event {
                FeedEvent::Input(Input::Timer) => {
                    self.prove_if_due();
                    self.check_if_due();
                }
                FeedEvent::Input(Input::Watch { watch, kind }) => self.event(watch, kind),
                FeedEvent::Input(Input::Reply(reply)) => self.replied(reply),
                FeedEvent::Connected(session) if session == self.hold.session => self.prove(),
                event @ (FeedEvent::AuthFailed
                | FeedEvent::Closed
                | FeedEvent::Connected(_)
                | FeedEvent::Input(
                    Input::Answered(_) | Input::Ended(_) | Input::Suspended,
                )
                | FeedEvent::Lapsed) => lose_if_over(&self.hold, &event),
            }
            notice(&self.hold, self.feed.lane.now(), &mut self.at_risk_since);
        }
    }

    /// Watches a lock that was changed, until its end.
    async fn watch_changed(
        &mut self,
        mut commands: oneshot::Receiver<Command<Infallible>>,
    ) -> Owner {
        match self.watch(&mut commands).await {
            End::Change(never, _) => match never {},
            End::Dropped => Owner::Gone,
            End::Lost => Owner::Unknown(Box::pin(owner_of_lost(commands))),
            End::Released(reply) => Owner::Waits(reply),
        }
    }

    /// Returns when to check the state of the lock even if no event arrives, because an overdue
    /// acknowledgement is not an event. Returns `None` if there are no observers of the state.
    fn next_look(&self) -> Option<Time> {
        if !self.must_look() {
            return None;
        }
        let status = self.feed.lane.status();
        let now = self.feed.lane.now();
        status
            .risk_deadline()
            .filter(|overdue| *overdue > now)
            // The arrival of an overdue acknowledgement is not an event either.
            .or_else(|| (status.state == SessionState::Connected).then(|| now + PAUSE))
    }

    /// Returns whether somebody observes the state of the lock, or the lock is lost at risk.
    fn must_look(&self) -> bool {
        let Terms { options, observer, .. } = &self.hold.terms;
        options.at_risk == AtRiskPolicy::TreatAsLost || observer.is_watched()
    }

    fn prove_if_due(&mut self) {
        if self.watch_at.is_some_and(|at| at <= self.feed.lane.now()) {
            self.watch_at = None;
            self.submit();
        }
    }

    /// Tests whether the znode exists, which needs no permission. If a server has refused the proof,
    /// requests another one: the refusal may have ended.
    fn check_if_due(&mut self) {
        let view = self.feed.view();
        if !is_check_due(view, &mut self.check_at) {
            return;
        }
        self.check_at = next_check(view);
        // A read shows the same.
        if self.feed.pending.is_some() || self.watch_at.is_some() {
            return;
        }
        if self.needs_proof {
            self.submit();
        } else {
            let test = vec![watch_existence(self.hold.path.clone(), self.own_watch())];
            // A client that has stopped says so in another way.
            let _ = self.feed.submit(flight(Some(self.hold.session), test));
        }
    }

    /// Proves the lock after the session has been resumed: requests a committed check, and a watch
    /// that is known to be set.
    fn prove(&mut self) {
        self.watch_at = None;
        self.pauses.reset();
        self.needs_proof = true;
        self.submit();
    }

    fn submit(&mut self) {
        let own_watch = self.own_watch();
        let operations = if self.needs_proof {
            self.hold.proof(Some(own_watch))
        } else {
            vec![read(self.hold.path.clone(), Some(own_watch))]
        };
        if self.feed.submit(flight(Some(self.hold.session), operations)).is_err() {
            self.own_watch = None;
            self.pause();
        }
    }

    /// Returns the number of the watch on our own znode. A pending watch keeps its number, so that the
    /// registry does not hold two watches for one znode.
    fn own_watch(&mut self) -> WatchNumber {
        let watches = &mut self.watches;
        *self.own_watch.get_or_insert_with(|| watches.issue())
    }

    fn event(&mut self, watch: WatchNumber, kind: EventType) {
        if self.own_watch != Some(watch) {
            return;
        }
        self.own_watch = None;
        if kind == EventType::NODE_DELETED {
            self.hold.lose(LostReason::ZnodeDeleted);
        } else {
            // The new data may request a revocation. Besides, the event has used up the watch.
            self.submit();
        }
    }

    /// Evaluates the reply to [`submit`](Self::submit), a proof or the read alone, or to a test.
    fn replied(&mut self, reply: Reply) {
        let is_proof = reply.results.len() > 1;
        let last = reply.results.last();
        if let Some(written) = last.and_then(|read| self.hold.note_data(read)) {
            (self.knows_data, self.known) = (true, Some(written));
        }
        let has_missed_data = matches!(last, Some(Ok(Response::Exists(stat)))
            if self.known.is_some_and(|known| known != stat.mzxid));
        let seen = self.hold.seen(reply.results.last().cloned().map(replayable));
        if is_proof {
            let proof = self.hold.proven(reply.results.into_iter().map(replayable));
            if proof == Proof::Held {
                self.needs_proof = false;
                self.hold.prove(reply.connection);
            }
            self.conclude(&proof);
        }
        self.conclude(&seen);
        if has_missed_data && seen == Proof::Held {
            self.submit();
        }
        // A server that refuses the proof may well answer the read beside it.
        if self.watch_at.is_none() {
            self.pauses.reset();
        }
    }

    fn conclude(&mut self, proof: &Proof) {
        match proof {
            Proof::Lost(reason) => {
                self.hold.lose(*reason);
            }
            Proof::Later(_) => self.pause(),
            // After a lost connection, the keeper proves the lock again on the next one. Without
            // permission to read the znode, nothing can prove the lock, so it stays at risk until a
            // check is not refused.
            Proof::Held | Proof::Open | Proof::Refused(_) => {}
        }
    }

    /// Repeats the last read or proof after a pause. All guards of a client prove their locks when it
    /// has reconnected, so those that are refused together must come back apart. The keeper never
    /// gives up: only a proof ends the risk, even if it comes late.
    fn pause(&mut self) {
        self.watch_at = Some(self.pauses.begin(self.feed.lane.now(), self.feed.lane.seed()));
    }

    /// Changes the lock, and replies to its owner. Whatever the result, a command follows: the
    /// owner releases or drops the guard that now holds the lock. If the owner is gone, the guard
    /// has already been dropped.
    async fn change(
        &mut self,
        request: ChangeRequest<K>,
        reply: oneshot::Sender<ChangeReply<ChangeRequest<K>>>,
    ) -> AfterChange<ChangeRequest<K>> {
        match self.run_change(request).await {
            Ok(changed) => {
                self.hold = Arc::new(changed);
                let (keeper, commands) = oneshot::channel();
                let _ = reply.send(Ok(Holding { hold: Arc::clone(&self.hold), keeper }));
                AfterChange::Changed(commands)
            }
            Err(error) => {
                let (keeper, commands) = oneshot::channel();
                let holding = Holding { hold: Arc::clone(&self.hold), keeper };
                let is_lost = matches!(error, LockError::Lost(_));
                let _ = reply.send(Err((error, (!is_lost).then_some(holding))));
                AfterChange::Unchanged(commands)
            }
        }
    }

    async fn run_change(&mut self, request: ChangeRequest<K>) -> Result<Hold, LockError> {
        let hold = Arc::clone(&self.hold);
        // Do not change a lock that is already lost.
        if let LockState::Lost(reason) = hold.state() {
            return Err(LockError::Lost(reason));
        }
        let znode = hold.znode.clone();
        let change = K::Change::begin(request, &mut self.removal, hold.session, znode);
        let mut change = Repeating::new(change);
        let mut supervisor = Changing {
            hold: Arc::clone(&hold),
            loss: Box::pin(wait_for_loss(Arc::clone(&hold))),
            at_risk_since: &mut self.at_risk_since,
        };
        let changed = drive(&mut self.feed, &mut change, &mut supervisor).await?;
        match changed {
            Ok(Changed { znode, connection }) => {
                hold.terms.counters.replays(change.machine.replays());
                K::Change::settle(&mut self.removal, &znode);
                // The watch was on the old znode, which is gone.
                self.own_watch = None;
                self.knows_data = false;
                self.needs_proof = false;
                self.granted_on = connection;
                self.watch_at = Some(self.feed.lane.now() + WATCH_AFTER);
                let path = self.removal.path_of(&znode);
                Ok(hold.with_znode(path, znode, connection))
            }
            Err(NotChanged::Lost(reason)) => {
                hold.lose(reason);
                Err(LockError::Lost(reason))
            }
            Err(NotChanged::Refused(error)) => {
                K::Change::settle(&mut self.removal, &hold.znode);
                // During the change, events of our own znode were discarded, so read it again.
                self.prove();
                Err(error)
            }
        }
    }
}

/// Supervises a change. The loss of the lock ends the change.
struct Changing<'a> {
    hold: Arc<Hold>,
    loss: Pin<Box<dyn Future<Output = LostReason> + Send>>,
    at_risk_since: &'a mut Option<Time>,
}

impl<M: Machine> Supervisor<M> for Changing<'_> {
    type Stop = LockError;

    fn translate(&mut self, feed: &mut Feed, event: FeedEvent) -> Result<Option<Input>, LockError> {
        if let FeedEvent::Input(input @ (Input::Reply(_) | Input::Timer | Input::Ended(_))) = event
        {
            return Ok(Some(input));
        }
        lose_if_over(&self.hold, &event);
        notice(&self.hold, feed.lane.now(), self.at_risk_since);
        // The end of the connection ends a pause of the machine.
        let is_suspended = matches!(event, FeedEvent::Input(Input::Suspended));
        Ok(is_suspended.then_some(Input::Suspended))
    }

    fn rejected(&mut self, error: OpError) -> LockError {
        self.hold.lose(LostReason::Closed);
        LockError::of(Failure::new(FailedAction::Create, self.hold.path.clone(), error))
    }

    fn poll_stop(&mut self, cx: &mut Context<'_>) -> Poll<LockError> {
        self.loss.as_mut().poll(cx).map(LockError::Lost)
    }
}

async fn wait_for_loss(hold: Arc<Hold>) -> LostReason {
    let mut losses = hold.losses();
    let _ = losses.wait_for(Option::is_some).await;
    hold.lost_reason().unwrap_or(LostReason::DeadlinePassed)
}

/// Records the loss of the lock if the event means that its session has ended, its guard deadline
/// has passed, or the client has stopped.
fn lose_if_over(hold: &Hold, event: &FeedEvent) {
    match event {
        FeedEvent::AuthFailed | FeedEvent::Closed => {
            hold.lose(LostReason::Closed);
        }
        FeedEvent::Lapsed => {
            hold.lose(LostReason::DeadlinePassed);
        }
        FeedEvent::Input(Input::Ended(session)) if *session == hold.session => {
            hold.lose(LostReason::SessionExpired);
        }
        FeedEvent::Connected(_) | FeedEvent::Input(_) => {}
    }
}

/// Waits for a change of the session, or for ever if nobody looks.
async fn changed(states: &mut Option<StateStream>) {
    let is_changed = match states {
        Some(states) => states.next().await.is_some(),
        None => false,
    };
    if !is_changed {
        // A client that has stopped says so in another way.
        pending::<()>().await;
    }
}

/// Counts and logs each time that the lock becomes at risk, and reports the phase to observers.
fn notice(hold: &Hold, now: Time, at_risk_since: &mut Option<Time>) {
    let phase = hold.phase();
    match (hold.concern(), *at_risk_since) {
        (Some(risk), None) => {
            *at_risk_since = Some(now);
            hold.terms.counters.at_risk();
            log::at_risk(hold.client(), &hold.path, risk);
        }
        (None, Some(since)) => {
            *at_risk_since = None;
            hold.terms.counters.was_at_risk(now.saturating_since(since));
            if phase == Phase::Held {
                log::held_again(hold.client(), &hold.path);
            }
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
    hold.terms.observer.report(phase);
}
