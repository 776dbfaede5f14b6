//! Tests of the machine that watches a znode, without servers.

use std::time::Duration;

use jute_codec::{DataReply, ErrorCode, EventType, NameList};
use zk_session::Outcome;
use zk_session::recipe::Reply;

use super::*;
use crate::machine::Repeating;

fn view(ms: u64) -> SessionView {
    let now = Time::default() + Duration::from_millis(ms);
    SessionView {
        now,
        connection: Some(1),
        alive: Some(1),
        is_running_out: false,
        lapses: 0,
        has_expired: false,
        has_left_session: false,
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
        assert!(matches!(machine.start(view(0)), Step::Wait(Some(_))));
        for other in [fired(watch.next()), Input::Suspended, Input::Timer] {
            assert!(matches!(machine.handle(view(0), other), Step::Wait(Some(_))));
        }
        let (next, tests) = submitted(machine.handle(view(0), fired(watch)));
        assert!(next != watch && !tests);
        // Another change while the read is in flight belongs to the old watch.
        assert!(matches!(machine.handle(view(0), fired(watch)), Step::Wait(None)));
        assert!(matches!(machine.handle(view(0), reply(found())), Step::Done(Ok(Some(_)))));
        watch = next;
    }
}

/// Lets a machine that watches a znode check it. Returns when it did.
fn checking(machine: &mut Repeating<Monitor>, now: u64) -> u64 {
    let Step::Wait(Some(at)) = machine.start(view(now)) else { panic!("it never checks") };
    let ms = at.saturating_since(Time::default()).as_millis() as u64;
    assert!((now + 30_000..=now + 37_500).contains(&ms), "{now}, {ms}");
    let step = machine.handle(view(ms - 1), Input::Timer);
    assert!(matches!(step, Step::Wait(Some(again)) if again == at), "too early: {step:?}");
    let Step::Submit(flight, _) = machine.handle(view(ms), Input::Timer) else {
        panic!("no check")
    };
    let [operation] = &flight.operations[..] else { panic!("one operation") };
    let is_test = matches!(operation.request, jute_codec::Request::Exists(_));
    assert!(is_test && operation.watch.is_none());
    // A caller that begins again does not repeat it.
    assert!(matches!(machine.start(view(ms)), Step::Wait(None)));
    ms
}

fn written(zxid: i64) -> Stat {
    Stat { mzxid: Zxid(zxid), ..Stat::default() }
}

#[test]
fn a_check_that_finds_nothing_new_reports_nothing_and_another_follows() {
    let mut machine = Repeating::new(Monitor::new("/a".into(), Aspect::Data));
    let _ = watching(&mut machine);
    let mut now = 0;
    for _ in 0..3 {
        now = checking(&mut machine, now);
        let step = machine.handle(view(now), reply(exists()));
        assert!(matches!(step, Step::Wait(Some(_))), "{step:?}");
    }
    // A znode that is missing stays missing.
    let mut machine = Repeating::new(Monitor::new("/a".into(), Aspect::Data));
    let _ = machine.start(view(0));
    let _ = machine.handle(view(0), missing());
    assert!(matches!(machine.handle(view(0), missing()), Step::Done(Ok(None))));
    now = checking(&mut machine, 0);
    assert!(matches!(machine.handle(view(now), missing()), Step::Wait(Some(_))));
}

#[test]
fn a_check_reads_what_has_changed_and_reports_a_refusal() {
    for found in [reply(Ok(Response::Exists(written(1)))), missing()] {
        let mut machine = Repeating::new(Monitor::new("/a".into(), Aspect::Data));
        let _ = watching(&mut machine);
        let now = checking(&mut machine, 0);
        let (_, tests) = submitted(machine.handle(view(now), found));
        assert!(!tests);
    }
    let monitor = Monitor::new("/a".into(), Aspect::Data).pausing();
    let mut machine = Repeating::new(monitor);
    let _ = watching(&mut machine);
    let now = checking(&mut machine, 0);
    let refused = failed(OpError::server(ErrorCode::NO_AUTH));
    assert!(matches!(machine.handle(view(now), refused), Step::Done(Err(_))));
    // The next try reads the znode.
    let _ = machine.start(view(now));
    let (_, tests) = submitted(machine.handle(view(now + 5_000), Input::Timer));
    assert!(!tests);
}

/// Otherwise all waiters of a client would check their watches when an outage ends.
#[test]
fn a_check_that_is_due_without_a_connection_comes_an_interval_later() {
    let mut machine = Repeating::new(Monitor::new("/a".into(), Aspect::Data));
    let _ = watching(&mut machine);
    let outage = |ms| SessionView { connection: None, alive: None, ..view(ms) };
    let step = machine.handle(outage(40_000), Input::Timer);
    assert!(matches!(step, Step::Wait(Some(at)) if at >= view(70_000).now), "{step:?}");
    let step = machine.handle(view(50_000), Input::Timer);
    assert!(matches!(step, Step::Wait(Some(at)) if at >= view(70_000).now), "{step:?}");
    assert_eq!(checking(&mut machine, 40_000), 70_000);
}

/// The stat that precedes a list is that of the children.
#[test]
fn a_check_of_a_list_compares_the_last_change_of_the_children() {
    let children = |zxid| Stat { pzxid: Zxid(zxid), ..Stat::default() };
    let list = || Ok(Response::GetChildren(NameList::default()));
    let (mut now, monitor) = (0, Monitor::new("/a".into(), Aspect::Children));
    let mut machine = Repeating::new(monitor);
    let Step::Submit(flight, _) = machine.start(view(0)) else { panic!("no flight") };
    assert_eq!(flight.operations.len(), 2);
    let read = Input::Reply(Reply {
        session: Some(SESSION),
        connection: 1,
        results: vec![Ok(Response::Exists(children(7))), list()],
        refused: None,
    });
    assert!(matches!(machine.handle(view(0), read), Step::Done(Ok(Some(_)))));
    for _ in 0..2 {
        now = checking(&mut machine, now);
        let same = Stat { mzxid: Zxid(8), ..children(7) };
        let step = machine.handle(view(now), reply(Ok(Response::Exists(same))));
        assert!(matches!(step, Step::Wait(Some(_))), "{step:?}");
    }
    now = checking(&mut machine, now);
    let step = machine.handle(view(now), reply(Ok(Response::Exists(children(8)))));
    assert!(matches!(step, Step::Submit(..)), "{step:?}");
}

#[test]
fn a_change_during_a_check_is_read_after_its_reply() {
    for loss in [false, true] {
        let mut machine = Repeating::new(Monitor::new("/a".into(), Aspect::Data));
        let watch = watching(&mut machine);
        let now = checking(&mut machine, 0);
        let change = if loss { Input::Ended(SESSION) } else { fired(watch) };
        assert!(matches!(machine.handle(view(now), change), Step::Wait(None)));
        let (_, tests) = submitted(machine.handle(view(now), reply(exists())));
        assert!(!tests);
    }
}

#[test]
fn a_missing_znode_is_reported_once_and_its_creation_is_read() {
    let mut machine = monitor();
    let _ = machine.start(view(0));
    let (watch, tests) = submitted(machine.handle(view(0), missing()));
    assert!(tests, "a read of a missing znode sets no watch");
    assert!(matches!(machine.handle(view(0), missing()), Step::Done(Ok(None))));
    assert!(matches!(machine.start(view(0)), Step::Wait(Some(_))));
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
        assert!(matches!(&step, Step::Done(Ok(seen)) if seen.is_some() == is_there), "{step:?}");
    }
}

#[test]
fn the_end_of_its_session_is_a_change_and_that_of_another_is_none() {
    let mut machine = monitor();
    let watch = watching(&mut machine);
    assert!(matches!(machine.handle(view(0), Input::Ended(SessionId(2))), Step::Wait(Some(_))));
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
    assert!(matches!(machine.start(view(0)), Step::Wait(Some(_))));
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
        assert!(!machine.machine.note(&fired(watch.next())));
        assert!(machine.machine.is_watching());
        let input = if is_event { fired(watch) } else { Input::Ended(SESSION) };
        assert_eq!(machine.machine.note(&input), is_event);
        assert!(!machine.machine.is_watching());
        let _ = submitted(machine.start(view(0)));
    }
}
