//! Members that led, and do not know yet that the others have elected another leader.

use std::time::Duration;

use jute_codec::{CreateMode, ErrorCode, OpCode, Request, SessionId, Zxid};
use zk_testserver::{Reception, ServerConfig, TestServer};

use crate::client::*;

const SECOND: Duration = Duration::from_secs(1);

fn sync() -> Request {
    Request::Sync("/".into())
}

/// Starts three members, and a session at the second one, which has an ephemeral. A second session is at
/// another member.
async fn scene() -> (TestServer, TestServer, Client, Client) {
    let server = TestServer::start(ServerConfig::default().members(3));
    let leader = server.member(1);
    let mut client = Client::new(&leader).await;
    client.create("/mine", CreateMode::Ephemeral).await.expect("the path is free");
    let other = Client::new(&server).await;
    (server, leader, client, other)
}

#[tokio::test(start_paused = true)]
async fn a_deposed_leader_answers_what_needs_no_quorum_until_it_notices() {
    let (server, leader, mut client, mut other) = scene().await;
    let seen = server.zxid();
    leader.depose(SECOND * 5);
    other.create("/new", CreateMode::Persistent).await.unwrap();
    client.ok(&sync()).await;
    client.ok(&Request::Ping).await;
    assert_eq!(client.code(&exists("/new", true)).await, ErrorCode::NO_NODE);
    client.ok(&exists("/mine", false)).await;
    assert_eq!(client.zxid, seen, "it knows of nothing newer");
    client.send(&create("/write", CreateMode::Persistent)).await;
    client.send(&sync()).await;
    client.ok(&Request::Ping).await;
    client.assert_eof().await;
    assert_eq!(other.code(&exists("/write", false)).await, ErrorCode::NO_NODE);
    let mut again = Client::resume(&leader, &client).await;
    again.ok(&exists("/new", false)).await;
    again.create("/write", CreateMode::Persistent).await.expect("it follows the others");
}

#[tokio::test(start_paused = true)]
async fn a_deposed_leader_resumes_a_session_that_ends_meanwhile() {
    let (server, leader, client, mut other) = scene().await;
    sleep(SECOND * 3).await;
    leader.depose(SECOND * 30);
    // The others are not ready yet.
    server.set_reception_for(Reception::Refused, SECOND);
    let mut again = Client::resume(&leader, &client).await;
    for second in 0..16 {
        // A session of 10 s, from the time at which another member led, rounded up to a tick of 2 s.
        assert_eq!(server.stat("/mine").is_some(), second + 3 < 14, "after {second} s");
        again.ok(&Request::Ping).await;
        again.ok(&exists("/mine", false)).await;
        other.ok(&Request::Ping).await;
        sleep(SECOND).await;
    }
    assert_eq!(server.sessions(), [other.session]);
}

#[tokio::test(start_paused = true)]
async fn a_deposed_leader_knows_nothing_of_what_came_later() {
    let (server, leader, client, mut other) = scene().await;
    leader.depose(SECOND * 5);
    let newer = Client::new(&server.member(2)).await;
    let told = |session, password: &[u8], zxid| {
        let (leader, request) = (leader.clone(), handshake(session, password, zxid));
        async move { Client::raw(&leader).connect(request).await.map(|it| it.session_id) }
    };
    let is_unknown = told(newer.session, &newer.password, Zxid(0)).await;
    assert_eq!(is_unknown, Some(SessionId::NONE), "it says that this session has ended");
    other.create("/new", CreateMode::Persistent).await.unwrap();
    let is_ahead = told(other.session, &other.password, other.zxid).await;
    assert_eq!(is_ahead, None, "the client has seen more");
    let mut resumed = Client::resume(&leader, &client).await;
    resumed.ok(&sync()).await;
    let starts = told(SessionId::NONE, &[0; 16], Zxid(0));
    let starts = tokio::time::timeout(SECOND, starts).await;
    assert!(starts.is_err(), "a new session needs a quorum");
    resumed.send(&sync()).await;
    resumed.ok(&Request::Ping).await;
    assert_eq!(resumed.next(OpCode::SYNC).await, Got::Eof, "so does a sync behind it");
}
