//! Commits that happen after the connection that sent the request was closed.

use std::time::Duration;

use jute_codec::{CreateMode, ErrorCode, EventType, OpCode, Request, Response, SessionId, Zxid};
use zk_testserver::{Action, At, Fault, Outcome, TestServer, Until};

use crate::client::*;

/// Resumes a session on a new connection while its create of `/late-` is logged but not committed.
async fn scene(until: Until) -> (TestServer, Client) {
    let server = start();
    let mut client = Client::new(&server).await;
    server.inject(Fault::new(At::op(OpCode::CREATE), Action::LateCommit(until)));
    client.send(&create("/late-", CreateMode::EphemeralSequential)).await;
    client.assert_eof().await;
    assert_eq!(server.requests().last().map(|request| request.outcome), Some(Outcome::Held));
    let client = Client::resume(&server, &client).await;
    (server, client)
}

async fn names(client: &mut Client) -> usize {
    let Response::GetChildren(names) = client.ok(&get_children("/", false)).await else {
        panic!("expected a reply to getChildren")
    };
    names.len() - 1
}

#[tokio::test(start_paused = true)]
async fn plain_read_misses_the_create_and_a_retry_creates_a_duplicate() {
    let (server, mut client) = scene(Until::NextWrite).await;
    assert_eq!(names(&mut client).await, 0);
    assert_eq!(client.ok(&Request::Ping).await, Response::Empty);
    let path = client.create("/late-", CreateMode::EphemeralSequential).await;
    assert_eq!(path.as_deref(), Ok("/late-0000000001"));
    assert_eq!(names(&mut client).await, 2);
    let zxids: Vec<_> = server.commits().iter().map(|commit| commit.zxid).collect();
    assert_eq!(zxids, [1, 2, 3].map(Zxid));
}

#[tokio::test(start_paused = true)]
async fn sync_makes_the_create_visible() {
    let (_server, mut client) = scene(Until::NextWrite).await;
    client.ok(&sync("/")).await;
    assert_eq!(names(&mut client).await, 1);
}

#[tokio::test(start_paused = true)]
async fn failed_write_of_another_session_makes_the_create_visible() {
    let (server, mut client) = scene(Until::NextWrite).await;
    let mut other = Client::resume(&server, &client).await;
    client.assert_eof().await;
    assert_eq!(other.code(&delete("/missing", -1)).await, ErrorCode::NO_NODE);
    assert_eq!(names(&mut other).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_a_fault_refuses_makes_the_create_visible_unless_no_server_looks_at_it() {
    for (code, found) in [(ErrorCode::NO_AUTH, 1), (ErrorCode::THROTTLED_OP, 0)] {
        let (server, mut client) = scene(Until::NextWrite).await;
        server.inject(Fault::new(At::op(OpCode::DELETE), Action::Error(code)));
        assert_eq!(client.code(&delete("/missing", -1)).await, code);
        assert_eq!(names(&mut client).await, found, "{code:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn commit_happens_after_a_number_of_reads_and_triggers_watches() {
    let (server, mut client) = scene(Until::Reads(2)).await;
    assert_eq!(names(&mut client).await, 0);
    client.ok(&Request::Ping).await;
    client.ok(&get_children("/", true)).await;
    assert_eq!(client.event().await, (EventType::NODE_CHILDREN_CHANGED, "/".to_owned()));
    assert_eq!(names(&mut client).await, 1);
    assert_eq!(server.zxid(), Zxid(2));
}

#[tokio::test(start_paused = true)]
async fn commit_happens_after_a_delay() {
    let (server, mut client) = scene(Until::After(Duration::from_secs(3))).await;
    sleep(Duration::from_millis(2999)).await;
    assert_eq!(names(&mut client).await, 0);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(server.ephemerals().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn late_commit_precedes_the_end_of_its_session() {
    let (server, client) = scene(Until::NextWrite).await;
    server.expire(client.session);
    let ops: Vec<_> = server.commits().into_iter().map(|commit| (commit.zxid, commit.op)).collect();
    let close = (Zxid(3), OpCode::CLOSE_SESSION);
    assert_eq!(ops, [(Zxid(1), OpCode::CREATE_SESSION), (Zxid(2), OpCode::CREATE), close, close]);
    assert_eq!(server.ephemerals(), []);
}

#[tokio::test(start_paused = true)]
async fn reused_xid_gets_the_result_of_the_late_commit() {
    let (server, mut client) = scene(Until::NextWrite).await;
    client.send_as(1, &delete("/missing", -1)).await;
    let Got::Reply(header, response) = client.next(OpCode::DELETE).await else { panic!() };
    assert_eq!(
        (header.err, header.zxid),
        (ErrorCode::OK, Zxid(2)),
        "the result of the create, not NO_NODE"
    );
    assert_eq!(response, Some(Response::Empty));
    assert_eq!(server.zxid(), Zxid(3), "the delete was committed, but its result was not sent");
    assert_eq!(client.code(&delete("/missing", -1)).await, ErrorCode::NO_NODE);
}

#[tokio::test(start_paused = true)]
async fn reused_xid_gets_the_path_of_the_first_create() {
    let (server, mut client) = scene(Until::NextWrite).await;
    client.send_as(1, &create("/other-", CreateMode::EphemeralSequential)).await;
    let Got::Reply(_, response) = client.next(OpCode::CREATE).await else { panic!() };
    assert_eq!(response, Some(Response::Create("/late-0000000000".into())));
    assert_eq!(server.ephemerals().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn fresh_xid_gets_its_own_result() {
    let (_server, mut client) = scene(Until::NextWrite).await;
    let (header, result) = client.call_full(&delete("/missing", -1)).await;
    assert_eq!((header.zxid, result), (Zxid(3), Err(ErrorCode::NO_NODE)));
}

#[tokio::test(start_paused = true)]
async fn closing_session_cannot_be_resumed() {
    let server = start();
    let mut client = Client::new(&server).await;
    let close = At::op(OpCode::CLOSE_SESSION);
    server.inject(Fault::new(close, Action::LateCommit(Until::NextWrite)));
    client.send(&Request::CloseSession).await;
    client.assert_eof().await;
    assert_eq!(server.sessions(), [client.session]);
    let mut again = Client::raw(&server);
    let request = handshake(client.session, &client.password, Zxid(0));
    assert_eq!(again.connect(request).await.unwrap().session_id, SessionId::NONE);
    Client::new(&server).await;
    assert_eq!(server.sessions(), [SessionId(client.session.0 + 1)]);
}
