//! Zxids, counters, sequence numbers, built-in znodes, and how reads report them.

use std::time::Duration;

use jute_codec::{
    Acl, AclReply, CreateMode, CreateRequest, ErrorCode, MultiOp, OpCode, Permissions,
    ReconfigRequest, Request, Response, SetAclRequest, Ttl, Version, Zxid,
};
use zk_testserver::{SequenceOverflow, ServerConfig, TestServer};

use crate::client::*;

#[tokio::test(start_paused = true)]
async fn every_write_attempt_takes_a_zxid_and_reads_take_none() {
    let server = start();
    let mut client = Client::new(&server).await;
    let reconfig = Request::Reconfig(ReconfigRequest {
        joining_servers: None,
        leaving_servers: None,
        new_members: None,
        config_id: -1,
    });
    let script = [
        (create("/a", CreateMode::Persistent), ErrorCode::OK, 2),
        (create("/a", CreateMode::Persistent), ErrorCode::NODE_EXISTS, 3),
        (delete("/b", -1), ErrorCode::NO_NODE, 4),
        (set_data("/a", 7), ErrorCode::BAD_VERSION, 5),
        (get_data("/a", false), ErrorCode::OK, 5),
        (exists("/b", true), ErrorCode::NO_NODE, 5),
        (sync("nonsense"), ErrorCode::OK, 5),
        (Request::Ping, ErrorCode::OK, 5),
        (Request::WhoAmI, ErrorCode::OK, 5),
        (Request::Multi(Vec::new()), ErrorCode::OK, 6),
        (reconfig, ErrorCode::RECONFIG_DISABLED, 7),
        (create("/c", CreateMode::Container), ErrorCode::OK, 8),
    ];
    for (request, error, zxid) in script {
        let (header, _) = client.call_full(&request).await;
        assert_eq!((header.err, header.zxid), (error, Zxid(zxid)), "{request:?}");
    }
    Client::resume(&server, &client).await;
    assert_eq!(server.zxid(), Zxid(8), "resuming takes no zxid");
    Client::new(&server).await;
    assert_eq!(server.zxid(), Zxid(9));
    let zxids: Vec<Zxid> = server.commits().iter().map(|commit| commit.zxid).collect();
    assert_eq!(zxids, (1..=9).map(Zxid).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn sequence_counts_creates_and_cversion_counts_deletes_too() {
    let server = start();
    let mut client = Client::new(&server).await;
    client.create("/p", CreateMode::Persistent).await.unwrap();
    for name in ["/p/a", "/p/b", "/p/c", "/p/d"] {
        client.create(name, CreateMode::Persistent).await.unwrap();
    }
    client.ok(&delete("/p/a", -1)).await;
    client.ok(&delete("/p/b", -1)).await;
    let stat = server.stat("/p").unwrap();
    assert_eq!((stat.cversion, stat.num_children, stat.version), (Version(6), 2, Version(0)));
    assert_eq!((stat.czxid, stat.mzxid, stat.pzxid), (Zxid(2), Zxid(2), Zxid(8)));
    let path = client.create("/p/n-", CreateMode::EphemeralSequential).await;
    assert_eq!(path.as_deref(), Ok("/p/n-0000000004"));
    let path = client.create("/p/", CreateMode::PersistentSequential).await;
    assert_eq!(path.as_deref(), Ok("/p/0000000005"));
}

#[tokio::test(start_paused = true)]
async fn data_and_acl_have_separate_versions() {
    let server = start();
    let mut client = Client::new(&server).await;
    client.create("/a", CreateMode::Persistent).await.unwrap();
    sleep(Duration::from_millis(5)).await;
    client.ok(&set_data("/a", 0)).await;
    let acl = Acl::open();
    let set_acl = SetAclRequest { path: "/a".into(), acl: acl.clone(), version: Version(0) };
    client.ok(&Request::SetAcl(set_acl)).await;
    let stat = server.stat("/a").unwrap();
    assert_eq!((stat.version, stat.aversion, stat.cversion), (Version(1), Version(1), Version(0)));
    assert_eq!((stat.mzxid, stat.mtime - stat.ctime, stat.data_length), (Zxid(3), 5, 3));
    let reply = client.ok(&Request::GetAcl("/a".into())).await;
    assert_eq!(reply, Response::GetAcl(AclReply { acl, stat }));
}

#[tokio::test(start_paused = true)]
async fn exhausted_sequence_sticks_or_wraps() {
    let new = |overflow| TestServer::start(ServerConfig::default().sequence_overflow(overflow));
    for (overflow, names) in [
        (SequenceOverflow::Sticky, ["2147483646", "2147483647", "2147483647"]),
        (SequenceOverflow::Wrapping, ["2147483646", "2147483647", "-2147483648"]),
    ] {
        let server = new(overflow);
        let mut client = Client::new(&server).await;
        server.set_create_count("/", i32::MAX - 1);
        for (number, expected) in names.iter().enumerate() {
            let prefix = format!("/{number}-");
            let path = client.create(&prefix, CreateMode::PersistentSequential).await;
            assert_eq!(path, Ok(format!("{prefix}{expected}")));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fresh_server_has_the_built_in_znodes() {
    let server = start();
    let seen = |path: &str| {
        let stat = server.stat(path).unwrap();
        (stat.cversion, stat.num_children, stat.aversion, stat.czxid)
    };
    assert_eq!(seen("/"), (Version(-1), 1, Version(0), Zxid(0)));
    assert_eq!(seen("/zookeeper"), (Version(-2), 2, Version(0), Zxid(0)));
    assert_eq!(seen("/zookeeper/quota"), (Version(0), 0, Version(0), Zxid(0)));
    assert_eq!(seen("/zookeeper/config"), (Version(0), 0, Version(-1), Zxid(0)));
    let mut client = Client::new(&server).await;
    assert_eq!(client.code(&set_data("/zookeeper/config", -1)).await, ErrorCode::NO_AUTH);
    assert_eq!(client.code(&set_data("/", -1)).await, ErrorCode::OK);
    let all = client.ok(&Request::GetAllChildrenNumber("/".into())).await;
    assert_eq!(all, Response::GetAllChildrenNumber(3));
}

#[tokio::test(start_paused = true)]
async fn ephemerals_are_listed_by_string_prefix() {
    let server = start();
    let mut client = Client::new(&server).await;
    for path in ["/ab", "/abc", "/b"] {
        client.create(path, CreateMode::Ephemeral).await.unwrap();
    }
    for (prefix, expected) in [
        (Some("/ab"), vec!["/ab", "/abc"]),
        (Some("/"), vec!["/ab", "/abc", "/b"]),
        (None, vec!["/ab", "/abc", "/b"]),
        (Some("/x"), vec![]),
    ] {
        let request = Request::GetEphemerals(prefix.map(Into::into));
        let Response::GetEphemerals(mut paths) = client.ok(&request).await else { panic!() };
        paths.sort();
        assert_eq!(paths, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn containers_and_ttl_znodes_are_reaped() {
    let server = TestServer::start(ServerConfig::default().extended_types(true));
    let mut client = Client::new(&server).await;
    let ttl = CreateMode::PersistentTtl(Ttl::from_millis(100_000).unwrap());
    for (path, mode) in [("/used", CreateMode::Container), ("/unused", CreateMode::Container)] {
        client.ok(&create(path, mode)).await;
    }
    client.ok(&create("/ttl", ttl)).await;
    client.create("/used/child", CreateMode::Ephemeral).await.unwrap();
    let names = |server: &TestServer| server.children("/").unwrap();
    server.reap();
    assert_eq!(names(&server), ["ttl", "unused", "used", "zookeeper"]);
    client.ok(&delete("/used/child", -1)).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(names(&server), ["ttl", "unused", "zookeeper"]);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(names(&server), ["unused", "zookeeper"]);
    let reaped: Vec<_> = server
        .commits()
        .into_iter()
        .filter(|commit| commit.op == OpCode::DELETE_CONTAINER)
        .filter_map(|commit| commit.path)
        .collect();
    assert_eq!(reaped, ["/used", "/ttl"]);
}

#[tokio::test(start_paused = true)]
async fn znodes_are_reaped_at_the_configured_interval() {
    let second = Duration::from_secs(1);
    let server = TestServer::start(ServerConfig::default().reap_interval(second));
    let mut client = Client::new(&server).await;
    for number in 0..3 {
        let container = create_request("/used", CreateMode::Container);
        client.ok(&Request::Create(CreateRequest { with_stat: true, ..container })).await;
        client.create("/used/child", CreateMode::Persistent).await.unwrap();
        sleep(3 * second).await;
        assert!(server.stat("/used").is_some(), "round {number}: the znode has a child");
        client.ok(&delete("/used/child", -1)).await;
        sleep(second).await;
        assert_eq!(server.stat("/used"), None, "round {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn identities_grant_access_and_hide_their_secrets() {
    let server = start();
    let mut client = Client::new(&server).await;
    let auth = jute_codec::AuthPacket { scheme: "digest".into(), auth: Some("bob:secret".into()) };
    assert_eq!(
        client.code(&create_with_acl("/a", Acl::creator_all())).await,
        ErrorCode::INVALID_ACL
    );
    client.ok(&Request::Auth(auth)).await;
    client.ok(&create_with_acl("/a", Acl::creator_all())).await;
    client.ok(&get_data("/a", false)).await;
    let mixed = vec![
        Acl::new(Permissions::READ, "world", "anyone"),
        Acl::new(Permissions::ALL, "digest", "bob:fyVmFCwVbTJYrznoSu1koqYEYF0="),
    ];
    client.ok(&create_with_acl("/b", mixed)).await;

    let mut other = Client::new(&server).await;
    assert_eq!(other.code(&get_data("/a", false)).await, ErrorCode::NO_AUTH);
    assert_eq!(other.code(&exists("/a", false)).await, ErrorCode::OK, "not on 3.8.0");
    let Response::GetAcl(reply) = other.ok(&Request::GetAcl("/b".into())).await else { panic!() };
    assert_eq!(&*reply.acl[1].id.id, "bob:x");
    let Response::WhoAmI(who) = client.ok(&Request::WhoAmI).await else { panic!() };
    let mut who: Vec<(&str, &str)> = who.iter().map(|id| (&*id.auth_scheme, &*id.user)).collect();
    who.sort_unstable();
    assert_eq!(who, [("digest", "bob"), ("ip", "127.0.0.1")]);
}

#[tokio::test(start_paused = true)]
async fn znodes_below_a_quota_are_counted() {
    let server = start();
    let mut client = Client::new(&server).await;
    let usage = || String::from_utf8(server.data(STATS).unwrap().to_vec()).unwrap();
    server.admin_create("/q", b"1234", None);
    server.admin_create("/q/before", b"56", None);
    server.admin_create("/qq", b"not below", None);
    for path in ["/zookeeper/quota/q", "/zookeeper/quota/q/zookeeper_limits", STATS] {
        client.create(path, CreateMode::Persistent).await.unwrap();
    }
    let stat = server.stat(STATS).unwrap();
    assert_eq!(usage(), "count=2,bytes=6");
    client.create("/q/before/deep", CreateMode::Persistent).await.unwrap();
    client.create("/q/gone", CreateMode::Ephemeral).await.unwrap();
    client.ok(&set_data("/q/before/deep", -1)).await;
    client.create("/qq/other", CreateMode::Persistent).await.unwrap();
    assert_eq!(usage(), "count=4,bytes=9");
    let sum = set_data("/q", -1);
    let Request::SetData(set) = &sum else { panic!() };
    let set = MultiOp::SetData(set.clone());
    let fails = delete_op("/q");
    client.multi(vec![set, fails]).await;
    assert_eq!(usage(), "count=4,bytes=9", "a failed multi does not count");
    server.expire(client.session);
    let mut client = Client::new(&server).await;
    client.ok(&delete("/q/before/deep", -1)).await;
    client.ok(&sum).await;
    assert_eq!(usage(), "count=2,bytes=5");
    let length = i32::try_from(usage().len()).unwrap();
    let expected = jute_codec::Stat { data_length: length, ..stat };
    assert_eq!(server.stat(STATS), Some(expected), "counting is not a transaction");
    client.ok(&delete("/zookeeper/quota/q/zookeeper_limits", -1)).await;
    client.ok(&delete("/q/before", -1)).await;
    assert_eq!(usage(), "count=2,bytes=5", "the quota was removed");
}

fn delete_op(path: &str) -> MultiOp {
    let Request::Delete(delete) = delete(path, -1) else { panic!() };
    MultiOp::Delete(delete)
}

#[tokio::test(start_paused = true)]
async fn create2_replies_with_the_stat_and_null_data_stays_null() {
    let server = start();
    let mut client = Client::new(&server).await;
    let request = CreateRequest {
        data: None,
        with_stat: true,
        ..create_request("/a", CreateMode::Ephemeral)
    };
    let Response::Create2(reply) = client.ok(&Request::Create(request)).await else { panic!() };
    assert_eq!((&*reply.path, reply.stat.ephemeral_owner), ("/a", client.session));
    let Response::GetData(reply) = client.ok(&get_data("/a", false)).await else { panic!() };
    assert_eq!((reply.data, reply.stat.data_length), (None, 0));
}

const STATS: &str = "/zookeeper/quota/q/zookeeper_stats";

/// kazoo writes an empty id as null in `CREATOR_ALL_ACL`.
#[tokio::test(start_paused = true)]
async fn a_null_id_is_an_empty_id() {
    let server = start();
    let mut client = Client::new(&server).await;
    let auth = jute_codec::AuthPacket { scheme: "digest".into(), auth: Some("bob:secret".into()) };
    client.ok(&Request::Auth(auth)).await;
    let with_stat = |mode, with_stat| {
        let acl = Acl::creator_all();
        CreateRequest { acl, with_stat, ..create_request("/a", mode) }
    };
    let (create, create2, container) = (
        with_stat(CreateMode::Persistent, false),
        with_stat(CreateMode::Persistent, true),
        with_stat(CreateMode::Container, true),
    );
    let set_acl = |path: &str| SetAclRequest {
        path: path.into(),
        acl: Acl::creator_all(),
        version: Version::ANY,
    };
    let is_resolved = |reply: &AclReply| {
        reply.acl == [Acl::new(Permissions::ALL, "digest", "bob:fyVmFCwVbTJYrznoSu1koqYEYF0=")]
    };
    for request in [
        Request::Create(create.clone()),
        Request::Create(create2),
        Request::Create(container),
        Request::Multi(vec![MultiOp::Create(create)]),
    ] {
        let xid = 9;
        let frame = encode(xid, &request);
        client.write(&with_null_ids(&frame)).await;
        let Got::Reply(header, _) = client.next(request.op()).await else { panic!() };
        assert_eq!((header.xid, header.err), (xid, ErrorCode::OK), "{request:?}");
        let Response::GetAcl(reply) = client.ok(&Request::GetAcl("/a".into())).await else {
            panic!()
        };
        assert!(is_resolved(&reply), "{reply:?}");
        client.ok(&delete("/a", -1)).await;
    }
    client.create("/b", CreateMode::Persistent).await.unwrap();
    client.write(&with_null_ids(&encode(10, &Request::SetAcl(set_acl("/b"))))).await;
    let Got::Reply(header, _) = client.next(OpCode::SET_ACL).await else { panic!() };
    assert_eq!(header.err, ErrorCode::OK);
    let Response::GetAcl(reply) = client.ok(&Request::GetAcl("/b".into())).await else { panic!() };
    assert!(is_resolved(&reply), "{reply:?}");
}

/// Replaces the empty text after the scheme `auth` with null.
fn with_null_ids(frame: &[u8]) -> Vec<u8> {
    let scheme = b"\0\0\0\x04auth";
    let at = frame
        .windows(scheme.len())
        .position(|part| part == scheme)
        .expect("the frame contains the scheme");
    let id = at + scheme.len();
    let mut frame = frame.to_vec();
    assert_eq!(frame.get(id..id + 4), Some(&[0; 4][..]), "the id is empty");
    frame.splice(id..id + 4, [0xff; 4]);
    frame
}
