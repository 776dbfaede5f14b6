//! Multi and multiRead.

use jute_codec::{
    CheckRequest, CreateMode, CreateRequest, DeleteRequest, ErrorCode, EventType, MultiOp,
    MultiResult, OpCode, ReadOp, ReadResult, Request, Response, SetDataRequest, Version, Zxid,
};
use zk_testserver::{ServerConfig, ServerVersion, TestServer};

use crate::client::*;

fn create_op(path: &str, mode: CreateMode) -> MultiOp {
    MultiOp::Create(create_request(path, mode))
}

fn delete_op(path: &str) -> MultiOp {
    MultiOp::Delete(DeleteRequest { path: path.into(), version: Version::ANY })
}

fn check_op(path: &str, version: i32) -> MultiOp {
    MultiOp::Check(CheckRequest { path: path.into(), version: Version(version) })
}

fn set_data_op(path: &str, version: i32) -> MultiOp {
    MultiOp::SetData(SetDataRequest {
        path: path.into(),
        data: Some("x".into()),
        version: Version(version),
    })
}

#[tokio::test(start_paused = true)]
async fn operations_see_the_effects_of_earlier_ones() {
    let server = start();
    let mut client = Client::new(&server).await;
    let results = client
        .multi(vec![
            create_op("/a", CreateMode::Persistent),
            create_op("/a/n-", CreateMode::PersistentSequential),
            create_op("/a/n-", CreateMode::EphemeralSequential),
            set_data_op("/a", 0),
            check_op("/a", 1),
            delete_op("/a/n-0000000000"),
        ])
        .await;
    let created = |path: &str| MultiResult::Create { path: path.into() };
    assert_eq!(
        results[..3],
        [created("/a"), created("/a/n-0000000000"), created("/a/n-0000000001")]
    );
    let MultiResult::SetData(stat) = results[3] else { panic!("{results:?}") };
    assert_eq!(
        (stat.version, stat.num_children),
        (Version(1), 2),
        "the state right after the operation"
    );
    assert_eq!(results[4..], [MultiResult::Check, MultiResult::Delete]);
    let stat = server.stat("/a").unwrap();
    assert_eq!(
        (stat.czxid, stat.mzxid, stat.pzxid, stat.cversion),
        (Zxid(2), Zxid(2), Zxid(2), Version(3))
    );
    let steps: Vec<_> =
        server.commits().into_iter().filter(|c| c.zxid == Zxid(2)).map(|c| c.op).collect();
    assert_eq!(steps[1..5], [OpCode::CREATE, OpCode::CREATE, OpCode::SET_DATA, OpCode::CHECK]);
}

#[tokio::test(start_paused = true)]
async fn failure_reverts_everything_and_triggers_no_watch() {
    let server = start();
    let mut client = Client::new(&server).await;
    client.create("/a", CreateMode::Persistent).await.unwrap();
    client.create("/a/old", CreateMode::Ephemeral).await.unwrap();
    client.ok(&get_children("/a", true)).await;
    let before = (server.stat("/a"), server.stat("/a/old"), server.ephemerals());
    let ops = vec![
        create_op("/a/n-", CreateMode::EphemeralSequential),
        set_data_op("/a", 0),
        delete_op("/a/old"),
        check_op("/a", 9),
        delete_op("/a"),
    ];
    let (header, result) = client.call_full(&Request::Multi(ops)).await;
    assert_eq!((header.err, header.zxid), (ErrorCode::OK, Zxid(4)));
    let codes = [0, 0, 0, -103, -2].map(|code| MultiResult::Error(ErrorCode(code)));
    assert_eq!(result, Ok(Response::Multi(codes.to_vec())));
    assert_eq!(before, (server.stat("/a"), server.stat("/a/old"), server.ephemerals()));
    let path = client.send(&create("/a/n-", CreateMode::PersistentSequential)).await;
    assert_eq!(client.event().await, (EventType::NODE_CHILDREN_CHANGED, "/a".to_owned()));
    let Got::Reply(header, response) = client.next(OpCode::CREATE).await else { panic!() };
    assert_eq!((header.xid, response), (path, Some(Response::Create("/a/n-0000000001".into()))));
    let failed = server.commits().into_iter().find(|commit| commit.zxid == Zxid(4)).unwrap();
    assert_eq!((failed.op, failed.error), (OpCode::MULTI, ErrorCode::BAD_VERSION));
}

#[tokio::test(start_paused = true)]
async fn create2_result_depends_on_the_version() {
    for (version, is_short) in [(ServerVersion::V3_8, true), (ServerVersion::V3_9, false)] {
        let server = TestServer::start(ServerConfig::default().version(version));
        let mut client = Client::new(&server).await;
        let with_stat =
            CreateRequest { with_stat: true, ..create_request("/a", CreateMode::Persistent) };
        let ops = vec![MultiOp::Create(with_stat), create_op("/c", CreateMode::Container)];
        let results = client.multi(ops).await;
        assert_eq!(matches!(results[0], MultiResult::Create { .. }), is_short, "{version:?}");
        assert!(matches!(results[1], MultiResult::Create2 { .. }), "{version:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_operations_fail_the_whole_request() {
    let server = start();
    let mut client = Client::new(&server).await;
    let reads = Request::MultiRead(vec![ReadOp::GetData("/".into())]);
    let mut body = bytes::BytesMut::new();
    reads.encode(&mut body);
    client.send_raw(1, OpCode::MULTI.0, &body).await;
    let Got::Reply(header, None) = client.next(OpCode::MULTI).await else { panic!() };
    assert_eq!((header.err, header.zxid), (ErrorCode::MARSHALLING_ERROR, Zxid(2)));
    let mut body = bytes::BytesMut::new();
    Request::Multi(vec![delete_op("/a")]).encode(&mut body);
    client.send_raw(2, OpCode::MULTI_READ.0, &body).await;
    let Got::Reply(header, None) = client.next(OpCode::MULTI_READ).await else { panic!() };
    assert_eq!((header.err, header.zxid), (ErrorCode::MARSHALLING_ERROR, Zxid(2)));
}

#[tokio::test(start_paused = true)]
async fn reads_are_independent_of_each_other() {
    let server = start();
    let mut client = Client::new(&server).await;
    let ops = ["/nope", "/zookeeper"].map(|path| ReadOp::GetChildren(path.into()));
    let reply = client.ok(&Request::MultiRead(ops.to_vec())).await;
    let children = ["quota", "config"].into_iter().collect();
    assert_eq!(
        reply,
        Response::MultiRead(vec![
            ReadResult::Error(ErrorCode::NO_NODE),
            ReadResult::Children(children)
        ])
    );
}
