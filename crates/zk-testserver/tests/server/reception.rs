//! How the server treats new connections.

use std::io::ErrorKind;
use std::time::Duration;

use jute_codec::{SessionId, Zxid};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use zk_testserver::{Reception, TestServer};

use crate::client::*;

const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn every_handshake_gets_expired() {
    let server = start();
    let older = Client::new(&server).await;
    server.set_reception(Reception::Expired);
    for (session, password) in [(SessionId::NONE, &[0; 16][..]), (older.session, &older.password)] {
        let mut client = Client::raw(&server);
        let reply = client.connect(handshake(session, password, Zxid(0))).await.expect("a reply");
        assert_eq!((reply.timeout_ms, reply.session_id), (0, SessionId::NONE));
        assert_eq!(&reply.password[..], [0; 16]);
        client.assert_eof().await;
    }
    assert_eq!(
        server.sessions(),
        [older.session],
        "the session lives, and no other one was started"
    );
    server.set_reception(Reception::Open);
    Client::resume(&server, &older).await;
}

#[tokio::test(start_paused = true)]
async fn hang_up_replies_to_the_handshake_and_closes_the_connection() {
    let server = start();
    server.set_reception(Reception::HangUp);
    let mut client = Client::raw(&server);
    let reply = client.connect(handshake(SessionId::NONE, &[], Zxid(0))).await.expect("a reply");
    assert_eq!(server.sessions(), [reply.session_id]);
    client.assert_eof().await;
    assert_eq!(server.requests(), []);

    // The session can be resumed, and the connection is closed again.
    let mut again = Client::raw(&server);
    let reply = again.connect(handshake(client.session, &client.password, Zxid(0))).await;
    assert_eq!(reply.expect("a reply").session_id, client.session);
    again.assert_eof().await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_accepts_and_sends_nothing() {
    let server = start();
    server.set_reception_for(Reception::Silent, Duration::from_secs(5));
    let mut client = Client::raw(&server);
    let silence = timeout(HOUR / 2, client.connect(handshake(SessionId::NONE, &[], Zxid(0)))).await;
    assert!(silence.is_err(), "{silence:?}");
    assert!(server.sessions().is_empty());
    // The old connection stays silent, but new connections are served again.
    Client::new(&server).await;
    server.disconnect_all();
    client.assert_eof().await;
}

#[tokio::test(start_paused = true)]
async fn a_connect_into_a_black_hole_waits_until_the_reception_changes() {
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
async fn a_reception_with_a_duration_ends_by_itself() {
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
            assert!(early.is_err(), "the connect waits until the reception changes");
            let late = timeout(MILLISECOND, connecting).await;
            assert!(late.is_ok_and(|connected| connected.is_ok()));
        } else {
            let refused = early.expect("the connect returns at once").is_err();
            assert_eq!(refused, reception == Reception::Refused);
            sleep(second).await;
        }
        let mut client = Client::new(&server).await;
        client.ok(&exists("/", false)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn receptions_do_not_affect_open_connections() {
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
async fn a_black_hole_on_tcp_sends_nothing_until_the_reception_changes() {
    let server: TestServer = start();
    let address = server.listen("127.0.0.1:0").await.expect("a port is free");
    server.set_reception(Reception::BlackHole);
    // The operating system completes the connect, but the server does not accept it.
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("the queue has room");
    stream.write_all(b"ruok").await.expect("the operating system buffers the bytes");
    let mut reply = Vec::new();
    let silence = timeout(Duration::from_millis(100), stream.read_to_end(&mut reply)).await;
    assert!(silence.is_err() && reply.is_empty(), "{silence:?}");
    server.set_reception(Reception::Open);
    stream.read_to_end(&mut reply).await.expect("the server replies and closes the connection");
    assert_eq!(reply, b"imok");
}

#[tokio::test]
async fn a_black_hole_does_not_keep_its_server_alive() {
    let server = start();
    let address = server.listen("127.0.0.1:0").await.expect("a port is free");
    server.set_reception(Reception::BlackHole);
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("the queue has room");
    // Give the listener time to accept the connection and to wait.
    tokio::task::yield_now().await;
    drop(server);
    let end = timeout(Duration::from_secs(60), stream.read(&mut [0])).await;
    assert!(!matches!(end, Ok(Ok(1..)) | Err(_)), "{end:?}");
}
