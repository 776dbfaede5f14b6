//! Unread replies: the server stops processing requests of a connection until the client reads its
//! replies.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use jute_codec::{
    AddWatchMode, AddWatchRequest, CreateMode, OpCode, Record as _, Request, SessionId,
    SetDataRequest, Version, Zxid, encode_frame,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;
use zk_testserver::{Action, At, Fault, Server, ServerConfig, TestServer};

use crate::client::*;

/// The length of one reply in bytes.
const LARGE: usize = 900_000;
/// How many replies the server may hold for a connection: two buffers of 4 MiB, each of which may
/// exceed its limit by one reply.
const REPLIES_MAX: usize = 14;
const READS: usize = 400;
const NOW: Duration = Duration::ZERO;

/// Creates a znode with a large reply.
async fn large(server: &TestServer) {
    let mut client = Client::new(server).await;
    client.create("/large", CreateMode::Persistent).await.expect("the path is free");
    let data = Some(Bytes::from(vec![7; LARGE]));
    let set = SetDataRequest { path: "/large".into(), data, version: Version::ANY };
    client.ok(&Request::SetData(set)).await;
    client.ok(&Request::CloseSession).await;
    server.clear_requests();
}

/// Encodes a handshake and a number of reads.
fn reads(path: &str, number: usize) -> BytesMut {
    let mut out = BytesMut::new();
    encode_frame(&mut out, 1 << 20, |out| handshake(SessionId::NONE, &[], Zxid(0)).encode(out))
        .expect("the frame is short");
    for xid in 1..=number {
        out.extend_from_slice(&encode(i32::try_from(xid).expect("few"), &get_data(path, false)));
    }
    out
}

/// Reads the replies to the handshake and to this many reads.
async fn take_all(stream: &mut (impl AsyncRead + Unpin), number: usize) {
    let mut frame = vec![0; 2 * LARGE];
    for _ in 0..=number {
        let length = stream.read_u32().await.expect("another frame arrives") as usize;
        let frame = frame.get_mut(..length).expect("the frame fits the buffer");
        stream.read_exact(frame).await.expect("the frame arrives completely");
    }
}

async fn unread_replies_are_bounded(
    server: TestServer,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
) {
    stream.write_all(&reads("/large", READS)).await.expect("the server reads");
    // Other connections are served for long enough that this one has received all bytes that it
    // will receive.
    let mut other = Client::new(&server).await;
    let mut before = 0;
    loop {
        other.ok(&exists("/", false)).await;
        sleep(Duration::from_millis(20)).await;
        let processed = server.requests().len();
        let reads = server.requests().iter().filter(|r| r.op == OpCode::GET_DATA).count();
        assert!(reads <= REPLIES_MAX, "{reads} replies wait in the server");
        if reads == before && reads > 0 {
            break;
        }
        before = reads;
        assert!(processed < 10_000, "the server stops processing");
    }
    take_all(&mut stream, READS).await;
    let reads = server.requests().iter().filter(|r| r.op == OpCode::GET_DATA).count();
    assert_eq!(reads, READS, "all reads have been processed in the end");
}

#[tokio::test(start_paused = true)]
async fn unread_replies_in_a_pipe_stop_the_requests_of_that_connection() {
    let server = start();
    large(&server).await;
    let stream = server.connect().expect("the server accepts connections");
    unread_replies_are_bounded(server, stream).await;
}

#[tokio::test]
async fn unread_replies_in_a_socket_stop_the_requests_of_that_connection() {
    let server = start();
    large(&server).await;
    let address = server.listen("127.0.0.1:0").await.expect("a port is free");
    let stream = tokio::net::TcpStream::connect(address).await.expect("the server listens");
    let before = server.requests().len();
    assert_eq!(before, 0);
    // The buffers of the operating system hold additional replies.
    unread_replies_are_bounded(server, stream).await;
}

/// The replies to the client's requests are far longer than the server's buffers.
#[tokio::test(start_paused = true)]
async fn a_client_may_write_many_requests_before_it_reads() {
    const MANY: usize = 200_000;
    let server = TestServer::start(ServerConfig::default().log_capacity(MANY));
    let mut stream = server.connect().expect("the server accepts connections");
    let bytes = reads("/", MANY);
    let written = timeout(Duration::from_secs(60), stream.write_all(&bytes)).await;
    written.expect("the server reads although the client does not").expect("the pipe is open");
    assert!(server.requests().len() < MANY, "the replies do not fit into the buffers");
    take_all(&mut stream, MANY).await;
}

/// Once the number of unprocessed requests has reached a limit, a client has to read before it can
/// write more.
#[tokio::test(start_paused = true)]
async fn requests_after_unread_replies_are_buffered_up_to_a_bound() {
    let server = start();
    large(&server).await;
    let mut stream = server.connect().expect("the server accepts connections");
    stream.write_all(&reads("/large", 0)).await.expect("the server reads");
    let request = encode(1, &get_data("/large", false));
    let requests = request.repeat((20 << 20) / request.len());
    let mut rest = &requests[..];
    let written = timeout(Duration::from_secs(1), stream.write_all_buf(&mut rest)).await;
    assert!(written.is_err(), "the server accepted all {} bytes", requests.len());
    let kept = requests.len() - rest.len();
    assert!((16 << 20..17 << 20).contains(&kept), "{kept} bytes");

    // Once the client reads, it can write again.
    let (mut reader, mut writer) = tokio::io::split(stream);
    let reading = take_all(&mut reader, 1_000);
    let writing = writer.write_all(&rest[..8 * 1024]);
    timeout(Duration::from_secs(1), async { tokio::join!(reading, writing) })
        .await
        .expect("the replies arrive")
        .1
        .expect("the server reads again");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_disconnects_with_unread_replies_leaves_no_session() {
    let server = start();
    large(&server).await;
    let mut stream = server.connect().expect("the server accepts connections");
    stream.write_all(&reads("/large", READS)).await.expect("the server reads");
    sleep(Duration::from_millis(1)).await;
    drop(stream);
    sleep(Duration::from_secs(60)).await;
    assert!(server.sessions().is_empty(), "the session has expired");
    let answered = server.requests().len();
    assert!(answered <= REPLIES_MAX, "{answered}");
}

/// Delayed replies count as unread. Processing continues when they have been sent.
#[tokio::test(start_paused = true)]
async fn requests_after_delayed_replies_continue_once_these_are_sent() {
    let server = start();
    large(&server).await;
    server.inject(Fault::new(At::op(OpCode::GET_DATA), Action::Delay(Duration::from_secs(3))));
    let mut stream = server.connect().expect("the server accepts connections");
    stream.write_all(&reads("/large", 20)).await.expect("the server reads");
    sleep(Duration::from_secs(1)).await;
    assert!(server.requests().len() < 20);
    take_all(&mut stream, 20).await;
}

/// This test uses the state machine alone: a driver that drains it gets all replies, in parts.
#[test]
fn a_driver_that_drains_the_server_gets_all_replies() {
    let mut server = Server::new(ServerConfig::default());
    server.admin_create("/large", &vec![7; LARGE], None, NOW);
    let id = server
        .handle_connect(IpAddr::V4(Ipv4Addr::LOCALHOST), NOW)
        .expect("the server accepts connections");
    server.handle_bytes(id, &reads("/large", READS), NOW);
    let first = server.requests().len();
    assert!(first < READS, "processing waits for the output to be taken");
    let mut length = 0;
    while let Some(transmit) = server.poll_transmit(NOW) {
        assert!(transmit.bytes.len() < 8 << 20, "{} bytes at once", transmit.bytes.len());
        length += transmit.bytes.len();
    }
    assert_eq!(server.requests().len(), READS);
    assert!(length > READS * LARGE);
}

#[test]
fn nothing_is_transmitted_while_a_connection_is_not_writable() {
    let mut server = Server::new(ServerConfig::default());
    let id = server
        .handle_connect(IpAddr::V4(Ipv4Addr::LOCALHOST), NOW)
        .expect("the server accepts connections");
    server.handle_bytes(id, &reads("/", 1), NOW);
    server.set_writable(id, false, NOW);
    assert_eq!(server.poll_transmit(NOW), None);
    server.handle_bytes(id, &encode(2, &exists("/", false)), NOW);
    assert_eq!(server.requests().len(), 1, "the second request waits");
    server.set_writable(id, true, NOW);
    assert_eq!(server.requests().len(), 2);
    assert!(server.poll_transmit(NOW).is_some());
    // Closing a connection does not wait for the client.
    server.set_writable(id, false, NOW);
    server.disconnect_all(NOW);
    assert!(server.poll_transmit(NOW).is_some_and(|transmit| transmit.is_last));
}

/// Requests wait while replies are unread, but events are still enqueued.
#[tokio::test(start_paused = true)]
async fn a_connection_that_never_reads_its_events_is_closed() {
    let server = TestServer::start(ServerConfig::default());
    let path = format!("/{}", "x".repeat(200_000));
    let mut lazy = Client::new(&server).await;
    let mut writer = Client::new(&server).await;
    writer.create(&path, CreateMode::Persistent).await.expect("the path is free");
    let mode = AddWatchMode::PERSISTENT_RECURSIVE;
    lazy.ok(&Request::AddWatch(AddWatchRequest { path: "/".into(), mode })).await;
    assert_eq!(server.watch_count(), 1);
    let mut sets = 0;
    while server.watch_count() > 0 {
        let set = SetDataRequest { path: path.as_str().into(), data: None, version: Version::ANY };
        writer.ok(&Request::SetData(set)).await;
        sets += 1;
        assert!(sets < 1_000, "200 MB of events are enqueued");
    }
    assert!(sets > 300, "closed after only {sets} events");
    assert!(server.sessions().contains(&lazy.session), "the session can be resumed");
}
