//! State machines with hand-written inputs that servers hardly ever cause: events that arrive
//! together with a reply, and replies that contradict each other.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jute_codec::{
    Create2Reply, DataReply, ErrorCode, EventType, NameList, OpCode, Response, Stat, Zxid,
};
use zk_recipes::machine::{Input, Machine, Repeating, SessionView, Step, WatchNumber};
use zk_recipes::machines::{
    ExclusiveAttempt, Held, Leaving, LockOptions, NameForm, NotHeld, Permits, QueueAttempt,
    QueueNames, QueueProfile, Resize, Restart,
};
use zk_recipes::{Acl, Client, LockError, OpError, Outcome, SessionId, Time};
use zk_session::recipe::{Flight, Reply};
use zk_tests::meter::Pace;
use zk_tests::recipes::pauses;
use zk_tests::scene::{FIRST, spawn};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, At, Fault};

const ID: u128 = 7;
const OURS: SessionId = SessionId(1);
const THEIRS: SessionId = SessionId(2);
/// The transaction that created our znode.
const CREATED: Zxid = Zxid(5);

type Results = Vec<Result<Response, OpError>>;

type AttemptStep = Step<Result<Held, NotHeld>>;

fn view(connection: u64) -> SessionView {
    SessionView {
        now: at(0),
        connection: Some(connection),
        alive: Some(connection),
        is_running_out: false,
        lapses: 0,
        has_expired: false,
        has_left_session: false,
        seed: 0,
    }
}

/// Returns the view of a session that is connected, but whose guard deadline has passed.
fn lapsed(connection: u64) -> SessionView {
    SessionView { alive: None, ..view(connection) }
}

fn watch(number: u64) -> WatchNumber {
    WatchNumber::new(number).expect("it is not zero")
}

fn at(ms: u64) -> Time {
    Time::from_start(Duration::from_millis(ms))
}

fn reply(connection: u64, results: Results) -> Input {
    Input::Reply(Reply { session: Some(OURS), connection, results, refused: None })
}

fn refused<T>(code: ErrorCode) -> Result<T, OpError> {
    Err(OpError::server(code))
}

fn stat(owner: SessionId, czxid: Zxid) -> Stat {
    Stat { czxid, ephemeral_owner: owner, ..Stat::default() }
}

fn created(path: &str) -> Result<Response, OpError> {
    Ok(Response::Create2(Create2Reply { path: path.into(), stat: stat(OURS, CREATED) }))
}

fn found(owner: SessionId, czxid: Zxid) -> Result<Response, OpError> {
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

/// Returns the opcodes of the flight that a step submits.
fn ops<T: std::fmt::Debug>(step: &Step<T>) -> Vec<OpCode> {
    let Step::Submit(flight, _) = step else { panic!("no flight: {step:?}") };
    ops_of(flight)
}

fn ops_of(flight: &Flight) -> Vec<OpCode> {
    flight.operations.iter().map(|operation| operation.request.op()).collect()
}

fn exclusive() -> Repeating<ExclusiveAttempt> {
    Repeating::new(ExclusiveAttempt::new(options("/a/l"), ID, true))
}

fn options(path: &str) -> LockOptions {
    LockOptions { path: path.into(), acl: Acl::open(), ..LockOptions::default() }
}

/// Returns an attempt at an exclusive lock that was granted on connection 1.
fn exclusive_granted() -> Repeating<ExclusiveAttempt> {
    let mut machine = exclusive();
    assert_eq!(ops(&machine.start(view(1))), [OpCode::CREATE2, OpCode::GET_DATA]);
    let results = vec![created("/a/l"), found(OURS, CREATED)];
    let step = machine.handle(view(1), reply(1, results));
    assert!(is_held_on(&step, 1), "{step:?}");
    machine
}

/// Ends a machine, whose flight is pending or not. Its removal needs the reply to that flight.
fn released<M: Leaving>(machine: Repeating<M>, is_pending: bool) -> Repeating<M::Removal>
where
    M::Removal: Machine,
{
    let (release, needs_reply) = machine.machine.abandon(is_pending).expect("there is a znode");
    assert_eq!(needs_reply, is_pending);
    Repeating::new(release)
}

fn contender() -> Repeating<QueueAttempt> {
    Repeating::new(QueueAttempt::new(queue(None), ID, true))
}

fn queue(permits: Option<Permits>) -> Arc<QueueProfile> {
    Arc::new(QueueProfile {
        options: options("/l"),
        names: QueueNames::exclusive(NameForm::known("-lock-", "lock-")),
        permits,
        removes_directory: false,
    })
}

/// Returns an attempt that has received the reply to its claim on connection 1, with these znodes
/// in the queue.
fn claimed(names: &[String]) -> (Repeating<QueueAttempt>, AttemptStep) {
    let mut machine = contender();
    assert_eq!(ops(&machine.start(view(1))), [OpCode::CREATE2, OpCode::GET_CHILDREN]);
    let results = vec![created(&format!("/l/{}", own_name())), listed(names)];
    let step = machine.handle(view(1), reply(1, results));
    (machine, step)
}

fn is_held_on(step: &AttemptStep, connection: u64) -> bool {
    matches!(step, Step::Done(Ok(held)) if held.connection == connection)
}

fn is_failed(step: &AttemptStep) -> bool {
    matches!(step, Step::Done(Err(NotHeld::Failed(_))))
}

#[test]
fn an_event_with_the_grant_of_an_exclusive_lock_repeats_it_or_has_it_found_out_again() {
    let changed = Input::Watch { watch: watch(1), kind: EventType::NODE_DATA_CHANGED };
    let step = exclusive_granted().handle(view(1), changed.clone());
    assert!(is_held_on(&step, 1), "{step:?}");
    // The deadline has passed or the connection has changed since the grant, and no other input
    // reports that.
    for view in [lapsed(1), view(2), lapsed(2)] {
        let step = exclusive_granted().handle(view, changed.clone());
        assert_eq!(ops(&step), [OpCode::MULTI, OpCode::GET_DATA], "{view:?}");
    }
}

#[test]
fn an_event_with_the_grant_of_a_fair_lock_repeats_it_or_has_it_found_out_again() {
    let stray = Input::Watch { watch: watch(99), kind: EventType::NODE_DATA_CHANGED };
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

/// Another client deletes the znode between the create and the read of the same flight, and may
/// create its own znode.
#[test]
fn an_exclusive_lock_that_is_gone_before_it_was_read_is_not_held() {
    for look in
        [found(OURS, Zxid(CREATED.0 + 1)), found(THEIRS, Zxid(6)), refused(ErrorCode::NO_NODE)]
    {
        let mut machine = exclusive();
        let _ = machine.start(view(1));
        let step = machine.handle(view(1), reply(1, vec![created("/a/l"), look.clone()]));
        assert!(
            matches!(step, Step::Done(Err(NotHeld::Restart(Restart::ZnodeGone)))),
            "{look:?}: {step:?}"
        );
    }
}

/// The znode with our name belongs to another session, and the machine evaluates another reply of
/// the flight first.
#[test]
fn a_watch_on_a_znode_of_somebody_else_does_not_stand_for_the_own_one() {
    let both = [other_name(), own_name()];
    // The reads that set the first watches show the other session's znode, and the predecessor is
    // gone or may not be read.
    for ahead in [ErrorCode::NO_NODE, ErrorCode::NO_AUTH, ErrorCode::THROTTLED_OP] {
        let (mut machine, step) = claimed(&both);
        assert_eq!(ops(&step), [OpCode::GET_DATA, OpCode::GET_DATA]);
        let step = machine.handle(view(1), reply(1, vec![refused(ahead), found(THEIRS, Zxid(9))]));
        assert_own_is_read_again(machine, step);
    }
    // The other session creates the znode while the attempt is queued, and the next list fails.
    for list in [OpError::server(ErrorCode::THROTTLED_OP), OpError::server(ErrorCode(-999))] {
        let (mut machine, _) = claimed(&both);
        let step =
            machine.handle(view(1), reply(1, vec![found(THEIRS, Zxid(3)), found(OURS, CREATED)]));
        assert!(matches!(step, Step::Wait(None)), "it is queued: {step:?}");
        let own_deleted = Input::Watch { watch: watch(2), kind: EventType::NODE_DELETED };
        let step = machine.handle(view(1), own_deleted);
        assert_eq!(ops(&step), [OpCode::GET_CHILDREN, OpCode::GET_DATA]);
        let step = machine.handle(view(1), reply(1, vec![Err(list), found(THEIRS, Zxid(9))]));
        assert_own_is_read_again(machine, step);
    }
}

/// Asserts that the attempt reads its own znode after the next list, and acts on the result.
fn assert_own_is_read_again(mut machine: Repeating<QueueAttempt>, mut step: AttemptStep) {
    if let Step::Wait(Some(until)) = step {
        // The whole flight is issued again.
        let now = SessionView { now: until, ..view(1) };
        step = machine.handle(now, Input::Timer);
        if ops(&step) == [OpCode::GET_DATA, OpCode::GET_DATA] {
            let results = vec![refused(ErrorCode::NO_NODE), found(THEIRS, Zxid(9))];
            step = machine.handle(now, reply(1, results));
        }
    }
    assert_eq!(ops(&step), [OpCode::GET_CHILDREN, OpCode::GET_DATA]);
    let results = vec![listed(&[own_name()]), found(THEIRS, Zxid(9))];
    let step = machine.handle(view(1), reply(1, results));
    assert!(matches!(step, Step::Done(Err(NotHeld::Restart(Restart::ZnodeGone)))), "{step:?}");
}

/// The nearest predecessor is gone when it is read, and an administrator creates it again before the
/// list. Without a watch on it, its end would not be noticed.
#[test]
fn a_predecessor_that_was_gone_and_is_there_again_is_watched() {
    let first = format!("{:032x}-lock-0000000000", 8);
    let nearest = format!("{:032x}-lock-0000000001", 9);
    let own = format!("{ID:032x}-lock-0000000002");
    let names = [first, nearest, own];
    let mut machine = contender();
    let _ = machine.start(view(1));
    let results = vec![created(&format!("/l/{}", names[2])), listed(&names)];
    let step = machine.handle(view(1), reply(1, results));
    assert_eq!(ops(&step), [OpCode::GET_DATA, OpCode::GET_DATA]);
    let gone = vec![refused(ErrorCode::NO_NODE), found(OURS, CREATED)];
    let step = machine.handle(view(1), reply(1, gone));
    assert_eq!(ops(&step), [OpCode::GET_CHILDREN]);
    let step = machine.handle(view(1), reply(1, vec![listed(&names)]));
    let reads = [OpCode::GET_DATA, OpCode::GET_DATA];
    assert_eq!(ops(&step), reads, "the predecessor is read and watched, and so is our own znode");
}

/// A server that fails gets time to recover. Without a pause, the client would send requests as
/// fast as the network permits.
#[test]
fn an_exclusive_release_pauses_when_a_server_fails() {
    for code in [ErrorCode::SYSTEM_ERROR, ErrorCode(-999), ErrorCode::THROTTLED_OP] {
        let mut release = released(exclusive_granted(), false);
        let mut step = release.start(view(1));
        let mut now = 0;
        for _ in 0..10 {
            let Step::Submit(flight, _) = step else { panic!("{code}: {step:?}") };
            step = if ops_of(&flight) == [OpCode::DELETE] {
                release.handle(view(1), reply(1, vec![refused(code)]))
            } else {
                let barrier = Ok(Response::Multi(vec![]));
                release.handle(view(1), reply(1, vec![barrier, found(OURS, CREATED)]))
            };
            if let Step::Wait(until) = step {
                let view = SessionView { now: until.expect("it has an end"), ..view(1) };
                now = view.now.since_start().as_millis();
                step = release.handle(view, Input::Timer);
            }
        }
        assert!(now >= 200, "{code}: ten flights in {now} ms");
    }
}

/// A server may be overloaded for a long time, which does not mean that the directory is missing.
#[test]
fn an_overloaded_server_does_not_use_up_the_rounds_of_making_a_directory() {
    let missing = || vec![refused(ErrorCode::NO_NODE), refused(ErrorCode::NO_NODE)];
    let busy = || vec![refused(ErrorCode::THROTTLED_OP)];
    let mut fair = contender();
    let mut fair_step = fair.start(view(1));
    let mut other = exclusive();
    let mut other_step = other.start(view(1));
    for round in 0..100 {
        for (name, step, handle) in [
            (
                "fair",
                &mut fair_step,
                &mut (|input| fair.handle(view(1), input)) as &mut dyn FnMut(_) -> _,
            ),
            ("exclusive", &mut other_step, &mut |input| other.handle(view(1), input)),
        ] {
            if round == 0 {
                assert_eq!(ops(step)[0], OpCode::CREATE2, "{name}");
                *step = handle(reply(1, missing()));
            }
            assert_eq!(ops(step), [OpCode::CREATE_CONTAINER], "{name}, round {round}");
            *step = handle(reply(1, busy()));
            assert!(matches!(step, Step::Wait(Some(_))), "{name}, round {round}: {step:?}");
            *step = handle(Input::Suspended);
        }
    }
    // If the directory is deleted after each create, the attempt gives up.
    let mut rounds = 0;
    while !is_failed(&fair_step) {
        let results =
            if ops(&fair_step)[0] == OpCode::CREATE2 { missing() } else { vec![created("/l")] };
        fair_step = fair.handle(view(1), reply(1, results));
        rounds += 1;
        assert!(rounds < 100, "it goes on for ever");
    }
    assert!(
        matches!(fair_step, Step::Done(Err(NotHeld::Failed(LockError::Refused { .. })))),
        "{fair_step:?}"
    );
}

/// The client reports the end of an older session after it has sent a create in a newer session.
/// This does not end the removal, because the create may be applied.
#[test]
fn the_end_of_another_session_does_not_end_a_release_that_waits_for_its_create() {
    let mut machine = contender();
    assert_eq!(ops(&machine.start(view(1))), [OpCode::CREATE2, OpCode::GET_CHILDREN]);
    let mut release = released(machine, true);
    assert!(matches!(release.start(view(2)), Step::Wait(None)));
    let step = release.handle(view(2), Input::Ended(THEIRS));
    assert!(matches!(step, Step::Wait(_)), "{step:?}");
    let results = vec![created(&format!("/l/{}", own_name())), listed(&[])];
    let step = release.handle(view(2), reply(2, results));
    assert!(matches!(step, Step::Submit(..)), "{step:?}");
}

/// A server creates the directory and is too busy for the contender. The attempt is cancelled when it
/// has asked again and the request was not sent.
#[test]
fn a_directory_that_an_earlier_flight_has_created_is_removed() {
    let profile = QueueProfile { removes_directory: true, ..(*queue(None)).clone() };
    let mut machine = Repeating::new(QueueAttempt::new(Arc::new(profile), ID, true));
    let creates = [OpCode::CREATE_CONTAINER, OpCode::CREATE2, OpCode::GET_CHILDREN];
    assert_eq!(ops(&machine.start(view(1))), creates);
    let busy = || refused(ErrorCode::THROTTLED_OP);
    let step = machine.handle(view(1), reply(1, vec![created("/l"), busy(), busy()]));
    assert!(matches!(step, Step::Wait(Some(_))), "{step:?}");
    assert_eq!(ops(&machine.handle(view(1), Input::Suspended)), creates);
    let mut release = released(machine, true);
    assert!(matches!(release.start(view(2)), Step::Wait(None)));
    let unsent = || Err(OpError::connection_loss(Outcome::NotApplied));
    let step = release.handle(view(2), reply(2, vec![unsent(), unsent(), unsent()]));
    assert_eq!(ops(&step), [OpCode::DELETE], "the directory is removed");
}

/// A lost write may be applied late. Without a barrier before the next look, it would overwrite a
/// number that another client stores in between. The in-process server applies a late write before
/// the next request of its session, so only the order of the requests shows the barrier.
#[test]
fn a_lost_write_of_the_number_of_permits_is_followed_by_a_barrier() {
    let look = [OpCode::MULTI, OpCode::GET_DATA, OpCode::GET_CHILDREN];
    let permits = Permits { count: 2, accepts_stored: false };
    let mut machine = Repeating::new(Resize::new(queue(Some(permits))));
    assert_eq!(ops(&machine.start(view(1))), look);
    let data = DataReply { data: Some("1".into()), stat: Stat::default() };
    let found =
        || vec![Ok(Response::Multi(vec![])), Ok(Response::GetData(data.clone())), listed(&[])];
    let step = machine.handle(view(1), reply(1, found()));
    assert_eq!(ops(&step), [OpCode::MULTI]);
    let lost = Err(OpError::connection_loss(Outcome::Unknown));
    let step = machine.handle(view(1), reply(1, vec![lost]));
    assert_eq!(ops(&step), look);
    let step = machine.handle(view(2), reply(2, found()));
    assert_eq!(ops(&step), [OpCode::MULTI]);
}

type Call<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Returns the calls of [`pauses::calls`], which all have to succeed.
async fn calls(client: &Client) -> Vec<(&'static str, Call<()>)> {
    let must_succeed = |(name, call): (&'static str, pauses::Call)| {
        let call = async move { call.await.unwrap_or_else(|error| panic!("{name}: {error}")) };
        (name, Box::pin(call) as Call<()>)
    };
    pauses::calls(client).await.into_iter().map(must_succeed).collect()
}

fn call_names() -> Vec<&'static str> {
    run(async {
        let world = World::new().pace(Pace::of(20));
        let client = world.client(FIRST).await;
        pauses::calls(&client).await.iter().map(|(name, _)| *name).collect()
    })
}

/// Refuses this number of requests, starting with the next one.
fn refuse_all(world: &World, requests: usize, code: ErrorCode) {
    for _ in 0..requests {
        world.server.inject(Fault::new(At::request(0), Action::Error(code)));
    }
}

/// A server refuses all requests of a client for a few seconds, and the connection drops in the
/// middle of a long pause. The next server may accept the request at once, and others may wait for
/// it.
#[test]
fn every_pause_ends_with_the_connection() {
    let mut late = Vec::new();
    for (index, name) in call_names().into_iter().enumerate() {
        run(async {
            let world = World::new().pace(Pace::of(20));
            let client = world.client(FIRST).await;
            let (_, call) = calls(&client).await.swap_remove(index);
            sleep_ms(1_000).await;
            refuse_all(&world, 100, ErrorCode::THROTTLED_OP);
            let call = spawn(call);
            // Pauses of 0.2, 0.4, 0.8 and 1.6 s are over, and the next one lasts for 3.2 s or more.
            sleep_ms(4_000).await;
            assert!(!call.is_finished(), "{name}\n{}", world.trace());
            assert!(world.server.pending_faults().len() >= 80, "{name}\n{}", world.trace());
            world.server.clear_faults();
            world.server.disconnect_all();
            sleep_ms(1_500).await;
            if !call.is_finished() {
                late.push(name);
            }
            call.await.expect("it ends");
        });
    }
    assert_eq!(late, [] as [&str; 0], "they sleep on a connection that is gone");
}

/// A server answers each request of a client with an error that leaves open whether it will pass. Each
/// call ends with that error after about 20 s, and asks seldom until then. Those that remove what
/// blocks others go on until they succeed.
#[test]
fn a_server_that_fails_for_ever_is_asked_seldom_and_reported_in_the_end() {
    const CODE: ErrorCode = ErrorCode::SYSTEM_ERROR;
    let go_on =
        ["release a fair lock", "release an exclusive lock", "downgrade", "close a presence"];
    for index in 0..call_names().len() {
        run(async {
            let world = World::new().pace(Pace::of(20));
            let client = world.client(FIRST).await;
            let (name, call) = pauses::calls(&client).await.swap_remove(index);
            sleep_ms(1_000).await;
            let before = world.server.requests().len();
            refuse_all(&world, 10_000, CODE);
            let call = spawn(call);
            sleep_ms(60_000).await;
            let is_heartbeat = |op| matches!(op, OpCode::PING);
            let requests = world.server.requests().split_off(before);
            let sent = requests.iter().filter(|request| !is_heartbeat(request.op)).count();
            assert!(sent <= 120, "{name}: {sent} requests in a minute\n{}", world.trace());
            let has_ended = call.is_finished();
            assert_eq!(has_ended, !go_on.contains(&name), "{name}\n{}", world.trace());
            world.server.clear_faults();
            let ended = call.await.expect("it does not panic");
            assert_eq!(ended.is_err(), has_ended, "{name}: {ended:?}\n{}", world.trace());
        });
    }
}

/// A client is closed while a server refuses all of its requests. No session follows, so nobody waits
/// for the end of a pause.
#[test]
fn a_client_that_is_closed_during_a_pause_ends_each_call() {
    for index in 0..call_names().len() {
        run(async {
            let world = World::new().pace(Pace::of(20));
            let client = world.client(FIRST).await;
            let (name, call) = pauses::calls(&client).await.swap_remove(index);
            sleep_ms(1_000).await;
            refuse_all(&world, 10_000, ErrorCode::THROTTLED_OP);
            let call = spawn(call);
            // The pause of 3.2 s has begun.
            sleep_ms(4_000).await;
            assert!(!call.is_finished(), "{name}\n{}", world.trace());
            let closing = spawn(async move { client.close().await });
            sleep_ms(100).await;
            world.server.clear_faults();
            sleep_ms(15_000).await;
            assert!(call.is_finished(), "{name}\n{}", world.trace());
            closing.await.expect("it ends");
        });
    }
}

/// A thousand attempts that a server refuses at the same moment do not come back at one moment.
#[test]
fn attempts_that_are_refused_together_come_back_apart() {
    const ATTEMPTS: u64 = 1_000;
    let refuse = || vec![refused(ErrorCode::THROTTLED_OP), refused(ErrorCode::THROTTLED_OP)];
    let view =
        |number: u64| SessionView { seed: number.wrapping_mul(0x9e37_79b9_7f4a_7c15), ..view(1) };
    let mut ends = [BTreeMap::new(), BTreeMap::new(), BTreeMap::new()];
    for number in 0..ATTEMPTS {
        let mut fair = contender();
        let _ = fair.start(view(number));
        let fair = fair.handle(view(number), reply(1, refuse()));
        let mut other = exclusive();
        let _ = other.start(view(number));
        let other = other.handle(view(number), reply(1, refuse()));
        let mut release = released(exclusive_granted(), false);
        let _ = release.start(view(number));
        let vec = vec![refused(ErrorCode::THROTTLED_OP)];
        let Step::Wait(release) = release.handle(view(number), reply(1, vec)) else { panic!() };
        for (ends, until) in ends.iter_mut().zip([until(&fair), until(&other), release]) {
            *ends.entry(until.expect("a pause ends")).or_insert(0) += 1;
        }
    }
    for ends in ends {
        let most = ends.values().copied().max().unwrap_or(0);
        assert!(most <= 40, "{most} attempts at one moment: {} moments", ends.len());
    }
}

fn until(step: &AttemptStep) -> Option<Time> {
    let Step::Wait(until) = step else { panic!("no pause: {step:?}") };
    *until
}
