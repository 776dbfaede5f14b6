//! One attempt to obtain a permit, in one session. Each attempt has its own id.
//!
//! These are the steps 2 to 5 of a [`seat`](crate::queue::machine::seat).
//!
//! 2. Evaluate the list and the number of permits, which was read with it. If the directory stores
//!    no number, store the client's, and list again. If it stores another number than the client
//!    expects, the attempt fails. If fewer contenders are ahead than there are permits, the permit is
//!    granted.
//! 3. In one flight, read and watch the directory, whose data is the number of permits; as many of
//!    the nearest predecessors as there are permits; and its own znode; except for those that are
//!    watched already. As long as all of these predecessors exist, the contender is not entitled. If
//!    one of them is gone, or the number has changed, list again (2). With more than [`WATCHES_MAX`]
//!    permits, or if a predecessor may not be read, count the changes of the directory instead; see
//!    [`wide`].
//! 4. Wait. When one of the watches fires, list again (2).
//! 5. From time to time, check for missed watches: read all that step 3 watches, which also restores
//!    the watches. With many permits, list again.
//!
//! A contender that was entitled remains entitled, unless the number of permits is reduced. A
//! reduction takes no permit back: it applies to grants that follow it.

mod wide;

use jute_codec::{DataReply, ErrorCode, EventType, Response};
use zk_session::recipe::Operation;
use zk_session::{OpError, Version};

use self::wide::Changes;
use super::ahead::{self, Watched};
use super::standing::standing;
use crate::lock::error::LockError;
use crate::lock::outcome::{NotHeld, Restart};
use crate::machine::{
    Answer, Answers, FailedAction, Needs, News, SessionView, Step, WatchNumber, child, list, read,
    write,
};
use crate::queue::machine::seat::{List, Place, Seat, SeatStep, State, failed, restart};
use crate::queue::machine::standing::Standing;
use crate::queue::profile::Permits;
use crate::timed_out;

/// With more permits than this, a waiter counts the changes of the directory instead of watching so
/// many predecessors.
pub(crate) const WATCHES_MAX: u32 = 16;

/// One attempt to obtain a permit.
pub type SemaphoreAttempt = Seat<PermitPlace>;

/// A place in the queue of a semaphore.
#[derive(Clone, Debug, Default)]
pub struct PermitPlace {
    /// The number of permits that was read last; `None` until the first read.
    permits: Option<u32>,
    /// The watch on the number of permits.
    permits_watch: Option<WatchNumber>,
    /// The changes of the directory, if they are counted instead of watching predecessors.
    changes: Changes,
    /// A predecessor may not be read: count the changes of the directory instead.
    is_blind: bool,
    /// The predecessors to watch, in their order. If changes are counted instead, only the nearest
    /// one, for messages.
    predecessors: Vec<Watched>,
}

/// What the attempt waits for in steps 2, 3 and 5.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wait {
    /// The number of permits is being stored.
    Storing,
    /// Step 3 or step 5 is in flight.
    Watching(WatchedReads),
    /// The persistent watch is being set; list when it is in place.
    Following,
}

/// The reads of step 3 besides those of predecessors, in this order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WatchedReads {
    /// Step 5 reads everything, although the watches are pending.
    is_check: bool,
    permits: bool,
    own: bool,
}

impl SemaphoreAttempt {
    /// Returns the number of permits that the client expects.
    fn expected(&self) -> Permits {
        self.profile.permits.expect("a semaphore has permits")
    }

    /// Returns the stored number of permits, or `None` if there is none. Only the first number that is
    /// read must be the one that the client expects, because a waiter adopts later changes.
    fn stored(&self, directory: &DataReply) -> Result<Option<u32>, LockError> {
        let expected = self.expected();
        let differs = |stored: String| LockError::PermitsDiffer {
            directory: self.profile.directory().to_string(),
            stored,
            expected: expected.count,
        };
        let stored = Permits::decode(directory.data.as_ref()).map_err(differs)?;
        let must_match = !expected.accepts_stored && self.place.permits.is_none();
        match stored {
            Some(stored) if must_match && stored != expected.count => {
                Err(differs(stored.to_string()))
            }
            stored => Ok(stored),
        }
    }

    /// Stores the client's number of permits, unless another contender is faster.
    fn store(&mut self, version: Version) -> SeatStep {
        let number = self.expected().encode();
        let operation = write(self.profile.directory().clone(), number, version);
        self.submit(Wait::Storing, vec![operation], Needs::All)
    }

    /// Lists again after the write, since the list shows which number is stored now.
    fn number_stored(&mut self, view: SessionView, answers: Answers) -> SeatStep {
        self.claim.tally.replayed(answers.replays);
        let [stored] = answers.take();
        match stored {
            Answer::SessionEnded => restart(Restart::SessionEnded),
            Answer::Refused(OpError::Server {
                code: ErrorCode::BAD_VERSION | ErrorCode::NO_NODE,
                ..
            })
            | Answer::Done(_)
            | Answer::Unknown { .. } => self.list_again(view),
            Answer::Refused(error) => {
                failed(FailedAction::Write, self.profile.directory().clone(), error)
            }
        }
    }

    /// Sets which predecessors are watched from now on. Those that were watched before stay watched.
    fn watch_ahead(&mut self, nearest: Vec<Box<str>>) {
        let watched = std::mem::take(&mut self.place.predecessors);
        self.place.predecessors = match self.is_wide() {
            true => nearest.into_iter().next_back().map(Watched::new).into_iter().collect(),
            false => ahead::update(watched, nearest),
        };
    }

    /// Performs step 3, which reads and watches what is not watched, or step 5, which reads everything.
    fn watch(&mut self, is_check: bool) -> SeatStep {
        let shape = WatchedReads {
            is_check,
            permits: is_check || self.place.permits_watch.is_none(),
            own: is_check || self.own_watch.is_none(),
        };
        let mut operations = Vec::new();
        // A pending watch keeps its number, so that the registry does not hold two for one znode.
        if shape.permits {
            self.place.permits_watch = Some(self.number(self.place.permits_watch));
            operations.push(read(self.profile.directory().clone(), self.place.permits_watch));
        }
        if shape.own {
            operations.push(self.read_own());
        }
        for predecessor in &mut self.place.predecessors {
            predecessor.is_read = is_check || predecessor.watch.is_none();
            if predecessor.is_read {
                let watch = *predecessor.watch.get_or_insert_with(|| self.watches.issue());
                let path = child(self.profile.directory(), &predecessor.name);
                operations.push(read(path, Some(watch)));
            }
        }
        self.submit(Wait::Watching(shape), operations, Needs::All)
    }

    fn watched(&mut self, view: SessionView, shape: WatchedReads, answers: Answers) -> SeatStep {
        self.claim.tally.replayed(answers.replays);
        let mut results = answers.results.into_iter();
        let mut next = |was_read: bool| was_read.then(|| results.next()).flatten();
        let directory = next(shape.permits);
        let own = next(shape.own);
        // Clear the watches that were not set before any of the results below ends this function.
        self.own_was_read(own.as_ref());
        let permits = match &directory {
            Some(Answer::Done(Response::GetData(found))) => Some(self.stored(found)),
            None => None,
            Some(_) => {
                self.place.permits_watch = None;
                None
            }
        };
        let mut read = vec![(directory, self.profile.directory().clone())];
        read.push((own, self.claim.path()));
        for predecessor in &mut self.place.predecessors {
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
            read.push((result, child(self.profile.directory(), &predecessor.name)));
        }
        for (index, (verdict, path)) in read.into_iter().enumerate() {
            match verdict {
                // The first two are the directory and our own znode.
                Some(Answer::Refused(OpError::Server { code: ErrorCode::NO_AUTH, .. }))
                    if index > 1 =>
                {
                    self.place.is_blind = true;
                }
                None
                | Some(
                    Answer::Done(_)
                    | Answer::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }),
                ) => {}
                Some(Answer::Refused(error)) => return failed(FailedAction::Read, path, error),
                Some(Answer::SessionEnded) => return restart(Restart::SessionEnded),
                Some(Answer::Unknown { .. }) => return self.watch(shape.is_check),
            }
        }
        match permits {
            Some(Err(error)) => Step::Done(Err(NotHeld::Failed(error))),
            Some(Ok(permits)) if permits != self.place.permits => self.list_again(view),
            // A znode that is gone is not watched, and an event that arrived before the reply has
            // removed its watch.
            Some(Ok(_)) | None if self.is_wide() => self.list_when_followed(view),
            Some(Ok(_)) | None if !self.is_watched() => self.list_again(view),
            Some(Ok(_)) | None => self.wait_in_queue(view),
        }
    }

    fn fired(&mut self, view: SessionView, watch: WatchNumber, kind: EventType) -> SeatStep {
        let mut is_fired = false;
        if self.own_watch == Some(watch) {
            self.own_watch = None;
            // A write to our own znode changes nothing.
            if kind != EventType::NODE_DELETED && self.state == State::Granted {
                return self.grant_again(view);
            }
            is_fired = true;
        }
        let place = &mut self.place;
        for slot in [&mut place.permits_watch, &mut place.changes.list_watch] {
            is_fired |= *slot == Some(watch);
            *slot = slot.filter(|pending| *pending != watch);
        }
        for predecessor in &mut place.predecessors {
            is_fired |= predecessor.watch == Some(watch);
            predecessor.watch = predecessor.watch.filter(|pending| *pending != watch);
        }
        match self.state {
            State::Queued if is_fired => self.list_again(view),
            // Only our own znode matters to a grant.
            State::Granted if is_fired && self.own_watch.is_none() => self.list_again(view),
            // The reply to a pending flight will show this change.
            State::Claiming | State::Listing(_) | State::Of(_) | State::Queued | State::Granted => {
                self.wait(view)
            }
        }
    }
}

impl Place for PermitPlace {
    type Wait = Wait;
    type Nearest = Vec<Box<str>>;

    fn list(seat: &mut SemaphoreAttempt) -> Vec<Operation> {
        let list_watch = seat.watch_list();
        // With many permits, this flight sets all watches. Otherwise step 3 sets them, unless the
        // attempt need not wait.
        if seat.must_watch_number() {
            seat.place.permits_watch = Some(seat.number(seat.place.permits_watch));
        }
        let directory = seat.profile.directory();
        vec![list(directory, list_watch), read(directory.clone(), seat.place.permits_watch)]
    }

    fn listed(&mut self, has_list: bool, has_directory: bool) {
        self.changes.list_watch = self.changes.list_watch.filter(|_| has_list);
        self.permits_watch = self.permits_watch.filter(|_| has_directory);
    }

    fn standing(
        seat: &mut SemaphoreAttempt,
        list: &List,
    ) -> Result<Standing<Vec<Box<str>>>, Box<SeatStep>> {
        let failed = |error| Box::new(Step::Done(Err(NotHeld::Failed(error))));
        let directory = list.directory.as_ref().expect("the directory is read with the list");
        let stored = seat.stored(directory).map_err(failed)?;
        let Permits { count, .. } = seat.expected();
        let permits = stored.unwrap_or(count);
        let znode = seat.claim.znode().expect("a place has a znode");
        let standing = standing(&seat.profile, &list.names, &znode.name, znode.sequence, permits);
        // A directory that contains a lock of another kind is not written to.
        let standing = standing.map_err(failed)?;
        if stored.is_none() {
            return Err(Box::new(seat.store(directory.stat.version)));
        }
        seat.place.permits = Some(permits);
        Ok(standing)
    }

    fn wait_for(
        seat: &mut SemaphoreAttempt,
        view: SessionView,
        nearest: Vec<Box<str>>,
    ) -> SeatStep {
        seat.watch_ahead(nearest);
        if seat.is_watched() {
            seat.wait_in_queue(view)
        } else if seat.is_wide() {
            seat.list_when_followed(view)
        } else {
            seat.watch(false)
        }
    }

    fn answered(
        seat: &mut SemaphoreAttempt,
        view: SessionView,
        wait: Wait,
        answers: Answers,
    ) -> SeatStep {
        match wait {
            Wait::Storing => seat.number_stored(view, answers),
            Wait::Watching(shape) => seat.watched(view, shape, answers),
            Wait::Following => seat.wait(view),
        }
    }

    fn event(
        seat: &mut SemaphoreAttempt,
        view: SessionView,
        watch: WatchNumber,
        kind: EventType,
    ) -> SeatStep {
        seat.fired(view, watch, kind)
    }

    fn check(seat: &mut SemaphoreAttempt, view: SessionView) -> SeatStep {
        if seat.is_wide() { seat.list_when_followed(view) } else { seat.watch(true) }
    }

    fn predecessor(seat: &SemaphoreAttempt) -> Option<timed_out::Predecessor> {
        Some(seat.place.predecessors.last()?.describe(seat.ahead?))
    }

    /// Returns whether a permit becomes free only when this session gives one back or stops waiting.
    fn is_behind_own_session(seat: &SemaphoreAttempt) -> bool {
        !seat.is_wide() && ahead::belong_to(&seat.place.predecessors, seat.claim.session())
    }

    /// A session may hold several permits, so its tasks may well wait for each other.
    const MAY_WAIT_FOR_OWN_SESSION: bool = true;

    fn follows(&self) -> bool {
        self.changes.is_followed
    }

    fn told(seat: &mut SemaphoreAttempt, view: SessionView, news: News) -> SeatStep {
        seat.directory_changed(view, &news)
    }
}
