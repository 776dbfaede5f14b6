//! Changing the stored number of permits.
//!
//! 1. Read the directory. If it is missing, create it, with the number as its data.
//! 2. If it stores the number, that is all. Otherwise write the number, provided that the data still
//!    has the version that was read.
//! 3. If another client was faster, or the connection was lost, pass a write barrier and continue
//!    with 1. After the barrier the lost write has been applied, or never will be: it cannot
//!    overwrite a number that another client stores later.

use std::sync::Arc;

use jute_codec::{ErrorCode, Response};
use zk_session::OpError;
use zk_session::recipe::Reply;

use crate::machine::directory::{Directory, Round};
use crate::machine::{
    FailedAction, Failure, Input, Machine, Pauses, SessionView, Step, Verdict, barrier, flight,
    read, replayable, take, verdict, write,
};
use crate::queue::profile::{Permits, QueueProfile};

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
    /// Step 2 is in flight.
    Writing,
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
        let operations = vec![barrier(directory.clone()), read(directory.clone(), None)];
        Step::Submit(flight(None, operations))
    }

    fn was_read(&mut self, view: SessionView, reply: Reply) -> ResizeStep {
        let [barrier, found] = take(reply).map(replayable);
        match (barrier, found) {
            // A barrier that was refused was executed all the same.
            (Verdict::Done(_) | Verdict::Refused(_), Verdict::Done(Response::GetData(found))) => {
                let permits = self.permits();
                if Permits::decode(found.data.as_ref()) == Ok(Some(permits.count)) {
                    return Step::Done(Ok(()));
                }
                self.state = State::Writing;
                let directory = self.profile.directory.clone();
                let operation = write(directory, permits.encode(), found.stat.version);
                Step::Submit(flight(None, vec![operation]))
            }
            (
                Verdict::Done(_) | Verdict::Refused(_),
                Verdict::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }),
            ) => self.make_directory(),
            (Verdict::Later(error), _) | (_, Verdict::Later(error)) => {
                self.pause(view, error, FailedAction::Read)
            }
            (_, Verdict::Refused(error)) => self.failed(FailedAction::Read, error),
            _ => self.again(view),
        }
    }

    fn make_directory(&mut self) -> ResizeStep {
        self.state = State::MakingDirectory;
        let QueueProfile { directory, acl, .. } = &*self.profile;
        match self.directory.create(directory, &self.permits().encode(), acl) {
            Ok(operations) => Step::Submit(flight(None, operations)),
            Err(failure) => Step::Done(Err(failure)),
        }
    }

    fn made_directory(&mut self, view: SessionView, reply: Reply) -> ResizeStep {
        match self.directory.created(&self.profile.directory, reply) {
            Round::Retry | Round::SessionOver => self.again(view),
            Round::Repeat => self.make_directory(),
            Round::Failed(failure) => Step::Done(Err(failure)),
            Round::Later(error) => self.pause(view, error, FailedAction::Create),
        }
    }

    fn written(&mut self, view: SessionView, reply: Reply) -> ResizeStep {
        let [written] = take(reply);
        match verdict(written) {
            Verdict::Done(_) => Step::Done(Ok(())),
            Verdict::Refused(OpError::Server {
                code: ErrorCode::BAD_VERSION | ErrorCode::NO_NODE,
                ..
            })
            | Verdict::NotApplied
            | Verdict::SessionOver => self.again(view),
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
            (State::Writing, Input::Reply(reply)) => self.written(view, reply),
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
