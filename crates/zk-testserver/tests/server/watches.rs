//! Which change triggers which watch, and in which order.

use jute_codec::{
    Acl, AddWatchMode, AddWatchRequest, CreateMode, ErrorCode, EventType, OpCode, Permissions,
    Request, Response, SetWatches, SetWatches2, WatcherType, WatchesRequest, Zxid,
};
use zk_testserver::{ServerConfig, ServerVersion, TestServer};

use crate::client::*;

const CREATED: EventType = EventType::NODE_CREATED;
const DELETED: EventType = EventType::NODE_DELETED;
const DATA: EventType = EventType::NODE_DATA_CHANGED;
const CHILDREN: EventType = EventType::NODE_CHILDREN_CHANGED;

fn add_watch(path: &str, mode: AddWatchMode) -> Request {
    Request::AddWatch(AddWatchRequest { path: path.into(), mode })
}

fn watches(path: &str, kind: WatcherType) -> WatchesRequest {
    WatchesRequest { path: path.into(), kind }
}

/// Sends a request and returns the events that precede its reply.
async fn events(client: &mut Client, request: &Request) -> Vec<(EventType, String)> {
    client.send(request).await;
    let mut events = Vec::new();
    loop {
        match client.next(request.op()).await {
            Got::Event(_, kind, path) => events.push((kind, path)),
            Got::Reply(..) => return events,
            Got::Eof => panic!("the connection was closed"),
        }
    }
}

fn named(expected: &[(EventType, &str)]) -> Vec<(EventType, String)> {
    expected.iter().map(|(kind, path)| (*kind, (*path).to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn one_shot_watches_trigger_once_and_before_the_reply() {
    let server = start();
    let mut client = Client::new(&server).await;
    assert_eq!(client.code(&exists("/a", true)).await, ErrorCode::NO_NODE);
    client.ok(&get_children("/", true)).await;
    let seen = events(&mut client, &create("/a", CreateMode::Persistent)).await;
    assert_eq!(seen, named(&[(CREATED, "/a"), (CHILDREN, "/")]));
    assert_eq!(events(&mut client, &set_data("/a", -1)).await, []);
    client.ok(&get_data("/a", true)).await;
    client.ok(&exists("/a", true)).await;
    assert_eq!(server.watch_count(), 1, "a path has one watch per connection");
    assert_eq!(events(&mut client, &set_data("/a", -1)).await, named(&[(DATA, "/a")]));
    assert_eq!(events(&mut client, &set_data("/a", -1)).await, []);
    assert_eq!(server.watch_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn delete_notifies_once_per_connection_then_the_parent() {
    let server = start();
    let mut client = Client::new(&server).await;
    client.create("/a", CreateMode::Persistent).await.unwrap();
    client.ok(&get_data("/a", true)).await;
    client.ok(&get_children("/a", true)).await;
    client.ok(&get_children("/", true)).await;
    let seen = events(&mut client, &delete("/a", -1)).await;
    assert_eq!(seen, named(&[(DELETED, "/a"), (CHILDREN, "/")]));
    assert_eq!(server.watch_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn failed_reads_set_no_watch_and_failed_writes_trigger_none() {
    let server = start();
    let mut client = Client::new(&server).await;
    assert_eq!(client.code(&get_data("/a", true)).await, ErrorCode::NO_NODE);
    assert_eq!(client.code(&get_children("/a", true)).await, ErrorCode::NO_NODE);
    assert_eq!(server.watch_count(), 0);
    client.ok(&get_data("/", true)).await;
    assert_eq!(events(&mut client, &set_data("/", 7)).await, []);
    assert_eq!(server.watch_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn persistent_watches_stay() {
    let server = start();
    let mut client = Client::new(&server).await;
    client.ok(&add_watch("/a", AddWatchMode::PERSISTENT)).await;
    for _ in 0..2 {
        let seen = events(&mut client, &create("/a", CreateMode::Persistent)).await;
        assert_eq!(seen, named(&[(CREATED, "/a")]));
        let seen = events(&mut client, &create("/a/b", CreateMode::Persistent)).await;
        assert_eq!(seen, named(&[(CHILDREN, "/a")]));
        let seen = events(&mut client, &delete("/a/b", -1)).await;
        assert_eq!(seen, named(&[(CHILDREN, "/a")]));
        assert_eq!(events(&mut client, &delete("/a", -1)).await, named(&[(DELETED, "/a")]));
    }
}

#[tokio::test(start_paused = true)]
async fn recursive_watches_cover_the_subtree_but_no_child_lists() {
    for version in [ServerVersion::V3_8, ServerVersion::V3_9] {
        let server = TestServer::start(ServerConfig::default().version(version));
        let mut client = Client::new(&server).await;
        client.ok(&add_watch("/", AddWatchMode::PERSISTENT_RECURSIVE)).await;
        let script = [
            (create("/a", CreateMode::Persistent), (CREATED, "/a")),
            (create("/a/b", CreateMode::Persistent), (CREATED, "/a/b")),
            (set_data("/a/b", -1), (DATA, "/a/b")),
            (delete("/a/b", -1), (DELETED, "/a/b")),
        ];
        for (request, event) in script {
            assert_eq!(events(&mut client, &request).await, named(&[event]));
        }
        let unknown = add_watch("/", AddWatchMode(2));
        assert_eq!(client.code(&unknown).await, ErrorCode::MARSHALLING_ERROR);
    }
}

#[tokio::test(start_paused = true)]
async fn event_header_depends_on_the_version() {
    for (version, expected) in [(ServerVersion::V3_8, -1), (ServerVersion::V3_9, 2)] {
        let server = TestServer::start(ServerConfig::default().version(version));
        let mut client = Client::new(&server).await;
        client.code(&exists("/a", true)).await;
        client.send(&create("/a", CreateMode::Persistent)).await;
        let event = client.next(OpCode::CREATE).await;
        assert_eq!(event, Got::Event(Zxid(expected), CREATED, "/a".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn restored_watches_send_events_for_missed_changes() {
    let server = start();
    let mut client = Client::new(&server).await;
    for path in ["/same", "/changed", "/there", "/parent"] {
        client.create(path, CreateMode::Persistent).await.unwrap();
    }
    let relative_zxid = server.zxid();
    client.ok(&set_data("/changed", -1)).await;
    client.create("/parent/x", CreateMode::Persistent).await.unwrap();
    let paths = |paths: &[&str]| paths.iter().map(|path| (*path).into()).collect::<Vec<_>>();
    let set = Request::SetWatches2(SetWatches2 {
        relative_zxid,
        data: paths(&["/same", "/changed", "/gone"]),
        exist: paths(&["/there", "/later"]),
        child: paths(&["/gone", "/same", "/parent"]),
        persistent: paths(&["/gone"]),
        persistent_recursive: paths(&["/rec"]),
    });
    let seen = events(&mut client, &set).await;
    let expected = [
        (DATA, "/changed"),
        (DELETED, "/gone"),
        (CREATED, "/there"),
        (DELETED, "/gone"),
        (CHILDREN, "/parent"),
    ];
    assert_eq!(seen, named(&expected));
    assert_eq!(server.watch_count(), 5);
    let seen = events(&mut client, &delete("/same", -1)).await;
    assert_eq!(seen, named(&[(DELETED, "/same")]));
    let seen = events(&mut client, &create("/rec", CreateMode::Persistent)).await;
    assert_eq!(seen, named(&[(CREATED, "/rec")]));
    let one =
        SetWatches { relative_zxid: Zxid(0), data: paths(&["/rec"]), exist: vec![], child: vec![] };
    let seen = events(&mut client, &Request::SetWatches(one)).await;
    assert_eq!(seen, named(&[(DATA, "/rec")]));
}

#[tokio::test(start_paused = true)]
async fn watches_are_removed_by_kind() {
    for version in [ServerVersion::V3_8, ServerVersion::V3_9] {
        let is_old = version == ServerVersion::V3_8;
        let server = TestServer::start(ServerConfig::default().version(version));
        let mut client = Client::new(&server).await;
        let mut other = Client::new(&server).await;
        let remove = |kind| Request::RemoveWatches(watches("/", kind));
        let check = |kind| Request::CheckWatches(watches("/", kind));
        let none = ErrorCode::NO_WATCHER;
        assert_eq!(client.code(&remove(WatcherType::ANY)).await, none);
        assert_eq!(client.code(&remove(WatcherType(9))).await, ErrorCode::MARSHALLING_ERROR);
        client.ok(&get_data("/", true)).await;
        assert_eq!(client.code(&check(WatcherType::DATA)).await, ErrorCode::OK);
        assert_eq!(client.code(&check(WatcherType::CHILDREN)).await, none);
        let foreign = if is_old { ErrorCode::OK } else { none };
        assert_eq!(other.code(&check(WatcherType::DATA)).await, foreign);
        client.ok(&remove(WatcherType::DATA)).await;
        assert_eq!(server.watch_count(), 0);

        client.ok(&add_watch("/", AddWatchMode::PERSISTENT)).await;
        let (by_type_4, by_type_2) = match is_old {
            true => (ErrorCode::MARSHALLING_ERROR, ErrorCode::OK),
            false => (ErrorCode::OK, none),
        };
        assert_eq!(client.code(&check(WatcherType::PERSISTENT)).await, by_type_4);
        assert_eq!(client.code(&remove(WatcherType::DATA)).await, by_type_2);
        client.ok(&remove(WatcherType::ANY)).await;
        assert_eq!(server.watch_count(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn one_shot_watch_downgrades_a_persistent_one_before_3_9() {
    for (version, survives) in [(ServerVersion::V3_8, false), (ServerVersion::V3_9, true)] {
        let server = TestServer::start(ServerConfig::default().version(version));
        let mut client = Client::new(&server).await;
        client.ok(&add_watch("/", AddWatchMode::PERSISTENT)).await;
        client.ok(&get_data("/", true)).await;
        assert_eq!(events(&mut client, &set_data("/", -1)).await.len(), 1);
        assert_eq!(events(&mut client, &set_data("/", -1)).await.len(), usize::from(survives));
    }
}

#[tokio::test(start_paused = true)]
async fn events_are_withheld_from_clients_without_read_permission() {
    let server = start();
    let mut client = Client::new(&server).await;
    client.code(&exists("/a", true)).await;
    client.ok(&get_children("/", true)).await;
    let acl = vec![Acl::new(Permissions::WRITE, "world", "anyone")];
    let seen = events(&mut client, &create_with_acl("/a", acl)).await;
    assert_eq!(seen, named(&[(CHILDREN, "/")]));
    assert_eq!(server.watch_count(), 0, "the event was withheld, but the watch was removed");
}

#[tokio::test(start_paused = true)]
async fn watches_end_with_their_connection() {
    let server = start();
    let mut client = Client::new(&server).await;
    client.ok(&get_data("/", true)).await;
    let mut next = Client::resume(&server, &client).await;
    assert_eq!(server.watch_count(), 0);
    assert_eq!(events(&mut next, &set_data("/", -1)).await, []);
    assert_eq!(next.ok(&Request::Ping).await, Response::Empty);
}
