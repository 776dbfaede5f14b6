//! A seat: an attempt to obtain a lock in a queue, in one session, with its own id. This is what all
//! queues have in common, from the creation of the contender's znode to the grant. How a contender
//! waits for others is the [`Place`] of the recipe.
//!
//! 1. Claim a place ([`claim`](super::claim)), which also returns a list of the queue.
//! 2. Evaluate the list. If it contains znodes with our id but another name, reconcile them first.
//!    If our own znode is missing, the place is lost: start a new attempt. If the contender need not
//!    wait, the lock is granted. Otherwise continue with 3.
//! 3. The recipe watches those that the contender has to wait for.
//! 4. Wait. The recipe decides what follows from an event. In doubt, it lists again (2).
//! 5. From time to time, the recipe checks for missed watches.
//! 6. If the session ends while the attempt waits, start a new attempt in the next session, at the
//!    end of the queue.
//!
//! After an outage that was longer than the lease, the session is connected, but no lock may be
//! granted, and reads do not change that. So a write barrier precedes the list in that case: its
//! commit creates a new lease.
//!
//! A list may be stale, but one conclusion from it stays true: znodes with lower numbers only
//! disappear, or pass their number to a reader's znode while they exist. So if our own znode is in
//! the list and need not wait, it never will have to. The name alone does not show that our own
//! znode is still the one that was created. So it must have been created just before the list, or
//! have been watched since it was read, or a read in the flight of the list must show that our
//! session and our transaction created it. The znode may be deleted at any moment after that, which
//! the guard detects.

use std::fmt::Debug;
use std::sync::Arc;

use bytestring::ByteString;
use jute_codec::{DataReply, EventType, NameList, Response};
use zk_session::recipe::{Flight, Operation};
use zk_session::{OpError, SessionId, Time};

use super::claim::{Claim, Claimed};
use super::removal::QueueRemoval;
use super::standing::Standing;
use crate::lock::outcome::{Held, NotHeld, Restart, Tally};
use crate::lock::recipe::Attempt;
use crate::machine::{
    Answer, Answers, FailedAction, Failure, Input, Leaving, Machine, Needs, News, SessionView,
    Step, WatchNumber, WatchNumbers, barrier, flight, read, spread,
};
use crate::queue::profile::QueueProfile;
use crate::timed_out::Predecessor;

pub(crate) type SeatStep = Step<Result<Held, NotHeld>>;

/// How a contender waits for others: which of them it watches, and what it concludes.
pub trait Place: Clone + Debug + Default + Send + Sized + 'static {
    /// What the recipe waits for, besides the waits that all queues have.
    type Wait: Copy + Debug + Eq + Send;
    /// The others that a contender has to wait for.
    type Nearest;

    /// Returns the operations that list the queue. For a semaphore, the second one reads the
    /// directory.
    fn list(seat: &mut Seat<Self>) -> Vec<Operation>;

    /// Takes note of which of these operations have failed, and so have set no watch.
    fn listed(&mut self, _has_list: bool, _has_directory: bool) {}

    /// Finds the position of our own znode in a list. The error is a step that has to come first.
    fn standing(
        seat: &mut Seat<Self>,
        list: &List,
    ) -> Result<Standing<Self::Nearest>, Box<SeatStep>>;

    /// Begins to wait for these others.
    fn wait_for(seat: &mut Seat<Self>, view: SessionView, nearest: Self::Nearest) -> SeatStep;

    /// Evaluates the answers to a flight of the recipe.
    fn answered(
        seat: &mut Seat<Self>,
        view: SessionView,
        wait: Self::Wait,
        answers: Answers,
    ) -> SeatStep;

    /// Handles an event. Events of watches that were replaced are discarded.
    fn event(
        seat: &mut Seat<Self>,
        view: SessionView,
        watch: WatchNumber,
        kind: EventType,
    ) -> SeatStep;

    /// Checks for missed watches.
    fn check(seat: &mut Seat<Self>, view: SessionView) -> SeatStep;

    /// See [`Attempt::predecessor`].
    fn predecessor(seat: &Seat<Self>) -> Option<Predecessor>;

    /// See [`Attempt::is_behind_own_session`].
    fn is_behind_own_session(seat: &Seat<Self>) -> bool;

    /// A session may wait for itself on purpose.
    const MAY_WAIT_FOR_OWN_SESSION: bool = false;

    /// See [`Attempt::follows`].
    fn follows(&self) -> bool {
        false
    }

    /// See [`Attempt::told`].
    fn told(_: &mut Seat<Self>, _: SessionView, news: News) -> SeatStep {
        unreachable!("this attempt follows no persistent watch: {news:?}")
    }
}

/// One attempt to obtain a lock in a queue.
#[derive(Clone, Debug)]
pub struct Seat<P: Place> {
    pub(crate) profile: Arc<QueueProfile>,
    pub(crate) claim: Claim,
    /// The attempt may wait in the queue. Otherwise it ends if it would have to wait.
    may_queue: bool,
    /// Number of predecessors, according to the newest list.
    pub(crate) ahead: Option<usize>,
    /// Connection on which the newest list was read; `None` after a disconnect.
    pub(crate) listed_on: Option<u64>,
    pub(crate) watches: WatchNumbers,
    /// The watch on our own znode. It is restored after a disconnect.
    pub(crate) own_watch: Option<WatchNumber>,
    /// Connection on which a read set the watch on our own znode.
    pub(crate) own_watched_on: Option<u64>,
    /// The time of the next check for missed watches.
    check_at: Option<Time>,
    pub(crate) state: State<P::Wait>,
    pub(crate) place: P,
}

/// What a seat waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum State<W> {
    /// Step 1, or the reconciliation of step 2, is in progress.
    Claiming,
    /// The list of step 2 is in flight.
    Listing(FlightShape),
    /// A wait of the recipe.
    Of(W),
    /// The contender waits for others.
    Queued,
    /// The lock is granted, but the grant may still be revoked by input that has already arrived.
    Granted,
}

/// Which other operations the flight of a list contains: a barrier before the list, and a read of
/// our own znode after it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FlightShape {
    barrier: bool,
    own: bool,
}

/// A list of the queue.
#[derive(Debug)]
pub struct List {
    pub(crate) names: NameList,
    /// The directory, which was read in the same flight, if the queue is a semaphore's.
    pub(crate) directory: Option<DataReply>,
    connection: u64,
    own: OwnZnode,
    /// The flight passed a write barrier before the list.
    has_barrier: bool,
}

/// What the attempt knows about our own znode, in addition to its name in the list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum OwnZnode {
    /// The znode is ours: it was just created or read, or is watched.
    Ours,
    /// The watch on the znode has fired since the list was requested.
    Unclear,
    /// The znode is gone, or another session has created a znode with the same name.
    Gone,
}

impl<P: Place> Seat<P> {
    /// Creates an attempt with its own id. Without `may_queue`, the attempt ends if it would have to
    /// wait.
    pub fn new(profile: impl Into<Arc<QueueProfile>>, id: u128, may_queue: bool) -> Self {
        let profile = profile.into();
        Self {
            claim: Claim::new(Arc::clone(&profile), id),
            profile,
            may_queue,
            ahead: None,
            listed_on: None,
            watches: WatchNumbers::default(),
            own_watch: None,
            own_watched_on: None,
            check_at: None,
            state: State::Claiming,
            place: P::default(),
        }
    }

    /// Hands an input to the claim.
    fn claim(&mut self, view: SessionView, input: Input) -> SeatStep {
        let step = self.claim.handle(view, input);
        self.after_claim(view, step)
    }

    fn after_claim(&mut self, view: SessionView, step: Step<Result<Claimed, NotHeld>>) -> SeatStep {
        match step {
            Step::Done(Ok(claimed)) => self.claimed(view, claimed),
            Step::Done(Err(not_held)) => Step::Done(Err(not_held)),
            Step::Submit(flight, needs) => Step::Submit(flight, needs),
            Step::SubmitLater(flight, needs) => Step::SubmitLater(flight, needs),
            Step::Wait(until) => Step::Wait(until),
        }
    }

    fn claimed(&mut self, view: SessionView, Claimed { list, directory }: Claimed) -> SeatStep {
        // Nothing is known yet about the znode that was claimed.
        self.own_watch = None;
        self.own_watched_on = None;
        self.listed_on = None;
        match list {
            // The list is from the flight of the create, so no other session can have created a
            // znode of that name in between.
            Some((names, connection)) if directory.is_some() == self.reads_directory() => {
                let own = OwnZnode::Ours;
                self.evaluate(view, &List { names, directory, connection, own, has_barrier: false })
            }
            Some(_) | None => self.list_again(view),
        }
    }

    /// Returns whether a list also reads the directory, whose data is the number of permits.
    fn reads_directory(&self) -> bool {
        self.profile.permits.is_some()
    }

    /// Lists the queue for step 2. A list without a watch is shared with other attempts of the
    /// client.
    ///
    /// Only a committed write renews a lease that has ended, and without a lease no lock can be
    /// granted, so a barrier precedes the list in that case. A barrier also precedes it if the lease
    /// ends so soon that a lock which is granted now may be lost at once. Unless our own znode is
    /// watched, the flight reads it too: its name alone could be that of a znode that another
    /// session has created. A watch that was restored after a disconnect is also sufficient: before
    /// the server answers any other request, it compares the znode with the state that the session
    /// had seen.
    pub(crate) fn list_again(&mut self, view: SessionView) -> SeatStep {
        let (flight, needs) = self.listing(view);
        Step::Submit(flight, needs)
    }

    fn listing(&mut self, view: SessionView) -> (Flight, Needs) {
        let shape = FlightShape { barrier: view.needs_write(), own: self.own_watch.is_none() };
        let mut operations = Vec::new();
        if shape.barrier {
            operations.push(barrier(self.profile.directory().clone()));
        }
        operations.extend(P::list(self));
        if shape.own {
            operations.push(self.read_own());
        }
        self.state = State::Listing(shape);
        (flight(self.claim.session(), operations), Needs::All)
    }

    /// Returns a read that watches our own znode. A pending watch keeps its number, so that the
    /// registry does not hold two watches for one znode.
    pub(crate) fn read_own(&mut self) -> Operation {
        self.own_watch = Some(self.number(self.own_watch));
        self.own_watched_on = None;
        read(self.claim.path(), self.own_watch)
    }

    /// Returns the number of a watch that is pending, or a new one.
    pub(crate) fn number(&mut self, pending: Option<WatchNumber>) -> WatchNumber {
        pending.unwrap_or_else(|| self.watches.issue())
    }

    /// Evaluates a read of our own znode, if there was one. Returns whether the znode is ours.
    pub(crate) fn own_was_read(&mut self, own: Option<&Answer>) -> bool {
        let is_own = matches!(own, Some(Answer::Done(Response::GetData(found)))
            if self.claim.is_znode(found));
        // A failed read sets no watch, and a watch on another session's znode proves nothing.
        if own.is_some() && !is_own {
            self.own_watch = None;
        }
        is_own
    }

    /// Records that our own znode was read on this connection, and is ours.
    pub(crate) fn own_seen(&mut self, connection: u64) {
        self.own_watched_on = self.own_watch.and(Some(connection));
    }

    /// Submits a flight of the recipe.
    pub(crate) fn submit(
        &mut self,
        wait: P::Wait,
        operations: Vec<Operation>,
        needs: Needs,
    ) -> SeatStep {
        self.state = State::Of(wait);
        Step::Submit(flight(self.claim.session(), operations), needs)
    }

    fn listed(&mut self, view: SessionView, shape: FlightShape, answers: Answers) -> SeatStep {
        let connection = answers.connection;
        self.claim.tally.replayed(answers.replays);
        let mut results = answers.results.into_iter();
        let mut next = |was_sent: bool| was_sent.then(|| results.next()).flatten();
        let barrier = next(shape.barrier);
        let listed = next(true);
        let directory = next(self.reads_directory());
        let own = next(shape.own);
        // Clear the watches that were not set before any of the results below ends this function.
        let is_own = self.own_was_read(own.as_ref());
        let is_done = |answer: &Option<Answer>| matches!(answer, Some(Answer::Done(_)));
        self.place.listed(is_done(&listed), is_done(&directory));
        let is_over = |answer: &Option<Answer>| matches!(answer, Some(Answer::SessionEnded));
        if [&barrier, &listed, &directory, &own].into_iter().any(is_over) {
            return restart(Restart::SessionEnded);
        }
        let own = match own {
            // The watch fired after it was set. A shared list may be newer than the read of our own
            // znode, but it is not newer than that event.
            _ if (own.is_none() || is_own) && self.own_watch.is_none() => OwnZnode::Unclear,
            None => OwnZnode::Ours,
            Some(_) if is_own => {
                self.own_seen(connection);
                OwnZnode::Ours
            }
            Some(Answer::Refused(error)) if !error.is_no_node() => {
                return failed(FailedAction::Read, self.claim.path(), error);
            }
            Some(_) => OwnZnode::Gone,
        };
        let has_barrier = shape.barrier;
        let names = match listed {
            Some(Answer::Done(Response::GetChildren(names))) => names,
            // The directory is gone, and so is our place in the queue.
            Some(listed) if listed.is_no_node() => return restart(Restart::ZnodeGone),
            Some(Answer::Refused(error)) => {
                return failed(FailedAction::List, self.profile.directory().clone(), error);
            }
            Some(_) | None => return self.list_again(view),
        };
        let directory = match directory {
            None => None,
            Some(Answer::Done(Response::GetData(found))) => Some(found),
            Some(found) if found.is_no_node() => return restart(Restart::ZnodeGone),
            Some(Answer::Refused(error)) => {
                return failed(FailedAction::Read, self.profile.directory().clone(), error);
            }
            Some(_) => return self.list_again(view),
        };
        self.evaluate(view, &List { names, directory, connection, own, has_barrier })
    }

    /// Performs step 2.
    fn evaluate(&mut self, view: SessionView, list: &List) -> SeatStep {
        if let Some(step) = self.claim.reconcile(&list.names) {
            self.state = State::Claiming;
            return self.after_claim(view, step);
        }
        let standing = match P::standing(self, list) {
            Ok(standing) => standing,
            Err(step) => return *step,
        };
        let connection = list.connection;
        self.listed_on = Some(connection);
        match standing {
            _ if list.own == OwnZnode::Gone => restart(Restart::ZnodeGone),
            Standing::Missing => restart(Restart::ZnodeGone),
            Standing::Entitled { ahead } => {
                self.ahead = Some(ahead);
                let has_passed = list.has_barrier && view.alive == Some(connection);
                if list.own == OwnZnode::Unclear {
                    self.list_again(view)
                } else if view.may_grant(connection) || has_passed {
                    self.grant(view, connection)
                } else if list.has_barrier && view.connection == Some(connection) {
                    // Even the barrier has created no lease. The session gives up a connection that
                    // cannot create one, so listing again at once would change nothing.
                    let (flight, needs) = self.listing(view);
                    Step::SubmitLater(flight, needs)
                } else {
                    self.list_again(view)
                }
            }
            Standing::Behind { .. } if !self.may_queue => Step::Done(Err(NotHeld::Busy)),
            Standing::Behind { ahead, nearest } => {
                self.ahead = Some(ahead);
                P::wait_for(self, view, nearest)
            }
        }
    }

    /// Waits for others. The time of the next check differs between waiters, so that they do not
    /// check at the same time.
    pub(crate) fn wait_in_queue(&mut self, view: SessionView) -> SeatStep {
        self.state = State::Queued;
        let interval = self.profile.options.watch_check;
        self.check_at = interval.map(|interval| view.now + spread(interval, self.claim.id()));
        self.wait(view)
    }

    /// Returns whether the newest list was read on the current connection, and this connection is
    /// alive.
    pub(crate) fn is_listed(&self, view: SessionView) -> bool {
        self.listed_on.is_some() && self.listed_on == view.alive
    }

    pub(crate) fn grant(&mut self, view: SessionView, connection: u64) -> SeatStep {
        self.state = State::Granted;
        let znode = self.claim.znode().expect("a place has a znode").clone();
        let session = self.claim.session().expect("a place belongs to a session");
        // Without a live connection, another session could be granted the lock at this moment, and
        // a list from another connection may be older than the state that this connection has
        // shown.
        debug_assert_eq!(view.alive, Some(connection), "a grant needs a guard deadline ahead");
        debug_assert_eq!(
            self.listed_on,
            Some(connection),
            "a grant needs a list of its connection"
        );
        let own_watch = self.own_watch;
        Step::Done(Ok(Held { znode, session, connection, own_watch, lapses: view.lapses }))
    }

    /// Repeats the grant, unless its connection has ended or its deadline has passed. The view may
    /// show this before the input that reports it arrives.
    pub(crate) fn grant_again(&mut self, view: SessionView) -> SeatStep {
        match view.alive {
            Some(connection) if self.is_listed(view) => self.grant(view, connection),
            Some(_) | None => self.list_again(view),
        }
    }

    /// Continues as before.
    pub(crate) fn wait(&mut self, view: SessionView) -> SeatStep {
        match self.state {
            State::Queued => Step::Wait(self.check_at),
            State::Granted => self.grant_again(view),
            State::Claiming | State::Listing(_) | State::Of(_) => Step::Wait(None),
        }
    }

    /// Handles a lost connection. The watches are restored on the next connection, but conclusions
    /// from this connection are no longer valid.
    fn suspended(&mut self, view: SessionView) -> SeatStep {
        self.listed_on = None;
        self.own_watched_on = None;
        match self.state {
            State::Granted => self.list_again(view),
            State::Claiming | State::Listing(_) | State::Of(_) | State::Queued => self.wait(view),
        }
    }

    fn session_ended(&mut self, view: SessionView, session: SessionId) -> SeatStep {
        if self.claim.session() == Some(session) {
            restart(Restart::SessionEnded)
        } else {
            // Another session has ended, or the create is pending and its reply will show whether
            // our session has ended.
            self.wait(view)
        }
    }
}

impl<P: Place> Machine for Seat<P> {
    type Output = Result<Held, NotHeld>;

    fn start(&mut self, view: SessionView) -> SeatStep {
        let step = self.claim.start(view);
        self.after_claim(view, step)
    }

    fn handle(&mut self, view: SessionView, input: Input) -> SeatStep {
        match (self.state, input) {
            (_, Input::Ended(session)) => self.session_ended(view, session),
            (_, Input::Suspended) => self.suspended(view),
            (State::Claiming, input @ Input::Answered(_)) => self.claim(view, input),
            (State::Listing(shape), Input::Answered(answers)) => self.listed(view, shape, answers),
            (State::Of(wait), Input::Answered(answers)) => P::answered(self, view, wait, answers),
            (State::Queued, Input::Timer) => P::check(self, view),
            (_, Input::Watch { watch, kind }) => P::event(self, view, watch, kind),
            (_, _) => self.wait(view),
        }
    }
}

impl<P: Place> Attempt for Seat<P> {
    fn ahead(&self) -> Option<usize> {
        self.ahead
    }

    fn predecessor(&self) -> Option<Predecessor> {
        P::predecessor(self)
    }

    fn is_behind_own_session(&self) -> bool {
        P::is_behind_own_session(self)
    }

    fn must_warn_of_own_session(&self) -> bool {
        !P::MAY_WAIT_FOR_OWN_SESSION && self.is_behind_own_session()
    }

    fn follows(&self) -> bool {
        self.place.follows()
    }

    fn told(&mut self, view: SessionView, news: News) -> SeatStep {
        P::told(self, view, news)
    }

    fn take_tally(&mut self) -> Tally {
        self.claim.take_tally()
    }
}

impl<P: Place> Leaving for Seat<P> {
    type Removal = QueueRemoval;

    fn abandon(self, is_pending: bool) -> Option<(QueueRemoval, bool)> {
        Some(self.claim.abandon(is_pending && self.state == State::Claiming))
    }
}

pub(crate) fn restart(restart: Restart) -> SeatStep {
    Step::Done(Err(NotHeld::Restart(restart)))
}

pub(crate) fn failed(action: FailedAction, path: ByteString, error: OpError) -> SeatStep {
    Step::Done(Err(NotHeld::of(Failure::new(action, path, error))))
}
