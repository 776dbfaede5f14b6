//! Repeating a flight until no connection is lost on the way.

use zk_session::recipe::{Operation, Reply};
use zk_session::{OpError, SessionId};

use super::operation::flight;
use super::step::{Input, Machine, SessionView, Step};

/// Issues operations in one session until all of them have a reply. Use it only for operations that
/// may be issued any number of times.
#[derive(Debug)]
pub(crate) struct Replay {
    session: SessionId,
    operations: Vec<Operation>,
}

impl Replay {
    pub(crate) fn new(session: SessionId, operations: Vec<Operation>) -> Self {
        Self { session, operations }
    }
}

impl Machine for Replay {
    type Output = Reply;

    fn start(&mut self, _: SessionView) -> Step<Reply> {
        Step::Submit(flight(Some(self.session), self.operations.clone()))
    }

    fn handle(&mut self, view: SessionView, input: Input) -> Step<Reply> {
        let Input::Reply(reply) = input else { return Step::Wait(None) };
        let is_lost =
            |result: &Result<_, OpError>| result.as_ref().is_err_and(OpError::is_connection_loss);
        // If the session is over, the next flight fails for that reason, and not with a lost
        // connection.
        if reply.results.iter().any(is_lost) { self.start(view) } else { Step::Done(reply) }
    }
}
