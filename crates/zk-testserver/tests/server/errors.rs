//! Which error wins when several apply.

use jute_codec::{
    Acl, CheckRequest, CreateMode, CreateRequest, ErrorCode, MultiOp, MultiResult, Permissions,
    Request, SetAclRequest, Ttl,
};
use zk_testserver::{ServerConfig, TestServer};

use crate::client::*;

/// A znode whose children nobody may create or delete, and one whose data nobody may touch.
async fn scene() -> (TestServer, Client) {
    let server = start();
    let mut client = Client::new(&server).await;
    client.ok(&create("/p", CreateMode::Persistent)).await;
    client.ok(&create("/p/child", CreateMode::Persistent)).await;
    let acl = |perms| vec![Acl::new(perms, "world", "anyone")];
    let set_acl = SetAclRequest { path: "/p".into(), acl: acl(Permissions::READ), version: -1 };
    client.ok(&Request::SetAcl(set_acl)).await;
    client.ok(&create_with_acl("/secret", acl(Permissions::CREATE))).await;
    client.ok(&create("/full", CreateMode::Persistent)).await;
    client.ok(&create("/full/child", CreateMode::Persistent)).await;
    client.ok(&create("/e", CreateMode::Ephemeral)).await;
    (server, client)
}

#[tokio::test(start_paused = true)]
async fn create_checks_in_order() {
    let (_server, mut client) = scene().await;
    let ttl = |ms| CreateMode::PersistentTtl(Ttl::from_millis(ms).unwrap());
    let bad_acl = |path| create_with_acl(path, vec![Acl::new(Permissions::ALL, "world", "x")]);
    for (request, expected) in [
        (create("no slash", ttl(1)), ErrorCode::UNIMPLEMENTED),
        (bad_acl("no slash"), ErrorCode::BAD_ARGUMENTS),
        (bad_acl("/a\0"), ErrorCode::BAD_ARGUMENTS),
        (bad_acl("/missing/x"), ErrorCode::INVALID_ACL),
        (create_with_acl("/x", Vec::new()), ErrorCode::INVALID_ACL),
        (create("/missing/x", CreateMode::Persistent), ErrorCode::NO_NODE),
        (create("/missing/", CreateMode::Persistent), ErrorCode::NO_NODE),
        (create("/p/child", CreateMode::Persistent), ErrorCode::NO_AUTH),
        (create("/p/", CreateMode::Persistent), ErrorCode::NO_AUTH),
        (create("/full/", CreateMode::Persistent), ErrorCode::BAD_ARGUMENTS),
        (create("/full/child", CreateMode::Persistent), ErrorCode::NODE_EXISTS),
        (create("/e/x", CreateMode::Persistent), ErrorCode::NO_CHILDREN_FOR_EPHEMERALS),
        (create("/e/.", CreateMode::Persistent), ErrorCode::BAD_ARGUMENTS),
    ] {
        assert_eq!(client.code(&request).await, expected, "{request:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_writes_check_in_order() {
    let (_server, mut client) = scene().await;
    let set_acl = |path: &str, acl, version| {
        Request::SetAcl(SetAclRequest { path: path.into(), acl, version })
    };
    for (request, expected) in [
        (delete("/missing/x", 9), ErrorCode::NO_NODE),
        (delete("/p/missing", 9), ErrorCode::NO_AUTH),
        (delete("/missing", 9), ErrorCode::NO_NODE),
        (delete("/full", 9), ErrorCode::BAD_VERSION),
        (delete("/full", -1), ErrorCode::NOT_EMPTY),
        (set_data("/missing/", 9), ErrorCode::BAD_ARGUMENTS),
        (set_data("/missing", 9), ErrorCode::NO_NODE),
        (set_data("/secret", 9), ErrorCode::NO_AUTH),
        (set_data("/full", 9), ErrorCode::BAD_VERSION),
        (set_acl("missing", Vec::new(), 9), ErrorCode::BAD_ARGUMENTS),
        (set_acl("/missing", Vec::new(), 9), ErrorCode::INVALID_ACL),
        (set_acl("/missing", Acl::open(), 9), ErrorCode::NO_NODE),
        (set_acl("/secret", Acl::open(), 9), ErrorCode::NO_AUTH),
        (set_acl("/full", Acl::open(), 9), ErrorCode::BAD_VERSION),
    ] {
        assert_eq!(client.code(&request).await, expected, "{request:?}");
    }
    for (path, expected) in [
        ("missing", ErrorCode::BAD_ARGUMENTS),
        ("/missing", ErrorCode::NO_NODE),
        ("/secret", ErrorCode::NO_AUTH),
        ("/full", ErrorCode::BAD_VERSION),
    ] {
        let check = MultiOp::Check(CheckRequest { path: path.into(), version: 9 });
        assert_eq!(client.multi(vec![check]).await, [MultiResult::Error(expected)], "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn illegal_paths_differ_by_operation() {
    let server = start();
    let mut client = Client::new(&server).await;
    for (path, on_create, on_delete) in [
        ("/", ErrorCode::NODE_EXISTS, ErrorCode::BAD_ARGUMENTS),
        ("", ErrorCode::BAD_ARGUMENTS, ErrorCode::BAD_ARGUMENTS),
        ("foo", ErrorCode::BAD_ARGUMENTS, ErrorCode::BAD_ARGUMENTS),
        ("//", ErrorCode::BAD_ARGUMENTS, ErrorCode::NO_NODE),
        ("/zookeeper", ErrorCode::NODE_EXISTS, ErrorCode::BAD_ARGUMENTS),
        ("/zookeeper/quota", ErrorCode::NODE_EXISTS, ErrorCode::BAD_ARGUMENTS),
        ("/zookeeper/config", ErrorCode::NODE_EXISTS, ErrorCode::BAD_ARGUMENTS),
    ] {
        assert_eq!(client.code(&create(path, CreateMode::Persistent)).await, on_create, "{path:?}");
        assert_eq!(client.code(&delete(path, -1)).await, on_delete, "{path:?}");
    }
    for (request, expected) in [
        (get_data("", false), ErrorCode::OK),
        (get_data("//", false), ErrorCode::NO_NODE),
        (get_data("a\0", false), ErrorCode::NO_NODE),
        (exists("a\0", false), ErrorCode::BAD_ARGUMENTS),
    ] {
        assert_eq!(client.code(&request).await, expected, "{request:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn illegal_create_flags_are_refused() {
    for (extended_types, op, flags, ttl, expected) in [
        (false, 1, 7, None, ErrorCode::BAD_ARGUMENTS),
        (false, 1, 5, None, ErrorCode::UNIMPLEMENTED),
        (false, 19, 1, None, ErrorCode::OK),
        (true, 1, 5, None, ErrorCode::BAD_ARGUMENTS),
        (false, 21, 5, Some(0), ErrorCode::UNIMPLEMENTED),
        (true, 21, 5, Some(0), ErrorCode::BAD_ARGUMENTS),
        (true, 21, 6, Some(1 << 40), ErrorCode::BAD_ARGUMENTS),
        (true, 21, 6, Some(1), ErrorCode::OK),
        (true, 21, 0, Some(-1), ErrorCode::BAD_ARGUMENTS),
    ] {
        let server = TestServer::start(ServerConfig::default().extended_types(extended_types));
        let mut client = Client::new(&server).await;
        let mut body = bytes::BytesMut::new();
        let request = CreateRequest { ..create_request("/a", CreateMode::Persistent) };
        request.encode(&mut body);
        body.truncate(body.len() - 4);
        body.extend_from_slice(&i32::to_be_bytes(flags));
        body.extend_from_slice(&ttl.map(i64::to_be_bytes).unwrap_or_default());
        client.send_raw(1, op, &body).await;
        let Got::Reply(header, _) = client.next(jute_codec::OpCode(op)).await else { panic!() };
        assert_eq!((header.err, header.zxid), (expected, 2), "{op} {flags} {ttl:?}");
    }
}
