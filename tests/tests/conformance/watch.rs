//! One-shot watches: which changes fire them, which do not, and in which order.

use jute_codec::{ReadRequest, Request, SetDataRequest, Version};
use zk_session::recipe::{Flight, Lane, LaneEvent, Operation, Session, Token, WatchNumber};
use zk_session::{
    Acl, Client, CreateMode, ErrorCode, EventType, Multi, OpError, WatchEnded, Watcher,
};
use zk_tests::bare::Bare as _;
use zk_tests::target::Fixture;
use zk_tests::wait::{assert_silent, catch_up, event, kind, soon};

const PERSISTENT: CreateMode = CreateMode::Persistent;
const CREATED: EventType = EventType::NODE_CREATED;
const DELETED: EventType = EventType::NODE_DELETED;
const CHANGED: EventType = EventType::NODE_DATA_CHANGED;
const CHILDREN: EventType = EventType::NODE_CHILDREN_CHANGED;

async fn on_existence(client: &Client, path: &str) -> Watcher {
    client.exists_and_watch(path).await.unwrap().1
}

async fn on_data(client: &Client, path: &str) -> Watcher {
    client.get_data_and_watch(path).await.unwrap().1
}

async fn on_children(client: &Client, path: &str) -> Watcher {
    client.get_children_and_watch(path).await.unwrap().1
}

#[tokio::test]
async fn a_watch_on_existence_sees_every_change_of_the_znode() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let (stat, mut watcher) = client.exists_and_watch("/a").await.unwrap();
    assert_eq!((stat, watcher.path()), (None, "/a"));
    client.create("/a", "", PERSISTENT).await.unwrap();
    let seen = event(&mut watcher).await;
    assert_eq!((seen.kind, seen.path.as_ref()), (CREATED, "/a"));

    let (stat, mut watcher) = client.exists_and_watch("/a").await.unwrap();
    assert!(stat.is_some());
    client.set_data("/a", "x", None).await.unwrap();
    assert_eq!(kind(&mut watcher).await, CHANGED);

    let mut watcher = on_existence(&client, "/a").await;
    client.delete("/a", None).await.unwrap();
    assert_eq!(kind(&mut watcher).await, DELETED);
}

#[tokio::test]
async fn a_watch_on_data_sees_changes_and_the_deletion() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let stat = client.create("/a", "x", PERSISTENT).await.unwrap().stat;
    let (read, mut watcher) = client.get_data_and_watch("/a").await.unwrap();
    assert_eq!(read, ("x".into(), stat));
    client.set_data("/a", "x", None).await.unwrap();
    assert_eq!(kind(&mut watcher).await, CHANGED);

    let mut watcher = on_data(&client, "/a").await;
    client.delete("/a", None).await.unwrap();
    assert_eq!(kind(&mut watcher).await, DELETED);
}

#[tokio::test]
async fn a_watch_on_children_sees_them_come_and_go_and_the_deletion() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    let (names, mut watcher) = client.get_children_and_watch("/a").await.unwrap();
    assert!(names.is_empty());
    client.create("/a/b", "", PERSISTENT).await.unwrap();
    let seen = event(&mut watcher).await;
    assert_eq!((seen.kind, seen.path.as_ref()), (CHILDREN, "/a"));

    let ((names, stat), mut watcher) = client.get_children_with_stat_and_watch("/a").await.unwrap();
    assert_eq!((names, stat.num_children), (vec!["b".into()], 1));
    client.delete("/a/b", None).await.unwrap();
    assert_eq!(kind(&mut watcher).await, CHILDREN);

    let mut watcher = on_children(&client, "/a").await;
    client.delete("/a", None).await.unwrap();
    assert_eq!(kind(&mut watcher).await, DELETED);
}

#[tokio::test]
async fn changes_of_another_kind_do_not_fire() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    client.create("/a/b", "", PERSISTENT).await.unwrap();
    let mut data = on_data(&client, "/a").await;
    let mut existence = on_existence(&client, "/a").await;
    client.create("/a/c", "", PERSISTENT).await.unwrap();
    client.set_acl("/a", Acl::open(), None).await.unwrap();
    assert_silent(&client, &mut data).await;
    assert_silent(&client, &mut existence).await;

    let mut children = on_children(&client, "/a").await;
    client.set_data("/a", "x", None).await.unwrap();
    client.set_data("/a/b", "x", None).await.unwrap();
    client.create("/a/b/deep", "", PERSISTENT).await.unwrap();
    assert_silent(&client, &mut children).await;
    assert_eq!((kind(&mut data).await, kind(&mut existence).await), (CHANGED, CHANGED));
}

#[tokio::test]
async fn refused_writes_do_not_fire() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    let mut data = on_data(&client, "/a").await;
    let mut children = on_children(&client, "/a").await;
    let wrong = Some(Version(9));
    client.set_data("/a", "", wrong).await.unwrap_err();
    client.delete("/a", wrong).await.unwrap_err();
    client.create("/a", "", PERSISTENT).await.unwrap_err();
    let multi = Multi::new().set_data("/a", "x", None).create("/a/b", "", PERSISTENT);
    client.commit(multi.check("/a", wrong)).await.unwrap_err();
    assert_silent(&client, &mut data).await;
    assert_silent(&client, &mut children).await;
}

#[tokio::test]
async fn a_watch_fires_once() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    let mut watcher = on_data(&client, "/a").await;
    client.set_data("/a", "1", None).await.unwrap();
    client.set_data("/a", "2", None).await.unwrap();
    assert_eq!(kind(&mut watcher).await, CHANGED);
    assert_eq!(watcher.changed().await, Err(WatchEnded::Closed));
    // Another read sets another watch.
    let mut again = on_data(&client, "/a").await;
    assert_silent(&client, &mut again).await;
    client.set_data("/a", "3", None).await.unwrap();
    assert_eq!(kind(&mut again).await, CHANGED);
}

#[tokio::test]
async fn a_failed_read_leaves_no_watch() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let no_node = OpError::server(ErrorCode::NO_NODE);
    assert_eq!(client.get_data_and_watch("/a").await.unwrap_err().bare(), no_node);
    assert_eq!(client.get_children_and_watch("/a").await.unwrap_err().bare(), no_node);
    client.create("/a", "", PERSISTENT).await.unwrap();
    let mut watcher = on_data(&client, "/a").await;
    assert_silent(&client, &mut watcher).await;
    assert_eq!(client.status().connection, 1);
}

#[tokio::test]
async fn every_watcher_of_a_znode_gets_the_event() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    client.create("/a", "", PERSISTENT).await.unwrap();
    catch_up(&other).await;
    let mut watchers = vec![
        on_data(&client, "/a").await,
        on_data(&client, "/a").await,
        on_existence(&client, "/a").await,
        on_data(&other, "/a").await,
        on_existence(&other, "/a").await,
    ];
    client.set_data("/a", "x", None).await.unwrap();
    for watcher in &mut watchers {
        assert_eq!(kind(watcher).await, CHANGED);
    }
}

#[tokio::test]
async fn a_deletion_ends_the_watches_on_data_and_on_children() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    let mut watchers = vec![
        on_data(&client, "/a").await,
        on_children(&client, "/a").await,
        on_existence(&client, "/a").await,
        on_children(&client, "/a").await,
    ];
    client.delete("/a", None).await.unwrap();
    for watcher in &mut watchers {
        assert_eq!(kind(watcher).await, DELETED);
    }
    // No watch remains that another znode with this name could fire.
    client.create("/a", "", PERSISTENT).await.unwrap();
    let mut next = on_children(&client, "/a").await;
    assert_silent(&client, &mut next).await;
}

#[tokio::test]
async fn a_dropped_watcher_takes_nothing_from_the_others() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    let dropped = on_data(&client, "/a").await;
    let mut kept = on_data(&client, "/a").await;
    let also_dropped = on_children(&client, "/a").await;
    drop((dropped, also_dropped));
    client.create("/a/b", "", PERSISTENT).await.unwrap();
    client.set_data("/a", "x", None).await.unwrap();
    assert_eq!(kind(&mut kept).await, CHANGED);
    // The events of the dropped watches have disturbed nothing.
    let mut after = on_children(&client, "/a").await;
    client.delete("/a/b", None).await.unwrap();
    assert_eq!(kind(&mut after).await, CHILDREN);
    assert_eq!(client.status().connection, 1);
}

#[tokio::test]
async fn the_end_of_a_session_fires_the_watches_on_its_ephemerals() {
    let fixture = Fixture::start().await;
    let (owner, watching) = (fixture.client().await, fixture.client().await);
    owner.create("/d", "", PERSISTENT).await.unwrap();
    for path in ["/d/one", "/d/two"] {
        owner.create(path, "", CreateMode::Ephemeral).await.unwrap();
    }
    catch_up(&watching).await;
    let mut one = on_existence(&watching, "/d/one").await;
    let mut two = on_data(&watching, "/d/two").await;
    let mut children = on_children(&watching, "/d").await;
    owner.close().await;
    assert_eq!((kind(&mut one).await, kind(&mut two).await), (DELETED, DELETED));
    assert_eq!(kind(&mut children).await, CHILDREN);
    assert_eq!(watching.get_children("/d").await, Ok(vec![]));
}

#[tokio::test]
async fn watches_end_with_their_client() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let mut watcher = on_existence(&client, "/a").await;
    client.close().await;
    assert_eq!(watcher.changed().await, Err(WatchEnded::Closed));
}

/// Submits requests as one flight. A request with a number sets a watch with that number.
fn submit(lane: &mut Lane, requests: Vec<(Request, Option<u64>)>) -> Token {
    let operation = |(request, number): (Request, Option<u64>)| Operation {
        request,
        watch: number.map(|number| WatchNumber::new(number).expect("it is not zero")),
        is_shared: false,
    };
    let operations = requests.into_iter().map(operation).collect();
    lane.submit(Flight { operations, session: None, deadline: None }).unwrap()
}

/// Returns the next replies and watch events, without session events: `"reply"`, or the number of
/// the watch and its event.
async fn story(lane: &mut Lane, length: usize) -> Vec<String> {
    let mut story = Vec::new();
    while story.len() < length {
        match soon("an event of the lane", lane.next()).await {
            LaneEvent::Reply { reply, .. } => {
                assert!(reply.results.iter().all(Result::is_ok), "{reply:?}");
                story.push("reply".to_owned());
            }
            LaneEvent::Watch { number, kind } => story.push(format!("{} {kind:?}", number.get())),
            LaneEvent::Change(_) => {}
            _ => panic!("the client lives on"),
        }
    }
    story
}

fn read(path: &str) -> ReadRequest {
    ReadRequest { path: path.into(), watch: true }
}

#[tokio::test]
async fn an_event_comes_before_the_reply_of_the_write_that_caused_it() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    let mut lane = Session::of(&client).lane();
    let set = |version| SetDataRequest { path: "/a".into(), data: None, version };
    submit(&mut lane, vec![(Request::GetData(read("/a")), Some(1))]);
    submit(&mut lane, vec![(Request::SetData(set(Version(0))), None)]);
    submit(&mut lane, vec![(Request::SetData(set(Version(1))), None)]);
    let changed = format!("1 {CHANGED:?}");
    assert_eq!(story(&mut lane, 4).await, ["reply", &changed, "reply", "reply"]);
}

#[tokio::test]
async fn another_clients_write_is_told_before_any_reply_that_reflects_it() {
    let fixture = Fixture::start().await;
    let (client, writer) = (fixture.client().await, fixture.client().await);
    client.create("/a", "", PERSISTENT).await.unwrap();
    let mut lane = Session::of(&client).lane();
    submit(&mut lane, vec![(Request::GetData(read("/a")), Some(1))]);
    assert_eq!(story(&mut lane, 1).await, ["reply"]);
    writer.set_data("/a", "x", None).await.unwrap();
    submit(&mut lane, vec![(Request::Sync("/a".into()), None)]);
    submit(&mut lane, vec![(Request::GetData(read("/a")), Some(2))]);
    let told = story(&mut lane, 3).await;
    let at = |what: &str| told.iter().rposition(|event| event == what);
    assert!(at(&format!("1 {CHANGED:?}")) < at("reply"), "{told:?}");
}

#[tokio::test]
async fn a_multi_tells_its_events_in_order_and_before_its_reply() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    for path in ["/a", "/b", "/p", "/p/gone"] {
        client.create(path, "", PERSISTENT).await.unwrap();
    }
    let mut lane = Session::of(&client).lane();
    let new = Request::GetChildren(read("/p"));
    submit(&mut lane, vec![(Request::GetData(read("/a")), Some(1)), (new, Some(2))]);
    submit(&mut lane, vec![(Request::GetData(read("/b")), Some(3))]);
    submit(&mut lane, vec![(Request::GetData(read("/p/gone")), Some(4))]);
    assert_eq!(story(&mut lane, 3).await, ["reply"; 3]);

    let multi = Multi::new()
        .set_data("/b", "x", None)
        .create("/p/new", "", PERSISTENT)
        .delete("/p/gone", None)
        .set_data("/a", "x", None);
    let commit = client.commit(multi);
    let expected = [
        format!("3 {CHANGED:?}"),
        format!("2 {CHILDREN:?}"),
        format!("4 {DELETED:?}"),
        format!("1 {CHANGED:?}"),
    ];
    assert_eq!(story(&mut lane, 4).await, expected);
    commit.await.unwrap();
}
