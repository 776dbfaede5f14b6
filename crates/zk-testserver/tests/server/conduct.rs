//! Misbehavior that lasts until a test ends it.

use std::time::Duration;

use jute_codec::{CreateMode, ErrorCode, EventType, OpCode, Request, SessionId, Zxid, xid};
use tokio::time::timeout;
use zk_testserver::{Action, At, Fault, Outcome, Reception, ServerConfig, TestServer};

use crate::client::*;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn each_request_waits_before_it_is_processed() {
    let server = start();
    let mut client = Client::new(&server).await;
    server.delay_requests(SECOND);
    client.send(&create("/a", CreateMode::Persistent)).await;
    client.send(&exists("/a", false)).await;
    sleep(SECOND - Duration::from_millis(1)).await;
    assert_eq!(server.children("/").unwrap(), ["zookeeper"], "the create waits");
    for op in [OpCode::CREATE, OpCode::EXISTS] {
        let Got::Reply(header, _) = client.next(op).await else { panic!() };
        assert_eq!(header.err, ErrorCode::OK);
    }
    server.delay_requests(Duration::ZERO);
    client.ok(&exists("/a", false)).await;
    let times: Vec<u64> = server.requests().iter().map(|request| request.at.as_secs()).collect();
    assert_eq!(times, [1, 2, 2], "they wait one after the other");
}

#[tokio::test(start_paused = true)]
async fn a_number_of_requests_fails_and_pings_do_not_count() {
    let server = start();
    let mut client = Client::new(&server).await;
    server.fail_requests(Some(2));
    assert_eq!(client.code(&create("/a", CreateMode::Persistent)).await, ErrorCode::API_ERROR);
    client.ok(&Request::Ping).await;
    assert_eq!(client.code(&exists("/", false)).await, ErrorCode::API_ERROR);
    client.ok(&exists("/", false)).await;
    assert_eq!(server.children("/").unwrap(), ["zookeeper"], "no create was processed");
    let outcomes: Vec<Outcome> = server.requests().iter().map(|request| request.outcome).collect();
    let refused = Outcome::Refused(ErrorCode::API_ERROR);
    assert_eq!(outcomes, [refused, refused, Outcome::Applied(ErrorCode::OK)]);
}

#[tokio::test(start_paused = true)]
async fn without_a_number_all_requests_fail_until_the_reset() {
    let server = start();
    let mut client = Client::new(&server).await;
    server.fail_requests(None);
    for _ in 0..20 {
        assert_eq!(client.code(&exists("/", false)).await, ErrorCode::API_ERROR);
    }
    client.send_as(xid::PING, &Request::Ping).await;
    let Got::Reply(header, None) = client.next(OpCode::PING).await else { panic!() };
    assert_eq!(header.err, ErrorCode::API_ERROR);
    server.reset();
    client.ok(&exists("/", false)).await;
}

#[tokio::test(start_paused = true)]
async fn requests_without_replies_are_processed_and_the_connection_stays_open() {
    let server = start();
    let mut client = Client::new(&server).await;
    client.code(&exists("/a", true)).await;
    server.withhold_replies(Some(1));
    client.send(&create("/a", CreateMode::Persistent)).await;
    assert_eq!(client.event().await.0, EventType::NODE_CREATED);
    // The next message is the reply to the next request.
    client.ok(&exists("/a", false)).await;
    assert_eq!(server.children("/").unwrap(), ["a", "zookeeper"]);
    let outcomes = server.requests().iter().map(|request| request.outcome).collect::<Vec<_>>();
    assert!(outcomes.contains(&Outcome::AppliedUnanswered(ErrorCode::OK)), "{outcomes:?}");

    server.withhold_replies(None);
    client.send(&Request::Ping).await;
    client.send(&exists("/a", false)).await;
    assert!(timeout(SECOND, client.next(OpCode::EXISTS)).await.is_err(), "there is no reply");
    server.reset();
    client.ok(&exists("/a", false)).await;
}

#[tokio::test(start_paused = true)]
async fn the_lag_changes_while_the_server_runs_and_holds_for_earlier_commits() {
    let server = TestServer::start(ServerConfig::default().members(2).lag(SECOND));
    let mut reader = Client::new(&server.member(1)).await;
    let mut writer = Client::new(&server).await;
    server.set_lag(Duration::MAX);
    writer.create("/a", CreateMode::Persistent).await.unwrap();
    sleep(SECOND * 5).await;
    assert_eq!(reader.code(&exists("/a", false)).await, ErrorCode::NO_NODE);
    server.set_lag(SECOND * 2);
    sleep(SECOND).await;
    assert_eq!(reader.code(&exists("/a", false)).await, ErrorCode::NO_NODE);
    sleep(SECOND).await;
    reader.ok(&exists("/a", false)).await;
    server.reset();
    writer.create("/b", CreateMode::Persistent).await.unwrap();
    assert_eq!(reader.code(&exists("/b", false)).await, ErrorCode::NO_NODE);
    sleep(SECOND).await;
    reader.ok(&exists("/b", false)).await;
}

#[tokio::test(start_paused = true)]
async fn an_election_closes_all_connections_and_restarts_the_timeouts() {
    for members in [1, 3] {
        let server = TestServer::start(ServerConfig::default().members(members));
        let mut client = Client::new(&server).await;
        sleep(SECOND * 3).await;
        client.ok(&exists("/", false)).await;
        server.elect(SECOND * 60);
        client.assert_eof().await;
        let mut early = Client::raw(&server);
        let resumed = handshake(client.session, &client.password, Zxid(0));
        assert_eq!(early.connect(resumed).await, None, "nobody serves");
        sleep(SECOND * 60).await;
        // The session has a timeout of 10 s, and the tick is 2 s.
        sleep(SECOND * 9).await;
        assert_eq!(server.sessions(), [client.session]);
        let mut client = Client::resume(&server, &client).await;
        client.create("/a", CreateMode::Persistent).await.unwrap();
        client.hang_up();
        sleep(SECOND * 13).await;
        assert_eq!(server.sessions(), [], "sessions expire again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_disconnect_concerns_one_session() {
    let server = start();
    let (mut one, mut other) = (Client::new(&server).await, Client::new(&server).await);
    server.disconnect(one.session);
    one.assert_eof().await;
    other.ok(&exists("/", false)).await;
    Client::resume(&server, &one).await;
}

#[tokio::test(start_paused = true)]
async fn a_reset_ends_all_of_it() {
    let server = start();
    let mut client = Client::new(&server).await;
    server.inject(Fault::new(At::request(0), Action::CutBefore));
    server.delay_requests(SECOND);
    server.fail_requests(None);
    server.withhold_replies(None);
    server.refuse_for(SECOND * 60);
    server.throttle_for(SECOND * 60);
    server.set_reception(Reception::Expired);
    server.reset();
    client.ok(&exists("/", false)).await;
    let mut other = Client::new(&server).await;
    other.ok(&exists("/", false)).await;
    server.elect(SECOND * 60);
    server.reset();
    let mut third = Client::raw(&server);
    let reply = third.connect(handshake(SessionId::NONE, &[], Zxid(0))).await;
    assert_ne!(reply.expect("there is a leader").session_id, SessionId::NONE);
    let last = server.requests().last().expect("two requests were recorded").at;
    assert!(last < SECOND, "nothing had to wait");
    assert_eq!(server.pending_faults(), []);
}
