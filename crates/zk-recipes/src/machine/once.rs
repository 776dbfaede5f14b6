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
//! Or the caller keeps the marker for its next transaction, whose first operation then writes the
//! marker at the version that it has. `BAD_VERSION` takes the place of `NODE_EXISTS` in step 2, and
//! a missing marker leaves the outcome unknown. So a transaction without a fault costs one request.
//!
//! All this assumes that nobody else writes or deletes the marker while its session lives.
//!
//! A lost multi that a slow server delivers even after step 2 is refused as well, if the marker
//! still exists. A marker that is kept has another version by then; so if a transaction was lost and
//! refused when it was sent again, its marker is not kept.

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{
    Acl, CreateMode, CreateRequest, ErrorCode, MultiOp, MultiResult, Request, Response,
    SetDataRequest,
};
use zk_session::recipe::Operation;
use zk_session::{OpError, Outcome, SessionId, Version};

use super::answer::{Answer, Answers, Needs};
use super::failure::Failure;
use super::leaving::Leaving;
use super::operation::{flight, refused_operation};
use super::remove::Remove;
use super::step::{Input, Machine, SessionView, Step};
use crate::action::FailedAction;

/// Number of transactions for which a marker is used. Its version must never become
/// [`Version::ANY`].
const USES_MAX: i32 = 1_000_000;

/// A marker that exists, and that the caller keeps for another transaction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Marker {
    pub(crate) path: ByteString,
    pub(crate) session: SessionId,
    pub(crate) version: Version,
}

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
    /// The version of a marker that was kept; `None` if the multi creates the marker.
    version: Option<Version>,
    operation: Operation,
    session: Option<SessionId>,
    /// The transaction belongs to this session, or to the first one that it is sent in.
    is_bound: bool,
    /// A multi had an unknown outcome.
    is_in_doubt: bool,
    /// The same at any time before.
    was_in_doubt: bool,
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
        Self::marked_by(marker, MultiOp::Create(create), operations)
    }

    /// Creates the transaction with a marker that was kept.
    pub(crate) fn again(marker: Marker, operations: Vec<MultiOp>) -> Self {
        let Marker { path, session, version } = marker;
        let write = SetDataRequest { path: path.clone(), data: Some(Bytes::new()), version };
        Self {
            version: Some(version),
            session: Some(session),
            is_marked: true,
            ..Self::marked_by(path, MultiOp::SetData(write), operations)
        }
    }

    fn marked_by(marker: ByteString, mark: MultiOp, operations: Vec<MultiOp>) -> Self {
        let operations = std::iter::once(mark).chain(operations).collect();
        Self {
            marker,
            version: None,
            operation: Operation::new(Request::Multi(operations)),
            session: None,
            is_bound: false,
            is_in_doubt: false,
            was_in_doubt: false,
            is_marked: false,
        }
    }

    /// Binds the transaction to a session, or to the first one that it is sent in. It fails if that
    /// session ends before it was applied.
    pub(crate) fn bound_to(self, session: Option<SessionId>) -> Self {
        Self { session: session.or(self.session), is_bound: true, ..self }
    }

    /// Returns the path of the marker, and the version that it has once the transaction is applied.
    pub(crate) fn marker(&self) -> (&ByteString, Version) {
        (&self.marker, Version(self.version.map_or(0, |version| version.0 + 1)))
    }

    /// Returns the marker, unless it does not exist, or a lost copy of this transaction could be
    /// applied as long as the marker stays. A marker that is returned is not deleted.
    pub(crate) fn keep_marker(&mut self, settled: &Settled) -> Option<Marker> {
        let version = match (settled, self.version) {
            (Settled::Applied(_), _) => self.marker().1,
            (Settled::Refused(at, _), Some(version)) if *at > 0 && !self.was_in_doubt => version,
            (Settled::Refused(..) | Settled::Undecided(_), _) => return None,
        };
        let session = self.session.filter(|_| version.0 < USES_MAX)?;
        self.is_marked = false;
        Some(Marker { path: self.marker.clone(), session, version })
    }

    /// Returns whether a multi that had an unknown outcome may have been applied.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.is_in_doubt
    }

    /// Returns the session of the marker, once it is known.
    pub(crate) fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Returns the multi and its session if the marker exists already. A caller may send it before the
    /// machine starts, because a removal then finds the marker without the reply.
    pub(crate) fn first(&self) -> Option<(SessionId, Operation)> {
        self.version.and(self.session).map(|session| (session, self.operation.clone()))
    }

    /// Concludes from the reply to the [`first`](Self::first) multi. Returns nothing if that is not
    /// possible: the machine has to find out what has become of it, or to send it.
    pub(crate) fn sent(&mut self, result: Result<Response, OpError>) -> Option<Settled> {
        match result {
            Ok(response) => Some(self.executed(response)),
            Err(error) => {
                if error.outcome() == Outcome::Unknown {
                    self.may_be_applied();
                }
                None
            }
        }
    }

    fn may_be_applied(&mut self) {
        (self.is_in_doubt, self.was_in_doubt, self.is_marked) = (true, true, true);
    }

    fn send(&self) -> OnceStep {
        Step::Submit(flight(self.session, vec![self.operation.clone()]), Needs::Once(0))
    }

    fn replied(&mut self, view: SessionView, answers: Answers) -> OnceStep {
        self.session = self.session.or(answers.session);
        let [result] = answers.take();
        match result {
            Answer::Done(response) => Step::Done(Ok(self.executed(response))),
            // What the marker would be in does not exist, so the marker does not either.
            Answer::Refused(error @ OpError::ChrootMissing { .. }) if self.version.is_none() => {
                (self.is_in_doubt, self.is_marked) = (false, false);
                self.failed(error)
            }
            // A client that stops does not know what has become of a request in flight.
            Answer::Refused(error) if self.is_in_doubt || error.outcome() == Outcome::Unknown => {
                self.undecided(error)
            }
            Answer::Refused(error) => self.failed(error),
            Answer::SessionEnded if self.is_in_doubt || self.is_bound || view.has_expired => {
                let error = OpError::session_expired(Outcome::NotApplied);
                if self.is_in_doubt { self.undecided(error) } else { self.failed(error) }
            }
            Answer::SessionEnded => {
                self.session = None;
                self.send()
            }
            Answer::Unknown { error, is_final } => {
                self.may_be_applied();
                // Without a session, the marker could not be found in another one.
                if is_final || self.session.is_none() { self.undecided(error) } else { self.send() }
            }
        }
    }

    fn executed(&mut self, response: Response) -> Settled {
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
            Some((0, ErrorCode::BAD_VERSION)) if self.is_in_doubt => Settled::Applied(None),
            // A znode with children cannot be deleted, so without the parent there is no marker. But
            // a marker that was kept may have been deleted after it was written.
            Some((0, code))
                if self.is_in_doubt && (code != ErrorCode::NO_NODE || self.version.is_some()) =>
            {
                return Settled::Undecided(OpError::server(code));
            }
            Some((at, code)) => {
                self.is_marked = self.version.is_some();
                Settled::Refused(at, code)
            }
        };
        self.is_in_doubt = false;
        settled
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
            has_left_session: false,
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
    fn a_client_that_stops_leaves_a_multi_in_flight_undecided() {
        for (outcome, is_known) in [(Outcome::Unknown, false), (Outcome::NotApplied, true)] {
            let mut once = Once::new("/marker".into(), Acl::open(), vec![]);
            assert!(matches!(once.start(view()), Step::Submit(..)));
            let closed = Answer::Refused(OpError::closed(outcome));
            let step = once.handle(view(), answer(closed));
            let Step::Done(settled) = step else { panic!("{step:?}") };
            assert_eq!(settled.is_err(), is_known, "{settled:?}");
        }
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

    fn again() -> Once {
        let (path, session) = ("/marker".into(), SessionId(1));
        Once::again(Marker { path, session, version: Version(6) }, vec![])
    }

    /// A reply to a multi of two operations, of which this one was refused.
    fn refused(at: usize, code: ErrorCode) -> Input {
        let mut results = vec![MultiResult::Error(ErrorCode::OK); 2];
        results[at] = MultiResult::Error(code);
        answer(Answer::Done(Response::Multi(results)))
    }

    fn lost() -> Input {
        answer(Answer::unknown(Some(OpError::connection_loss(Outcome::Unknown))))
    }

    fn settled(step: OnceStep) -> Settled {
        let Step::Done(Ok(settled)) = step else { panic!("{step:?}") };
        settled
    }

    #[test]
    fn a_kept_marker_is_written_at_its_version_which_decides_what_was_lost() {
        let mut once = again();
        let Step::Submit(flight, Needs::Once(0)) = once.start(view()) else { panic!("no flight") };
        let Request::Multi(operations) = &flight.operations[0].request else { panic!("no multi") };
        let MultiOp::SetData(mark) = &operations[0] else { panic!("{operations:?}") };
        assert_eq!((mark.version, flight.session), (Version(6), Some(SessionId(1))));
        assert!(matches!(once.handle(view(), lost()), Step::Submit(..)));
        let applied = settled(once.handle(view(), refused(0, ErrorCode::BAD_VERSION)));
        assert_eq!(applied, Settled::Applied(None));
        let kept = once.keep_marker(&applied).expect("it has the next version");
        assert_eq!(kept.version, Version(7));
        assert!(once.abandon(false).is_none(), "a marker that is kept is not deleted");
    }

    #[test]
    fn a_marker_is_not_kept_if_a_lost_copy_of_the_transaction_could_fit_it() {
        for is_lost in [false, true] {
            let mut once = again();
            let _ = once.start(view());
            if is_lost {
                let _ = once.handle(view(), lost());
            }
            let refusal = settled(once.handle(view(), refused(1, ErrorCode::NO_NODE)));
            assert_eq!(refusal, Settled::Refused(1, ErrorCode::NO_NODE));
            let kept = once.keep_marker(&refusal).map(|marker| marker.version);
            assert_eq!(kept, (!is_lost).then_some(Version(6)));
            assert_eq!(once.abandon(false).is_some(), is_lost, "then it is deleted");
        }
    }

    #[test]
    fn without_the_marker_that_was_kept_nobody_can_know() {
        for code in [ErrorCode::NO_NODE, ErrorCode::NO_AUTH] {
            let mut once = again();
            let _ = once.start(view());
            let _ = once.handle(view(), lost());
            let undecided = settled(once.handle(view(), refused(0, code)));
            assert_eq!(undecided, Settled::Undecided(OpError::server(code)));
            assert_eq!(once.keep_marker(&undecided), None);
        }
    }

    #[test]
    fn a_transaction_that_is_bound_to_a_session_ends_with_it() {
        for is_bound in [false, true] {
            let once = Once::new("/marker".into(), Acl::open(), vec![]);
            let mut once = if is_bound { once.bound_to(Some(SessionId(1))) } else { once };
            let _ = once.start(view());
            let step = once.handle(view(), answer(Answer::SessionEnded));
            assert_eq!(matches!(step, Step::Done(Err(_))), is_bound, "{step:?}");
        }
    }

    #[test]
    fn a_marker_that_is_worn_out_is_not_kept() {
        let (path, session) = (ByteString::from("/marker"), SessionId(1));
        let version = Version(USES_MAX - 1);
        let mut once = Once::again(Marker { path, session, version }, vec![]);
        assert_eq!(once.keep_marker(&Settled::Applied(None)), None);
        assert!(once.abandon(false).is_some());
    }
}
