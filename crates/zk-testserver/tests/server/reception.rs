//! How clients are received that connect: as they should be, or badly for a while.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use zk_testserver::{Reception, TestServer};

use crate::client::*;

const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn every_handshake_is_answered_with_expired() {
    let server = start();
    let older = Client::new(&server).await;
    server.set_reception(Reception::Expired);
    for (session, password) in [(0, &[0; 16][..]), (older.session, &older.password)] {
        let mut client = Client::raw(&server);
        let answer = client.connect(handshake(session, password, 0)).await.expect("an answer");
        assert_eq!((answer.timeout_ms, answer.session_id), (0, 0));
        assert_eq!(&answer.password[..], [0; 16]);
        client.assert_eof().await;
    }
    assert_eq!(server.sessions(), [older.session], "it lives, and no other one began");
    server.set_reception(Reception::Open);
    Client::resume(&server, &older).await;
}

#[tokio::test(start_paused = true)]
async fn a_handshake_is_answered_and_the_connection_ends() {
    let server = start();
    server.set_reception(Reception::HangUp);
    let mut client = Client::raw(&server);
    let answer = client.connect(handshake(0, &[], 0)).await.expect("an answer");
    assert_eq!(server.sessions(), [answer.session_id]);
    client.assert_eof().await;
    assert_eq!(server.requests(), []);

    // It can be continued, and ends again.
    let mut again = Client::raw(&server);
    let answer = again.connect(handshake(client.session, &client.password, 0)).await;
    assert_eq!(answer.expect("an answer").session_id, client.session);
    again.assert_eof().await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_accepts_and_says_nothing() {
    let server = start();
    server.set_reception_for(Reception::Silent, Duration::from_secs(5));
    let mut client = Client::raw(&server);
    let silence = timeout(HOUR / 2, client.connect(handshake(0, &[], 0))).await;
    assert!(silence.is_err(), "{silence:?}");
    assert!(server.sessions().is_empty());
    // The silence of a connection stays; new ones are received again.
    Client::new(&server).await;
    server.disconnect_all();
    client.assert_eof().await;
}

#[tokio::test(start_paused = true)]
async fn a_connect_into_a_black_hole_waits_until_told_otherwise() {
    let server = start();
    server.set_reception(Reception::BlackHole);
    assert_eq!(server.connect().map(drop).unwrap_err().kind(), ErrorKind::TimedOut);
    let connector = server.connector();
    let mut connecting = connector("any host");
    assert!(timeout(HOUR, &mut connecting).await.is_err());
    server.set_reception(Reception::Refused);
    let refused = connecting.await.map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test(start_paused = true)]
async fn a_reception_for_a_while_ends_by_itself() {
    let second = Duration::from_secs(1);
    for reception in
        [Reception::BlackHole, Reception::Refused, Reception::Expired, Reception::HangUp]
    {
        let server = start();
        server.set_reception_for(reception, second);
        let connector = server.connector();
        let mut connecting = connector("any host");
        let early = timeout(second - MILLISECOND, &mut connecting).await;
        if reception == Reception::BlackHole {
            assert!(early.is_err(), "it waits to the end");
            let late = timeout(MILLISECOND, connecting).await;
            assert!(late.is_ok_and(|connected| connected.is_ok()));
        } else {
            let refused = early.expect("an answer at once").is_err();
            assert_eq!(refused, reception == Reception::Refused);
            sleep(second).await;
        }
        let mut client = Client::new(&server).await;
        client.ok(&exists("/", false)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn open_connections_are_not_received_anew() {
    let server = start();
    let mut client = Client::new(&server).await;
    for reception in [
        Reception::Expired,
        Reception::HangUp,
        Reception::Silent,
        Reception::BlackHole,
        Reception::Refused,
    ] {
        server.set_reception(reception);
        client.ok(&exists("/", false)).await;
    }
}

#[tokio::test]
async fn a_black_hole_on_tcp_answers_nothing_before_it_is_told_to() {
    let server: TestServer = start();
    let address = server.listen("127.0.0.1:0").await.expect("a port is free");
    server.set_reception(Reception::BlackHole);
    // The system completes it; the server takes no notice.
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("the queue has room");
    stream.write_all(b"ruok").await.expect("the system takes bytes");
    let mut answer = Vec::new();
    let silence = timeout(Duration::from_millis(100), stream.read_to_end(&mut answer)).await;
    assert!(silence.is_err() && answer.is_empty(), "{silence:?}");
    server.set_reception(Reception::Open);
    stream.read_to_end(&mut answer).await.expect("the answer, and the end");
    assert_eq!(answer, b"imok");
}

#[tokio::test]
async fn a_black_hole_does_not_keep_its_server_alive() {
    let server = start();
    let address = server.listen("127.0.0.1:0").await.expect("a port is free");
    server.set_reception(Reception::BlackHole);
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("the queue has room");
    // So that the listener has accepted it, and waits.
    tokio::task::yield_now().await;
    drop(server);
    let end = timeout(Duration::from_secs(60), stream.read(&mut [0])).await;
    assert!(!matches!(end, Ok(Ok(1..)) | Err(_)), "{end:?}");
}
