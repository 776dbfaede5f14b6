//! Making sure that a znode exists, with its ancestors.
//!
//! 1. Create the znode. If it exists, no matter who created it, the work is done.
//! 2. If an ancestor is missing, create all of them, and continue with 1.
//!
//! A lost create is repeated. It is its own barrier, so no create that is delivered late follows
//! the reply to the last one.

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{Acl, CreateMode, ErrorCode};
use zk_session::{OpError, Outcome};

use super::answer::{Answer, Answers, Needs};
use super::directory::{Directory, Round};
use super::failure::Failure;
use super::operation::{create, flight, parent};
use super::step::{Input, Machine, SessionView, Step};
use crate::action::FailedAction;

type EnsureStep = Step<Result<(), Failure>>;

/// Makes sure that a persistent znode exists, or only its parent.
#[derive(Debug)]
pub(crate) struct Ensure {
    path: ByteString,
    /// The data of the znode; `None` if only its parent is needed.
    leaf: Option<Bytes>,
    /// The access control list of everything that is created.
    acl: Vec<Acl>,
    directory: Directory,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Step 1 is in flight.
    Creating,
    /// Step 2 is in flight.
    MakingDirectory,
}

impl Ensure {
    /// Creates the znode with this data, unless it exists.
    pub(crate) fn znode(path: ByteString, data: Bytes, acl: Vec<Acl>) -> Self {
        Self::new(path, Some(data), acl)
    }

    /// Creates the parent of a path, unless it exists.
    pub(crate) fn parent_of(path: ByteString, acl: Vec<Acl>) -> Self {
        Self::new(path, None, acl)
    }

    /// Makes missing ancestors persistent znodes instead of containers.
    pub(crate) fn with_persistent_ancestors(self) -> Self {
        Self { directory: Directory::persistent(), ..self }
    }

    fn new(path: ByteString, leaf: Option<Bytes>, acl: Vec<Acl>) -> Self {
        Self { path, leaf, acl, directory: Directory::default(), state: State::Creating }
    }

    fn create(&mut self, view: SessionView) -> EnsureStep {
        let Some(data) = self.leaf.clone() else { return self.make_directory(view) };
        self.state = State::Creating;
        let operation = create(self.path.clone(), data, self.acl.clone(), CreateMode::Persistent);
        Step::Submit(flight(None, vec![operation]), Needs::All)
    }

    fn created(&mut self, view: SessionView, answers: Answers) -> EnsureStep {
        let [created] = answers.take();
        match created {
            Answer::Done(_)
            | Answer::Refused(OpError::Server { code: ErrorCode::NODE_EXISTS, .. }) => {
                Step::Done(Ok(()))
            }
            Answer::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {
                self.make_directory(view)
            }
            Answer::Refused(error) | Answer::Unknown { error, .. } => self.failed(error),
            Answer::SessionEnded => self.stopped(),
        }
    }

    fn make_directory(&mut self, view: SessionView) -> EnsureStep {
        self.state = State::MakingDirectory;
        match self.directory.create(view.now, &parent(&self.path), &Bytes::new(), &self.acl) {
            Ok(operations) => Step::Submit(flight(None, operations), Needs::All),
            Err(failure) => Step::Done(Err(failure)),
        }
    }

    fn made_directory(&mut self, view: SessionView, answers: Answers) -> EnsureStep {
        match self.directory.created(&parent(&self.path), answers) {
            Round::Retry if self.leaf.is_none() => Step::Done(Ok(())),
            Round::Retry => self.create(view),
            Round::Repeat => self.make_directory(view),
            Round::Failed(failure) => Step::Done(Err(failure)),
            Round::SessionEnded => self.stopped(),
        }
    }

    /// Fails because no session follows, so every later flight would fail at once.
    fn stopped(&self) -> EnsureStep {
        self.failed(OpError::session_expired(Outcome::Unknown))
    }

    fn failed(&self, error: OpError) -> EnsureStep {
        Step::Done(Err(Failure::new(FailedAction::Create, self.path.clone(), error)))
    }
}

impl Machine for Ensure {
    type Output = Result<(), Failure>;

    fn start(&mut self, view: SessionView) -> EnsureStep {
        self.create(view)
    }

    fn handle(&mut self, view: SessionView, input: Input) -> EnsureStep {
        match (self.state, input) {
            (State::Creating, Input::Answered(answers)) => self.created(view, answers),
            (State::MakingDirectory, Input::Answered(answers)) => {
                self.made_directory(view, answers)
            }
            (_, _) => Step::Wait(None),
        }
    }
}
