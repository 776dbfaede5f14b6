//! Replies that nobody takes: the server stops working for that connection, and goes on when
//! they are taken.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use jute_codec::{
    AddWatchMode, AddWatchRequest, CreateMode, OpCode, Record as _, Request, SetDataRequest,
    encode_frame,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;
use zk_testserver::{Action, At, Fault, Server, ServerConfig, TestServer};

use crate::client::*;

/// Bytes of one reply.
const LARGE: usize = 900_000;
/// How many of them a connection may have in the server: 4 MiB of output, twice, and one more
/// each time.
const REPLIES_MAX: usize = 14;
const READS: usize = 400;
const NOW: Duration = Duration::ZERO;

/// A znode with a large reply.
async fn large(server: &TestServer) {
    let mut client = Client::new(server).await;
    client.create("/large", CreateMode::Persistent).await.expect("it is new");
    let data = Some(Bytes::from(vec![7; LARGE]));
    let set = SetDataRequest { path: "/large".into(), data, version: -1 };
    client.ok(&Request::SetData(set)).await;
    client.ok(&Request::CloseSession).await;
    server.clear_requests();
}

/// What a session begins with, and then reads.
fn reads(path: &str, number: usize) -> BytesMut {
    let mut out = BytesMut::new();
    encode_frame(&mut out, 1 << 20, |out| handshake(0, &[], 0).encode(out)).expect("it is short");
    for xid in 1..=number {
        out.extend_from_slice(&encode(i32::try_from(xid).expect("few"), &get_data(path, false)));
    }
    out
}

/// Reads the answers to the handshake and to so many reads.
async fn take_all(stream: &mut (impl AsyncRead + Unpin), number: usize) {
    let mut frame = vec![0; 2 * LARGE];
    for _ in 0..=number {
        let length = stream.read_u32().await.expect("there is another frame") as usize;
        let frame = frame.get_mut(..length).expect("it is no longer");
        stream.read_exact(frame).await.expect("it comes whole");
    }
}

async fn unread_replies_are_bounded(
    server: TestServer,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
) {
    stream.write_all(&reads("/large", READS)).await.expect("the server reads");
    // Others are served, and long enough for whatever this one will get.
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
        assert!(processed < 10_000, "it comes to rest");
    }
    take_all(&mut stream, READS).await;
    let reads = server.requests().iter().filter(|r| r.op == OpCode::GET_DATA).count();
    assert_eq!(reads, READS, "all of them were answered in the end");
}

#[tokio::test(start_paused = true)]
async fn replies_that_nobody_takes_from_a_pipe_stop_the_requests_of_that_connection() {
    let server = start();
    large(&server).await;
    let stream = server.connect().expect("it is open");
    unread_replies_are_bounded(server, stream).await;
}

#[tokio::test]
async fn replies_that_nobody_takes_from_a_socket_stop_the_requests_of_that_connection() {
    let server = start();
    large(&server).await;
    let address = server.listen("127.0.0.1:0").await.expect("a port is free");
    let stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
    let before = server.requests().len();
    assert_eq!(before, 0);
    // The system's buffers take some of them on top.
    unread_replies_are_bounded(server, stream).await;
}

/// The replies to what it writes are far more than the server keeps.
#[tokio::test(start_paused = true)]
async fn a_client_that_writes_much_before_it_reads_gets_through() {
    const MANY: usize = 200_000;
    let server = TestServer::start(ServerConfig::default().log_capacity(MANY));
    let mut stream = server.connect().expect("it is open");
    let bytes = reads("/", MANY);
    let written = timeout(Duration::from_secs(60), stream.write_all(&bytes)).await;
    written.expect("it is read although nobody takes the replies").expect("the pipe is whole");
    assert!(server.requests().len() < MANY, "the replies do not fit");
    take_all(&mut stream, MANY).await;
}

/// Beyond what is kept of its requests, a client has to read before it may write.
#[tokio::test(start_paused = true)]
async fn requests_behind_replies_that_nobody_takes_are_read_no_further_than_a_bound() {
    let server = start();
    large(&server).await;
    let mut stream = server.connect().expect("it is open");
    stream.write_all(&reads("/large", 0)).await.expect("the server reads");
    let request = encode(1, &get_data("/large", false));
    let requests = request.repeat((20 << 20) / request.len());
    let mut rest = &requests[..];
    let written = timeout(Duration::from_secs(1), stream.write_all_buf(&mut rest)).await;
    assert!(written.is_err(), "all {} bytes are kept", requests.len());
    let kept = requests.len() - rest.len();
    assert!((16 << 20..17 << 20).contains(&kept), "{kept} bytes");

    // Once it reads, it may write.
    let (mut reader, mut writer) = tokio::io::split(stream);
    let reading = take_all(&mut reader, 1_000);
    let writing = writer.write_all(&rest[..8 * 1024]);
    timeout(Duration::from_secs(1), async { tokio::join!(reading, writing) })
        .await
        .expect("the replies come")
        .1
        .expect("there is room again");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_goes_away_with_replies_untaken_leaves_nothing_behind() {
    let server = start();
    large(&server).await;
    let mut stream = server.connect().expect("it is open");
    stream.write_all(&reads("/large", READS)).await.expect("the server reads");
    sleep(Duration::from_millis(1)).await;
    drop(stream);
    sleep(Duration::from_secs(60)).await;
    assert!(server.sessions().is_empty(), "nobody keeps it alive");
    let answered = server.requests().len();
    assert!(answered <= REPLIES_MAX, "{answered}");
}

/// Delayed replies count, and requests go on when they have left.
#[tokio::test(start_paused = true)]
async fn delayed_replies_leave_and_the_requests_behind_them_go_on() {
    let server = start();
    large(&server).await;
    server.inject(Fault::new(At::op(OpCode::GET_DATA), Action::Delay(Duration::from_secs(3))));
    let mut stream = server.connect().expect("it is open");
    stream.write_all(&reads("/large", 20)).await.expect("the server reads");
    sleep(Duration::from_secs(1)).await;
    assert!(server.requests().len() < 20);
    take_all(&mut stream, 20).await;
}

/// The machine by itself: whoever drains it gets everything, in parts.
#[test]
fn a_driver_that_takes_everything_gets_everything() {
    let mut server = Server::new(ServerConfig::default());
    server.admin_create("/large", &vec![7; LARGE], None, NOW);
    let id = server.handle_connect(IpAddr::V4(Ipv4Addr::LOCALHOST), NOW).expect("it is open");
    server.handle_bytes(id, &reads("/large", READS), NOW);
    let first = server.requests().len();
    assert!(first < READS, "it waits for the output to be taken");
    let mut length = 0;
    while let Some(transmit) = server.poll_transmit(NOW) {
        assert!(transmit.bytes.len() < 8 << 20, "{} bytes at once", transmit.bytes.len());
        length += transmit.bytes.len();
    }
    assert_eq!(server.requests().len(), READS);
    assert!(length > READS * LARGE);
}

#[test]
fn what_is_not_writable_is_not_transmitted_until_it_is() {
    let mut server = Server::new(ServerConfig::default());
    let id = server.handle_connect(IpAddr::V4(Ipv4Addr::LOCALHOST), NOW).expect("it is open");
    server.handle_bytes(id, &reads("/", 1), NOW);
    server.set_writable(id, false, NOW);
    assert_eq!(server.poll_transmit(NOW), None);
    server.handle_bytes(id, &encode(2, &exists("/", false)), NOW);
    assert_eq!(server.requests().len(), 1, "the second one waits");
    server.set_writable(id, true, NOW);
    assert_eq!(server.requests().len(), 2);
    assert!(server.poll_transmit(NOW).is_some());
    // The end of a connection waits for nobody.
    server.set_writable(id, false, NOW);
    server.disconnect_all(NOW);
    assert!(server.poll_transmit(NOW).is_some_and(|transmit| transmit.is_last));
}

/// Requests wait for replies to be taken, and events come all the same.
#[tokio::test(start_paused = true)]
async fn a_connection_that_never_takes_its_events_is_closed() {
    let server = TestServer::start(ServerConfig::default());
    let path = format!("/{}", "x".repeat(200_000));
    let mut lazy = Client::new(&server).await;
    let mut writer = Client::new(&server).await;
    writer.create(&path, CreateMode::Persistent).await.expect("it is new");
    let mode = AddWatchMode::PERSISTENT_RECURSIVE;
    lazy.ok(&Request::AddWatch(AddWatchRequest { path: "/".into(), mode })).await;
    assert_eq!(server.watch_count(), 1);
    let mut sets = 0;
    while server.watch_count() > 0 {
        let set = SetDataRequest { path: path.as_str().into(), data: None, version: -1 };
        writer.ok(&Request::SetData(set)).await;
        sets += 1;
        assert!(sets < 1_000, "200 MB of events wait");
    }
    assert!(sets > 300, "after {sets} events");
    assert!(server.sessions().contains(&lazy.session), "the session may be resumed");
}
