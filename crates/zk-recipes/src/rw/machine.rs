//! Downgrading a writer to a reader, without a gap in which another contender could enter.
//!
//! 1. In one multi, create the reader's znode with the writer's own number, and delete the writer's
//!    znode. The contenders behind the writer are now behind a reader with the same number: readers
//!    may enter, but writers may not.
//! 2. If the multi was applied, the downgrade is done. If the writer's znode was missing, the lock
//!    is lost. Otherwise the downgrade was refused, and the writer holds the lock as before.
//!
//! A lost connection leaves step 1 undecided. The multi is issued again: the name of the reader's
//! znode is unique, so it can be applied only once.
//!
//! 3. If the repeated multi is refused for any reason, the first one may have been applied. The
//!    refusal serves as a write barrier, so a read of the reader's znode decides: if it exists and
//!    is ours, the downgrade is done; if it is missing, continue with step 2. If it exists but the
//!    client may not read it, it is ours: its name is unique, and the multi was sent only in our
//!    session.

use std::sync::Arc;

use bytestring::ByteString;
use jute_codec::{CreateMode, CreateRequest, DeleteRequest, ErrorCode, MultiOp, Request, Response};
use zk_session::recipe::{Flight, Operation};
use zk_session::{OpError, SessionId, Version};

use crate::lock::error::{LockError, LostReason};
use crate::lock::options::LockOptions;
use crate::lock::outcome::{Changed, NotChanged, Znode};
use crate::lock::recipe::Change;
use crate::machine::{
    Answer, Answers, FailedAction, Failure, Input, Machine, Needs, SessionView, Step, child,
    flight, read, refused_operation,
};
use crate::queue::machine::removal::QueueRemoval;
use crate::queue::profile::QueueProfile;

/// A downgrade in progress.
#[derive(Clone, Debug)]
pub struct Downgrade {
    profile: Arc<QueueProfile>,
    session: SessionId,
    writer: Znode,
    reader: ByteString,
    /// The multi may have been applied without our knowledge.
    is_tainted: bool,
    replays: u64,
    state: State,
}

/// The request of a guard for its downgrade.
#[derive(Clone, Copy, Debug)]
pub struct DowngradeRequest;

#[derive(Clone, Debug)]
enum State {
    /// Step 1 is in flight.
    Committing,
    /// Step 3 is in flight, after this operation of the multi was refused.
    Deciding((usize, ErrorCode)),
}

/// The first operation of the multi.
const CREATE_READER: usize = 0;

type ChangeStep = Step<Result<Changed, NotChanged>>;

impl Downgrade {
    /// Creates the downgrade of a writer that holds the lock. Returns `None` if the name of its
    /// znode is not that of a writer.
    pub fn new(
        profile: impl Into<Arc<QueueProfile>>,
        session: SessionId,
        writer: Znode,
    ) -> Option<Self> {
        let profile = profile.into();
        let reader = profile.names.downgraded(&writer.name)?.into();
        Some(Self {
            profile,
            session,
            writer,
            reader,
            is_tainted: false,
            replays: 0,
            state: State::Committing,
        })
    }

    /// Returns the names that the holder's znode may have until the downgrade is decided, in the
    /// order in which these znodes have to be deleted: once the writer's znode is gone, a multi
    /// that is applied late changes nothing, and leaves no reader's znode behind.
    pub fn names(&self) -> Vec<ByteString> {
        vec![self.writer.name.clone(), self.reader.clone()]
    }

    /// Performs step 1.
    fn commit(&mut self) -> ChangeStep {
        let (flight, needs) = self.committing();
        Step::Submit(flight, needs)
    }

    fn committing(&mut self) -> (Flight, Needs) {
        self.state = State::Committing;
        let LockOptions { path: directory, identity, acl, .. } = &self.profile.options;
        let create = CreateRequest {
            path: child(directory, &self.reader),
            data: Some(identity.clone()),
            acl: acl.clone(),
            mode: CreateMode::Ephemeral,
            with_stat: false,
        };
        let path = child(directory, &self.writer.name);
        let delete = DeleteRequest { path, version: Version::ANY };
        let multi = Request::Multi(vec![MultiOp::Create(create), MultiOp::Delete(delete)]);
        (flight(Some(self.session), vec![Operation::new(multi)]), Needs::Once(0))
    }

    fn committed(&mut self, answers: Answers) -> ChangeStep {
        let connection = answers.connection;
        self.replays += answers.replays;
        let [committed] = answers.take();
        match committed {
            Answer::Done(response) => match refused_operation(&response) {
                None => self.done(connection),
                Some(refused) => self.refused(refused),
            },
            Answer::SessionEnded => session_ended(),
            Answer::Refused(error) => match error.server_code() {
                Some(code) => self.refused((CREATE_READER, code)),
                None => self.give_up(error),
            },
            Answer::Unknown { .. } => {
                self.replays += 1;
                self.is_tainted = true;
                self.commit()
            }
        }
    }

    fn refused(&mut self, refused: (usize, ErrorCode)) -> ChangeStep {
        let (_, code) = refused;
        // An earlier multi may have been applied. This would explain why the reader's znode exists,
        // or why the writer's znode is missing.
        if self.is_tainted || code == ErrorCode::NODE_EXISTS {
            return self.decide(refused);
        }
        self.conclude(refused)
    }

    fn decide(&mut self, refused: (usize, ErrorCode)) -> ChangeStep {
        self.state = State::Deciding(refused);
        let path = child(self.profile.directory(), &self.reader);
        // On the next connection, a read is conclusive only after the multi was sent again.
        Step::Submit(flight(Some(self.session), vec![read(path, None)]), Needs::OneTry)
    }

    fn decided(&mut self, refused: (usize, ErrorCode), answers: Answers) -> ChangeStep {
        let connection = answers.connection;
        let [reader] = answers.take();
        match reader {
            Answer::Done(Response::GetData(data)) if data.stat.ephemeral_owner == self.session => {
                self.done(connection)
            }
            Answer::Done(_) => self.conclude(refused),
            reader if reader.is_no_node() => self.conclude(refused),
            reader
                if reader.is_refused_with(ErrorCode::NO_AUTH)
                    && self.is_tainted
                    && refused.1 == ErrorCode::NODE_EXISTS =>
            {
                self.done(connection)
            }
            // Without permission to read the znode, the outcome is still unknown. Repeat the multi
            // until it is known.
            Answer::Refused(_) => {
                let (flight, needs) = self.committing();
                Step::SubmitLater(flight, needs)
            }
            Answer::SessionEnded => session_ended(),
            Answer::Unknown { .. } => {
                self.replays += 1;
                self.commit()
            }
        }
    }

    /// Ends the downgrade after the multi was refused and never applied.
    fn conclude(&self, (at, code): (usize, ErrorCode)) -> ChangeStep {
        if code == ErrorCode::NO_NODE {
            return lost(LostReason::ZnodeDeleted);
        }
        let (action, name) = if at == CREATE_READER {
            (FailedAction::Create, &self.reader)
        } else {
            (FailedAction::Delete, &self.writer.name)
        };
        let path = child(self.profile.directory(), name).to_string();
        refused(LockError::Refused { code, action, path })
    }

    /// Ends the downgrade because the client has stopped, or could not send the multi.
    fn give_up(&self, error: OpError) -> ChangeStep {
        if error.is_session_over() || error == OpError::AuthFailed {
            return lost(LostReason::Closed);
        }
        let path = self.profile.directory().clone();
        refused(LockError::of(Failure::new(FailedAction::Create, path, error)))
    }

    fn done(&self, connection: u64) -> ChangeStep {
        let znode = Znode { name: self.reader.clone(), ..self.writer.clone() };
        Step::Done(Ok(Changed { znode, connection }))
    }
}

impl Machine for Downgrade {
    type Output = Result<Changed, NotChanged>;

    const GIVES_UP: bool = false;

    fn start(&mut self, _: SessionView) -> ChangeStep {
        self.commit()
    }

    fn handle(&mut self, _: SessionView, input: Input) -> ChangeStep {
        match (self.state.clone(), input) {
            (_, Input::Ended(session)) if session == self.session => session_ended(),
            (State::Committing, Input::Answered(answers)) => self.committed(answers),
            (State::Deciding(refused), Input::Answered(answers)) => self.decided(refused, answers),
            // The multi deletes our own znode, so an event of its watch decides nothing.
            (_, _) => Step::Wait(None),
        }
    }
}

impl Change<QueueRemoval> for Downgrade {
    type Request = DowngradeRequest;

    fn begin(
        _: DowngradeRequest,
        removal: &mut QueueRemoval,
        session: SessionId,
        znode: Znode,
    ) -> Self {
        let profile = Arc::clone(removal.profile());
        let downgrade = Self::new(profile, session, znode)
            .expect("the attempt chose the name, and its role is that of a writer");
        // From here on, either of the two znodes may be in the queue.
        removal.rename(downgrade.names());
        downgrade
    }

    fn settle(removal: &mut QueueRemoval, znode: &Znode) {
        removal.rename(vec![znode.name.clone()]);
    }

    fn replays(&self) -> u64 {
        self.replays
    }
}

fn session_ended() -> ChangeStep {
    lost(LostReason::SessionExpired)
}

fn lost(reason: LostReason) -> ChangeStep {
    Step::Done(Err(NotChanged::Lost(reason)))
}

fn refused(error: LockError) -> ChangeStep {
    Step::Done(Err(NotChanged::Refused(error)))
}
