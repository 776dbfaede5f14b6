//! Making sure that a znode exists, with its ancestors.
//!
//! 1. Create the znode. If it exists, that is all, whoever has created it.
//! 2. If an ancestor is missing, create all of them, and continue with 1.
//!
//! A lost create is repeated. It is its own barrier, so no create that is delivered late follows
//! the reply to the last one.

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{Acl, CreateMode, ErrorCode};
use zk_session::recipe::Reply;
use zk_session::{OpError, Outcome};

use super::directory::{Directory, Round};
use super::failure::Failure;
use super::operation::{create, flight, parent};
use super::pause::Pauses;
use super::step::{Input, Machine, SessionView, Step};
use super::verdict::{Verdict, replayable, take};
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
    pauses: Pauses,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Step 1 is in flight.
    Creating,
    /// Step 2 is in flight.
    MakingDirectory,
    /// A server is overloaded; continue with 1 after a pause.
    Pausing,
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
        let (directory, pauses) = (Directory::default(), Pauses::default());
        Self { path, leaf, acl, directory, pauses, state: State::Creating }
    }

    fn create(&mut self, view: SessionView) -> EnsureStep {
        let Some(data) = self.leaf.clone() else { return self.make_directory(view) };
        self.state = State::Creating;
        let operation = create(self.path.clone(), data, self.acl.clone(), CreateMode::Persistent);
        Step::Submit(flight(None, vec![operation]))
    }

    fn created(&mut self, view: SessionView, reply: Reply) -> EnsureStep {
        let [result] = take(reply).map(replayable);
        match result {
            Verdict::Done(_)
            | Verdict::Refused(OpError::Server { code: ErrorCode::NODE_EXISTS, .. }) => {
                Step::Done(Ok(()))
            }
            Verdict::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {
                self.make_directory(view)
            }
            Verdict::Refused(error) => self.failed(error),
            Verdict::Later(error) => self.later(view, error),
            Verdict::SessionOver if view.has_stopped => self.stopped(),
            Verdict::NotApplied | Verdict::Unknown | Verdict::SessionOver => self.create(view),
        }
    }

    fn make_directory(&mut self, view: SessionView) -> EnsureStep {
        self.state = State::MakingDirectory;
        match self.directory.create(view.now, &parent(&self.path), &Bytes::new(), &self.acl) {
            Ok(operations) => Step::Submit(flight(None, operations)),
            Err(failure) => Step::Done(Err(failure)),
        }
    }

    fn made_directory(&mut self, view: SessionView, reply: Reply) -> EnsureStep {
        match self.directory.created(&parent(&self.path), reply) {
            Round::Retry if self.leaf.is_none() => Step::Done(Ok(())),
            Round::SessionOver if view.has_stopped => self.stopped(),
            Round::Retry | Round::SessionOver => self.create(view),
            Round::Repeat => self.make_directory(view),
            Round::Failed(failure) => Step::Done(Err(failure)),
            Round::Later(error) => self.later(view, error),
        }
    }

    fn later(&mut self, view: SessionView, error: OpError) -> EnsureStep {
        if self.pauses.is_too_many(&error) {
            return self.failed(error);
        }
        self.state = State::Pausing;
        Step::Wait(self.pauses.begin(view))
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
            (State::Creating, Input::Reply(reply)) => self.created(view, reply),
            (State::MakingDirectory, Input::Reply(reply)) => self.made_directory(view, reply),
            (State::Pausing, Input::Timer | Input::Suspended) => {
                self.pauses.end();
                self.create(view)
            }
            (
                _,
                Input::Reply(_)
                | Input::Timer
                | Input::Suspended
                | Input::Ended(_)
                | Input::Watch { .. },
            ) => Step::Wait(self.pauses.until()),
        }
    }
}
