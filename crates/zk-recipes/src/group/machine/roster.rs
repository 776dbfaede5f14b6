//! Following the members of a group.
//!
//! 1. Wait until a persistent watch of the directory is in place. It names each new member.
//! 2. List the directory.
//! 3. Read the members that are new, and watch the data of each. Without data watches, read all
//!    members.
//! 4. Report the differences. Read each member that the persistent watch names, and each whose data
//!    have changed. A member whose znode was deleted has left.
//! 5. When the persistent watch may have missed something, continue with 2. The servers tell the
//!    watches of the members what they have missed.
//! 6. When the session ends, pass a write barrier in the next one, because its server may lag
//!    behind what was reported. Then continue with 1, and read all members, because the watches
//!    have ended with the session.
//!
//! 7. From time to time, test the existence of the directory. If its children have changed more often
//!    than was listed and named, continue with 2. A refusal is a failure: the watches report nothing
//!    to those who may no longer read. When it is over, read all members.
//!
//! On a server without persistent watches, watch the list of the directory, and list it again
//! whenever that watch fires. Step 7 is then that of the monitor.
//!
//! Lists, reads and the watches of the members use one lane, with one flight at a time. So they are
//! evaluated in the order in which a server answered them, and no old list follows a newer read. The
//! events of the persistent watch arrive through another queue, so they decide nothing: they only
//! cause a read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytestring::ByteString;
use jute_codec::{DataReply, EventType, NameList, Response};
use zk_session::{OpError, Outcome, Time, Zxid};

use crate::action::FailedAction;
use crate::group::change::GroupChange;
use crate::group::member::Member;
use crate::machine::{
    Answer, Answers, Aspect, Failure, Input, Machine, Monitor, Needs, Pauses, SessionView, Step,
    WatchNumber, barrier, child, exists, flight, is_check_due, list, next_check, owned_copy, read,
};

/// Maximum number of reads in one flight.
const BATCH: usize = 100;

/// Follows the members of a group. Each output is a change; driving the machine again waits for the
/// next. Dropping the future that drives it loses nothing.
#[derive(Debug)]
pub(crate) struct Roster {
    directory: ByteString,
    watches_data: bool,
    source: Option<Source>,
    /// Lists and watches the directory, if there is no persistent watch.
    monitor: Monitor,
    /// The directory has to be listed, if there is a persistent watch.
    needs_list: bool,
    /// When the directory was created, and how often its children have changed, as far as this was
    /// listed or named. A change that both contain counts twice, which costs a list.
    seen_changes: Option<(Zxid, i32)>,
    /// When step 7 is due, if there is a persistent watch.
    check_at: Time,
    /// The members that were reported, or whose report is in `changes`.
    members: BTreeMap<ByteString, Known>,
    changes: VecDeque<GroupChange>,
    /// Names that have to be read.
    due: BTreeSet<ByteString>,
    /// Names from the persistent watch. They wait until no flight is pending, because the reply to
    /// that flight may be older than they are.
    named: BTreeSet<ByteString>,
    /// Without data watches, members whose data have changed. They are read when a member joins or
    /// leaves.
    changed: BTreeSet<ByteString>,
    /// The names in flight, with their watches.
    batch: Vec<(ByteString, Option<WatchNumber>)>,
    /// A session has ended since the last barrier.
    needs_barrier: bool,
    /// Between failures that were reported.
    pauses: Pauses,
    state: State,
}

/// How a group learns of new members.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Source {
    /// A watch of the list of the directory.
    List,
    /// A persistent watch of the directory and its members.
    Names,
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
    /// A list without a watch is in flight.
    Naming,
    /// Step 7 is in flight.
    Checking,
    /// Reads are in flight.
    Reading,
    /// A failure was reported. Continue at this time.
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
            source: None,
            needs_list: true,
            seen_changes: None,
            check_at: Time::default(),
            members: BTreeMap::new(),
            changes: VecDeque::new(),
            due: BTreeSet::new(),
            named: BTreeSet::new(),
            changed: BTreeSet::new(),
            batch: Vec::new(),
            needs_barrier: false,
            pauses: Pauses::default(),
            state: State::Idle,
        }
    }

    /// Records how new members are learned of from now on, and lists the directory.
    pub(crate) fn follow(&mut self, source: Option<Source>) {
        self.source = source;
        self.missed();
    }

    /// Records that new members may have been missed.
    pub(crate) fn missed(&mut self) {
        self.needs_list = true;
        if self.source != Some(Source::List) {
            self.monitor.read_again();
        }
    }

    /// Takes note of an event of the persistent watch.
    pub(crate) fn named(&mut self, kind: EventType, path: &str) {
        let below = path.strip_prefix(&*self.directory).and_then(|path| path.strip_prefix('/'));
        let Some(name) = below.filter(|name| !name.contains('/')) else { return };
        if matches!(kind, EventType::NODE_CREATED | EventType::NODE_DELETED) {
            let count = |(directory, changes): (Zxid, i32)| (directory, changes.wrapping_add(1));
            self.seen_changes = self.seen_changes.map(count);
        }
        match kind {
            EventType::NODE_CREATED => {}
            // The watches of the members report it, in the order of the replies.
            _ if self.watches_data => return,
            EventType::NODE_DELETED => {}
            _ => {
                self.changed.insert(owned_copy(name));
                return;
            }
        }
        self.named.insert(owned_copy(name));
        self.named.append(&mut self.changed);
    }

    /// Reports the next change, or does what is due.
    fn go_on(&mut self, view: SessionView) -> RosterStep {
        self.state = State::Idle;
        if let Some(change) = self.changes.pop_front() {
            return Step::Done(Ok(change));
        }
        if self.needs_barrier {
            self.state = State::Passing;
            let operations = vec![barrier(self.directory.clone())];
            return Step::Submit(flight(None, operations), Needs::All);
        }
        let check_at = match self.source {
            // A list would miss the members that join before there is a watch.
            None => return Step::Wait(None),
            Some(Source::List) => match self.monitor.start(view) {
                Step::Wait(check_at) => check_at,
                step @ (Step::Done(_) | Step::Submit(..) | Step::SubmitLater(..)) => {
                    return self.listing(view, step);
                }
            },
            Some(Source::Names) if self.needs_list => {
                self.state = State::Naming;
                self.needs_list = false;
                let operations = vec![exists(self.directory.clone()), list(&self.directory, None)];
                return Step::Submit(flight(None, operations), Needs::All);
            }
            Some(Source::Names) if is_check_due(view, &mut self.check_at) => {
                self.state = State::Checking;
                let operations = vec![exists(self.directory.clone())];
                return Step::Submit(flight(None, operations), Needs::All);
            }
            Some(Source::Names) => Some(self.check_at),
        };
        self.due.append(&mut self.named);
        if self.due.is_empty() { Step::Wait(check_at) } else { self.read() }
    }

    fn passed(&mut self, view: SessionView, answers: Answers) -> RosterStep {
        let [passed] = answers.take();
        match passed {
            // Even a barrier that was refused has been executed.
            Answer::Done(_) => self.is_past_barrier(view),
            Answer::Refused(error @ OpError::Server { .. })
                if error.outcome() != Outcome::Unknown =>
            {
                self.is_past_barrier(view)
            }
            other @ (Answer::Refused(_) | Answer::SessionEnded | Answer::Unknown { .. }) => {
                self.refused(view, other)
            }
        }
    }

    fn is_past_barrier(&mut self, view: SessionView) -> RosterStep {
        self.needs_barrier = false;
        self.go_on(view)
    }

    /// Follows the reply to a list without a watch.
    fn were_named(&mut self, view: SessionView, answers: Answers) -> RosterStep {
        let [found, listed] = answers.take();
        match listed {
            Answer::Done(Response::GetChildren(names)) => self.listed(names),
            Answer::Refused(error) if error.is_no_node() => self.listed(NameList::default()),
            other @ (Answer::Done(_)
            | Answer::Refused(_)
            | Answer::SessionEnded
            | Answer::Unknown { .. }) => {
                self.may_not_read();
                return self.refused(view, other);
            }
        }
        self.seen_changes = match found {
            Answer::Done(Response::Exists(stat)) => Some((stat.czxid, stat.cversion.0)),
            Answer::Done(_)
            | Answer::Refused(_)
            | Answer::SessionEnded
            | Answer::Unknown { .. } => None,
        };
        self.check_at = next_check(view);
        self.go_on(view)
    }

    /// Follows step 7.
    fn checked(&mut self, view: SessionView, answers: Answers) -> RosterStep {
        let [found] = answers.take();
        let found = match found {
            // Servers count the creates and the deletes. They begin again in a new directory.
            Answer::Done(Response::Exists(stat)) => Some((stat.czxid, stat.cversion.0)),
            Answer::Refused(error) if error.is_no_node() => None,
            other @ (Answer::Done(_)
            | Answer::Refused(_)
            | Answer::SessionEnded
            | Answer::Unknown { .. }) => {
                self.may_not_read();
                return self.refused(view, other);
            }
        };
        // A directory that has come and gone since the list had members that only events have named.
        let are_gone = found.is_none() && !self.members.is_empty();
        self.needs_list |= are_gone || found != self.seen_changes;
        self.check_at = next_check(view);
        self.go_on(view)
    }

    /// Records that changes of the directory and of the members may have been missed.
    fn may_not_read(&mut self) {
        self.needs_list = true;
        self.due.extend(self.members.keys().cloned());
    }

    /// Reports why a request was in vain.
    fn refused(&mut self, view: SessionView, answer: Answer) -> RosterStep {
        match answer.response() {
            Ok(_) => self.go_on(view),
            Err(error) => self.failed(view, self.failure(error)),
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
            Step::Submit(flight, needs) => Step::Submit(flight, needs),
            Step::SubmitLater(flight, needs) => Step::SubmitLater(flight, needs),
            // A check has found no change.
            Step::Wait(_) if self.monitor.is_watching() => self.go_on(view),
            Step::Wait(until) => Step::Wait(until),
            Step::Done(Err(failure)) => {
                self.may_not_read();
                self.failed(view, failure)
            }
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
            if !self.members.contains_key(&name) || !self.watches_data {
                // A slice of the reply would keep the whole list in memory.
                self.due.insert(owned_copy(&name));
            }
        }
    }

    fn read(&mut self) -> RosterStep {
        self.state = State::Reading;
        let Self { monitor, due, watches_data, batch, .. } = self;
        let numbered =
            due.iter().map(|name| (name.clone(), watches_data.then(|| monitor.issue_watch())));
        *batch = numbered.take(BATCH).collect();
        let path = |name| child(&self.directory, name);
        let reads = self.batch.iter().map(|(name, watch)| read(path(name), *watch)).collect();
        Step::Submit(flight(None, reads), Needs::Each)
    }

    fn were_read(&mut self, view: SessionView, answers: Answers) -> RosterStep {
        if self.needs_barrier {
            // The next session has served these reads, and its server may lag behind.
            return self.go_on(view);
        }
        let mut failure = None;
        let batch = std::mem::take(&mut self.batch);
        for ((name, watch), answer) in batch.into_iter().zip(answers.results) {
            match answer.response() {
                Ok(Response::GetData(found)) => self.seen(name, watch, found),
                Err(error) if error.is_no_node() => {
                    self.due.remove(&name);
                    self.left(&name);
                }
                Err(error) => {
                    let path = child(&self.directory, &name);
                    failure = Some(Failure::new(FailedAction::Read, path, error));
                }
                Ok(_) => {}
            }
        }
        match failure {
            Some(failure) if self.changes.is_empty() => self.failed(view, failure),
            Some(_) | None => self.go_on(view),
        }
    }

    fn seen(&mut self, name: ByteString, watch: Option<WatchNumber>, found: DataReply) {
        self.pauses.reset();
        self.due.remove(&name);
        let Some(member) = Member::new(&name, found) else {
            // A znode that is not ephemeral is not a member.
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
        let name = name.clone();
        if kind == EventType::NODE_DELETED {
            self.left(&name);
        } else {
            self.due.insert(name);
        }
    }

    fn session_ended(&mut self) {
        self.needs_barrier = true;
        self.needs_list = true;
        for (name, known) in &mut self.members {
            known.watch = None;
            self.due.insert(name.clone());
        }
        // Also if its watch has not been reported yet.
        self.monitor.read_again();
    }

    /// Reports a failure. If the machine is driven again, it tries again after a pause, so that a
    /// caller who ignores errors does not send requests without end.
    fn failed(&mut self, view: SessionView, failure: Failure) -> RosterStep {
        self.state = State::Pausing(Some(self.pauses.begin(view.now, view.seed)));
        Step::Done(Err(failure))
    }

    fn failure(&self, error: OpError) -> Failure {
        Failure::new(FailedAction::List, self.directory.clone(), error)
    }

    fn wait(&self) -> RosterStep {
        Step::Wait(match self.state {
            State::Pausing(until) => until,
            State::Idle
            | State::Passing
            | State::Listing
            | State::Naming
            | State::Checking
            | State::Reading => None,
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
            State::Naming
            | State::Checking
            | State::Passing
            | State::Reading
            | State::Pausing(_) => self.wait(),
        }
    }

    fn handle(&mut self, view: SessionView, input: Input) -> RosterStep {
        match (self.state, input) {
            (State::Passing, Input::Answered(answers)) => self.passed(view, answers),
            (State::Naming, Input::Answered(answers)) => self.were_named(view, answers),
            (State::Checking, Input::Answered(answers)) => self.checked(view, answers),
            (State::Reading, Input::Answered(answers)) => self.were_read(view, answers),
            (State::Pausing(_), Input::Timer | Input::Suspended) => self.go_on(view),
            (state, input) => {
                match &input {
                    Input::Ended(_) => {
                        self.session_ended();
                        // A list or a check that is in flight is of no use: its reply is discarded, because
                        // another flight follows it.
                        if matches!(state, State::Listing | State::Naming | State::Checking) {
                            return self.go_on(view);
                        }
                    }
                    Input::Watch { watch, kind } if !self.monitor.note(&input) => {
                        self.event(*watch, *kind);
                    }
                    Input::Reply(_)
                    | Input::Answered(_)
                    | Input::Suspended
                    | Input::Timer
                    | Input::Watch { .. } => {}
                }
                match state {
                    State::Idle => self.go_on(view),
                    State::Listing => {
                        let step = self.monitor.handle(view, input);
                        self.listing(view, step)
                    }
                    State::Naming
                    | State::Checking
                    | State::Passing
                    | State::Reading
                    | State::Pausing(_) => self.wait(),
                }
            }
        }
    }
}
