//! One attempt to obtain a permit, in one session, with one id of its own.
//!
//! 1. Claim a place in the queue ([`claim`](crate::queue::machine::claim)), which also returns a
//!    list of the queue and the stored number of permits.
//! 2. Evaluate them. If the directory stores no number, store the client's, and list again. If it
//!    stores another number than the client expects, the attempt fails. If the own znode is missing,
//!    the place is lost: start a new attempt. If fewer contenders are ahead than there are permits,
//!    the permit is granted. Otherwise continue with 3.
//! 3. In one flight, read and watch the directory, whose data is the number of permits; as many of
//!    the nearest predecessors as there are permits; and the own znode; except for those that are
//!    watched already. As long as all of these predecessors exist, the contender is not entitled. If
//!    one of them is gone, or the number has changed, list again (2). With more than [`WATCHES_MAX`]
//!    permits, or if a predecessor may not be read, count the changes of the directory instead; see
//!    [`wide`].
//! 4. Wait. When one of the watches fires, list again (2).
//! 5. From time to time, check for missed watches: read all that step 3 watches, which also restores
//!    the watches. With many permits, list again.
//! 6. If the session ends while the attempt waits, start a new attempt in the next session, at the
//!    end of the queue.
//!
//! A list may be stale, but one conclusion from it stays true: contenders with lower numbers only
//! disappear. So a contender that was entitled remains entitled, unless the number of permits is
//! reduced. A reduction takes no permit back: it applies to grants that follow it.
//!
//! After an outage that was longer than the lease, a write barrier precedes the list, as in other
//! queues.

mod wide;

use std::sync::Arc;

use bytestring::ByteString;
use jute_codec::{DataReply, ErrorCode, EventType, NameList, Response};
use zk_session::recipe::{Flight, Operation};
use zk_session::{OpError, SessionId, Time, Version};

use self::wide::Changes;
use super::ahead::{self, Predecessor};
use super::standing::{Standing, standing};
use crate::lock::error::LockError;
use crate::lock::outcome::{Held, NotHeld, Restart, Tally};
use crate::lock::recipe::Attempt;
use crate::machine::{
    Answer, Answers, FailedAction, Failure, Input, Leaving, Machine, Needs, News, SessionView,
    Step, WatchNumber, WatchNumbers, barrier, child, flight, list, read, spread, write,
};
use crate::queue::machine::claim::{Claim, Claimed};
use crate::queue::machine::removal::QueueRemoval;
use crate::queue::profile::{Permits, QueueProfile};
use crate::timed_out;

/// With more permits than this, a waiter counts the changes of the directory instead of watching so
/// many predecessors.
pub(crate) const WATCHES_MAX: u32 = 16;

type AttemptStep = Step<Result<Held, NotHeld>>;

/// One attempt to obtain a permit.
#[derive(Clone, Debug)]
pub struct SemaphoreAttempt {
    profile: Arc<QueueProfile>,
    claim: Claim,
    /// Otherwise the attempt ends when it would have to wait.
    may_queue: bool,
    /// The number of permits that was read last; `None` until the first read.
    permits: Option<u32>,
    /// Number of predecessors, according to the newest list.
    ahead: Option<usize>,
    /// Connection on which the newest list was read; `None` after a disconnect.
    listed_on: Option<u64>,
    watches: WatchNumbers,
    /// The watch on the own znode, which is ours as long as the watch has not fired.
    own_watch: Option<WatchNumber>,
    /// The watch on the number of permits.
    permits_watch: Option<WatchNumber>,
    /// The changes of the directory, if they are counted instead of watching predecessors.
    changes: Changes,
    /// A predecessor may not be read: count the changes of the directory instead.
    is_blind: bool,
    /// The predecessors to watch, in their order. If changes are counted instead, only the nearest
    /// one, for messages.
    predecessors: Vec<Predecessor>,
    /// When to check for missed watches.
    check_at: Option<Time>,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Step 1, or the reconciliation of step 2.
    Claiming,
    /// The list of step 2 is in flight.
    Listing(FlightShape),
    /// The number of permits is being stored.
    Storing,
    /// Step 3 or step 5 is in flight.
    Watching(WatchedReads),
    /// The persistent watch is being set; list when it is in place.
    Following,
    /// Step 4: waiting.
    Queued,
    /// The permit is granted, but the grant may still be revoked by input that has already arrived.
    Granted,
}

/// What the flight of a list contains besides the list and the read of the directory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct FlightShape {
    barrier: bool,
    own: bool,
}

/// The reads of step 3 besides those of predecessors, in this order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct WatchedReads {
    /// It is step 5: everything is read, although its watch is pending.
    is_check: bool,
    permits: bool,
    own: bool,
}

impl SemaphoreAttempt {
    /// An attempt with an id of its own. Without `may_queue` it ends when all permits are taken.
    pub fn new(profile: impl Into<Arc<QueueProfile>>, id: u128, may_queue: bool) -> Self {
        let profile = profile.into();
        Self {
            claim: Claim::new(Arc::clone(&profile), id),
            profile,
            may_queue,
            permits: None,
            ahead: None,
            listed_on: None,
            watches: WatchNumbers::default(),
            own_watch: None,
            permits_watch: None,
            changes: Changes::default(),
            is_blind: false,
            predecessors: Vec::new(),
            check_at: None,
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
            Step::Done(Ok(claimed)) => {
                match (claimed.list, claimed.directory) {
                    // The list is from the flight of the create, so no other session can have
                    // created a znode of that name in between.
                    (Some((names, connection)), Some(directory)) => {
                        self.evaluate(view, &names, &directory, connection, false)
                    }
                    _ => self.list_again(view),
                }
            }
            Step::Done(Err(not_held)) => Step::Done(Err(not_held)),
            Step::Submit(flight, needs) => Step::Submit(flight, needs),
            Step::SubmitLater(flight, needs) => Step::SubmitLater(flight, needs),
            Step::Wait(until) => Step::Wait(until),
        }
    }

    /// Lists for step 2. Unless the own znode is watched, the flight reads it too: its name alone
    /// could be that of a znode that another session has created.
    fn list_again(&mut self, view: SessionView) -> AttemptStep {
        let (flight, needs) = self.listing(view);
        Step::Submit(flight, needs)
    }

    fn listing(&mut self, view: SessionView) -> (Flight, Needs) {
        let shape = FlightShape { barrier: view.needs_write(), own: self.own_watch.is_none() };
        let directory = self.profile.directory.clone();
        let mut operations = Vec::new();
        if shape.barrier {
            operations.push(barrier(directory.clone()));
        }
        operations.push(list(&directory, self.watch_list()));
        // With many permits, this flight sets all watches. Otherwise step 3 sets them, unless the
        // attempt need not wait.
        if self.must_watch_number() {
            self.permits_watch = Some(self.issue_unless(self.permits_watch));
        }
        operations.push(read(directory, self.permits_watch));
        if shape.own {
            self.own_watch = Some(self.watches.issue());
            operations.push(read(self.claim.path(), self.own_watch));
        }
        self.state = State::Listing(shape);
        (flight(self.claim.session(), operations), Needs::All)
    }

    fn listed(&mut self, view: SessionView, shape: FlightShape, answers: Answers) -> AttemptStep {
        let connection = answers.connection;
        self.claim.tally.replayed(answers.replays);
        let mut results = answers.results.into_iter();
        let mut next = |was_sent: bool| was_sent.then(|| results.next()).flatten();
        let barrier = next(shape.barrier);
        let listed = next(true);
        let directory = next(true);
        let own = next(shape.own);
        let is_own = matches!(&own, Some(Answer::Done(Response::GetData(found)))
            if self.claim.is_znode(found));
        // A failed read sets no watch, and a watch on a stranger's znode proves nothing. Both have
        // to be known before any of the results below ends this function.
        if own.is_some() && !is_own {
            self.own_watch = None;
        }
        if !matches!(listed, Some(Answer::Done(_))) {
            self.changes.list_watch = None;
        }
        if !matches!(directory, Some(Answer::Done(_))) {
            self.permits_watch = None;
        }
        let is_over = |answer: &Option<Answer>| matches!(answer, Some(Answer::SessionOver));
        if [&barrier, &listed, &directory, &own].into_iter().any(is_over) {
            return restart(Restart::SessionOver);
        }
        match own {
            Some(Answer::Refused(error)) if !error.is_no_node() => {
                return failed(FailedAction::Read, self.claim.path(), error);
            }
            // The own znode is gone, or is another session's.
            Some(_) if !is_own => return restart(Restart::ZnodeGone),
            // The watch fired after it was set: the event is newer than the list.
            _ if self.own_watch.is_none() => return self.list_again(view),
            Some(_) | None => {}
        }
        match (listed, directory) {
            (
                Some(Answer::Done(Response::GetChildren(names))),
                Some(Answer::Done(Response::GetData(directory))),
            ) => self.evaluate(view, &names, &directory, connection, shape.barrier),
            // The directory is gone, and the place with it.
            (Some(Answer::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. })), _)
            | (_, Some(Answer::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }))) => {
                restart(Restart::ZnodeGone)
            }
            (Some(Answer::Refused(error)), _) => {
                failed(FailedAction::List, self.profile.directory.clone(), error)
            }
            (_, Some(Answer::Refused(error))) => {
                failed(FailedAction::Read, self.profile.directory.clone(), error)
            }
            _ => self.list_again(view),
        }
    }

    /// Step 2. `has_barrier`: the flight passed a write barrier before the list.
    fn evaluate(
        &mut self,
        view: SessionView,
        names: &NameList,
        directory: &DataReply,
        connection: u64,
        has_barrier: bool,
    ) -> AttemptStep {
        if let Some(step) = self.claim.reconcile(names) {
            self.state = State::Claiming;
            return self.after_claim(view, step);
        }
        let permits = match self.stored(directory) {
            Ok(Some(permits)) => permits,
            Ok(None) => return self.store(directory.stat.version),
            Err(error) => return Step::Done(Err(NotHeld::Failed(error))),
        };
        let znode = self.claim.znode().expect("a place has a znode");
        let standing = match standing(&self.profile, names, &znode.name, znode.sequence, permits) {
            Ok(standing) => standing,
            Err(error) => return Step::Done(Err(NotHeld::Failed(error))),
        };
        self.listed_on = Some(connection);
        self.permits = Some(permits);
        match standing {
            Standing::Missing => restart(Restart::ZnodeGone),
            Standing::Entitled { ahead } => {
                self.ahead = Some(ahead);
                if view.may_grant(connection) || (has_barrier && view.alive == Some(connection)) {
                    self.grant(view, connection)
                } else if has_barrier && view.connection == Some(connection) {
                    // Even the barrier has created no lease. The session gives up a connection that
                    // cannot create one, so asking again at once would change nothing.
                    let (flight, needs) = self.listing(view);
                    Step::SubmitLater(flight, needs)
                } else {
                    self.list_again(view)
                }
            }
            Standing::Behind { .. } if !self.may_queue => Step::Done(Err(NotHeld::Busy)),
            Standing::Behind { ahead, nearest } => {
                self.ahead = Some(ahead);
                self.watch_ahead(nearest);
                if self.is_watched() {
                    self.wait_in_queue(view)
                } else if self.is_wide() {
                    self.list_when_followed(view)
                } else {
                    self.watch(false)
                }
            }
        }
    }

    /// The stored number of permits; `None` if there is none. The client's own expectation counts
    /// until a first number was read: a change that happens while the attempt waits is meant for it.
    fn stored(&self, directory: &DataReply) -> Result<Option<u32>, LockError> {
        let expected = self.profile.permits.expect("a semaphore has permits");
        let differs = |stored: String| LockError::PermitsDiffer {
            directory: self.profile.directory.to_string(),
            stored,
            expected: expected.count,
        };
        let stored = Permits::decode(directory.data.as_ref()).map_err(differs)?;
        let must_match = !expected.accepts_stored && self.permits.is_none();
        match stored {
            Some(stored) if must_match && stored != expected.count => {
                Err(differs(stored.to_string()))
            }
            stored => Ok(stored),
        }
    }

    /// Stores the client's number of permits, unless somebody is faster.
    fn store(&mut self, version: Version) -> AttemptStep {
        let permits = self.profile.permits.expect("a semaphore has permits");
        let operation = write(self.profile.directory.clone(), permits.encode(), version);
        self.submit(State::Storing, vec![operation])
    }

    /// The next list shows the number that is stored now.
    fn number_stored(&mut self, view: SessionView, answers: Answers) -> AttemptStep {
        self.claim.tally.replayed(answers.replays);
        let [stored] = answers.take();
        match stored {
            Answer::SessionOver => restart(Restart::SessionOver),
            Answer::Refused(OpError::Server {
                code: ErrorCode::BAD_VERSION | ErrorCode::NO_NODE,
                ..
            })
            | Answer::Done(_)
            | Answer::Unknown { .. } => self.list_again(view),
            Answer::Refused(error) => {
                failed(FailedAction::Write, self.profile.directory.clone(), error)
            }
        }
    }

    /// From now on these predecessors are watched. Those that were watched before stay watched.
    fn watch_ahead(&mut self, nearest: Vec<Box<str>>) {
        let watched = std::mem::take(&mut self.predecessors);
        self.predecessors = match self.is_wide() {
            true => nearest.into_iter().next_back().map(Predecessor::new).into_iter().collect(),
            false => ahead::update(watched, nearest),
        };
    }

    /// Step 3: reads and watches what is not watched. Step 5: reads everything.
    fn watch(&mut self, is_check: bool) -> AttemptStep {
        let directory = self.profile.directory.clone();
        let shape = WatchedReads {
            is_check,
            permits: is_check || self.permits_watch.is_none(),
            own: is_check || self.own_watch.is_none(),
        };
        let mut operations = Vec::new();
        // A pending watch keeps its number, so that the registry does not hold two for one znode.
        if shape.permits {
            self.permits_watch = Some(self.issue_unless(self.permits_watch));
            operations.push(read(directory.clone(), self.permits_watch));
        }
        if shape.own {
            self.own_watch = Some(self.issue_unless(self.own_watch));
            operations.push(read(self.claim.path(), self.own_watch));
        }
        for predecessor in &mut self.predecessors {
            predecessor.is_read = is_check || predecessor.watch.is_none();
            if predecessor.is_read {
                let watch = *predecessor.watch.get_or_insert_with(|| self.watches.issue());
                operations.push(read(child(&directory, &predecessor.name), Some(watch)));
            }
        }
        self.submit(State::Watching(shape), operations)
    }

    fn watched(&mut self, view: SessionView, shape: WatchedReads, answers: Answers) -> AttemptStep {
        self.claim.tally.replayed(answers.replays);
        let mut results = answers.results.into_iter();
        let mut next = |was_read: bool| was_read.then(|| results.next()).flatten();
        let directory = next(shape.permits);
        let own = next(shape.own);
        // A failed read sets no watch. All of them have to be known before any of the results below
        // ends this function.
        let permits = match &directory {
            Some(Answer::Done(Response::GetData(found))) => Some(self.stored(found)),
            None => None,
            Some(_) => {
                self.permits_watch = None;
                None
            }
        };
        if own.is_some()
            && !matches!(&own, Some(Answer::Done(Response::GetData(found)))
                if self.claim.is_znode(found))
        {
            self.own_watch = None;
        }
        let mut read = vec![(directory, self.profile.directory.clone())];
        read.push((own, self.claim.path()));
        for predecessor in &mut self.predecessors {
            let result = next(predecessor.is_read);
            if let Some(Answer::Done(Response::GetData(found))) = &result {
                predecessor.seen(found);
            }
            if !matches!(result, None | Some(Answer::Done(_))) {
                let is_gone = matches!(
                    result,
                    Some(Answer::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }))
                );
                let is_missed = shape.is_check && is_gone && predecessor.watch.is_some();
                self.claim.tally.watches_missed += u32::from(is_missed);
                predecessor.watch = None;
            }
            read.push((result, child(&self.profile.directory, &predecessor.name)));
        }
        for (index, (verdict, path)) in read.into_iter().enumerate() {
            match verdict {
                // The first two are the directory and our own znode.
                Some(Answer::Refused(OpError::Server { code: ErrorCode::NO_AUTH, .. }))
                    if index > 1 =>
                {
                    self.is_blind = true;
                }
                None
                | Some(
                    Answer::Done(_)
                    | Answer::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }),
                ) => {}
                Some(Answer::Refused(error)) => return failed(FailedAction::Read, path, error),
                Some(Answer::SessionOver) => return restart(Restart::SessionOver),
                Some(Answer::Unknown { .. }) => return self.watch(shape.is_check),
            }
        }
        match permits {
            Some(Err(error)) => Step::Done(Err(NotHeld::Failed(error))),
            Some(Ok(permits)) if permits != self.permits => self.list_again(view),
            // A znode that is gone is not watched, and an event that arrived before the reply has
            // removed its watch.
            Some(Ok(_)) | None if self.is_wide() => self.list_when_followed(view),
            Some(Ok(_)) | None if !self.is_watched() => self.list_again(view),
            Some(Ok(_)) | None => self.wait_in_queue(view),
        }
    }

    /// Step 4. The time of the next check is spread, so that waiters do not check together.
    fn wait_in_queue(&mut self, view: SessionView) -> AttemptStep {
        self.state = State::Queued;
        let interval = self.profile.watch_check;
        self.check_at = interval.map(|interval| view.now + spread(interval, self.claim.id()));
        self.wait(view)
    }

    /// Handles an event. Events of watches that were replaced are discarded.
    fn event(&mut self, view: SessionView, watch: WatchNumber, kind: EventType) -> AttemptStep {
        let mut is_fired = false;
        if self.own_watch == Some(watch) {
            self.own_watch = None;
            // Somebody may have written to it, which changes nothing.
            if kind != EventType::NODE_DELETED && self.state == State::Granted {
                return self.grant_again(view);
            }
            is_fired = true;
        }
        for slot in [&mut self.permits_watch, &mut self.changes.list_watch] {
            is_fired |= *slot == Some(watch);
            *slot = slot.filter(|pending| *pending != watch);
        }
        for predecessor in &mut self.predecessors {
            is_fired |= predecessor.watch == Some(watch);
            predecessor.watch = predecessor.watch.filter(|pending| *pending != watch);
        }
        match self.state {
            State::Queued if is_fired => self.list_again(view),
            // Only the own znode matters to a grant.
            State::Granted if is_fired && self.own_watch.is_none() => self.list_again(view),
            // The pending flight, or the evaluation of its reply, takes account of the event.
            State::Claiming
            | State::Listing(_)
            | State::Storing
            | State::Watching(_)
            | State::Following
            | State::Queued
            | State::Granted => self.wait(view),
        }
    }

    fn issue_unless(&mut self, pending: Option<WatchNumber>) -> WatchNumber {
        pending.unwrap_or_else(|| self.watches.issue())
    }

    fn submit(&mut self, state: State, operations: Vec<Operation>) -> AttemptStep {
        self.state = state;
        Step::Submit(flight(self.claim.session(), operations), Needs::All)
    }

    fn grant(&mut self, view: SessionView, connection: u64) -> AttemptStep {
        self.state = State::Granted;
        let znode = self.claim.znode().expect("a place has a znode").clone();
        let session = self.claim.session().expect("a permit is granted to a place");
        // Without a live connection another session could be granted the permit at this moment.
        debug_assert_eq!(view.alive, Some(connection), "a grant needs a guard deadline ahead");
        debug_assert_eq!(
            self.listed_on,
            Some(connection),
            "a grant needs a list of its connection"
        );
        Step::Done(Ok(Held {
            znode,
            session,
            connection,
            own_watch: self.own_watch,
            lapses: view.lapses,
        }))
    }

    /// Repeats the grant, unless its connection has ended or its deadline has passed. The view may
    /// show that before the input arrives that reports it.
    fn grant_again(&mut self, view: SessionView) -> AttemptStep {
        match view.alive {
            Some(connection) if self.listed_on == Some(connection) => self.grant(view, connection),
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
            | State::Storing
            | State::Watching(_)
            | State::Following => Step::Wait(None),
        }
    }

    /// Step 5.
    fn check(&mut self, view: SessionView) -> AttemptStep {
        if self.is_wide() { self.list_when_followed(view) } else { self.watch(true) }
    }

    /// The watches are restored on the next connection, but conclusions from this connection are
    /// void.
    fn suspended(&mut self, view: SessionView) -> AttemptStep {
        self.listed_on = None;
        match self.state {
            State::Granted => self.list_again(view),
            State::Claiming
            | State::Listing(_)
            | State::Storing
            | State::Watching(_)
            | State::Following
            | State::Queued => self.wait(view),
        }
    }

    fn session_ended(&mut self, view: SessionView, session: SessionId) -> AttemptStep {
        if self.claim.session() == Some(session) {
            restart(Restart::SessionOver)
        } else {
            // It was another session, or the create is pending and its reply will tell.
            self.wait(view)
        }
    }
}

impl Machine for SemaphoreAttempt {
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
            (State::Storing, Input::Answered(answers)) => self.number_stored(view, answers),
            (State::Watching(shape), Input::Answered(answers)) => {
                self.watched(view, shape, answers)
            }
            (State::Queued, Input::Timer) => self.check(view),
            (_, Input::Watch { watch, kind }) => self.event(view, watch, kind),
            (_, _) => self.wait(view),
        }
    }
}

impl Attempt for SemaphoreAttempt {
    fn ahead(&self) -> Option<usize> {
        self.ahead
    }

    fn predecessor(&self) -> Option<timed_out::Predecessor> {
        Some(self.predecessors.last()?.describe(self.ahead?))
    }

    /// Returns true if a permit becomes free only when this session gives one back or stops waiting.
    fn is_behind_own_session(&self) -> bool {
        !self.is_wide() && ahead::belong_to(&self.predecessors, self.claim.session())
    }

    /// A session may hold several permits, so its tasks may well wait for each other.
    fn must_warn_of_own_session(&self) -> bool {
        false
    }

    fn follows(&self) -> bool {
        self.changes.is_followed
    }

    fn told(&mut self, view: SessionView, news: News) -> AttemptStep {
        self.directory_changed(view, &news)
    }

    fn take_tally(&mut self) -> Tally {
        self.claim.take_tally()
    }
}

impl Leaving for SemaphoreAttempt {
    type Removal = QueueRemoval;

    fn abandon(self, is_pending: bool) -> Option<(QueueRemoval, bool)> {
        Some(self.claim.abandon(is_pending && self.state == State::Claiming))
    }
}

fn restart(restart: Restart) -> AttemptStep {
    Step::Done(Err(NotHeld::Restart(restart)))
}

fn failed(action: FailedAction, path: ByteString, error: OpError) -> AttemptStep {
    Step::Done(Err(NotHeld::of(Failure::new(action, path, error))))
}
