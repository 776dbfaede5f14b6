//! Step 2 of a contender: listing the queue, and what a list says.

use std::num::NonZeroU64;

use jute_codec::{ErrorCode, NameList, Response};
use zk_session::OpError;
use zk_session::machine::Reply;

use super::{Contender, State};
use crate::error::LockError;
use crate::machine::queue::{Standing, standing};
use crate::machine::{Restart, Step, Verdict, View, barrier, flight, list, read, replayable};

/// What the flight of a list has besides: a barrier in front of it, a read of the own znode behind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Around {
    barrier: bool,
    own: bool,
}

/// What is known of the own znode beyond its name in the list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Own {
    /// It is ours: it was just created or read, or is watched.
    Ours,
    /// The watch on it has fired since the list was asked for.
    Unclear,
    /// It is gone, or somebody else has created one of the same name.
    Gone,
}

impl Contender {
    /// Lists for step 2. A list without a watch is shared with other attempts of the client.
    ///
    /// A lease that has ended is renewed by a committed write only, and without it nothing can be
    /// granted, so then a barrier goes ahead. Unless the own znode is watched, it is read too: by
    /// its name alone it might be a znode that somebody else has created. A watch that was restored
    /// after a disconnect serves as well: the server compares the znode with what the session had
    /// seen before it answers anything else.
    pub(super) fn list_again(&mut self, view: View) -> Step {
        let [directory_watch, fresh] = [(); 2].map(|()| self.fresh_watch());
        let place = self.place.as_mut().expect("a list is taken for a place");
        let directory = &self.profile.directory;
        let around = Around { barrier: view.has_lapsed(), own: place.own_watch.is_none() };
        let mut operations = Vec::new();
        if around.barrier {
            operations.push(barrier(directory.clone()));
        }
        if self.is_blind {
            place.ahead_watch = Some(directory_watch);
        }
        let watch = place.ahead_watch.filter(|_| self.is_blind);
        operations.push(list(directory, watch.map(NonZeroU64::get)));
        if around.own {
            place.own_watch = Some(fresh);
            place.own_watched_on = None;
            operations.push(read(self.claim.path(), place.own_watch.map(NonZeroU64::get)));
        }
        self.state = State::Listing(around);
        Step::Submit(flight(Some(place.session), operations))
    }

    /// Lists, unless a flight is under way. Its answer leads to a list, or meets the loss of the
    /// own watch.
    pub(super) fn list_unless_busy(&mut self, view: View) -> Step {
        match self.state {
            State::Queued | State::Granted => self.list_again(view),
            State::Claiming
            | State::Listing(_)
            | State::Watching(_)
            | State::WatchingSecond
            | State::Confirming
            | State::Checking(_)
            | State::Pausing => self.wait(view),
        }
    }

    pub(super) fn listed(&mut self, view: View, around: Around, reply: Reply) -> Step {
        let connection = reply.connection;
        let mut results = reply.results.into_iter().map(replayable);
        let mut result =
            |is_asked: bool| is_asked.then(|| results.next().unwrap_or(Verdict::Unknown));
        let (barrier, listed, own) = (result(around.barrier), result(true), result(around.own));
        let place = self.place.as_mut().expect("a list was taken for a place");
        let is_own = matches!(&own, Some(Verdict::Done(Response::GetData(found)))
            if self.claim.is_znode(found));
        // What was not read is not watched, and a watch on somebody else's znode proves nothing.
        if own.is_some() && !is_own {
            place.own_watch = None;
        }
        for verdict in [&barrier, &listed, &own].into_iter().flatten() {
            match verdict {
                Verdict::SessionOver => return Step::Restart(Restart::SessionOver),
                Verdict::Later(error) => return self.later(view, error.clone(), "list"),
                Verdict::NotApplied | Verdict::Unknown => {
                    self.tally.replays += 1;
                    return self.list_again(view);
                }
                Verdict::Done(_) | Verdict::Refused(_) => {}
            }
        }
        let own = match own {
            // A list that is shared may be newer than the read, but not than the watch.
            _ if (own.is_none() || is_own) && place.own_watch.is_none() => Own::Unclear,
            None => Own::Ours,
            Some(_) if is_own => {
                place.own_seen(connection);
                Own::Ours
            }
            Some(Verdict::Refused(error)) if error != OpError::Server(ErrorCode::NO_NODE) => {
                let path = self.claim.path();
                return Step::Failed(LockError::definite(error, "read", &path));
            }
            Some(_) => Own::Gone,
        };
        match listed {
            Some(Verdict::Done(Response::GetChildren(names))) => {
                self.evaluate(view, &names, connection, own, around.barrier)
            }
            // The directory is gone, and the place with it.
            Some(Verdict::Refused(OpError::Server(ErrorCode::NO_NODE))) => {
                Step::Restart(Restart::ZnodeGone)
            }
            Some(Verdict::Refused(error)) => {
                Step::Failed(LockError::definite(error, "list", &self.profile.directory))
            }
            Some(_) | None => {
                self.tally.replays += 1;
                self.list_again(view)
            }
        }
    }

    /// Step 2. `has_barrier`: a write barrier was passed on this connection just before.
    pub(super) fn evaluate(
        &mut self,
        view: View,
        names: &NameList,
        connection: u64,
        own: Own,
        has_barrier: bool,
    ) -> Step {
        if let Some(step) = self.claim.reconcile(names) {
            self.state = State::Claiming;
            return self.after_claim(view, step);
        }
        let place = self.place.as_mut().expect("a list is evaluated for a place");
        let znode = self.claim.znode().expect("a place was claimed");
        let standing = match standing(&self.profile, names, &znode.name, znode.sequence) {
            Ok(standing) => standing,
            Err(error) => return Step::Failed(error),
        };
        place.listed_on = Some(connection);
        match standing {
            _ if own == Own::Gone => Step::Restart(Restart::ZnodeGone),
            Standing::Missing => Step::Restart(Restart::ZnodeGone),
            Standing::First => {
                self.ahead = Some(0);
                if own == Own::Unclear {
                    self.list_again(view)
                } else if view.alive == Some(connection) {
                    self.grant(view, connection)
                } else if has_barrier && view.connection == Some(connection) {
                    // Even the barrier has made no lease. The session gives up a connection that
                    // cannot make one; asking again at once would change nothing.
                    self.pause(view)
                } else {
                    self.list_again(view)
                }
            }
            Standing::Behind { .. } if !self.may_queue => Step::Busy,
            Standing::Behind { ahead, nearest, second } => {
                let is_same = place.nearest == nearest && place.ahead_watch.is_some();
                self.ahead = Some(ahead);
                place.nearest = nearest;
                if self.is_blind {
                    return self.queue(view);
                }
                // Readers and writers always list when the one ahead is gone.
                let second = second.filter(|_| !self.profile.names.is_read_write());
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
