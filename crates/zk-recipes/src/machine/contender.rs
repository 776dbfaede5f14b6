//! A contender of a queue: it watches the nearest ahead of it whom it has to wait for, and in the
//! fair lock the second nearest too. This is the fair lock, and both sides of the read/write lock.
//!
//! One *attempt* is one try in one session, with one id of its own:
//!
//! 1. Claim a place ([`claim`](super::claim)), which also brings a list of the queue.
//! 2. Take the list apart. Znodes with our id but another name: reconcile them first. Own znode
//!    missing: the place is lost, start a new attempt. Nobody ahead to wait for: held. Otherwise go
//!    to 3. A reader waits for the writers ahead, everybody else for all who are ahead.
//! 3. In one flight, read and watch the nearest of those, and the own znode. If the one ahead is
//!    gone, list again (to 2), unless the newest list showed nobody else ahead, all of this
//!    happened on one connection that is alive, and the own znode, read after it, is there: then
//!    the lock is held. If the one ahead may not be read, watch the directory instead. After that,
//!    if the one ahead belongs to another session, and there are no readers and writers, read and
//!    watch the second nearest.
//! 4. Wait. When the second ahead is deleted, list again while the nearest is still there, unless
//!    those two were all: so it is known in time that nobody else is ahead. When the nearest is
//!    deleted, the lock is held without another request if all of these are true:
//!    - there are no readers and writers. There a znode can come into being ahead of others, when
//!      a writer becomes a reader;
//!    - the newest list was taken on the current connection and showed exactly one ahead;
//!    - that one belonged to another session. (A session that is expiring may report the end of
//!      its own znodes in any order, ours among them);
//!    - the own znode has been watched on this connection all the time, and no event of it came;
//!    - the session is connected read-write, and its guard deadline lies ahead.
//!
//!    If only the owner or the watch on the own znode is missing, one read of the own znode
//!    decides. In all other cases list again. A wake-up alone never grants: the one ahead may have
//!    given up with others still ahead of it.
//! 5. Once in a while, check for missed watches: in one flight, read the nearest ahead and the own
//!    znode again, which also sets their watches again. If either has changed, list (to 2). The
//!    cost does not depend on the length of the queue. If the nearest may not be read, ask whether
//!    it exists, which needs no permission.
//! 6. The session ends while waiting: start a new attempt in the next session, at the end of the
//!    queue.
//!
//! After an outage that was longer than the lease, the session is connected, but nothing may be
//! granted, and reads do not change that. So a list goes behind a write barrier then, whose commit
//! makes a new lease.
//!
//! A list may be stale, but it is never wrong about this: znodes with lower numbers only
//! disappear, or give their number to a reader's while they are there. So if the own znode is in
//! the list and nobody ahead of it is to be waited for, that is still true. A name alone does not
//! show that the own znode is still the one that was created, so it has to be just created, watched
//! since it was read, or read in the flight of the list, with the session and the transaction that
//! created it. It may be gone since; the guard knows how to find out.

mod checking;
mod listing;
mod place;

use std::num::NonZeroU64;
use std::sync::Arc;

use jute_codec::{ErrorCode, EventType, Response};
use zk_session::machine::Reply;
use zk_session::{OpError, SessionId, Time};

use self::listing::{Around, Own};
use self::place::Place;
use super::claim::{Claim, ClaimStep, Claimed};
use super::release::Release;
use super::{
    Held, Input, Patience, Profile, Restart, Step, Tally, Verdict, View, child, flight, read,
    replayable, spread,
};
use crate::error::LockError;

/// One attempt.
#[derive(Clone, Debug)]
pub struct Contender {
    profile: Arc<Profile>,
    claim: Claim,
    may_queue: bool,
    place: Option<Place>,
    /// Contenders ahead, by the newest list.
    ahead: Option<usize>,
    next_watch: NonZeroU64,
    /// The znode ahead may not be read: watch the directory.
    is_blind: bool,
    tally: Tally,
    patience: Patience,
    paused_until: Option<Time>,
    /// When to check for missed watches.
    check_at: Option<Time>,
    state: State,
}

/// What is read and watched in the first flight of step 3, in this order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Asked {
    ahead: bool,
    own: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Step 1, or the reconciliation of step 2.
    Claiming,
    /// The list of step 2 is in flight.
    Listing(Around),
    /// Step 3 is in flight.
    Watching(Asked),
    /// The second flight of step 3.
    WatchingSecond,
    /// Step 4: waiting.
    Queued,
    /// Step 4: the read of the own znode is in flight.
    Confirming,
    /// Step 5 is in flight, with this watch on the own znode.
    Checking(NonZeroU64),
    /// A server is overloaded; list again later.
    Pausing,
    /// Granted, and not yet handed to anybody.
    Granted,
}

impl Contender {
    /// An attempt with an id of its own. Without `may_queue` it ends when the lock is taken.
    pub fn new(profile: impl Into<Arc<Profile>>, id: u128, may_queue: bool) -> Self {
        let profile = profile.into();
        let claim = Claim::new(Arc::clone(&profile), id);
        Self {
            claim,
            may_queue,
            place: None,
            ahead: None,
            next_watch: NonZeroU64::MIN,
            is_blind: false,
            tally: Tally::default(),
            patience: Patience::default(),
            paused_until: None,
            check_at: None,
            profile,
            state: State::Claiming,
        }
    }

    /// The first step.
    pub fn start(&mut self) -> Step {
        let step = self.claim.start();
        self.after_claim(
            View { now: Time::default(), connection: None, alive: None, lapses: 0 },
            step,
        )
    }

    /// Contenders ahead, by the newest list; `None` before the first.
    pub fn ahead(&self) -> Option<usize> {
        self.ahead
    }

    /// What it has met since the last call.
    pub fn take_tally(&mut self) -> Tally {
        let mut tally = std::mem::take(&mut self.tally);
        self.claim.take_tally(&mut tally);
        tally
    }

    /// Cancellation: what has to be removed. `true` if the flight that is under way holds the
    /// create, so that its answer has to be handed to the release.
    pub fn abandon(self) -> (Release, bool) {
        let is_creating = self.state == State::Claiming && self.claim.is_creating();
        (self.claim.release(), is_creating)
    }

    /// Advances by one input.
    pub fn handle(&mut self, view: View, input: Input) -> Step {
        if matches!(input, Input::Timer) {
            self.paused_until = None;
        }
        match (self.state, input) {
            (_, Input::Ended(session)) => self.session_ended(view, session),
            (_, Input::Suspended) => self.suspended(view),
            (State::Claiming, Input::Reply(reply)) => {
                let step = self.claim.handle_reply(view, reply);
                self.after_claim(view, step)
            }
            (State::Claiming, Input::Timer) => {
                let step = self.claim.handle_timer();
                self.after_claim(view, step)
            }
            (State::Listing(around), Input::Reply(reply)) => self.listed(view, around, reply),
            (State::Watching(asked), Input::Reply(reply)) => self.watched(view, asked, reply),
            (State::WatchingSecond, Input::Reply(reply)) => self.second_watched(view, reply),
            (State::Confirming, Input::Reply(reply)) => self.confirmed(view, reply),
            (State::Checking(own_watch), Input::Reply(reply)) => {
                self.checked(view, own_watch, reply)
            }
            (State::Queued, Input::Timer) => self.check(),
            (State::Pausing, Input::Timer) => self.list_again(view),
            (_, Input::Watch { local, kind }) => self.event(view, local, kind),
            (State::Granted, Input::Reply(_) | Input::Timer) => self.grant_again(view),
            (_, Input::Reply(_) | Input::Timer) => self.wait(view),
        }
    }

    fn after_claim(&mut self, view: View, step: ClaimStep) -> Step {
        match step {
            ClaimStep::Claimed(claimed) => self.claimed(view, claimed),
            ClaimStep::Failed(error) => Step::Failed(error),
            ClaimStep::SessionOver => Step::Restart(Restart::SessionOver),
            ClaimStep::Submit(flight) => Step::Submit(flight),
            ClaimStep::Wait(until) => {
                self.paused_until = Some(until);
                Step::Wait(self.paused_until)
            }
        }
    }

    fn claimed(&mut self, view: View, claimed: Claimed) -> Step {
        self.place = Some(Place::new(claimed.session));
        match claimed.list {
            Some((names, connection)) => self.evaluate(view, &names, connection, Own::Ours, false),
            None => self.list_again(view),
        }
    }

    /// Step 3: watches the nearest ahead if it is new, and the own znode if it is not watched on
    /// this connection.
    fn watch(&mut self, view: View, is_new: bool) -> Step {
        let [ahead_watch, fresh] = [(); 2].map(|()| self.fresh_watch());
        let place = self.place.as_mut().expect("a watch is set for a place");
        // A watch that is pending keeps its name, so that the registry does not hold two for one znode.
        let own_watch = place.own_watch.unwrap_or(fresh);
        let directory = &self.profile.directory;
        let mut operations = Vec::new();
        let own = place.own_watch.is_none() || place.own_watched_on != place.listed_on;
        let asked = Asked { ahead: is_new, own };
        if asked.ahead {
            place.ahead_watch = Some(ahead_watch);
            place.is_ahead_foreign = false;
            operations.push(read(child(directory, &place.nearest), Some(ahead_watch.get())));
        }
        if asked.own {
            place.own_watch = Some(own_watch);
            place.own_watched_on = None;
            operations.push(read(self.claim.path(), Some(own_watch.get())));
        }
        if operations.is_empty() {
            return self.watch_second(view);
        }
        self.state = State::Watching(asked);
        Step::Submit(flight(Some(place.session), operations))
    }

    fn watched(&mut self, view: View, asked: Asked, reply: Reply) -> Step {
        let place = self.place.as_mut().expect("a watch was set for a place");
        let mut results = reply.results.into_iter().map(replayable);
        let mut result =
            |is_asked: bool| is_asked.then(|| results.next().unwrap_or(Verdict::Unknown));
        let (ahead, own) = (result(asked.ahead), result(asked.own));
        let is_own = matches!(&own, Some(Verdict::Done(Response::GetData(found)))
            if self.claim.is_znode(found));
        // What was not read is not watched, and a watch on somebody else's znode proves nothing.
        if !matches!(ahead, None | Some(Verdict::Done(Response::GetData(_)))) {
            place.ahead_watch = None;
        }
        if own.is_some() && !is_own {
            place.own_watch = None;
        }
        match ahead {
            None => {}
            Some(Verdict::Done(Response::GetData(data))) => {
                place.is_ahead_foreign = data.stat.ephemeral_owner != place.session.0;
            }
            Some(Verdict::SessionOver) => return Step::Restart(Restart::SessionOver),
            Some(Verdict::Later(error)) => return self.later(view, error, "read in"),
            Some(Verdict::Refused(OpError::Server(ErrorCode::NO_AUTH))) => {
                self.is_blind = true;
                place.second = None;
                return self.list_again(view);
            }
            Some(Verdict::Refused(OpError::Server(ErrorCode::NO_NODE))) => {
                let is_current = view.alive == Some(reply.connection)
                    && place.listed_on == Some(reply.connection);
                if is_own && is_current && place.own_watch.is_some() && self.was_last() {
                    return self.grant_confirmed(view, reply.connection);
                }
                return self.list_again(view);
            }
            Some(Verdict::Refused(error)) => {
                let path = child(&self.profile.directory, &place.nearest);
                return Step::Failed(LockError::definite(error, "read", &path));
            }
            Some(Verdict::Done(_) | Verdict::NotApplied | Verdict::Unknown) => {
                place.own_watch = None;
                self.tally.replays += 1;
                return self.watch(view, true);
            }
        }
        match own {
            None => {}
            Some(_) if is_own => place.own_seen(reply.connection),
            Some(Verdict::Refused(error)) if error != OpError::Server(ErrorCode::NO_NODE) => {
                let path = self.claim.path();
                return Step::Failed(LockError::definite(error, "read", &path));
            }
            // Not watched, or not ours: the list decides.
            Some(_) => return self.list_again(view),
        }
        if place.listed_on != Some(reply.connection) {
            place.listed_on = None;
        }
        self.watch_second(view)
    }

    /// Step 3, after the watches that are needed: the one that is only good to have.
    fn watch_second(&mut self, view: View) -> Step {
        let second_watch = self.fresh_watch();
        let place = self.place.as_mut().expect("a watch is set for a place");
        if !place.is_watched() {
            return self.queue(view);
        }
        // The end of a znode of ours is followed by a request, whatever is known by then.
        match place.second.take().filter(|_| place.is_ahead_foreign) {
            None => self.queue(view),
            Some(second) => {
                self.state = State::WatchingSecond;
                place.second_watch = Some(second_watch);
                let path = child(&self.profile.directory, &second);
                let operations = vec![read(path, Some(second_watch.get()))];
                Step::Submit(flight(Some(place.session), operations))
            }
        }
    }

    fn second_watched(&mut self, view: View, mut reply: Reply) -> Step {
        let place = self.place.as_mut().expect("a watch was set for a place");
        match reply.results.pop().map(replayable) {
            Some(Verdict::Done(_)) if place.second_watch.is_some() => self.queue(view),
            Some(Verdict::SessionOver) => Step::Restart(Restart::SessionOver),
            // Gone, before it was read or since.
            Some(Verdict::Done(_) | Verdict::Refused(OpError::Server(ErrorCode::NO_NODE))) => {
                place.second_watch = None;
                self.list_again(view)
            }
            // Without it a list will be needed when the one ahead is gone.
            Some(
                Verdict::Refused(_) | Verdict::Later(_) | Verdict::NotApplied | Verdict::Unknown,
            )
            | None => {
                place.second_watch = None;
                self.queue(view)
            }
        }
    }

    /// Step 4 begins, unless something has happened since the watches were set.
    fn queue(&mut self, view: View) -> Step {
        let place = self.place.as_ref().expect("only a place is waited for");
        if !place.is_watched() {
            return self.list_again(view);
        }
        self.patience.reset();
        self.wait_in_queue(view)
    }

    /// Step 4. The time of the next check is spread, so that waiters do not check together.
    fn wait_in_queue(&mut self, view: View) -> Step {
        self.state = State::Queued;
        let interval = self.profile.safety_relist;
        self.check_at = interval.map(|interval| view.now + spread(interval, self.claim.id()));
        self.wait(view)
    }

    /// Whether the end of the one ahead means that nobody is ahead any more, by the newest list.
    fn was_last(&self) -> bool {
        self.ahead == Some(1) && !self.profile.names.is_read_write()
    }

    /// Granted because the own znode was read after the one ahead had gone.
    fn grant_confirmed(&mut self, view: View, connection: u64) -> Step {
        let place = self.place.as_mut().expect("only a place is granted");
        place.own_watched_on = Some(connection);
        self.grant(view, connection)
    }

    /// An event of one of the watches; those that were replaced mean nothing any more.
    fn event(&mut self, view: View, local: u64, kind: EventType) -> Step {
        let (Some(place), Some(local)) = (self.place.as_mut(), NonZeroU64::new(local)) else {
            return self.wait(view);
        };
        if place.own_watch == Some(local) {
            place.own_watch = None;
            place.own_watched_on = None;
            if kind == EventType::NODE_DELETED {
                return self.list_unless_busy(view);
            }
            return self.wait(view);
        }
        if place.second_watch == Some(local) {
            place.second_watch = None;
            if self.state == State::Queued && kind == EventType::NODE_DELETED {
                if self.ahead != Some(2) || !place.is_listed(view) {
                    return self.list_again(view);
                }
                self.ahead = Some(1);
            }
            return self.wait(view);
        }
        if place.ahead_watch != Some(local) {
            return self.wait(view);
        }
        place.ahead_watch = None;
        if self.state != State::Queued {
            // What is under way will show it.
            return self.wait(view);
        }
        // Step 4.
        let is_current = place.is_listed(view);
        let needs_no_look = place.is_ahead_foreign && place.is_own_watched(view);
        if kind != EventType::NODE_DELETED || !self.was_last() || self.is_blind || !is_current {
            return self.list_again(view);
        }
        if needs_no_look {
            return self.grant(view, view.alive.unwrap_or_default());
        }
        self.confirm()
    }

    fn confirm(&mut self) -> Step {
        self.state = State::Confirming;
        let fresh = self.fresh_watch();
        let place = self.place.as_mut().expect("there is something to confirm");
        let own_watch = place.own_watch.unwrap_or(fresh);
        place.own_watch = Some(own_watch);
        place.own_watched_on = None;
        let path = self.claim.path();
        Step::Submit(flight(Some(place.session), vec![read(path, Some(own_watch.get()))]))
    }

    fn confirmed(&mut self, view: View, mut reply: Reply) -> Step {
        let place = self.place.as_mut().expect("there was something to confirm");
        match reply.results.pop().map(replayable) {
            Some(Verdict::Done(Response::GetData(found)))
                if self.claim.is_znode(&found)
                    && place.own_watch.is_some()
                    && view.alive == Some(reply.connection)
                    && place.listed_on == Some(reply.connection) =>
            {
                self.grant_confirmed(view, reply.connection)
            }
            Some(Verdict::SessionOver) => Step::Restart(Restart::SessionOver),
            _ => {
                place.own_watch = None;
                self.list_again(view)
            }
        }
    }

    fn grant(&mut self, view: View, connection: u64) -> Step {
        self.state = State::Granted;
        let place = self.place.as_ref().expect("only a place is granted");
        Step::Held(Held {
            znode: self.claim.znode().expect("a place was claimed").clone(),
            session: place.session,
            connection,
            own_watch: place.own_watch.map(NonZeroU64::get),
            lapses: view.lapses,
        })
    }

    /// Still granted, unless its connection has ended or its deadline has passed. The view may know
    /// of that before the input arrives that says so.
    fn grant_again(&mut self, view: View) -> Step {
        let place = self.place.as_ref().expect("only a place is granted");
        match view.alive {
            Some(connection) if place.is_listed(view) => self.grant(view, connection),
            Some(_) | None => self.list_again(view),
        }
    }

    /// Asks again later, or gives up.
    fn later(&mut self, view: View, error: OpError, operation: &'static str) -> Step {
        if self.patience.is_over(&error) {
            let directory = &self.profile.directory;
            return Step::Failed(LockError::definite(error, operation, directory));
        }
        self.pause(view)
    }

    fn pause(&mut self, view: View) -> Step {
        self.state = State::Pausing;
        self.paused_until = Some(view.now + spread(self.patience.pause(), self.claim.id()));
        Step::Wait(self.paused_until)
    }

    /// Goes on as before.
    fn wait(&mut self, view: View) -> Step {
        match self.state {
            State::Queued => Step::Wait(self.check_at),
            State::Granted => self.grant_again(view),
            State::Claiming
            | State::Listing(_)
            | State::Watching(_)
            | State::WatchingSecond
            | State::Confirming
            | State::Checking(_)
            | State::Pausing => Step::Wait(self.paused_until),
        }
    }

    /// The watches are restored on the next connection, but what is known of this one is void.
    /// Another server may serve at once what this one had no time for.
    fn suspended(&mut self, view: View) -> Step {
        if let Some(place) = self.place.as_mut() {
            place.listed_on = None;
            place.own_watched_on = None;
        }
        match self.state {
            State::Granted | State::Pausing => {
                self.paused_until = None;
                self.list_again(view)
            }
            State::Claiming if self.paused_until.take().is_some() => {
                let step = self.claim.handle_timer();
                self.after_claim(view, step)
            }
            State::Claiming
            | State::Listing(_)
            | State::Watching(_)
            | State::WatchingSecond
            | State::Queued
            | State::Confirming
            | State::Checking(_) => self.wait(view),
        }
    }

    fn session_ended(&mut self, view: View, session: SessionId) -> Step {
        if self.claim.session() == Some(session) {
            Step::Restart(Restart::SessionOver)
        } else {
            // Another session's end, or the create is on its way and its answer will tell.
            self.wait(view)
        }
    }

    fn fresh_watch(&mut self) -> NonZeroU64 {
        let watch = self.next_watch;
        self.next_watch = watch.saturating_add(1);
        watch
    }
}
