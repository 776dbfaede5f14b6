//! What ends a connection, and four-letter words.

use std::time::Duration;

use jute_codec::{AuthPacket, CreateMode, ErrorCode, OpCode, Request, Response, SaslToken};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use zk_testserver::{ServerConfig, TestServer, Version};

use crate::client::*;

#[tokio::test(start_paused = true)]
async fn impossible_lengths_end_the_connection() {
    for length in [0, -1, i32::MIN, 1_048_576] {
        let server = start();
        let mut client = Client::new(&server).await;
        client.write(&i32::to_be_bytes(length)).await;
        client.assert_eof().await;
        assert_eq!(server.sessions().len(), 1, "the session goes on");
        let mut client = Client::raw(&server);
        client.write(&i32::to_be_bytes(length)).await;
        client.assert_eof().await;
    }
}

#[tokio::test(start_paused = true)]
async fn longest_frame_is_taken() {
    let server = start();
    let mut client = Client::new(&server).await;
    let length = 1_048_575 - 8 - 4 - 1 - 4 - 4;
    let data = Some(vec![7; length].into());
    let request = jute_codec::SetDataRequest { path: "/".into(), data, version: -1 };
    client.ok(&Request::SetData(request)).await;
    let Response::GetData(reply) = client.ok(&get_data("/", false)).await else { panic!() };
    assert_eq!(reply.data.map(|data| data.len()), Some(length));
}

#[tokio::test(start_paused = true)]
async fn half_a_header_ends_the_connection() {
    let server = start();
    let mut client = Client::new(&server).await;
    client.write(&[0, 0, 0, 4, 0, 0, 0, 1]).await;
    client.assert_eof().await;
}

#[tokio::test(start_paused = true)]
async fn garbled_body_is_answered_and_the_connection_stays() {
    for (version, op, zxid) in [
        (Version::V3_8, OpCode::GET_DATA, 1),
        (Version::V3_8, OpCode::CREATE, 2),
        (Version::V3_8, OpCode::RECONFIG, 1),
        (Version::V3_8, OpCode::CREATE_SESSION, 2),
        (Version::V3_9, OpCode::CREATE, 1),
        (Version::V3_9, OpCode::MULTI, 2),
        (Version::V3_9, OpCode::CREATE_SESSION, 1),
    ] {
        let server = TestServer::start(ServerConfig::default().version(version));
        let mut client = Client::new(&server).await;
        client.send_raw(9, op.0, &[0, 0, 0, 5, b'/']).await;
        let Got::Reply(header, None) = client.next(op).await else { panic!("{op:?}") };
        let expected = (9, ErrorCode::MARSHALLING_ERROR, zxid);
        assert_eq!((header.xid, header.err, header.zxid), expected, "{version:?} {op:?}");
        client.ok(&Request::Ping).await;
    }
}

#[tokio::test(start_paused = true)]
async fn garbled_credentials_end_the_connection_without_an_answer() {
    for op in [OpCode::AUTH, OpCode::SASL] {
        let server = start();
        let mut client = Client::new(&server).await;
        client.send_raw(-4, op.0, &[0, 0]).await;
        client.assert_eof().await;
        Client::resume(&server, &client).await;
    }
}

#[tokio::test(start_paused = true)]
async fn containers_are_deleted_by_the_server_only() {
    let server = start();
    let mut client = Client::new(&server).await;
    client.ok(&create("/a", CreateMode::Container)).await;
    client.send_raw(9, OpCode::DELETE_CONTAINER.0, &[0, 0, 0, 2, b'/', b'a']).await;
    let Got::Reply(header, None) = client.next(OpCode::DELETE_CONTAINER).await else { panic!() };
    assert_eq!((header.err, header.zxid), (ErrorCode::BAD_ARGUMENTS, 3));
    client.ok(&exists("/a", false)).await;
}

#[tokio::test(start_paused = true)]
async fn unknown_opcode_is_answered_and_ends_the_connection() {
    for op in [0, 10, 99, -1] {
        let server = start();
        let mut client = Client::new(&server).await;
        client.send_raw(9, op, &[]).await;
        let Got::Reply(header, None) = client.next(OpCode(-99)).await else { panic!() };
        assert_eq!((header.xid, header.err, header.zxid), (9, ErrorCode::UNIMPLEMENTED, -1));
        client.assert_eof().await;
        Client::resume(&server, &client).await;
    }
}

#[tokio::test(start_paused = true)]
async fn bare_check_is_answered_if_it_fails() {
    let body = |version: i32| [&[0, 0, 0, 1, b'/'][..], &version.to_be_bytes()].concat();
    let server = start();
    let mut client = Client::new(&server).await;
    client.send_raw(1, OpCode::CHECK.0, &body(0)).await;
    client.send_raw(2, OpCode::CHECK.0, &body(9)).await;
    let Got::Reply(header, None) = client.next(OpCode::CHECK).await else { panic!() };
    assert_eq!((header.xid, header.err), (2, ErrorCode::BAD_VERSION));
    let server = TestServer::start(ServerConfig::default().version(Version::V3_9));
    let mut client = Client::new(&server).await;
    client.send_raw(1, OpCode::CHECK.0, &body(0)).await;
    let Got::Reply(header, None) = client.next(OpCode::CHECK).await else { panic!() };
    assert_eq!(header.err, ErrorCode::UNIMPLEMENTED);
    client.assert_eof().await;
}

#[tokio::test(start_paused = true)]
async fn refused_credentials_end_the_connection() {
    for (scheme, auth) in [("digest", None), ("world", Some("anyone")), ("nosuch", Some("x"))] {
        let server = start();
        let mut client = Client::new(&server).await;
        let packet = AuthPacket { scheme: scheme.into(), auth: auth.map(Into::into) };
        client.send_as(-4, &Request::Auth(packet)).await;
        let Got::Reply(header, None) = client.next(OpCode::AUTH).await else { panic!() };
        assert_eq!((header.xid, header.zxid, header.err), (-4, 0, ErrorCode::AUTH_FAILED));
        client.assert_eof().await;
    }
}

#[tokio::test(start_paused = true)]
async fn sasl_without_configuration_answers_null() {
    let server = start();
    let mut client = Client::new(&server).await;
    let (header, result) = client.call_full(&Request::Sasl(SaslToken(Some("".into())))).await;
    assert_eq!((header.zxid, result), (0, Ok(Response::Sasl(SaslToken(None)))));
    client.send(&Request::Sasl(SaslToken(None))).await;
    client.assert_eof().await;
}

#[tokio::test(start_paused = true)]
async fn silent_connections_are_given_up() {
    let server = start();
    let mut client = Client::raw(&server);
    sleep(Duration::from_millis(19_999)).await;
    client.write(&[0]).await;
    client.assert_eof().await;
}

#[tokio::test]
async fn words_are_answered_on_tcp() {
    let server = start();
    let address = server.listen("127.0.0.1:0").await.unwrap();
    for (word, expected) in [
        ("ruok", "imok"),
        ("isro\n", "rw"),
        ("conf", "conf is not executed because it is not in the whitelist.\n"),
        ("oops", ""),
    ] {
        assert_eq!(ask(address, word).await, expected, "{word}");
    }
    for word in ["srvr", "stat"] {
        let text = ask(address, word).await;
        assert!(text.starts_with("Zookeeper version: 3.8.0-"), "{text}");
        // The one that asks is a connection, too.
        assert!(text.contains("\nConnections: 1\nOutstanding: 0\nZxid: 0x0\n"), "{text}");
        assert!(text.contains("\nMode: standalone\nNode count: 5\n"), "{text}");
    }
    let text = ask(address, "mntr").await;
    for line in ["watch_count\t0", "num_alive_connections\t1", "approximate_data_size\t44"] {
        assert!(text.contains(&format!("\nzk_{line}\n")), "{text}");
    }
    let newer = TestServer::start(ServerConfig::default().version(Version::V3_9));
    let address = newer.listen("127.0.0.1:0").await.unwrap();
    let text = ask(address, "envi").await;
    assert!(text.contains("\nzookeeper.version=3.9.3-"), "{text}");
}

async fn ask(address: std::net::SocketAddr, word: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
    stream.write_all(word.as_bytes()).await.expect("the socket takes bytes");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("text, then the end");
    answer
}

#[tokio::test]
async fn tcp_clients_share_the_tree_and_are_refused_alike() {
    let server = start();
    let address = server.listen("127.0.0.1:0").await.unwrap();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut bytes = bytes::BytesMut::new();
    jute_codec::encode_frame(&mut bytes, 100, |out| {
        jute_codec::Record::encode(&handshake(0, &[0; 16], 0), out);
    })
    .unwrap();
    bytes.extend_from_slice(&encode(1, &create("/tcp", CreateMode::Persistent)));
    bytes.extend_from_slice(&encode(2, &Request::CloseSession));
    stream.write_all(&bytes).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer.len(), 41 + 4 + 16 + 8 + 20);
    assert_eq!(server.children("/").unwrap(), ["tcp", "zookeeper"]);
    server.refuse_for(Duration::from_secs(3600));
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn server_stops_with_its_last_handle() {
    let server = start();
    let address = server.listen("127.0.0.1:0").await.unwrap();
    drop(server);
    for _ in 0..100 {
        tokio::task::yield_now().await;
        if tokio::net::TcpStream::connect(address).await.is_err() {
            return;
        }
    }
    panic!("it still listens");
}
