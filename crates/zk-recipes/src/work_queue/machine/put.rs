//! Putting items into a work queue, exactly once.
//!
//! # Why an id in the name of an item proves too little
//!
//! A connection may drop while the create of an item is in flight. The id in the name of a lock's
//! contender decides what has happened: after a write barrier, the znode with the id exists, or it
//! never will. Only its own client deletes that znode. An item is different, because a consumer may
//! take it and delete it before the producer looks. Then no item has the id, although the create
//! was applied, and to create the item again would deliver it twice. So the proof must be a znode
//! that no consumer deletes.
//!
//! # Algorithm
//!
//! 1. If this put checks the limit of the queue, read the number of items. If the new ones would exceed the
//!    limit, the put fails.
//! 2. In one multi, create a *marker*, which is an empty persistent znode with the unique id of
//!    this put as its name, and create the items as persistent sequential znodes.
//!    - Applied: the put is complete.
//!    - The marker exists: an earlier multi of this put was applied, so the put is complete.
//!    - An item exists: the sequence counter has reached its end, and the put fails.
//!    - A directory is missing: create it, and repeat this step.
//!    - Not applied, or the outcome is unknown: repeat this step with the same marker.
//! 3. Delete the marker, once the outcome is known or the caller has dropped the put. A caller does
//!    not wait for that. The delete is a write, so it is its own barrier: whether it deletes the
//!    marker or finds none, no earlier multi of the session is applied after it.
//!
//! # Why this is definite
//!
//! All multis of one put create the same marker, so at most one of them is applied while the marker
//! exists, in whichever order they reach the leader. A multi that repeats another one is a write
//! itself: its reply shows that every earlier request of the session has been applied or never will
//! be. So no late multi is left when step 3 deletes the marker.
//!
//! The marker is persistent, and so it also decides after the session has ended: the put repeats
//! its multi in the next session. If a server has swapped the session for another
//! (`EndCause::Swapped`), a multi of the old one may still be applied for as long as that one lives.
//! So if multis of two sessions may have been applied, and one of the sessions has ended in this way,
//! step 3 is left out. In all other cases, a server has confirmed the end of the session before the
//! next one begins.
//!
//! The price is a second write for each put, and one empty znode in `puts` for each client that
//! ends between steps 2 and 3. Other puts delete it after a day (see the sweep), so a put repeats
//! an undecided multi for at most [`UNDECIDED_MAX`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{CreateMode, CreateRequest, ErrorCode, MultiOp, Request, Response};
use zk_session::recipe::{Flight, Operation};
use zk_session::{OpError, Outcome, SessionId, Time};

use crate::machine::directory::{Directory, Round};
use crate::machine::{
    Answer, Answers, FailedAction, Failure, Input, Leaving, Machine, Needs, SessionView, Step,
    delete, exists, flight, refused_operation,
};
use crate::work_queue::layout::Layout;

/// How long a multi is repeated whose outcome is unknown. Sweeps delete markers of twice this age.
const UNDECIDED_MAX: Duration = Duration::from_secs(12 * 60 * 60);

type PutStep = Step<Result<(), NotPut>>;

/// Why items were not put.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum NotPut {
    /// The sequence counter of the directory has reached its end.
    Exhausted,
    /// A server refused them.
    Failed(Failure),
    /// The queue is full. This is its length.
    Full(usize),
    /// A server answers with errors that do not say whether the items were put.
    Unknown,
}

/// The limit that a put checks before it creates its items.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Bound {
    pub(crate) items: usize,
    /// The caller has not asked for this limit. If the client may not check it, it does not apply.
    pub(crate) is_default: bool,
}

/// A put of one or more items, all or none of them.
#[derive(Clone, Debug)]
pub(crate) struct PutMachine {
    layout: Arc<Layout>,
    marker: ByteString,
    items: Vec<Bytes>,
    priority: u16,
    bound: Option<Bound>,
    puts_directory: Directory,
    entries_directory: Directory,
    /// The outcome of a multi is unknown.
    is_undecided: bool,
    /// The sessions of the first and the last multi whose outcome was unknown.
    undecided_in: Option<(SessionId, SessionId)>,
    /// A server has swapped a session of the client for another.
    has_left_session: bool,
    /// When to stop repeating those multis.
    give_up_at: Option<Time>,
    /// The marker exists, and is to be deleted.
    has_marker: bool,
    /// The caller has dropped the put or has its result: only step 3 is left.
    is_abandoned: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Nothing is in flight.
    Idle,
    /// Step 1 is in flight.
    Measuring,
    /// Step 2 is in flight.
    Putting,
    /// The parent of the markers is being created.
    MakingPuts,
    /// The parent of the items is being created.
    MakingEntries,
    /// Step 3 is in flight.
    Clearing,
}

impl PutMachine {
    pub(crate) fn new(
        layout: Arc<Layout>,
        id: u128,
        items: Vec<Bytes>,
        priority: u16,
        bound: Option<Bound>,
    ) -> Self {
        Self {
            marker: layout.marker(id),
            layout,
            items,
            priority,
            bound,
            puts_directory: Directory::default(),
            entries_directory: Directory::default(),
            is_undecided: false,
            undecided_in: None,
            has_left_session: false,
            give_up_at: None,
            has_marker: false,
            is_abandoned: false,
            state: State::Idle,
        }
    }

    /// Returns whether the items were put, and their marker is to be deleted.
    pub(crate) fn has_marker(&self) -> bool {
        self.has_marker
    }

    /// Returns the path of the marker.
    pub(crate) fn marker(&self) -> &str {
        &self.marker
    }

    fn measure(&mut self) -> PutStep {
        self.state = State::Measuring;
        let operations = vec![exists(self.layout.entries.clone())];
        Step::Submit(flight(None, operations), Needs::All)
    }

    fn measured(&mut self, answers: Answers) -> PutStep {
        let [measured] = answers.take();
        let length = match measured.response() {
            Ok(Response::Exists(stat)) => stat.num_children,
            Ok(_) => 0,
            Err(error) if error.is_no_node() => 0,
            Err(error) if error.is_session_over() => {
                return self.not_put(error);
            }
            Err(_) if self.bound.is_some_and(|bound| bound.is_default) => {
                self.bound = None;
                return self.put();
            }
            Err(error) => {
                let path = self.layout.entries.clone();
                return self.failed(FailedAction::Check, path, error);
            }
        };
        let length = usize::try_from(length).unwrap_or_default();
        if self.bound.is_some_and(|bound| length + self.items.len() > bound.items) {
            return self.fail(NotPut::Full(length));
        }
        self.put()
    }

    /// Step 2.
    fn put(&mut self) -> PutStep {
        self.state = State::Putting;
        let create = |path, data: Bytes, mode| {
            let acl = self.layout.acl.clone();
            MultiOp::Create(CreateRequest { path, data: Some(data), acl, mode, with_stat: false })
        };
        let marker = create(self.marker.clone(), Bytes::new(), CreateMode::Persistent);
        let path = self.layout.new_item(self.priority);
        let items = self
            .items
            .iter()
            .map(|data| create(path.clone(), data.clone(), CreateMode::PersistentSequential));
        let multi = [marker].into_iter().chain(items).collect();
        let multi = flight(None, vec![Operation::new(Request::Multi(multi))]);
        Step::Submit(Flight { deadline: self.give_up_at, ..multi }, Needs::Once(0))
    }

    fn was_put(&mut self, view: SessionView, answers: Answers) -> PutStep {
        self.state = State::Idle;
        let session = answers.session;
        let [put] = answers.take();
        match put {
            Answer::Done(response) => match refused_operation(&response) {
                // Of all multis of this put, the ensemble applies one.
                None | Some((0, ErrorCode::NODE_EXISTS)) => {
                    self.is_undecided = false;
                    // Only the marker stops a multi that comes late.
                    self.has_marker = !self.may_come_late(session);
                    self.done()
                }
                Some((0, ErrorCode::NO_NODE)) => self.make_directory(view, State::MakingPuts),
                Some((_, ErrorCode::NO_NODE)) => self.make_directory(view, State::MakingEntries),
                Some((index, code)) => {
                    // The marker could have been created, so no earlier multi has created it.
                    self.is_undecided &= index == 0;
                    if index > 0 && code == ErrorCode::NODE_EXISTS {
                        // The counter stays at its end, so an item has the number already.
                        return self.fail(NotPut::Exhausted);
                    }
                    if index == 0 {
                        let marker = self.marker.clone();
                        return self.failed(FailedAction::Create, marker, OpError::server(code));
                    }
                    self.not_put(OpError::server(code))
                }
            },
            Answer::Refused(error) => {
                // A client that stops does not know what has become of a request in flight.
                self.is_undecided |= error.outcome() == Outcome::Unknown;
                self.not_put(error)
            }
            Answer::SessionEnded => self.again(view),
            Answer::Unknown { error, is_final } => {
                if error.outcome() == Outcome::Unknown {
                    self.is_undecided = true;
                    if let Some(last) = session {
                        let (first, _) = self.undecided_in.unwrap_or((last, last));
                        self.undecided_in = Some((first, last));
                    }
                }
                self.give_up_at.get_or_insert(view.now + UNDECIDED_MAX);
                if is_final { self.not_put(error) } else { self.again(view) }
            }
        }
    }

    /// Returns whether an earlier multi may be applied after one of this session.
    fn may_come_late(&self, session: Option<SessionId>) -> bool {
        let first = self.undecided_in.map(|(first, _)| first);
        first.is_some() && first != session && self.has_left_session
    }

    fn make_directory(&mut self, view: SessionView, state: State) -> PutStep {
        if self.is_abandoned {
            return self.clear();
        }
        self.state = state;
        let (directory, path) = if state == State::MakingPuts {
            (&mut self.puts_directory, &self.layout.puts)
        } else {
            (&mut self.entries_directory, &self.layout.entries)
        };
        match directory.create(view.now, path, &Bytes::new(), &self.layout.acl) {
            Ok(operations) => Step::Submit(flight(None, operations), Needs::All),
            Err(failure) => self.fail(NotPut::Failed(failure)),
        }
    }

    fn made_directory(&mut self, view: SessionView, answers: Answers) -> PutStep {
        let round = if self.state == State::MakingPuts {
            self.puts_directory.created(&self.layout.puts, answers)
        } else {
            self.entries_directory.created(&self.layout.entries, answers)
        };
        match round {
            Round::Retry | Round::SessionEnded => self.again(view),
            Round::Repeat => self.make_directory(view, self.state),
            Round::Failed(failure) => self.fail(NotPut::Failed(failure)),
        }
    }

    /// Continues with the step that is due, in whichever session is the next to be connected.
    fn again(&mut self, view: SessionView) -> PutStep {
        if view.has_expired {
            return self.not_put(OpError::session_expired(Outcome::Unknown));
        }
        self.next()
    }

    fn next(&mut self) -> PutStep {
        if self.is_abandoned {
            self.clear()
        } else if self.bound.is_some() && !self.is_undecided {
            self.measure()
        } else {
            self.put()
        }
    }

    fn done(&mut self) -> PutStep {
        if self.is_abandoned { self.clear() } else { Step::Done(Ok(())) }
    }

    /// Step 3.
    fn clear(&mut self) -> PutStep {
        let last = self.undecided_in.map(|(_, last)| last);
        let is_undecided = self.is_undecided && !self.may_come_late(last);
        if !self.has_marker && !is_undecided {
            self.state = State::Idle;
            return Step::Done(Ok(()));
        }
        self.state = State::Clearing;
        Step::Submit(flight(None, vec![delete(self.marker.clone())]), Needs::All)
    }

    fn cleared(&mut self, answers: Answers) -> PutStep {
        let [cleared] = answers.take();
        match cleared.response() {
            Err(error) if !error.is_no_node() => {
                self.failed(FailedAction::Delete, self.marker.clone(), error)
            }
            Ok(_) | Err(_) => {
                self.has_marker = false;
                self.is_undecided = false;
                self.state = State::Idle;
                Step::Done(Ok(()))
            }
        }
    }

    /// Fails because the items were not created.
    fn not_put(&mut self, error: OpError) -> PutStep {
        self.failed(FailedAction::Create, self.layout.new_item(self.priority), error)
    }

    fn failed(&mut self, action: FailedAction, path: ByteString, error: OpError) -> PutStep {
        self.fail(NotPut::Failed(Failure::new(action, path, error)))
    }

    fn fail(&mut self, reason: NotPut) -> PutStep {
        let is_clearing = self.state == State::Clearing;
        self.state = State::Idle;
        if self.is_abandoned && !is_clearing && self.is_undecided {
            return self.clear();
        }
        Step::Done(Err(if self.is_undecided { NotPut::Unknown } else { reason }))
    }
}

impl Machine for PutMachine {
    type Output = Result<(), NotPut>;

    fn start(&mut self, view: SessionView) -> PutStep {
        self.has_left_session = view.has_left_session;
        if self.is_abandoned && self.state == State::Putting {
            // The outcome of the pending multi decides what is left to do.
            return Step::Wait(None);
        }
        self.next()
    }

    fn handle(&mut self, view: SessionView, input: Input) -> PutStep {
        self.has_left_session = view.has_left_session;
        match (self.state, input) {
            (State::Measuring, Input::Answered(answers)) => self.measured(answers),
            (State::Putting, Input::Answered(answers)) => self.was_put(view, answers),
            (State::MakingPuts | State::MakingEntries, Input::Answered(answers)) => {
                self.made_directory(view, answers)
            }
            (State::Clearing, Input::Answered(answers)) => self.cleared(answers),
            (_, _) => Step::Wait(None),
        }
    }
}

impl Leaving for PutMachine {
    type Removal = Self;

    /// Leaves only step 3 to do. Only the reply to a multi is needed for that.
    fn abandon(mut self, is_pending: bool) -> Option<(Self, bool)> {
        let is_putting = is_pending && self.state == State::Putting;
        self.is_abandoned = true;
        if !is_putting {
            self.state = State::Idle;
        }
        (is_putting || self.is_undecided || self.has_marker).then_some((self, is_putting))
    }
}
