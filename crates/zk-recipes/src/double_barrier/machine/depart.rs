//! Waiting until all participants of a round have left.
//!
//! 1. List the directory. If no participant of the round is in the list, all have left.
//! 2. Otherwise, test whether one of those that are left exists, and watch it. If it is gone, or the
//!    watch fires, or the session ends, continue with 1.
//!
//! Each participant chooses by a number of its own which one it watches. If all lists were repeated
//! whenever any participant leaves, *n* participants would list *n*² times. This way, each of them
//! lists about ln *n* times, because about half of those that are left leave before the chosen one.

use std::collections::HashSet;

use bytestring::ByteString;
use jute_codec::{ErrorCode, NameList, Response};
use zk_session::recipe::Reply;
use zk_session::{OpError, Outcome, SessionId};

use crate::machine::{
    FailedAction, Failure, Input, Machine, Pauses, SessionView, Step, Verdict, WatchNumber,
    WatchNumbers, child, flight, list, replayable, take, watch_existence,
};

type DepartStep = Step<Result<(), Failure>>;

/// Waits until all participants of a round have left.
#[derive(Debug)]
pub(crate) struct Depart {
    directory: ByteString,
    /// The participants of the round.
    round: HashSet<ByteString>,
    /// Our own znode, which is being deleted. It is watched only if no other one is left.
    own: Option<ByteString>,
    /// Decides which participant is watched.
    choice: u128,
    watches: WatchNumbers,
    pauses: Pauses,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Step 1 is in flight.
    Listing,
    /// The test of step 2 is in flight. `has_fired` means that its watch has fired already.
    Testing { watch: WatchNumber, has_fired: bool },
    /// The watch of step 2 was set in this session.
    Waiting { watch: WatchNumber, session: Option<SessionId> },
    /// A server is overloaded; continue with 1 after a pause.
    Pausing,
}

impl Depart {
    pub(crate) fn new(
        directory: ByteString,
        round: &[ByteString],
        own: Option<ByteString>,
        choice: u128,
    ) -> Self {
        let round = round.iter().cloned().collect();
        let (watches, pauses) = (WatchNumbers::default(), Pauses::default());
        Self { directory, round, own, choice, watches, pauses, state: State::Listing }
    }

    fn list(&mut self) -> DepartStep {
        self.state = State::Listing;
        Step::Submit(flight(None, vec![list(&self.directory, None)]))
    }

    fn listed(&mut self, view: SessionView, reply: Reply) -> DepartStep {
        let [names] = take(reply).map(replayable);
        if let Verdict::Done(Response::GetChildren(names)) = &names {
            return self.choose(names);
        }
        self.set_back(view, FailedAction::List, names)
    }

    fn choose(&mut self, names: &NameList) -> DepartStep {
        self.pauses.reset();
        let mut left: Vec<&str> = names.iter().filter(|name| self.round.contains(*name)).collect();
        if left.len() > 1 {
            left.retain(|name| self.own.as_deref() != Some(name));
        }
        let chosen = self.choice.checked_rem(left.len() as u128);
        let chosen = chosen.and_then(|chosen| left.get(usize::try_from(chosen).ok()?));
        let Some(name) = chosen else { return Step::Done(Ok(())) };
        let watch = self.watches.issue();
        let operation = watch_existence(child(&self.directory, name), watch);
        self.state = State::Testing { watch, has_fired: false };
        Step::Submit(flight(None, vec![operation]))
    }

    fn tested(
        &mut self,
        view: SessionView,
        reply: Reply,
        watch: WatchNumber,
        has_fired: bool,
    ) -> DepartStep {
        let session = reply.session;
        let [tested] = take(reply).map(replayable);
        if matches!(&tested, Verdict::Done(_)) && !has_fired {
            self.pauses.reset();
            self.state = State::Waiting { watch, session };
            return Step::Wait(None);
        }
        if matches!(&tested, Verdict::Refused(error) if error.is_no_node()) {
            return self.list();
        }
        self.set_back(view, FailedAction::Check, tested)
    }

    fn set_back(
        &mut self,
        view: SessionView,
        action: FailedAction,
        verdict: Verdict,
    ) -> DepartStep {
        match verdict {
            // The directory is missing, so nobody is inside.
            Verdict::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {
                Step::Done(Ok(()))
            }
            Verdict::Refused(error) => self.failed(action, error),
            Verdict::Later(error) if self.pauses.is_too_many(&error) => self.failed(action, error),
            Verdict::Later(_) => {
                self.state = State::Pausing;
                Step::Wait(self.pauses.begin(view))
            }
            // There will be no other session, so every later flight would fail at once.
            Verdict::SessionOver if view.has_stopped => {
                self.failed(action, OpError::session_expired(Outcome::NotApplied))
            }
            // The next flight waits for the next connection, or the next session.
            Verdict::Done(_) | Verdict::NotApplied | Verdict::Unknown | Verdict::SessionOver => {
                self.list()
            }
        }
    }

    fn failed(&self, action: FailedAction, error: OpError) -> DepartStep {
        Step::Done(Err(Failure::new(action, self.directory.clone(), error)))
    }

    fn wait(&self) -> DepartStep {
        Step::Wait(self.pauses.until())
    }
}

impl Machine for Depart {
    type Output = Result<(), Failure>;

    fn start(&mut self, _: SessionView) -> DepartStep {
        self.list()
    }

    fn handle(&mut self, view: SessionView, input: Input) -> DepartStep {
        match (self.state, input) {
            (State::Listing, Input::Reply(reply)) => self.listed(view, reply),
            (State::Testing { watch, has_fired, .. }, Input::Reply(reply)) => {
                self.tested(view, reply, watch, has_fired)
            }
            (State::Testing { watch, .. }, Input::Watch { watch: fired, .. }) if fired == watch => {
                self.state = State::Testing { watch, has_fired: true };
                self.wait()
            }
            (State::Waiting { watch, .. }, Input::Watch { watch: fired, .. }) if fired == watch => {
                self.list()
            }
            (State::Waiting { session, .. }, Input::Ended(ended)) if session == Some(ended) => {
                self.list()
            }
            (State::Pausing, Input::Timer | Input::Suspended) => {
                self.pauses.end();
                self.list()
            }
            (
                _,
                Input::Reply(_)
                | Input::Timer
                | Input::Suspended
                | Input::Ended(_)
                | Input::Watch { .. },
            ) => self.wait(),
        }
    }
}
