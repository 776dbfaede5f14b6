//! Changing the stored number of permits.
//!
//! 1. Read and list the directory. If it is missing, create it, with the number as its data. If it
//!    contains a lock of another kind, fail: its data is not this semaphore's.
//! 2. If it stores the number and has a pin, the work is done. Otherwise write the number, provided that
//!    the data still has the version that was read, and create the pin, or test that it is there, in
//!    one transaction. Even if the number was the right one, it is written: servers may have removed
//!    the directory since, and another client have created it again with its own number, and data that
//!    nobody has written yet have the same version everywhere.
//! 3. If another client was faster, or the connection was lost, pass a write barrier and continue
//!    with 1. After the barrier the lost write has been applied, or never will be: it cannot
//!    overwrite a number that another client stores later.
//!
//! The pin is a persistent znode in the directory. Servers remove only empty containers, so the
//! number outlives the contenders.

use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{
    CheckRequest, CreateMode, CreateRequest, DataReply, ErrorCode, MultiOp, NameList, Request,
    Response, SetDataRequest,
};
use zk_session::recipe::Operation;
use zk_session::{OpError, Version};

use crate::lock::error::LockError;
use crate::lock::options::LockOptions;
use crate::machine::directory::{Directory, Round};
use crate::machine::{
    Answer, Answers, FailedAction, Failure, Input, Machine, Needs, SessionView, Step, barrier,
    child, flight, list, read, refused_operation,
};
use crate::queue::profile::{Permits, QueueProfile};

/// The name of the pin. It is not that of a contender of any recipe.
const PIN: &str = "permits-set";

type ResizeStep = Step<Result<(), LockError>>;

/// A change of the stored number of permits.
#[derive(Debug)]
pub struct Resize {
    profile: Arc<QueueProfile>,
    directory: Directory,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Step 1 is in flight, behind the barrier of step 3.
    Reading,
    /// The directory is being created.
    MakingDirectory,
    /// Step 2 is in flight, and its first operation creates the pin, or tests it.
    Writing { pins: bool },
}

impl Resize {
    /// Stores the number of permits in this profile.
    pub fn new(profile: Arc<QueueProfile>) -> Self {
        Self { profile, directory: Directory::default(), state: State::Reading }
    }

    fn permits(&self) -> Permits {
        self.profile.permits.unwrap_or_default()
    }

    fn read(&mut self) -> ResizeStep {
        self.state = State::Reading;
        let directory = self.profile.directory();
        let operations =
            vec![barrier(directory.clone()), read(directory.clone(), None), list(directory, None)];
        Step::Submit(flight(None, operations), Needs::All)
    }

    fn pin(&self) -> ByteString {
        child(self.profile.directory(), PIN)
    }

    fn was_read(&mut self, view: SessionView, answers: Answers) -> ResizeStep {
        let [barrier, found, listed] = answers.take();
        match (barrier, found, listed) {
            (Answer::SessionEnded, ..) => self.stopped(),
            // A barrier that was refused was executed all the same.
            (
                _,
                Answer::Done(Response::GetData(found)),
                Answer::Done(Response::GetChildren(names)),
            ) => self.listed(&found, &names),
            (_, found, listed) if found.is_no_node() || listed.is_no_node() => {
                self.make_directory(view)
            }
            (_, Answer::Refused(error) | Answer::Unknown { error, .. }, _) => {
                self.failed(FailedAction::Read, error)
            }
            (.., Answer::Refused(error) | Answer::Unknown { error, .. }) => {
                self.failed(FailedAction::List, error)
            }
            (_, Answer::Done(_) | Answer::SessionEnded, _) => self.stopped(),
        }
    }

    fn listed(&mut self, found: &DataReply, names: &NameList) -> ResizeStep {
        for name in names {
            // A number that defines no order is only an error for contenders.
            if let Err(error @ LockError::MixedKinds { .. }) = self.profile.contender(name) {
                return Step::Done(Err(error));
            }
        }
        let is_pinned = names.into_iter().any(|name| name == PIN);
        let stored = Permits::decode(found.data.as_ref());
        if is_pinned && stored == Ok(Some(self.permits().count)) {
            Step::Done(Ok(()))
        } else {
            self.store(found.stat.version, is_pinned)
        }
    }

    /// Step 2.
    fn store(&mut self, version: Version, is_pinned: bool) -> ResizeStep {
        self.state = State::Writing { pins: !is_pinned };
        let path = self.pin();
        let pin = if is_pinned {
            MultiOp::Check(CheckRequest { path, version: Version::ANY })
        } else {
            MultiOp::Create(CreateRequest {
                path,
                data: Some(Bytes::new()),
                acl: self.profile.options.acl.clone(),
                mode: CreateMode::Persistent,
                with_stat: false,
            })
        };
        let write = MultiOp::SetData(SetDataRequest {
            path: self.profile.directory().clone(),
            data: Some(self.permits().encode()),
            version,
        });
        let operations = vec![Operation::new(Request::Multi(vec![pin, write]))];
        Step::Submit(flight(None, operations), Needs::Once(0))
    }

    fn make_directory(&mut self, view: SessionView) -> ResizeStep {
        self.state = State::MakingDirectory;
        let LockOptions { path: directory, acl, .. } = &self.profile.options;
        match self.directory.create(view.now, directory, &self.permits().encode(), acl) {
            Ok(operations) => Step::Submit(flight(None, operations), Needs::All),
            Err(failure) => Step::Done(Err(LockError::of(failure))),
        }
    }

    fn made_directory(&mut self, view: SessionView, answers: Answers) -> ResizeStep {
        match self.directory.created(self.profile.directory(), answers) {
            Round::Retry => self.read(),
            Round::Repeat => self.make_directory(view),
            Round::Failed(failure) => Step::Done(Err(LockError::of(failure))),
            Round::SessionEnded => self.stopped(),
        }
    }

    fn written(&mut self, view: SessionView, pins: bool, answers: Answers) -> ResizeStep {
        let [written] = answers.take();
        match written {
            Answer::Done(response) => match refused_operation(&response) {
                None => Step::Done(Ok(())),
                // Another client was faster, or the directory is gone.
                Some((_, ErrorCode::BAD_VERSION | ErrorCode::NO_NODE | ErrorCode::NODE_EXISTS)) => {
                    self.read()
                }
                Some((0, code)) if pins => {
                    let error = OpError::server(code);
                    Step::Done(Err(LockError::of(Failure::new(
                        FailedAction::Create,
                        self.pin(),
                        error,
                    ))))
                }
                Some((_, code)) => self.failed(FailedAction::Write, OpError::server(code)),
            },
            Answer::SessionEnded if view.has_expired => self.stopped(),
            // The barrier and the read behind it show what has become of it.
            Answer::SessionEnded | Answer::Unknown { is_final: false, .. } => self.read(),
            Answer::Refused(error) | Answer::Unknown { error, .. } => {
                self.failed(FailedAction::Write, error)
            }
        }
    }

    /// Fails because no session follows.
    fn stopped(&self) -> ResizeStep {
        self.failed(FailedAction::Write, OpError::session_expired(zk_session::Outcome::Unknown))
    }

    fn failed(&self, action: FailedAction, error: OpError) -> ResizeStep {
        Step::Done(Err(LockError::of(Failure::new(
            action,
            self.profile.directory().clone(),
            error,
        ))))
    }
}

impl Machine for Resize {
    type Output = Result<(), LockError>;

    fn start(&mut self, _: SessionView) -> ResizeStep {
        self.read()
    }

    fn handle(&mut self, view: SessionView, input: Input) -> ResizeStep {
        match (self.state, input) {
            (State::Reading, Input::Answered(answers)) => self.was_read(view, answers),
            (State::MakingDirectory, Input::Answered(answers)) => {
                self.made_directory(view, answers)
            }
            (State::Writing { pins }, Input::Answered(answers)) => {
                self.written(view, pins, answers)
            }
            (_, _) => Step::Wait(None),
        }
    }
}
