//! Reading, writing, listing, deleting.

use bytes::Bytes;
use jute_codec::{CreateRequest, ReadRequest, Request, Response, SetDataRequest};
use zk_session::recipe::{Flight, LaneEvent, Operation, Session};
use zk_session::{Acl, Client, CreateMode, ErrorCode, OpError, Version};
use zk_tests::bare::Bare as _;
use zk_tests::target::Fixture;
use zk_tests::wait::soon;

const PERSISTENT: CreateMode = CreateMode::Persistent;

fn server<T>(code: ErrorCode) -> Result<T, OpError> {
    Err(OpError::server(code))
}

#[tokio::test]
async fn nothing_can_be_done_with_a_missing_znode() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    for path in ["/missing", "/missing/child"] {
        assert_eq!(client.exists(path).await, Ok(None));
        assert_eq!(client.get_data(path).await.bare(), server(ErrorCode::NO_NODE));
        assert_eq!(client.set_data(path, "x", None).await.bare(), server(ErrorCode::NO_NODE));
        assert_eq!(
            client.set_data(path, "x", Some(Version(3))).await.bare(),
            server(ErrorCode::NO_NODE)
        );
        assert_eq!(client.get_children(path).await.bare(), server(ErrorCode::NO_NODE));
        assert_eq!(client.get_children_with_stat(path).await.bare(), server(ErrorCode::NO_NODE));
        assert_eq!(client.get_acl(path).await.bare(), server(ErrorCode::NO_NODE));
        assert_eq!(
            client.set_acl(path, Acl::open(), None).await.bare(),
            server(ErrorCode::NO_NODE)
        );
        assert_eq!(client.delete(path, None).await.bare(), server(ErrorCode::NO_NODE));
        assert_eq!(client.delete(path, Some(Version(3))).await.bare(), server(ErrorCode::NO_NODE));
    }
}

#[tokio::test]
async fn set_data_changes_data_version_mzxid_and_mtime_only() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let before = client.create("/a", "one", PERSISTENT).await.unwrap().stat;
    let after = client.set_data("/a", "three", Some(Version(0))).await.unwrap();
    assert!(after.mzxid > before.mzxid && after.mtime >= before.mtime);
    let mut expected = before;
    (expected.version, expected.data_length) = (Version(1), 5);
    (expected.mzxid, expected.mtime) = (after.mzxid, after.mtime);
    assert_eq!(after, expected);
    assert_eq!(client.get_data("/a").await, Ok(("three".into(), after)));
}

#[tokio::test]
async fn set_data_needs_the_version_it_is_given() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/a", "0", PERSISTENT).await.unwrap();
    assert_eq!(
        client.set_data("/a", "x", Some(Version(1))).await.bare(),
        server(ErrorCode::BAD_VERSION)
    );
    for version in 0..3 {
        let stat = client.set_data("/a", "x", Some(Version(version))).await.unwrap();
        assert_eq!(stat.version, Version(version + 1));
    }
    assert_eq!(
        client.set_data("/a", "y", Some(Version(2))).await.bare(),
        server(ErrorCode::BAD_VERSION)
    );
    assert_eq!(client.set_data("/a", "z", None).await.unwrap().version, Version(4));
    assert_eq!(client.get_data("/a").await.unwrap().0, "z");
}

#[tokio::test]
async fn deletes_are_refused_for_the_reason() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    client.create("/a/b", "", PERSISTENT).await.unwrap();
    client.set_data("/a", "", None).await.unwrap();
    // The server checks the version before the children.
    assert_eq!(client.delete("/a", Some(Version(0))).await.bare(), server(ErrorCode::BAD_VERSION));
    assert_eq!(client.delete("/a", Some(Version(1))).await.bare(), server(ErrorCode::NOT_EMPTY));
    assert_eq!(client.delete("/a", None).await.bare(), server(ErrorCode::NOT_EMPTY));
    assert_eq!(client.delete("/a/b", Some(Version(0))).await, Ok(()));
    assert_eq!(client.delete("/a", Some(Version(1))).await, Ok(()));
    assert_eq!(client.delete("/a", None).await.bare(), server(ErrorCode::NO_NODE));
}

#[tokio::test]
async fn a_znode_made_again_starts_anew() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let first = client.create("/a", "x", PERSISTENT).await.unwrap().stat;
    client.create("/a/b", "", PERSISTENT).await.unwrap();
    client.set_data("/a", "y", None).await.unwrap();
    client.delete("/a/b", None).await.unwrap();
    client.delete("/a", None).await.unwrap();
    let second = client.create("/a", "x", PERSISTENT).await.unwrap().stat;
    assert!(second.czxid > first.czxid);
    assert_eq!((second.version, second.cversion), (Version(0), Version(0)));
    let sequential = client.create("/a/s", "", CreateMode::PersistentSequential).await.unwrap();
    assert_eq!(sequential.path, "/a/s0000000000");
}

#[tokio::test]
async fn children_are_listed_with_and_without_the_stat() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/a", "data", PERSISTENT).await.unwrap();
    assert_eq!(client.get_children("/a").await, Ok(vec![]));
    for name in ["x", "y", "z"] {
        client.create(&format!("/a/{name}"), "", PERSISTENT).await.unwrap();
    }
    client.create("/a/x/deep", "", PERSISTENT).await.unwrap();
    let mut names = client.get_children("/a").await.unwrap();
    let (mut same, stat) = client.get_children_with_stat("/a").await.unwrap();
    names.sort();
    same.sort();
    assert_eq!((names, &same), (same.clone(), &vec!["x".into(), "y".into(), "z".into()]));
    assert_eq!(client.exists("/a").await, Ok(Some(stat)));
    assert_eq!((stat.num_children, stat.cversion, stat.data_length), (3, Version(3), 4));
}

#[tokio::test]
async fn sync_answers_whether_or_not_the_znode_exists() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    assert_eq!(client.sync("/").await, Ok(()));
    assert_eq!(client.sync("/missing").await, Ok(()));
}

#[tokio::test]
async fn what_one_client_wrote_another_reads_once_its_server_has_caught_up() {
    let fixture = Fixture::start().await;
    let (writer, reader) = (fixture.client().await, fixture.client().await);
    for round in 0..20_u8 {
        let data = Bytes::from(vec![round; 10]);
        if round == 0 {
            writer.create("/a", data.clone(), PERSISTENT).await.unwrap();
        } else {
            writer.set_data("/a", data.clone(), None).await.unwrap();
        }
        reader.catch_up().await.unwrap();
        assert_eq!(reader.get_data("/a").await.unwrap().0, data);
    }
}

/// Sends one request as it is, and returns the reply.
async fn ask(client: &Client, request: Request) -> Response {
    let mut lane = Session::of(client).lane();
    let operations = vec![Operation::new(request)];
    lane.submit(Flight { operations, session: None, deadline: None }).unwrap();
    soon("a reply", async {
        loop {
            if let LaneEvent::Reply { mut reply, .. } = lane.next().await {
                return reply.results.pop().unwrap().unwrap();
            }
        }
    })
    .await
}

async fn raw_data(client: &Client, path: &str) -> Option<Bytes> {
    let request = Request::GetData(ReadRequest { path: path.into(), watch: false });
    let Response::GetData(reply) = ask(client, request).await else { panic!("no data") };
    assert_eq!(reply.stat.data_length as usize, reply.data.as_ref().map_or(0, Bytes::len));
    reply.data
}

#[tokio::test]
async fn null_and_empty_data_are_kept_apart() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let create = |path: &str, data: Option<Bytes>| {
        let (path, acl) = (path.into(), Acl::open());
        Request::Create(CreateRequest { path, data, acl, mode: PERSISTENT, with_stat: false })
    };
    ask(&client, create("/null", None)).await;
    ask(&client, create("/empty", Some(Bytes::new()))).await;
    assert_eq!(raw_data(&client, "/null").await, None);
    assert_eq!(raw_data(&client, "/empty").await, Some(Bytes::new()));

    let set = |data| SetDataRequest { path: "/empty".into(), data, version: Version::ANY };
    ask(&client, Request::SetData(set(None))).await;
    assert_eq!(raw_data(&client, "/empty").await, None);
    ask(&client, Request::SetData(set(Some(Bytes::from_static(b"x"))))).await;
    assert_eq!(raw_data(&client, "/empty").await, Some(Bytes::from_static(b"x")));
    // The client's own methods do not distinguish the two.
    assert_eq!(client.get_data("/null").await.unwrap().0, "");
}

#[tokio::test]
async fn any_bytes_come_back_unchanged() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let data: Bytes = (0..=255_u8).cycle().take(70_000).collect();
    client.create("/a", data.clone(), PERSISTENT).await.unwrap();
    assert_eq!(client.get_data("/a").await.unwrap().0, data);
}
