//! Finding out whether a round has counted a znode that its participant has lost.
//!
//! In one flight, delete the znodes, and read the directory. The deletes are writes of the same
//! session, so the read shows every round that was formed before them. A deleted participant is not
//! in any later list.

use bytestring::ByteString;
use jute_codec::{DataReply, Response};
use zk_session::recipe::Reply;
use zk_session::{OpError, Outcome};

use crate::machine::{
    FailedAction, Failure, Input, Machine, Pauses, SessionView, Step, Verdict, child, delete,
    flight, read, replayable,
};

/// What the directory showed behind the deletes.
#[derive(Debug)]
pub(crate) struct Surveyed {
    /// One of the deletes has deleted something.
    pub(crate) has_deleted: bool,
    /// The directory, or `None` if it is missing.
    pub(crate) directory: Option<DataReply>,
}

type SurveyStep = Step<Result<Surveyed, Failure>>;

/// Deletes the znodes that a participant has lost, and reads the directory.
#[derive(Debug)]
pub(crate) struct Survey {
    directory: ByteString,
    names: Vec<ByteString>,
    has_deleted: bool,
    pauses: Pauses,
}

impl Survey {
    pub(crate) fn new(directory: ByteString, names: &[ByteString]) -> Self {
        let names = names.to_vec();
        Self { directory, names, has_deleted: false, pauses: Pauses::default() }
    }

    fn send(&self) -> SurveyStep {
        let mut operations: Vec<_> =
            self.names.iter().map(|name| delete(child(&self.directory, name))).collect();
        operations.push(read(self.directory.clone(), None));
        Step::Submit(flight(None, operations))
    }

    fn replied(&mut self, view: SessionView, reply: Reply) -> SurveyStep {
        let mut results = reply.results;
        let lost = || Err(OpError::connection_loss(Outcome::Unknown));
        let found = replayable(results.pop().unwrap_or_else(lost));
        let mut is_lost = false;
        for deleted in results {
            match replayable(deleted) {
                Verdict::Done(_) => self.has_deleted = true,
                Verdict::Refused(error) if error.is_no_node() => {}
                Verdict::Refused(error) => return self.failed(FailedAction::Delete, error),
                Verdict::Later(error) => return self.later(view, FailedAction::Delete, error),
                Verdict::SessionOver if view.has_stopped => return self.stopped(),
                Verdict::NotApplied | Verdict::Unknown | Verdict::SessionOver => is_lost = true,
            }
        }
        match found {
            _ if is_lost => self.send(),
            Verdict::Done(Response::GetData(found)) => self.surveyed(Some(found)),
            Verdict::Refused(error) if error.is_no_node() => self.surveyed(None),
            Verdict::Refused(error) => self.failed(FailedAction::Read, error),
            Verdict::Later(error) => self.later(view, FailedAction::Read, error),
            Verdict::SessionOver if view.has_stopped => self.stopped(),
            Verdict::Done(_) | Verdict::NotApplied | Verdict::Unknown | Verdict::SessionOver => {
                self.send()
            }
        }
    }

    fn surveyed(&self, directory: Option<DataReply>) -> SurveyStep {
        Step::Done(Ok(Surveyed { has_deleted: self.has_deleted, directory }))
    }

    fn later(&mut self, view: SessionView, action: FailedAction, error: OpError) -> SurveyStep {
        if self.pauses.is_too_many(&error) {
            return self.failed(action, error);
        }
        Step::Wait(self.pauses.begin(view))
    }

    /// Fails because there will be no other session, so every later flight would fail at once.
    fn stopped(&self) -> SurveyStep {
        self.failed(FailedAction::Read, OpError::session_expired(Outcome::NotApplied))
    }

    fn failed(&self, action: FailedAction, error: OpError) -> SurveyStep {
        Step::Done(Err(Failure::new(action, self.directory.clone(), error)))
    }
}

impl Machine for Survey {
    type Output = Result<Surveyed, Failure>;

    fn start(&mut self, _: SessionView) -> SurveyStep {
        self.send()
    }

    fn handle(&mut self, view: SessionView, input: Input) -> SurveyStep {
        match input {
            Input::Reply(reply) => self.replied(view, reply),
            Input::Timer | Input::Suspended if self.pauses.end() => self.send(),
            Input::Timer | Input::Suspended | Input::Ended(_) | Input::Watch { .. } => {
                Step::Wait(self.pauses.until())
            }
        }
    }
}
