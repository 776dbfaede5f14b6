//! Removing the znode of an exclusive lock, and never that of another holder.
//!
//! 1. If the create is still pending, wait for its reply.
//! 2. If we certainly hold the lock, delete the znode: no other contender can replace it while our
//!    session lives. This is true for the first delete only, because ZooKeeper has no "delete if it
//!    is mine".
//! 3. In case of any doubt (a lost connection, a guard that was lost or at risk), pass a write
//!    barrier and read the znode. Delete it only if it belongs to our session, and was created by
//!    our transaction, or has our id if the transaction is not known. Otherwise there is nothing to
//!    do.
//!
//! When the session ends, the removal ends too: the ensemble deletes our znode, and the next
//! session must not touch the znode of another holder.

use bytestring::ByteString;
use jute_codec::{DataReply, ErrorCode, Response};
use zk_session::{OpError, Outcome, SessionId, Zxid};

use super::id::AttemptId;
use crate::lock::outcome::{Released, Znode, is_created_by};
use crate::lock::recipe::LockRemoval;
use crate::machine::{
    Answer, Answers, Input, Machine, Needs, Refusal, Removal, SessionView, Step, barrier, delete,
    flight, read,
};

/// The removal of the znode that an attempt may have left.
#[derive(Clone, Debug)]
pub struct ExclusiveRemoval {
    path: ByteString,
    id: AttemptId,
    session: Option<SessionId>,
    /// The transaction that created the znode, once the attempt was granted.
    czxid: Option<Zxid>,
    /// The znode is certainly ours.
    is_certain: bool,
    /// The znode was certainly ours, but may no longer be.
    is_doubted: bool,
    /// A create may still take effect, or may have taken effect without our knowledge.
    is_tainted: bool,
    has_sent_delete: bool,
    replays: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Not started.
    Idle,
    /// Step 1: the flight with the create is pending.
    Draining,
    /// The delete is in flight.
    Deleting,
    /// Step 3 is in flight.
    Probing,
}

type RemovalStep = Step<Result<Released, Refusal>>;

impl ExclusiveRemoval {
    pub(crate) fn new(
        path: ByteString,
        id: AttemptId,
        session: Option<SessionId>,
        czxid: Option<Zxid>,
        is_tainted: bool,
    ) -> Self {
        Self {
            path,
            id,
            session,
            czxid,
            is_certain: czxid.is_some(),
            is_doubted: false,
            is_tainted,
            has_sent_delete: false,
            replays: 0,
            state: State::Idle,
        }
    }

    /// Records that the reply to the create of the attempt will be the first input.
    pub(crate) fn expect_create(&mut self) {
        self.state = State::Draining;
    }

    fn proceed(&mut self) -> RemovalStep {
        if self.is_certain {
            return self.delete();
        }
        if self.is_tainted || self.is_doubted {
            return self.probe();
        }
        self.done()
    }

    fn created(&mut self, answers: Answers) -> RemovalStep {
        self.session = self.session.or(answers.session);
        let [created, _look] = answers.take();
        match created {
            Answer::Done(Response::Create2(created)) => {
                self.czxid = Some(created.stat.czxid);
                self.is_certain = true;
            }
            Answer::SessionEnded => return ended_with_session(),
            Answer::Unknown { error, .. } => {
                self.is_tainted |= error.outcome() == Outcome::Unknown;
            }
            Answer::Done(_) | Answer::Refused(_) => {}
        }
        self.proceed()
    }

    fn delete(&mut self) -> RemovalStep {
        // A second delete could hit the znode of the next holder, so a read must precede it.
        self.is_certain = false;
        self.state = State::Deleting;
        Step::Submit(flight(self.session, vec![delete(self.path.clone())]), Needs::OneTry)
    }

    fn deleted(&mut self, answers: Answers) -> RemovalStep {
        let [deleted] = answers.take();
        match deleted {
            Answer::Done(_) => {
                self.has_sent_delete = true;
                self.done()
            }
            Answer::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }) => self.done(),
            Answer::Refused(error) => self.refused(error),
            Answer::SessionEnded => ended_with_session(),
            Answer::Unknown { error, .. } => {
                self.has_sent_delete |= error.outcome() == Outcome::Unknown;
                self.replays += 1;
                self.probe()
            }
        }
    }

    fn probe(&mut self) -> RemovalStep {
        self.state = State::Probing;
        let operations = vec![barrier(self.path.clone()), read(self.path.clone(), None)];
        Step::Submit(flight(self.session, operations), Needs::All)
    }

    fn probed(&mut self, answers: Answers) -> RemovalStep {
        self.session = self.session.or(answers.session);
        self.replays += answers.replays;
        let [barrier, look] = answers.take();
        match (barrier, look) {
            (Answer::SessionEnded, _) | (_, Answer::SessionEnded) => ended_with_session(),
            // Any definite result shows that the barrier was passed.
            (_, Answer::Done(Response::GetData(found))) if self.is_own(&found) => self.delete(),
            (_, Answer::Refused(error)) if !error.is_no_node() => self.refused(error),
            (_, Answer::Done(_) | Answer::Refused(_)) => self.done(),
            (_, Answer::Unknown { .. }) => self.probe(),
        }
    }

    /// Returns whether a znode that was read is ours. The transaction proves more than the id,
    /// which another client may have overwritten or copied. But after a lost create, we know only
    /// the id.
    fn is_own(&self, found: &DataReply) -> bool {
        let Some(session) = self.session else { return false };
        match self.czxid {
            Some(czxid) => is_created_by(found, session, czxid),
            None => self.id.is_in(session, found),
        }
    }

    fn done(&self) -> RemovalStep {
        Step::Done(Ok(if self.has_sent_delete {
            Released::Released
        } else {
            Released::AlreadyGone
        }))
    }

    fn refused(&self, error: OpError) -> RemovalStep {
        Step::Done(Err(Refusal { path: self.path.clone(), error }))
    }
}

impl Machine for ExclusiveRemoval {
    type Output = Result<Released, Refusal>;

    const GIVES_UP: bool = false;

    fn start(&mut self, _: SessionView) -> RemovalStep {
        if self.state == State::Draining {
            return Step::Wait(None);
        }
        self.proceed()
    }

    fn handle(&mut self, _: SessionView, input: Input) -> RemovalStep {
        match (self.state, input) {
            // While draining, the end of any session proves nothing: only the reply to the create
            // shows in which session it was sent.
            (State::Draining, Input::Answered(answers)) => self.created(answers),
            (State::Draining, _) => Step::Wait(None),
            (_, Input::Ended(session)) if self.session == Some(session) => ended_with_session(),
            (State::Deleting, Input::Answered(answers)) => self.deleted(answers),
            (State::Probing, Input::Answered(answers)) => self.probed(answers),
            (_, _) => Step::Wait(None),
        }
    }
}

impl Removal for ExclusiveRemoval {
    type Removed = Released;

    const REMOVED: &'static str = "the contender znode";

    fn retry(&mut self) {
        self.is_certain = false;
        self.is_doubted = true;
    }

    fn must_sweep_after(&self, released: &Released) -> Option<&ByteString> {
        // If the session has ended, the ensemble deletes whatever a lost create may have left.
        (self.is_tainted && *released != Released::EndedWithSession).then_some(&self.path)
    }

    fn sweep_again(&mut self) {
        self.retry();
        // The znode of that transaction is gone. A lost create takes effect in another one.
        self.czxid = None;
    }
}

impl LockRemoval for ExclusiveRemoval {
    fn doubt(&mut self) {
        self.is_doubted |= std::mem::take(&mut self.is_certain);
    }

    fn replays(&self) -> u64 {
        self.replays
    }

    fn path_of(&self, _: &Znode) -> ByteString {
        self.path.clone()
    }
}

fn ended_with_session() -> RemovalStep {
    Step::Done(Ok(Released::EndedWithSession))
}
