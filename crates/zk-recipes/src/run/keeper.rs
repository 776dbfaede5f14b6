//! The task of a lock that is held. It wakes those who wait for the loss, renews the proof after a
//! reconnect, makes a reader of a writer, and removes the znode in the end.

use std::sync::Arc;
use std::time::Duration;

use jute_codec::EventType;
use tokio::sync::oneshot;
use tracing::{Instrument as _, Span};
use zk_session::machine::Reply;
use zk_session::{SessionState, Slot, Time};

use super::acquire::Order;
use super::hold::{Downgraded, Hold, Parts, Proof, ReleaseFailure, Wish};
use super::{Fed, Feed, release};
use crate::error::{LockError, LostReason};
use crate::guard::{Guard, LockState};
use crate::lock::AtRiskPolicy;
use crate::machine::downgrade::{Downgrade, DowngradeStep};
use crate::machine::release::Released;
use crate::machine::{Held, Input, PAUSE, Removal, child, flight, read, replayable};
use crate::phase::Phase;
use crate::stats::Counters;

/// When the own znode is watched after a grant without waiting: most locks are gone by then, and
/// their acquire stays one round trip.
const WATCH_AFTER: Duration = Duration::from_millis(100);

/// Starts to hold.
pub(crate) fn start<K>(
    order: &Order,
    mut feed: Feed,
    slot: Slot,
    release: Removal,
    held: Held,
    span: Span,
) -> Guard<K> {
    // Whoever was granted the lock from further behind has not needed it so far.
    feed.lane.need_lease(true);
    let now = feed.lane.now();
    let (own_watch, granted_on) = (held.own_watch, held.connection);
    let hold = Arc::new(Hold::new(order, feed.lane.client(), &release, held));
    let phase = hold.phase();
    hold.observer.tell(phase);
    let (wish, wished) = oneshot::channel();
    let keeper = Keeper {
        own_watch,
        next_watch: own_watch.unwrap_or(0),
        watch_at: own_watch.is_none().then(|| now + WATCH_AFTER),
        needs_proof: false,
        granted_on,
        since: now,
        // The time before the first lease does not count as a risk that has come up.
        is_at_risk: phase == Phase::AtRisk,
        presence: Presence(Some(Arc::clone(&hold))),
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
    presence: Presence,
}

/// That there is a task for the lock. If the task is dropped before it is done, its runtime has
/// shut down: nobody renews the session, and nobody would notice the loss of the lock.
struct Presence(Option<Arc<Hold>>);

impl Presence {
    fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        if let Some(hold) = self.0.take() {
            hold.lose(LostReason::Closed);
        }
    }
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
    let Keeper { mut feed, hold, granted_on, since, presence, .. } = keeper;
    presence.end();
    hold.counters.held(feed.lane.now().saturating_since(since));
    if hold.state() != LockState::Held || feed.lane.status().connection != granted_on {
        release.doubt();
    }
    let (counters, observer) = (Arc::clone(&hold.counters), hold.observer.clone());
    // From here on it is not held, whatever the release meets.
    drop(hold);
    feed.lane.need_lease(false);
    let ended = release::run(&mut feed, &mut release, false).await;
    counters.replays(release.replays());
    observer.end(Phase::Released);
    // Before anybody is waited for: what is left behind blocks others.
    release::after(&feed, release, &ended, span);
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
        // A watch that is pending keeps its name, so that the registry does not hold two for one znode.
        if self.own_watch.is_none() {
            self.next_watch += 1;
            self.own_watch = Some(self.next_watch);
        }
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
                self.hold.prove(reply.connection);
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
        let profile = Arc::clone(release.profile());
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
                    if let Err(error) = self.feed.submit(flight) {
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
        let path = child(release.directory(), &znode.name);
        Ok(hold.with_znode(path, znode, connection))
    }
}
