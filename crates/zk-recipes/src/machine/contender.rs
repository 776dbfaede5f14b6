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
//! 5. The session ends while waiting: start a new attempt in the next session, at the end of the
//!    queue.
//!
//! A list may be stale, but it is never wrong about this: znodes with lower numbers only
//! disappear, or give their number to a reader's while they are there. So if the own znode is in
//! the list and nobody ahead of it is to be waited for, that is still true. The own znode may be
//! gone since; the guard knows how to find out.

use std::num::NonZeroU64;
use std::sync::Arc;

use jute_codec::{ErrorCode, EventType, NameList, Response};
use zk_session::machine::Reply;
use zk_session::{OpError, SessionId, Time};

use super::claim::{Claim, ClaimStep, Claimed};
use super::queue::{Standing, standing};
use super::release::Release;
use super::{
    Held, Input, PAUSE, Profile, Restart, Step, Tally, Verdict, View, child, flight, list, read,
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
    /// The list in flight was asked for by the safety timer alone.
    is_safety_list: bool,
    tally: Tally,
    paused_until: Option<Time>,
    state: State,
}

/// A place in the queue, and what is known on the current connection.
#[derive(Clone, Debug)]
struct Place {
    session: SessionId,
    /// Connection of the newest list; `None` after a disconnect.
    listed_on: Option<u64>,
    /// The watch on the own znode. It is restored after a disconnect.
    own_watch: Option<NonZeroU64>,
    /// Connection on which that watch was set by a read.
    own_watched_on: Option<u64>,
    /// The watch on the one ahead, or on the directory.
    ahead_watch: Option<NonZeroU64>,
    nearest: Box<str>,
    /// The one ahead belongs to another session.
    is_ahead_foreign: bool,
    /// The second ahead, until it is watched.
    second: Option<Box<str>>,
    /// Its number.
    second_number: u32,
    second_watch: Option<NonZeroU64>,
}

impl Place {
    /// The watches that are needed are there, and have not fired.
    fn is_watched(&self) -> bool {
        self.ahead_watch.is_some() && self.own_watch.is_some()
    }

    /// The newest list was taken on the current connection, which is alive.
    fn is_listed(&self, view: View) -> bool {
        self.listed_on.is_some() && self.listed_on == view.alive
    }
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
    Listing,
    /// Step 3 is in flight.
    Watching(Asked),
    /// The second flight of step 3.
    WatchingSecond,
    /// Step 4: waiting.
    Queued,
    /// Step 4: the read of the own znode is in flight.
    Confirming,
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
            is_safety_list: false,
            tally: Tally::default(),
            paused_until: None,
            profile,
            state: State::Claiming,
        }
    }

    /// The first step.
    pub fn start(&mut self) -> Step {
        let step = self.claim.start();
        self.after_claim(View { now: Time::default(), alive: None, lapses: 0 }, step)
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
            (State::Listing, Input::Reply(reply)) => self.listed(view, reply),
            (State::Watching(asked), Input::Reply(reply)) => self.watched(view, asked, reply),
            (State::WatchingSecond, Input::Reply(reply)) => self.second_watched(view, reply),
            (State::Confirming, Input::Reply(reply)) => self.confirmed(view, reply),
            (State::Queued, Input::Timer) => {
                self.is_safety_list = true;
                self.list_again()
            }
            (State::Pausing, Input::Timer) => self.list_again(),
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
        self.place = Some(Place {
            session: claimed.session,
            listed_on: None,
            own_watch: None,
            own_watched_on: None,
            ahead_watch: None,
            nearest: Box::default(),
            is_ahead_foreign: false,
            second: None,
            second_number: 0,
            second_watch: None,
        });
        match claimed.list {
            Some((names, connection)) => self.evaluate(view, &names, connection),
            None => self.list_again(),
        }
    }

    /// Step 2.
    fn evaluate(&mut self, view: View, names: &NameList, connection: u64) -> Step {
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
        let is_safety_list = std::mem::take(&mut self.is_safety_list);
        match standing {
            Standing::Missing => Step::Restart(Restart::ZnodeGone),
            Standing::First => {
                self.tally.watches_missed += u64::from(is_safety_list);
                self.ahead = Some(0);
                if view.alive == Some(connection) {
                    self.grant(view, connection)
                } else {
                    self.list_again()
                }
            }
            Standing::Behind { .. } if !self.may_queue => Step::Busy,
            Standing::Behind { ahead, nearest, second } => {
                let is_same = place.nearest == nearest && place.ahead_watch.is_some();
                self.tally.watches_missed += u64::from(is_safety_list && !is_same);
                self.ahead = Some(ahead);
                place.nearest = nearest;
                if self.is_blind {
                    self.state = State::Queued;
                    return self.wait(view);
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

    /// Step 3: watches the nearest ahead if it is new, and the own znode if it is not watched on
    /// this connection.
    fn watch(&mut self, view: View, is_new: bool) -> Step {
        let [ahead_watch, own_watch] = [(); 2].map(|()| self.fresh_watch());
        let place = self.place.as_mut().expect("a watch is set for a place");
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
        // What was not read is not watched.
        if !matches!(ahead, None | Some(Verdict::Done(Response::GetData(_)))) {
            place.ahead_watch = None;
        }
        if !matches!(own, None | Some(Verdict::Done(Response::GetData(_)))) {
            place.own_watch = None;
        }
        let is_own = matches!(&own, Some(Verdict::Done(Response::GetData(data)))
            if data.stat.ephemeral_owner == place.session.0);
        match ahead {
            None => {}
            Some(Verdict::Done(Response::GetData(data))) => {
                place.is_ahead_foreign = data.stat.ephemeral_owner != place.session.0;
            }
            Some(Verdict::SessionOver) => return Step::Restart(Restart::SessionOver),
            Some(Verdict::Later) => return self.pause(view),
            Some(Verdict::Refused(OpError::Server(ErrorCode::NO_AUTH))) => {
                self.is_blind = true;
                place.second = None;
                return self.list_again();
            }
            Some(Verdict::Refused(OpError::Server(ErrorCode::NO_NODE))) => {
                let is_current = view.alive == Some(reply.connection)
                    && place.listed_on == Some(reply.connection);
                if is_own && is_current && place.own_watch.is_some() && self.was_last() {
                    return self.grant_confirmed(view, reply.connection);
                }
                return self.list_again();
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
            Some(_) if is_own => place.own_watched_on = Some(reply.connection),
            Some(Verdict::Refused(error)) if error != OpError::Server(ErrorCode::NO_NODE) => {
                let path = self.claim.path();
                return Step::Failed(LockError::definite(error, "read", &path));
            }
            // Not watched, or not ours: the list decides.
            Some(_) => {
                place.own_watch = None;
                return self.list_again();
            }
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
                self.list_again()
            }
            // Without it a list will be needed when the one ahead is gone.
            Some(Verdict::Refused(_) | Verdict::Later | Verdict::NotApplied | Verdict::Unknown)
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
            return self.list_again();
        }
        self.state = State::Queued;
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
                    return self.list_again();
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
            // The list under way will show it, but it was the watch that told.
            self.is_safety_list = false;
            return self.wait(view);
        }
        // Step 4.
        let is_current = place.is_listed(view);
        let is_watched = place.own_watch.is_some() && place.own_watched_on == view.alive;
        let needs_no_look = place.is_ahead_foreign && is_watched;
        if kind != EventType::NODE_DELETED || !self.was_last() || self.is_blind || !is_current {
            return self.list_again();
        }
        if needs_no_look {
            return self.grant(view, view.alive.unwrap_or_default());
        }
        self.confirm()
    }

    fn confirm(&mut self) -> Step {
        self.state = State::Confirming;
        let own_watch = self.fresh_watch();
        let place = self.place.as_mut().expect("there is something to confirm");
        place.own_watch = Some(own_watch);
        place.own_watched_on = None;
        let path = self.claim.path();
        Step::Submit(flight(Some(place.session), vec![read(path, Some(own_watch.get()))]))
    }

    fn confirmed(&mut self, view: View, mut reply: Reply) -> Step {
        let place = self.place.as_mut().expect("there was something to confirm");
        match reply.results.pop().map(replayable) {
            Some(Verdict::Done(Response::GetData(data)))
                if data.stat.ephemeral_owner == place.session.0
                    && place.own_watch.is_some()
                    && view.alive == Some(reply.connection)
                    && place.listed_on == Some(reply.connection) =>
            {
                self.grant_confirmed(view, reply.connection)
            }
            Some(Verdict::SessionOver) => Step::Restart(Restart::SessionOver),
            _ => {
                place.own_watch = None;
                self.list_again()
            }
        }
    }

    fn list_again(&mut self) -> Step {
        self.state = State::Listing;
        let watch = self.is_blind.then(|| self.fresh_watch());
        let place = self.place.as_mut().expect("a list is taken for a place");
        if watch.is_some() {
            place.ahead_watch = watch;
        }
        Step::Submit(flight(
            Some(place.session),
            vec![list(&self.profile.directory, watch.map(NonZeroU64::get))],
        ))
    }

    /// Lists, unless a flight is under way. Its answer leads to a list, or meets the loss of the
    /// own watch.
    fn list_unless_busy(&mut self, view: View) -> Step {
        match self.state {
            State::Queued | State::Granted => self.list_again(),
            State::Claiming
            | State::Listing
            | State::Watching(_)
            | State::WatchingSecond
            | State::Confirming
            | State::Pausing => self.wait(view),
        }
    }

    fn listed(&mut self, view: View, mut reply: Reply) -> Step {
        match reply.results.pop().map(replayable) {
            Some(Verdict::Done(Response::GetChildren(names))) => {
                self.evaluate(view, &names, reply.connection)
            }
            // The directory is gone, and the place with it.
            Some(Verdict::Refused(OpError::Server(ErrorCode::NO_NODE))) => {
                Step::Restart(Restart::ZnodeGone)
            }
            Some(Verdict::Refused(error)) => {
                Step::Failed(LockError::definite(error, "list", &self.profile.directory))
            }
            Some(Verdict::SessionOver) => Step::Restart(Restart::SessionOver),
            Some(Verdict::Later) => self.pause(view),
            Some(Verdict::Done(_) | Verdict::NotApplied | Verdict::Unknown) | None => {
                self.tally.replays += 1;
                self.list_again()
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

    /// Still granted, unless what arrived since says otherwise.
    fn grant_again(&mut self, view: View) -> Step {
        match view.alive {
            Some(connection) => self.grant(view, connection),
            None => self.list_again(),
        }
    }

    fn pause(&mut self, view: View) -> Step {
        self.state = State::Pausing;
        self.paused_until = Some(view.now + PAUSE);
        Step::Wait(self.paused_until)
    }

    /// Goes on as before.
    fn wait(&mut self, view: View) -> Step {
        match self.state {
            State::Queued => Step::Wait(self.profile.safety_relist.map(|pause| {
                // Spread, so that waiters do not list together.
                view.now + spread(pause, self.claim.id())
            })),
            State::Granted => self.grant_again(view),
            State::Claiming
            | State::Listing
            | State::Watching(_)
            | State::WatchingSecond
            | State::Confirming
            | State::Pausing => Step::Wait(self.paused_until),
        }
    }

    /// The watches are restored on the next connection, but what is known of this one is void.
    fn suspended(&mut self, view: View) -> Step {
        if let Some(place) = self.place.as_mut() {
            place.listed_on = None;
            place.own_watched_on = None;
        }
        if self.state == State::Granted { self.list_again() } else { self.wait(view) }
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
