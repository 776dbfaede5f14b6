//! Raw frames, without the client: the requests of a captured session with a real server are sent
//! again, and must get the same replies.
//!
//! Values that differ between runs (zxids, times, session ids) are masked. Everything else is
//! compared: whole replies where they were captured, and error codes everywhere.

use bytes::Bytes;
use jute_codec::{
    Acl, AddWatchMode, AddWatchRequest, CheckRequest, ConnectRequest, ConnectResponse, CreateMode,
    CreateRequest, DeleteRequest, ErrorCode, EventType, MultiOp, MultiResult, OpCode, ReadRequest,
    ReadResult, Reader, Record, ReplyHeader, Request, RequestHeader, Response, SessionId,
    SetAclRequest, SetDataRequest, Stat, Version, WatcherType, WatchesRequest, Zxid,
};
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use zk_session::Client;
use zk_tests::target::{Fixture, remove};
use zk_tests::wire::{self, Connection, frame, new_session};

/// The versions of servers whose replies were captured. If the reply of one version was not kept,
/// the reply of the next version is used.
const VERSIONS: [&str; 3] = ["@zk-3.8.0", "@zk-3.9.3", ""];

/// Captured frames by name.
struct Golden(Vec<Value>);

impl Golden {
    fn load() -> Self {
        let text = include_str!("../../../crates/jute-codec/tests/golden_frames.json");
        Self(serde_json::from_str(text).expect("the file of captured frames is JSON"))
    }

    fn find(&self, name: &str) -> Option<Bytes> {
        let entry = self.0.iter().find(|entry| entry["name"] == name)?;
        let hex = entry["hex"].as_str().expect("frames are hexadecimal");
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("two digits");
        Some((0..hex.len()).step_by(2).map(byte).collect())
    }

    fn request(&self, name: &str) -> Bytes {
        self.find(name).unwrap_or_else(|| panic!("no captured frame {name}"))
    }

    /// Returns the payload of a captured reply.
    fn reply(&self, name: &str) -> Option<Bytes> {
        let frame = VERSIONS.iter().find_map(|version| self.find(&format!("{name}{version}")))?;
        Some(frame.slice(4..))
    }
}

/// Opens a connection to the first server.
async fn connect(fixture: &Fixture) -> Connection {
    Connection::open(fixture.target.address().await).await
}

/// Masks values that differ between runs.
fn masked(response: Response) -> Response {
    let stat = |stat: Stat| Stat {
        czxid: Zxid(0),
        mzxid: Zxid(0),
        ctime: 0,
        mtime: 0,
        ephemeral_owner: SessionId(i64::from(stat.ephemeral_owner != SessionId::NONE)),
        pzxid: Zxid(0),
        ..stat
    };
    match response {
        Response::Create2(mut reply) => {
            reply.stat = stat(reply.stat);
            Response::Create2(reply)
        }
        Response::Exists(reply) => Response::Exists(stat(reply)),
        Response::SetAcl(reply) => Response::SetAcl(stat(reply)),
        Response::SetData(reply) => Response::SetData(stat(reply)),
        Response::GetAcl(mut reply) => {
            reply.stat = stat(reply.stat);
            Response::GetAcl(reply)
        }
        Response::GetChildren(names) => Response::GetChildren(names.sorted()),
        Response::GetChildren2(mut reply) => {
            reply.children = reply.children.sorted();
            reply.stat = stat(reply.stat);
            Response::GetChildren2(reply)
        }
        Response::GetData(mut reply) => {
            reply.stat = stat(reply.stat);
            Response::GetData(reply)
        }
        Response::Multi(results) => {
            let result = |result| match result {
                // Some servers return `Create2`, and others return `Create`.
                MultiResult::Create2 { path, .. } => MultiResult::Create { path },
                MultiResult::SetData(reply) => MultiResult::SetData(stat(reply)),
                other => other,
            };
            Response::Multi(results.into_iter().map(result).collect())
        }
        Response::MultiRead(results) => {
            let result = |result| match result {
                ReadResult::Data { data, stat: reply } => {
                    ReadResult::Data { data, stat: stat(reply) }
                }
                other => other,
            };
            Response::MultiRead(results.into_iter().map(result).collect())
        }
        Response::WhoAmI(mut identities) => {
            // The address depends on the network between client and server.
            identities.retain(|identity| identity.auth_scheme != "ip");
            Response::WhoAmI(identities)
        }
        other => other,
    }
}

/// How to send a request of the captured session: as the captured frame if it was kept, otherwise
/// as the same bytes, encoded again.
enum Send {
    Captured,
    Made(i32, Request),
}

struct Step {
    name: &'static str,
    send: Send,
    op: OpCode,
    code: ErrorCode,
    events: &'static [(EventType, &'static str)],
}

impl Step {
    fn captured(name: &'static str, op: OpCode, code: ErrorCode) -> Self {
        Self { name, send: Send::Captured, op, code, events: &[] }
    }

    fn made(name: &'static str, xid: i32, request: Request, code: ErrorCode) -> Self {
        let op = request.op();
        Self { name, send: Send::Made(xid, request), op, code, events: &[] }
    }

    fn events(self, events: &'static [(EventType, &'static str)]) -> Self {
        Self { events, ..self }
    }

    /// Sends the request, and compares the reply.
    async fn run(&self, connection: &mut Connection, golden: &Golden) -> ErrorCode {
        let name = self.name;
        let sent = match &self.send {
            Send::Captured => golden.request(&format!("{name}_request")),
            Send::Made(xid, request) => wire::request(*xid, request).freeze(),
        };
        connection.send(&sent).await;
        let (events, header, mut body) = connection.reply().await;
        let asked = RequestHeader::decode(&mut Reader::new(sent.slice(4..))).unwrap();
        assert_eq!((header.xid, header.err), (asked.xid, self.code), "{name}");
        let events: Vec<_> = events.iter().map(|(kind, path)| (*kind, path.as_str())).collect();
        // On a server with a zxid beyond 2^31, the relative zxid of the captured frame is outdated,
        // so the restored watches fire at once.
        if name != "setwatches" {
            assert_eq!(events, self.events, "{name}");
        }
        let response = header.err.is_ok().then(|| Response::decode(self.op, &mut body).unwrap());
        assert_eq!(body.remaining(), 0, "{name}");
        if let Some(captured) = golden.reply(&format!("{name}_reply")) {
            let mut body = Reader::new(captured);
            let then = ReplyHeader::decode(&mut body).unwrap();
            assert_eq!((header.xid, header.err), (then.xid, then.err), "{name}");
            let then = then.err.is_ok().then(|| Response::decode(self.op, &mut body).unwrap());
            assert_eq!(response.map(masked), then.map(masked), "{name}");
        }
        header.err
    }
}

fn create(path: &str, data: &'static [u8], acl: Vec<Acl>, mode: CreateMode) -> CreateRequest {
    let data = Some(Bytes::from_static(data));
    CreateRequest { path: path.into(), data, acl, mode, with_stat: false }
}

fn read(path: &str, watch: bool) -> ReadRequest {
    ReadRequest { path: path.into(), watch }
}

const OK: ErrorCode = ErrorCode::OK;
const PERSISTENT: CreateMode = CreateMode::Persistent;

fn first_half() -> Vec<Step> {
    let made = Step::made;
    let captured = Step::captured;
    let hello = create("/g", b"hello", Acl::open(), PERSISTENT);
    let container = create("/g/c", b"", Acl::open(), CreateMode::Container);
    let bad = create("/g/bad", b"", vec![], PERSISTENT);
    vec![
        captured("ping", OpCode::PING, OK),
        made("create_persistent", 1, Request::Create(hello), OK),
        captured("create_nodeexists", OpCode::CREATE, ErrorCode::NODE_EXISTS),
        captured("create2_ephemeral_sequential", OpCode::CREATE2, OK),
        made("create_container", 4, Request::Create(container), OK),
    ]
    .into_iter()
    .chain([
        captured(
            "create_nochildrenforephemerals",
            OpCode::CREATE,
            ErrorCode::NO_CHILDREN_FOR_EPHEMERALS,
        ),
        made("create_invalidacl", 7, Request::Create(bad), ErrorCode::INVALID_ACL),
        captured("exists", OpCode::EXISTS, OK),
        captured("exists_nonode_watch", OpCode::EXISTS, ErrorCode::NO_NODE),
        made("getdata_watch", 10, Request::GetData(read("/g", true)), OK),
        captured("getdata_null_data", OpCode::GET_DATA, OK),
        captured("setdata", OpCode::SET_DATA, OK).events(&[(EventType::NODE_DATA_CHANGED, "/g")]),
        captured("setdata_badversion", OpCode::SET_DATA, ErrorCode::BAD_VERSION),
        made("getacl", 14, Request::GetAcl("/g".into()), OK),
    ])
    .collect()
}

fn second_half() -> Vec<Step> {
    let made = Step::made;
    let captured = Step::captured;
    let set =
        SetDataRequest { path: "/g/m".into(), data: Some(Bytes::from("mm")), version: Version(0) };
    let create2 =
        CreateRequest { with_stat: true, ..create("/g/m2", b"", Acl::open(), PERSISTENT) };
    let multi = vec![
        MultiOp::Check(CheckRequest { path: "/g".into(), version: Version(1) }),
        MultiOp::Create(create("/g/m", b"m", Acl::open(), PERSISTENT)),
        MultiOp::Create(create2),
        MultiOp::SetData(set),
        MultiOp::Delete(DeleteRequest { path: "/g/m2".into(), version: Version::ANY }),
    ];
    let recursive = AddWatchMode::PERSISTENT_RECURSIVE;
    let add_watch = AddWatchRequest { path: "/g".into(), mode: recursive };
    let none = WatchesRequest { path: "/g".into(), kind: WatcherType::ANY };
    vec![
        captured("getchildren_watch", OpCode::GET_CHILDREN, OK),
        made("getchildren2", 17, Request::GetChildren2(read("/g", false)), OK),
        captured("delete", OpCode::DELETE, OK).events(&[(EventType::NODE_CHILDREN_CHANGED, "/g")]),
        captured("delete_notempty", OpCode::DELETE, ErrorCode::NOT_EMPTY),
        captured("sync", OpCode::SYNC, OK),
        made("multi_ok", 21, Request::Multi(multi), OK),
        captured("multi_failed", OpCode::MULTI, OK),
        captured("multiread", OpCode::MULTI_READ, OK),
        made("addwatch_persistent_recursive", 24, Request::AddWatch(add_watch), OK),
        captured("create_under_recursive_watch", OpCode::CREATE, OK)
            .events(&[(EventType::NODE_CREATED, "/g/w")]),
        captured("delete_under_recursive_watch", OpCode::DELETE, OK)
            .events(&[(EventType::NODE_DELETED, "/g/w")]),
        captured("checkwatches_any", OpCode::CHECK_WATCHES, OK),
        captured("removewatches_any", OpCode::REMOVE_WATCHES, OK),
        made("removewatches_none", 29, Request::RemoveWatches(none), ErrorCode::NO_WATCHER),
        captured("setwatches", OpCode::SET_WATCHES, OK),
        captured("setwatches2", OpCode::SET_WATCHES2, OK),
        made("getephemerals", 30, Request::GetEphemerals(None), OK),
        captured("getallchildrennumber", OpCode::GET_ALL_CHILDREN_NUMBER, OK),
        captured("auth_digest", OpCode::AUTH, OK),
        made("whoami", 32, Request::WhoAmI, OK),
        captured("reconfig_disabled", OpCode::RECONFIG, ErrorCode::RECONFIG_DISABLED),
    ]
}

/// Removes znodes of earlier runs. The captured session works directly below the root, so this is
/// the only test without a subtree of its own.
async fn clean(client: &Client) {
    for path in ["/g", "/nope"] {
        // The captured access control list allows clients with another address only to read.
        let _ = client.set_acl(path, Acl::open(), None).await;
        remove(client, path).await.unwrap();
    }
}

/// Sends the captured request, whose list grants everything to `127.0.0.1`. A client with another
/// address would lose its access, so it sends an open list instead.
async fn set_acl(connection: &mut Connection, golden: &Golden) {
    let (xid, request) = (15, Request::WhoAmI);
    let who = wire::request(xid, &request);
    connection.send(&who).await;
    let (_, _, mut body) = connection.reply().await;
    let Ok(Response::WhoAmI(identities)) = Response::decode(OpCode::WHO_AM_I, &mut body) else {
        panic!("no identities");
    };
    if identities.iter().any(|identity| identity.user == "127.0.0.1") {
        Step::captured("setacl", OpCode::SET_ACL, OK).run(connection, golden).await;
    } else {
        let request = SetAclRequest { path: "/g".into(), acl: Acl::open(), version: Version::ANY };
        let step = Step::made("setacl", xid, Request::SetAcl(request), OK);
        step.run(connection, golden).await;
    }
}

#[tokio::test]
async fn the_captured_session_is_answered_as_it_was_then() {
    let fixture = Fixture::start().await;
    clean(&fixture.observer).await;
    let golden = Golden::load();
    let mut connection = connect(&fixture).await;
    connection.send(&golden.request("connect_request_new")).await;
    let payload = connection.receive().await.expect("a session");
    let captured = golden.reply("connect_response_ok").unwrap();
    assert_eq!(payload.len(), captured.len());
    let response = ConnectResponse::decode(&mut Reader::new(payload)).unwrap();
    assert!(response.timeout_ms > 0 && response.session_id != SessionId::NONE);
    assert_eq!((response.password.len(), response.read_only), (16, Some(false)));

    let mut steps = first_half().into_iter();
    for step in steps.by_ref().take(5) {
        step.run(&mut connection, &golden).await;
    }
    create_ttl(&fixture, &mut connection, &golden).await;
    for step in steps {
        step.run(&mut connection, &golden).await;
    }
    set_acl(&mut connection, &golden).await;
    for step in second_half() {
        step.run(&mut connection, &golden).await;
    }
    connection.send(&golden.request("getdata_truncated_body_request")).await;
    let (_, header, body) = connection.reply().await;
    let undecodable = ErrorCode::MARSHALLING_ERROR;
    assert_eq!((header.xid, header.err, body.remaining()), (34, undecodable, 0));
    // The server first deletes the session's own ephemeral, and the session watches the parent.
    let close = Step::made("closesession", 35, Request::CloseSession, OK)
        .events(&[(EventType::NODE_CHILDREN_CHANGED, "/g")]);
    close.run(&mut connection, &golden).await;
    assert_eq!(connection.receive().await, None);
    clean(&fixture.observer).await;
}

/// Creates a znode with a time to live. If the server does not support this, an ordinary znode
/// replaces it in the rest of the session.
async fn create_ttl(fixture: &Fixture, connection: &mut Connection, golden: &Golden) {
    connection.send(&golden.request("create_ttl_request")).await;
    let (_, header, mut body) = connection.reply().await;
    if header.err == ErrorCode::UNIMPLEMENTED {
        assert!(fixture.target.is_external(), "the in-process server has it switched on");
        let instead = CreateRequest { data: None, ..create("/g/t", b"", Acl::open(), PERSISTENT) };
        let step = Step::made("instead", 5, Request::Create(instead), OK);
        step.run(connection, golden).await;
        return;
    }
    assert_eq!((header.xid, header.err), (5, OK));
    let Ok(Response::Create2(reply)) = Response::decode(OpCode::CREATE_TTL, &mut body) else {
        panic!("no stat");
    };
    assert_eq!((reply.path.as_ref(), reply.stat.ephemeral_owner), ("/g/t", SessionId::NONE));
}

#[tokio::test]
async fn an_unknown_opcode_is_refused_and_ends_the_connection() {
    let fixture = Fixture::start().await;
    let golden = Golden::load();
    let mut connection = connect(&fixture).await;
    connection.connect(&new_session(8000)).await.expect("a session");
    connection.send(&golden.request("unknown_opcode_request")).await;
    let (_, header, body) = connection.reply().await;
    assert_eq!((header.xid, header.zxid, header.err), (1, Zxid::NONE, ErrorCode::UNIMPLEMENTED));
    assert_eq!((body.remaining(), connection.receive().await), (0, None));
}

#[tokio::test]
async fn an_unknown_scheme_is_refused_and_ends_the_connection() {
    let fixture = Fixture::start().await;
    let golden = Golden::load();
    let mut connection = connect(&fixture).await;
    connection.connect(&new_session(8000)).await.expect("a session");
    connection.send(&golden.request("auth_unknown_scheme_request")).await;
    let payload = connection.receive().await.expect("a reply");
    assert_eq!(Some(payload), golden.reply("auth_failed_reply"));
    assert_eq!(connection.receive().await, None);
}

#[tokio::test]
async fn an_unknown_session_is_expired() {
    let fixture = Fixture::start().await;
    let golden = Golden::load();
    let mut connection = connect(&fixture).await;
    connection.send(&golden.request("connect_request_resume_unknown_session")).await;
    assert_eq!(connection.receive().await, golden.reply("connect_response_expired"));
    assert_eq!(connection.receive().await, None);
}

#[tokio::test]
async fn an_old_client_gets_the_answer_it_can_read() {
    let fixture = Fixture::start().await;
    let golden = Golden::load();
    let mut connection = connect(&fixture).await;
    let request = ConnectRequest { read_only: None, ..new_session(8000) };
    connection.send(&frame(|out| request.encode(out))).await;
    let payload = connection.receive().await.expect("a session");
    let captured = golden.reply("connect_response_without_readonly").unwrap();
    assert_eq!(payload.len(), captured.len());
}

#[tokio::test]
async fn a_session_moves_with_its_password_and_not_without() {
    let fixture = Fixture::start().await;
    let mut first = connect(&fixture).await;
    let session = first.connect(&new_session(8000)).await.expect("a session");
    let (session_id, password) = (session.session_id, session.password.clone());
    let resume = ConnectRequest { session_id, password, ..new_session(8000) };

    let mut second = connect(&fixture).await;
    let resumed = second.connect(&resume).await.expect("the same session");
    assert_eq!((resumed.session_id, &resumed.password), (session_id, &session.password));
    // The older connection is closed without another frame.
    assert_eq!(first.receive().await, None);

    let mut third = connect(&fixture).await;
    let password = Bytes::from_static(&[0x11; 16]);
    let refused = third.connect(&ConnectRequest { password, ..resume.clone() }).await;
    let refused = refused.expect("a reply");
    assert_eq!((refused.session_id, refused.timeout_ms), (SessionId::NONE, 0));
    assert_eq!(third.receive().await, None);

    let mut fourth = connect(&fixture).await;
    let resumed = fourth.connect(&resume).await.expect("the session lives on");
    assert_eq!(resumed.session_id, session_id);
}

#[tokio::test]
async fn a_client_that_has_seen_more_than_the_server_is_turned_away() {
    let fixture = Fixture::start().await;
    let mut connection = connect(&fixture).await;
    let ahead = ConnectRequest { last_zxid_seen: Zxid(i64::MAX), ..new_session(8000) };
    assert!(connection.connect(&ahead).await.is_none());
}

#[tokio::test]
async fn nonsense_ends_the_connection_without_an_answer() {
    let fixture = Fixture::start().await;
    for nonsense in [&[0; 4][..], &[0xff; 4], &[0, 0, 0, 3, 1, 2, 3], &[0x00, 0x10, 0x00, 0x00]] {
        let mut connection = connect(&fixture).await;
        connection.connect(&new_session(8000)).await.expect("a session");
        connection.send(nonsense).await;
        assert_eq!(connection.receive().await, None, "{nonsense:?}");
    }
}

#[tokio::test]
async fn requests_may_follow_the_handshake_at_once_and_are_answered_in_order() {
    let fixture = Fixture::start().await;
    let mut connection = connect(&fixture).await;
    let mut sent = frame(|out| new_session(8000).encode(out));
    for xid in [7, 3, 3, i32::MAX] {
        sent.unsplit(wire::request(xid, &Request::Sync("/".into())));
    }
    connection.send(&sent).await;
    connection.receive().await.expect("a session");
    for xid in [7, 3, 3, i32::MAX] {
        let (_, header, mut body) = connection.reply().await;
        assert_eq!((header.xid, header.err), (xid, OK));
        let echo = Response::decode(OpCode::SYNC, &mut body).unwrap();
        assert_eq!(echo, Response::Sync("/".into()));
    }
}

/// A real server replies to one of these in about one round of twenty, if the write arrives before
/// the end of the session is complete. Otherwise the connection ends first.
#[tokio::test]
async fn a_write_behind_the_end_of_its_session_is_refused_or_not_answered() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    for round in 0..20 {
        let mut connection = connect(&fixture).await;
        connection.connect(&new_session(8000)).await.expect("a session");
        let mut sent = wire::request(1, &Request::CloseSession);
        for xid in 2..40 {
            let path = fixture.full(&format!("/{round}-{xid}"));
            let request = create(&path, b"", Acl::open(), PERSISTENT);
            sent.unsplit(wire::request(xid, &Request::Create(request)));
        }
        connection.send(&sent).await;
        let (_, header, _) = connection.reply().await;
        assert_eq!((header.xid, header.err), (1, OK));
        for xid in 2.. {
            let Some(payload) = connection.receive().await else { break };
            let header = ReplyHeader::decode(&mut Reader::new(payload)).unwrap();
            assert_eq!((header.xid, header.err), (xid, ErrorCode::SESSION_EXPIRED));
        }
    }
    client.sync("/").await.unwrap();
    assert_eq!(client.get_children("/").await, Ok(vec![]));
}

/// The write barrier of the locks relies on this: even a multi that fails advances the zxid in
/// replies.
#[tokio::test]
async fn a_multi_of_a_check_moves_the_zxid_and_reads_do_not() {
    let fixture = Fixture::start().await;
    let mut connection = connect(&fixture).await;
    connection.connect(&new_session(8000)).await.expect("a session");
    let check = |path: &str| {
        Request::Multi(vec![MultiOp::Check(CheckRequest {
            path: path.into(),
            version: Version::ANY,
        })])
    };
    let mut zxids = Vec::new();
    let requests = [
        Request::Sync("/".into()),
        check("/"),
        Request::Exists(read("/", false)),
        check("/no-such-znode"),
        Request::Exists(read("/", false)),
    ];
    for (xid, request) in (1..).zip(requests) {
        connection.send(&wire::request(xid, &request)).await;
        let (_, header, _) = connection.reply().await;
        assert_eq!((header.xid, header.err), (xid, OK));
        zxids.push(header.zxid);
    }
    let [before, held, between, failed, after] = zxids[..] else { panic!("{zxids:?}") };
    assert!(before < held && held <= between && between < failed && failed <= after, "{zxids:?}");
    if !fixture.target.is_external() {
        assert_eq!([held, between, failed, after], [1, 1, 2, 2].map(|more| Zxid(before.0 + more)));
    }
}

#[tokio::test]
async fn four_letters_are_answered_as_text() {
    let fixture = Fixture::start().await;
    let golden = Golden::load();
    let mut connection = connect(&fixture).await;
    connection.send(&golden.request("4lw_ruok_request")).await;
    let mut text = String::new();
    connection.stream.read_to_string(&mut text).await.unwrap();
    let allowed = golden.request("4lw_ruok_reply");
    let refused = "ruok is not executed because it is not in the whitelist.";
    let is_refused = fixture.target.is_external() && text.trim() == refused;
    assert!(text.as_bytes() == allowed || is_refused, "{text:?}");
}
