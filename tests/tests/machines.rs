//! Machines that are fed by hand, with sequences that a server hardly ever makes: what arrives in one
//! moment, and answers that contradict each other.

use std::time::Duration;

use jute_codec::{Create2Reply, DataReply, ErrorCode, EventType, NameList, OpCode, Response, Stat};
use zk_recipes::machine::contender::Contender;
use zk_recipes::machine::exclusive::{Exclusive, ExclusiveProfile};
use zk_recipes::machine::release::ReleaseStep;
use zk_recipes::machine::{Input, Profile, Restart, Step, View};
use zk_recipes::{Acl, LockError, Names, Naming, OpError, SessionId, Time};
use zk_session::machine::{Flight, Reply};

const ID: u128 = 7;
const OURS: SessionId = SessionId(1);
const THEIRS: SessionId = SessionId(2);
/// Transaction that created our znode.
const CREATED: i64 = 5;

type Results = Vec<Result<Response, OpError>>;

fn view(connection: u64) -> View {
    View { now: at(0), connection: Some(connection), alive: Some(connection), lapses: 0 }
}

/// Connected, and the guard deadline has passed.
fn lapsed(connection: u64) -> View {
    View { alive: None, ..view(connection) }
}

fn at(ms: u64) -> Time {
    Time::from_start(Duration::from_millis(ms))
}

fn reply(connection: u64, results: Results) -> Input {
    Input::Reply(Reply { session: Some(OURS), connection, results })
}

fn refused<T>(code: ErrorCode) -> Result<T, OpError> {
    Err(OpError::Server(code))
}

fn stat(owner: SessionId, czxid: i64) -> Stat {
    Stat { czxid, ephemeral_owner: owner.0, ..Stat::default() }
}

fn created(path: &str) -> Result<Response, OpError> {
    Ok(Response::Create2(Create2Reply { path: path.into(), stat: stat(OURS, CREATED) }))
}

fn found(owner: SessionId, czxid: i64) -> Result<Response, OpError> {
    let data = Some(format!("{ID:032x}").into());
    Ok(Response::GetData(DataReply { data, stat: stat(owner, czxid) }))
}

fn listed(names: &[String]) -> Result<Response, OpError> {
    Ok(Response::GetChildren(NameList::from_iter(names)))
}

fn own_name() -> String {
    format!("{ID:032x}-lock-0000000001")
}

fn other_name() -> String {
    format!("{:032x}-lock-0000000000", 9)
}

/// The flight of a step, by the codes of its requests.
fn ops(step: &Step) -> Vec<OpCode> {
    let Step::Submit(flight) = step else { panic!("no flight: {step:?}") };
    ops_of(flight)
}

fn ops_of(flight: &Flight) -> Vec<OpCode> {
    flight.operations.iter().map(|operation| operation.request.op()).collect()
}

fn exclusive() -> Exclusive {
    let profile = ExclusiveProfile {
        path: "/a/l".into(),
        acl: Acl::open(),
        identity: "".into(),
        safety_relist: None,
    };
    Exclusive::new(profile, ID, true)
}

/// An exclusive lock, granted on connection 1.
fn exclusive_granted() -> Exclusive {
    let mut machine = exclusive();
    assert_eq!(ops(&machine.start()), [OpCode::CREATE2, OpCode::GET_DATA]);
    let results = vec![created("/a/l"), found(OURS, CREATED)];
    let step = machine.handle(view(1), reply(1, results));
    assert!(matches!(&step, Step::Held(held) if held.connection == 1), "{step:?}");
    machine
}

fn contender() -> Contender {
    let profile = Profile {
        directory: "/l".into(),
        names: Names::Fair(Naming::default()),
        acl: Acl::open(),
        identity: "".into(),
        safety_relist: None,
    };
    Contender::new(profile, ID, true)
}

/// A contender whose claim was answered on connection 1, with these znodes in the queue.
fn claimed(names: &[String]) -> (Contender, Step) {
    let mut machine = contender();
    assert_eq!(ops(&machine.start()), [OpCode::CREATE2, OpCode::GET_CHILDREN]);
    let results = vec![created(&format!("/l/{}", own_name())), listed(names)];
    let step = machine.handle(view(1), reply(1, results));
    (machine, step)
}

fn is_held_on(step: &Step, connection: u64) -> bool {
    matches!(step, Step::Held(held) if held.connection == connection)
}

#[test]
fn an_event_with_the_grant_of_an_exclusive_lock_repeats_it_or_has_it_found_out_again() {
    let changed = Input::Watch { local: 1, kind: EventType::NODE_DATA_CHANGED };
    let step = exclusive_granted().handle(view(1), changed.clone());
    assert!(is_held_on(&step, 1), "{step:?}");
    // The deadline has passed meanwhile, or the connection is another, and nothing else will say so.
    for view in [lapsed(1), view(2), lapsed(2)] {
        let step = exclusive_granted().handle(view, changed.clone());
        assert_eq!(ops(&step), [OpCode::MULTI, OpCode::GET_DATA], "{view:?}");
    }
}

#[test]
fn an_event_with_the_grant_of_a_fair_lock_repeats_it_or_has_it_found_out_again() {
    let stray = Input::Watch { local: 99, kind: EventType::NODE_DATA_CHANGED };
    let granted = || {
        let (machine, step) = claimed(&[own_name()]);
        assert!(is_held_on(&step, 1), "{step:?}");
        machine
    };
    let step = granted().handle(view(1), stray.clone());
    assert!(is_held_on(&step, 1), "{step:?}");
    let step = granted().handle(view(2), stray.clone());
    assert_eq!(ops(&step), [OpCode::GET_CHILDREN, OpCode::GET_DATA]);
    for connection in [1, 2] {
        let step = granted().handle(lapsed(connection), stray.clone());
        assert_eq!(ops(&step), [OpCode::MULTI, OpCode::GET_CHILDREN, OpCode::GET_DATA]);
    }
}

/// Somebody deletes it between the create and the read of one flight, and may create another.
#[test]
fn an_exclusive_lock_that_is_gone_before_it_was_read_is_not_held() {
    for look in [found(OURS, CREATED + 1), found(THEIRS, 6), refused(ErrorCode::NO_NODE)] {
        let mut machine = exclusive();
        let _ = machine.start();
        let step = machine.handle(view(1), reply(1, vec![created("/a/l"), look.clone()]));
        assert!(matches!(step, Step::Restart(Restart::ZnodeGone)), "{look:?}: {step:?}");
    }
}

/// The znode with our name is somebody else's, and another answer of the flight ends it first.
#[test]
fn a_watch_on_a_znode_of_somebody_else_does_not_stand_for_the_own_one() {
    let both = [other_name(), own_name()];
    // The reads of the first watches show it, and the one ahead is gone, or may not be read.
    for ahead in [ErrorCode::NO_NODE, ErrorCode::NO_AUTH, ErrorCode::THROTTLED_OP] {
        let (mut machine, step) = claimed(&both);
        assert_eq!(ops(&step), [OpCode::GET_DATA, OpCode::GET_DATA]);
        let step = machine.handle(view(1), reply(1, vec![refused(ahead), found(THEIRS, 9)]));
        assert_own_is_read_again(machine, step);
    }
    // It is created again while the place is queued; the list of the flight that looks fails.
    for list in [OpError::Server(ErrorCode::THROTTLED_OP), OpError::Server(ErrorCode(-999))] {
        let (mut machine, _) = claimed(&both);
        let step = machine.handle(view(1), reply(1, vec![found(THEIRS, 3), found(OURS, CREATED)]));
        assert!(matches!(step, Step::Wait(None)), "it is queued: {step:?}");
        let own_deleted = Input::Watch { local: 2, kind: EventType::NODE_DELETED };
        let step = machine.handle(view(1), own_deleted);
        assert_eq!(ops(&step), [OpCode::GET_CHILDREN, OpCode::GET_DATA]);
        let step = machine.handle(view(1), reply(1, vec![Err(list), found(THEIRS, 9)]));
        assert_own_is_read_again(machine, step);
    }
}

/// The next list is followed by a read of the own znode, and what that shows is believed.
fn assert_own_is_read_again(mut machine: Contender, mut step: Step) {
    if matches!(step, Step::Wait(Some(_))) {
        step = machine.handle(view(1), Input::Timer);
    }
    assert_eq!(ops(&step), [OpCode::GET_CHILDREN, OpCode::GET_DATA]);
    let results = vec![listed(&[own_name()]), found(THEIRS, 9)];
    let step = machine.handle(view(1), reply(1, results));
    assert!(matches!(step, Step::Restart(Restart::ZnodeGone)), "{step:?}");
}

/// A server that fails is given time: asked at once, it would be asked at the speed of the network.
#[test]
fn an_exclusive_release_pauses_when_a_server_fails() {
    for code in [ErrorCode::SYSTEM_ERROR, ErrorCode(-999), ErrorCode::THROTTLED_OP] {
        let (mut release, is_creating) = exclusive_granted().abandon();
        assert!(!is_creating);
        let mut step = release.start(false);
        let mut now = 0;
        for _ in 0..10 {
            let ReleaseStep::Submit(flight) = step else { panic!("{code}: {step:?}") };
            step = if ops_of(&flight) == [OpCode::DELETE] {
                release.handle(view(1), reply(1, vec![refused(code)]))
            } else {
                let barrier = Ok(Response::Multi(vec![]));
                release.handle(view(1), reply(1, vec![barrier, found(OURS, CREATED)]))
            };
            if let ReleaseStep::Wait(until) = step {
                let view = View { now: until.expect("it has an end"), ..view(1) };
                now = view.now.since_start().as_millis();
                step = release.handle(view, Input::Timer);
            }
        }
        assert!(now >= 200, "{code}: ten flights in {now} ms");
    }
}

/// However long a server is overloaded, no directory is missing because of that.
#[test]
fn an_overloaded_server_does_not_use_up_the_rounds_of_making_a_directory() {
    let missing = || vec![refused(ErrorCode::NO_NODE), refused(ErrorCode::NO_NODE)];
    let busy = || vec![refused(ErrorCode::THROTTLED_OP)];
    let mut fair = contender();
    let mut fair_step = fair.start();
    let mut other = exclusive();
    let mut other_step = other.start();
    for round in 0..100 {
        for (name, step, handle) in [
            (
                "fair",
                &mut fair_step,
                &mut (|input| fair.handle(view(1), input)) as &mut dyn FnMut(_) -> _,
            ),
            ("exclusive", &mut other_step, &mut |input| other.handle(view(1), input)),
        ] {
            assert_eq!(ops(step)[0], OpCode::CREATE2, "{name}, round {round}");
            *step = handle(reply(1, missing()));
            assert_eq!(ops(step), [OpCode::CREATE_CONTAINER], "{name}, round {round}");
            *step = handle(reply(1, busy()));
            assert!(matches!(step, Step::Wait(Some(_))), "{name}, round {round}: {step:?}");
            *step = handle(Input::Timer);
        }
    }
    // One that is deleted each time it was made is another matter.
    let mut rounds = 0;
    while !matches!(fair_step, Step::Failed(_)) {
        let results =
            if ops(&fair_step)[0] == OpCode::CREATE2 { missing() } else { vec![created("/l")] };
        fair_step = fair.handle(view(1), reply(1, results));
        rounds += 1;
        assert!(rounds < 100, "it goes on for ever");
    }
    assert!(matches!(fair_step, Step::Failed(LockError::Refused { .. })), "{fair_step:?}");
}

/// The end of an older session arrives after a create was sent in a newer one: the create counts.
#[test]
fn the_end_of_another_session_does_not_end_a_release_that_waits_for_its_create() {
    let mut machine = contender();
    assert_eq!(ops(&machine.start()), [OpCode::CREATE2, OpCode::GET_CHILDREN]);
    let (mut release, is_creating) = machine.abandon();
    assert!(is_creating);
    assert!(matches!(release.start(true), ReleaseStep::Wait(None)));
    let step = release.handle(view(2), Input::Ended(THEIRS));
    assert!(matches!(step, ReleaseStep::Wait(_)), "{step:?}");
    let results = vec![created(&format!("/l/{}", own_name())), listed(&[])];
    let step = release.handle(view(2), reply(2, results));
    assert!(matches!(step, ReleaseStep::Submit(_)), "{step:?}");
}
