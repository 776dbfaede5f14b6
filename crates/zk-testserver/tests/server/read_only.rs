//! Partitioned servers, which serve only reads.

use std::time::Duration;

use jute_codec::{
    AddWatchMode, AddWatchRequest, ConnectRequest, CreateMode, ErrorCode, EventType, MultiOp,
    OpCode, Reader, Record as _, ReplyHeader, Request, SessionId, Zxid,
};
use tokio::io::AsyncReadExt as _;
use zk_testserver::{ServerConfig, ServerVersion, TestServer};

use crate::client::*;

fn ensemble(members: usize) -> TestServer {
    TestServer::start(ServerConfig::default().members(members))
}

fn read_only(session: SessionId, password: &[u8], zxid: Zxid) -> ConnectRequest {
    ConnectRequest { read_only: Some(true), ..handshake(session, password, zxid) }
}

/// Starts a session on a partitioned server.
async fn new_reader(server: &TestServer) -> Client {
    let mut client = Client::raw(server);
    let request = read_only(SessionId::NONE, &[0; 16], Zxid(0));
    let response = client.connect(request).await.expect("the server serves reads");
    assert_eq!(response.read_only, Some(true));
    assert_ne!(response.session_id, SessionId::NONE);
    client
}

async fn word(server: &TestServer, word: &[u8]) -> String {
    let mut client = Client::raw(server);
    client.write(word).await;
    String::from_utf8(client.rest().await.to_vec()).expect("text")
}

#[tokio::test(start_paused = true)]
async fn a_partitioned_server_serves_reads_and_refuses_writes() {
    let server = start();
    let mut writer = Client::new(&server).await;
    writer.create("/a", CreateMode::Persistent).await.unwrap();
    let zxid = server.zxid();
    server.partition();
    assert!(server.is_partitioned());
    writer.assert_eof().await;

    let mut client = new_reader(&server).await;
    assert_eq!(server.zxid(), zxid, "a session that only this server knows takes no zxid");
    client.ok(&get_data("/a", true)).await;
    client.ok(&get_children("/", false)).await;
    client.ok(&Request::Ping).await;
    let add = AddWatchRequest { path: "/a".into(), mode: AddWatchMode::PERSISTENT_RECURSIVE };
    client.ok(&Request::AddWatch(add)).await;
    let multi = Request::Multi(vec![MultiOp::Create(create_request("/m", CreateMode::Persistent))]);
    for request in [
        create("/b", CreateMode::Persistent),
        create("/e", CreateMode::Ephemeral),
        delete("/a", -1),
        set_data("/a", -1),
        sync("/a"),
        multi,
    ] {
        let (header, result) = client.call_full(&request).await;
        assert_eq!(result, Err(ErrorCode::NOT_READ_ONLY), "{request:?}");
        assert_eq!(header.zxid, zxid);
    }
    client.send_raw(90, OpCode::CHECK.0, b"\0\0\0\x02/a\xff\xff\xff\xff").await;
    let Got::Reply(header, None) = client.next(OpCode::CHECK).await else { panic!("a reply") };
    assert_eq!(header.err, ErrorCode::NOT_READ_ONLY);
    assert_eq!(server.zxid(), zxid);
    assert_eq!(server.children("/"), Some(vec!["a".to_owned(), "zookeeper".to_owned()]));
    client.ok(&Request::CloseSession).await;
    client.assert_eof().await;
    assert_eq!(server.read_only_sessions(), []);
}

#[tokio::test(start_paused = true)]
async fn only_clients_that_ask_for_it_get_a_read_only_session() {
    let server = start();
    server.partition();
    for is_read_only in [Some(false), None] {
        let request = ConnectRequest {
            read_only: is_read_only,
            ..handshake(SessionId::NONE, &[0; 16], Zxid(0))
        };
        assert_eq!(Client::raw(&server).connect(request).await, None, "{is_read_only:?}");
    }
    let ahead = read_only(SessionId::NONE, &[0; 16], Zxid(1));
    assert_eq!(Client::raw(&server).connect(ahead).await, None, "the client has seen more");
    new_reader(&server).await;
    server.heal();
    let mut client = Client::raw(&server);
    let request = read_only(SessionId::NONE, &[0; 16], Zxid(0));
    let response = client.connect(request).await.expect("the server is back");
    assert_eq!(response.read_only, Some(false));
}

#[tokio::test(start_paused = true)]
async fn a_session_of_the_ensemble_is_resumed_only_before_version_3_7() {
    for (version, is_resumed) in
        [(ServerVersion::V3_6, true), (ServerVersion::V3_7, false), (ServerVersion::V3_8, false)]
    {
        let server = TestServer::start(ServerConfig::default().version(version));
        let mut first = Client::new(&server).await;
        first.create("/mine", CreateMode::Ephemeral).await.unwrap();
        server.partition();
        let mut second = Client::raw(&server);
        let request = read_only(first.session, &first.password, first.zxid);
        let response = second.connect(request).await;
        let resumed = response.map(|response| (response.session_id, response.read_only));
        assert_eq!(resumed, is_resumed.then_some((first.session, Some(true))), "{version:?}");
        if is_resumed {
            second.ok(&get_data("/mine", false)).await;
            assert_eq!(second.code(&Request::CloseSession).await, ErrorCode::NOT_READ_ONLY);
            let request = read_only(first.session, &[1; 16], Zxid(0));
            let response = Client::raw(&server).connect(request).await.expect("a reply");
            assert_eq!(response.session_id, SessionId::NONE, "the password is wrong");
        }
        server.heal();
        let mut third = Client::resume(&server, &first).await;
        third.ok(&set_data("/mine", -1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_local_sessions_a_new_session_gets_a_header_instead_of_a_response() {
    let server = TestServer::start(ServerConfig::default().local_sessions(false));
    server.admin_create("/a", b"", None);
    server.partition();
    let mut client = Client::raw(&server);
    let mut out = bytes::BytesMut::new();
    let request = read_only(SessionId::NONE, &[0; 16], Zxid(0));
    jute_codec::encode_frame(&mut out, 1 << 10, |out| request.encode(out)).expect("well-formed");
    client.write(&out).await;
    let mut reader = Reader::new(client.frame().await.expect("a frame"));
    let header = ReplyHeader::decode(&mut reader).expect("a header");
    let err = ErrorCode::NOT_READ_ONLY;
    assert_eq!(header, ReplyHeader { xid: 0, zxid: server.zxid(), err });
    assert_eq!((reader.remaining(), server.read_only_sessions()), (0, Vec::new()));
    client.send(&Request::Ping).await;
    server.heal();
    client.assert_eof().await;
}

#[tokio::test(start_paused = true)]
async fn a_read_only_session_ends_with_its_timeout_or_with_the_partition() {
    let server = start();
    server.partition();
    let mut idle = new_reader(&server).await;
    let mut busy = new_reader(&server).await;
    assert_ne!(idle.session, busy.session);
    for _ in 0..15 {
        sleep(Duration::from_secs(1)).await;
        busy.ok(&Request::Ping).await;
    }
    idle.assert_eof().await;
    assert_eq!(server.read_only_sessions(), [busy.session]);
    let resumed = read_only(busy.session, &busy.password, Zxid(0));
    let mut again = Client::raw(&server);
    assert_eq!(again.connect(resumed.clone()).await.unwrap().session_id, busy.session);
    busy.assert_eof().await;
    server.heal();
    again.assert_eof().await;
    let response = Client::raw(&server).connect(resumed).await.expect("a reply");
    assert_eq!(response.session_id, SessionId::NONE, "no other server knows the session");
}

#[tokio::test(start_paused = true)]
async fn sessions_survive_while_there_is_no_leader_and_expire_while_there_is_one() {
    for (members, survives) in [(1, true), (3, false)] {
        let server = ensemble(members);
        let mut client = Client::new(&server).await;
        client.create("/mine", CreateMode::Ephemeral).await.unwrap();
        server.partition();
        let mut reader = new_reader(&server).await;
        reader.ok(&exists("/mine", true)).await;
        for _ in 0..60 {
            sleep(Duration::from_secs(1)).await;
            reader.ok(&Request::Ping).await;
        }
        reader.ok(&exists("/mine", false)).await;
        assert_eq!(server.stat("/mine").is_some(), survives, "{members} members");
        server.heal();
        reader.assert_eof().await;
        assert_eq!(server.sessions().contains(&client.session), survives);
        // The full timeout begins again.
        sleep(Duration::from_secs(9)).await;
        assert_eq!(server.sessions().contains(&client.session), survives);
        sleep(Duration::from_secs(4)).await;
        assert_eq!(server.sessions(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_moves_to_a_member_that_is_not_partitioned() {
    let server = ensemble(3);
    let mut client = Client::new(&server.member(1)).await;
    client.create("/mine", CreateMode::Ephemeral).await.unwrap();
    server.member(1).partition();
    client.assert_eof().await;
    let mut reader = new_reader(&server.member(1)).await;
    let mut moved = Client::resume(&server.member(2), &client).await;
    assert_eq!(reader.code(&exists("/new", true)).await, ErrorCode::NO_NODE);
    moved.create("/new", CreateMode::Persistent).await.unwrap();
    assert_eq!(reader.code(&exists("/new", true)).await, ErrorCode::NO_NODE, "the past");
    server.member(1).heal();
    reader.assert_eof().await;
    let mut back = Client::resume(&server.member(1), &moved).await;
    back.ok(&get_data("/new", true)).await;
    moved.assert_eof().await;
    back.ok(&set_data("/mine", -1)).await;
    back.send(&set_data("/new", -1)).await;
    assert_eq!(back.event().await, (EventType::NODE_DATA_CHANGED, "/new".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn words_report_the_mode() {
    let server = ensemble(2);
    let modes = async |server: &TestServer| {
        let srvr = word(server, b"srvr").await;
        let line = srvr.lines().find_map(|line| line.strip_prefix("Mode: ").map(str::to_owned));
        (word(server, b"isro").await, line.expect("a line"))
    };
    let expect = |isro: &str, mode: &str| (isro.to_owned(), mode.to_owned());
    assert_eq!(modes(&server).await, expect("rw", "leader"));
    assert_eq!(modes(&server.member(1)).await, expect("rw", "follower"));
    server.member(1).partition();
    assert_eq!(modes(&server).await, expect("rw", "leader"));
    assert_eq!(modes(&server.member(1)).await, expect("ro", "read-only"));
    server.member(1).heal();
    assert_eq!(modes(&server.member(1)).await, expect("rw", "follower"));
    assert_eq!(modes(&start()).await, expect("rw", "standalone"));
}

#[tokio::test(start_paused = true)]
async fn an_in_memory_connector_chooses_the_member_by_host() {
    let server = ensemble(2);
    server.member(1).partition();
    let connect = server.connector_by(|host: usize| host);
    for (member, expected) in [(0, "rw"), (1, "ro")] {
        let mut stream = connect(member).await.expect("the member accepts connections");
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"isro").await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        assert_eq!(reply, expected);
    }
    let refused = connect(2).await.map(|_| ()).expect_err("there are two members");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}
