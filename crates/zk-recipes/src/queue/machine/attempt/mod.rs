//! One attempt to obtain a lock in a queue, in one session. Each attempt has its own id. An attempt
//! watches the nearest predecessor that excludes it and, in a queue without readers, the second
//! nearest too. The fair lock and both sides of the read/write lock use this machine.
//!
//! These are the steps 3 to 5 of a [`seat`](super::seat). A reader waits only for the writers ahead,
//! and every other contender waits for all predecessors.
//!
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

mod checking;
mod place;

use jute_codec::{ErrorCode, EventType, Response};
use zk_session::recipe::Operation;
use zk_session::{OpError, SessionId};

pub(crate) use self::place::QueuePlace;
use super::seat::{List, Place, Seat, SeatStep, State, failed, restart};
use super::standing::{Nearest, Standing, standing};
use crate::lock::outcome::{NotHeld, Restart};
use crate::machine::{
    Answer, Answers, FailedAction, Needs, SessionView, Step, WatchNumber, child, list, read,
};
use crate::timed_out::{Predecessor, short_identity};

/// One attempt to obtain a lock in a queue whose contenders wait for their turn.
pub type QueueAttempt = Seat<QueuePlace>;

/// The reads in the first flight of step 3, in this order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WatchedReads {
    ahead: bool,
    own: bool,
}

/// What the attempt waits for in steps 3 to 5.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wait {
    /// Step 3 is in flight.
    Watching(WatchedReads),
    /// The second flight of step 3 is pending.
    WatchingSecond,
    /// Step 4: the read of our own znode is in flight.
    Confirming,
    /// Step 5 is in flight, with this watch on our own znode.
    Checking(WatchNumber),
}

impl QueueAttempt {
    /// Performs step 3: watches the predecessor if it is new, and our own znode if it is not
    /// watched on this connection.
    fn watch(&mut self, view: SessionView, is_new: bool) -> SeatStep {
        // A watch that was restored after a disconnect reports missed changes, but step 4 needs a
        // watch that was set on the connection of the newest list.
        let own = self.own_watch.is_none() || self.own_watched_on != self.listed_on;
        let reads = WatchedReads { ahead: is_new, own };
        let mut operations = Vec::new();
        if reads.ahead {
            let place = &mut self.place;
            place.ahead_watch = Some(self.watches.issue());
            place.is_ahead_foreign = false;
            place.ahead_owner = SessionId::NONE;
            place.ahead_identity = Box::default();
            operations
                .push(read(child(self.profile.directory(), &place.nearest), place.ahead_watch));
        }
        if reads.own {
            operations.push(self.read_own());
        }
        if operations.is_empty() {
            return self.watch_second(view);
        }
        self.submit(Wait::Watching(reads), operations, Needs::All)
    }

    fn watched(&mut self, view: SessionView, reads: WatchedReads, answers: Answers) -> SeatStep {
        let connection = answers.connection;
        self.claim.tally.replayed(answers.replays);
        let mut results = answers.results.into_iter();
        let mut next = |was_read: bool| was_read.then(|| results.next()).flatten();
        let ahead = next(reads.ahead);
        let own = next(reads.own);
        // Clear the watches that were not set before any of the results below ends this function.
        let is_own = self.own_was_read(own.as_ref());
        let session = self.claim.session();
        let place = &mut self.place;
        if !matches!(ahead, None | Some(Answer::Done(Response::GetData(_)))) {
            place.ahead_watch = None;
        }
        match ahead {
            None => {}
            Some(Answer::Done(Response::GetData(data))) => {
                place.is_ahead_foreign = Some(data.stat.ephemeral_owner) != session;
                place.ahead_owner = data.stat.ephemeral_owner;
                place.ahead_identity = short_identity(data.data.as_deref().unwrap_or_default());
            }
            Some(Answer::SessionEnded) => return restart(Restart::SessionEnded),
            Some(Answer::Refused(OpError::Server { code: ErrorCode::NO_AUTH, .. })) => {
                place.is_blind = true;
                place.second = None;
                return self.list_again(view);
            }
            Some(Answer::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. })) => {
                let is_current = view.may_grant(connection) && self.listed_on == Some(connection);
                // The only predecessor is gone, and our own znode was read after that.
                if is_own && is_current && self.own_watch.is_some() && self.had_one_ahead() {
                    return self.grant_confirmed(view, connection);
                }
                return self.list_again(view);
            }
            Some(Answer::Refused(error)) => {
                let path = child(self.profile.directory(), &place.nearest);
                return failed(FailedAction::Read, path, error);
            }
            Some(Answer::Done(_) | Answer::Unknown { .. }) => {
                self.own_watch = None;
                return self.watch(view, true);
            }
        }
        match own {
            None => {}
            Some(_) if is_own => self.own_seen(connection),
            Some(Answer::Refused(error)) if !error.is_no_node() => {
                return failed(FailedAction::Read, self.claim.path(), error);
            }
            // The znode with our name is not watched, or is not ours, so the list decides.
            Some(_) => return self.list_again(view),
        }
        // The list is from another connection, so the deletion of the predecessor must not grant
        // the lock.
        if self.listed_on != Some(connection) {
            self.listed_on = None;
        }
        self.watch_second(view)
    }

    /// Performs the last part of step 3: sets the watch on the second nearest predecessor, which is
    /// not necessary but saves time.
    fn watch_second(&mut self, view: SessionView) -> SeatStep {
        if !self.is_watched() {
            return self.queue(view);
        }
        let place = &mut self.place;
        // If the predecessor belongs to our own session, a read follows its deletion in any case,
        // so the watch would save nothing.
        match place.second.take().filter(|_| place.is_ahead_foreign) {
            None => self.queue(view),
            Some(second) => {
                place.second_watch = Some(self.watches.issue());
                let path = child(self.profile.directory(), &second);
                let operations = vec![read(path, place.second_watch)];
                self.submit(Wait::WatchingSecond, operations, Needs::OneTry)
            }
        }
    }

    fn second_watched(&mut self, view: SessionView, answers: Answers) -> SeatStep {
        let place = &mut self.place;
        let [second] = answers.take();
        match second {
            Answer::Done(_) if place.second_watch.is_some() => self.queue(view),
            Answer::SessionEnded => restart(Restart::SessionEnded),
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
    fn queue(&mut self, view: SessionView) -> SeatStep {
        if self.is_watched() { self.wait_in_queue(view) } else { self.list_again(view) }
    }

    /// Returns whether the watches that step 4 needs are set and have not fired.
    fn is_watched(&self) -> bool {
        self.place.ahead_watch.is_some() && self.own_watch.is_some()
    }

    /// Returns whether our own znode was read on the current connection and has been watched ever
    /// since, and its watch has not fired. If so, it is still the znode that we created.
    fn is_own_watched(&self, view: SessionView) -> bool {
        self.own_watch.is_some()
            && self.own_watched_on.is_some()
            && self.own_watched_on == view.connection
    }

    /// Returns whether the predecessor was the only one, according to the newest list.
    fn had_one_ahead(&self) -> bool {
        self.ahead == Some(1) && !self.profile.names.is_shared()
    }

    /// Grants the lock because our own znode was read after the predecessor was deleted.
    fn grant_confirmed(&mut self, view: SessionView, connection: u64) -> SeatStep {
        self.own_watched_on = Some(connection);
        self.grant(view, connection)
    }

    fn fired(&mut self, view: SessionView, watch: WatchNumber, kind: EventType) -> SeatStep {
        let is_deleted = kind == EventType::NODE_DELETED;
        if self.own_watch == Some(watch) {
            self.own_watch = None;
            self.own_watched_on = None;
            // The reply to a pending flight leads to a list, or reveals the loss of our own watch.
            let is_idle = matches!(self.state, State::Queued | State::Granted);
            return if is_deleted && is_idle { self.list_again(view) } else { self.wait(view) };
        }
        let is_listed = self.is_listed(view);
        let place = &mut self.place;
        if place.second_watch == Some(watch) {
            place.second_watch = None;
            if self.state == State::Queued && is_deleted {
                // If there were exactly two contenders ahead, one is left. If there were more, only
                // a list shows which contender is the second nearest now.
                if self.ahead != Some(2) || !is_listed {
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
        let is_blind = place.is_blind;
        let is_current = is_listed && !view.is_running_out;
        let is_own_certain = place.is_ahead_foreign && self.is_own_watched(view);
        if !is_deleted || !self.had_one_ahead() || is_blind || !is_current {
            return self.list_again(view);
        }
        match view.alive {
            Some(connection) if is_own_certain => self.grant(view, connection),
            Some(_) | None => self.confirm(),
        }
    }

    /// Reads our own znode, because only its state is uncertain.
    fn confirm(&mut self) -> SeatStep {
        let operations = vec![self.read_own()];
        // Without an answer, a list decides.
        self.submit(Wait::Confirming, operations, Needs::OneTry)
    }

    fn confirmed(&mut self, view: SessionView, answers: Answers) -> SeatStep {
        let connection = answers.connection;
        let [own] = answers.take();
        match own {
            Answer::Done(Response::GetData(found))
                if self.claim.is_znode(&found)
                    && self.own_watch.is_some()
                    && view.may_grant(connection)
                    && self.listed_on == Some(connection) =>
            {
                self.grant_confirmed(view, connection)
            }
            Answer::SessionEnded => restart(Restart::SessionEnded),
            Answer::Done(_) | Answer::Refused(_) | Answer::Unknown { .. } => {
                self.own_watch = None;
                self.list_again(view)
            }
        }
    }
}

impl Place for QueuePlace {
    type Wait = Wait;
    type Nearest = Nearest;

    fn list(seat: &mut QueueAttempt) -> Vec<Operation> {
        let place = &mut seat.place;
        if place.is_blind {
            // A pending watch keeps its number, so that the registry does not hold another one for
            // each list.
            place.ahead_watch.get_or_insert_with(|| seat.watches.issue());
        }
        let watch = place.ahead_watch.filter(|_| place.is_blind);
        vec![list(seat.profile.directory(), watch)]
    }

    fn standing(seat: &mut QueueAttempt, list: &List) -> Result<Standing<Nearest>, Box<SeatStep>> {
        let znode = seat.claim.znode().expect("a place has a znode");
        standing(&seat.profile, &list.names, &znode.name, znode.sequence)
            .map_err(|error| Box::new(Step::Done(Err(NotHeld::Failed(error)))))
    }

    fn wait_for(
        seat: &mut QueueAttempt,
        view: SessionView,
        Nearest { nearest, second }: Nearest,
    ) -> SeatStep {
        let place = &mut seat.place;
        let is_same = place.nearest == nearest && place.ahead_watch.is_some();
        place.nearest = nearest;
        if place.is_blind {
            return seat.queue(view);
        }
        // In a queue with readers, the attempt lists again anyway when the predecessor is deleted.
        let second = second.filter(|_| !seat.profile.names.is_shared());
        let (number, second) = second.unzip();
        if !is_same || number != Some(place.second_number) {
            place.second_watch = None;
        }
        place.second_number = number.unwrap_or_default();
        place.second = second.filter(|_| place.second_watch.is_none());
        seat.watch(view, !is_same)
    }

    fn answered(
        seat: &mut QueueAttempt,
        view: SessionView,
        wait: Wait,
        answers: Answers,
    ) -> SeatStep {
        match wait {
            Wait::Watching(reads) => seat.watched(view, reads, answers),
            Wait::WatchingSecond => seat.second_watched(view, answers),
            Wait::Confirming => seat.confirmed(view, answers),
            Wait::Checking(own_watch) => seat.checked(view, own_watch, answers),
        }
    }

    fn event(
        seat: &mut QueueAttempt,
        view: SessionView,
        watch: WatchNumber,
        kind: EventType,
    ) -> SeatStep {
        seat.fired(view, watch, kind)
    }

    fn check(seat: &mut QueueAttempt, _: SessionView) -> SeatStep {
        seat.send_check()
    }

    fn predecessor(seat: &QueueAttempt) -> Option<Predecessor> {
        let place = &seat.place;
        let ahead = seat.ahead.filter(|ahead| *ahead > 0)?;
        let owner = Some(place.ahead_owner).filter(|owner| *owner != SessionId::NONE);
        Some(Predecessor::new(ahead, &place.nearest, &place.ahead_identity, owner))
    }

    fn is_behind_own_session(seat: &QueueAttempt) -> bool {
        seat.claim.session() == Some(seat.place.ahead_owner)
    }
}
