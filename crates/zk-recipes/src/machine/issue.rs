//! Issuing operations of one session.

use zk_session::SessionId;
use zk_session::recipe::Operation;

use super::answer::{Answers, Needs};
use super::operation::flight;
use super::step::{Input, Machine, SessionView, Step};

/// Issues operations that may be issued any number of times, in one session, until all of them have a
/// result.
#[derive(Debug)]
pub(crate) struct Issue {
    session: SessionId,
    operations: Vec<Operation>,
}

impl Issue {
    pub(crate) fn new(session: SessionId, operations: Vec<Operation>) -> Self {
        Self { session, operations }
    }
}

impl Machine for Issue {
    type Output = Answers;

    fn start(&mut self, _: SessionView) -> Step<Answers> {
        let operations = std::mem::take(&mut self.operations);
        Step::Submit(flight(Some(self.session), operations), Needs::All)
    }

    fn handle(&mut self, _: SessionView, input: Input) -> Step<Answers> {
        let Input::Answered(answers) = input else { return Step::Wait(None) };
        Step::Done(answers)
    }
}
