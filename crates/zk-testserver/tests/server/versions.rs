//! What servers of different versions know.

#[path = "../../../jute-codec/tests/reference/schema.rs"]
#[allow(dead_code, reason = "only the versions of operations are needed here")]
mod schema;

use jute_codec::{
    Acl, AddWatchMode, AddWatchRequest, CreateMode, CreateRequest, ErrorCode, EventType, MultiOp,
    MultiResult, OpCode, Permissions, ReadOp, Request, Response, SetWatches, SetWatches2, Ttl,
    WatcherType, WatchesRequest, Zxid,
};
use zk_testserver::{ServerConfig, ServerVersion, TestServer};

use crate::client::*;

const ALL: [ServerVersion; 6] = [
    ServerVersion::V3_4,
    ServerVersion::V3_5,
    ServerVersion::V3_6,
    ServerVersion::V3_7,
    ServerVersion::V3_8,
    ServerVersion::V3_9,
];

fn server(version: ServerVersion) -> TestServer {
    TestServer::start(ServerConfig::default().version(version).extended_types(true))
}

/// Returns valid requests, and the versions that introduced them.
fn requests() -> Vec<(Request, ServerVersion)> {
    use ServerVersion::{V3_4, V3_5, V3_6, V3_7};
    let create2 =
        CreateRequest { with_stat: true, ..create_request("/create2", CreateMode::Persistent) };
    let ttl = CreateMode::PersistentTtl(Ttl::from_millis(1_000).expect("legal"));
    let watches = WatchesRequest { path: "/watched".into(), kind: WatcherType::ANY };
    let add = AddWatchRequest { path: "/watched".into(), mode: AddWatchMode::PERSISTENT };
    let set_watches = SetWatches {
        relative_zxid: Zxid(0),
        data: Vec::new(),
        exist: vec!["/watched".into()],
        child: Vec::new(),
    };
    let set_watches2 = SetWatches2 {
        relative_zxid: Zxid(0),
        data: Vec::new(),
        exist: vec!["/watched".into()],
        child: Vec::new(),
        persistent: Vec::new(),
        persistent_recursive: Vec::new(),
    };
    vec![
        (create("/a", CreateMode::Persistent), V3_4),
        (Request::Multi(vec![MultiOp::Create(create_request("/m", CreateMode::Ephemeral))]), V3_4),
        (get_data("/", false), V3_4),
        (Request::SetWatches(set_watches), V3_4),
        (Request::Create(create2), V3_5),
        (create("/container", CreateMode::Container), V3_5),
        (create("/ttl", ttl), V3_5),
        (Request::CheckWatches(watches.clone()), V3_5),
        (Request::RemoveWatches(watches), V3_5),
        (Request::MultiRead(vec![ReadOp::GetData("/".into())]), V3_6),
        (Request::GetEphemerals(None), V3_6),
        (Request::GetAllChildrenNumber("/".into()), V3_6),
        (Request::SetWatches2(set_watches2), V3_6),
        (Request::AddWatch(add), V3_6),
        (Request::WhoAmI, V3_7),
    ]
}

#[tokio::test(start_paused = true)]
async fn an_unknown_opcode_is_unimplemented_and_ends_the_connection_but_not_the_session() {
    for version in ALL {
        let server = server(version);
        let mut client = Client::new(&server).await;
        client.ok(&exists("/", true)).await;
        assert_eq!(client.code(&exists("/watched", true)).await, ErrorCode::NO_NODE);
        for (request, since) in requests() {
            let before = server.zxid();
            let (header, result) = client.call_full(&request).await;
            if version >= since {
                assert!(result.is_ok(), "{request:?} on {version:?}: {result:?}");
                continue;
            }
            assert_eq!(result, Err(ErrorCode::UNIMPLEMENTED), "{request:?} on {version:?}");
            assert_eq!(header.zxid, Zxid::NONE);
            assert_eq!(server.zxid(), before, "it takes no zxid");
            client.assert_eof().await;
            client = Client::resume(&server, &client).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_operation_is_known_since_the_version_of_the_schema() {
    for version in ALL {
        for operation in schema::operations().iter().filter(|it| !it.is_part) {
            let server = server(version);
            let mut client = Client::new(&server).await;
            client.send_raw(7, operation.op, &[]).await;
            let reply = client.next(OpCode(operation.op)).await;
            let is_unknown =
                matches!(reply, Got::Reply(header, _) if header.err == ErrorCode::UNIMPLEMENTED);
            let since = introduced(&operation.since);
            assert_eq!(is_unknown, version < since, "{} on {version:?}", operation.name);
        }
    }
}

/// Returns the oldest of the versions that has what a release introduced.
fn introduced(release: &str) -> ServerVersion {
    let minor = release.split('.').nth(1).map_or(0, |minor| minor.parse().expect("a number"));
    let age: usize = 9_usize.checked_sub(minor).expect("no release is newer");
    ALL.into_iter().rev().nth(age).unwrap_or(ServerVersion::V3_4)
}

#[tokio::test(start_paused = true)]
async fn a_multi_of_3_4_refuses_the_creates_of_3_5() {
    for version in [ServerVersion::V3_4, ServerVersion::V3_5] {
        let server = server(version);
        let mut client = Client::new(&server).await;
        let container = MultiOp::Create(create_request("/c", CreateMode::Container));
        let code = client.code(&Request::Multi(vec![container])).await;
        let is_old = version == ServerVersion::V3_4;
        assert_eq!(code, if is_old { ErrorCode::MARSHALLING_ERROR } else { ErrorCode::OK });
        assert_eq!(server.stat("/c").is_some(), !is_old);
    }
}

#[tokio::test(start_paused = true)]
async fn create2_in_a_multi_returns_a_stat_on_servers_with_the_later_codec() {
    for version in ALL.into_iter().skip(1) {
        let mut client = Client::new(&server(version)).await;
        let create2 =
            CreateRequest { with_stat: true, ..create_request("/a", CreateMode::Persistent) };
        let results = client.multi(vec![MultiOp::Create(create2)]).await;
        let has_stat = matches!(results.as_slice(), [MultiResult::Create2 { .. }]);
        let is_late = matches!(version, ServerVersion::V3_7 | ServerVersion::V3_9);
        assert_eq!(has_stat, is_late, "{version:?}: {results:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn events_of_unreadable_znodes_are_withheld_since_3_8() {
    for version in ALL {
        let server = server(version);
        let mut writer = Client::new(&server).await;
        let mut watcher = Client::new(&server).await;
        assert_eq!(watcher.code(&exists("/a", true)).await, ErrorCode::NO_NODE);
        let acl = vec![Acl::new(Permissions::WRITE, "world", "anyone")];
        writer.ok(&create_with_acl("/a", acl)).await;
        watcher.send(&sync("/")).await;
        let got = watcher.next(OpCode::SYNC).await;
        let is_sent = matches!(&got, Got::Event(_, EventType::NODE_CREATED, path) if path == "/a");
        assert_eq!(is_sent, version < ServerVersion::V3_8, "{version:?}: {got:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn there_is_no_configuration_on_3_4() {
    for version in ALL {
        let server = server(version);
        let mut client = Client::new(&server).await;
        let code = client.code(&get_data("/zookeeper/config", false)).await;
        let is_old = version == ServerVersion::V3_4;
        assert_eq!(code, if is_old { ErrorCode::NO_NODE } else { ErrorCode::OK }, "{version:?}");
        let Response::GetChildren(children) = client.ok(&get_children("/zookeeper", false)).await
        else {
            panic!("children")
        };
        assert_eq!(children.len(), if is_old { 1 } else { 2 });
    }
}

#[tokio::test(start_paused = true)]
async fn servers_report_their_version() {
    for (version, number) in
        ALL.into_iter().zip(["3.4.14", "3.5.10", "3.6.4", "3.7.2", "3.8.0", "3.9.3"])
    {
        let mut client = Client::raw(&server(version));
        client.write(b"srvr").await;
        let text = String::from_utf8(client.rest().await.to_vec()).expect("text");
        let expected = format!("Zookeeper version: {number}-");
        assert!(text.starts_with(&expected), "{text}");
    }
}
