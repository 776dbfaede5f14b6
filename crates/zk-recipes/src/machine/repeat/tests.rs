//! Tests of the policy, with a machine that only asks.

use std::collections::BTreeSet;
use std::time::Duration;

use jute_codec::{ErrorCode, EventType, Response};
use zk_session::recipe::{Operation, WatchNumber};
use zk_session::{OpError, SessionId};

use super::super::operation::{barrier, delete, exists, flight, read};
use super::*;

const SESSION: SessionId = SessionId(1);

/// Submits the same flight again after each answer, and remembers the answers.
#[derive(Debug)]
struct Asking {
    session: Option<SessionId>,
    operations: Vec<Operation>,
    needs: Vec<Needs>,
    answers: Vec<Answers>,
}

impl Asking {
    fn new(needs: &[Needs]) -> Repeating<Self> {
        Self::with(vec![delete("/a".into()), delete("/b".into())], needs)
    }

    fn with(operations: Vec<Operation>, needs: &[Needs]) -> Repeating<Self> {
        let (needs, answers) = (needs.to_vec(), Vec::new());
        Repeating::new(Self { session: Some(SESSION), operations, needs, answers })
    }

    fn ask(&self) -> Step<()> {
        let needs = self.needs[self.answers.len() % self.needs.len()];
        Step::Submit(flight(self.session, self.operations.clone()), needs)
    }
}

impl Machine for Asking {
    type Output = ();

    fn start(&mut self, _: SessionView) -> Step<()> {
        self.ask()
    }

    fn handle(&mut self, _: SessionView, input: Input) -> Step<()> {
        let Input::Answered(answers) = input else { return Step::Wait(None) };
        self.answers.push(answers);
        self.ask()
    }
}

fn view(ms: u64) -> SessionView {
    let now = Time::default() + Duration::from_millis(ms);
    let (connection, alive) = (Some(1), Some(1));
    SessionView {
        now,
        connection,
        alive,
        is_running_out: false,
        lapses: 0,
        has_expired: false,
        has_left_session: false,
        seed: 0,
    }
}

fn done() -> Result<Response, OpError> {
    Ok(Response::Empty)
}

fn refused(code: ErrorCode) -> Result<Response, OpError> {
    Err(OpError::server(code))
}

fn lost(outcome: Outcome) -> Result<Response, OpError> {
    Err(OpError::connection_loss(outcome))
}

fn reply(first: Result<Response, OpError>, second: Result<Response, OpError>) -> Input {
    replies(vec![first, second])
}

fn replies(results: Vec<Result<Response, OpError>>) -> Input {
    Input::Reply(Reply { session: Some(SESSION), connection: 1, results, refused: None })
}

#[track_caller]
fn submitted(step: &Step<()>) -> usize {
    let Step::Submit(flight, _) = step else { panic!("no flight: {step:?}") };
    flight.operations.len()
}

#[track_caller]
fn paused(step: &Step<()>, now: u64) -> u64 {
    let Step::Wait(Some(until)) = step else { panic!("no pause: {step:?}") };
    until.saturating_since(view(now).now).as_millis().try_into().expect("it is short")
}

#[test]
fn operations_that_belong_together_are_issued_again_together() {
    let mut asking = Asking::new(&[Needs::All]);
    let _ = asking.start(view(0));
    for _ in 0..100 {
        let step = asking.handle(view(0), reply(done(), lost(Outcome::Unknown)));
        assert_eq!((submitted(&step), asking.machine.answers.len()), (2, 0));
    }
}

#[test]
fn of_others_those_without_a_result_are_issued_again() {
    let mut asking = Asking::new(&[Needs::Each]);
    let _ = asking.start(view(0));
    let first = |result| {
        let (session, results) = (Some(SESSION), vec![result]);
        Input::Reply(Reply { session, connection: 2, results, refused: None })
    };
    let mut step = asking.handle(view(0), reply(lost(Outcome::Unknown), done()));
    for _ in 0..100 {
        assert_eq!((submitted(&step), asking.machine.answers.len()), (1, 0));
        step = asking.handle(view(0), first(lost(Outcome::NotApplied)));
    }
    let _ = asking.handle(view(0), first(refused(ErrorCode::NO_NODE)));
    let answers = &asking.machine.answers[0].results;
    assert!(answers[0].is_no_node() && matches!(answers[1], Answer::Done(_)), "{answers:?}");
}

/// The server has refused a delete and answered the read behind it. Before the delete is repeated,
/// another client may delete both: the read has to be repeated too.
#[test]
fn a_read_is_issued_again_with_the_write_in_front_of_it() {
    let operations =
        [exists("/c".into()), delete("/a".into()), exists("/a".into()), delete("/b".into())];
    for missing in [refused(ErrorCode::SYSTEM_ERROR), lost(Outcome::Unknown)] {
        let mut asking = Asking::with(operations.to_vec(), &[Needs::Each]);
        let _ = asking.start(view(0));
        let mut step = asking.handle(view(0), replies(vec![done(), missing, done(), done()]));
        if matches!(step, Step::Wait(_)) {
            step = asking.handle(view(0), Input::Suspended);
        }
        let Step::Submit(flight, _) = step else { panic!("no flight: {step:?}") };
        assert_eq!(flight.operations, operations[1..3]);
        let gone = || refused(ErrorCode::NO_NODE);
        let _ = asking.handle(view(0), reply(gone(), gone()));
        let answers = &asking.machine.answers[0].results;
        assert!(answers[1].is_no_node() && answers[2].is_no_node(), "{answers:?}");
        assert!(matches!((&answers[0], &answers[3]), (Answer::Done(_), Answer::Done(_))));
    }
}

/// A write that a server fails to execute, and that is given up, may still be applied. So a machine
/// must not conclude anything from the read behind it.
#[test]
fn a_read_is_given_up_with_the_write_in_front_of_it() {
    for needs in [Needs::All, Needs::Each] {
        let operations = vec![barrier("/a".into()), exists("/a".into())];
        let mut asking = Asking::with(operations, &[needs]);
        let _ = asking.start(view(0));
        for _ in 0..100 {
            let _ = asking.handle(view(0), reply(refused(ErrorCode::SYSTEM_ERROR), done()));
            if !asking.machine.answers.is_empty() {
                break;
            }
            assert_eq!(submitted(&asking.handle(view(0), Input::Suspended)), 2);
        }
        let answers = &asking.machine.answers[0].results;
        let is_refused = |it: &Answer| it.is_refused_with(ErrorCode::SYSTEM_ERROR);
        assert!(answers.iter().all(is_refused), "{needs:?}: {answers:?}");
    }
}

/// Reads two znodes and watches them, and submits the same again after each answer.
#[derive(Debug, Default)]
struct Watching {
    answers: Vec<Answers>,
}

impl Machine for Watching {
    type Output = ();

    fn start(&mut self, _: SessionView) -> Step<()> {
        let first = WatchNumber::FIRST;
        let reads = vec![read("/a".into(), Some(first)), read("/b".into(), Some(first.next()))];
        Step::Submit(flight(Some(SESSION), reads), Needs::Each)
    }

    fn handle(&mut self, view: SessionView, input: Input) -> Step<()> {
        let Input::Answered(answers) = input else { return Step::Wait(None) };
        self.answers.push(answers);
        self.start(view)
    }
}

#[test]
fn a_result_whose_watch_has_fired_since_is_asked_for_again() {
    let one = |result| {
        let (session, results) = (Some(SESSION), vec![result]);
        Input::Reply(Reply { session, connection: 1, results, refused: None })
    };
    let throttled = || refused(ErrorCode::THROTTLED_OP);
    let (a, b) = (WatchNumber::FIRST, WatchNumber::FIRST.next());
    let fired = |watch| Input::Watch { watch, kind: EventType::NODE_DELETED };
    let missing = |asking: &Repeating<Watching>| {
        asking.machine.answers[0].results.iter().map(Answer::is_no_node).collect::<Vec<_>>()
    };
    // During the pause, the rest is joined by the result that is out of date.
    let mut asking = Repeating::new(Watching::default());
    let _ = asking.start(view(0));
    let step = asking.handle(view(0), reply(throttled(), done()));
    let until = paused(&step, 0);
    let step = asking.handle(view(1), fired(b));
    assert_eq!(paused(&step, 0), until);
    let step = asking.handle(view(until), Input::Timer);
    assert_eq!(submitted(&step), 2);
    let _ = asking.handle(view(until), reply(done(), refused(ErrorCode::NO_NODE)));
    assert_eq!(missing(&asking), [false, true]);

    // While the rest is in flight, the result that is out of date follows it.
    let mut asking = Repeating::new(Watching::default());
    let _ = asking.start(view(0));
    let _ = asking.handle(view(0), reply(throttled(), done()));
    let step = asking.handle(view(until), Input::Timer);
    assert_eq!(submitted(&step), 1);
    assert!(matches!(asking.handle(view(until), fired(b)), Step::Wait(None)));
    let step = asking.handle(view(until), one(done()));
    assert_eq!((submitted(&step), asking.machine.answers.len()), (1, 0));
    let _ = asking.handle(view(until), one(refused(ErrorCode::NO_NODE)));
    assert_eq!(missing(&asking), [false, true]);

    // A watch may fire before the reply to its flight arrives.
    let mut asking = Repeating::new(Watching::default());
    let _ = asking.start(view(0));
    assert!(matches!(asking.handle(view(0), fired(a)), Step::Wait(None)));
    let step = asking.handle(view(0), reply(done(), done()));
    assert_eq!((submitted(&step), asking.machine.answers.len()), (1, 0));
    let _ = asking.handle(view(0), one(refused(ErrorCode::NO_NODE)));
    assert_eq!(missing(&asking), [true, false]);

    // The watch of another flight changes nothing.
    let mut asking = Repeating::new(Watching::default());
    let _ = asking.start(view(0));
    let _ = asking.handle(view(0), fired(b.next()));
    let _ = asking.handle(view(0), reply(done(), done()));
    assert_eq!(missing(&asking), [false, false]);
}

#[test]
fn what_is_out_of_date_is_not_handed_over_when_the_rest_is_given_up() {
    let failed = || refused(ErrorCode::SYSTEM_ERROR);
    let mut asking = Repeating::new(Watching::default());
    let _ = asking.start(view(0));
    let mut step = asking.handle(view(0), reply(failed(), done()));
    let mut now = 0;
    let fired =
        Input::Watch { watch: WatchNumber::FIRST.next(), kind: EventType::NODE_DATA_CHANGED };
    while asking.machine.answers.is_empty() {
        now = paused(&step, now) + now;
        let left = submitted(&asking.handle(view(now), Input::Timer));
        let _ = asking.handle(view(now), fired.clone());
        let results = std::iter::repeat_with(failed).take(left).collect();
        let (session, connection) = (Some(SESSION), 1);
        let answer = Reply { session, connection, results, refused: None };
        step = asking.handle(view(now), Input::Reply(answer));
    }
    let answers = &asking.machine.answers[0].results;
    assert!(matches!(answers[..], [Answer::Refused(_), Answer::Refused(_)]), "{answers:?}");
}

#[test]
fn the_answers_say_that_earlier_flights_may_have_been_applied() {
    for (outcome, is_repeated) in [(Outcome::Unknown, true), (Outcome::NotApplied, false)] {
        let mut asking = Asking::new(&[Needs::All]);
        let _ = asking.start(view(0));
        let _ = asking.handle(view(0), reply(lost(outcome), lost(outcome)));
        let _ = asking.handle(view(0), reply(done(), refused(ErrorCode::NO_NODE)));
        let answers = &asking.machine.answers[0];
        assert_eq!((answers.replays, answers.is_repeated), (1, is_repeated));
        assert!(matches!(answers.results[0], Answer::Done(_)));
        assert!(answers.results[1].is_no_node());
    }
}

#[test]
fn pauses_grow_end_with_the_connection_and_differ_between_lanes() {
    let mut asking = Asking::new(&[Needs::All]);
    let _ = asking.start(view(0));
    let mut now = 0;
    let mut lengths = Vec::new();
    let busy = || reply(done(), refused(ErrorCode::THROTTLED_OP));
    for _ in 0..7 {
        let step = asking.handle(view(now), busy());
        let length = paused(&step, now);
        for early in [Input::Timer, Input::Ended(SESSION)] {
            let step = asking.handle(view(now + length - 1), early);
            assert_eq!(paused(&step, now), length, "nothing ends it early");
        }
        lengths.push(length);
        now += length;
        assert_eq!(submitted(&asking.handle(view(now), Input::Timer)), 2);
    }
    assert_eq!(lengths, [200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
    let _ = asking.handle(view(now), busy());
    assert_eq!(submitted(&asking.handle(view(now), Input::Suspended)), 2);
    let first = |seed: u64| {
        let mut asking = Asking::new(&[Needs::All]);
        let _ = asking.start(view(0));
        paused(&asking.handle(SessionView { seed, ..view(0) }, busy()), 0)
    };
    let lengths: BTreeSet<u64> = (0..256).map(first).collect();
    assert!(lengths.len() > 40, "{lengths:?}");
    assert!(lengths.iter().all(|length| (200..=250).contains(length)), "{lengths:?}");
}

/// Answers each flight in this way, until the machine has an answer. Returns the number of flights.
fn until_answered(asking: &mut Repeating<Asking>, input: &Input) -> usize {
    let mut step = asking.start(view(0));
    for flights in 1..1_000 {
        let _ = submitted(&step);
        step = asking.handle(view(0), input.clone());
        if !asking.machine.answers.is_empty() {
            return flights;
        }
        if let Step::Wait(_) = step {
            step = asking.handle(view(0), Input::Suspended);
        }
    }
    1_000
}

#[test]
fn what_may_not_pass_is_given_up_and_what_passes_is_waited_out() {
    for needs in [Needs::All, Needs::Each] {
        let failing = reply(refused(ErrorCode::SYSTEM_ERROR), done());
        let mut asking = Asking::new(&[needs]);
        assert!((5..=10).contains(&until_answered(&mut asking, &failing)), "{needs:?}");
        let answer = &asking.machine.answers[0].results[0];
        assert!(answer.is_refused_with(ErrorCode::SYSTEM_ERROR), "{answer:?}");
    }
    for needs in [Needs::All, Needs::Each, Needs::Once(0)] {
        let busy = reply(refused(ErrorCode::THROTTLED_OP), done());
        assert_eq!(until_answered(&mut Asking::new(&[needs]), &busy), 1_000, "{needs:?}");
    }
}

/// Otherwise calls would fail with a lost connection, although all of them survive that.
#[test]
fn a_connection_that_is_lost_behind_the_last_refusal_is_not_the_reason_to_give_up() {
    let fail = || refused(ErrorCode::SYSTEM_ERROR);
    for needs in [Needs::All, Needs::Each, Needs::Once(0), Needs::Once(1), Needs::OneTry] {
        let mut asking = Asking::new(&[needs]);
        let _ = asking.start(view(0));
        for _ in 0..8 {
            let _ = asking.handle(view(0), reply(fail(), fail()));
            let _ = asking.handle(view(1_000_000), Input::Timer);
            asking.machine.answers.clear();
        }
        let _ = asking.handle(view(0), reply(fail(), lost(Outcome::Unknown)));
        let answers = asking.machine.answers.pop().expect("it is given up");
        for answer in answers.results {
            // Only of a write it is unknown whether it was applied.
            let may_be_unknown = !matches!(needs, Needs::All | Needs::Each);
            assert!(
                answer.is_refused_with(ErrorCode::SYSTEM_ERROR)
                    || may_be_unknown
                        && matches!(&answer, Answer::Unknown { error, is_final: true }
                        if error.server_code() == Some(ErrorCode::SYSTEM_ERROR)),
                "{needs:?}: {answer:?}"
            );
        }
    }
}

/// A machine reads between two writes, and the reads succeed. The writes fail all the same.
#[test]
fn reads_that_succeed_do_not_hide_that_each_write_fails() {
    for needs in [Needs::Once(0), Needs::OneTry] {
        assert_given_up_between_reads(needs);
    }
}

fn assert_given_up_between_reads(needs: Needs) {
    let mut asking = Asking::new(&[needs, Needs::All]);
    let mut step = asking.start(view(0));
    let mut pauses = Vec::new();
    let is_final =
        |answers: &Answers| matches!(answers.results[0], Answer::Unknown { is_final: true, .. });
    while !asking.machine.answers.iter().any(is_final) {
        assert!(pauses.len() < 100, "it is never given up");
        let _ = submitted(&step);
        // The machine knows at once that its write may have been applied.
        let known = asking.machine.answers.len();
        step = asking.handle(view(0), reply(refused(ErrorCode::SYSTEM_ERROR), done()));
        assert_eq!(asking.machine.answers.len(), known + 1);
        // Its next flight waits.
        pauses.push(paused(&step, 0));
        step = asking.handle(view(0), Input::Suspended);
        let _ = submitted(&step);
        step = asking.handle(view(0), reply(done(), done()));
    }
    assert_eq!(pauses[..5], [200, 400, 800, 1_600, 3_200]);
}

#[test]
fn a_write_is_issued_again_only_if_it_was_not_applied() {
    let mut asking = Asking::new(&[Needs::Once(1)]);
    let _ = asking.start(view(0));
    let step = asking.handle(view(0), reply(done(), lost(Outcome::NotApplied)));
    assert_eq!((submitted(&step), asking.machine.answers.len()), (2, 0));
    let step = asking.handle(view(0), reply(done(), lost(Outcome::Unknown)));
    // The next flight is the next one of the machine, and waits for the connection by itself.
    assert_eq!((submitted(&step), asking.machine.answers.len()), (2, 1));
    let unknown = &asking.machine.answers[0].results[1];
    assert!(matches!(unknown, Answer::Unknown { is_final: false, .. }), "{unknown:?}");
    // What is beside it may be missing.
    let _ = asking.handle(view(0), reply(lost(Outcome::Unknown), done()));
    let missing = &asking.machine.answers[1].results;
    assert!(matches!(missing[..], [Answer::Unknown { .. }, Answer::Done(_)]), "{missing:?}");
}

#[test]
fn one_try_is_one_try_and_a_failure_delays_the_next_flight() {
    let mut asking = Asking::new(&[Needs::OneTry]);
    let _ = asking.start(view(0));
    for (error, waits) in [
        (OpError::connection_loss(Outcome::NotApplied), false),
        (OpError::server(ErrorCode::THROTTLED_OP), true),
        (OpError::server(ErrorCode::SYSTEM_ERROR), true),
    ] {
        let outcome = error.outcome();
        let step = asking.handle(view(0), reply(Err(error), done()));
        let answers = asking.machine.answers.last().expect("it is answered");
        let Answer::Unknown { error, .. } = &answers.results[0] else { panic!("{answers:?}") };
        assert_eq!(error.outcome(), outcome);
        assert_eq!(matches!(step, Step::Wait(Some(_))), waits, "{step:?}");
        let _ = asking.handle(view(0), Input::Suspended);
    }
}

#[test]
fn a_flight_for_any_session_outlives_one_and_not_the_client() {
    for needs in [Needs::All, Needs::Each] {
        let over = || Err(OpError::session_expired(Outcome::NotApplied));
        let stopped = SessionView { has_expired: true, ..view(0) };
        let mut asking = Asking::new(&[needs]);
        asking.machine.session = None;
        let _ = asking.start(view(0));
        assert_eq!(submitted(&asking.handle(view(0), reply(over(), over()))), 2);
        let _ = asking.handle(stopped, reply(over(), over()));
        let answers = &asking.machine.answers[0].results;
        assert!(answers.iter().all(|it| matches!(it, Answer::SessionEnded)), "{answers:?}");
        // A flight of one session ends with it.
        let mut asking = Asking::new(&[needs]);
        let _ = asking.start(view(0));
        let _ = asking.handle(view(0), reply(over(), over()));
        assert_eq!(asking.machine.answers.len(), 1);
    }
}

#[test]
fn the_reply_to_the_flight_of_another_machine_is_handed_in_as_it_is() {
    let mut asking = Asking::new(&[Needs::All]);
    let _ = asking.handle(view(0), reply(lost(Outcome::Unknown), lost(Outcome::NotApplied)));
    let answers = &asking.machine.answers[0].results;
    let outcome = |answer: &Answer| {
        let Answer::Unknown { error, .. } = answer else { panic!("{answer:?}") };
        error.outcome()
    };
    let outcomes: Vec<_> = answers.iter().map(outcome).collect();
    assert_eq!(outcomes, [Outcome::Unknown, Outcome::NotApplied]);
}
