//! Claiming a place: putting exactly one contender znode into the queue.
//!
//! If connections never failed, this would be the algorithm:
//!
//! 1. In one flight, create the ephemeral sequential znode `<id>-lock-` and list the directory.
//!    The server executes both in this order, so the list contains the znode. For a semaphore, the
//!    flight also reads the directory, whose data is the number of permits.
//! 2. If the directory is missing, create it and its ancestors as containers, and continue with 1.
//!
//! If contenders remove the directory when they leave it empty, the flight of step 1 begins with a
//! create of the directory. Another contender may still remove it between the two creates, which
//! leads to step 2. After the second create, nobody can remove the directory before this contender
//! leaves, because servers delete only empty znodes.
//!
//! A lost connection leaves the create of step 1 undecided, whatever the list showed, so:
//!
//! 3. In one flight, pass a write barrier and list the directory. After the barrier, the lost
//!    create has been applied, or never will be.
//! 4. Read the owners of the znodes with our id. The znodes of the current session are ours: keep
//!    the one with the lowest number, and delete the others. A znode with our id that belongs to
//!    another session is not ours, and stays.
//! 5. If none of the znodes is ours, continue with 1, with the same id.
//!
//! Step 4 also repairs duplicates that a later list reveals. A duplicate can appear despite the
//! barrier if a slow server submits an old request after the session has moved on.

use std::sync::Arc;

use bytestring::ByteString;
use jute_codec::{CreateMode, DataReply, ErrorCode, NameList, Response};
use zk_session::recipe::Flight;
use zk_session::{OpError, Outcome, SessionId, Zxid};

use super::removal::QueueRemoval;
use super::standing::with_prefix;
use crate::lock::error::LockError;
use crate::lock::outcome::{NotHeld, Restart, Tally, Znode};
use crate::machine::directory::{Directory, Round};
use crate::machine::{
    Answer, Answers, FailedAction, Failure, Input, Machine, Needs, SessionView, Step, barrier,
    child, create, delete, flight, list, name_of, owned_copy, read,
};
use crate::queue::naming::{SEQUENCE_MAX, Sibling};
use crate::queue::profile::{Permits, QueueProfile};

/// A claimed place.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    /// A list of the directory that was read after the create, and the connection on which it was
    /// read.
    pub(crate) list: Option<(NameList, u64)>,
    /// The directory as it was read in the same flight, if the queue is a semaphore's.
    pub(crate) directory: Option<DataReply>,
}

type ClaimStep = Step<Result<Claimed, NotHeld>>;

/// A claim in progress.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    profile: Arc<QueueProfile>,
    /// The id, stored as bytes because the alignment of a `u128` would pad the structs around it.
    id: [u8; 16],
    session: Option<SessionId>,
    znode: Option<Znode>,
    /// A create had an unknown outcome, so there may be znodes that we do not know of.
    is_tainted: bool,
    directory: Directory,
    /// Znodes with our id that other sessions own.
    strangers: Box<[ByteString]>,
    /// Counts of the claim and of its attempt.
    pub(crate) tally: Tally,
    state: State,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum State {
    /// Step 1 is in flight.
    Creating,
    /// Step 2 is in flight.
    MakingDirectory,
    /// Step 3 is in flight.
    Probing,
    /// Step 4: the reads of these znodes are in flight.
    Reading(Vec<(u32, ByteString)>),
    /// Step 4: the deletes of duplicates are in flight.
    Reducing,
}

impl Claim {
    pub(crate) fn new(profile: Arc<QueueProfile>, id: u128) -> Self {
        Self {
            profile,
            id: id.to_ne_bytes(),
            session: None,
            znode: None,
            is_tainted: false,
            directory: Directory::default(),
            strangers: Box::default(),
            tally: Tally::default(),
            state: State::Creating,
        }
    }

    /// Performs step 1.
    fn create(&mut self) -> ClaimStep {
        let (flight, needs) = self.creating();
        Step::Submit(flight, needs)
    }

    fn creating(&mut self) -> (Flight, Needs) {
        self.state = State::Creating;
        let directory = self.profile.directory();
        let claim = create(
            child(directory, &self.prefix()),
            self.profile.options.identity.clone(),
            self.profile.options.acl.clone(),
            CreateMode::EphemeralSequential,
        );
        let mut operations = Vec::new();
        if self.profile.removes_directory {
            // The last contender has probably removed it.
            operations.push(self.directory.create_last(directory, &self.profile.options.acl));
        }
        operations.extend([claim, list(directory, None)]);
        if self.profile.permits.is_some() {
            operations.push(read(directory.clone(), None));
        }
        // The first operation creates the directory, so this machine has to know of each flight: if it
        // is dropped, the directory has to be removed.
        let needs = if self.profile.removes_directory { Needs::OneTry } else { Needs::Once(0) };
        (flight(self.session, operations), needs)
    }

    /// Performs step 4 for a list that contains other znodes with our id. Returns `None` if it
    /// contains no such znode.
    pub(crate) fn reconcile(&mut self, names: &NameList) -> Option<ClaimStep> {
        let found = self.unknown(names);
        let is_known = |(_, name): &(u32, ByteString)| {
            self.znode.as_ref().is_some_and(|znode| znode.name == *name)
        };
        if found.iter().all(is_known) {
            return None;
        }
        self.is_tainted = true;
        Some(self.read_owners(found))
    }

    /// Returns the id of the attempt.
    pub(crate) fn id(&self) -> u128 {
        u128::from_ne_bytes(self.id)
    }

    /// Returns the znode, once the place is claimed.
    pub(crate) fn znode(&self) -> Option<&Znode> {
        self.znode.as_ref()
    }

    /// Returns whether this is the znode of the claim, and not another one with the same name.
    pub(crate) fn is_znode(&self, found: &DataReply) -> bool {
        self.znode
            .as_ref()
            .zip(self.session)
            .is_some_and(|(znode, session)| znode.is_read(session, found))
    }

    /// Returns the path of the znode, once the place is claimed.
    pub(crate) fn path(&self) -> ByteString {
        let znode = self.znode.as_ref().expect("the place is claimed");
        child(self.profile.directory(), &znode.name)
    }

    /// Returns the session of the claim, once it is known.
    pub(crate) fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Ends the attempt of this claim. Returns the removal of the znodes that the claim may have
    /// left, and whether it needs the reply to a create. `is_pending` means that the flight of the
    /// claim is pending.
    pub(crate) fn abandon(self, is_pending: bool) -> (QueueRemoval, bool) {
        let is_creating = is_pending && self.state == State::Creating;
        let prefix = self.prefix().into();
        let known = self.znode.map(|znode| znode.name);
        let mut removal =
            QueueRemoval::new(self.profile, prefix, self.session, known, self.is_tainted);
        if is_creating {
            removal.expect_create();
        }
        (removal, is_creating)
    }

    /// Returns the counts since the last call.
    pub(crate) fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }

    fn replied(&mut self, view: SessionView, answers: Answers) -> ClaimStep {
        if self.session.is_none() {
            self.session = answers.session;
        }
        self.tally.replayed(answers.replays);
        match std::mem::replace(&mut self.state, State::Probing) {
            State::Creating => self.created(view, answers),
            State::MakingDirectory => self.made_directory(view, answers),
            State::Probing => self.probed(view, answers),
            State::Reading(found) => self.owners_read(found, answers),
            State::Reducing => self.reduced(answers),
        }
    }

    fn created(&mut self, view: SessionView, mut answers: Answers) -> ClaimStep {
        let session = answers.session;
        let connection = answers.connection;
        let directory = match self.profile.permits.and_then(|_| answers.results.pop()) {
            Some(Answer::Done(Response::GetData(directory))) => Some(directory),
            _ => None,
        };
        if self.profile.removes_directory && !answers.results.is_empty() {
            self.directory.created_last(&answers.results.remove(0));
        }
        let [created, listed] = answers.take();
        match created {
            Answer::Done(Response::Create2(created)) => {
                let name = name_of(&created.path).map(|name| owned_copy(&name)).unwrap_or_default();
                let sequence = match self.profile.names.sibling(&name) {
                    Sibling::Contender(sequence, _) if sequence < SEQUENCE_MAX => sequence,
                    Sibling::Contender(..)
                    | Sibling::Exhausted
                    | Sibling::Foreign
                    | Sibling::OtherKind => return self.exhausted(name),
                };
                let czxid = created.stat.czxid;
                self.znode = Some(Znode { name, sequence, czxid });
                self.session = session;
                // The list is useful but not necessary: the attempt can list again.
                let list = match listed {
                    Answer::Done(Response::GetChildren(names)) => Some((names, connection)),
                    Answer::Done(_)
                    | Answer::Refused(_)
                    | Answer::SessionEnded
                    | Answer::Unknown { .. } => None,
                };
                Step::Done(Ok(Claimed { list, directory }))
            }
            Answer::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {
                self.make_directory(view)
            }
            // The directory is ephemeral, so it is the znode of an exclusive lock.
            Answer::Refused(OpError::Server {
                code: ErrorCode::NO_CHILDREN_FOR_EPHEMERALS,
                ..
            }) => {
                let path = self.profile.directory().to_string();
                Step::Done(Err(NotHeld::Failed(LockError::MixedKinds { path })))
            }
            Answer::Refused(error) => self.failed(FailedAction::Create, error),
            Answer::SessionEnded => session_ended(),
            Answer::Done(_) => self.in_doubt(session),
            Answer::Unknown { error, .. } if error.outcome() == Outcome::NotApplied => {
                self.tally.replayed(1);
                self.create()
            }
            Answer::Unknown { error, is_final: true } => {
                self.is_tainted = true;
                self.failed(FailedAction::Create, error)
            }
            Answer::Unknown { .. } => self.in_doubt(session),
        }
    }

    /// Finds out what has become of a create.
    fn in_doubt(&mut self, session: Option<SessionId>) -> ClaimStep {
        self.tally.replayed(1);
        self.is_tainted = true;
        self.session = session;
        self.probe()
    }

    /// Fails because the server appended a number that defines no order. The znode has to be
    /// removed.
    fn exhausted(&mut self, name: ByteString) -> ClaimStep {
        self.znode = Some(Znode { name, sequence: u32::MAX, czxid: Zxid(0) });
        let directory = self.profile.directory().to_string();
        Step::Done(Err(NotHeld::Failed(LockError::QueueExhausted { directory })))
    }

    fn failed(&self, action: FailedAction, error: OpError) -> ClaimStep {
        let failure = Failure::new(action, self.profile.directory().clone(), error);
        Step::Done(Err(NotHeld::of(failure)))
    }

    fn make_directory(&mut self, view: SessionView) -> ClaimStep {
        let data = self.profile.permits.map(Permits::encode).unwrap_or_default();
        match self.directory.create(
            view.now,
            self.profile.directory(),
            &data,
            &self.profile.options.acl,
        ) {
            Ok(operations) => {
                self.state = State::MakingDirectory;
                Step::Submit(flight(self.session, operations), Needs::All)
            }
            // Other contenders remove the directory as fast as this one creates it. Each time, one of
            // them has held the lock, so the next rounds are likely to succeed.
            Err(_) if self.profile.removes_directory && self.directory.begin_again() => {
                let (flight, needs) = self.creating();
                Step::SubmitLater(flight, needs)
            }
            Err(failure) => Step::Done(Err(NotHeld::of(failure))),
        }
    }

    fn made_directory(&mut self, view: SessionView, answers: Answers) -> ClaimStep {
        match self.directory.created(self.profile.directory(), answers) {
            Round::Retry => self.create(),
            Round::Repeat => self.make_directory(view),
            Round::Failed(failure) => Step::Done(Err(NotHeld::of(failure))),
            Round::SessionEnded => session_ended(),
        }
    }

    fn probe(&mut self) -> ClaimStep {
        self.state = State::Probing;
        let directory = self.profile.directory();
        let operations = vec![barrier(directory.clone()), list(directory, None)];
        Step::Submit(flight(self.session, operations), Needs::All)
    }

    fn probed(&mut self, view: SessionView, answers: Answers) -> ClaimStep {
        let [barrier, listed] = answers.take();
        match (barrier, listed) {
            (Answer::SessionEnded, _) | (_, Answer::SessionEnded) => session_ended(),
            // Even a barrier that was refused has been executed.
            (_, Answer::Done(Response::GetChildren(names))) => {
                let found = self.unknown(&names);
                if found.is_empty() {
                    self.znode = None;
                    return self.create();
                }
                self.read_owners(found)
            }
            (_, listed) if listed.is_no_node() => self.make_directory(view),
            (_, Answer::Refused(error)) => self.failed(FailedAction::List, error),
            (_, Answer::Done(_) | Answer::Unknown { .. }) => self.probe(),
        }
    }

    /// Evaluates the results of the deletes. The next list shows which deletes succeeded, but a
    /// delete that is refused must not be repeated endlessly.
    fn reduced(&mut self, answers: Answers) -> ClaimStep {
        for answer in answers.results {
            match answer {
                Answer::SessionEnded => return session_ended(),
                answer if answer.is_no_node() => {}
                Answer::Refused(error) => return self.failed(FailedAction::DeleteChild, error),
                Answer::Done(_) | Answer::Unknown { .. } => {}
            }
        }
        self.probe()
    }

    fn prefix(&self) -> String {
        self.profile.names.prefix(self.id())
    }

    /// Returns the znodes with our id, except those that are known to belong to other sessions.
    fn unknown(&self, names: &NameList) -> Vec<(u32, ByteString)> {
        let mut found = with_prefix(&self.profile, names, &self.prefix());
        found.retain(|(_, name)| !self.strangers.contains(name));
        found
    }

    fn read_owners(&mut self, found: Vec<(u32, ByteString)>) -> ClaimStep {
        let directory = self.profile.directory();
        let reads = found.iter().map(|(_, name)| read(child(directory, name), None)).collect();
        self.state = State::Reading(found);
        Step::Submit(flight(self.session, reads), Needs::Each)
    }

    fn owners_read(&mut self, found: Vec<(u32, ByteString)>, answers: Answers) -> ClaimStep {
        let mut own = Vec::new();
        for ((sequence, name), answer) in found.into_iter().zip(answers.results) {
            match answer {
                Answer::Done(Response::GetData(data)) => {
                    if self.session.is_some_and(|own| own == data.stat.ephemeral_owner) {
                        let czxid = data.stat.czxid;
                        own.push(Znode { name, sequence, czxid });
                    } else {
                        let mut strangers = std::mem::take(&mut self.strangers).into_vec();
                        strangers.push(name);
                        self.strangers = strangers.into();
                    }
                }
                Answer::SessionEnded => return session_ended(),
                answer if answer.is_no_node() => {}
                Answer::Refused(error) => {
                    let path = child(self.profile.directory(), &name);
                    return Step::Done(Err(NotHeld::of(Failure::new(
                        FailedAction::Read,
                        path,
                        error,
                    ))));
                }
                Answer::Done(_) | Answer::Unknown { .. } => return self.probe(),
            }
        }
        let mut own = own.into_iter();
        let Some(lowest) = own.next() else {
            // Each znode belongs to another session or is gone, so we have no znode in the queue.
            self.znode = None;
            return self.create();
        };
        if lowest.sequence >= SEQUENCE_MAX {
            return self.exhausted(lowest.name);
        }
        self.znode = Some(lowest);
        let directory = self.profile.directory();
        let duplicates: Vec<_> = own.map(|znode| delete(child(directory, &znode.name))).collect();
        if duplicates.is_empty() {
            return Step::Done(Ok(Claimed { list: None, directory: None }));
        }
        self.tally.duplicates += u32::try_from(duplicates.len()).unwrap_or(u32::MAX);
        self.state = State::Reducing;
        Step::Submit(flight(self.session, duplicates), Needs::Each)
    }
}

impl Machine for Claim {
    type Output = Result<Claimed, NotHeld>;

    fn start(&mut self, _: SessionView) -> ClaimStep {
        self.create()
    }

    /// Advances by one input. The attempt itself handles the end of the session.
    fn handle(&mut self, view: SessionView, input: Input) -> ClaimStep {
        let Input::Answered(answers) = input else { return Step::Wait(None) };
        self.replied(view, answers)
    }
}

fn session_ended<T>() -> Step<Result<T, NotHeld>> {
    Step::Done(Err(NotHeld::Restart(Restart::SessionEnded)))
}
