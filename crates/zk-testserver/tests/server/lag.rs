//! Followers that apply writes later than the leader.

use std::time::Duration;

use jute_codec::{CreateMode, ErrorCode, EventType, OpCode, Request, Response, SetWatches};
use zk_testserver::{Action, At, Fault, ServerConfig, TestServer};

use crate::client::*;

const SECOND: Duration = Duration::from_secs(1);

fn ensemble(lag: Duration) -> TestServer {
    TestServer::start(ServerConfig::default().members(3).lag(lag))
}

/// Its members learn of everything at once, and apply nothing by themselves.
fn slow_ensemble() -> TestServer {
    TestServer::start(ServerConfig::default().members(3).unapplied(Duration::MAX))
}

#[tokio::test(start_paused = true)]
async fn a_follower_shows_the_write_of_another_member_only_after_the_lag() {
    let server = ensemble(SECOND);
    let mut writer = Client::new(&server.member(1)).await;
    let mut reader = Client::new(&server.member(2)).await;
    let mut leader = Client::new(&server).await;
    assert_eq!(reader.code(&exists("/a", true)).await, ErrorCode::NO_NODE);
    writer.create("/a", CreateMode::Persistent).await.unwrap();
    writer.ok(&get_data("/a", false)).await;
    leader.ok(&get_data("/a", false)).await;
    let (header, result) = reader.call_full(&exists("/a", false)).await;
    assert_eq!(result, Err(ErrorCode::NO_NODE));
    assert!(header.zxid < server.zxid(), "the zxid is that of the old state");
    sleep(SECOND - Duration::from_millis(1)).await;
    assert_eq!(reader.code(&exists("/a", false)).await, ErrorCode::NO_NODE);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(reader.event().await, (EventType::NODE_CREATED, "/a".to_owned()));
    let (header, result) = reader.call_full(&exists("/a", false)).await;
    result.unwrap();
    assert_eq!(header.zxid, server.zxid());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_a_fault_refuses_makes_its_member_catch_up_unless_no_server_looks_at_it() {
    for (code, is_seen) in [(ErrorCode::NO_AUTH, true), (ErrorCode::THROTTLED_OP, false)] {
        let server = ensemble(Duration::MAX);
        let mut writer = Client::new(&server).await;
        let mut reader = Client::new(&server.member(2)).await;
        writer.create("/a", CreateMode::Persistent).await.unwrap();
        server.inject(Fault::new(At::op(OpCode::DELETE), Action::Error(code)));
        assert_eq!(reader.code(&delete("/a", -1)).await, code);
        assert_eq!(reader.call(&exists("/a", false)).await.is_ok(), is_seen, "{code:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_and_a_sync_make_their_own_member_catch_up_in_order() {
    for request in [set_data("/mine", -1), sync("/"), create("/mine/b", CreateMode::Persistent)] {
        let server = ensemble(Duration::MAX);
        let mut reader = Client::new(&server.member(2)).await;
        reader.create("/mine", CreateMode::Persistent).await.unwrap();
        let mut writer = Client::new(&server.member(1)).await;
        reader.ok(&get_children("/", true)).await;
        assert_eq!(reader.code(&exists("/a/b", true)).await, ErrorCode::NO_NODE);
        writer.create("/a", CreateMode::Persistent).await.unwrap();
        writer.create("/a/b", CreateMode::Persistent).await.unwrap();
        sleep(SECOND * 5).await;
        assert_eq!(reader.code(&exists("/a", false)).await, ErrorCode::NO_NODE);
        reader.send(&request).await;
        assert_eq!(reader.event().await, (EventType::NODE_CHILDREN_CHANGED, "/".to_owned()));
        assert_eq!(reader.event().await, (EventType::NODE_CREATED, "/a/b".to_owned()));
        let Got::Reply(header, Some(_)) = reader.next(request.op()).await else {
            panic!("{request:?} is accepted")
        };
        assert_eq!(header.zxid, server.zxid());
        reader.ok(&get_data("/a/b", false)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_refuses_a_session_that_has_seen_more_than_it() {
    let server = ensemble(SECOND);
    let mut client = Client::new(&server).await;
    client.create("/a", CreateMode::Persistent).await.unwrap();
    let resume = handshake(client.session, &client.password, client.zxid);
    let mut early = Client::raw(&server.member(1));
    assert_eq!(early.connect(resume.clone()).await, None, "the member has not applied /a");
    client.ok(&Request::Ping).await;
    sleep(SECOND).await;
    let mut late = Client::raw(&server.member(1));
    assert_eq!(late.connect(resume).await.unwrap().session_id, client.session);
    late.ok(&get_data("/a", false)).await;
    client.assert_eof().await;
}

/// The leader confirms a resume, and its answer follows the commits on the same connection.
#[tokio::test(start_paused = true)]
async fn a_resume_shows_what_its_member_can_apply_at_once() {
    for (server, is_applied) in [(ensemble(Duration::MAX), true), (slow_ensemble(), false)] {
        let mut client = Client::new(&server.member(1)).await;
        client.ok(&get_children("/", false)).await;
        server.catch_up_all();
        server.admin_create("/a", b"", None);
        let mut moved = Client::resume(&server.member(2), &client).await;
        let code = if is_applied { ErrorCode::OK } else { ErrorCode::NO_NODE };
        assert_eq!(moved.code(&exists("/a", false)).await, code);
        moved.ok(&sync("/")).await;
        assert_eq!(moved.code(&exists("/a", false)).await, ErrorCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_applies_what_it_has_learned_after_its_time() {
    let config = ServerConfig::default().members(2).lag(SECOND).unapplied(3 * SECOND);
    let server = TestServer::start(config);
    let mut reader = Client::new(&server.member(1)).await;
    server.admin_create("/a", b"", None);
    sleep(4 * SECOND - Duration::from_millis(1)).await;
    assert_eq!(reader.code(&exists("/a", true)).await, ErrorCode::NO_NODE);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(reader.event().await, (EventType::NODE_CREATED, "/a".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn restored_watches_compare_with_the_state_of_the_member() {
    let server = slow_ensemble();
    let mut client = Client::new(&server.member(1)).await;
    client.create("/a", CreateMode::Persistent).await.unwrap();
    server.catch_up_all();
    let mut writer = Client::new(&server).await;
    writer.ok(&set_data("/a", -1)).await;
    let mut moved = Client::resume(&server.member(2), &client).await;
    let set = SetWatches {
        relative_zxid: client.zxid,
        data: vec!["/a".into()],
        exist: Vec::new(),
        child: Vec::new(),
    };
    moved.ok(&Request::SetWatches(set)).await;
    // Resuming is not a write, so that the member has not applied the change yet.
    moved.send(&sync("/")).await;
    assert_eq!(moved.event().await, (EventType::NODE_DATA_CHANGED, "/a".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_new_session_sees_everything_that_was_committed_before_it() {
    let server = ensemble(Duration::MAX);
    server.admin_create("/a", b"", None);
    let mut client = Client::new(&server.member(1)).await;
    client.ok(&get_data("/a", false)).await;
}

#[tokio::test(start_paused = true)]
async fn members_arrive_at_the_same_state() {
    let server = ensemble(Duration::MAX);
    let mut client = Client::new(&server.member(1)).await;
    client.create("/q", CreateMode::Persistent).await.unwrap();
    for _ in 0..20 {
        client.create("/q/n-", CreateMode::EphemeralSequential).await.unwrap();
    }
    assert_eq!(client.code(&delete("/q", -1)).await, ErrorCode::NOT_EMPTY);
    client.ok(&set_data("/q", -1)).await;
    client.ok(&delete("/q/n-0000000003", -1)).await;
    server.set_create_count("/q", 100);
    client.create("/q/n-", CreateMode::PersistentSequential).await.unwrap();
    client.ok(&Request::CloseSession).await;
    let mut seen = Vec::new();
    for member in 0..3 {
        let mut client = Client::new(&server.member(member)).await;
        client.ok(&sync("/")).await;
        let children =
            Request::GetChildren2(jute_codec::ReadRequest { path: "/q".into(), watch: false });
        seen.push((client.ok(&children).await, client.ok(&get_data("/q", false)).await));
    }
    let Some((Response::GetChildren2(reply), _)) = seen.first() else { panic!("{seen:?}") };
    assert_eq!(reply.children.sorted(), ["n-0000000100"].into_iter().collect());
    assert!(seen.windows(2).all(|pair| pair.first() == pair.last()), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_follower_applies_the_oldest_commits_when_it_lags_too_far_behind() {
    let server = ensemble(Duration::MAX);
    let mut reader = Client::new(&server.member(1)).await;
    reader.ok(&sync("/")).await;
    server.admin_create("/a", b"", None);
    for _ in 0..9_999 {
        server.admin_set_data("/a", b"");
    }
    assert_eq!(reader.code(&exists("/a", true)).await, ErrorCode::NO_NODE);
    server.admin_set_data("/a", b"");
    assert_eq!(reader.event().await, (EventType::NODE_CREATED, "/a".to_owned()));
    let (header, result) = reader.call_full(&exists("/a", false)).await;
    result.unwrap();
    assert_eq!(header.zxid.0, server.zxid().0 - 10_000);
}
