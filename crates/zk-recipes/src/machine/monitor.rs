//! Watching a znode: what it is now, and again after each change, in whichever session the client
//! has.
//!
//! 1. Read the znode, and watch it.
//! 2. If it does not exist, test its existence with a watch, because a read of a missing znode sets
//!    no watch. If it was created in between, continue with 1.
//! 3. Report what was read. When the watch fires or its session ends, continue with 1.
//!
//! The client restores watches after a reconnect, and a server then fires those that missed a
//! change, so a lost connection alone is not a reason to read again.
//!
//! Changes that happen while a read is in flight are reported by one later read. So there is at
//! most one request per reply, however fast the znode changes.

use bytestring::ByteString;
use jute_codec::Response;
use zk_session::{OpError, SessionId, Time};

use super::answer::{Answers, Needs};
use super::failure::Failure;
use super::operation::{flight, list, read, watch_existence};
use super::pause::Pauses;
use super::step::{Input, Machine, SessionView, Step};
use super::watch::{WatchNumber, WatchNumbers};
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
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Step 1 is due.
    Changed,
    /// Step 1 or 2 is in flight, with this watch.
    Reading { watch: WatchNumber, tests_existence: bool },
    /// Step 3: this watch of this session reports the next change.
    Watching { watch: WatchNumber, session: Option<SessionId> },
    /// A failure was reported. Step 1 is due at this time.
    Pausing(Time),
}

impl Monitor {
    pub(crate) fn new(path: ByteString, aspect: Aspect) -> Self {
        let watches = WatchNumbers::default();
        Self { path, aspect, watches, pauses: None, state: State::Changed }
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

    /// Returns whether the znode has to be read, so that [`start`](Machine::start) submits a
    /// flight.
    pub(crate) fn is_due(&self) -> bool {
        self.state == State::Changed
    }

    /// Makes the machine read the znode when it is driven again, whatever it has reported.
    pub(crate) fn read_again(&mut self) {
        self.state = State::Changed;
    }

    /// Takes note of an input that means that the znode has to be read again, without a step. Use
    /// it while another flight is pending on the same lane. Returns whether the input is of the
    /// machine's watch.
    pub(crate) fn note(&mut self, input: &Input) -> bool {
        let State::Watching { watch, session } = self.state else { return false };
        let is_own = matches!(input, Input::Watch { watch: fired, .. } if *fired == watch);
        if is_own || matches!(input, Input::Ended(ended) if session == Some(*ended)) {
            self.state = State::Changed;
        }
        is_own
    }

    fn read(&mut self, tests_existence: bool) -> MonitorStep {
        let watch = self.watches.issue();
        self.state = State::Reading { watch, tests_existence };
        let path = self.path.clone();
        let operation = match self.aspect {
            Aspect::Children if !tests_existence => list(&path, Some(watch)),
            Aspect::Data | Aspect::Lifetime if !tests_existence => read(path, Some(watch)),
            Aspect::Children | Aspect::Data | Aspect::Lifetime => watch_existence(path, watch),
        };
        Step::Submit(flight(None, vec![operation]), Needs::All)
    }

    fn was_read(
        &mut self,
        view: SessionView,
        answers: Answers,
        watch: WatchNumber,
        tests_existence: bool,
    ) -> MonitorStep {
        let session = answers.session;
        let [result] = answers.take();
        match result.response() {
            Ok(_) if tests_existence => self.read(false),
            Ok(response) => self.report(watch, session, Some(response)),
            Err(error) if error.is_no_node() && tests_existence => {
                self.report(watch, session, None)
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
        watch: WatchNumber,
        session: Option<SessionId>,
        seen: Option<Response>,
    ) -> MonitorStep {
        self.state = State::Watching { watch, session };
        self.pauses = self.pauses.map(|_| Pauses::default());
        Step::Done(Ok(seen))
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
            State::Reading { .. } | State::Watching { .. } => Step::Wait(None),
        }
    }

    fn handle(&mut self, view: SessionView, input: Input) -> MonitorStep {
        self.note(&input);
        match (self.state, input) {
            (State::Changed, _) => self.read(false),
            // The next server may accept the read.
            (State::Pausing(_), Input::Suspended) => self.read(false),
            (State::Pausing(_), _) => self.start(view),
            (State::Reading { watch, tests_existence }, Input::Answered(answers)) => {
                self.was_read(view, answers, watch, tests_existence)
            }
            (_, _) => Step::Wait(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use jute_codec::{DataReply, ErrorCode, EventType, Stat};
    use zk_session::Time;

    use zk_session::Outcome;
    use zk_session::recipe::Reply;

    use super::*;
    use crate::machine::Repeating;

    fn view(ms: u64) -> SessionView {
        let now = Time::default() + std::time::Duration::from_millis(ms);
        SessionView {
            now,
            connection: Some(1),
            alive: Some(1),
            is_running_out: false,
            lapses: 0,
            has_expired: false,
            seed: 0,
        }
    }

    const SESSION: SessionId = SessionId(1);

    fn reply(result: Result<Response, OpError>) -> Input {
        Input::Reply(Reply {
            session: Some(SESSION),
            connection: 1,
            results: vec![result],
            refused: None,
        })
    }

    fn failed(error: OpError) -> Input {
        reply(Err(error))
    }

    fn missing() -> Input {
        failed(OpError::server(ErrorCode::NO_NODE))
    }

    fn found() -> Result<Response, OpError> {
        Ok(Response::GetData(DataReply { data: None, stat: Stat::default() }))
    }

    fn exists() -> Result<Response, OpError> {
        Ok(Response::Exists(Stat::default()))
    }

    fn fired(watch: WatchNumber) -> Input {
        Input::Watch { watch, kind: EventType::NODE_DATA_CHANGED }
    }

    fn monitor() -> Repeating<Monitor> {
        Repeating::new(Monitor::new("/a".into(), Aspect::Data))
    }

    /// The watch of the one request of a flight, and whether it tests the existence.
    #[track_caller]
    fn submitted(step: MonitorStep) -> (WatchNumber, bool) {
        let Step::Submit(mut flight, _) = step else { panic!("no flight: {step:?}") };
        assert_eq!((flight.operations.len(), flight.session), (1, None));
        let operation = flight.operations.pop().expect("one operation");
        let watch = operation.watch.expect("a read of a monitor sets a watch");
        (watch, matches!(operation.request, jute_codec::Request::Exists(_)))
    }

    /// Reads a znode that exists. Returns its watch.
    fn watching(machine: &mut Repeating<Monitor>) -> WatchNumber {
        let (watch, _) = submitted(machine.start(view(0)));
        assert!(matches!(machine.handle(view(0), reply(found())), Step::Done(Ok(Some(_)))));
        watch
    }

    #[test]
    fn a_change_is_one_read_and_events_of_other_watches_are_none() {
        let mut machine = monitor();
        let mut watch = watching(&mut machine);
        for _ in 0..3 {
            // Driving the machine again waits for the next change.
            assert!(matches!(machine.start(view(0)), Step::Wait(None)));
            for other in [fired(watch.next()), Input::Suspended, Input::Timer] {
                assert!(matches!(machine.handle(view(0), other), Step::Wait(None)));
            }
            let (next, tests) = submitted(machine.handle(view(0), fired(watch)));
            assert!(next != watch && !tests);
            // Another change while the read is in flight belongs to the old watch.
            assert!(matches!(machine.handle(view(0), fired(watch)), Step::Wait(None)));
            assert!(matches!(machine.handle(view(0), reply(found())), Step::Done(Ok(Some(_)))));
            watch = next;
        }
    }

    #[test]
    fn a_missing_znode_is_reported_once_and_its_creation_is_read() {
        let mut machine = monitor();
        let _ = machine.start(view(0));
        let (watch, tests) = submitted(machine.handle(view(0), missing()));
        assert!(tests, "a read of a missing znode sets no watch");
        assert!(matches!(machine.handle(view(0), missing()), Step::Done(Ok(None))));
        assert!(matches!(machine.start(view(0)), Step::Wait(None)));
        let (_, tests) = submitted(machine.handle(view(0), fired(watch)));
        assert!(!tests);
    }

    #[test]
    fn a_znode_that_is_created_between_read_and_test_is_read() {
        let mut machine = monitor();
        let _ = machine.start(view(0));
        let _ = machine.handle(view(0), missing());
        let (_, tests) = submitted(machine.handle(view(0), reply(exists())));
        assert!(!tests);
        assert!(matches!(machine.handle(view(0), reply(found())), Step::Done(Ok(Some(_)))));
    }

    #[test]
    fn a_lifetime_is_one_request_whatever_its_result() {
        for (result, is_there) in [(reply(found()), true), (missing(), false)] {
            let mut machine = Repeating::new(Monitor::new("/a".into(), Aspect::Lifetime));
            let (_, tests) = submitted(machine.start(view(0)));
            assert!(!tests);
            let step = machine.handle(view(0), result);
            assert!(
                matches!(&step, Step::Done(Ok(seen)) if seen.is_some() == is_there),
                "{step:?}"
            );
        }
    }

    #[test]
    fn the_end_of_its_session_is_a_change_and_that_of_another_is_none() {
        let mut machine = monitor();
        let watch = watching(&mut machine);
        assert!(matches!(machine.handle(view(0), Input::Ended(SessionId(2))), Step::Wait(None)));
        let (next, _) = submitted(machine.handle(view(0), Input::Ended(SESSION)));
        assert_ne!(next, watch, "the old watch has ended with its session");
    }

    #[test]
    fn lost_replies_are_read_again_and_never_reported() {
        let losses = [
            OpError::connection_loss(Outcome::Unknown),
            OpError::connection_loss(Outcome::NotApplied),
            OpError::session_expired(Outcome::NotApplied),
        ];
        let mut machine = monitor();
        let (mut watch, _) = submitted(machine.start(view(0)));
        for loss in losses {
            let (next, tests) = submitted(machine.handle(view(0), failed(loss)));
            assert!(next == watch && !tests);
            watch = next;
        }
        // A watch that was lost with its reply is none of ours.
        assert!(matches!(machine.handle(view(0), reply(found())), Step::Done(Ok(Some(_)))));
    }

    #[test]
    fn the_end_of_the_last_session_is_a_failure() {
        let mut machine = monitor();
        let _ = machine.start(view(0));
        let stopped = SessionView { has_expired: true, ..view(0) };
        let expired = failed(OpError::session_expired(Outcome::NotApplied));
        assert!(matches!(machine.handle(stopped, expired), Step::Done(Err(_))));
    }

    /// However often the machine is driven or woken during a pause, it sends nothing before its
    /// end.
    #[test]
    fn an_overloaded_server_is_asked_after_pauses_that_grow() {
        let mut machine = monitor();
        let _ = machine.start(view(0));
        let mut now = 0;
        let mut lengths = Vec::new();
        for _ in 0..10 {
            let throttled = failed(OpError::server(ErrorCode::THROTTLED_OP));
            let Step::Wait(Some(until)) = machine.handle(view(now), throttled) else {
                panic!("no pause")
            };
            for input in [Input::Ended(SESSION), fired(WatchNumber::FIRST)] {
                let step = machine.handle(view(now), input);
                assert!(matches!(step, Step::Wait(Some(at)) if at == until), "{step:?}");
                let step = machine.start(view(now));
                assert!(matches!(step, Step::Wait(Some(at)) if at == until), "{step:?}");
            }
            let length = until.saturating_since(view(now).now).as_millis();
            lengths.push(length);
            now += length as u64;
            let _ = submitted(machine.handle(view(now), Input::Timer));
        }
        assert_eq!(lengths[..6], [200, 400, 800, 1_600, 3_200, 5_000]);
        // A reply ends the series.
        let _ = machine.handle(view(now), reply(found()));
    }

    #[test]
    fn a_failing_server_is_reported_in_the_end_and_asked_again_when_driven_again() {
        let mut machine = monitor();
        let mut step = machine.start(view(0));
        let mut asked = 0;
        while let Step::Submit(..) = step {
            asked += 1;
            assert!(asked < 100, "without end");
            step = machine.handle(view(0), failed(OpError::server(ErrorCode::SYSTEM_ERROR)));
            if let Step::Wait(_) = step {
                step = machine.handle(view(0), Input::Suspended);
            }
        }
        assert!(matches!(step, Step::Done(Err(_))), "{step:?}");
        let _ = submitted(machine.start(view(0)));
        let refused = failed(OpError::server(ErrorCode::NO_AUTH));
        assert!(matches!(machine.handle(view(0), refused), Step::Done(Err(_))));
        let _ = submitted(machine.start(view(0)));
    }

    /// A dropped future is a machine that is driven again in the same state: it repeats no request,
    /// and the reply and the event still count.
    #[test]
    fn a_machine_that_is_driven_again_repeats_nothing_and_loses_nothing() {
        let mut machine = monitor();
        let (watch, _) = submitted(machine.start(view(0)));
        assert!(matches!(machine.start(view(0)), Step::Wait(None)));
        assert!(matches!(machine.handle(view(0), reply(found())), Step::Done(Ok(Some(_)))));
        assert!(matches!(machine.start(view(0)), Step::Wait(None)));
        let _ = submitted(machine.handle(view(0), fired(watch)));
        assert!(matches!(machine.start(view(0)), Step::Wait(None)));
        assert!(matches!(machine.handle(view(0), missing()), Step::Submit(..)));
        assert!(matches!(machine.start(view(0)), Step::Wait(None)));
        assert!(matches!(machine.handle(view(0), missing()), Step::Done(Ok(None))));
    }

    /// A machine that shares its lane takes note of events while another flight is pending.
    #[test]
    fn an_event_that_is_noted_is_read_when_the_machine_is_driven() {
        for is_event in [true, false] {
            let mut machine = monitor();
            let watch = watching(&mut machine);
            assert!(!machine.machine.is_due());
            assert!(!machine.machine.note(&fired(watch.next())));
            assert!(!machine.machine.is_due());
            let input = if is_event { fired(watch) } else { Input::Ended(SESSION) };
            assert_eq!(machine.machine.note(&input), is_event);
            assert!(machine.machine.is_due());
            let _ = submitted(machine.start(view(0)));
        }
    }
}
