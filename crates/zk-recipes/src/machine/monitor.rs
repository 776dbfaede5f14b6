//! Watching a znode: what it is now, and again after each change, in whichever session the client
//! has.
//!
//! 1. Read the znode, and watch it.
//! 2. If it does not exist, test its existence with a watch, because a read of a missing znode sets
//!    no watch. If it was created in between, continue with 1.
//! 3. Report what was read. When the watch fires or its session ends, continue with 1.
//! 4. From time to time, test the existence of the znode without a watch. If the znode has changed,
//!    continue with 1. A refusal is a failure: servers from 3.8.4 and 3.9.2 neither answer nor send
//!    events to those who may no longer read the znode.
//!
//! The client restores watches after a reconnect, and a server then fires those that missed a
//! change, so a lost connection alone is not a reason to read again.
//!
//! Changes that happen while a read is in flight are reported by one later read. So there is at
//! most one request per reply, however fast the znode changes.

use bytestring::ByteString;
use jute_codec::{Response, Stat};
use zk_session::{OpError, SessionId, Time, Zxid};

use super::answer::{Answers, Needs};
use super::failure::Failure;
use super::operation::{exists, flight, list, read, watch_existence};
use super::pause::Pauses;
use super::step::{Input, Machine, SessionView, Step};
use super::watch::{WatchNumber, WatchNumbers, is_check_due, next_check};
use crate::action::FailedAction;

type MonitorStep = Step<Result<Option<Response>, Failure>>;

/// What a [`Monitor`] reads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Aspect {
    /// The names of the children.
    Children,
    /// The data and the stat.
    Data,
    /// The data and the stat until the znode is gone. That is the last report, so it comes without
    /// a watch, which would stay on the servers.
    Lifetime,
}

/// Watches a znode. Each output is what the znode is now; `None` if it does not exist.
///
/// Driving the machine again after an output waits for the next change; after a failure, it tries
/// again. Dropping the future that drives it loses nothing.
#[derive(Debug)]
pub(crate) struct Monitor {
    path: ByteString,
    aspect: Aspect,
    watches: WatchNumbers,
    /// Between failures that were reported, if there are pauses.
    pauses: Option<Pauses>,
    /// The last change of what was reported, if the znode existed.
    reported: Option<Zxid>,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Step 1 is due.
    Changed,
    /// Step 1 or 2 is in flight, with this watch.
    Reading { watch: WatchNumber, tests_existence: bool },
    /// Step 3: this watch of this session reports the next change. Step 4 is due at this time.
    Watching { watch: WatchNumber, session: Option<SessionId>, check_at: Time },
    /// Step 4 is in flight.
    Checking { watch: WatchNumber, session: Option<SessionId>, has_changed: bool },
    /// A failure was reported. Step 1 is due at this time.
    Pausing(Time),
}

impl Monitor {
    pub(crate) fn new(path: ByteString, aspect: Aspect) -> Self {
        let watches = WatchNumbers::default();
        Self { path, aspect, watches, pauses: None, reported: None, state: State::Changed }
    }

    /// Makes the machine pause after a failure, so that a caller who ignores errors does not send
    /// requests without end.
    pub(crate) fn pausing(self) -> Self {
        Self { pauses: Some(Pauses::default()), ..self }
    }

    /// Returns a watch number for another operation on the same lane.
    pub(crate) fn issue_watch(&mut self) -> WatchNumber {
        self.watches.issue()
    }

    /// Returns whether the machine waits for its watch, with no flight pending.
    pub(crate) fn is_watching(&self) -> bool {
        matches!(self.state, State::Watching { .. })
    }

    /// Makes the machine read the znode when it is driven again, whatever it has reported.
    pub(crate) fn read_again(&mut self) {
        self.state = State::Changed;
    }

    /// Takes note of an input that means that the znode has to be read again, without a step. Use
    /// it while another flight is pending on the same lane. Returns whether the input is of the
    /// machine's watch.
    pub(crate) fn note(&mut self, input: &Input) -> bool {
        let (State::Watching { watch, session, .. } | State::Checking { watch, session, .. }) =
            self.state
        else {
            return false;
        };
        let is_own = matches!(input, Input::Watch { watch: fired, .. } if *fired == watch);
        if is_own || matches!(input, Input::Ended(ended) if session == Some(*ended)) {
            if let State::Checking { has_changed, .. } = &mut self.state {
                *has_changed = true;
            } else {
                self.state = State::Changed;
            }
        }
        is_own
    }

    fn read(&mut self, tests_existence: bool) -> MonitorStep {
        let watch = self.watches.issue();
        self.state = State::Reading { watch, tests_existence };
        let path = self.path.clone();
        let operations = match self.aspect {
            // A list has no stat. The one before it may be older, which costs one list at most.
            Aspect::Children if !tests_existence => {
                vec![exists(path.clone()), list(&path, Some(watch))]
            }
            Aspect::Data | Aspect::Lifetime if !tests_existence => vec![read(path, Some(watch))],
            Aspect::Children | Aspect::Data | Aspect::Lifetime => {
                vec![watch_existence(path, watch)]
            }
        };
        Step::Submit(flight(None, operations), Needs::All)
    }

    fn was_read(
        &mut self,
        view: SessionView,
        answers: Answers,
        watch: WatchNumber,
        tests_existence: bool,
    ) -> MonitorStep {
        let session = answers.session;
        let (stat, result) = if self.aspect == Aspect::Children && !tests_existence {
            let [stat, list] = answers.take();
            (stat.response().ok(), list)
        } else {
            let [result] = answers.take();
            (None, result)
        };
        self.reported = match stat {
            Some(Response::Exists(stat)) => Some(self.last_change(&stat)),
            _ => None,
        };
        match result.response() {
            Ok(_) if tests_existence => self.read(false),
            Ok(response) => self.report(view, watch, session, Some(response)),
            Err(error) if error.is_no_node() && tests_existence => {
                self.report(view, watch, session, None)
            }
            Err(error) if error.is_no_node() && self.aspect == Aspect::Lifetime => {
                self.state = State::Changed;
                self.pauses = self.pauses.map(|_| Pauses::default());
                Step::Done(Ok(None))
            }
            Err(error) if error.is_no_node() => self.read(true),
            Err(error) => self.failed(view, error),
        }
    }

    fn report(
        &mut self,
        view: SessionView,
        watch: WatchNumber,
        session: Option<SessionId>,
        seen: Option<Response>,
    ) -> MonitorStep {
        if let Some(Response::GetData(found)) = &seen {
            self.reported = Some(self.last_change(&found.stat));
        }
        self.state = State::Watching { watch, session, check_at: next_check(view) };
        self.pauses = self.pauses.map(|_| Pauses::default());
        Step::Done(Ok(seen))
    }

    /// Returns the transaction that has made the last change that matters.
    fn last_change(&self, stat: &Stat) -> Zxid {
        match self.aspect {
            Aspect::Children => stat.pzxid,
            Aspect::Data | Aspect::Lifetime => stat.mzxid,
        }
    }

    /// Step 4.
    fn check(&mut self, watch: WatchNumber, session: Option<SessionId>) -> MonitorStep {
        self.state = State::Checking { watch, session, has_changed: false };
        Step::Submit(flight(None, vec![exists(self.path.clone())]), Needs::All)
    }

    fn checked(
        &mut self,
        view: SessionView,
        answers: Answers,
        watch: WatchNumber,
        session: Option<SessionId>,
    ) -> MonitorStep {
        let [result] = answers.take();
        let found = match result.response() {
            Ok(Response::Exists(stat)) => Some(self.last_change(&stat)),
            Ok(_) => None,
            Err(error) if error.is_no_node() => None,
            Err(error) => return self.failed(view, error),
        };
        if found != self.reported {
            return self.read(false);
        }
        let check_at = next_check(view);
        self.state = State::Watching { watch, session, check_at };
        Step::Wait(Some(check_at))
    }

    /// Reports a failure. If the machine is driven again, it tries again.
    fn failed(&mut self, view: SessionView, error: OpError) -> MonitorStep {
        self.state = match &mut self.pauses {
            Some(pauses) => State::Pausing(pauses.begin(view.now, view.seed)),
            None => State::Changed,
        };
        let action = match self.aspect {
            Aspect::Children => FailedAction::List,
            Aspect::Data | Aspect::Lifetime => FailedAction::Read,
        };
        Step::Done(Err(Failure::new(action, self.path.clone(), error)))
    }
}

impl Machine for Monitor {
    type Output = Result<Option<Response>, Failure>;

    fn start(&mut self, view: SessionView) -> MonitorStep {
        match self.state {
            State::Changed => self.read(false),
            State::Pausing(until) if until <= view.now => self.read(false),
            State::Pausing(until) => Step::Wait(Some(until)),
            State::Watching { watch, session, mut check_at } => {
                if is_check_due(view, &mut check_at) {
                    return self.check(watch, session);
                }
                self.state = State::Watching { watch, session, check_at };
                Step::Wait(Some(check_at))
            }
            State::Reading { .. } | State::Checking { .. } => Step::Wait(None),
        }
    }

    fn handle(&mut self, view: SessionView, input: Input) -> MonitorStep {
        self.note(&input);
        match (self.state, input) {
            (State::Changed, _) => self.read(false),
            // The next server may accept the read.
            (State::Pausing(_), Input::Suspended) => self.read(false),
            (State::Pausing(_) | State::Watching { .. }, _) => self.start(view),
            (State::Checking { has_changed: true, .. }, Input::Answered(_)) => self.read(false),
            (State::Checking { watch, session, .. }, Input::Answered(answers)) => {
                self.checked(view, answers, watch, session)
            }
            (State::Reading { watch, tests_existence }, Input::Answered(answers)) => {
                self.was_read(view, answers, watch, tests_existence)
            }
            (_, _) => Step::Wait(None),
        }
    }
}

#[cfg(test)]
mod tests;
