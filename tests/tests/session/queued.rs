//! A thousand requests that are issued without a connection, and a connection that is cut again
//! while they are sent: the server applies them in the order of the calls, and none is lost.

use std::time::Duration;

use jute_codec::OpCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use zk_session::{Client, CreateMode, Created, Op, OpError, Outcome, SessionState};
use zk_tests::meter::Pace;
use zk_tests::scene::spawn;
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, At, Fault, Until};

const COUNT: usize = 1_000;
/// The data of a request. All requests together are longer than the client gives to a transport at
/// once, so that some of them wait while others are in flight.
const DATA: usize = 1_000;
/// The bytes that the link takes in a millisecond.
const RATE: usize = 20_000;
pub(super) const PACE: Pace = Pace::of(3 * COUNT);

/// Forwards at a limited rate, until one side closes the connection.
async fn forward(server: DuplexStream, client: DuplexStream) {
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let requests = async {
        let mut buffer = vec![0; RATE];
        while let Ok(taken @ 1..) = from_client.read(&mut buffer).await {
            let arrived = buffer.get(..taken).expect("no more than there is room for");
            if to_server.write_all(arrived).await.is_err() {
                return;
            }
            sleep_ms(1).await;
        }
    };
    let replies = async {
        let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
    };
    tokio::select! {
        () = requests => {}
        () = replies => {}
    }
}

pub(super) async fn client(world: &World) -> Client {
    let server = world.server.clone();
    let connect = move |_host| {
        let stream = server.connect();
        async move {
            let (ours, theirs) = tokio::io::duplex(RATE);
            spawn(forward(stream?, theirs));
            Ok(ours)
        }
    };
    world.client_with(1, |builder| builder.transport(connect)).await
}

/// Leaves the client without a connection for a second.
async fn suspend(world: &World, client: &Client) {
    world.server.admin_create("/q", b"", None);
    world.server.refuse_for(Duration::from_secs(1));
    world.server.disconnect_all();
    sleep_ms(10).await;
    assert_eq!(client.state(), SessionState::Suspended);
}

/// Issues a thousand requests. The first one has this index.
pub(super) fn issue(client: &Client, first: usize) -> Vec<Op<Created>> {
    let create = |index| {
        let (path, mode) = (format!("/q/{index:04}-"), CreateMode::PersistentSequential);
        client.create(&path, vec![b'x'; DATA], mode)
    };
    (first..first + COUNT).map(create).collect()
}

/// Returns the results in the order of the calls.
pub(super) async fn results(requests: Vec<Op<Created>>) -> Vec<Result<Created, OpError>> {
    let mut results = Vec::new();
    for request in requests {
        results.push(request.await);
    }
    results
}

/// The index of the request and the sequence number of a znode.
fn numbers(name: &str) -> (usize, usize) {
    let (index, number) = name.rsplit_once('-').expect("it has a number");
    (index.parse().expect("it is the index"), number.parse().expect("it is the number"))
}

/// Returns the indexes of the requests that were applied, in the order of their zxids, and asserts
/// that it is the order of their sequence numbers.
pub(super) fn applied(world: &World) -> Vec<usize> {
    let commits = world.server.commits();
    let paths = commits.iter().filter_map(|commit| commit.path.as_deref()?.strip_prefix("/q/"));
    let all: Vec<_> = paths.map(numbers).collect();
    assert!(all.is_sorted_by(|a, b| a.1 < b.1), "the order of the numbers: {all:?}");
    all.into_iter().map(|(index, _)| index).collect()
}

/// Asserts that what was applied is what the results say: the requests up to some call, in the order
/// of the calls. Returns the numbers of results: success, unknown, not applied. If the results of
/// two outages are checked, `first` is the index of the first request.
fn check(world: &World, results: &[Result<Created, OpError>], first: usize) -> [usize; 3] {
    let end = first + results.len();
    let applied: Vec<_> =
        applied(world).into_iter().filter(|index| (first..end).contains(index)).collect();
    let expected: Vec<_> = (first..).take(applied.len()).collect();
    assert_eq!(applied, expected, "the order of the calls, without a gap");
    let (mut success, mut unknown, mut not_applied) = (0, 0, 0);
    for (index, result) in (first..).zip(results) {
        let is_applied = applied.contains(&index);
        match result {
            Ok(created) => {
                let name = created.path.strip_prefix("/q/").expect("its parent");
                assert!(is_applied && numbers(name).0 == index, "{index} is {created:?}");
                assert_eq!(unknown + not_applied, 0, "{index} overtook one that failed");
                success += 1;
            }
            Err(OpError::ConnectionLoss { outcome: Outcome::Unknown, .. }) => {
                assert_eq!(not_applied, 0, "{index} is behind one that was not sent");
                unknown += 1;
            }
            Err(OpError::ConnectionLoss { outcome: Outcome::NotApplied, .. }) => {
                assert!(!is_applied, "{index} was applied");
                not_applied += 1;
            }
            Err(error) => panic!("{index} failed with {error}"),
        }
    }
    let zxids: Vec<_> = results.iter().flatten().map(|created| created.stat.czxid).collect();
    assert!(zxids.is_sorted_by(|a, b| a < b), "the zxids of the replies");
    [success, unknown, not_applied]
}

#[test]
fn a_thousand_requests_without_a_connection_are_applied_in_the_order_of_the_calls() {
    run(async {
        let world = World::new().pace(PACE);
        let client = client(&world).await;
        let session = client.session_id();
        suspend(&world, &client).await;
        let requests = issue(&client, 0);
        assert_eq!(client.stats().pending, COUNT);
        sleep_ms(10).await;
        assert_eq!(applied(&world), Vec::<usize>::new());
        let results = results(requests).await;
        assert_eq!(check(&world, &results, 0), [COUNT, 0, 0]);
        assert_eq!((client.session_id(), client.status().connection), (session, 2));
        assert_eq!(client.stats().pending, 0);
        world.check_history();
    });
}

/// No attempt to connect that fails takes a waiting request with it.
#[test]
fn they_wait_through_attempts_that_fail() {
    run(async {
        let world = World::new().pace(PACE);
        let client = client(&world).await;
        suspend(&world, &client).await;
        let actions = [Action::CutBefore, Action::CutAfter, Action::CutAtReplyByte(9)];
        for action in actions.into_iter().cycle().take(6) {
            world.server.inject(Fault::new(At::connect(0), action));
        }
        let results = results(issue(&client, 0)).await;
        assert_eq!(check(&world, &results, 0), [COUNT, 0, 0]);
        assert!(world.server.pending_faults().is_empty());
        world.check_history();
    });
}

/// The requests that were under way fail, the others are not sent, and the next thousand, which is
/// issued during the second outage, is applied behind them.
#[test]
fn a_cut_while_they_are_sent_changes_no_order_and_loses_none() {
    let actions = [
        (Action::CutBefore, 0),
        (Action::CutAfter, 1),
        (Action::CutAtReplyByte(10), 1),
        (Action::LateCommit(Until::NextWrite), 1),
    ];
    for nth in [0, 1, 123, 500, 998, 999] {
        for (action, applied_more) in &actions {
            run(async {
                let label = format!("{action:?} at {nth}");
                let world = World::new().pace(PACE);
                let client = client(&world).await;
                let session = client.session_id();
                suspend(&world, &client).await;
                let cut = Fault::new(At::op(OpCode::CREATE2).after(nth), action.clone());
                world.server.inject(cut.refuse_for(Duration::from_secs(1)));
                let first = results(issue(&client, 0)).await;
                assert_eq!(client.state(), SessionState::Suspended, "{label}");
                let second = results(issue(&client, COUNT)).await;
                let [success, unknown, not_applied] = check(&world, &first, 0);
                assert_eq!(success, nth, "{label}");
                assert!(unknown >= 1, "{label}: the request that was cut");
                assert_eq!(success + unknown + not_applied, COUNT);
                if nth < 500 {
                    assert!(not_applied > 0, "{label}: some were not sent yet");
                }
                assert_eq!(check(&world, &second, COUNT), [COUNT, 0, 0], "{label}");
                assert_eq!(applied(&world).len(), nth + applied_more + COUNT, "{label}");
                assert_eq!((client.session_id(), client.status().connection), (session, 3));
                assert!(world.server.pending_faults().is_empty(), "{label}");
                world.check_history();
            });
        }
    }
}
