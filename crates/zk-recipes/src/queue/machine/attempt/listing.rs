//! Step 2 of an attempt: listing the queue, and evaluating the list.

use jute_codec::{NameList, Response};
use zk_session::recipe::Flight;

use super::{AttemptStep, QueueAttempt, State, failed, restart};
use crate::lock::outcome::{NotHeld, Restart};
use crate::machine::{
    Answer, Answers, FailedAction, Failure, Needs, SessionView, Step, barrier, flight, list, read,
};
use crate::queue::machine::standing::{Standing, standing};

/// Which other operations the flight of a list contains: a barrier before the list, and a read of
/// our own znode after it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct FlightShape {
    barrier: bool,
    own: bool,
}

/// What the attempt knows about our own znode, in addition to its name in the list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum OwnZnode {
    /// The znode is ours: it was just created or read, or is watched.
    Ours,
    /// The watch on the znode has fired since the list was requested.
    Unclear,
    /// The znode is gone, or another session has created a znode with the same name.
    Gone,
}

impl QueueAttempt {
    /// Lists the queue for step 2. A list without a watch is shared with other attempts of the
    /// client.
    ///
    /// Only a committed write renews a lease that has ended, and without a lease no lock can be
    /// granted, so a barrier precedes the list in that case. A barrier also precedes it if the lease
    /// ends so soon that a lock which is granted now may be lost at once. Unless our own znode is
    /// watched, the flight reads it too: its name alone could be that of a znode that another
    /// session has created. A watch that was restored after a disconnect is also sufficient: before the server
    /// answers any other request, it compares the znode with the state that the session had seen.
    pub(super) fn list_again(&mut self, view: SessionView) -> AttemptStep {
        let (flight, needs) = self.listing(view);
        Step::Submit(flight, needs)
    }

    fn listing(&mut self, view: SessionView) -> (Flight, Needs) {
        let directory_watch = self.watches.issue();
        let fresh = self.watches.issue();
        let place = self.place.as_mut().expect("an attempt with a place lists");
        let directory = &self.profile.directory;
        let shape = FlightShape { barrier: view.needs_write(), own: place.own_watch.is_none() };
        let mut operations = Vec::new();
        if shape.barrier {
            operations.push(barrier(directory.clone()));
        }
        if self.is_blind {
            // A pending watch keeps its number, so that the registry does not hold another one for
            // each list.
            place.ahead_watch.get_or_insert(directory_watch);
        }
        operations.push(list(directory, place.ahead_watch.filter(|_| self.is_blind)));
        if shape.own {
            place.own_watch = Some(fresh);
            place.own_watched_on = None;
            operations.push(read(self.claim.path(), place.own_watch));
        }
        self.state = State::Listing(shape);
        (flight(Some(place.session), operations), Needs::All)
    }

    /// Lists the queue, unless a flight is pending. The reply to a pending flight leads to a list,
    /// or reveals the loss of our own watch.
    pub(super) fn list_unless_busy(&mut self, view: SessionView) -> AttemptStep {
        match self.state {
            State::Queued | State::Granted => self.list_again(view),
            State::Claiming
            | State::Listing(_)
            | State::Watching(_)
            | State::WatchingSecond
            | State::Confirming
            | State::Checking(_) => self.wait(view),
        }
    }

    pub(super) fn listed(
        &mut self,
        view: SessionView,
        shape: FlightShape,
        answers: Answers,
    ) -> AttemptStep {
        let connection = answers.connection;
        self.claim.tally.replayed(answers.replays);
        let mut results = answers.results.into_iter();
        let mut next = |was_sent: bool| was_sent.then(|| results.next()).flatten();
        let barrier = next(shape.barrier);
        let listed = next(true);
        let own = next(shape.own);
        let place = self.place.as_mut().expect("an attempt with a place lists");
        let is_own = matches!(&own, Some(Answer::Done(Response::GetData(found)))
            if self.claim.is_znode(found));
        // A failed read sets no watch, and a watch on another session's znode proves nothing.
        // Handle both cases before any of the results below ends this function.
        if own.is_some() && !is_own {
            place.own_watch = None;
        }
        let is_over = |answer: &Option<Answer>| matches!(answer, Some(Answer::SessionOver));
        if [&barrier, &listed, &own].into_iter().any(is_over) {
            return restart(Restart::SessionOver);
        }
        let own = match own {
            // The watch fired after it was set. A shared list may be newer than the read of our own
            // znode, but it is not newer than that event.
            _ if (own.is_none() || is_own) && place.own_watch.is_none() => OwnZnode::Unclear,
            None => OwnZnode::Ours,
            Some(_) if is_own => {
                place.own_seen(connection);
                OwnZnode::Ours
            }
            Some(Answer::Refused(error)) if !error.is_no_node() => {
                return failed(Failure::new(FailedAction::Read, self.claim.path(), error));
            }
            Some(_) => OwnZnode::Gone,
        };
        match listed {
            Some(Answer::Done(Response::GetChildren(names))) => {
                self.evaluate(view, &names, connection, own, shape.barrier)
            }
            // The directory is gone, and so is our place in the queue.
            Some(listed) if listed.is_no_node() => restart(Restart::ZnodeGone),
            Some(Answer::Refused(error)) => {
                failed(Failure::new(FailedAction::List, self.profile.directory.clone(), error))
            }
            Some(_) | None => self.list_again(view),
        }
    }

    /// Performs step 2. `has_barrier` means that the flight passed a write barrier before the list.
    pub(super) fn evaluate(
        &mut self,
        view: SessionView,
        names: &NameList,
        connection: u64,
        own: OwnZnode,
        has_barrier: bool,
    ) -> AttemptStep {
        if let Some(step) = self.claim.reconcile(names) {
            self.state = State::Claiming;
            return self.after_claim(view, step);
        }
        let place = self.place.as_mut().expect("a list is evaluated for a place");
        let znode = self.claim.znode().expect("a place has a znode");
        let standing = match standing(&self.profile, names, &znode.name, znode.sequence) {
            Ok(standing) => standing,
            Err(error) => return Step::Done(Err(NotHeld::Failed(error))),
        };
        place.listed_on = Some(connection);
        match standing {
            _ if own == OwnZnode::Gone => restart(Restart::ZnodeGone),
            Standing::Missing => restart(Restart::ZnodeGone),
            Standing::First => {
                self.ahead = Some(0);
                if own == OwnZnode::Unclear {
                    self.list_again(view)
                } else if view.may_grant(connection)
                    || (has_barrier && view.alive == Some(connection))
                {
                    self.grant(view, connection)
                } else if has_barrier && view.connection == Some(connection) {
                    // Even the barrier has created no lease. The session gives up a connection that
                    // cannot create one, so listing again at once would change nothing.
                    let (flight, needs) = self.listing(view);
                    Step::SubmitLater(flight, needs)
                } else {
                    self.list_again(view)
                }
            }
            Standing::Behind { .. } if !self.may_queue => Step::Done(Err(NotHeld::Busy)),
            Standing::Behind { ahead, nearest, second } => {
                let is_same = place.nearest == nearest && place.ahead_watch.is_some();
                self.ahead = Some(ahead);
                place.nearest = nearest;
                if self.is_blind {
                    return self.queue(view);
                }
                // In a queue with readers, the attempt lists again anyway when the predecessor is
                // deleted.
                let second = second.filter(|_| !self.profile.names.is_shared());
                let (number, second) = second.unzip();
                if !is_same || number != Some(place.second_number) {
                    place.second_watch = None;
                }
                place.second_number = number.unwrap_or_default();
                place.second = second.filter(|_| place.second_watch.is_none());
                self.watch(view, !is_same)
            }
        }
    }
}
