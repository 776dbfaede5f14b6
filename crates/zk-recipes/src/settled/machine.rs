//! Reading behind a write barrier.

use bytestring::ByteString;
use jute_codec::Response;
use zk_session::recipe::Operation;

use crate::action::FailedAction;
use crate::machine::{Answers, Failure, Input, Machine, Needs, SessionView, Step, barrier, flight};

/// Reads once, in any session and across lost connections, and behind a write barrier if the caller
/// wants to see everything that was committed before.
#[derive(Debug)]
pub(crate) struct Look {
    path: ByteString,
    action: FailedAction,
    operation: Operation,
    has_barrier: bool,
}

impl Look {
    pub(crate) fn new(
        path: ByteString,
        action: FailedAction,
        operation: Operation,
        has_barrier: bool,
    ) -> Self {
        Self { path, action, operation, has_barrier }
    }
}

impl Machine for Look {
    /// The response; `None` if it was only asked whether the znode exists, and it does not.
    type Output = Result<Option<Response>, Failure>;

    fn start(&mut self, _: SessionView) -> Step<Self::Output> {
        let barrier = self.has_barrier.then(|| barrier(self.path.clone()));
        let operations = barrier.into_iter().chain([self.operation.clone()]).collect();
        // A read says nothing if a server has refused the barrier in front of it, so they are
        // repeated together.
        Step::Submit(flight(None, operations), Needs::All)
    }

    fn handle(&mut self, _: SessionView, input: Input) -> Step<Self::Output> {
        let Input::Answered(Answers { results, .. }) = input else { return Step::Wait(None) };
        let mut found = Ok(None);
        for answer in results {
            let is_missing = self.action == FailedAction::Check && answer.is_no_node();
            found = if is_missing { Ok(None) } else { answer.response().map(Some) };
            if found.is_err() {
                break;
            }
        }
        Step::Done(found.map_err(|error| Failure::new(self.action, self.path.clone(), error)))
    }
}
