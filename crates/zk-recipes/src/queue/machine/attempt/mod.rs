//! One attempt to obtain a lock in a queue, in one session. Each attempt has its own id. An attempt
//! watches the nearest predecessor that excludes it and, in a queue without readers, the second
//! nearest too. The fair lock and both sides of the read/write lock use this machine.
//!
//! 1. Claim a place ([`claim`](super::claim)), which also returns a list of the queue.
//! 2. Evaluate the list. If it contains znodes with our id but another name, reconcile them first.
//!    If our own znode is missing, the place is lost: start a new attempt. If no predecessor
//!    excludes us, the lock is held. Otherwise continue with 3. A reader waits only for the writers
//!    ahead, and every other contender waits for all predecessors.
//! 3. In one flight, read and watch the nearest predecessor that excludes us, and our own znode. If
//!    the predecessor is gone, list again (2), with one exception: the lock is held if the newest
//!    list showed only that predecessor, all of this happened on one connection that is alive, and
//!    our own znode, which was read after the predecessor, exists. If the client may not read the
//!    predecessor, watch the directory instead. Then, if the predecessor belongs to another session
//!    and the queue has no readers, read and watch the second nearest.
//! 4. Wait. When the second nearest is deleted, list again while the nearest still exists, unless
//!    there were no other predecessors. In this way, the attempt knows in time that it has only one
//!    predecessor left. When the nearest is deleted, the lock is held without another request if
//!    all of these are true:
//!    - the queue has no readers. In a queue with readers, a znode can appear ahead of others when
//!      a writer becomes a reader;
//!    - the newest list was read on the current connection and showed exactly one predecessor;
//!    - that predecessor belonged to another session. (A session that is expiring may report the
//!      deletion of its own znodes in any order, and ours may be among them);
//!    - our own znode was watched on this connection the whole time, and its watch did not fire;
//!    - the session is connected read-write, and its guard deadline is in the future.
//!
//!    If only the owner of the predecessor or the watch on our own znode prevents the grant, one
//!    read of our own znode decides. In all other cases, list again. A deletion alone never grants
//!    the lock: the predecessor may have given up while others were still ahead of it.
//! 5. From time to time, check for missed watches: in one flight, read the predecessor and our own
//!    znode again, which also restores their watches. If either has changed, list (2). The cost
//!    does not depend on the length of the queue. If the client may not read the predecessor, test
//!    whether it exists. Servers from 3.8.4 and 3.9.2 refuse this too, but only if it exists.
//! 6. If the session ends while the attempt waits, start a new attempt in the next session, at the
//!    end of the queue.
//!
//! After an outage that was longer than the lease, the session is connected, but no lock may be
//! granted, and reads do not change that. So a write barrier precedes the list in that case: its
//! commit creates a new lease.
//!
//! A list may be stale, but one conclusion from it stays true: znodes with lower numbers only
//! disappear, or pass their number to a reader's znode while they exist. So if our own znode is in
//! the list and no predecessor excludes it, none will. The name alone does not show that our own
//! znode is still the one that was created. So it must have been created just before the list, or
//! have been watched since it was read, or a read in the flight of the list must show that our
//! session and our transaction created it. The znode may be deleted at any moment after that, which
//! the guard detects.

mod checking;
mod listing;
mod place;

use std::sync::Arc;

use jute_codec::{ErrorCode, EventType, Response};
use zk_session::{OpError, SessionId, Time};

use self::listing::{FlightShape, OwnZnode};
use self::place::Place;
use super::claim::{Claim, Claimed};
use super::removal::QueueRemoval;
use crate::lock::outcome::{Held, NotHeld, Restart, Tally};
use crate::lock::recipe::Attempt;
use crate::machine::{
    Answer, Answers, FailedAction, Failure, Input, Leaving, Machine, Needs, SessionView, Step,
    WatchNumber, WatchNumbers, child, flight, read, spread,
};
use crate::queue::profile::QueueProfile;
use crate::timed_out::{Predecessor, short_identity};

type AttemptStep = Step<Result<Held, NotHeld>>;

/// One attempt to obtain a lock in a queue.
#[derive(Clone, Debug)]
pub struct QueueAttempt {
    profile: Arc<QueueProfile>,
    claim: Claim,
    /// The attempt may wait in the queue. Otherwise it ends if it would have to wait.
    may_queue: bool,
    place: Option<Place>,
    /// Number of predecessors, according to the newest list.
    ahead: Option<usize>,
    watches: WatchNumbers,
    /// The client may not read the predecessor, so the attempt watches the directory instead.
    is_blind: bool,
    /// The time of the next check for missed watches.
    check_at: Option<Time>,
    state: State,
}

/// The reads in the first flight of step 3, in this order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct WatchedReads {
    ahead: bool,
    own: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Step 1, or the reconciliation of step 2, is in progress.
    Claiming,
    /// The list of step 2 is in flight.
    Listing(FlightShape),
    /// Step 3 is in flight.
    Watching(WatchedReads),
    /// The second flight of step 3 is pending.
    WatchingSecond,
    /// Step 4: waiting.
    Queued,
    /// Step 4: the read of our own znode is in flight.
    Confirming,
    /// Step 5 is in flight, with this watch on our own znode.
    Checking(WatchNumber),
    /// The lock is granted, but the grant may still be revoked by input that has already arrived.
    Granted,
}

impl QueueAttempt {
    /// Creates an attempt with its own id. Without `may_queue`, the attempt ends if the lock is
    /// taken.
    pub fn new(profile: impl Into<Arc<QueueProfile>>, id: u128, may_queue: bool) -> Self {
        let profile = profile.into();
        let claim = Claim::new(Arc::clone(&profile), id);
        Self {
            claim,
            may_queue,
            place: None,
            ahead: None,
            watches: WatchNumbers::default(),
            is_blind: false,
            check_at: None,
            profile,
            state: State::Claiming,
        }
    }

    /// Hands an input to the claim.
    fn claim(&mut self, view: SessionView, input: Input) -> AttemptStep {
        let step = self.claim.handle(view, input);
        self.after_claim(view, step)
    }

    fn after_claim(
        &mut self,
        view: SessionView,
        step: Step<Result<Claimed, NotHeld>>,
    ) -> AttemptStep {
        match step {
            Step::Done(Ok(claimed)) => self.claimed(view, claimed),
            Step::Done(Err(not_held)) => Step::Done(Err(not_held)),
            Step::Submit(flight, needs) => Step::Submit(flight, needs),
            Step::SubmitLater(flight, needs) => Step::SubmitLater(flight, needs),
            Step::Wait(until) => Step::Wait(until),
        }
    }

    fn claimed(&mut self, view: SessionView, claimed: Claimed) -> AttemptStep {
        self.place = Some(Place::new(claimed.session));
        match claimed.list {
            // The list is from the flight of the create, so no other session can have created a
            // znode of that name in between.
            Some((names, connection)) => {
                self.evaluate(view, &names, connection, OwnZnode::Ours, false)
            }
            None => self.list_again(view),
        }
    }

    /// Performs step 3: watches the predecessor if it is new, and our own znode if it is not
    /// watched on this connection.
    fn watch(&mut self, view: SessionView, is_new: bool) -> AttemptStep {
        let ahead_watch = self.watches.issue();
        let fresh = self.watches.issue();
        let place = self.place.as_mut().expect("an attempt with a place sets watches");
        // A pending watch keeps its number, so that the registry does not hold two watches for one
        // znode.
        let own_watch = place.own_watch.unwrap_or(fresh);
        let directory = &self.profile.directory;
        let mut operations = Vec::new();
        // A watch that was restored after a disconnect reports missed changes, but step 4 needs a
        // watch that was set on the connection of the newest list.
        let own = place.own_watch.is_none() || place.own_watched_on != place.listed_on;
        let reads = WatchedReads { ahead: is_new, own };
        if reads.ahead {
            place.ahead_watch = Some(ahead_watch);
            place.is_ahead_foreign = false;
            place.ahead_owner = SessionId::NONE;
            place.ahead_identity = Box::default();
            operations.push(read(child(directory, &place.nearest), Some(ahead_watch)));
        }
        if reads.own {
            place.own_watch = Some(own_watch);
            place.own_watched_on = None;
            operations.push(read(self.claim.path(), Some(own_watch)));
        }
        if operations.is_empty() {
            return self.watch_second(view);
        }
        self.state = State::Watching(reads);
        Step::Submit(flight(Some(place.session), operations), Needs::All)
    }

    fn watched(&mut self, view: SessionView, reads: WatchedReads, answers: Answers) -> AttemptStep {
        let connection = answers.connection;
        self.claim.tally.replayed(answers.replays);
        let place = self.place.as_mut().expect("an attempt with a place sets watches");
        let mut results = answers.results.into_iter();
        let mut next = |was_read: bool| was_read.then(|| results.next()).flatten();
        let ahead = next(reads.ahead);
        let own = next(reads.own);
        let is_own = matches!(&own, Some(Answer::Done(Response::GetData(found)))
            if self.claim.is_znode(found));
        // A failed read sets no watch, and a watch on another session's znode proves nothing.
        // Handle both cases before any of the results below ends this function.
        if !matches!(ahead, None | Some(Answer::Done(Response::GetData(_)))) {
            place.ahead_watch = None;
        }
        if own.is_some() && !is_own {
            place.own_watch = None;
        }
        match ahead {
            None => {}
            Some(Answer::Done(Response::GetData(data))) => {
                place.is_ahead_foreign = data.stat.ephemeral_owner != place.session;
                place.ahead_owner = data.stat.ephemeral_owner;
                place.ahead_identity = short_identity(data.data.as_deref().unwrap_or_default());
            }
            Some(Answer::SessionOver) => return restart(Restart::SessionOver),
            Some(Answer::Refused(OpError::Server { code: ErrorCode::NO_AUTH, .. })) => {
                self.is_blind = true;
                place.second = None;
                return self.list_again(view);
            }
            Some(Answer::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. })) => {
                let is_current = view.may_grant(connection) && place.listed_on == Some(connection);
                // The only predecessor is gone, and our own znode was read after that.
                if is_own && is_current && place.own_watch.is_some() && self.had_one_ahead() {
                    return self.grant_confirmed(view, connection);
                }
                return self.list_again(view);
            }
            Some(Answer::Refused(error)) => {
                let path = child(&self.profile.directory, &place.nearest);
                return failed(Failure::new(FailedAction::Read, path, error));
            }
            Some(Answer::Done(_) | Answer::Unknown { .. }) => {
                place.own_watch = None;
                return self.watch(view, true);
            }
        }
        match own {
            None => {}
            Some(_) if is_own => place.own_seen(connection),
            Some(Answer::Refused(error)) if !error.is_no_node() => {
                return failed(Failure::new(FailedAction::Read, self.claim.path(), error));
            }
            // The znode with our name is not watched, or is not ours, so the list decides.
            Some(_) => return self.list_again(view),
        }
        // The list is from another connection, so the deletion of the predecessor must not grant
        // the lock.
        if place.listed_on != Some(connection) {
            place.listed_on = None;
        }
        self.watch_second(view)
    }

    /// Performs the last part of step 3: sets the watch on the second nearest predecessor, which is
    /// not necessary but saves time.
    fn watch_second(&mut self, view: SessionView) -> AttemptStep {
        let second_watch = self.watches.issue();
        let place = self.place.as_mut().expect("an attempt with a place sets watches");
        if !place.is_watched() {
            return self.queue(view);
        }
        // If the predecessor belongs to our own session, a read follows its deletion in any case,
        // so the watch would save nothing.
        match place.second.take().filter(|_| place.is_ahead_foreign) {
            None => self.queue(view),
            Some(second) => {
                self.state = State::WatchingSecond;
                place.second_watch = Some(second_watch);
                let path = child(&self.profile.directory, &second);
                let operations = vec![read(path, Some(second_watch))];
                Step::Submit(flight(Some(place.session), operations), Needs::OneTry)
            }
        }
    }

    fn second_watched(&mut self, view: SessionView, answers: Answers) -> AttemptStep {
        let place = self.place.as_mut().expect("an attempt with a place sets watches");
        let [second] = answers.take();
        match second {
            Answer::Done(_) if place.second_watch.is_some() => self.queue(view),
            Answer::SessionOver => restart(Restart::SessionOver),
            // The second nearest predecessor was deleted before or after the read.
            Answer::Done(_) | Answer::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {
                place.second_watch = None;
                self.list_again(view)
            }
            // Without this watch, the attempt lists again when the predecessor is deleted.
            Answer::Refused(_) | Answer::Unknown { .. } => {
                place.second_watch = None;
                self.queue(view)
            }
        }
    }

    /// Begins step 4, unless a watch has fired since it was set.
    fn queue(&mut self, view: SessionView) -> AttemptStep {
        let place = self.place.as_ref().expect("an attempt with a place waits");
        if !place.is_watched() {
            return self.list_again(view);
        }
        self.wait_in_queue(view)
    }

    /// Performs step 4. The time of the next check differs between waiters, so that they do not
    /// check at the same time.
    fn wait_in_queue(&mut self, view: SessionView) -> AttemptStep {
        self.state = State::Queued;
        let interval = self.profile.watch_check;
        self.check_at = interval.map(|interval| view.now + spread(interval, self.claim.id()));
        self.wait(view)
    }

    /// Returns whether the predecessor was the only one, according to the newest list.
    fn had_one_ahead(&self) -> bool {
        self.ahead == Some(1) && !self.profile.names.is_shared()
    }

    /// Grants the lock because our own znode was read after the predecessor was deleted.
    fn grant_confirmed(&mut self, view: SessionView, connection: u64) -> AttemptStep {
        let place = self.place.as_mut().expect("a lock is granted to a place");
        place.own_watched_on = Some(connection);
        self.grant(view, connection)
    }

    /// Handles an event. Events of watches that were replaced are discarded.
    fn event(&mut self, view: SessionView, watch: WatchNumber, kind: EventType) -> AttemptStep {
        let Some(place) = self.place.as_mut() else { return self.wait(view) };
        if place.own_watch == Some(watch) {
            place.own_watch = None;
            place.own_watched_on = None;
            if kind == EventType::NODE_DELETED {
                return self.list_unless_busy(view);
            }
            return self.wait(view);
        }
        if place.second_watch == Some(watch) {
            place.second_watch = None;
            if self.state == State::Queued && kind == EventType::NODE_DELETED {
                // If there were exactly two contenders ahead, one is left. If there were more, only
                // a list shows which contender is the second nearest now.
                if self.ahead != Some(2) || !place.is_listed(view) {
                    return self.list_again(view);
                }
                self.ahead = Some(1);
            }
            return self.wait(view);
        }
        if place.ahead_watch != Some(watch) {
            return self.wait(view);
        }
        place.ahead_watch = None;
        if self.state != State::Queued {
            // The reply to the pending flight will show this change.
            return self.wait(view);
        }
        // Check the conditions of step 4.
        let is_current = place.is_listed(view) && !view.is_running_out;
        let is_own_certain = place.is_ahead_foreign && place.is_own_watched(view);
        if kind != EventType::NODE_DELETED || !self.had_one_ahead() || self.is_blind || !is_current
        {
            return self.list_again(view);
        }
        match view.alive {
            Some(connection) if is_own_certain => self.grant(view, connection),
            Some(_) | None => self.confirm(),
        }
    }

    /// Reads our own znode, because only its state is uncertain.
    fn confirm(&mut self) -> AttemptStep {
        self.state = State::Confirming;
        let fresh = self.watches.issue();
        let place = self.place.as_mut().expect("a place is confirmed");
        let own_watch = place.own_watch.unwrap_or(fresh);
        place.own_watch = Some(own_watch);
        place.own_watched_on = None;
        let operations = vec![read(self.claim.path(), Some(own_watch))];
        // Without an answer, a list decides.
        Step::Submit(flight(Some(place.session), operations), Needs::OneTry)
    }

    fn confirmed(&mut self, view: SessionView, answers: Answers) -> AttemptStep {
        let connection = answers.connection;
        let place = self.place.as_mut().expect("a place is confirmed");
        let [own] = answers.take();
        match own {
            Answer::Done(Response::GetData(found))
                if self.claim.is_znode(&found)
                    && place.own_watch.is_some()
                    && view.may_grant(connection)
                    && place.listed_on == Some(connection) =>
            {
                self.grant_confirmed(view, connection)
            }
            Answer::SessionOver => restart(Restart::SessionOver),
            Answer::Done(_) | Answer::Refused(_) | Answer::Unknown { .. } => {
                place.own_watch = None;
                self.list_again(view)
            }
        }
    }

    fn grant(&mut self, view: SessionView, connection: u64) -> AttemptStep {
        self.state = State::Granted;
        let place = self.place.as_ref().expect("a lock is granted to a place");
        let znode = self.claim.znode().expect("a place has a znode").clone();
        // Without a live connection, another session could be granted the lock at this moment, and
        // a list from another connection may be older than the state that this connection has
        // shown.
        debug_assert_eq!(view.alive, Some(connection), "a grant needs a guard deadline ahead");
        debug_assert_eq!(
            place.listed_on,
            Some(connection),
            "a grant needs a list of its connection"
        );
        debug_assert_eq!(self.claim.session(), Some(place.session), "the znode is of this session");
        Step::Done(Ok(Held {
            znode,
            session: place.session,
            connection,
            own_watch: place.own_watch,
            lapses: view.lapses,
        }))
    }

    /// Repeats the grant, unless its connection has ended or its deadline has passed. The view may
    /// show this before the input that reports it arrives.
    fn grant_again(&mut self, view: SessionView) -> AttemptStep {
        let place = self.place.as_ref().expect("a lock is granted to a place");
        match view.alive {
            Some(connection) if place.is_listed(view) => self.grant(view, connection),
            Some(_) | None => self.list_again(view),
        }
    }

    /// Continues as before.
    fn wait(&mut self, view: SessionView) -> AttemptStep {
        match self.state {
            State::Queued => Step::Wait(self.check_at),
            State::Granted => self.grant_again(view),
            State::Claiming
            | State::Listing(_)
            | State::Watching(_)
            | State::WatchingSecond
            | State::Confirming
            | State::Checking(_) => Step::Wait(None),
        }
    }

    /// Handles a lost connection. The watches are restored on the next connection, but conclusions
    /// from this connection are no longer valid.
    fn suspended(&mut self, view: SessionView) -> AttemptStep {
        if let Some(place) = self.place.as_mut() {
            place.listed_on = None;
            place.own_watched_on = None;
        }
        match self.state {
            State::Granted => self.list_again(view),
            State::Claiming
            | State::Listing(_)
            | State::Watching(_)
            | State::WatchingSecond
            | State::Queued
            | State::Confirming
            | State::Checking(_) => self.wait(view),
        }
    }

    fn session_ended(&mut self, view: SessionView, session: SessionId) -> AttemptStep {
        if self.claim.session() == Some(session) {
            restart(Restart::SessionOver)
        } else {
            // Another session has ended, or the create is pending and its reply will show whether
            // our session has ended.
            self.wait(view)
        }
    }
}

impl Machine for QueueAttempt {
    type Output = Result<Held, NotHeld>;

    fn start(&mut self, view: SessionView) -> AttemptStep {
        let step = self.claim.start(view);
        self.after_claim(view, step)
    }

    fn handle(&mut self, view: SessionView, input: Input) -> AttemptStep {
        match (self.state, input) {
            (_, Input::Ended(session)) => self.session_ended(view, session),
            (_, Input::Suspended) => self.suspended(view),
            (State::Claiming, input @ Input::Answered(_)) => self.claim(view, input),
            (State::Listing(shape), Input::Answered(answers)) => self.listed(view, shape, answers),
            (State::Watching(reads), Input::Answered(answers)) => {
                self.watched(view, reads, answers)
            }
            (State::WatchingSecond, Input::Answered(answers)) => self.second_watched(view, answers),
            (State::Confirming, Input::Answered(answers)) => self.confirmed(view, answers),
            (State::Checking(own_watch), Input::Answered(answers)) => {
                self.checked(view, own_watch, answers)
            }
            (State::Queued, Input::Timer) => self.check(),
            (_, Input::Watch { watch, kind }) => self.event(view, watch, kind),
            (_, _) => self.wait(view),
        }
    }
}

impl Attempt for QueueAttempt {
    fn ahead(&self) -> Option<usize> {
        self.ahead
    }

    fn predecessor(&self) -> Option<Predecessor> {
        let ahead = self.ahead.filter(|ahead| *ahead > 0)?;
        let place = self.place.as_ref()?;
        let owner = Some(place.ahead_owner).filter(|owner| *owner != SessionId::NONE);
        Some(Predecessor::new(ahead, &place.nearest, &place.ahead_identity, owner))
    }

    fn is_behind_own_session(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.ahead_owner == place.session)
    }

    fn take_tally(&mut self) -> Tally {
        self.claim.take_tally()
    }
}

impl Leaving for QueueAttempt {
    type Removal = QueueRemoval;

    fn abandon(self, is_pending: bool) -> Option<(QueueRemoval, bool)> {
        Some(self.claim.abandon(is_pending && self.state == State::Claiming))
    }
}

fn restart(restart: Restart) -> AttemptStep {
    Step::Done(Err(NotHeld::Restart(restart)))
}

fn failed(failure: Failure) -> AttemptStep {
    Step::Done(Err(NotHeld::of(failure)))
}
