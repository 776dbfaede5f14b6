//! Removing an ephemeral znode with a unique name, which nobody needs any longer.
//!
//! 1. If the request that creates the znode is still pending, wait for its reply.
//! 2. If the znode exists or may exist, delete it. The delete is a write of the session that has
//!    created the znode, so it is its own barrier: after its reply, a lost create cannot create the
//!    znode any more. The name is unique, so the delete may be repeated any number of times.
//! 3. If the session ends, the znode has ended with it.

use bytestring::ByteString;
use jute_codec::{ErrorCode, Response};
use zk_session::{OpError, Outcome, SessionId};

use super::answer::{Answer, Answers, Needs};
use super::leaving::{Refusal, Removal};
use super::operation::{delete, flight, multi_refusal};
use super::step::{Input, Machine, SessionView, Step};

type RemoveStep = Step<Result<(), Refusal>>;

/// The removal of a znode.
#[derive(Debug)]
pub(crate) struct Remove {
    path: ByteString,
    session: Option<SessionId>,
    /// The znode exists, or may exist.
    may_exist: bool,
    /// Step 1: the reply is pending.
    is_draining: bool,
}

impl Remove {
    pub(crate) fn new(
        path: ByteString,
        session: Option<SessionId>,
        may_exist: bool,
        is_draining: bool,
    ) -> Self {
        Self { path, session, may_exist, is_draining }
    }

    fn drained(&mut self, answers: Answers) -> RemoveStep {
        self.is_draining = false;
        self.session = self.session.or(answers.session);
        self.may_exist |= match answers.results.into_iter().next() {
            // A multi that was refused has created nothing.
            Some(Answer::Done(response @ Response::Multi(_))) => multi_refusal(&response).is_none(),
            Some(Answer::Done(_)) => true,
            Some(Answer::Unknown { error, .. }) => error.outcome() == Outcome::Unknown,
            Some(Answer::Refused(_) | Answer::SessionEnded) | None => false,
        };
        self.delete()
    }

    fn delete(&mut self) -> RemoveStep {
        if !self.may_exist || self.session.is_none() {
            return Step::Done(Ok(()));
        }
        let operations = vec![delete(self.path.clone())];
        Step::Submit(flight(self.session, operations), Needs::All)
    }

    fn deleted(&self, answers: Answers) -> RemoveStep {
        let [deleted] = answers.take();
        match deleted {
            Answer::Done(_)
            | Answer::SessionEnded
            | Answer::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {
                Step::Done(Ok(()))
            }
            Answer::Refused(error) | Answer::Unknown { error, .. } => self.failed(error),
        }
    }

    fn failed(&self, error: OpError) -> RemoveStep {
        Step::Done(Err(Refusal { path: self.path.clone(), error }))
    }
}

impl Machine for Remove {
    type Output = Result<(), Refusal>;

    fn start(&mut self, _: SessionView) -> RemoveStep {
        if self.is_draining { Step::Wait(None) } else { self.delete() }
    }

    fn handle(&mut self, _: SessionView, input: Input) -> RemoveStep {
        let Input::Answered(answers) = input else { return Step::Wait(None) };
        if self.is_draining { self.drained(answers) } else { self.deleted(answers) }
    }
}

impl Removal for Remove {
    type Removed = ();

    const REMOVED: &'static str = "a znode of a recipe";
}
