//! Sessions: start, resume, move and end.

use std::time::Duration;

use jute_codec::{ConnectRequest, CreateMode, ErrorCode, EventType, Request, SessionId, Zxid};
use zk_testserver::{ServerConfig, TestServer};

use crate::client::*;

#[tokio::test(start_paused = true)]
async fn timeout_is_negotiated() {
    let server = start();
    for (requested, granted) in [(-1, 4000), (0, 4000), (10_000, 10_000), (i32::MAX, 40_000)] {
        let mut client = Client::raw(&server);
        let request =
            ConnectRequest { timeout_ms: requested, ..handshake(SessionId::NONE, &[], Zxid(0)) };
        let response = client.connect(request).await.unwrap();
        assert_eq!(response.timeout_ms, granted);
        assert_eq!(response.password.len(), 16);
    }
    assert_eq!(server.sessions().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn read_only_byte_is_echoed() {
    let server = start();
    for read_only in [None, Some(false), Some(true)] {
        let request = ConnectRequest { read_only, ..handshake(SessionId::NONE, &[], Zxid(0)) };
        let response = Client::raw(&server).connect(request).await.unwrap();
        assert_eq!(response.read_only, read_only.map(|_| false));
    }
}

#[tokio::test(start_paused = true)]
async fn resuming_closes_the_older_connection() {
    let server = start();
    let mut first = Client::new(&server).await;
    let mut second = Client::resume(&server, &first).await;
    first.assert_eof().await;
    second.ok(&Request::Ping).await;
    assert_eq!(server.sessions(), [second.session]);
}

#[tokio::test(start_paused = true)]
async fn wrong_password_is_refused_but_closes_the_older_connection() {
    let server = start();
    let mut first = Client::new(&server).await;
    let mut thief = Client::raw(&server);
    let response = thief.connect(handshake(first.session, &[7; 16], Zxid(0))).await.unwrap();
    assert_eq!((response.timeout_ms, response.session_id), (0, SessionId::NONE));
    assert_eq!(response.password.as_ref(), [0; 16]);
    thief.assert_eof().await;
    first.assert_eof().await;
    Client::resume(&server, &first).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_listens_knows_no_session_of_another_one() {
    let (left, its_successor) = (start(), start());
    for server in [&left, &its_successor] {
        server.listen("127.0.0.1:0").await.unwrap();
    }
    let left_over = Client::new(&left).await;
    let mut owner = Client::new(&its_successor).await;
    let mut stranger = Client::raw(&its_successor);
    let request = handshake(left_over.session, &left_over.password, Zxid(0));
    let response = stranger.connect(request).await.unwrap();
    assert_eq!(response.session_id, SessionId::NONE);
    owner.ok(&Request::Ping).await;
    // A second address changes nothing.
    its_successor.listen("127.0.0.1:0").await.unwrap();
    let next = Client::new(&its_successor).await;
    assert_eq!(next.session, SessionId(owner.session.0 + 1));

    let config = ServerConfig::default().first_session_id(SessionId(7));
    let chosen = TestServer::start(config);
    chosen.listen("127.0.0.1:0").await.unwrap();
    assert_eq!(Client::new(&chosen).await.session, SessionId(7));
}

#[tokio::test(start_paused = true)]
async fn unknown_session_is_expired() {
    let server = start();
    let mut client = Client::raw(&server);
    let response = client.connect(handshake(SessionId(99), &[0; 16], Zxid(0))).await.unwrap();
    assert_eq!((response.timeout_ms, response.session_id), (0, SessionId::NONE));
    client.assert_eof().await;
}

#[tokio::test(start_paused = true)]
async fn client_with_a_newer_zxid_is_disconnected() {
    let server = start();
    let mut client = Client::raw(&server);
    assert_eq!(client.connect(handshake(SessionId::NONE, &[0; 16], Zxid(1))).await, None);
    assert!(server.sessions().is_empty());
}

#[tokio::test(start_paused = true)]
async fn session_expires_at_the_end_of_a_tick_with_its_ephemerals_in_one_transaction() {
    let server = start();
    let mut watcher = Client::new(&server).await;
    let mut client = Client::raw(&server);
    let request = ConnectRequest { timeout_ms: 5000, ..handshake(SessionId::NONE, &[], Zxid(0)) };
    client.connect(request).await.unwrap();
    for path in ["/a", "/b"] {
        client.create(path, CreateMode::Ephemeral).await.unwrap();
    }
    watcher.ok(&exists("/a", true)).await;
    watcher.ok(&exists("/b", true)).await;
    // The session expires 5 s after the last request, which is sent at 1.9 s, rounded up to a
    // multiple of 2 s.
    sleep(Duration::from_millis(1900)).await;
    client.ok(&Request::Ping).await;
    sleep(Duration::from_millis(6000)).await;
    watcher.ok(&Request::Ping).await;
    assert_eq!(server.sessions().len(), 2);
    sleep(Duration::from_millis(101)).await;
    client.assert_eof().await;
    assert_eq!(server.sessions(), [watcher.session]);
    // Ephemerals have no defined order.
    assert_eq!(watcher.event().await, (EventType::NODE_DELETED, "/b".to_owned()));
    assert_eq!(watcher.event().await, (EventType::NODE_DELETED, "/a".to_owned()));
    let last: Vec<_> = server.commits().into_iter().filter(|c| c.zxid == Zxid(5)).collect();
    assert_eq!(last.len(), 3, "{last:?}");
    assert_eq!(server.zxid(), Zxid(5));
}

#[tokio::test(start_paused = true)]
async fn session_outlives_its_connection_until_the_timeout() {
    let server = start();
    let mut client = Client::new(&server).await;
    client.create("/a", CreateMode::Ephemeral).await.unwrap();
    server.disconnect_all();
    client.assert_eof().await;
    sleep(Duration::from_secs(9)).await;
    let mut client = Client::resume(&server, &client).await;
    client.ok(&exists("/a", false)).await;
    server.disconnect_all();
    sleep(Duration::from_secs(30)).await;
    assert_eq!((server.sessions(), server.ephemerals()), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn closing_deletes_the_ephemerals_and_drops_later_requests() {
    let server = start();
    let mut client = Client::new(&server).await;
    client.create("/a", CreateMode::Ephemeral).await.unwrap();
    client.ok(&exists("/a", true)).await;
    let mut bytes = encode(10, &Request::CloseSession);
    bytes.extend_from_slice(&encode(11, &Request::Ping));
    client.write(&bytes).await;
    assert_eq!(client.event().await, (EventType::NODE_DELETED, "/a".to_owned()));
    let Got::Reply(header, _) = client.next(jute_codec::OpCode::CLOSE_SESSION).await else {
        panic!()
    };
    assert_eq!((header.xid, header.err), (10, ErrorCode::OK));
    client.assert_eof().await;
    assert!(server.sessions().is_empty());
}

#[tokio::test(start_paused = true)]
async fn expiring_session_may_get_events_for_its_own_ephemerals() {
    for is_heard in [false, true] {
        let server = TestServer::start(ServerConfig::default().events_at_expiry(is_heard));
        let mut client = Client::new(&server).await;
        client.create("/a", CreateMode::Ephemeral).await.unwrap();
        client.ok(&exists("/a", true)).await;
        server.expire(client.session);
        if is_heard {
            assert_eq!(client.event().await.0, EventType::NODE_DELETED);
        }
        client.assert_eof().await;
    }
}

#[tokio::test(start_paused = true)]
async fn requests_may_follow_the_handshake_immediately() {
    let server = start();
    let mut client = Client::raw(&server);
    let mut bytes = bytes::BytesMut::new();
    jute_codec::encode_frame(&mut bytes, 100, |out| {
        jute_codec::Record::encode(&handshake(SessionId::NONE, &[0; 16], Zxid(0)), out);
    })
    .unwrap();
    bytes.extend_from_slice(&encode(5, &exists("/", false)));
    client.write(&bytes).await;
    client.frame().await.expect("the server replies to the handshake");
    let Got::Reply(header, _) = client.next(jute_codec::OpCode::EXISTS).await else { panic!() };
    assert_eq!(header.xid, 5);
}
