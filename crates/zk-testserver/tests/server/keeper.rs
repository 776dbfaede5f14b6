//! ClickHouse Keeper, as far as it differs from ZooKeeper.

use std::time::Duration;

use jute_codec::{
    AddWatchMode, AddWatchRequest, CreateMode, MultiOp, OpCode, Request, SessionId, SetWatches,
    Ttl, Zxid,
};
use zk_testserver::{ServerConfig, ServerVersion, TestServer};

use crate::client::*;

fn keeper(members: usize) -> TestServer {
    let config = ServerConfig::default().version(ServerVersion::Keeper).members(members);
    TestServer::start(config)
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reconnects_gets_another_session_and_the_old_one_expires() {
    let server = keeper(1);
    let mut first = Client::new(&server).await;
    assert_eq!(first.password, [0; 16].as_slice(), "sessions have no password");
    first.create("/a", CreateMode::Ephemeral).await.unwrap();
    first.hang_up();

    let mut second = Client::raw(&server);
    // A Keeper ignores what the client has seen, too.
    let request = handshake(first.session, &first.password, Zxid(1 << 40));
    let response = second.connect(request).await.expect("it replies");
    assert_ne!(response.session_id, first.session);
    assert_eq!((response.protocol_version, response.read_only), (0, None));
    assert_eq!(server.sessions(), [first.session, second.session]);
    assert!(server.children("/").expect("the root exists").contains(&"a".to_owned()));
    for _ in 0..4 {
        sleep(Duration::from_secs(4)).await;
        second.ok(&Request::Ping).await;
    }
    assert_eq!(server.sessions(), [second.session]);
    assert!(!server.children("/").expect("the root exists").contains(&"a".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn session_timeouts_are_those_of_keeper() {
    for (requested, granted) in [(0, 10_000), (12_000, 12_000), (1_000_000, 100_000)] {
        let server = keeper(1);
        let mut client = Client::raw(&server);
        let mut request = handshake(SessionId::NONE, &[0; 16], Zxid(0));
        request.timeout_ms = requested;
        assert_eq!(client.connect(request).await.expect("it replies").timeout_ms, granted);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_leader_it_refuses_with_a_protocol_version_of_its_own() {
    let server = keeper(3);
    server.elect(Duration::from_secs(2));
    let mut client = Client::raw(&server);
    let request = handshake(SessionId::NONE, &[0; 16], Zxid(0));
    let response = client.connect(request).await.expect("it replies");
    assert_eq!((response.protocol_version, response.session_id), (42, SessionId(-1)));
    assert_eq!(response.timeout_ms, 10_000);
    client.assert_eof().await;
    assert_eq!(server.sessions(), []);
    sleep(Duration::from_secs(3)).await;
    Client::new(&server).await;
}

#[tokio::test(start_paused = true)]
async fn it_hangs_up_without_a_reply_where_it_does_not_know_a_request() {
    let ttl = CreateMode::PersistentTtl(Ttl::from_millis(1_000).expect("legal"));
    let add = AddWatchRequest { path: "/a".into(), mode: AddWatchMode::PERSISTENT };
    let set_watches = SetWatches {
        relative_zxid: Zxid(0),
        data: Vec::new(),
        exist: vec!["/a".into()],
        child: Vec::new(),
    };
    let container = MultiOp::Create(create_request("/a", CreateMode::Container));
    for request in [
        create("/a", CreateMode::Container),
        create("/a", ttl),
        Request::AddWatch(add),
        Request::SetWatches(set_watches),
        Request::GetEphemerals(None),
        Request::WhoAmI,
        Request::Multi(vec![container]),
    ] {
        let server = keeper(1);
        let mut client = Client::new(&server).await;
        client.send(&request).await;
        client.assert_eof().await;
        assert_eq!(server.children("/"), Some(vec!["zookeeper".to_owned()]), "{request:?}");
        assert_eq!(server.sessions(), [client.session], "the session expires by itself");
    }
}

#[tokio::test(start_paused = true)]
async fn its_event_has_no_zxid_and_it_reports_itself() {
    let server = keeper(1);
    let mut client = Client::new(&server).await;
    client.create("/a", CreateMode::Persistent).await.unwrap();
    client.ok(&exists("/a", true)).await;
    server.admin_delete("/a");
    assert!(
        matches!(client.next(OpCode::EXISTS).await, Got::Event(Zxid(-1), _, path) if path == "/a")
    );
    let known = server.requests().iter().filter(|it| it.op == OpCode::EXISTS).count();
    assert_eq!(known, 1);
    assert_eq!(server.children("/zookeeper/config"), None, "Keeper has /keeper/config");
}
