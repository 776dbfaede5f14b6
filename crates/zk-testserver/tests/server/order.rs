//! Lists without a defined order are never sorted, so that no client relies on it.

use jute_codec::{AuthPacket, CreateMode, EventType, ReadOp, ReadResult, Request, Response};
use zk_testserver::{Order, ServerConfig, TestServer};

use crate::client::*;

const NAMES: [&str; 3] = ["lock-0000000000", "lock-0000000001", "lock-0000000002"];

/// Returns all lists of a server in its order: three lists of children, the ephemerals, the
/// identities, and the events at the end of a session.
async fn lists(config: ServerConfig) -> Vec<Vec<String>> {
    let server = TestServer::start(config);
    let mut client = Client::new(&server).await;
    client.create("/a", CreateMode::Persistent).await.expect("the path is free");
    for name in NAMES {
        client
            .create(&format!("/a/{name}"), CreateMode::Ephemeral)
            .await
            .expect("the path is free");
    }
    let auth = AuthPacket { scheme: "digest".into(), auth: Some("bob:secret".into()) };
    client.ok(&Request::Auth(auth)).await;
    let mut lists = Vec::new();
    for _ in 0..2 {
        let Response::GetChildren(names) = client.ok(&get_children("/a", false)).await else {
            panic!()
        };
        lists.push(names.iter().map(str::to_owned).collect());
    }
    let Request::GetChildren(get) = get_children("/a", false) else { panic!() };
    let Response::GetChildren2(reply) = client.ok(&Request::GetChildren2(get)).await else {
        panic!()
    };
    lists.push(reply.children.iter().map(str::to_owned).collect());
    let read = Request::MultiRead(vec![ReadOp::GetChildren("/a".into())]);
    let Response::MultiRead(results) = client.ok(&read).await else { panic!() };
    let [ReadResult::Children(names)] = &results[..] else { panic!() };
    lists.push(names.iter().map(str::to_owned).collect());
    assert!(lists.windows(2).all(|two| two.first() == two.last()), "nothing changed: {lists:?}");

    let list = Request::GetEphemerals(Some("/a/lock-000000000".into()));
    let Response::GetEphemerals(paths) = client.ok(&list).await else { panic!() };
    lists.push(paths.iter().map(ToString::to_string).collect());
    let Response::WhoAmI(who) = client.ok(&Request::WhoAmI).await else { panic!() };
    lists.push(who.iter().map(|id| id.auth_scheme.to_string()).collect());

    let mut watcher = Client::new(&server).await;
    for name in NAMES {
        watcher.ok(&exists(&format!("/a/{name}"), true)).await;
    }
    client.ok(&Request::CloseSession).await;
    let mut deleted = Vec::new();
    for _ in NAMES {
        let (kind, path) = watcher.event().await;
        assert_eq!(kind, EventType::NODE_DELETED);
        deleted.push(path);
    }
    lists.push(deleted);
    let names = server.children("/").expect("the root exists");
    assert_eq!(names, ["a", "zookeeper"], "tests get sorted lists");
    lists
}

#[tokio::test(start_paused = true)]
async fn lists_are_never_sorted_and_depend_only_on_the_seed() {
    let mut children = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let config = ServerConfig::default().order(Order::Seeded(seed));
        let lists_of_seed = lists(config.clone()).await;
        for list in &lists_of_seed {
            assert!(list.len() >= 2 && !list.is_sorted(), "{seed}: {list:?}");
        }
        assert_eq!(lists(config).await, lists_of_seed);
        children.insert(lists_of_seed[0].clone());
    }
    assert!(children.len() > 3, "different seeds give different orders: {children:?}");
    assert_eq!(lists(ServerConfig::default()).await, {
        lists(ServerConfig::default().order(Order::Seeded(0))).await
    });
}

#[tokio::test(start_paused = true)]
async fn lists_are_sorted_if_configured() {
    for list in lists(ServerConfig::default().order(Order::Sorted)).await {
        assert!(list.len() >= 2 && list.is_sorted(), "{list:?}");
    }
}
