//! Reconfiguration of the ensemble.

use bytes::Bytes;
use jute_codec::{
    Acl, AuthPacket, DataReply, ErrorCode, EventType, OpCode, Permissions, ReconfigRequest,
    Request, Response, SetAclRequest, Version, xid,
};
use zk_testserver::{Action, At, Fault, ServerConfig, ServerVersion, TestServer};

use crate::client::*;

const CONFIG: &str = "/zookeeper/config";

const SERVERS: &str = "server.1=a:2888:3888:participant;0.0.0.0:2181
server.2=b:2888:3888:participant;0.0.0.0:2181
server.3=c:2888:3888:participant;0.0.0.0:2181";

/// The digest of `super:pw`.
const SUPER: &str = "super:0bX78nEegDzJM3ju0iLBEJdWzjg=";

fn config() -> ServerConfig {
    ServerConfig::default().reconfig_enabled(true).dynamic_config(SERVERS).super_digest(SUPER)
}

fn reconfig(
    joining: Option<&str>,
    leaving: Option<&str>,
    new: Option<&str>,
    config_id: i64,
) -> Request {
    Request::Reconfig(ReconfigRequest {
        joining_servers: joining.map(Into::into),
        leaving_servers: leaving.map(Into::into),
        new_members: new.map(Into::into),
        config_id,
    })
}

/// Starts a session of the administrator.
async fn administrator(server: &TestServer) -> Client {
    let mut client = Client::new(server).await;
    let auth = AuthPacket { scheme: "digest".into(), auth: Some("super:pw".into()) };
    client.send_as(xid::AUTH, &Request::Auth(auth)).await;
    let Got::Reply(header, _) = client.next(OpCode::AUTH).await else { panic!("a reply") };
    assert_eq!(header.err, ErrorCode::OK);
    client
}

fn text(reply: &DataReply) -> String {
    String::from_utf8(reply.data.clone().unwrap_or_default().to_vec()).expect("text")
}

async fn read(client: &mut Client) -> DataReply {
    let Response::GetData(reply) = client.ok(&get_data(CONFIG, false)).await else {
        panic!("data")
    };
    reply
}

#[tokio::test(start_paused = true)]
async fn an_incremental_change_replaces_the_configuration_and_fires_the_watch() {
    let server = TestServer::start(config());
    let mut admin = administrator(&server).await;
    let mut watcher = Client::new(&server).await;
    assert_eq!(text(&read(&mut watcher).await), format!("{SERVERS}\nversion=0"));
    watcher.ok(&get_data(CONFIG, true)).await;
    let request = reconfig(Some("server.4=d:2888:3888;2182"), Some("2, 9"), None, 0);
    let (header, result) = admin.call_full(&request).await;
    let Ok(Response::Reconfig(reply)) = result else { panic!("{result:?}") };
    let expected = format!(
        "server.1=a:2888:3888:participant;0.0.0.0:2181\n\
         server.3=c:2888:3888:participant;0.0.0.0:2181\n\
         server.4=d:2888:3888:participant;0.0.0.0:2182\n\
         version={:x}",
        header.zxid.0
    );
    assert_eq!(text(&reply), expected);
    assert_eq!((reply.stat.version, reply.stat.mzxid), (Version(-1), header.zxid));
    assert_eq!(watcher.event().await, (EventType::NODE_DATA_CHANGED, CONFIG.to_owned()));
    assert_eq!(read(&mut watcher).await, reply);
    let stale = reconfig(Some("server.5=e:2888:3888;2182"), None, None, 0);
    assert_eq!(admin.code(&stale).await, ErrorCode::BAD_VERSION);
    let next = reconfig(None, Some("4"), None, header.zxid.0);
    admin.ok(&next).await;
}

#[tokio::test(start_paused = true)]
async fn a_complete_change_names_all_servers() {
    let server = TestServer::start(config());
    let mut admin = administrator(&server).await;
    let all = "server.1=a:1:2;3,server.2=b:1:2:participant,server.7=x:1:2:observer;3";
    let (header, result) = admin.call_full(&reconfig(None, None, Some(all), -1)).await;
    let Ok(Response::Reconfig(reply)) = result else { panic!("{result:?}") };
    let expected = format!(
        "server.1=a:1:2:participant;0.0.0.0:3\nserver.2=b:1:2:participant\n\
         server.7=x:1:2:observer;0.0.0.0:3\nversion={:x}",
        header.zxid.0
    );
    assert_eq!(text(&reply), expected);
}

#[tokio::test(start_paused = true)]
async fn illegal_changes_are_refused_and_change_nothing() {
    let server = TestServer::start(config());
    let mut admin = administrator(&server).await;
    let bad = ErrorCode::BAD_ARGUMENTS;
    for (joining, leaving, new, expected) in [
        (Some("server.4=d:1:2"), None, None, bad),
        (Some("server.4"), None, None, bad),
        // Found on 3.8.0.
        (Some("server.4=d:1:1:observer;2181"), None, None, bad),
        (Some("server.4=d:1:2:observer;2181;2281"), None, None, bad),
        (Some("server.4=d:1:2|d:1:2:observer;2181"), None, None, bad),
        (Some("server.4=d:1:70000:observer;2181"), None, None, ErrorCode::MARSHALLING_ERROR),
        (Some("server.4=d:1:2;3=4"), None, None, bad),
        (Some("server.x=d:1:2;3"), None, None, ErrorCode::MARSHALLING_ERROR),
        (None, Some("x"), None, ErrorCode::MARSHALLING_ERROR),
        (None, Some("1,2"), None, bad),
        (Some("server.1=a:1:2:observer;3,server.2=b:1:2:observer;3"), None, None, bad),
        (None, None, Some("server.1=a:1:2;3"), bad),
        (None, None, Some("server.1=a:1:2;3\nserver.2=b"), bad),
        (None, None, Some("server.1=a:1:2;3\npeers=2"), bad),
        // Servers 7 to 9 do not run.
        (
            None,
            None,
            Some("server.1=a:1:2,server.7=g:1:2,server.8=h:1:2,server.9=i:1:2"),
            ErrorCode::NEW_CONFIG_NO_QUORUM,
        ),
    ] {
        let before = server.zxid();
        let (header, result) = admin.call_full(&reconfig(joining, leaving, new, -1)).await;
        assert_eq!(result, Err(expected), "{joining:?} {leaving:?} {new:?}");
        assert_eq!(header.zxid.0, before.0 + 1, "an attempt takes a zxid");
    }
    assert!(text(&read(&mut admin).await).ends_with("version=0"));
}

#[tokio::test(start_paused = true)]
async fn reconfiguration_needs_permission_to_write_the_configuration() {
    let server = TestServer::start(config());
    let mut client = Client::new(&server).await;
    let request = reconfig(None, Some("3"), None, -1);
    assert_eq!(client.code(&request).await, ErrorCode::NO_AUTH);
    let set = SetAclRequest {
        path: CONFIG.into(),
        acl: vec![Acl::new(Permissions::ALL, "world", "anyone")],
        version: Version::ANY,
    };
    administrator(&server).await.ok(&Request::SetAcl(set)).await;
    client.ok(&request).await;
}

#[tokio::test(start_paused = true)]
async fn servers_that_cannot_reconfigure_say_why() {
    let enabled = ServerConfig::default().reconfig_enabled(true);
    for (config, expected) in [
        (ServerConfig::default(), ErrorCode::RECONFIG_DISABLED),
        (ServerConfig::default().dynamic_config(SERVERS), ErrorCode::RECONFIG_DISABLED),
        (enabled, ErrorCode::UNIMPLEMENTED),
    ] {
        let server = TestServer::start(config);
        let mut client = Client::new(&server).await;
        let (header, result) = client.call_full(&reconfig(None, Some("3"), None, -1)).await;
        assert_eq!(result, Err(expected));
        assert_eq!(header.zxid, server.zxid(), "the connection stays open");
        client.ok(&Request::Ping).await;
    }
    let server = TestServer::start(config().version(ServerVersion::V3_4));
    let mut client = Client::new(&server).await;
    let (header, result) = client.call_full(&reconfig(None, Some("3"), None, -1)).await;
    assert_eq!((result, header.zxid.0), (Err(ErrorCode::UNIMPLEMENTED), -1));
    client.assert_eof().await;
}

#[tokio::test(start_paused = true)]
async fn a_fault_can_report_a_reconfiguration_in_progress() {
    let server = TestServer::start(config());
    let mut admin = administrator(&server).await;
    let in_progress = Action::Error(ErrorCode::RECONFIG_IN_PROGRESS);
    server.inject(Fault::new(At::op(OpCode::RECONFIG), in_progress));
    let request = reconfig(None, Some("3"), None, -1);
    assert_eq!(admin.code(&request).await, ErrorCode::RECONFIG_IN_PROGRESS);
    admin.ok(&request).await;
}

#[tokio::test(start_paused = true)]
async fn followers_have_the_same_configuration() {
    let server = TestServer::start(config().members(2));
    let mut admin = administrator(&server.member(1)).await;
    admin.ok(&reconfig(None, Some("3"), None, -1)).await;
    let reply = read(&mut admin).await;
    assert_eq!(read(&mut Client::new(&server).await).await, reply);
    assert_ne!(reply.data, Some(Bytes::new()));
}

#[test]
#[should_panic(expected = "this is not a list of servers with a voter")]
fn a_configuration_without_a_voter_is_refused() {
    drop(ServerConfig::default().dynamic_config("server.1=a:1:2:observer;3"));
}

#[tokio::test(start_paused = true)]
async fn servers_may_have_several_addresses_if_that_is_enabled() {
    let joining = reconfig(Some("server.4=z:1:2|y:3:4:observer;2182"), None, None, -1);
    let refused = TestServer::start(config());
    assert_eq!(administrator(&refused).await.code(&joining).await, ErrorCode::BAD_ARGUMENTS);
    let several = SERVERS.replace("a:2888:3888", "a:2888:3888|aa:2888:3888");
    for config in [config().multi_address(true), config().dynamic_config(&several)] {
        let server = TestServer::start(config);
        let mut admin = administrator(&server).await;
        admin.ok(&joining).await;
        let text = text(&read(&mut admin).await);
        // Servers sort the addresses by the names of the hosts.
        assert!(text.contains("server.4=y:3:4|z:1:2:observer;0.0.0.0:2182\n"), "{text}");
    }
}
