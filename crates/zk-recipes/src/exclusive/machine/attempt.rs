//! One attempt to obtain an exclusive lock, in one session. Each attempt has its own id, which it
//! stores in the data of the znode. The session that creates the znode holds the lock.
//!
//! 1. In one flight, create the ephemeral znode, and read and watch it. If it was created, the lock
//!    is held. If the directory is missing, create it and its ancestors, and try again.
//! 2. If the znode exists already, the read shows its owner. If the znode is already gone again,
//!    continue with 1. If it is not ephemeral, it is not a lock, and would never be released: fail.
//! 3. Wait. When the znode is deleted, all waiters continue with 1, and one of them succeeds. When
//!    its data has changed, read and watch it again.
//! 4. If the session ends while the attempt waits, start a new attempt in the next session.
//!
//! A lost connection leaves the create of step 1 undecided, so:
//!
//! 5. In one flight, pass a write barrier, and read and watch the znode. If it has our id *and*
//!    belongs to our session, it is ours, and the lock is held. If it does not exist, continue with
//!    step 1. Otherwise continue with step 3.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jute_codec::{CreateMode, ErrorCode, EventType, Response};
use zk_session::recipe::{Flight, Operation};
use zk_session::{OpError, SessionId, Time, Zxid};

use super::id::{AttemptId, identity_in};
use super::removal::ExclusiveRemoval;
use crate::lock::error::LockError;
use crate::lock::options::LockOptions;
use crate::lock::outcome::{Held, NotHeld, Restart, Tally, Znode};
use crate::lock::recipe::{Attempt, LockRemoval as _};
use crate::machine::directory::{Directory, Round};
use crate::machine::{
    Answer, Answers, FailedAction, Failure, Input, Leaving, Machine, Needs, SessionView, Step,
    WatchNumber, WatchNumbers, barrier, create, flight, name_of, parent, read, spread,
};
use crate::timed_out::{Predecessor, short_identity};

/// One attempt to obtain an exclusive lock.
#[derive(Clone, Debug)]
pub struct ExclusiveAttempt {
    profile: Arc<LockOptions>,
    id: AttemptId,
    /// The attempt may wait for the lock. Otherwise it ends if the lock is taken.
    may_wait: bool,
    session: Option<SessionId>,
    directory: Directory,
    /// A create had an unknown outcome.
    is_tainted: bool,
    /// No barrier has been passed since a create had an unknown outcome.
    is_undecided: bool,
    znode: Option<Znode>,
    watch: Option<WatchNumber>,
    watches: WatchNumbers,
    /// The read in flight is a check for missed watches.
    is_check: bool,
    tally: Tally,
    /// The interval of the check for missed watches. It differs between attempts, so that waiters
    /// do not check at the same time.
    check_interval: Option<Duration>,
    /// The time of the next check for missed watches.
    check_at: Option<Time>,
    /// The attempt has seen another holder.
    is_waiting: bool,
    /// The session and the identity of the holder that was seen last.
    holder: (SessionId, Box<str>),
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Step 1 is in flight.
    Creating,
    /// The creates of the ancestors are in flight.
    MakingDirectory,
    /// Step 5 is in flight.
    Probing,
    /// Step 3: the read is in flight.
    Looking,
    /// Step 3: waiting.
    Waiting,
    /// The lock is granted on this connection, but the grant may still be revoked by input that has
    /// already arrived.
    Granted(u64),
}

type AttemptStep = Step<Result<Held, NotHeld>>;

impl ExclusiveAttempt {
    /// Creates an attempt with its own id. Without `may_wait`, the attempt ends if the lock is
    /// taken.
    pub fn new(profile: impl Into<Arc<LockOptions>>, id: u128, may_wait: bool) -> Self {
        let profile = profile.into();
        Self {
            directory: Directory::default(),
            id: AttemptId::new(id),
            check_interval: profile.watch_check.map(|interval| spread(interval, id)),
            profile,
            may_wait,
            session: None,
            is_tainted: false,
            is_undecided: false,
            znode: None,
            watch: None,
            watches: WatchNumbers::default(),
            is_check: false,
            tally: Tally::default(),
            check_at: None,
            is_waiting: false,
            holder: (SessionId::NONE, Box::default()),
            state: State::Creating,
        }
    }

    /// Performs step 1.
    fn create(&mut self) -> AttemptStep {
        self.state = State::Creating;
        let path = self.profile.path.clone();
        let data = self.id.data(&self.profile.identity);
        let create = create(path, data, self.profile.acl.clone(), CreateMode::Ephemeral);
        let operations = vec![create, self.watched_read()];
        Step::Submit(flight(self.session, operations), Needs::Once(0))
    }

    fn created(&mut self, view: SessionView, answers: Answers) -> AttemptStep {
        let session = answers.session;
        let connection = answers.connection;
        self.tally.replayed(answers.replays);
        let [created, look] = answers.take();
        self.session = self.session.or(session);
        match created {
            Answer::Done(Response::Create2(created)) => {
                match look {
                    Answer::Done(Response::GetData(found))
                        if found.stat.czxid == created.stat.czxid => {}
                    // Another client has deleted the znode between the create and the read.
                    Answer::Done(Response::GetData(_)) => return restart(Restart::ZnodeGone),
                    look if look.is_no_node() => return restart(Restart::ZnodeGone),
                    // The read failed, so it set no watch.
                    Answer::Done(_)
                    | Answer::Refused(_)
                    | Answer::SessionEnded
                    | Answer::Unknown { .. } => self.watch = None,
                }
                self.session = session;
                self.grant(view, connection, created.stat.czxid)
            }
            Answer::Refused(OpError::Server { code: ErrorCode::NODE_EXISTS, .. }) => {
                self.looked(view, connection, look)
            }
            Answer::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {
                self.make_directory(view)
            }
            Answer::Refused(error) => self.failed(FailedAction::Create, error),
            Answer::SessionEnded => restart(Restart::SessionEnded),
            Answer::Done(_) => self.probe(),
            Answer::Unknown { error, is_final } => {
                self.tally.replayed(1);
                self.is_tainted = true;
                self.is_undecided = true;
                self.session = session;
                if is_final { self.failed(FailedAction::Create, error) } else { self.probe() }
            }
        }
    }

    /// Evaluates a read of the znode.
    fn looked(&mut self, view: SessionView, connection: u64, look: Answer) -> AttemptStep {
        let is_check = std::mem::take(&mut self.is_check);
        match look {
            Answer::Done(Response::GetData(found)) => {
                if self.session.is_some_and(|own| self.id.is_in(own, &found)) {
                    return self.grant(view, connection, found.stat.czxid);
                }
                if found.stat.ephemeral_owner == SessionId::NONE {
                    let path = self.profile.path.to_string();
                    return Step::Done(Err(NotHeld::Failed(LockError::MixedKinds { path })));
                }
                self.is_waiting = true;
                let identity = identity_in(found.data.as_ref().unwrap_or(&Bytes::new()));
                self.holder = (found.stat.ephemeral_owner, short_identity(&identity));
                self.znode = None;
                if !self.may_wait {
                    return Step::Done(Err(NotHeld::Busy));
                }
                if self.watch.is_none() {
                    // The watch fired before this reply was evaluated.
                    return self.create();
                }
                self.state = State::Waiting;
                self.check_at = self.check_interval.map(|interval| view.now + interval);
                self.wait(view)
            }
            look if look.is_no_node() => {
                // If the watch fired while the check was pending, no event was missed.
                self.tally.watches_missed += u32::from(is_check && self.watch.is_some());
                self.create()
            }
            Answer::Refused(error) => self.failed(FailedAction::Read, error),
            Answer::SessionEnded => restart(Restart::SessionEnded),
            Answer::Unknown { error, is_final: true } => self.failed(FailedAction::Read, error),
            // The read was lost behind the create.
            Answer::Done(_) | Answer::Unknown { .. } => {
                self.tally.replayed(1);
                self.go_on()
            }
        }
    }

    /// Performs step 5.
    fn probe(&mut self) -> AttemptStep {
        let (flight, needs) = self.probing();
        Step::Submit(flight, needs)
    }

    fn probing(&mut self) -> (Flight, Needs) {
        self.state = State::Probing;
        let operations = vec![barrier(self.profile.path.clone()), self.watched_read()];
        (flight(self.session, operations), Needs::All)
    }

    fn probed(&mut self, view: SessionView, answers: Answers) -> AttemptStep {
        let connection = answers.connection;
        self.tally.replayed(answers.replays);
        let [barrier, look] = answers.take();
        if matches!(barrier, Answer::SessionEnded) {
            return restart(Restart::SessionEnded);
        }
        // Even a barrier that was refused has been executed.
        if look.is_no_node() && self.znode.take().is_some() {
            return restart(Restart::ZnodeGone);
        }
        self.is_undecided = false;
        self.looked(view, connection, look)
    }

    fn look(&mut self) -> AttemptStep {
        self.state = State::Looking;
        let operations = vec![self.watched_read()];
        Step::Submit(flight(self.session, operations), Needs::All)
    }

    /// Returns the read of the znode. An attempt that does not wait needs no watch. A pending watch
    /// keeps its number, so that the registry does not hold two watches for one znode.
    fn watched_read(&mut self) -> Operation {
        let watches = &mut self.watches;
        let watch = *self.watch.get_or_insert_with(|| watches.issue());
        read(self.profile.path.clone(), Some(watch).filter(|_| self.may_wait))
    }

    fn make_directory(&mut self, view: SessionView) -> AttemptStep {
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
            Err(failure) => Step::Done(Err(NotHeld::of(failure))),
        }
    }

    fn made_directory(&mut self, view: SessionView, answers: Answers) -> AttemptStep {
        match self.directory.created(&parent(&self.profile.path), answers) {
            Round::Retry => self.create(),
            Round::Repeat => self.make_directory(view),
            Round::Failed(failure) => Step::Done(Err(NotHeld::of(failure))),
            Round::SessionEnded => restart(Restart::SessionEnded),
        }
    }

    fn event(&mut self, view: SessionView, watch: WatchNumber, kind: EventType) -> AttemptStep {
        if self.watch != Some(watch) {
            return self.wait(view);
        }
        self.watch = None;
        match self.state {
            State::Waiting if kind == EventType::NODE_DELETED => self.create(),
            State::Waiting => self.look(),
            // Another client has deleted the znode, and may have created its own since.
            State::Granted(_) if kind == EventType::NODE_DELETED => {
                self.znode = None;
                restart(Restart::ZnodeGone)
            }
            State::Creating
            | State::MakingDirectory
            | State::Probing
            | State::Looking
            | State::Granted(_) => self.wait(view),
        }
    }

    fn grant(&mut self, view: SessionView, connection: u64, czxid: Zxid) -> AttemptStep {
        let name = name_of(&self.profile.path).unwrap_or_default();
        let znode = Znode { name, sequence: 0, czxid };
        self.znode = Some(znode.clone());
        if view.alive != Some(connection) {
            // Step 5 commits a write, which creates a new lease if the old one has ended. If the
            // write has created no lease, the session gives up the connection, and repeating step 5
            // at once would change nothing.
            let is_in_vain = self.state == State::Probing && view.connection == Some(connection);
            if is_in_vain {
                let (flight, needs) = self.probing();
                return Step::SubmitLater(flight, needs);
            }
            return self.probe();
        }
        self.state = State::Granted(connection);
        Step::Done(Ok(Held {
            znode,
            session: self.session.expect("the znode was created or read in a session"),
            connection,
            own_watch: self.watch.filter(|_| self.may_wait),
            lapses: view.lapses,
        }))
    }

    /// Continues with step 5 if a create may have been applied, otherwise with step 1.
    fn go_on(&mut self) -> AttemptStep {
        if self.is_undecided || self.znode.is_some() { self.probe() } else { self.create() }
    }

    fn failed(&self, action: FailedAction, error: OpError) -> AttemptStep {
        let failure = Failure::new(action, self.profile.path.clone(), error);
        Step::Done(Err(NotHeld::of(failure)))
    }

    /// Continues as before. A grant is repeated, unless its connection has ended or its deadline
    /// has passed. In that case, step 5 decides again.
    fn wait(&mut self, view: SessionView) -> AttemptStep {
        match self.state {
            State::Granted(connection) => match &self.znode {
                Some(znode) if view.alive == Some(connection) => {
                    let czxid = znode.czxid;
                    self.grant(view, connection, czxid)
                }
                Some(_) | None => self.probe(),
            },
            State::Waiting => Step::Wait(self.check_at),
            State::Creating | State::MakingDirectory | State::Probing | State::Looking => {
                Step::Wait(None)
            }
        }
    }
}

impl Machine for ExclusiveAttempt {
    type Output = Result<Held, NotHeld>;

    fn start(&mut self, _: SessionView) -> AttemptStep {
        self.create()
    }

    fn handle(&mut self, view: SessionView, input: Input) -> AttemptStep {
        match (self.state, input) {
            (_, Input::Ended(session)) if self.session == Some(session) => {
                restart(Restart::SessionEnded)
            }
            (State::Creating, Input::Answered(answers)) => self.created(view, answers),
            (State::MakingDirectory, Input::Answered(answers)) => {
                self.made_directory(view, answers)
            }
            (State::Probing, Input::Answered(answers)) => self.probed(view, answers),
            (State::Looking, Input::Answered(answers)) => {
                let connection = answers.connection;
                self.tally.replayed(answers.replays);
                let [look] = answers.take();
                self.looked(view, connection, look)
            }
            (State::Waiting, Input::Timer) => {
                self.is_check = true;
                self.look()
            }
            (_, Input::Watch { watch, kind }) => self.event(view, watch, kind),
            // A decision that was made on a connection that has ended has to be made again.
            (State::Granted(_), Input::Suspended) => self.probe(),
            (_, _) => self.wait(view),
        }
    }
}

impl Attempt for ExclusiveAttempt {
    /// Returns at most 1: the attempt knows only the holder, not the other waiters.
    fn ahead(&self) -> Option<usize> {
        self.is_waiting.then_some(1)
    }

    fn is_first(&self) -> bool {
        self.znode.is_some()
    }

    fn predecessor(&self) -> Option<Predecessor> {
        let (session, identity) = &self.holder;
        let name = name_of(&self.profile.path).unwrap_or_default();
        self.is_waiting.then(|| Predecessor::new(1, &name, identity, Some(*session)))
    }

    fn is_behind_own_session(&self) -> bool {
        self.is_waiting && self.session == Some(self.holder.0)
    }

    fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }
}

impl Leaving for ExclusiveAttempt {
    type Removal = ExclusiveRemoval;

    fn abandon(self, is_pending: bool) -> Option<(ExclusiveRemoval, bool)> {
        let is_creating = is_pending && self.state == State::Creating;
        let is_certain = self.znode.is_some() && matches!(self.state, State::Granted(_));
        let path = self.profile.path.clone();
        let czxid = self.znode.map(|znode| znode.czxid);
        let mut removal =
            ExclusiveRemoval::new(path, self.id, self.session, czxid, self.is_tainted);
        if !is_certain {
            removal.doubt();
        }
        if is_creating {
            removal.expect_create();
        }
        Some((removal, is_creating))
    }
}

fn restart(restart: Restart) -> AttemptStep {
    Step::Done(Err(NotHeld::Restart(restart)))
}
