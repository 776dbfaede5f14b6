//! Which error is reported if several apply.

use jute_codec::{
    Acl, CheckRequest, CreateMode, CreateRequest, ErrorCode, MultiOp, MultiResult, OpCode,
    Permissions, Request, Response, SetAclRequest, Ttl, Version, Zxid,
};
use zk_testserver::{ServerConfig, ServerVersion, TestServer};

use crate::client::*;

/// Creates a znode whose children cannot be created or deleted, and one whose data cannot be
/// accessed.
async fn scene() -> (TestServer, Client) {
    let server = start();
    let mut client = Client::new(&server).await;
    client.ok(&create("/p", CreateMode::Persistent)).await;
    client.ok(&create("/p/child", CreateMode::Persistent)).await;
    let acl = |perms| vec![Acl::new(perms, "world", "anyone")];
    let set_acl =
        SetAclRequest { path: "/p".into(), acl: acl(Permissions::READ), version: Version::ANY };
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
        (set_acl("missing", Vec::new(), Version(9)), ErrorCode::BAD_ARGUMENTS),
        (set_acl("/missing", Vec::new(), Version(9)), ErrorCode::INVALID_ACL),
        (set_acl("/missing", Acl::open(), Version(9)), ErrorCode::NO_NODE),
        (set_acl("/secret", Acl::open(), Version(9)), ErrorCode::NO_AUTH),
        (set_acl("/full", Acl::open(), Version(9)), ErrorCode::BAD_VERSION),
    ] {
        assert_eq!(client.code(&request).await, expected, "{request:?}");
    }
    for (path, expected) in [
        ("missing", ErrorCode::BAD_ARGUMENTS),
        ("/missing", ErrorCode::NO_NODE),
        ("/secret", ErrorCode::NO_AUTH),
        ("/full", ErrorCode::BAD_VERSION),
    ] {
        let check = MultiOp::Check(CheckRequest { path: path.into(), version: Version(9) });
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
        let Got::Reply(header, _) = client.next(OpCode(op)).await else { panic!() };
        assert_eq!((header.err, header.zxid), (expected, Zxid(2)), "{op} {flags} {ttl:?}");
    }
}

/// Sends a multi of three operations. The second one creates a znode with these flags. Returns its
/// result, or the error of the whole request. Also checks the results of the other two.
async fn create_in_multi(
    version: ServerVersion,
    (op, flags, ttl): (i32, i32, Option<i64>),
    acl: Option<Vec<Acl>>,
) -> Result<MultiResult, ErrorCode> {
    let server = TestServer::start(ServerConfig::default().version(version).extended_types(true));
    let mut client = Client::new(&server).await;
    let check = MultiOp::Check(CheckRequest { path: "/".into(), version: Version::ANY });
    let header = |op: i32, is_done| [&op.to_be_bytes()[..], &[is_done], &[0xff; 4]].concat();
    let mut check_bytes = bytes::BytesMut::new();
    Request::Multi(vec![check]).encode(&mut check_bytes);
    // Remove the header that ends the list.
    check_bytes.truncate(check_bytes.len() - 9);
    let check_bytes = &check_bytes[..];
    let mut create = bytes::BytesMut::new();
    let acl_of = acl.clone().unwrap_or_default();
    let request = CreateRequest { acl: acl_of, ..create_request("/a", CreateMode::Persistent) };
    request.encode(&mut create);
    create.truncate(create.len() - 4);
    if acl.is_none() {
        create.truncate(create.len() - 4);
        create.extend_from_slice(&[0xff; 4]);
    }
    create.extend_from_slice(&flags.to_be_bytes());
    create.extend(ttl.into_iter().flat_map(i64::to_be_bytes));
    let body = [check_bytes, &header(op, 0), &create[..], check_bytes, &header(-1, 1)].concat();
    client.send_raw(1, OpCode::MULTI.0, &body).await;
    let Got::Reply(header, response) = client.next(OpCode::MULTI).await else { panic!() };
    assert_eq!(header.zxid, Zxid(2), "it takes a zxid in any case");
    let Some(Response::Multi(results)) = response else { return Err(header.err) };
    let [first, second, third] = &results[..] else { panic!("{results:?}") };
    if matches!(second, MultiResult::Error(_)) {
        assert_eq!(*first, MultiResult::Error(ErrorCode::OK));
        assert_eq!(*third, MultiResult::Error(ErrorCode::RUNTIME_INCONSISTENCY));
        assert_eq!(server.stat("/a"), None);
    } else {
        assert_eq!((first, third), (&MultiResult::Check, &MultiResult::Check));
    }
    Ok(second.clone())
}

/// Real servers of version 3.8.0 behave in the same way.
#[tokio::test(start_paused = true)]
async fn illegal_flags_and_times_to_live_fail_their_operation_in_a_multi() {
    let refused = Ok(MultiResult::Error(ErrorCode::BAD_ARGUMENTS));
    for create in [
        (1, 7, None),
        (15, -1, None),
        (19, 99, None),
        (21, 7, Some(5)),
        (21, 5, Some(0)),
        (21, 6, Some(-5)),
        (21, 5, Some(1 << 40)),
    ] {
        let result = create_in_multi(ServerVersion::V3_8, create, Some(Acl::open())).await;
        assert_eq!(result, refused, "{create:?}");
    }
    for create in [(1, 5, None), (15, 6, None), (19, 5, None)] {
        let result = create_in_multi(ServerVersion::V3_8, create, Some(Acl::open())).await;
        assert_eq!(result, Err(ErrorCode::MARSHALLING_ERROR), "no time to live: {create:?}");
    }
    // For 3.9, unknown flags make the whole request malformed.
    let result = create_in_multi(ServerVersion::V3_9, (1, 7, None), Some(Acl::open())).await;
    assert_eq!(result, Err(ErrorCode::MARSHALLING_ERROR));
    let result = create_in_multi(ServerVersion::V3_9, (21, 5, Some(0)), Some(Acl::open())).await;
    assert_eq!(result, refused);
}

/// Real servers of version 3.8.0 behave in the same way.
#[tokio::test(start_paused = true)]
async fn flags_determine_what_a_multi_creates() {
    for (create, is_short) in [
        ((1, 0, None), true),
        ((1, 4, None), false),
        ((15, 4, None), false),
        ((19, 4, None), false),
        ((21, 0, Some(5)), true),
        ((21, 4, Some(5)), false),
        ((21, 5, Some(5)), false),
    ] {
        let result = create_in_multi(ServerVersion::V3_8, create, Some(Acl::open())).await;
        let result = result.expect("the request is well-formed");
        assert_eq!(matches!(result, MultiResult::Create { .. }), is_short, "{create:?}");
        assert_eq!(matches!(result, MultiResult::Create2 { .. }), !is_short, "{create:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_null_list_in_a_multi_fails_its_operation_and_since_3_9_the_whole_request() {
    let refused = Ok(MultiResult::Error(ErrorCode::INVALID_ACL));
    for acl in [None, Some(Vec::new())] {
        assert_eq!(create_in_multi(ServerVersion::V3_8, (1, 0, None), acl).await, refused);
    }
    let null = create_in_multi(ServerVersion::V3_9, (1, 0, None), None).await;
    assert_eq!(null, Err(ErrorCode::MARSHALLING_ERROR));
    let empty = create_in_multi(ServerVersion::V3_9, (1, 0, None), Some(Vec::new())).await;
    assert_eq!(empty, refused);
}

/// Real servers of version 3.8.0 behave in the same way. The reply to checkWatches was also
/// compared with version 3.9.3.
#[tokio::test(start_paused = true)]
async fn null_paths_fail_where_the_operation_uses_the_path() {
    let bad = ErrorCode::BAD_ARGUMENTS;
    let malformed = ErrorCode::MARSHALLING_ERROR;
    let missing = ErrorCode::NO_WATCHER;
    let number = |number: i32| number.to_be_bytes().to_vec();
    for (version, op, rest, expected) in [
        (ServerVersion::V3_8, OpCode::SET_DATA, [0xff; 8].to_vec(), bad),
        (ServerVersion::V3_8, OpCode::SET_ACL, [0xff; 8].to_vec(), bad),
        (ServerVersion::V3_8, OpCode::CREATE, [0xff; 12].to_vec(), malformed),
        (ServerVersion::V3_8, OpCode::DELETE, [0xff; 4].to_vec(), malformed),
        (ServerVersion::V3_8, OpCode::EXISTS, vec![0], malformed),
        (ServerVersion::V3_8, OpCode::CHECK_WATCHES, number(1), malformed),
        (ServerVersion::V3_9, OpCode::CHECK_WATCHES, number(1), missing),
        (ServerVersion::V3_8, OpCode::REMOVE_WATCHES, number(3), missing),
        (ServerVersion::V3_8, OpCode::REMOVE_WATCHES, number(4), malformed),
        (ServerVersion::V3_8, OpCode::REMOVE_WATCHES, number(9), malformed),
    ] {
        let server = TestServer::start(ServerConfig::default().version(version));
        let mut client = Client::new(&server).await;
        let body = [&[0xff; 4][..], &rest].concat();
        client.send_raw(1, op.0, &body).await;
        let Got::Reply(header, _) = client.next(op).await else { panic!() };
        assert_eq!(header.err, expected, "{version:?} {op} {rest:?}");
        client.ok(&exists("/", false)).await;
    }
}

/// Real servers of version 3.8.0 behave in the same way.
#[tokio::test(start_paused = true)]
async fn watches_on_relative_paths_are_refused_before_3_9() {
    let malformed = ErrorCode::MARSHALLING_ERROR;
    let missing = ErrorCode::NO_WATCHER;
    for (version, path, expected) in [
        (ServerVersion::V3_8, "y", malformed),
        (ServerVersion::V3_8, "y/z", malformed),
        (ServerVersion::V3_8, "", missing),
        (ServerVersion::V3_8, "/y/", missing),
        (ServerVersion::V3_9, "y", missing),
    ] {
        let server = TestServer::start(ServerConfig::default().version(version));
        let mut client = Client::new(&server).await;
        let kind = jute_codec::WatcherType::ANY;
        let watches = jute_codec::WatchesRequest { path: path.into(), kind };
        let check = Request::CheckWatches(watches.clone());
        assert_eq!(client.code(&check).await, expected, "{version:?} {path}");
        assert_eq!(client.code(&Request::RemoveWatches(watches)).await, missing);
        client.code(&exists(path, true)).await;
        assert_eq!(client.code(&check).await, ErrorCode::OK, "now the watch exists");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_may_delete_containers_as_3_9_does() {
    let server = TestServer::start(ServerConfig::default().version(ServerVersion::V3_9));
    let mut client = Client::new(&server).await;
    client.ok(&create("/full", CreateMode::Persistent)).await;
    client.ok(&create("/full/child", CreateMode::Persistent)).await;
    client.ok(&create("/mine", CreateMode::Ephemeral)).await;
    for (path, expected) in [
        ("", ErrorCode::BAD_ARGUMENTS),
        ("no slash", ErrorCode::BAD_ARGUMENTS),
        ("\0\0\0\x05/full", ErrorCode::BAD_ARGUMENTS),
        ("/zookeeper", ErrorCode::BAD_ARGUMENTS),
        ("/missing", ErrorCode::NO_NODE),
        ("/full", ErrorCode::NOT_EMPTY),
        ("/mine", ErrorCode::BAD_VERSION),
        ("/full/child", ErrorCode::OK),
        ("/full", ErrorCode::OK),
    ] {
        client.send_raw(1, OpCode::DELETE_CONTAINER.0, path.as_bytes()).await;
        let Got::Reply(header, _) = client.next(OpCode::DELETE).await else { panic!() };
        assert_eq!(header.err, expected, "{path:?}");
    }
    assert_eq!(server.children("/").unwrap(), ["mine", "zookeeper"]);
}
