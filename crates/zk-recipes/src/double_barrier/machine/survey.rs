//! Finding out whether a round has counted a znode that its participant has lost.
//!
//! 1. Delete the znodes. A lost delete is issued again.
//! 2. Read the directory. A server shows each client at least what it has answered to it before, so
//!    the read shows every round that was formed before the deletes. A deleted participant is not in
//!    any later list.

use bytestring::ByteString;
use jute_codec::{DataReply, Response};
use zk_session::OpError;

use crate::machine::{
    Answers, FailedAction, Failure, Input, Machine, Needs, SessionView, Step, child, delete,
    flight, read,
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
    /// The results of step 1.
    has_deleted: Option<bool>,
}

impl Survey {
    pub(crate) fn new(directory: ByteString, names: &[ByteString]) -> Self {
        Self { directory, names: names.to_vec(), has_deleted: None }
    }

    fn deleted(&mut self, answers: Answers) -> SurveyStep {
        let mut has_deleted = false;
        for answer in answers.results {
            match answer.response() {
                Ok(_) => has_deleted = true,
                Err(error) if error.is_no_node() => {}
                Err(error) => return self.failed(FailedAction::Delete, error),
            }
        }
        self.has_deleted = Some(has_deleted);
        Step::Submit(flight(None, vec![read(self.directory.clone(), None)]), Needs::All)
    }

    fn was_read(&self, has_deleted: bool, answers: Answers) -> SurveyStep {
        let [found] = answers.take();
        let directory = match found.response() {
            Ok(Response::GetData(found)) => Some(found),
            Err(error) if !error.is_no_node() => return self.failed(FailedAction::Read, error),
            Ok(_) | Err(_) => None,
        };
        Step::Done(Ok(Surveyed { has_deleted, directory }))
    }

    fn failed(&self, action: FailedAction, error: OpError) -> SurveyStep {
        Step::Done(Err(Failure::new(action, self.directory.clone(), error)))
    }
}

impl Machine for Survey {
    type Output = Result<Surveyed, Failure>;

    fn start(&mut self, _: SessionView) -> SurveyStep {
        let deletes = self.names.iter().map(|name| delete(child(&self.directory, name)));
        Step::Submit(flight(None, deletes.collect()), Needs::Each)
    }

    fn handle(&mut self, _: SessionView, input: Input) -> SurveyStep {
        let Input::Answered(answers) = input else { return Step::Wait(None) };
        match self.has_deleted {
            None => self.deleted(answers),
            Some(has_deleted) => self.was_read(has_deleted, answers),
        }
    }
}
