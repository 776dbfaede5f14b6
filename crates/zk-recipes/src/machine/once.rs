//! A transaction that is applied at most once, however often its connection is lost.
//!
//! A lost `setData` at version *v* cannot be decided by reading the znode again. If the version is
//! *v* + 1 and the data is ours, another client may have written the same data: two counters that
//! both add 1 to the same number do exactly that. A lost create or delete of a fixed name is no
//! better: if the znode is missing, our create was lost, or another client has already deleted our
//! znode. Repeating it could undo an operation that another client has based on ours.
//!
//! So each transaction leaves a *marker* that shows whether it was applied:
//!
//! 1. Send a multi. Its first operation creates an ephemeral znode with a unique name, the marker.
//!    The operations of the caller follow.
//! 2. If the outcome is unknown, send the same multi again, in the same session. It is a write, so
//!    it is its own barrier: when its reply arrives, the lost one was applied or never will be.
//!    - `NODE_EXISTS` for the marker: the lost multi was applied, once. This one was not.
//!    - Success: the lost multi was not applied. This one was.
//!    - An operation behind the marker was refused: the marker does not exist, so the lost multi
//!      was not applied, and neither was this one.
//!    - `NO_NODE` for the marker, or no chroot: its parent is missing, and so is the marker. As
//!      above.
//!    - The marker was refused for another reason: the outcome stays unknown.
//! 3. If the session ends while the outcome is unknown, it stays unknown, because the marker has
//!    ended with its session. The recipe reads what there is, and reports it. If no outcome is
//!    unknown, continue with 1 in the next session.
//! 4. Once the outcome is known, or nobody waits for it any longer, the janitor deletes the marker.
//!
//! All this assumes that nobody else deletes the marker while its session lives.
//!
//! A lost multi that a slow server delivers even after step 2 is refused as well, if the marker
//! still exists.

use bytestring::ByteString;
use jute_codec::{
    Acl, CreateMode, CreateRequest, ErrorCode, MultiOp, MultiResult, Request, Response,
};
use zk_session::recipe::Operation;
use zk_session::{OpError, Outcome, SessionId};

use super::answer::{Answer, Answers, Needs};
use super::failure::Failure;
use super::leaving::Leaving;
use super::operation::{flight, refused_operation};
use super::remove::Remove;
use super::step::{Input, Machine, SessionView, Step};
use crate::action::FailedAction;

/// How a transaction ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Settled {
    /// It was applied once. Contains the results of the caller's operations, or `None` if the reply
    /// was lost.
    Applied(Option<Vec<MultiResult>>),
    /// It was not applied and never will be, because this operation was refused. The marker is
    /// number 0, and the caller's operations follow.
    Refused(usize, ErrorCode),
    /// It may have been applied. This is why it cannot be decided.
    Undecided(OpError),
}

type OnceStep = Step<Result<Settled, Failure>>;

/// A transaction that is applied at most once.
#[derive(Debug)]
pub(crate) struct Once {
    marker: ByteString,
    operation: Operation,
    session: Option<SessionId>,
    /// A multi had an unknown outcome.
    is_in_doubt: bool,
    /// The marker exists, or may exist.
    is_marked: bool,
}

impl Once {
    /// Creates the transaction. The marker is a path with a unique name.
    pub(crate) fn new(marker: ByteString, acl: Vec<Acl>, operations: Vec<MultiOp>) -> Self {
        let create = CreateRequest {
            path: marker.clone(),
            data: None,
            acl,
            mode: CreateMode::Ephemeral,
            with_stat: false,
        };
        let operations = std::iter::once(MultiOp::Create(create)).chain(operations).collect();
        Self {
            marker,
            operation: Operation::new(Request::Multi(operations)),
            session: None,
            is_in_doubt: false,
            is_marked: false,
        }
    }

    /// Returns whether a multi that had an unknown outcome may have been applied.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.is_in_doubt
    }

    /// Returns the session of the marker, once it is known.
    pub(crate) fn session(&self) -> Option<SessionId> {
        self.session
    }

    fn send(&self) -> OnceStep {
        Step::Submit(flight(self.session, vec![self.operation.clone()]), Needs::Once(0))
    }

    fn replied(&mut self, view: SessionView, answers: Answers) -> OnceStep {
        self.session = self.session.or(answers.session);
        let [result] = answers.take();
        match result {
            Answer::Done(response) => self.executed(response),
            // What the marker would be in does not exist, so the marker does not either.
            Answer::Refused(error @ OpError::ChrootMissing { .. }) => {
                (self.is_in_doubt, self.is_marked) = (false, false);
                self.failed(error)
            }
            Answer::Refused(error) if self.is_in_doubt => self.undecided(error),
            Answer::Refused(error) => self.failed(error),
            Answer::SessionEnded if self.is_in_doubt || view.has_expired => {
                let error = OpError::session_expired(Outcome::NotApplied);
                if self.is_in_doubt { self.undecided(error) } else { self.failed(error) }
            }
            Answer::SessionEnded => {
                self.session = None;
                self.send()
            }
            Answer::Unknown { error, is_final } => {
                (self.is_in_doubt, self.is_marked) = (true, true);
                // Without a session, the marker could not be found in another one.
                if is_final || self.session.is_none() { self.undecided(error) } else { self.send() }
            }
        }
    }

    fn executed(&mut self, response: Response) -> OnceStep {
        let refused = refused_operation(&response);
        let Response::Multi(mut results) = response else {
            unreachable!("the codec decodes the reply to a multi as such");
        };
        let settled = match refused {
            None => {
                self.is_marked = true;
                results.remove(0);
                Settled::Applied(Some(results))
            }
            Some((0, ErrorCode::NODE_EXISTS)) if self.is_in_doubt => Settled::Applied(None),
            // A znode with children cannot be deleted, so without the parent there is no marker.
            Some((0, code)) if self.is_in_doubt && code != ErrorCode::NO_NODE => {
                return self.undecided(OpError::server(code));
            }
            Some((at, code)) => {
                self.is_marked = false;
                Settled::Refused(at, code)
            }
        };
        self.is_in_doubt = false;
        Step::Done(Ok(settled))
    }

    fn undecided(&self, error: OpError) -> OnceStep {
        Step::Done(Ok(Settled::Undecided(error)))
    }

    fn failed(&self, error: OpError) -> OnceStep {
        Step::Done(Err(Failure::new(FailedAction::Write, self.marker.clone(), error)))
    }
}

impl Machine for Once {
    type Output = Result<Settled, Failure>;

    fn start(&mut self, _: SessionView) -> OnceStep {
        self.send()
    }

    fn handle(&mut self, view: SessionView, input: Input) -> OnceStep {
        let Input::Answered(answers) = input else { return Step::Wait(None) };
        self.replied(view, answers)
    }
}

impl Leaving for Once {
    type Removal = Remove;

    /// Performs step 4. The first operation of every flight creates the marker.
    fn abandon(self, is_pending: bool) -> Option<(Remove, bool)> {
        let removal = Remove::new(self.marker, self.session, self.is_marked, is_pending);
        (is_pending || self.is_marked).then_some((removal, is_pending))
    }
}

#[cfg(test)]
mod tests {
    use zk_session::Time;

    use super::*;

    fn view() -> SessionView {
        SessionView {
            now: Time::default(),
            connection: Some(1),
            alive: Some(1),
            is_running_out: false,
            lapses: 0,
            has_expired: false,
            seed: 0,
        }
    }

    fn answer(answer: Answer) -> Input {
        Input::Answered(Answers {
            session: Some(SessionId(1)),
            connection: 1,
            results: vec![answer],
            replays: 0,
            is_repeated: false,
        })
    }

    #[test]
    fn a_lost_multi_was_not_applied_if_there_is_no_chroot() {
        let mut once = Once::new("/marker".into(), Acl::open(), vec![]);
        assert!(matches!(once.start(view()), Step::Submit(..)));
        let lost = Answer::unknown(Some(OpError::connection_loss(Outcome::Unknown)));
        assert!(matches!(once.handle(view(), answer(lost)), Step::Submit(..)));
        assert!(once.is_in_doubt());
        let error = OpError::ChrootMissing { chroot: "/app".into(), path: "/marker".into() };
        let failed = once.handle(view(), answer(Answer::Refused(error.clone())));
        let Step::Done(Err(failure)) = failed else { panic!("{failed:?}") };
        assert_eq!(failure.error, error);
        assert!(!once.is_in_doubt() && once.abandon(false).is_none());
    }
}
