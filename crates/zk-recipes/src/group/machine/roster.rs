//! Following the members of a group.
//!
//! 1. List the directory, and watch the list.
//! 2. Read the members that are new, and watch the data of each. Without data watches, read all
//!    members.
//! 3. Report the differences. When the watch of the list fires, continue with 1; when that of a
//!    member fires because of new data, read it again.
//! 4. When a member is deleted, do nothing: the watch of the list fires next. Its list shows
//!    whether the member is gone, or has joined again and has to be read.
//! 5. When the session ends, pass a write barrier in the next one, because its server may lag
//!    behind what was reported. Then continue with 1, and read all members, because the watches
//!    have ended with the session.
//!
//! All of it uses one lane, with one flight at a time. So lists and reads are evaluated in the
//! order in which a server answered them, and no old list follows a newer read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytestring::ByteString;
use jute_codec::{DataReply, ErrorCode, EventType, NameList, Response};
use zk_session::recipe::Reply;
use zk_session::{OpError, Outcome, Time};

use crate::action::FailedAction;
use crate::group::change::GroupChange;
use crate::group::member::Member;
use crate::machine::{
    Aspect, Failure, Input, Machine, Monitor, Pauses, SessionView, Step, Verdict, WatchNumber,
    barrier, child, flight, owned_copy, read, replayable, take,
};

/// Maximum number of reads in one flight.
const BATCH: usize = 100;

/// Follows the members of a group. Each output is a change; driving the machine again waits for the
/// next. Dropping the future that drives it loses nothing.
#[derive(Debug)]
pub(crate) struct Roster {
    directory: ByteString,
    watches_data: bool,
    monitor: Monitor,
    /// The members that were reported, or whose report is in `changes`.
    members: BTreeMap<ByteString, Known>,
    changes: VecDeque<GroupChange>,
    /// Names that have to be read.
    due: BTreeSet<ByteString>,
    /// Members whose znode was deleted. The next list shows whether another znode has the name.
    deleted: BTreeSet<ByteString>,
    /// The names in flight, with their watches.
    batch: Vec<(ByteString, Option<WatchNumber>)>,
    /// A session has ended since the last barrier.
    needs_barrier: bool,
    pauses: Pauses,
    state: State,
}

#[derive(Debug)]
struct Known {
    member: Member,
    watch: Option<WatchNumber>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Nothing is in flight.
    Idle,
    /// The barrier is in flight.
    Passing,
    /// The monitor lists the directory.
    Listing,
    /// Reads are in flight.
    Reading,
    /// Continue at this time.
    Pausing(Option<Time>),
}

type RosterStep = Step<Result<GroupChange, Failure>>;

impl Roster {
    pub(crate) fn directory(&self) -> &ByteString {
        &self.directory
    }

    pub(crate) fn new(directory: ByteString, watches_data: bool) -> Self {
        Self {
            monitor: Monitor::new(directory.clone(), Aspect::Children),
            directory,
            watches_data,
            members: BTreeMap::new(),
            changes: VecDeque::new(),
            due: BTreeSet::new(),
            deleted: BTreeSet::new(),
            batch: Vec::new(),
            needs_barrier: false,
            pauses: Pauses::default(),
            state: State::Idle,
        }
    }

    /// Reports the next change, or does what is due.
    fn go_on(&mut self, view: SessionView) -> RosterStep {
        self.state = State::Idle;
        if let Some(change) = self.changes.pop_front() {
            return Step::Done(Ok(change));
        }
        if self.needs_barrier {
            self.state = State::Passing;
            return Step::Submit(flight(None, vec![barrier(self.directory.clone())]));
        }
        if self.monitor.is_due() {
            let step = self.monitor.start(view);
            return self.listing(view, step);
        }
        if self.due.is_empty() { Step::Wait(None) } else { self.read() }
    }

    fn passed(&mut self, view: SessionView, reply: Reply) -> RosterStep {
        let [passed] = take(reply).map(replayable);
        match passed {
            // Even a barrier that was refused has been executed.
            Verdict::Done(_) | Verdict::Refused(OpError::Server { .. }) => {
                self.needs_barrier = false;
                self.go_on(view)
            }
            Verdict::Refused(error) => self.failed(view, self.failure(error)),
            Verdict::Later(error) => self.later(view, error),
            Verdict::SessionOver if view.has_stopped => self.stopped(view),
            Verdict::NotApplied | Verdict::Unknown | Verdict::SessionOver => self.go_on(view),
        }
    }

    /// Follows a step of the monitor.
    fn listing(
        &mut self,
        view: SessionView,
        step: Step<Result<Option<Response>, Failure>>,
    ) -> RosterStep {
        self.state = State::Listing;
        match step {
            Step::Submit(flight) => Step::Submit(flight),
            Step::Wait(until) => Step::Wait(until),
            Step::Done(Err(failure)) => self.failed(view, failure),
            Step::Done(Ok(seen)) => {
                match seen {
                    Some(Response::GetChildren(names)) => self.listed(names),
                    Some(_) | None => self.listed(NameList::default()),
                }
                self.go_on(view)
            }
        }
    }

    fn listed(&mut self, names: NameList) {
        self.pauses.reset();
        let names: BTreeSet<_> = names.into_iter().collect();
        let gone: Vec<_> =
            self.members.keys().filter(|name| !names.contains(*name)).cloned().collect();
        for name in &gone {
            self.left(name);
        }
        self.due.retain(|name| names.contains(name));
        for name in names {
            let is_known = self.members.contains_key(&name) && !self.deleted.contains(&name);
            if !is_known || !self.watches_data {
                // A slice of the reply would keep the whole list in memory.
                self.due.insert(owned_copy(&name));
            }
        }
        self.deleted.clear();
    }

    fn read(&mut self) -> RosterStep {
        self.state = State::Reading;
        let Self { monitor, due, watches_data, batch, .. } = self;
        let numbered =
            due.iter().map(|name| (name.clone(), watches_data.then(|| monitor.issue_watch())));
        *batch = numbered.take(BATCH).collect();
        let path = |name| child(&self.directory, name);
        let reads = self.batch.iter().map(|(name, watch)| read(path(name), *watch)).collect();
        Step::Submit(flight(None, reads))
    }

    fn were_read(&mut self, view: SessionView, reply: Reply) -> RosterStep {
        if self.needs_barrier {
            // The next session has served these reads, and its server may lag behind.
            return self.go_on(view);
        }
        let mut failure = None;
        let mut refusal = None;
        let mut is_stopped = false;
        let batch = std::mem::take(&mut self.batch);
        for ((name, watch), result) in batch.into_iter().zip(reply.results) {
            match replayable(result) {
                Verdict::Done(Response::GetData(found)) => self.seen(name, watch, found),
                Verdict::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {
                    self.due.remove(&name);
                    self.left(&name);
                }
                Verdict::Refused(error) => {
                    let path = child(&self.directory, &name);
                    refusal = Some(Failure::new(FailedAction::ReadChild, path, error));
                }
                Verdict::Later(error) => failure = Some(error),
                Verdict::SessionOver => is_stopped = view.has_stopped,
                // The next flight waits for the next connection, or the next session.
                Verdict::Done(_) | Verdict::NotApplied | Verdict::Unknown => {}
            }
        }
        if !self.changes.is_empty() {
            return self.go_on(view);
        }
        match (refusal, failure) {
            (Some(refusal), _) => self.failed(view, refusal),
            (None, Some(error)) => self.later(view, error),
            (None, None) if is_stopped => self.stopped(view),
            (None, None) => self.go_on(view),
        }
    }

    fn seen(&mut self, name: ByteString, watch: Option<WatchNumber>, found: DataReply) {
        self.pauses.reset();
        self.due.remove(&name);
        let Some(member) = Member::new(&name, found) else {
            // A znode that is not ephemeral is no member.
            self.left(&name);
            return;
        };
        match self.members.get_mut(&name) {
            Some(known) if known.member.czxid == member.czxid => {
                known.watch = watch;
                if known.member.data != member.data {
                    known.member = member.clone();
                    self.changes.push_back(GroupChange::Changed(member));
                }
                return;
            }
            // The member has left and joined again.
            Some(_) => self.left(&name),
            None => {}
        }
        self.changes.push_back(GroupChange::Joined(member.clone()));
        self.members.insert(name, Known { member, watch });
    }

    fn left(&mut self, name: &ByteString) {
        if let Some(Known { member, .. }) = self.members.remove(name) {
            self.changes.push_back(GroupChange::Left(member));
        }
    }

    /// Takes note of an event of a member.
    fn event(&mut self, watch: WatchNumber, kind: EventType) {
        let mut members = self.members.iter_mut();
        let is_own = |known: &Known| known.watch == Some(watch);
        let Some((name, known)) = members.find(|(_, known)| is_own(known)) else { return };
        known.watch = None;
        let names = if kind == EventType::NODE_DELETED { &mut self.deleted } else { &mut self.due };
        names.insert(name.clone());
    }

    fn session_over(&mut self) {
        self.needs_barrier = true;
        self.deleted.clear();
        for (name, known) in &mut self.members {
            known.watch = None;
            self.due.insert(name.clone());
        }
        // Also if its watch has not been reported yet.
        self.monitor.read_again();
    }

    fn later(&mut self, view: SessionView, error: OpError) -> RosterStep {
        if self.pauses.is_too_many(&error) {
            let failure = self.failure(error);
            return self.failed(view, failure);
        }
        self.state = State::Pausing(self.pauses.begin(view));
        self.wait()
    }

    /// Reports a failure. If the machine is driven again, it tries again after a pause, so that a
    /// caller who ignores errors does not send requests without end.
    fn failed(&mut self, view: SessionView, failure: Failure) -> RosterStep {
        self.state = State::Pausing(self.pauses.begin(view));
        Step::Done(Err(failure))
    }

    /// Reports that the client has stopped: there will be no other session.
    fn stopped(&mut self, view: SessionView) -> RosterStep {
        let failure = self.failure(OpError::session_expired(Outcome::NotApplied));
        self.failed(view, failure)
    }

    fn failure(&self, error: OpError) -> Failure {
        Failure::new(FailedAction::List, self.directory.clone(), error)
    }

    fn wait(&self) -> RosterStep {
        Step::Wait(match self.state {
            State::Pausing(until) => until,
            State::Idle | State::Passing | State::Listing | State::Reading => None,
        })
    }
}

impl Machine for Roster {
    type Output = Result<GroupChange, Failure>;

    fn start(&mut self, view: SessionView) -> RosterStep {
        match self.state {
            State::Idle => self.go_on(view),
            State::Listing => {
                let step = self.monitor.start(view);
                self.listing(view, step)
            }
            State::Passing | State::Reading | State::Pausing(_) => self.wait(),
        }
    }

    fn handle(&mut self, view: SessionView, input: Input) -> RosterStep {
        match (self.state, input) {
            (State::Passing, Input::Reply(reply)) => self.passed(view, reply),
            (State::Reading, Input::Reply(reply)) => self.were_read(view, reply),
            (State::Pausing(_), Input::Timer | Input::Suspended) => self.go_on(view),
            (state, input) => {
                match &input {
                    Input::Ended(_) => {
                        self.session_over();
                        // A list that is in flight is of no use: its reply is discarded, because
                        // another flight follows it.
                        if state == State::Listing {
                            return self.go_on(view);
                        }
                    }
                    Input::Watch { watch, kind } if !self.monitor.note(&input) => {
                        self.event(*watch, *kind);
                    }
                    Input::Reply(_) | Input::Suspended | Input::Timer | Input::Watch { .. } => {}
                }
                match state {
                    State::Idle => self.go_on(view),
                    State::Listing => {
                        let step = self.monitor.handle(view, input);
                        self.listing(view, step)
                    }
                    State::Passing | State::Reading | State::Pausing(_) => self.wait(),
                }
            }
        }
    }
}
