//! Waiting until all participants of a round have left.
//!
//! 1. List the directory. If no participant of the round is in the list, all have left.
//! 2. Otherwise, test whether one of those that are left exists, and watch it. If it is gone, or the
//!    watch fires, or the session ends, continue with 1. From time to time, repeat the test: the watch
//!    reports nothing to those who may no longer read the znode.
//!
//! Each participant chooses by a number of its own which one it watches. If all lists were repeated
//! whenever any participant leaves, *n* participants would list *n*² times. This way, each of them
//! lists about ln *n* times, because about half of those that are left leave before the chosen one.

use std::collections::HashSet;

use bytestring::ByteString;
use jute_codec::{NameList, Response};
use zk_session::{OpError, SessionId, Time};

use crate::machine::{
    Answers, FailedAction, Failure, Input, Machine, Needs, SessionView, Step, WatchNumber,
    WatchNumbers, child, flight, is_check_due, list, next_check, watch_existence,
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
    /// The participant that is watched.
    watched: ByteString,
    watches: WatchNumbers,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Step 1 is in flight.
    Listing,
    /// The test of step 2 is in flight. `has_fired` means that its watch has fired already.
    Testing { watch: WatchNumber, has_fired: bool },
    /// The watch of step 2 was set in this session. The test is repeated at this time.
    Waiting { watch: WatchNumber, session: Option<SessionId>, check_at: Time },
}

impl Depart {
    pub(crate) fn new(
        directory: ByteString,
        round: &[ByteString],
        own: Option<ByteString>,
        choice: u128,
    ) -> Self {
        let round = round.iter().cloned().collect();
        let watches = WatchNumbers::default();
        let watched = ByteString::new();
        Self { directory, round, own, choice, watched, watches, state: State::Listing }
    }

    fn list(&mut self) -> DepartStep {
        self.state = State::Listing;
        Step::Submit(flight(None, vec![list(&self.directory, None)]), Needs::All)
    }

    fn listed(&mut self, answers: Answers) -> DepartStep {
        let [names] = answers.take();
        match names.response() {
            Ok(Response::GetChildren(names)) => self.choose(&names),
            Ok(_) => self.list(),
            Err(error) => self.missing(FailedAction::List, error),
        }
    }

    fn choose(&mut self, names: &NameList) -> DepartStep {
        let mut left: Vec<&str> = names.iter().filter(|name| self.round.contains(*name)).collect();
        if left.len() > 1 {
            left.retain(|name| self.own.as_deref() != Some(name));
        }
        let chosen = self.choice.checked_rem(left.len() as u128);
        let chosen = chosen.and_then(|chosen| left.get(usize::try_from(chosen).ok()?));
        let Some(name) = chosen else { return Step::Done(Ok(())) };
        self.watched = child(&self.directory, name);
        let watch = self.watches.issue();
        self.test(watch)
    }

    /// Step 2. A test that is repeated keeps the number of its watch.
    fn test(&mut self, watch: WatchNumber) -> DepartStep {
        let operation = watch_existence(self.watched.clone(), watch);
        self.state = State::Testing { watch, has_fired: false };
        Step::Submit(flight(None, vec![operation]), Needs::All)
    }

    fn tested(
        &mut self,
        view: SessionView,
        answers: Answers,
        watch: WatchNumber,
        has_fired: bool,
    ) -> DepartStep {
        let session = answers.session;
        let [tested] = answers.take();
        match tested.response() {
            Ok(_) if !has_fired => {
                let check_at = next_check(view);
                self.state = State::Waiting { watch, session, check_at };
                Step::Wait(Some(check_at))
            }
            Ok(_) => self.list(),
            Err(error) if error.is_no_node() => self.list(),
            Err(error) => self.missing(FailedAction::Check, error),
        }
    }

    /// If the directory is missing, nobody is inside.
    fn missing(&self, action: FailedAction, error: OpError) -> DepartStep {
        if error.is_no_node() {
            return Step::Done(Ok(()));
        }
        self.failed(action, error)
    }

    fn failed(&self, action: FailedAction, error: OpError) -> DepartStep {
        Step::Done(Err(Failure::new(action, self.directory.clone(), error)))
    }
}

impl Machine for Depart {
    type Output = Result<(), Failure>;

    fn start(&mut self, _: SessionView) -> DepartStep {
        self.list()
    }

    fn handle(&mut self, view: SessionView, input: Input) -> DepartStep {
        match (self.state, input) {
            (State::Listing, Input::Answered(answers)) => self.listed(answers),
            (State::Testing { watch, has_fired, .. }, Input::Answered(answers)) => {
                self.tested(view, answers, watch, has_fired)
            }
            (State::Testing { watch, .. }, Input::Watch { watch: fired, .. }) if fired == watch => {
                self.state = State::Testing { watch, has_fired: true };
                Step::Wait(None)
            }
            (State::Waiting { watch, .. }, Input::Watch { watch: fired, .. }) if fired == watch => {
                self.list()
            }
            (State::Waiting { session, .. }, Input::Ended(ended)) if session == Some(ended) => {
                self.list()
            }
            (State::Waiting { watch, session, mut check_at }, _) => {
                if is_check_due(view, &mut check_at) {
                    return self.test(watch);
                }
                self.state = State::Waiting { watch, session, check_at };
                Step::Wait(Some(check_at))
            }
            (_, _) => Step::Wait(None),
        }
    }
}
