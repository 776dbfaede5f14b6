//! Enforced quotas, and throttling.

use std::time::Duration;

use bytes::Bytes;
use jute_codec::{
    Acl, CreateMode, CreateRequest, ErrorCode, MultiOp, MultiResult, OpCode, Request,
    SetDataRequest, Version,
};
use zk_testserver::{Action, At, Fault, Outcome, ServerConfig, TestServer};

use crate::client::*;

fn enforcing() -> TestServer {
    TestServer::start(ServerConfig::default().enforce_quota(true))
}

/// Sets a quota on `/q`, which is created if it does not exist.
fn set_quota(server: &TestServer, limits: &str) {
    if server.stat("/q").is_none() {
        server.admin_create("/q", b"", None);
    }
    server.admin_create("/zookeeper/quota/q", b"", None);
    server.admin_create("/zookeeper/quota/q/zookeeper_limits", limits.as_bytes(), None);
    server.admin_create("/zookeeper/quota/q/zookeeper_stats", b"", None);
}

fn with_data(path: &str, length: usize) -> CreateRequest {
    let data = Some(Bytes::from(vec![b'x'; length]));
    CreateRequest {
        path: path.into(),
        data,
        acl: Acl::open(),
        mode: CreateMode::Persistent,
        with_stat: false,
    }
}

fn set_length(path: &str, length: usize, version: i32) -> SetDataRequest {
    let data = Some(Bytes::from(vec![b'x'; length]));
    SetDataRequest { path: path.into(), data, version: Version(version) }
}

const HARD: &str = "count=-1,bytes=-1=;byteHardLimit=10;countHardLimit=3";
const EXCEEDED: ErrorCode = ErrorCode::QUOTA_EXCEEDED;

#[tokio::test(start_paused = true)]
async fn hard_limits_on_znodes_and_bytes_are_enforced() {
    let server = enforcing();
    set_quota(&server, HARD);
    let mut client = Client::new(&server).await;
    // The count includes /q.
    client.create("/q/a", CreateMode::Persistent).await.unwrap();
    assert_eq!(client.code(&Request::Create(with_data("/q/b", 11))).await, EXCEEDED);
    client.ok(&Request::Create(with_data("/q/b", 10))).await;
    assert_eq!(client.code(&create("/q/c", CreateMode::Persistent)).await, EXCEEDED);
    assert_eq!(client.code(&create("/q/a/c", CreateMode::Ephemeral)).await, EXCEEDED);
    assert_eq!(client.code(&Request::SetData(set_length("/q/a", 1, -1))).await, EXCEEDED);
    client.ok(&Request::SetData(set_length("/q/b", 9, -1))).await;
    client.ok(&Request::SetData(set_length("/q/a", 1, -1))).await;
    client.ok(&delete("/q/b", -1)).await;
    client.create("/q/c", CreateMode::Persistent).await.unwrap();
    client.create("/other", CreateMode::Persistent).await.unwrap();
    assert_eq!(server.children("/q"), Some(vec!["a".to_owned(), "c".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn limits_bind_only_if_they_are_hard_and_the_server_enforces_them() {
    let soft = "count=1,bytes=1";
    for (server, limits) in [(enforcing(), soft), (start(), HARD)] {
        set_quota(&server, limits);
        let mut client = Client::new(&server).await;
        for name in ["a", "b", "c", "d"] {
            client.ok(&Request::Create(with_data(&format!("/q/{name}"), 20))).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_does_not_grow_is_accepted_above_the_limit() {
    let server = enforcing();
    server.admin_create("/q", b"", None);
    server.admin_create("/q/a", &[b'x'; 20], None);
    set_quota(&server, HARD);
    let mut client = Client::new(&server).await;
    client.ok(&Request::SetData(set_length("/q/a", 20, -1))).await;
    // Shrinking still leaves too many bytes, and real servers refuse it.
    assert_eq!(client.code(&Request::SetData(set_length("/q/a", 19, -1))).await, EXCEEDED);
    client.ok(&Request::SetData(set_length("/q/a", 10, -1))).await;
}

#[tokio::test(start_paused = true)]
async fn the_limit_has_its_place_among_the_other_checks() {
    let server = enforcing();
    set_quota(&server, "countHardLimit=2;byteHardLimit=0");
    let mut client = Client::new(&server).await;
    client.create("/q/a", CreateMode::Ephemeral).await.unwrap();
    for (request, expected) in [
        (create("/q/a", CreateMode::Persistent), ErrorCode::NODE_EXISTS),
        (create("/q/a/b", CreateMode::Persistent), ErrorCode::NO_CHILDREN_FOR_EPHEMERALS),
        (create("/q/x/b", CreateMode::Persistent), ErrorCode::NO_NODE),
        (create("/q/b", CreateMode::Persistent), EXCEEDED),
        // Unlike everything else, a wrong version is noticed later.
        (Request::SetData(set_length("/q/a", 1, 7)), EXCEEDED),
        (Request::SetData(set_length("/q/a", 0, 7)), ErrorCode::BAD_VERSION),
    ] {
        assert_eq!(client.code(&request).await, expected, "{request:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_multi_is_checked_against_the_counts_before_it() {
    let server = enforcing();
    set_quota(&server, HARD);
    let mut client = Client::new(&server).await;
    let create = |name: &str, length| MultiOp::Create(with_data(&format!("/q/{name}"), length));
    let results = client.multi(vec![create("a", 1), create("b", 11), create("c", 1)]).await;
    let code = |code| MultiResult::Error(code);
    let later = ErrorCode::RUNTIME_INCONSISTENCY;
    assert_eq!(results, [code(ErrorCode::OK), code(EXCEEDED), code(later)]);
    // Each of the four is the second znode, as far as the counts say.
    client.multi(vec![create("a", 1), create("b", 1), create("c", 1), create("d", 1)]).await;
    assert_eq!(server.children("/q").map(|names| names.len()), Some(4));
}

#[tokio::test(start_paused = true)]
async fn a_throttled_server_executes_nothing() {
    let server = start();
    let mut client = Client::new(&server).await;
    client.create("/a", CreateMode::Persistent).await.unwrap();
    let zxid = server.zxid();
    server.clear_requests();
    server.throttle_for(Duration::from_secs(5));
    let multi = Request::Multi(vec![MultiOp::Create(create_request("/m", CreateMode::Persistent))]);
    for request in [
        get_data("/a", true),
        create("/b", CreateMode::Persistent),
        multi,
        sync("/"),
        delete("/a", -1),
    ] {
        let (header, result) = client.call_full(&request).await;
        assert_eq!(result, Err(ErrorCode::THROTTLED_OP), "{request:?}");
        assert_eq!(header.zxid, zxid);
    }
    let refused = Outcome::Refused(ErrorCode::THROTTLED_OP);
    assert!(server.requests().iter().all(|request| request.outcome == refused));
    assert_eq!((server.zxid(), server.watch_count()), (zxid, 0));
    client.send_as(-2, &Request::Ping).await;
    let Got::Reply(header, _) = client.next(OpCode::PING).await else { panic!("a pong") };
    assert_eq!(header.err, ErrorCode::OK);
    let mut other = Client::new(&server).await;
    other.ok(&Request::CloseSession).await;
    other.assert_eof().await;
    sleep(Duration::from_secs(5)).await;
    client.ok(&delete("/a", -1)).await;
    server.throttle_for(Duration::from_secs(5));
    server.throttle_for(Duration::ZERO);
    client.create("/a", CreateMode::Persistent).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_fault_throttles_one_request() {
    let server = start();
    let mut client = Client::new(&server).await;
    let throttle = Action::Error(ErrorCode::THROTTLED_OP);
    server.inject(Fault::new(At::op(OpCode::CREATE), throttle));
    let request = create("/a", CreateMode::Persistent);
    assert_eq!(client.code(&request).await, ErrorCode::THROTTLED_OP);
    client.ok(&request).await;
}
