//! Claiming: getting exactly one contender znode into the queue.
//!
//! The algorithm, as one would write it if connections never failed:
//!
//! 1. In one flight, create the ephemeral sequential znode `<id>-lock-` and list the directory.
//!    The server executes both in this order, so the list holds the znode.
//! 2. If the directory is missing, create it and its ancestors as containers, and go to 1.
//!
//! A lost connection leaves the create of step 1 undecided, whatever the list said, so:
//!
//! 3. In one flight, pass a write barrier and list. After the barrier the lost create has been
//!    applied, or never will be.
//! 4. Of the znodes with our id, read the owners. Ours are those of the current session: keep the
//!    lowest, delete the others. A znode of another session that carries our id is somebody
//!    else's, and is left alone.
//! 5. None is ours: go to 1, with the same id.
//!
//! Step 4 is also how a duplicate heals that a later list reveals. The corner where it could come
//! into being in spite of the barrier is a slow server that hands in an old request after the
//! session has moved on.

use std::sync::Arc;

use bytestring::ByteString;
use jute_codec::{CreateMode, DataReply, ErrorCode, NameList, Response};
use zk_session::machine::{Flight, Reply};
use zk_session::{OpError, SessionId, Time};

use super::directory::{Directory, Made};
use super::release::{Release, name_of};
use super::{
    Patience, Profile, Tally, Verdict, View, Znode, barrier, child, create, delete, flight,
    is_created_by, kept, list, queue, read, replayable, verdict,
};
use crate::error::LockError;
use crate::naming::{SEQUENCE_MAX, Sibling};

/// What a claim asks for.
#[derive(Clone, Debug)]
#[must_use]
#[allow(clippy::exhaustive_enums, reason = "the closed vocabulary of the machine")]
pub enum ClaimStep {
    /// The znode stands in the queue.
    Claimed(Claimed),
    /// It cannot be done.
    Failed(LockError),
    /// The session has ended.
    SessionOver,
    /// Send this and hand in the answer.
    Submit(Flight),
    /// Wait until this time.
    Wait(Time),
}

/// A claimed place.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "complete by definition")]
pub struct Claimed {
    /// The session of the znode.
    pub session: SessionId,
    /// A list of the directory taken after the create, and the connection it was taken on.
    pub list: Option<(NameList, u64)>,
}

/// A claim under way.
#[derive(Clone, Debug)]
pub struct Claim {
    profile: Arc<Profile>,
    /// In bytes, because the alignment of a `u128` would pad all that is around it.
    id: [u8; 16],
    session: Option<SessionId>,
    znode: Option<Znode>,
    /// A create had an unknown outcome.
    is_tainted: bool,
    directory: Directory,
    replays: u64,
    duplicates: u64,
    /// Znodes with our id that other sessions own.
    strangers: Vec<ByteString>,
    patience: Patience,
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
    /// Step 4: the owners of these are being read.
    Reading(Vec<(u32, ByteString)>),
    /// Step 4: duplicates are being deleted.
    Reducing,
    /// The server is overloaded; go on with step 1 or 3.
    Pausing,
}

impl Claim {
    pub(crate) fn new(profile: Arc<Profile>, id: u128) -> Self {
        Self {
            profile,
            id: id.to_ne_bytes(),
            session: None,
            znode: None,
            is_tainted: false,
            directory: Directory::default(),
            replays: 0,
            duplicates: 0,
            strangers: Vec::new(),
            patience: Patience::default(),
            state: State::Creating,
        }
    }

    /// Step 1.
    pub fn start(&mut self) -> ClaimStep {
        self.state = State::Creating;
        let directory = &self.profile.directory;
        let claim = create(
            child(directory, &self.prefix()),
            self.profile.identity.clone(),
            self.profile.acl.clone(),
            CreateMode::EphemeralSequential,
        );
        ClaimStep::Submit(flight(self.session, vec![claim, list(directory, None)]))
    }

    /// Step 4 for a list that shows other znodes with our id; `None` if it shows none.
    pub fn reconcile(&mut self, names: &NameList) -> Option<ClaimStep> {
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

    /// The id of the attempt.
    pub(crate) fn id(&self) -> u128 {
        u128::from_ne_bytes(self.id)
    }

    /// The znode, once the place is claimed.
    pub fn znode(&self) -> Option<&Znode> {
        self.znode.as_ref()
    }

    /// Whether this is the znode of the claim, and not another of the same name.
    pub(crate) fn is_znode(&self, found: &DataReply) -> bool {
        self.znode
            .as_ref()
            .zip(self.session)
            .is_some_and(|(znode, session)| is_created_by(found, session, znode.czxid))
    }

    /// Path of the znode, once the place is claimed.
    pub(crate) fn path(&self) -> ByteString {
        let znode = self.znode.as_ref().expect("there is a place");
        child(&self.profile.directory, &znode.name)
    }

    /// The session of the claim, once it is known.
    pub fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// True while a create is in flight.
    pub fn is_creating(&self) -> bool {
        self.state == State::Creating
    }

    /// What this claim may have left behind.
    pub fn release(&self) -> Release {
        let known = self.znode.as_ref().map(|znode| znode.name.clone());
        let (profile, prefix) = (Arc::clone(&self.profile), self.prefix().into());
        Release::new(profile, prefix, self.session, known, self.is_tainted)
    }

    /// Adds what it has met since the last call.
    pub(crate) fn take_tally(&mut self, tally: &mut Tally) {
        tally.replays += std::mem::take(&mut self.replays);
        tally.duplicates += std::mem::take(&mut self.duplicates);
    }

    /// Advances by the answer to its flight.
    pub fn handle_reply(&mut self, view: View, reply: Reply) -> ClaimStep {
        if self.session.is_none() {
            self.session = reply.session;
        }
        match std::mem::replace(&mut self.state, State::Pausing) {
            State::Creating => self.created(view, reply),
            State::MakingDirectory => self.made_directory(view, reply),
            State::Probing => self.probed(view, reply),
            State::Reading(found) => self.owners_read(view, found, reply),
            State::Reducing => self.reduced(view, reply),
            State::Pausing => unreachable!("nothing is in flight"),
        }
    }

    /// Advances when the time it waits for has come.
    pub fn handle_timer(&mut self) -> ClaimStep {
        if self.is_tainted { self.probe() } else { self.start() }
    }

    fn created(&mut self, view: View, mut reply: Reply) -> ClaimStep {
        let listed = reply.results.pop();
        let created = reply.results.pop();
        let refusal = created.as_ref().and_then(|created| created.as_ref().err().cloned());
        match created.map(verdict) {
            Some(Verdict::Done(Response::Create2(created))) => {
                let name = name_of(&created.path).map(|name| kept(&name)).unwrap_or_default();
                let sequence = match self.profile.names.sibling(&name) {
                    Sibling::Contender(sequence, _) if sequence < SEQUENCE_MAX => sequence,
                    Sibling::Contender(..)
                    | Sibling::Exhausted
                    | Sibling::Foreign
                    | Sibling::OtherKind => return self.exhausted(name),
                };
                let czxid = created.stat.czxid;
                self.znode = Some(Znode { name, sequence, czxid });
                self.session = reply.session;
                let list = match listed {
                    Some(Ok(Response::GetChildren(names))) => Some((names, reply.connection)),
                    _ => None,
                };
                self.claimed(list)
            }
            Some(Verdict::Refused(OpError::Server(ErrorCode::NO_NODE))) => self.make_directory(),
            Some(Verdict::Refused(error)) => {
                ClaimStep::Failed(LockError::definite(error, "create", &self.profile.directory))
            }
            Some(Verdict::Later(error)) => self.pause(view, error, "create"),
            Some(Verdict::NotApplied) => {
                self.replays += 1;
                self.start()
            }
            Some(Verdict::SessionOver) => ClaimStep::SessionOver,
            Some(Verdict::Unknown | Verdict::Done(_)) | None => {
                self.replays += 1;
                self.is_tainted = true;
                self.session = reply.session;
                // A server that fails is given time; a lost connection has to be made anew anyway.
                match refusal {
                    Some(error) if !error.is_connection_loss() => self.pause(view, error, "create"),
                    Some(_) | None => self.probe(),
                }
            }
        }
    }

    /// The server appended a number that orders nobody. The znode has to go.
    fn exhausted(&mut self, name: ByteString) -> ClaimStep {
        self.znode = Some(Znode { name, sequence: u32::MAX, czxid: 0 });
        let directory = self.profile.directory.to_string();
        ClaimStep::Failed(LockError::QueueExhausted { directory })
    }

    fn claimed(&mut self, list: Option<(NameList, u64)>) -> ClaimStep {
        self.patience.reset();
        let session = self.session.expect("a create was answered in a session");
        ClaimStep::Claimed(Claimed { session, list })
    }

    /// Asks again later, or gives up.
    fn pause(&mut self, view: View, error: OpError, operation: &'static str) -> ClaimStep {
        if self.patience.is_over(&error) {
            let directory = &self.profile.directory;
            return ClaimStep::Failed(LockError::definite(error, operation, directory));
        }
        self.state = State::Pausing;
        ClaimStep::Wait(view.now + self.patience.pause())
    }

    fn make_directory(&mut self) -> ClaimStep {
        match self.directory.make(&self.profile.directory) {
            Ok(operations) => {
                self.state = State::MakingDirectory;
                ClaimStep::Submit(flight(self.session, operations))
            }
            Err(error) => ClaimStep::Failed(error),
        }
    }

    fn made_directory(&mut self, view: View, reply: Reply) -> ClaimStep {
        match self.directory.made(&self.profile.directory, reply) {
            // If it is not there after all, the next create says so.
            Made::Perhaps => self.start(),
            Made::Again => self.make_directory(),
            Made::Failed(error) => ClaimStep::Failed(error),
            Made::Later(error) => self.pause(view, error, "create"),
            Made::SessionOver => ClaimStep::SessionOver,
        }
    }

    fn probe(&mut self) -> ClaimStep {
        self.state = State::Probing;
        let directory = &self.profile.directory;
        let operations = vec![barrier(directory.clone()), list(directory, None)];
        ClaimStep::Submit(flight(self.session, operations))
    }

    fn probed(&mut self, view: View, mut reply: Reply) -> ClaimStep {
        let listed = reply.results.pop().map(replayable);
        match (reply.results.pop().map(replayable), listed) {
            (Some(Verdict::SessionOver), _) | (_, Some(Verdict::SessionOver)) => {
                ClaimStep::SessionOver
            }
            (Some(Verdict::Later(error)), _) | (_, Some(Verdict::Later(error))) => {
                self.pause(view, error, "list")
            }
            // A refused barrier was executed all the same.
            (
                Some(Verdict::Done(_) | Verdict::Refused(_)),
                Some(Verdict::Done(Response::GetChildren(names))),
            ) => {
                let found = self.unknown(&names);
                if found.is_empty() {
                    self.znode = None;
                    return self.start();
                }
                self.read_owners(found)
            }
            (
                Some(Verdict::Done(_) | Verdict::Refused(_)),
                Some(Verdict::Refused(OpError::Server(ErrorCode::NO_NODE))),
            ) => self.make_directory(),
            (_, Some(Verdict::Refused(error))) => {
                ClaimStep::Failed(LockError::definite(error, "list", &self.profile.directory))
            }
            _ => self.probe(),
        }
    }

    /// Whatever became of the deletes, a fresh list tells; but what cannot be deleted must not be
    /// tried for ever.
    fn reduced(&mut self, view: View, reply: Reply) -> ClaimStep {
        let mut later = None;
        for result in reply.results {
            match replayable(result) {
                Verdict::Refused(OpError::Server(ErrorCode::NO_NODE)) => {}
                Verdict::Refused(error) => {
                    let directory = &self.profile.directory;
                    return ClaimStep::Failed(LockError::definite(error, "delete in", directory));
                }
                Verdict::SessionOver => return ClaimStep::SessionOver,
                Verdict::Later(error) => later = Some(error),
                Verdict::Done(_) | Verdict::NotApplied | Verdict::Unknown => {}
            }
        }
        match later {
            Some(error) => self.pause(view, error, "delete in"),
            None => self.probe(),
        }
    }

    fn prefix(&self) -> String {
        self.profile.names.prefix(self.id())
    }

    /// Znodes with our id, but for those that are known to belong to other sessions.
    fn unknown(&self, names: &NameList) -> Vec<(u32, ByteString)> {
        let mut found = queue::with_prefix(&self.profile, names, &self.prefix());
        found.retain(|(_, name)| !self.strangers.contains(name));
        found
    }

    fn read_owners(&mut self, found: Vec<(u32, ByteString)>) -> ClaimStep {
        let directory = &self.profile.directory;
        let reads = found.iter().map(|(_, name)| read(child(directory, name), None)).collect();
        self.state = State::Reading(found);
        ClaimStep::Submit(flight(self.session, reads))
    }

    fn owners_read(
        &mut self,
        view: View,
        found: Vec<(u32, ByteString)>,
        reply: Reply,
    ) -> ClaimStep {
        let mut own = Vec::new();
        for ((sequence, name), result) in found.into_iter().zip(reply.results) {
            match replayable(result) {
                Verdict::Done(Response::GetData(data)) => {
                    if self.session.is_some_and(|own| own.0 == data.stat.ephemeral_owner) {
                        let czxid = data.stat.czxid;
                        own.push(Znode { name, sequence, czxid });
                    } else {
                        self.strangers.push(name);
                    }
                }
                Verdict::Refused(OpError::Server(ErrorCode::NO_NODE)) => {}
                Verdict::Refused(error) => {
                    let path = child(&self.profile.directory, &name);
                    return ClaimStep::Failed(LockError::definite(error, "read", &path));
                }
                Verdict::SessionOver => return ClaimStep::SessionOver,
                Verdict::Later(error) => return self.pause(view, error, "read in"),
                Verdict::Done(_) | Verdict::NotApplied | Verdict::Unknown => return self.probe(),
            }
        }
        let mut own = own.into_iter();
        let Some(lowest) = own.next() else {
            self.znode = None;
            // It was a stranger's, or is gone: nothing of ours stands in the queue.
            return self.start();
        };
        if lowest.sequence >= SEQUENCE_MAX {
            return self.exhausted(lowest.name);
        }
        self.znode = Some(lowest);
        let directory = &self.profile.directory;
        let duplicates: Vec<_> = own.map(|znode| delete(child(directory, &znode.name))).collect();
        if duplicates.is_empty() {
            return self.claimed(None);
        }
        self.duplicates += duplicates.len() as u64;
        self.state = State::Reducing;
        ClaimStep::Submit(flight(self.session, duplicates))
    }
}
