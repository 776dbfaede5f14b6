//! Removing an ephemeral znode with a unique name, which nobody needs any longer.
//!
//! 1. If the request that creates the znode is still pending, wait for its reply.
//! 2. If the znode exists or may exist, delete it. The delete is a write of the session that has
//!    created the znode, so it is its own barrier: after its reply, a lost create cannot create the
//!    znode any more. The name is unique, so the delete may be repeated any number of times.
//! 3. If the session ends, the znode has ended with it.

use bytestring::ByteString;
use jute_codec::{ErrorCode, Response};
use zk_session::recipe::Reply;
use zk_session::{OpError, Outcome, SessionId};

use super::failure::Failure;
use super::operation::{delete, flight, multi_refusal};
use super::pause::Pauses;
use super::step::{Input, Machine, SessionView, Step};
use super::verdict::{Verdict, replayable, take};
use crate::action::FailedAction;

/// A machine that may leave an ephemeral znode with a unique name.
pub(crate) trait Leaving: Machine {
    /// Returns the removal of the znode, if there may be one. If a flight is pending, the removal
    /// receives its reply, and the first operation of the flight creates the znode.
    fn abandon(self, is_pending: bool) -> Option<Remove>;
}

type RemoveStep = Step<Result<(), Failure>>;

/// The removal of a znode.
#[derive(Debug)]
pub(crate) struct Remove {
    path: ByteString,
    session: Option<SessionId>,
    /// The znode exists, or may exist.
    may_exist: bool,
    /// Step 1: the reply is pending.
    is_draining: bool,
    pauses: Pauses,
}

impl Remove {
    pub(crate) fn new(
        path: ByteString,
        session: Option<SessionId>,
        may_exist: bool,
        is_draining: bool,
    ) -> Self {
        Self { path, session, may_exist, is_draining, pauses: Pauses::default() }
    }

    /// Prepares another run after a refusal.
    pub(crate) fn retry(&mut self) {
        self.pauses.reset();
    }

    fn drained(&mut self, mut reply: Reply) -> RemoveStep {
        self.is_draining = false;
        self.session = self.session.or(reply.session);
        self.may_exist |= match reply.results.drain(..).next() {
            // A multi that was refused has created nothing.
            Some(Ok(response @ Response::Multi(_))) => multi_refusal(&response).is_none(),
            Some(Ok(_)) => true,
            Some(Err(error)) => error.outcome() == Outcome::Unknown,
            None => false,
        };
        self.delete()
    }

    fn delete(&mut self) -> RemoveStep {
        if !self.may_exist || self.session.is_none() {
            return Step::Done(Ok(()));
        }
        Step::Submit(flight(self.session, vec![delete(self.path.clone())]))
    }

    fn deleted(&mut self, view: SessionView, reply: Reply) -> RemoveStep {
        let [result] = take(reply).map(replayable);
        match result {
            Verdict::Done(_)
            | Verdict::SessionOver
            | Verdict::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {
                Step::Done(Ok(()))
            }
            Verdict::Refused(error) => self.failed(error),
            Verdict::Later(error) if self.pauses.is_too_many(&error) => self.failed(error),
            Verdict::Later(_) => Step::Wait(self.pauses.begin(view)),
            Verdict::NotApplied | Verdict::Unknown => self.delete(),
        }
    }

    fn failed(&self, error: OpError) -> RemoveStep {
        Step::Done(Err(Failure::new(FailedAction::Delete, self.path.clone(), error)))
    }
}

impl Machine for Remove {
    type Output = Result<(), Failure>;

    fn start(&mut self, _: SessionView) -> RemoveStep {
        if self.is_draining { Step::Wait(None) } else { self.delete() }
    }

    fn handle(&mut self, view: SessionView, input: Input) -> RemoveStep {
        match input {
            Input::Reply(reply) if self.is_draining => self.drained(reply),
            Input::Reply(reply) => self.deleted(view, reply),
            Input::Timer | Input::Suspended if self.pauses.end() => self.delete(),
            Input::Timer | Input::Suspended | Input::Ended(_) | Input::Watch { .. } => {
                Step::Wait(self.pauses.until())
            }
        }
    }
}
