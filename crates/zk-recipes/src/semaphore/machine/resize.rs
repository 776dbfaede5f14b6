//! Changing the stored number of permits.
//!
//! 1. Read the directory, and test whether it has a pin. If it is missing, create it, with the number
//!    as its data.
//! 2. If it stores the number and has a pin, that is all. Otherwise write the number, provided that
//!    the data still has the version that was read, and create the pin, in one transaction.
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
    CreateMode, CreateRequest, ErrorCode, MultiOp, Request, Response, SetDataRequest,
};
use zk_session::recipe::{Operation, Reply};
use zk_session::{OpError, Version};

use crate::machine::directory::{Directory, Round};
use crate::machine::{
    FailedAction, Failure, Input, Machine, Pauses, SessionView, Step, Verdict, barrier, child,
    exists, flight, read, refused_operation, replayable, take, verdict,
};
use crate::queue::profile::{Permits, QueueProfile};

/// The name of the pin. It is not that of a contender of any recipe.
const PIN: &str = "permits-set";

type ResizeStep = Step<Result<(), Failure>>;

/// A change of the stored number of permits.
#[derive(Debug)]
pub struct Resize {
    profile: Arc<QueueProfile>,
    directory: Directory,
    pauses: Pauses,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Step 1 is in flight, behind the barrier of step 3.
    Reading,
    /// The directory is being created.
    MakingDirectory,
    /// Step 2 is in flight, and its first operation creates the pin.
    Writing { pins: bool },
    /// A server is overloaded; continue with 1 after a pause.
    Pausing,
}

impl Resize {
    /// Stores the number of permits in this profile.
    pub fn new(profile: Arc<QueueProfile>) -> Self {
        Self {
            profile,
            directory: Directory::default(),
            pauses: Pauses::default(),
            state: State::Reading,
        }
    }

    fn permits(&self) -> Permits {
        self.profile.permits.unwrap_or_default()
    }

    fn read(&mut self) -> ResizeStep {
        self.state = State::Reading;
        let directory = &self.profile.directory;
        let operations =
            vec![barrier(directory.clone()), read(directory.clone(), None), exists(self.pin())];
        Step::Submit(flight(None, operations))
    }

    fn pin(&self) -> ByteString {
        child(&self.profile.directory, PIN)
    }

    fn was_read(&mut self, view: SessionView, reply: Reply) -> ResizeStep {
        let [barrier, found, pin] = take(reply).map(replayable);
        let is_pinned = match pin {
            Verdict::Done(_) => true,
            Verdict::Refused(error) => !error.is_no_node(),
            Verdict::Later(error) => return self.pause(view, error, FailedAction::Check),
            Verdict::NotApplied | Verdict::Unknown | Verdict::SessionOver => {
                return self.again(view);
            }
        };
        match (barrier, found) {
            // A barrier that was refused was executed all the same.
            (Verdict::Done(_) | Verdict::Refused(_), Verdict::Done(Response::GetData(found))) => {
                let permits = self.permits();
                let is_stored = Permits::decode(found.data.as_ref()) == Ok(Some(permits.count));
                let version = (!is_stored).then_some(found.stat.version);
                if is_stored && is_pinned {
                    Step::Done(Ok(()))
                } else {
                    self.store(version, is_pinned)
                }
            }
            (
                Verdict::Done(_) | Verdict::Refused(_),
                Verdict::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }),
            ) => self.make_directory(view),
            (Verdict::Later(error), _) | (_, Verdict::Later(error)) => {
                self.pause(view, error, FailedAction::Read)
            }
            (_, Verdict::Refused(error)) => self.failed(FailedAction::Read, error),
            _ => self.again(view),
        }
    }

    /// Step 2. Writes the number if a version is given.
    fn store(&mut self, version: Option<Version>, is_pinned: bool) -> ResizeStep {
        self.state = State::Writing { pins: !is_pinned };
        let pin = CreateRequest {
            path: self.pin(),
            data: Some(Bytes::new()),
            acl: self.profile.acl.clone(),
            mode: CreateMode::Persistent,
            with_stat: false,
        };
        let write = version.map(|version| SetDataRequest {
            path: self.profile.directory.clone(),
            data: Some(self.permits().encode()),
            version,
        });
        let pin = (!is_pinned).then_some(MultiOp::Create(pin));
        let multi = pin.into_iter().chain(write.map(MultiOp::SetData)).collect();
        Step::Submit(flight(None, vec![Operation::new(Request::Multi(multi))]))
    }

    fn make_directory(&mut self, view: SessionView) -> ResizeStep {
        self.state = State::MakingDirectory;
        let QueueProfile { directory, acl, .. } = &*self.profile;
        match self.directory.create(view.now, directory, &self.permits().encode(), acl) {
            Ok(operations) => Step::Submit(flight(None, operations)),
            Err(failure) => Step::Done(Err(failure)),
        }
    }

    fn made_directory(&mut self, view: SessionView, reply: Reply) -> ResizeStep {
        match self.directory.created(&self.profile.directory, reply) {
            Round::Retry | Round::SessionOver => self.again(view),
            Round::Repeat => self.make_directory(view),
            Round::Failed(failure) => Step::Done(Err(failure)),
            Round::Later(error) => self.pause(view, error, FailedAction::Create),
        }
    }

    fn written(&mut self, view: SessionView, pins: bool, reply: Reply) -> ResizeStep {
        let [written] = take(reply);
        match verdict(written) {
            Verdict::Done(response) => match refused_operation(&response) {
                None => Step::Done(Ok(())),
                // Another client was faster, or the directory is gone.
                Some((_, ErrorCode::BAD_VERSION | ErrorCode::NO_NODE | ErrorCode::NODE_EXISTS)) => {
                    self.again(view)
                }
                Some((0, code)) if pins => {
                    let error = OpError::server(code);
                    Step::Done(Err(Failure::new(FailedAction::Create, self.pin(), error)))
                }
                Some((_, code)) => self.failed(FailedAction::Write, OpError::server(code)),
            },
            Verdict::NotApplied | Verdict::SessionOver => self.again(view),
            // The barrier and the read behind it show what has become of it.
            Verdict::Unknown => {
                self.state = State::Pausing;
                Step::Wait(self.pauses.begin(view))
            }
            Verdict::Later(error) => self.pause(view, error, FailedAction::Write),
            Verdict::Refused(error) => self.failed(FailedAction::Write, error),
        }
    }

    /// Continues with step 1, in whichever session is the next to be connected.
    fn again(&mut self, view: SessionView) -> ResizeStep {
        if view.has_stopped {
            let error = OpError::session_expired(zk_session::Outcome::Unknown);
            return self.failed(FailedAction::Write, error);
        }
        self.read()
    }

    fn pause(&mut self, view: SessionView, error: OpError, action: FailedAction) -> ResizeStep {
        if self.pauses.is_too_many(&error) {
            return self.failed(action, error);
        }
        self.state = State::Pausing;
        Step::Wait(self.pauses.begin(view))
    }

    fn failed(&self, action: FailedAction, error: OpError) -> ResizeStep {
        Step::Done(Err(Failure::new(action, self.profile.directory.clone(), error)))
    }
}

impl Machine for Resize {
    type Output = Result<(), Failure>;

    fn start(&mut self, _: SessionView) -> ResizeStep {
        self.read()
    }

    fn handle(&mut self, view: SessionView, input: Input) -> ResizeStep {
        match (self.state, input) {
            (State::Reading, Input::Reply(reply)) => self.was_read(view, reply),
            (State::MakingDirectory, Input::Reply(reply)) => self.made_directory(view, reply),
            (State::Writing { pins }, Input::Reply(reply)) => self.written(view, pins, reply),
            (State::Pausing, Input::Timer | Input::Suspended) => {
                self.pauses.end();
                self.read()
            }
            // The reply of a flight that is pending says what became of it.
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
