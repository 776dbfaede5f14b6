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
use zk_session::recipe::Reply;
use zk_session::{OpError, SessionId, Time, Zxid};

use super::removal::QueueRemoval;
use super::standing::with_prefix;
use crate::lock::error::LockError;
use crate::lock::outcome::{NotHeld, Restart, Tally, Znode};
use crate::machine::directory::{Directory, Round};
use crate::machine::{
    FailedAction, Failure, Input, Machine, Pauses, SessionView, Step, Verdict, barrier, child,
    create, delete, flight, list, name_of, owned_copy, read, replayable, take, verdict,
};
use crate::queue::naming::{SEQUENCE_MAX, Sibling};
use crate::queue::profile::{Permits, QueueProfile};

/// A claimed place.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    /// The session of the znode.
    pub(crate) session: SessionId,
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
    /// Pauses of the claim and of its attempt, which never pause together.
    pub(crate) pauses: Pauses,
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
    /// The server is overloaded; continue with step 1 or 3 after a pause.
    Pausing,
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
            pauses: Pauses::default(),
            state: State::Creating,
        }
    }

    /// Performs step 1.
    fn create(&mut self) -> ClaimStep {
        self.state = State::Creating;
        let directory = &self.profile.directory;
        let claim = create(
            child(directory, &self.prefix()),
            self.profile.identity.clone(),
            self.profile.acl.clone(),
            CreateMode::EphemeralSequential,
        );
        let mut operations = Vec::new();
        if self.profile.removes_directory {
            // The last contender has probably removed it.
            operations.push(self.directory.create_last(directory, &self.profile.acl));
        }
        operations.extend([claim, list(directory, None)]);
        if self.profile.permits.is_some() {
            operations.push(read(directory.clone(), None));
        }
        Step::Submit(flight(self.session, operations))
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
        child(&self.profile.directory, &znode.name)
    }

    /// Returns the session of the claim, once it is known.
    pub(crate) fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Ends the attempt of this claim. Returns the removal of the znodes that the claim may have
    /// left, and whether a create is in flight. `is_claiming` means that the attempt still waits
    /// for the claim.
    pub(crate) fn abandon(self, is_claiming: bool) -> (QueueRemoval, bool) {
        let is_creating = is_claiming && self.state == State::Creating;
        let prefix = self.prefix().into();
        let known = self.znode.map(|znode| znode.name);
        let removal = QueueRemoval::new(self.profile, prefix, self.session, known, self.is_tainted);
        (removal, is_creating)
    }

    /// Returns the counts since the last call.
    pub(crate) fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }

    /// Returns until when the attempt has to pause after this error, or the reason to give up.
    /// Attempts that were refused at the same time retry at different times.
    pub(crate) fn pause_after(
        &mut self,
        view: SessionView,
        error: OpError,
        action: FailedAction,
    ) -> Result<Option<Time>, Failure> {
        if self.pauses.is_too_many(&error) {
            return Err(Failure::new(action, self.profile.directory.clone(), error));
        }
        Ok(self.pause(view))
    }

    /// Returns until when the attempt has to pause.
    pub(crate) fn pause(&mut self, view: SessionView) -> Option<Time> {
        self.pauses.begin(view)
    }

    fn replied(&mut self, view: SessionView, reply: Reply) -> ClaimStep {
        if self.session.is_none() {
            self.session = reply.session;
        }
        match std::mem::replace(&mut self.state, State::Pausing) {
            State::Creating => self.created(view, reply),
            State::MakingDirectory => self.made_directory(view, reply),
            State::Probing => self.probed(view, reply),
            State::Reading(found) => self.owners_read(view, found, reply),
            State::Reducing => self.reduced(view, reply),
            State::Pausing => Step::Wait(self.pauses.until()),
        }
    }

    fn created(&mut self, view: SessionView, mut reply: Reply) -> ClaimStep {
        let session = reply.session;
        let connection = reply.connection;
        let directory = match self.profile.permits.and_then(|_| reply.results.pop()) {
            Some(Ok(Response::GetData(directory))) => Some(directory),
            _ => None,
        };
        if self.profile.removes_directory && !reply.results.is_empty() {
            self.directory.created_last(&reply.results.remove(0));
        }
        let [created, listed] = take(reply);
        let is_connection_lost = matches!(&created, Err(error) if error.is_connection_loss());
        let refusal = created.as_ref().err().cloned();
        match verdict(created) {
            Verdict::Done(Response::Create2(created)) => {
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
                    Ok(Response::GetChildren(names)) => Some((names, connection)),
                    _ => None,
                };
                self.claimed(list, directory)
            }
            Verdict::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {
                self.make_directory(view)
            }
            // The directory is ephemeral, so it is the znode of an exclusive lock.
            Verdict::Refused(OpError::Server {
                code: ErrorCode::NO_CHILDREN_FOR_EPHEMERALS,
                ..
            }) => {
                let name = self.profile.directory.to_string();
                Step::Done(Err(NotHeld::Failed(LockError::MixedKinds { name })))
            }
            Verdict::Refused(error) => self.failed(FailedAction::Create, error),
            Verdict::Later(error) => self.later(view, error, FailedAction::Create),
            Verdict::NotApplied => {
                self.tally.replays += 1;
                self.create()
            }
            Verdict::SessionOver => session_over(),
            Verdict::Unknown | Verdict::Done(_) => {
                self.tally.replays += 1;
                self.is_tainted = true;
                self.session = session;
                match refusal {
                    // Give a server that failed time to recover. After a lost connection, the
                    // flight waits for the next connection anyway.
                    Some(error) if !is_connection_lost => {
                        self.later(view, error, FailedAction::Create)
                    }
                    Some(_) | None => self.probe(),
                }
            }
        }
    }

    /// Fails because the server appended a number that defines no order. The znode has to be
    /// removed.
    fn exhausted(&mut self, name: ByteString) -> ClaimStep {
        self.znode = Some(Znode { name, sequence: u32::MAX, czxid: Zxid(0) });
        let directory = self.profile.directory.to_string();
        Step::Done(Err(NotHeld::Failed(LockError::QueueExhausted { directory })))
    }

    fn claimed(
        &mut self,
        list: Option<(NameList, u64)>,
        directory: Option<DataReply>,
    ) -> ClaimStep {
        self.pauses.reset();
        let session = self.session.expect("a create is executed in a session");
        Step::Done(Ok(Claimed { session, list, directory }))
    }

    /// Retries after a pause, or gives up.
    fn later(&mut self, view: SessionView, error: OpError, action: FailedAction) -> ClaimStep {
        if self.pauses.is_too_many(&error) {
            return self.failed(action, error);
        }
        self.state = State::Pausing;
        Step::Wait(self.pauses.begin(view))
    }

    fn failed(&self, action: FailedAction, error: OpError) -> ClaimStep {
        let failure = Failure::new(action, self.profile.directory.clone(), error);
        Step::Done(Err(failure.into()))
    }

    fn make_directory(&mut self, view: SessionView) -> ClaimStep {
        let data = self.profile.permits.map(Permits::encode).unwrap_or_default();
        match self.directory.create(view.now, &self.profile.directory, &data, &self.profile.acl) {
            Ok(operations) => {
                self.state = State::MakingDirectory;
                Step::Submit(flight(self.session, operations))
            }
            // Other contenders remove the directory as fast as this one creates it. Each time, one of
            // them has held the lock, so the next rounds are likely to succeed.
            Err(failure) if self.profile.removes_directory => {
                self.directory.begin_again();
                self.later(view, failure.error, failure.action)
            }
            Err(failure) => Step::Done(Err(failure.into())),
        }
    }

    fn made_directory(&mut self, view: SessionView, reply: Reply) -> ClaimStep {
        match self.directory.created(&self.profile.directory, reply) {
            Round::Retry => self.create(),
            Round::Repeat => self.make_directory(view),
            Round::Failed(failure) => Step::Done(Err(failure.into())),
            Round::Later(error) => self.later(view, error, FailedAction::Create),
            Round::SessionOver => session_over(),
        }
    }

    fn probe(&mut self) -> ClaimStep {
        self.state = State::Probing;
        let directory = &self.profile.directory;
        let operations = vec![barrier(directory.clone()), list(directory, None)];
        Step::Submit(flight(self.session, operations))
    }

    fn probed(&mut self, view: SessionView, reply: Reply) -> ClaimStep {
        let [barrier, listed] = take(reply).map(replayable);
        match (barrier, listed) {
            (Verdict::SessionOver, _) | (_, Verdict::SessionOver) => session_over(),
            (Verdict::Later(error), _) | (_, Verdict::Later(error)) => {
                self.later(view, error, FailedAction::List)
            }
            // Even a barrier that was refused has been executed.
            (
                Verdict::Done(_) | Verdict::Refused(_),
                Verdict::Done(Response::GetChildren(names)),
            ) => {
                let found = self.unknown(&names);
                if found.is_empty() {
                    self.znode = None;
                    return self.create();
                }
                self.read_owners(found)
            }
            (
                Verdict::Done(_) | Verdict::Refused(_),
                Verdict::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }),
            ) => self.make_directory(view),
            (_, Verdict::Refused(error)) => self.failed(FailedAction::List, error),
            _ => self.probe(),
        }
    }

    /// Evaluates the reply to the deletes. The next list shows which deletes succeeded, but a
    /// delete that is refused must not be repeated endlessly.
    fn reduced(&mut self, view: SessionView, reply: Reply) -> ClaimStep {
        let mut later = None;
        for result in reply.results {
            match replayable(result) {
                Verdict::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {}
                Verdict::Refused(error) => return self.failed(FailedAction::DeleteChild, error),
                Verdict::SessionOver => return session_over(),
                Verdict::Later(error) => later = Some(error),
                Verdict::Done(_) | Verdict::NotApplied | Verdict::Unknown => {}
            }
        }
        match later {
            Some(error) => self.later(view, error, FailedAction::DeleteChild),
            None => self.probe(),
        }
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
        let directory = &self.profile.directory;
        let reads = found.iter().map(|(_, name)| read(child(directory, name), None)).collect();
        self.state = State::Reading(found);
        Step::Submit(flight(self.session, reads))
    }

    fn owners_read(
        &mut self,
        view: SessionView,
        found: Vec<(u32, ByteString)>,
        reply: Reply,
    ) -> ClaimStep {
        let mut own = Vec::new();
        for ((sequence, name), result) in found.into_iter().zip(reply.results) {
            match replayable(result) {
                Verdict::Done(Response::GetData(data)) => {
                    if self.session.is_some_and(|own| own == data.stat.ephemeral_owner) {
                        let czxid = data.stat.czxid;
                        own.push(Znode { name, sequence, czxid });
                    } else {
                        let mut strangers = std::mem::take(&mut self.strangers).into_vec();
                        strangers.push(name);
                        self.strangers = strangers.into();
                    }
                }
                Verdict::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {}
                Verdict::Refused(error) => {
                    let path = child(&self.profile.directory, &name);
                    return Step::Done(Err(Failure::new(FailedAction::Read, path, error).into()));
                }
                Verdict::SessionOver => return session_over(),
                Verdict::Later(error) => return self.later(view, error, FailedAction::ReadChild),
                Verdict::Done(_) | Verdict::NotApplied | Verdict::Unknown => return self.probe(),
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
        let directory = &self.profile.directory;
        let duplicates: Vec<_> = own.map(|znode| delete(child(directory, &znode.name))).collect();
        if duplicates.is_empty() {
            return self.claimed(None, None);
        }
        self.tally.duplicates += u32::try_from(duplicates.len()).unwrap_or(u32::MAX);
        self.state = State::Reducing;
        Step::Submit(flight(self.session, duplicates))
    }
}

impl Machine for Claim {
    type Output = Result<Claimed, NotHeld>;

    fn start(&mut self, _: SessionView) -> ClaimStep {
        self.create()
    }

    /// Advances by one input. The attempt itself handles the end of the session.
    fn handle(&mut self, view: SessionView, input: Input) -> ClaimStep {
        match input {
            Input::Reply(reply) => self.replied(view, reply),
            // The next server may immediately accept the request that this one was too busy for.
            Input::Timer | Input::Suspended if self.pauses.end() => {
                if self.is_tainted {
                    self.probe()
                } else {
                    self.create()
                }
            }
            Input::Timer | Input::Suspended | Input::Ended(_) | Input::Watch { .. } => {
                Step::Wait(self.pauses.until())
            }
        }
    }
}

fn session_over<T>() -> Step<Result<T, NotHeld>> {
    Step::Done(Err(NotHeld::Restart(Restart::SessionOver)))
}
