//! Finding out whether a round has counted a znode that its participant has lost.
//!
//! 1. Read the directory, and delete the znodes. A lost delete is issued again.
//! 2. Read the directory again. A server shows each client at least what it has answered to it before,
//!    so the read shows every round that was formed before the deletes. A deleted participant is not
//!    in any later list.
//!
//! The first read is for a znode that was still there: it kept the round that had counted it from
//! ending until then, and another round may be formed between the deletes and the second read.

use std::iter;

use bytestring::ByteString;
use jute_codec::{DataReply, Response};
use zk_session::OpError;

use crate::machine::{
    Answers, FailedAction, Failure, Input, Machine, Needs, SessionView, Step, child, delete,
    flight, read,
};

/// What the directory showed before the deletes and behind them.
#[derive(Debug)]
pub(crate) struct Surveyed {
    /// The directory before the deletes, or an older state of it; `None` if it was missing.
    pub(crate) before: Option<DataReply>,
    /// One of the deletes has deleted something.
    pub(crate) has_deleted: bool,
    /// The directory behind the deletes, or `None` if it is missing.
    pub(crate) behind: Option<DataReply>,
}

type First = (Option<DataReply>, bool);
type SurveyStep = Step<Result<Surveyed, Failure>>;

/// Deletes the znodes that a participant has lost, and reads the directory.
#[derive(Debug)]
pub(crate) struct Survey {
    directory: ByteString,
    names: Vec<ByteString>,
    /// The results of step 1: the directory, and whether something was deleted.
    first: Option<First>,
}

impl Survey {
    pub(crate) fn new(directory: ByteString, names: &[ByteString]) -> Self {
        Self { directory, names: names.to_vec(), first: None }
    }

    fn deleted(&mut self, answers: Answers) -> SurveyStep {
        let mut answers = answers.results.into_iter();
        let before = match answers.next().map(|answer| found(answer.response())) {
            Some(Ok(before)) => before,
            Some(Err(error)) => return self.failed(FailedAction::Read, error),
            None => None,
        };
        let mut has_deleted = false;
        for answer in answers {
            match answer.response() {
                Ok(_) => has_deleted = true,
                Err(error) if error.is_no_node() => {}
                Err(error) => return self.failed(FailedAction::Delete, error),
            }
        }
        self.first = Some((before, has_deleted));
        Step::Submit(flight(None, vec![read(self.directory.clone(), None)]), Needs::All)
    }

    fn was_read(&self, (before, has_deleted): First, answers: Answers) -> SurveyStep {
        let [answer] = answers.take();
        match found(answer.response()) {
            Ok(behind) => Step::Done(Ok(Surveyed { before, has_deleted, behind })),
            Err(error) => self.failed(FailedAction::Read, error),
        }
    }

    fn failed(&self, action: FailedAction, error: OpError) -> SurveyStep {
        Step::Done(Err(Failure::new(action, self.directory.clone(), error)))
    }
}

impl Machine for Survey {
    type Output = Result<Surveyed, Failure>;

    fn start(&mut self, _: SessionView) -> SurveyStep {
        let deletes = self.names.iter().map(|name| delete(child(&self.directory, name)));
        let operations = iter::once(read(self.directory.clone(), None)).chain(deletes);
        Step::Submit(flight(None, operations.collect()), Needs::Each)
    }

    fn handle(&mut self, _: SessionView, input: Input) -> SurveyStep {
        let Input::Answered(answers) = input else { return Step::Wait(None) };
        match self.first.take() {
            None => self.deleted(answers),
            Some(first) => self.was_read(first, answers),
        }
    }
}

/// Returns the directory that was read, or `None` if it is missing.
fn found(read: Result<Response, OpError>) -> Result<Option<DataReply>, OpError> {
    match read {
        Ok(Response::GetData(found)) => Ok(Some(found)),
        Err(error) if !error.is_no_node() => Err(error),
        Ok(_) | Err(_) => Ok(None),
    }
}
