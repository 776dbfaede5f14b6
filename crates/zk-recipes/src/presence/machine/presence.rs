//! Keeping a znode present: an ephemeral znode with a fixed name, in whichever session the client
//! has.
//!
//! 1. In one flight, create the znode with the owner's data, and watch it with `exists`, which
//!    does not return the data. If the directory is missing, create it, and try again.
//! 2. If the name is taken by a session that the client had before, wait until the znode is gone.
//!    If another session has it, or the znode is not ephemeral, wait too, or end. Test the znode
//!    every 30 s in case the watch was lost, or may not report the deletion.
//! 3. While the znode exists, write its data when the owner changes them, at the version that was
//!    seen last. Test it every 30 s, because its deletion is not reported if somebody has taken the
//!    permission to read it.
//! 4. If the znode is deleted although the session lives, continue with 1: at once if the profile
//!    says so and this has not happened lately, and otherwise after a pause. The pauses grow if this
//!    happens again soon.
//! 5. If the connection is lost during 1 or 3, pass a write barrier and test the znode. It is ours
//!    if our session owns it and either its transaction is known to be ours, or the outcome of a
//!    create is open. The data do not identify the owner, because readers in other languages
//!    expect nothing but the owner's own bytes in them.
//! 6. When the session ends, continue with 1 in the next one.
//! 7. If the create is refused, and the profile is patient, watch the znodes that may be the reason,
//!    and continue with 1 when one of them changes, or after a pause. The pauses grow.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jute_codec::{CreateMode, ErrorCode, EventType, Response, Stat};
use zk_session::recipe::{Flight, Operation};
use zk_session::{OpError, SessionId, Time, Version, Zxid};

use crate::action::FailedAction;
use crate::error::RecipeError;
use crate::exclusive::machine::id::AttemptId;
use crate::exclusive::machine::removal::ExclusiveRemoval;
use crate::lock::recipe::LockRemoval as _;
use crate::machine::directory::{Directory, Round};
use crate::machine::{
    Answer, Answers, Failure, Input, Leaving, Machine, Needs, PAUSE, Pauses, SessionView, Step,
    WatchNumber, WatchNumbers, barrier, create, flight, is_check_due, next_check, parent, spread,
    watch_existence, write,
};
use crate::presence::machine::obstacle::Obstacle;
use crate::presence::machine::profile::{Fate, Patience, Profile, Report, Settled};
use crate::presence::state::{Absence, Standing};

/// A presence that has lasted for this long begins with the shortest pause when its znode is
/// deleted.
const STABLE: Duration = Duration::from_secs(60);
/// Number of earlier sessions of the client whose znodes are recognised.
const PAST_MAX: usize = 8;

/// Keeps a znode present. It ends only for a [`Fate`].
#[derive(Debug)]
pub(crate) struct Keep {
    profile: Arc<Profile>,
    wanted: Bytes,
    generation: u64,
    /// The data that servers accepted last.
    accepted: Bytes,
    settled: Settled,
    /// The generation of the data in the last create or write.
    sent: u64,
    /// The generation of the data in the znode, if it is known.
    stored: Option<u64>,
    session: Option<SessionId>,
    /// Sessions that this client had before.
    past: VecDeque<SessionId>,
    czxid: Option<Zxid>,
    /// When the znode was created, as its stat says.
    ctime: i64,
    version: Version,
    watch: Option<WatchNumber>,
    watches: WatchNumbers,
    /// When to test the znode although no event says that it has changed.
    check_at: Time,
    /// The outcome of a create is open.
    is_undecided: bool,
    /// The outcome of a create of this session was open at some time.
    is_tainted: bool,
    has_joined: bool,
    joined_at: Time,
    absence: Absence,
    directory: Directory,
    /// Why the create was refused.
    obstacle: Option<Box<Obstacle>>,
    /// Pauses because the znode was deleted.
    rejoins: Pauses,
    /// The znode was deleted lately, and created again without a pause.
    has_hurried: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Not started.
    Idle,
    /// Step 1 is in flight.
    Creating,
    /// The directory is being created.
    MakingDirectory,
    /// Step 2: a znode is in the way. Test it at this time.
    Waiting(Time),
    /// The znode exists, and nothing is in flight.
    Present,
    /// Step 3 is in flight.
    Writing,
    /// A test of the znode is in flight.
    Looking,
    /// Step 5 is in flight.
    Probing,
    /// The znode was deleted. Continue with step 1 at this time.
    Rejoining(Option<Time>),
    /// Step 7: the tests are in flight.
    Surveying,
    /// Step 7: nothing has changed. Continue with step 1 at this time.
    Hindered(Time),
}

type KeepStep = Step<Fate>;

impl Keep {
    pub(crate) fn new(profile: Arc<Profile>, data: Bytes) -> Self {
        Self {
            profile,
            wanted: data.clone(),
            generation: 1,
            accepted: data,
            settled: Settled::default(),
            sent: 0,
            stored: None,
            session: None,
            past: VecDeque::new(),
            czxid: None,
            ctime: 0,
            version: Version(0),
            watch: None,
            watches: WatchNumbers::default(),
            check_at: Time::default(),
            is_undecided: false,
            is_tainted: false,
            has_joined: false,
            joined_at: Time::default(),
            absence: Absence::SessionEnded,
            directory: Directory::default(),
            obstacle: None,
            rejoins: Pauses::default(),
            has_hurried: false,
            state: State::Idle,
        }
    }

    /// Sets the data of the znode. Drive the machine afterwards.
    pub(crate) fn want(&mut self, data: Bytes, generation: u64) {
        self.wanted = data;
        self.generation = generation;
    }

    pub(crate) fn report(&self) -> Report {
        let standing = match (self.czxid, self.session) {
            _ if !self.has_joined => None,
            (Some(czxid), Some(session)) => {
                Some(Ok(Standing { session, czxid, ctime: self.ctime }))
            }
            (Some(_) | None, _) => Some(Err(self.absence.clone())),
        };
        Report { standing, settled: self.settled.clone() }
    }

    /// Performs step 1.
    fn create(&mut self) -> KeepStep {
        let (flight, needs) = self.creating();
        Step::Submit(flight, needs)
    }

    fn creating(&mut self) -> (Flight, Needs) {
        self.state = State::Creating;
        self.sent = self.generation;
        let path = self.profile.path.clone();
        let acl = self.profile.acl.clone();
        let create = create(path, self.wanted.clone(), acl, CreateMode::Ephemeral);
        let operations = vec![create, self.watched()];
        (flight(self.session, operations), Needs::Once(0))
    }

    fn created(&mut self, view: SessionView, answers: Answers) -> KeepStep {
        self.session = self.session.or(answers.session);
        let [created, look] = answers.take();
        match created {
            Answer::Done(Response::Create2(created)) => {
                self.joined_at = view.now;
                self.czxid = Some(created.stat.czxid);
                self.stored = Some(self.sent);
                match look {
                    Answer::Done(Response::Exists(stat)) if stat.czxid == created.stat.czxid => {}
                    // Another client has deleted the znode between the create and the test.
                    Answer::Done(Response::Exists(_)) => return self.was_deleted(view),
                    look if look.is_no_node() => return self.was_deleted(view),
                    // The test failed, so it set no watch.
                    Answer::Done(_)
                    | Answer::Refused(_)
                    | Answer::SessionEnded
                    | Answer::Unknown { .. } => self.watch = None,
                }
                self.joined(view, &created.stat)
            }
            Answer::Refused(OpError::Server { code: ErrorCode::NODE_EXISTS, .. }) => {
                self.looked(view, look)
            }
            Answer::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {
                self.make_directory(view)
            }
            Answer::Refused(error @ OpError::RequestTooLarge { .. }) if self.is_unsettled() => {
                self.refuse_data(error);
                self.create()
            }
            // No patience makes it shorter.
            Answer::Refused(error @ OpError::RequestTooLarge { .. }) if !self.has_joined => {
                Step::Done(Fate::Failed(self.failure(FailedAction::Create, error)))
            }
            Answer::Refused(error) => self.hindered(self.failure(FailedAction::Create, error)),
            Answer::SessionEnded => self.session_ended(view),
            Answer::Done(_) => self.probe(),
            Answer::Unknown { error, is_final } => {
                self.is_tainted = true;
                self.is_undecided = true;
                if is_final {
                    return self.refused(self.failure(FailedAction::Create, error));
                }
                self.probe()
            }
        }
    }

    /// Evaluates a test of the znode.
    fn looked(&mut self, view: SessionView, look: Answer) -> KeepStep {
        match look {
            Answer::Done(Response::Exists(stat)) => self.found(view, &stat),
            look if look.is_no_node() => {
                if self.czxid.is_some() {
                    self.was_deleted(view)
                } else {
                    self.create()
                }
            }
            Answer::Refused(error) => self.refused(self.failure(FailedAction::Check, error)),
            Answer::SessionEnded => self.session_ended(view),
            Answer::Unknown { error, is_final: true } => {
                self.refused(self.failure(FailedAction::Check, error))
            }
            Answer::Done(_) | Answer::Unknown { .. } => self.go_on(),
        }
    }

    fn found(&mut self, view: SessionView, stat: &Stat) -> KeepStep {
        let owner = stat.ephemeral_owner;
        match self.czxid {
            Some(czxid) if czxid == stat.czxid => self.joined(view, stat),
            // Another session has the name already, or another presence of this client.
            Some(_) => self.was_deleted(view),
            None if self.is_undecided && self.session == Some(owner) => {
                // Only the create has written this version. Later ones may be ours or not, so the
                // data are written again.
                self.stored = (stat.version == Version(0)).then_some(self.sent);
                self.joined_at = view.now;
                self.joined(view, stat)
            }
            None => {
                self.is_undecided = false;
                self.taken(view, owner)
            }
        }
    }

    /// Performs step 2.
    fn taken(&mut self, view: SessionView, owner: SessionId) -> KeepStep {
        let patience = self.patience();
        if self.past.contains(&owner) {
            self.absence = Absence::SessionEnded;
        } else if owner == SessionId::NONE {
            if patience < Patience::Everything {
                return Step::Done(Fate::NotEphemeral);
            }
            self.absence = Absence::NotEphemeral;
        } else {
            if patience < Patience::Sessions {
                return Step::Done(Fate::Taken(owner));
            }
            self.absence = Absence::Taken(owner);
        }
        if self.watch.is_none() {
            // The watch fired before this reply was evaluated.
            return self.create();
        }
        self.state = State::Waiting(next_check(view));
        self.wait()
    }

    fn joined(&mut self, view: SessionView, stat: &Stat) -> KeepStep {
        self.czxid = Some(stat.czxid);
        self.ctime = stat.ctime;
        self.version = stat.version;
        self.is_undecided = false;
        self.has_joined = true;
        self.directory = Directory::default();
        self.obstacle = None;
        self.settle(view)
    }

    /// Completes what is left to do for a znode that exists: its watch and its data.
    fn settle(&mut self, view: SessionView) -> KeepStep {
        if self.watch.is_none() {
            return self.look();
        }
        if self.stored != Some(self.generation) {
            return self.write();
        }
        if self.is_unsettled() {
            self.settled = Settled { generation: self.generation, refusal: None };
            self.accepted = self.wanted.clone();
        }
        self.state = State::Present;
        self.check_at = next_check(view);
        self.wait()
    }

    fn is_unsettled(&self) -> bool {
        self.settled.generation != self.generation && self.has_joined
    }

    /// Reports that servers do not accept the data, and keeps those that they have accepted.
    fn refuse_data(&mut self, error: OpError) {
        let refusal = Some(RecipeError::of(self.failure(FailedAction::Write, error)));
        self.settled = Settled { generation: self.generation, refusal };
        self.wanted = self.accepted.clone();
    }

    /// Performs step 3.
    fn write(&mut self) -> KeepStep {
        self.state = State::Writing;
        self.sent = self.generation;
        self.stored = None;
        // The write fires the watch that is pending, so the test needs a watch of its own.
        self.watch = None;
        let write = write(self.profile.path.clone(), self.wanted.clone(), self.version);
        let operations = vec![write, self.watched()];
        Step::Submit(flight(self.session, operations), Needs::Once(0))
    }

    fn written(&mut self, view: SessionView, answers: Answers) -> KeepStep {
        let [written, look] = answers.take();
        match written {
            Answer::Done(_) => {
                self.stored = Some(self.sent);
                self.looked(view, look)
            }
            written if written.is_no_node() => self.was_deleted(view),
            // Another client has written the data. Theirs may follow ours as often as they like,
            // but not faster than the pauses allow.
            Answer::Refused(OpError::Server { code: ErrorCode::BAD_VERSION, .. }) => self.pause(),
            Answer::Refused(error) => {
                self.refuse_data(error);
                // The znode has the data that were accepted last, as far as this client knows.
                self.stored = Some(self.generation);
                self.watch = None;
                self.settle(view)
            }
            Answer::SessionEnded => self.session_ended(view),
            Answer::Unknown { .. } => self.probe(),
        }
    }

    fn look(&mut self) -> KeepStep {
        self.state = State::Looking;
        let operations = vec![self.watched()];
        Step::Submit(flight(self.session, operations), Needs::All)
    }

    /// Performs step 5.
    fn probe(&mut self) -> KeepStep {
        let (flight, needs) = self.probing();
        Step::Submit(flight, needs)
    }

    fn probing(&mut self) -> (Flight, Needs) {
        self.state = State::Probing;
        let operations = vec![barrier(self.profile.path.clone()), self.watched()];
        (flight(self.session, operations), Needs::All)
    }

    fn probed(&mut self, view: SessionView, answers: Answers) -> KeepStep {
        let [barrier, look] = answers.take();
        // Even a barrier that was refused has been executed.
        if look.is_no_node() {
            self.is_undecided = false;
        }
        let answer = if matches!(barrier, Answer::SessionEnded) { barrier } else { look };
        self.looked(view, answer)
    }

    /// Returns the test of the znode. A pending watch keeps its number, so that the registry does
    /// not hold two watches for one znode.
    fn watched(&mut self) -> Operation {
        let watches = &mut self.watches;
        let watch = *self.watch.get_or_insert_with(|| watches.issue());
        watch_existence(self.profile.path.clone(), watch)
    }

    fn make_directory(&mut self, view: SessionView) -> KeepStep {
        match self.directory.create(
            view.now,
            &parent(&self.profile.path),
            &Bytes::new(),
            &self.profile.acl,
        ) {
            Ok(operations) => {
                self.state = State::MakingDirectory;
                Step::Submit(flight(self.session, operations), Needs::All)
            }
            Err(failure) => self.refused(failure),
        }
    }

    fn made_directory(&mut self, view: SessionView, answers: Answers) -> KeepStep {
        match self.directory.created(&parent(&self.profile.path), answers) {
            Round::Retry => self.create(),
            Round::Repeat => self.make_directory(view),
            Round::Failed(failure) => self.hindered(failure),
            Round::SessionEnded => self.session_ended(view),
        }
    }

    fn event(&mut self, view: SessionView, watch: WatchNumber, kind: EventType) -> KeepStep {
        if self.watch != Some(watch) {
            let has_changed = self.obstacle.as_mut().is_some_and(|known| known.fired(watch));
            if has_changed && let State::Hindered(until) = self.state {
                return self.retry(view, until);
            }
            return self.wait();
        }
        if self.state == State::Creating {
            // The test follows the create in its flight, so it has still to set the watch.
            return self.wait();
        }
        self.watch = None;
        let is_gone = kind == EventType::NODE_DELETED;
        match self.state {
            State::Waiting(_) if is_gone => self.create(),
            State::Present if is_gone => self.was_deleted(view),
            State::Waiting(_) | State::Present => self.look(),
            // The reply to the flight, or the test after the pause, shows the znode.
            State::Idle
            | State::Creating
            | State::MakingDirectory
            | State::Writing
            | State::Looking
            | State::Probing
            | State::Rejoining(_)
            | State::Surveying
            | State::Hindered(_) => self.wait(),
        }
    }

    /// Performs step 4.
    fn was_deleted(&mut self, view: SessionView) -> KeepStep {
        if view.now.saturating_since(self.joined_at) >= STABLE {
            self.rejoins.reset();
            self.has_hurried = false;
        }
        self.gone(Absence::ZnodeDeleted);
        if self.profile.is_prompt && !std::mem::replace(&mut self.has_hurried, true) {
            return self.create();
        }
        self.state = State::Rejoining(Some(self.rejoins.begin(view.now, view.seed)));
        self.wait()
    }

    /// Performs step 6.
    fn session_ended(&mut self, view: SessionView) -> KeepStep {
        if let Some(session) = self.session.take() {
            self.past.truncate(PAST_MAX - 1);
            self.past.push_front(session);
        }
        self.gone(Absence::SessionEnded);
        self.is_undecided = false;
        self.is_tainted = false;
        self.obstacle = None;
        if view.has_expired {
            return Step::Done(Fate::Stopped);
        }
        self.create()
    }

    fn gone(&mut self, absence: Absence) {
        self.absence = absence;
        self.czxid = None;
        self.stored = None;
        self.watch = None;
    }

    /// Ends the first create, unless the profile is patient; a later one is tried again, because
    /// permissions can be corrected.
    fn refused(&mut self, failure: Failure) -> KeepStep {
        match self.tolerate(failure) {
            Some(fate) => Step::Done(fate),
            None => self.pause(),
        }
    }

    /// Performs step 7.
    fn hindered(&mut self, failure: Failure) -> KeepStep {
        let obstacle = self.obstacle.get_or_insert_default();
        let tests = obstacle.tests(&self.profile.path, &failure, &mut self.watches);
        if let Some(fate) = self.tolerate(failure) {
            return Step::Done(fate);
        }
        self.state = State::Surveying;
        Step::Submit(flight(self.session, tests), Needs::All)
    }

    fn surveyed(&mut self, view: SessionView, answers: &Answers) -> KeepStep {
        if answers.results.iter().any(|answer| matches!(answer, Answer::SessionEnded)) {
            return self.session_ended(view);
        }
        let obstacle = self.obstacle.get_or_insert_default();
        let has_changed = obstacle.has_changed(&answers.results);
        let until = obstacle.pauses.begin(view.now, view.seed);
        if has_changed {
            return self.retry(view, until);
        }
        self.state = State::Hindered(until);
        self.wait()
    }

    /// Continues because something has changed that may have been the reason of a refusal.
    fn retry(&mut self, view: SessionView, until: Time) -> KeepStep {
        if self.profile.is_prompt {
            return self.go_on();
        }
        let soon = view.now + spread(PAUSE, u128::from(view.seed));
        self.state = State::Hindered(until.min(soon));
        self.wait()
    }

    /// Takes note of a refusal, or ends the presence.
    fn tolerate(&mut self, failure: Failure) -> Option<Fate> {
        if !self.has_joined && self.patience() < Patience::Everything {
            return Some(Fate::Failed(failure));
        }
        self.directory = Directory::default();
        if self.czxid.is_none() {
            self.absence = Absence::Refused(RecipeError::of(failure));
        }
        None
    }

    fn patience(&self) -> Patience {
        if self.has_joined { self.profile.later } else { self.profile.at_first }
    }

    fn failure(&self, action: FailedAction, error: OpError) -> Failure {
        Failure::new(action, self.profile.path.clone(), error)
    }

    /// Continues after a pause.
    fn pause(&mut self) -> KeepStep {
        let (flight, needs) = if self.may_exist() { self.probing() } else { self.creating() };
        Step::SubmitLater(flight, needs)
    }

    /// Continues with step 5 if the znode may exist, otherwise with step 1.
    fn go_on(&mut self) -> KeepStep {
        if self.may_exist() { self.probe() } else { self.create() }
    }

    fn may_exist(&self) -> bool {
        self.is_undecided || self.czxid.is_some()
    }

    fn wait(&self) -> KeepStep {
        Step::Wait(match self.state {
            State::Rejoining(until) => until,
            State::Waiting(until) | State::Hindered(until) => Some(until),
            State::Present => Some(self.check_at),
            State::Idle
            | State::Creating
            | State::MakingDirectory
            | State::Writing
            | State::Looking
            | State::Probing
            | State::Surveying => None,
        })
    }
}

impl Machine for Keep {
    type Output = Fate;

    /// Can be called again after the data were changed.
    fn start(&mut self, view: SessionView) -> KeepStep {
        match self.state {
            State::Idle => self.create(),
            State::Present => self.settle(view),
            State::Creating
            | State::MakingDirectory
            | State::Waiting(_)
            | State::Writing
            | State::Looking
            | State::Probing
            | State::Rejoining(_)
            | State::Surveying
            | State::Hindered(_) => self.wait(),
        }
    }

    fn handle(&mut self, view: SessionView, input: Input) -> KeepStep {
        match (self.state, input) {
            (_, Input::Ended(session)) if self.session == Some(session) => self.session_ended(view),
            (State::Creating, Input::Answered(answers)) => self.created(view, answers),
            (State::MakingDirectory, Input::Answered(answers)) => {
                self.made_directory(view, answers)
            }
            (State::Writing, Input::Answered(answers)) => self.written(view, answers),
            (State::Looking, Input::Answered(answers)) => {
                let [look] = answers.take();
                self.looked(view, look)
            }
            (State::Probing, Input::Answered(answers)) => self.probed(view, answers),
            (State::Rejoining(_), Input::Timer | Input::Suspended) => self.go_on(),
            (State::Surveying, Input::Answered(answers)) => self.surveyed(view, &answers),
            (State::Hindered(_), Input::Suspended) => self.go_on(),
            (State::Hindered(until), Input::Timer) if until <= view.now => self.go_on(),
            (State::Waiting(until), Input::Timer) if until <= view.now => self.look(),
            (State::Present, Input::Timer) if is_check_due(view, &mut self.check_at) => self.look(),
            (_, Input::Watch { watch, kind }) => self.event(view, watch, kind),
            (_, _) => self.wait(),
        }
    }
}

impl Leaving for Keep {
    type Removal = ExclusiveRemoval;

    fn abandon(self, is_pending: bool) -> Option<(ExclusiveRemoval, bool)> {
        let is_creating = is_pending && self.state == State::Creating;
        let path = self.profile.path.clone();
        let id = AttemptId::not_stored();
        let mut removal =
            ExclusiveRemoval::new(path, id, self.session, self.czxid, self.is_tainted);
        // In any other state, a request may have been lost, and another session may have the name.
        if !matches!(self.state, State::Present | State::Writing) {
            removal.doubt();
        }
        if is_creating {
            removal.expect_create();
        }
        Some((removal, is_creating))
    }
}
