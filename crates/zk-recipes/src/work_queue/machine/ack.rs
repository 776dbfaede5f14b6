//! Acknowledging an item: deleting it, provided that its lease is still ours.
//!
//! # Why a name and a lease prove too little
//!
//! `entries` is a container. Servers remove it once it is empty, and the items of the next one are
//! numbered from 0 again. So another item may have the name of ours, while our lease still exists:
//! when a delete is repeated whose first reply was lost, and also before the first delete, if
//! somebody has deleted our item by hand. Its version is that of ours too. So the proof has to be a
//! znode that only our item can have: a *pin*, which is a child of the item with a unique name.
//! A znode with children cannot be deleted, so while the pin exists, the item is the same one.
//!
//! # Algorithm
//!
//! 1. In one flight, create the pin as an ephemeral child of the item, and read the metadata of the
//!    item and of the lease. The flight belongs to the session that created the lease.
//!    - The lease is missing or another one: it is lost. If the item is missing as well, and an earlier
//!      multi may have been applied, this cannot be decided: somebody deletes znodes by hand.
//!    - The item is missing or another one: an earlier multi was applied, or somebody has deleted ours
//!      by hand.
//!    - Not applied, or the outcome is unknown: repeat this step. The name of the pin is unique.
//! 2. In one multi of the same session, delete the pin, check that the lease exists, and delete the
//!    item.
//!    - Applied: the item is acknowledged.
//!    - The pin is missing: somebody has deleted it by hand. Continue with 1.
//!    - The lease is missing: it is lost, and no earlier multi was applied.
//!    - The item has other children: the pin of an earlier taker that is about to be removed, or a
//!      znode that is not ours. Continue with 1 for a few seconds, then fail.
//!    - Not applied, or the outcome is unknown: continue with 1, since the client may have lost the
//!      lease and deleted it, and another taker may have one under the same name. If the lease is ours
//!      and the item is gone then, this multi was applied.
//!    - The lease has a limit, which has passed: it is lost. The client deletes it then, and never
//!      sends a multi after that, which would find the lease of another taker under the same name.
//!    - The session has ended, and so has the lease. Continue with 3 if an earlier multi may have been
//!      applied.
//! 3. In the current session, delete the pin, pass a write barrier and look for the item. Without its
//!    pin, our multi fails, even if a server has swapped the session (`EndCause::Swapped`) and the
//!    multi is still on its way. So if the item exists, the multi was not applied and never will be.
//!    If it is gone, our multi has deleted it, or another taker has acknowledged it in the meantime:
//!    this cannot be decided.
//! 4. If the acknowledgement ends in another way than with success, or is dropped, the janitor deletes
//!    the pin, and then the lease.
//!
//! The multi checks the lease by its name. So from the first step until the pin is gone, the client does
//! not delete the lease, even if it is lost: its session may live, the caller may be polled late, and
//! the next taker's lease has the same name. Only the limit of a lease ends that earlier, after which
//! the multi is not sent. If somebody deletes the lease by hand, the next taker deletes the pin.
//!
//! The lease is deleted after the multi and not by it: it excludes other takers until the pin is
//! gone too. If the client ends before, both end with its session.

use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{
    CheckRequest, CreateMode, DeleteRequest, ErrorCode, MultiOp, Request, Response, Stat,
};
use zk_session::recipe::{Flight, Operation};
use zk_session::{OpError, Outcome, SessionId, Time, Version, Zxid};

use crate::lock::error::LostReason;
use crate::machine::{
    Answer, Answers, FailedAction, Failure, Input, Leaving, Machine, Needs, Remove, SessionView,
    Step, barrier, create, delete, exists, flight, refused_operation,
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
    /// The transaction that created the lease.
    lease_czxid: Zxid,
    session: SessionId,
    /// When the client gives the lease back, if it has a limit.
    ends_at: Option<Time>,
    pin: ByteString,
    /// The pin exists, or may exist.
    is_pinned: bool,
    /// A multi may have been applied.
    is_undecided: bool,
    /// Why the lease is lost, if it is.
    lost: Option<LostReason>,
    /// Number of times that the item had the pins of others.
    blocked: u8,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Step 1 is in flight.
    Pinning,
    /// Step 2 is in flight.
    Deleting,
    /// Step 3 is in flight.
    Looking,
}

/// The operations of the multi of step 2.
const DELETE_PIN: usize = 0;
const CHECK_LEASE: usize = 1;

/// How often the item may have pins of others before the acknowledgement fails. Each time is followed
/// by a pause, which adds up to about 20 s.
const BLOCKED_MAX: u8 = 8;

impl AckMachine {
    /// Creates the acknowledgement of an item that was created by the transaction `czxid`, with a
    /// lease that was created by the transaction `lease_czxid` of this session. The id is unique. The
    /// lease has to exist, and to be this one, until `ends_at`.
    pub(crate) fn new(
        layout: Arc<Layout>,
        id: u128,
        (item, czxid): (ItemName, Zxid),
        (session, lease_czxid): (SessionId, Zxid),
        ends_at: Option<Time>,
    ) -> Self {
        Self {
            pin: layout.pin(&item, id),
            layout,
            item,
            czxid,
            lease_czxid,
            session,
            ends_at,
            is_pinned: false,
            is_undecided: false,
            lost: None,
            blocked: 0,
            state: State::Pinning,
        }
    }

    /// Step 1. Because the name of the pin is unique, a lost create is issued again.
    fn pin(&mut self) -> AckStep {
        let (flight, needs) = self.pinning();
        Step::Submit(flight, needs)
    }

    fn pinning(&mut self) -> (Flight, Needs) {
        self.state = State::Pinning;
        // A lost create may have been applied.
        self.is_pinned = true;
        let acl = self.layout.acl.clone();
        let operations = vec![
            create(self.pin.clone(), Bytes::new(), acl, CreateMode::Ephemeral),
            exists(self.layout.item(&self.item)),
            exists(self.layout.lease(&self.item)),
        ];
        (flight(Some(self.session), operations), Needs::All)
    }

    fn pinned(&mut self, answers: Answers) -> AckStep {
        let [created, item, lease] = answers.take();
        let has_item = match created {
            Answer::Done(_)
            | Answer::Refused(OpError::Server { code: ErrorCode::NODE_EXISTS, .. }) => true,
            Answer::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {
                self.is_pinned = false;
                false
            }
            Answer::Refused(error) | Answer::Unknown { error, .. } => {
                return self.failed(FailedAction::Create, error);
            }
            Answer::SessionEnded => return self.lose(LostReason::SessionExpired),
        };
        if matches!((&item, &lease), (Answer::SessionEnded, _) | (_, Answer::SessionEnded)) {
            return self.lose(LostReason::SessionExpired);
        }
        match (is_created_by(&lease, self.lease_czxid), has_item) {
            (Err(error), _) => self.failed(FailedAction::Check, error),
            // Our multi deletes the item, and nobody who has the lease deletes the pin.
            (Ok(true), false) if self.is_undecided => Step::Done(Ok(Acked::Done)),
            // Our multi has deleted the item, or somebody has deleted lease, pin and item by hand.
            (Ok(false), false) if self.is_undecided => Step::Done(Ok(Acked::Unknown)),
            (Ok(false), _) => self.lose(LostReason::ZnodeDeleted),
            (Ok(true), false) => Step::Done(Ok(Acked::ItemGone)),
            (Ok(true), true) => match is_created_by(&item, self.czxid) {
                Err(error) => self.failed(FailedAction::Check, error),
                Ok(false) if self.is_undecided => Step::Done(Ok(Acked::Done)),
                Ok(false) => Step::Done(Ok(Acked::ItemGone)),
                Ok(true) => {
                    // The item exists, so no earlier multi was applied.
                    self.is_undecided = false;
                    self.delete()
                }
            },
        }
    }

    /// Step 2.
    fn delete(&mut self) -> AckStep {
        self.state = State::Deleting;
        let version = Version::ANY;
        let multi = vec![
            MultiOp::Delete(DeleteRequest { path: self.pin.clone(), version }),
            MultiOp::Check(CheckRequest { path: self.layout.lease(&self.item), version }),
            MultiOp::Delete(DeleteRequest { path: self.layout.item(&self.item), version }),
        ];
        let multi = flight(Some(self.session), vec![Operation::new(Request::Multi(multi))]);
        // A multi that is not sent by then would find the lease of another taker.
        Step::Submit(Flight { deadline: self.ends_at, ..multi }, Needs::OneTry)
    }

    fn deleted(&mut self, answers: Answers) -> AckStep {
        let [deleted] = answers.take();
        match deleted {
            Answer::Done(response) => match refused_operation(&response) {
                None => self.done(),
                Some((DELETE_PIN, ErrorCode::NO_NODE)) => self.pin(),
                Some((DELETE_PIN, code)) => {
                    self.failed_at(FailedAction::Delete, self.pin.clone(), OpError::server(code))
                }
                Some((at, code)) => {
                    // The pin exists, so no earlier multi was applied.
                    self.is_undecided = false;
                    match (at, code) {
                        (CHECK_LEASE, ErrorCode::NO_NODE) => self.lose(LostReason::ZnodeDeleted),
                        (CHECK_LEASE, _) => self.failed(FailedAction::Check, OpError::server(code)),
                        (_, ErrorCode::NOT_EMPTY) if self.blocked < BLOCKED_MAX => {
                            self.blocked += 1;
                            let (flight, needs) = self.pinning();
                            Step::SubmitLater(flight, needs)
                        }
                        _ => self.failed(FailedAction::Delete, OpError::server(code)),
                    }
                }
            },
            Answer::Refused(OpError::TimedOut { .. }) => self.lose(LostReason::HeldTooLong),
            Answer::Refused(error) => self.failed(FailedAction::Delete, error),
            Answer::SessionEnded => self.lose(LostReason::SessionExpired),
            Answer::Unknown { error, is_final } => {
                self.is_undecided |= error.outcome() == Outcome::Unknown;
                if is_final {
                    return self.failed(FailedAction::Delete, error);
                }
                // Step 2 is never repeated without step 1: the client may have lost the lease and
                // deleted it since, and the multi would take the lease of the next taker for ours.
                self.pin()
            }
        }
    }

    fn done(&mut self) -> AckStep {
        self.is_pinned = false;
        Step::Done(Ok(Acked::Done))
    }

    fn lose(&mut self, reason: LostReason) -> AckStep {
        self.lost = Some(reason);
        if self.is_undecided { self.look() } else { Step::Done(Ok(Acked::Lost(reason))) }
    }

    /// Step 3.
    fn look(&mut self) -> AckStep {
        self.state = State::Looking;
        let path = self.layout.item(&self.item);
        let operations = vec![delete(self.pin.clone()), barrier(path.clone()), exists(path)];
        Step::Submit(flight(None, operations), Needs::All)
    }

    fn looked(&mut self, answers: Answers) -> AckStep {
        let [unpinned, _barrier, item] = answers.take();
        match unpinned.response() {
            Err(error) if !error.is_no_node() => return self.failed(FailedAction::Delete, error),
            Ok(_) | Err(_) => self.is_pinned = false,
        }
        match item {
            Answer::Done(Response::Exists(stat)) => Step::Done(Ok(match self.lost {
                Some(reason) if stat.czxid == self.czxid => Acked::Lost(reason),
                // Another item with the same name.
                _ => Acked::Unknown,
            })),
            Answer::Refused(error) if !error.is_no_node() => {
                self.failed(FailedAction::Check, error)
            }
            Answer::Done(_)
            | Answer::Refused(_)
            | Answer::Unknown { .. }
            | Answer::SessionEnded => Step::Done(Ok(Acked::Unknown)),
        }
    }

    fn failed(&self, action: FailedAction, error: OpError) -> AckStep {
        let path = if action == FailedAction::Check {
            self.layout.lease(&self.item)
        } else if action == FailedAction::Create {
            self.pin.clone()
        } else {
            self.layout.item(&self.item)
        };
        self.failed_at(action, path, error)
    }

    fn failed_at(&self, action: FailedAction, path: ByteString, error: OpError) -> AckStep {
        if self.is_undecided {
            return Step::Done(Ok(Acked::Unknown));
        }
        Step::Done(Err(Failure::new(action, path, error)))
    }
}

impl Machine for AckMachine {
    type Output = Result<Acked, Failure>;

    fn start(&mut self, _: SessionView) -> AckStep {
        self.pin()
    }

    fn handle(&mut self, _: SessionView, input: Input) -> AckStep {
        match (self.state, input) {
            (State::Pinning, Input::Answered(answers)) => self.pinned(answers),
            (State::Deleting, Input::Answered(answers)) => self.deleted(answers),
            (State::Looking, Input::Answered(answers)) => self.looked(answers),
            (_, _) => Step::Wait(None),
        }
    }
}

impl Leaving for AckMachine {
    type Removal = Remove;

    /// Performs step 4.
    fn abandon(self, is_pending: bool) -> Option<(Remove, bool)> {
        let removal = Remove::new(self.pin, Some(self.session), self.is_pinned, is_pending);
        (is_pending || self.is_pinned).then_some((removal, is_pending))
    }
}

/// Returns whether a znode exists that was created by this transaction.
fn is_created_by(found: &Answer, czxid: Zxid) -> Result<bool, OpError> {
    match found {
        Answer::Done(Response::Exists(Stat { czxid: found, .. })) => Ok(*found == czxid),
        Answer::Refused(error) if !error.is_no_node() => Err(error.clone()),
        Answer::Done(_) | Answer::Refused(_) | Answer::Unknown { .. } | Answer::SessionEnded => {
            Ok(false)
        }
    }
}
