//! Acknowledging an item: deleting it, provided that its lease is still ours.
//!
//! 1. In one multi, check that the lease exists, and delete the item. The multi belongs to the
//!    session that created the lease: in this session, nobody but an administrator deletes the
//!    lease before this machine has ended.
//!    - Applied: the item is acknowledged.
//!    - The lease is missing: it is lost. Continue with 2 if an earlier multi may have been applied.
//!    - The item is missing although the lease exists: if an earlier multi may have been applied,
//!      it was, because nobody else acknowledges the item while we have the lease. Otherwise
//!      somebody has deleted the item by hand.
//!    - Not applied, or the outcome is unknown: repeat this step.
//!    - The session is over, and so is the lease. Continue with 2 if an earlier multi may have been
//!      applied.
//! 2. In the current session, pass a write barrier and look for the item. If it exists, our multi
//!    was not applied and never will be. If it is gone, our multi has deleted it, or another taker
//!    has acknowledged it in the meantime: this cannot be decided.
//!
//! The lease is deleted after the multi and not by it. So the lease decides what an unknown outcome
//! was, as the marker of a put does. Between the two writes, the lease excludes others from an item
//! that does not exist. If the client ends there, the lease ends with its session.

use std::sync::Arc;

use jute_codec::{CheckRequest, DeleteRequest, ErrorCode, MultiOp, MultiResult, Request, Response};
use zk_session::recipe::{Operation, Reply};
use zk_session::{OpError, Outcome, SessionId, Version, Zxid};

use crate::lock::error::LostReason;
use crate::machine::{
    FailedAction, Failure, Input, Machine, Pauses, SessionView, Step, Verdict, barrier, exists,
    flight, replayable, take, verdict,
};
use crate::work_queue::layout::{ItemName, Layout};

type AckStep = Step<Result<Acked, Failure>>;

/// How an acknowledgement ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Acked {
    /// The item was deleted while the lease was ours.
    Done,
    /// Somebody else has deleted the item while the lease was ours.
    ItemGone,
    /// The item was not deleted, because the lease was lost.
    Lost(LostReason),
    /// The lease was lost and the item is gone. It is not known which taker has deleted the item.
    Unknown,
}

/// The acknowledgement of an item.
#[derive(Clone, Debug)]
pub(crate) struct AckMachine {
    layout: Arc<Layout>,
    item: ItemName,
    /// The transaction that created the item.
    czxid: Zxid,
    session: SessionId,
    /// A multi may have been applied.
    is_undecided: bool,
    /// Why the lease is lost, if it is.
    lost: Option<LostReason>,
    pauses: Pauses,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Step 1 is in flight.
    Deleting,
    /// Step 2 is in flight.
    Looking,
    /// A server is overloaded; continue after a pause.
    Pausing,
}

impl AckMachine {
    pub(crate) fn new(
        layout: Arc<Layout>,
        item: ItemName,
        czxid: Zxid,
        session: SessionId,
    ) -> Self {
        Self {
            layout,
            item,
            czxid,
            session,
            is_undecided: false,
            lost: None,
            pauses: Pauses::default(),
            state: State::Deleting,
        }
    }

    /// Step 1.
    fn delete(&mut self) -> AckStep {
        self.state = State::Deleting;
        let version = Version::ANY;
        let multi = vec![
            MultiOp::Check(CheckRequest { path: self.layout.lease(&self.item), version }),
            MultiOp::Delete(DeleteRequest { path: self.layout.item(&self.item), version }),
        ];
        Step::Submit(flight(Some(self.session), vec![Operation::new(Request::Multi(multi))]))
    }

    fn deleted(&mut self, view: SessionView, reply: Reply) -> AckStep {
        let [deleted] = take(reply);
        let is_connection_lost = matches!(&deleted, Err(error) if error.is_connection_loss());
        match verdict(deleted) {
            Verdict::Done(Response::Multi(results)) => match &results[..] {
                [MultiResult::Error(ErrorCode::NO_NODE), ..] => self.lose(LostReason::ZnodeDeleted),
                [MultiResult::Error(ErrorCode::OK), MultiResult::Error(ErrorCode::NO_NODE)] => {
                    Step::Done(Ok(if self.is_undecided { Acked::Done } else { Acked::ItemGone }))
                }
                [MultiResult::Error(ErrorCode::OK), MultiResult::Error(code)] => {
                    self.failed(FailedAction::Delete, OpError::server(*code))
                }
                [MultiResult::Error(code), ..] => {
                    self.failed(FailedAction::Check, OpError::server(*code))
                }
                _ => Step::Done(Ok(Acked::Done)),
            },
            Verdict::Refused(error) => self.failed(FailedAction::Delete, error),
            Verdict::Later(error) => self.pause(view, error),
            Verdict::NotApplied => self.delete(),
            Verdict::SessionOver => self.lose(LostReason::SessionExpired),
            Verdict::Done(_) | Verdict::Unknown => {
                self.is_undecided = true;
                if is_connection_lost {
                    return self.delete();
                }
                // Give a server that failed time to recover.
                self.pause(view, OpError::connection_loss(Outcome::Unknown))
            }
        }
    }

    fn lose(&mut self, reason: LostReason) -> AckStep {
        self.lost = Some(reason);
        if self.is_undecided { self.look() } else { Step::Done(Ok(Acked::Lost(reason))) }
    }

    /// Step 2.
    fn look(&mut self) -> AckStep {
        self.state = State::Looking;
        let path = self.layout.item(&self.item);
        Step::Submit(flight(None, vec![barrier(path.clone()), exists(path)]))
    }

    fn looked(&mut self, view: SessionView, reply: Reply) -> AckStep {
        let [barrier, item] = take(reply).map(replayable);
        match (barrier, item) {
            (Verdict::Later(error), _) | (_, Verdict::Later(error)) => self.pause(view, error),
            // A barrier that was refused was executed all the same.
            (Verdict::Done(_) | Verdict::Refused(_), Verdict::Done(Response::Exists(stat))) => {
                Step::Done(Ok(match self.lost {
                    Some(reason) if stat.czxid == self.czxid => Acked::Lost(reason),
                    // An item of a directory that was deleted and created again.
                    _ => Acked::Unknown,
                }))
            }
            (Verdict::Done(_) | Verdict::Refused(_), Verdict::Refused(error)) => {
                if error.is_no_node() {
                    return Step::Done(Ok(Acked::Unknown));
                }
                self.failed(FailedAction::Check, error)
            }
            _ if view.has_stopped => Step::Done(Ok(Acked::Unknown)),
            _ => self.look(),
        }
    }

    fn pause(&mut self, view: SessionView, error: OpError) -> AckStep {
        if self.pauses.is_too_many(&error) {
            return if self.is_undecided {
                Step::Done(Ok(Acked::Unknown))
            } else {
                self.failed(FailedAction::Delete, error)
            };
        }
        self.state = State::Pausing;
        Step::Wait(self.pauses.begin(view.now))
    }

    fn failed(&self, action: FailedAction, error: OpError) -> AckStep {
        if self.is_undecided {
            return Step::Done(Ok(Acked::Unknown));
        }
        let path = if action == FailedAction::Check {
            self.layout.lease(&self.item)
        } else {
            self.layout.item(&self.item)
        };
        Step::Done(Err(Failure::new(action, path, error)))
    }
}

impl Machine for AckMachine {
    type Output = Result<Acked, Failure>;

    fn start(&mut self, _: SessionView) -> AckStep {
        self.delete()
    }

    fn handle(&mut self, view: SessionView, input: Input) -> AckStep {
        match (self.state, input) {
            (State::Deleting, Input::Reply(reply)) => self.deleted(view, reply),
            (State::Looking, Input::Reply(reply)) => self.looked(view, reply),
            (State::Pausing, Input::Timer) => {
                self.pauses.end();
                if self.lost.is_some() { self.look() } else { self.delete() }
            }
            // The reply to the pending flight will show its outcome.
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
