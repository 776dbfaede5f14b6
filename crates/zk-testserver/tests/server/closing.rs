//! Requests that close the connection, and four-letter words.

use std::time::Duration;

use jute_codec::{
    AuthPacket, CreateMode, ErrorCode, OpCode, Request, Response, SaslToken, SessionId, Version,
    Zxid,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use zk_testserver::{ServerConfig, ServerVersion, TestServer};

use crate::client::*;

#[tokio::test(start_paused = true)]
async fn impossible_lengths_close_the_connection() {
    for length in [0, -1, i32::MIN, 1_048_576] {
        let server = start();
        let mut client = Client::new(&server).await;
        client.write(&i32::to_be_bytes(length)).await;
        client.assert_eof().await;
        assert_eq!(server.sessions().len(), 1, "the session continues");
        let mut client = Client::raw(&server);
        client.write(&i32::to_be_bytes(length)).await;
        client.assert_eof().await;
    }
}

#[tokio::test(start_paused = true)]
async fn longest_frame_is_accepted() {
    let server = start();
    let mut client = Client::new(&server).await;
    let length = 1_048_575 - 8 - 4 - 1 - 4 - 4;
    let data = Some(vec![7; length].into());
    let request = jute_codec::SetDataRequest { path: "/".into(), data, version: Version::ANY };
    client.ok(&Request::SetData(request)).await;
    let Response::GetData(reply) = client.ok(&get_data("/", false)).await else { panic!() };
    assert_eq!(reply.data.map(|data| data.len()), Some(length));
}

#[tokio::test(start_paused = true)]
async fn half_a_header_closes_the_connection() {
    let server = start();
    let mut client = Client::new(&server).await;
    client.write(&[0, 0, 0, 4, 0, 0, 0, 1]).await;
    client.assert_eof().await;
}

#[tokio::test(start_paused = true)]
async fn malformed_body_gets_a_reply_and_the_connection_stays_open() {
    for (version, op, zxid) in [
        (ServerVersion::V3_8, OpCode::GET_DATA, 1),
        (ServerVersion::V3_8, OpCode::CREATE, 2),
        (ServerVersion::V3_8, OpCode::RECONFIG, 1),
        (ServerVersion::V3_8, OpCode::CREATE_SESSION, 2),
        (ServerVersion::V3_9, OpCode::CREATE, 1),
        (ServerVersion::V3_9, OpCode::MULTI, 2),
        (ServerVersion::V3_9, OpCode::CREATE_SESSION, 1),
    ] {
        let server = TestServer::start(ServerConfig::default().version(version));
        let mut client = Client::new(&server).await;
        client.send_raw(9, op.0, &[0, 0, 0, 5, b'/']).await;
        let Got::Reply(header, None) = client.next(op).await else { panic!("{op:?}") };
        let expected = (9, ErrorCode::MARSHALLING_ERROR, Zxid(zxid));
        assert_eq!((header.xid, header.err, header.zxid), expected, "{version:?} {op:?}");
        client.ok(&Request::Ping).await;
    }
}

#[tokio::test(start_paused = true)]
async fn malformed_credentials_close_the_connection_without_a_reply() {
    for op in [OpCode::AUTH, OpCode::SASL] {
        let server = start();
        let mut client = Client::new(&server).await;
        client.send_raw(-4, op.0, &[0, 0]).await;
        client.assert_eof().await;
        Client::resume(&server, &client).await;
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_server_deletes_containers() {
    let server = start();
    let mut client = Client::new(&server).await;
    client.ok(&create("/a", CreateMode::Container)).await;
    client.send_raw(9, OpCode::DELETE_CONTAINER.0, &[0, 0, 0, 2, b'/', b'a']).await;
    let Got::Reply(header, None) = client.next(OpCode::DELETE_CONTAINER).await else { panic!() };
    assert_eq!((header.err, header.zxid), (ErrorCode::BAD_ARGUMENTS, Zxid(3)));
    client.ok(&exists("/a", false)).await;
}

#[tokio::test(start_paused = true)]
async fn unknown_opcode_gets_a_reply_and_closes_the_connection() {
    for op in [0, 10, 99, -1] {
        let server = start();
        let mut client = Client::new(&server).await;
        client.send_raw(9, op, &[]).await;
        let Got::Reply(header, None) = client.next(OpCode(-99)).await else { panic!() };
        assert_eq!(
            (header.xid, header.err, header.zxid),
            (9, ErrorCode::UNIMPLEMENTED, Zxid::NONE)
        );
        client.assert_eof().await;
        Client::resume(&server, &client).await;
    }
}

#[tokio::test(start_paused = true)]
async fn check_outside_of_a_multi_gets_a_reply_if_it_fails() {
    let body = |version: i32| [&[0, 0, 0, 1, b'/'][..], &version.to_be_bytes()].concat();
    let server = start();
    let mut client = Client::new(&server).await;
    client.send_raw(1, OpCode::CHECK.0, &body(0)).await;
    client.send_raw(2, OpCode::CHECK.0, &body(9)).await;
    let Got::Reply(header, None) = client.next(OpCode::CHECK).await else { panic!() };
    assert_eq!((header.xid, header.err), (2, ErrorCode::BAD_VERSION));
    let server = TestServer::start(ServerConfig::default().version(ServerVersion::V3_9));
    let mut client = Client::new(&server).await;
    client.send_raw(1, OpCode::CHECK.0, &body(0)).await;
    let Got::Reply(header, None) = client.next(OpCode::CHECK).await else { panic!() };
    assert_eq!(header.err, ErrorCode::UNIMPLEMENTED);
    client.assert_eof().await;
}

#[tokio::test(start_paused = true)]
async fn refused_credentials_close_the_connection() {
    for (scheme, auth) in [("digest", None), ("world", Some("anyone")), ("nosuch", Some("x"))] {
        let server = start();
        let mut client = Client::new(&server).await;
        let packet = AuthPacket { scheme: scheme.into(), auth: auth.map(Into::into) };
        client.send_as(-4, &Request::Auth(packet)).await;
        let Got::Reply(header, None) = client.next(OpCode::AUTH).await else { panic!() };
        assert_eq!((header.xid, header.zxid, header.err), (-4, Zxid(0), ErrorCode::AUTH_FAILED));
        client.assert_eof().await;
    }
}

#[tokio::test(start_paused = true)]
async fn sasl_without_configuration_replies_with_null() {
    let server = start();
    let mut client = Client::new(&server).await;
    let (header, result) = client.call_full(&Request::Sasl(SaslToken(Some("".into())))).await;
    assert_eq!((header.zxid, result), (Zxid(0), Ok(Response::Sasl(SaslToken(None)))));
    client.send(&Request::Sasl(SaslToken(None))).await;
    client.assert_eof().await;
}

#[tokio::test(start_paused = true)]
async fn connections_without_a_handshake_are_closed() {
    let server = start();
    let mut client = Client::raw(&server);
    sleep(Duration::from_millis(19_999)).await;
    client.write(&[0]).await;
    client.assert_eof().await;
}

#[tokio::test]
async fn four_letter_words_get_replies_on_tcp() {
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
        // The connection of the command counts, too.
        assert!(text.contains("\nConnections: 1\nOutstanding: 0\nZxid: 0x0\n"), "{text}");
        assert!(text.contains("\nMode: standalone\nNode count: 5\n"), "{text}");
    }
    let text = ask(address, "mntr").await;
    for line in ["watch_count\t0", "num_alive_connections\t1", "approximate_data_size\t44"] {
        assert!(text.contains(&format!("\nzk_{line}\n")), "{text}");
    }
    let newer = TestServer::start(ServerConfig::default().version(ServerVersion::V3_9));
    let address = newer.listen("127.0.0.1:0").await.unwrap();
    let text = ask(address, "envi").await;
    assert!(text.contains("\nzookeeper.version=3.9.3-"), "{text}");
}

async fn ask(address: std::net::SocketAddr, word: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("the server listens");
    stream.write_all(word.as_bytes()).await.expect("the socket is open");
    let mut reply = String::new();
    stream
        .read_to_string(&mut reply)
        .await
        .expect("the server sends text and closes the connection");
    reply
}

#[tokio::test]
async fn tcp_clients_share_the_tree_and_are_refused_alike() {
    let server = start();
    let address = server.listen("127.0.0.1:0").await.unwrap();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut bytes = bytes::BytesMut::new();
    jute_codec::encode_frame(&mut bytes, 100, |out| {
        jute_codec::Record::encode(&handshake(SessionId::NONE, &[0; 16], Zxid(0)), out);
    })
    .unwrap();
    bytes.extend_from_slice(&encode(1, &create("/tcp", CreateMode::Persistent)));
    bytes.extend_from_slice(&encode(2, &Request::CloseSession));
    stream.write_all(&bytes).await.unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await.unwrap();
    assert_eq!(reply.len(), 41 + 4 + 16 + 8 + 20);
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
    panic!("the server still listens");
}
