//! Creating znodes: modes, sequence numbers, stats, refusals.

use zk_session::{
    Acl, Client, CreateMode, CreateOptions, Created, ErrorCode, OpError, Permissions, Ttl, Version,
};
use zk_tests::bare::Bare as _;
use zk_tests::target::Fixture;

const PERSISTENT: CreateMode = CreateMode::Persistent;

async fn create(client: &Client, path: &str, mode: CreateMode) -> Created {
    client.create(path, "", mode).await.unwrap_or_else(|error| panic!("{path}: {error}"))
}

async fn refusal(client: &Client, path: &str, options: impl Into<CreateOptions>) -> OpError {
    client.create(path, "", options).await.unwrap_err().bare()
}

fn server(code: ErrorCode) -> OpError {
    OpError::server(code)
}

#[tokio::test]
async fn a_new_znode_has_the_stat_of_its_transaction() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let created = client.create("/a", "12345", PERSISTENT).await.unwrap();
    assert_eq!(created.path, "/a");
    let stat = created.stat;
    assert_eq!((stat.mzxid, stat.pzxid), (stat.czxid, stat.czxid));
    assert_eq!(stat.mtime, stat.ctime);
    assert_eq!((stat.version, stat.cversion, stat.aversion), (Version(0), Version(0), Version(0)));
    assert_eq!((stat.data_length, stat.num_children), (5, 0));
    assert_eq!(stat.ephemeral_owner, None);
    assert_eq!(client.exists("/a").await, Ok(Some(stat)));
    assert_eq!(client.get_data("/a").await, Ok(("12345".into(), stat)));
}

#[tokio::test]
async fn a_create_and_a_delete_change_the_parents_count_of_children() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let before = create(&client, "/p", PERSISTENT).await.stat;
    let child = create(&client, "/p/a", PERSISTENT).await.stat;
    let parent = client.exists("/p").await.unwrap().unwrap();
    assert_eq!((parent.cversion, parent.num_children, parent.pzxid), (Version(1), 1, child.czxid));
    assert_eq!(
        (parent.version, parent.mzxid, parent.mtime),
        (Version(0), before.mzxid, before.mtime)
    );

    client.delete("/p/a", None).await.unwrap();
    let parent = client.exists("/p").await.unwrap().unwrap();
    assert_eq!((parent.cversion, parent.num_children), (Version(2), 0));
    assert!(parent.pzxid > child.czxid);
    assert_eq!((parent.czxid, parent.mzxid), (before.czxid, before.mzxid));
}

#[tokio::test]
async fn later_transactions_have_greater_zxids() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let first = create(&client, "/a", PERSISTENT).await.stat.czxid;
    let second = create(&client, "/b", PERSISTENT).await.stat.czxid;
    let third = client.set_data("/a", "x", None).await.unwrap().mzxid;
    assert!(first < second && second < third);
    assert_eq!(refusal(&client, "/a", PERSISTENT).await, server(ErrorCode::NODE_EXISTS));
    // The refused create has also used up a zxid.
    let fourth = create(&client, "/c", PERSISTENT).await.stat.czxid;
    assert!(fourth.0 >= third.0 + 2, "{third} then {fourth}");
}

#[tokio::test]
async fn an_ephemeral_names_its_session() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let owner = client.session_id();
    assert!(owner.is_some() && owner != other.session_id());
    for (path, mode) in [("/e", CreateMode::Ephemeral), ("/s-", CreateMode::EphemeralSequential)] {
        let created = create(&client, path, mode).await;
        assert_eq!(created.stat.ephemeral_owner, owner);
        let seen = other.set_data(&created.path, "by another", None).await.unwrap();
        assert_eq!(seen.ephemeral_owner, owner);
    }
}

#[tokio::test]
async fn sequence_numbers_count_the_creates_of_the_parent() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    create(&client, "/q", PERSISTENT).await;
    let sequential = CreateMode::PersistentSequential;
    assert_eq!(create(&client, "/q/a-", sequential).await.path, "/q/a-0000000000");
    let ephemeral = CreateMode::EphemeralSequential;
    assert_eq!(create(&client, "/q/b-", ephemeral).await.path, "/q/b-0000000001");
    // Creates of other modes also increase the counter, deletes do not decrease it, and refused
    // creates do not change it.
    create(&client, "/q/plain", PERSISTENT).await;
    client.delete("/q/a-0000000000", None).await.unwrap();
    client.delete("/q/plain", None).await.unwrap();
    create(&client, "/q/plain", CreateMode::Ephemeral).await;
    assert_eq!(refusal(&client, "/q/plain", PERSISTENT).await, server(ErrorCode::NODE_EXISTS));
    assert_eq!(create(&client, "/q/a-", sequential).await.path, "/q/a-0000000004");
    let stat = client.exists("/q").await.unwrap().unwrap();
    assert_eq!((stat.cversion, stat.num_children), (Version(7), 3));
}

#[tokio::test]
async fn a_sequential_path_may_end_with_a_slash() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    create(&client, "/q", PERSISTENT).await;
    create(&client, "/q/a", PERSISTENT).await;
    let created = create(&client, "/q/", CreateMode::PersistentSequential).await;
    assert_eq!(created.path, "/q/0000000001");
}

#[tokio::test]
async fn every_directory_counts_for_itself() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    for directory in ["/a", "/b"] {
        create(&client, directory, PERSISTENT).await;
        let path = format!("{directory}/n");
        let created = create(&client, &path, CreateMode::PersistentSequential).await;
        assert_eq!(created.path, format!("{directory}/n0000000000"));
    }
}

#[tokio::test]
async fn a_container_looks_like_a_persistent_znode() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let created = create(&client, "/c", CreateMode::Container).await;
    assert_eq!((created.path.as_ref(), created.stat.ephemeral_owner), ("/c", None));
    // Servers remove a container that has had children and has none.
    create(&client, "/c/first", PERSISTENT).await;
    for mode in [PERSISTENT, CreateMode::Ephemeral, CreateMode::EphemeralSequential] {
        create(&client, "/c/child", mode).await;
        let _ = client.delete("/c/child", None).await;
    }
    assert_eq!(client.exists("/c").await.unwrap().unwrap().cversion, Version(6));
}

/// By default, servers have this feature switched off, and refuse the create with a specific error.
#[tokio::test]
async fn a_znode_with_a_time_to_live_is_created_or_declared_unsupported() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let ttl = Ttl::from_millis(3_600_000).unwrap();
    match client.create("/t", "x", CreateMode::PersistentTtl(ttl)).await {
        Ok(created) => {
            assert_eq!((created.path.as_ref(), created.stat.ephemeral_owner), ("/t", None));
            let mode = CreateMode::PersistentSequentialTtl(ttl);
            assert_eq!(create(&client, "/s-", mode).await.path, "/s-0000000001");
            create(&client, "/t/child", CreateMode::Ephemeral).await;
            let longest = Ttl::from_millis((1 << 40) - 1).unwrap();
            create(&client, "/l", CreateMode::PersistentTtl(longest)).await;
        }
        Err(error) => {
            assert!(fixture.target.is_external(), "the in-process server has it switched on");
            assert!(matches!(error, OpError::Unsupported { .. }), "{error}");
            assert_eq!(client.exists("/t").await, Ok(None));
        }
    }
    assert_eq!(client.status().connection, 1);
}

#[tokio::test]
async fn creates_are_refused_for_the_reason() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    create(&client, "/a", PERSISTENT).await;
    create(&client, "/e", CreateMode::Ephemeral).await;
    let long_path = "/missing/child".repeat(20);
    for mode in [PERSISTENT, CreateMode::Ephemeral, CreateMode::Container] {
        assert_eq!(refusal(&client, "/a", mode).await, server(ErrorCode::NODE_EXISTS));
        assert_eq!(refusal(&client, &long_path, mode).await, server(ErrorCode::NO_NODE));
        let below_ephemeral = refusal(&client, "/e/x", mode).await;
        assert_eq!(below_ephemeral, server(ErrorCode::NO_CHILDREN_FOR_EPHEMERALS));
    }
    let below_ephemeral = refusal(&client, "/e/s-", CreateMode::PersistentSequential).await;
    assert_eq!(below_ephemeral, server(ErrorCode::NO_CHILDREN_FOR_EPHEMERALS));
    assert_eq!(client.get_children("/e").await, Ok(vec![]));
}

#[tokio::test]
async fn a_bad_list_is_refused_before_anything_else() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    create(&client, "/a", PERSISTENT).await;
    let bad = Acl::new(Permissions::ALL, "world", "someone");
    for path in ["/a", "/missing/a", "/b"] {
        for list in [vec![], vec![bad.clone()]] {
            let options = CreateOptions::from(PERSISTENT).acl(list);
            assert_eq!(refusal(&client, path, options).await, server(ErrorCode::INVALID_ACL));
        }
    }
    assert_eq!(client.exists("/b").await, Ok(None));
}

#[tokio::test]
async fn impossible_paths_are_not_sent() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    for path in ["", "a", "//", "/a/", "/a//b", "/./a", "/a/..", "/a\u{0}", "/\u{9f}", "/\u{fff0}"]
    {
        let error = refusal(&client, path, PERSISTENT).await;
        assert!(matches!(&error, OpError::InvalidPath { path: p, .. } if p == path), "{error}");
        assert!(matches!(client.exists(path).await, Err(OpError::InvalidPath { .. })));
    }
}

#[tokio::test]
async fn names_may_be_of_any_language() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let names = ["straße", "漢字", "имя", "a b", "…", "lock-0000000001", ".hidden"];
    for name in names {
        assert_eq!(create(&client, &format!("/{name}"), PERSISTENT).await.path, format!("/{name}"));
    }
    let mut children = client.get_children("/").await.unwrap();
    let mut expected = names;
    children.sort();
    expected.sort_unstable();
    assert_eq!(children, expected);
}

#[tokio::test]
async fn the_root_exists_for_ever() {
    let fixture = Fixture::start().await;
    let client = &fixture.observer;
    assert_eq!(refusal(client, "/", PERSISTENT).await, server(ErrorCode::NODE_EXISTS));
    assert_eq!(refusal(client, "/zookeeper", PERSISTENT).await, server(ErrorCode::NODE_EXISTS));
    assert_eq!(client.delete("/", None).await.bare(), Err(server(ErrorCode::BAD_ARGUMENTS)));
    for path in ["/zookeeper", "/zookeeper/quota", "/zookeeper/config"] {
        assert_eq!(client.delete(path, None).await.bare(), Err(server(ErrorCode::BAD_ARGUMENTS)));
        assert!(client.exists(path).await.unwrap().is_some(), "{path}");
    }
    let children = client.get_children("/").await.unwrap();
    assert!(children.contains(&"zookeeper".into()), "{children:?}");
}
