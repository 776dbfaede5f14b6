//! Reads that concern more than one znode, or the session itself.

use zk_session::{
    Acl, Client, CreateMode, CreateOptions, ErrorCode, MultiRead, OpError, Permissions, ReadOutcome,
};
use zk_tests::bare::Bare as _;
use zk_tests::target::{CREDENTIALS, Fixture};
use zk_tests::wait::catch_up;

const PERSISTENT: CreateMode = CreateMode::Persistent;

fn refused(code: ErrorCode) -> OpError {
    OpError::server(code)
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort();
    list
}

/// Creates a znode that only [`CREDENTIALS`] can read.
async fn create_secret(fixture: &Fixture, path: &str) {
    let owner = fixture.builder().auth("digest", CREDENTIALS).connect().await.unwrap();
    let options = CreateOptions::from(PERSISTENT).acl(Acl::creator_all());
    owner.create(path, "secret", options).await.unwrap();
    owner.close().await;
    fixture.settle().await;
}

#[tokio::test]
async fn several_reads_have_independent_results() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let stat = client.create("/a", "1", PERSISTENT).await.unwrap().stat;
    client.create("/p", "", PERSISTENT).await.unwrap();
    client.create("/p/x", "", PERSISTENT).await.unwrap();
    client.create("/p/y", "", PERSISTENT).await.unwrap();
    create_secret(&fixture, "/secret").await;
    catch_up(&client).await;

    let reads = MultiRead::new()
        .get_data("/a")
        .get_data("/missing")
        .get_children("/p")
        .get_children("/missing")
        .get_data("/secret")
        .get_data("/p");
    let results = client.multi_read(reads).await.unwrap();
    let [a, missing_data, children, missing_children, secret, p] = results.try_into().unwrap();
    assert_eq!(a, Ok(ReadOutcome::Data { data: "1".into(), stat }));
    let message = missing_data.clone().unwrap_err().to_string();
    assert!(message.contains("\"/missing\""), "the client's path is named: {message}");
    assert_eq!(missing_data.bare(), Err(refused(ErrorCode::NO_NODE)));
    let Ok(ReadOutcome::Children(names)) = children else { panic!("{children:?}") };
    assert_eq!(sorted(names), ["x", "y"]);
    assert_eq!(missing_children.bare(), Err(refused(ErrorCode::NO_NODE)));
    assert_eq!(secret.bare(), Err(refused(ErrorCode::NO_AUTH)));
    assert!(
        matches!(p, Ok(ReadOutcome::Data { data, stat }) if data.is_empty() && stat.num_children == 2)
    );
}

#[tokio::test]
async fn several_reads_may_be_none_or_many() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    assert_eq!(client.multi_read(MultiRead::new()).await, Ok(vec![]));
    let reads = (0..500).fold(MultiRead::new(), |reads, _| reads.get_data("/"));
    assert_eq!(client.multi_read(reads).await.unwrap().len(), 500);
    let invalid = client.multi_read(MultiRead::new().get_data("/").get_data("x")).await;
    assert!(matches!(invalid, Err(OpError::InvalidPath { path, .. }) if path == "x"));
}

#[tokio::test]
async fn descendants_are_counted_without_the_znode_itself() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    for path in ["/a", "/a/b", "/a/b/c", "/a/d", "/ab"] {
        client.create(path, "", PERSISTENT).await.unwrap();
    }
    assert_eq!(client.count_descendants("/a").await, Ok(3));
    assert_eq!(client.count_descendants("/ab").await, Ok(0));
    // The root of this client is its chroot.
    assert_eq!(client.count_descendants("/").await, Ok(5));
    catch_up(&fixture.observer).await;
    assert!(fixture.observer.count_descendants("/").await.unwrap() > 5);
}

#[tokio::test]
async fn descendants_are_counted_only_for_readers_of_an_existing_znode() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    create_secret(&fixture, "/secret").await;
    catch_up(&client).await;
    let error = client.count_descendants("/missing").await.unwrap_err();
    assert!(error.to_string().contains("\"/missing\""), "{error}");
    assert_eq!(error.bare(), refused(ErrorCode::NO_NODE));
    let error = client.count_descendants("/secret").await.unwrap_err();
    assert_eq!(error.bare(), refused(ErrorCode::NO_AUTH));
    assert!(matches!(client.count_descendants("a").await, Err(OpError::InvalidPath { .. })));
}

#[tokio::test]
async fn ephemerals_are_those_of_the_session_that_begin_with_the_text() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    for path in ["/a", "/b"] {
        client.create(path, "", PERSISTENT).await.unwrap();
    }
    for path in ["/a/1", "/a/2", "/ab", "/b/1"] {
        client.create(path, "", CreateMode::Ephemeral).await.unwrap();
    }
    other.create("/a/other", "", CreateMode::Ephemeral).await.unwrap();
    let list = async |prefix| client.get_ephemerals(prefix).await.map(sorted);
    assert_eq!(list("/").await.unwrap(), ["/a/1", "/a/2", "/ab", "/b/1"]);
    assert_eq!(list("/a").await.unwrap(), ["/a/1", "/a/2", "/ab"]);
    assert_eq!(list("/a/").await.unwrap(), ["/a/1", "/a/2"]);
    assert_eq!(list("/missing").await.unwrap(), Vec::<&str>::new());
    assert!(matches!(list("a").await, Err(OpError::InvalidPath { path, .. }) if path == "a"));
}

#[tokio::test]
async fn ephemerals_outside_of_the_chroot_are_not_listed() {
    let fixture = Fixture::start().await;
    // One session with two views of the tree is not possible, so the znode beside the chroot has a
    // name that begins like the chroot's, and belongs to the same client.
    let whole = Client::builder(fixture.target.hosts()).connect().await.unwrap();
    let inside = fixture.client().await;
    let beside = format!("{}-beside", fixture.chroot());
    whole.create(&beside, "", CreateMode::Ephemeral).await.unwrap();
    let listed = whole.get_ephemerals(fixture.chroot()).await.unwrap();
    assert_eq!(listed, [beside.as_str()], "the prefix is text");
    let inside_only = whole.get_ephemerals(&fixture.full("/")).await.unwrap();
    assert_eq!(inside_only, Vec::<&str>::new());
    inside.create("/e", "", CreateMode::Ephemeral).await.unwrap();
    assert_eq!(inside.get_ephemerals("/").await.unwrap(), ["/e"]);
    whole.close().await;
}

#[tokio::test]
async fn the_server_names_the_identities_of_the_connection() {
    let fixture = Fixture::start().await;
    let client = fixture.builder().auth("digest", CREDENTIALS).connect().await.unwrap();
    let identities = client.who_am_i().await.unwrap();
    let find = |scheme: &str| identities.iter().find(|identity| identity.scheme == scheme);
    assert_eq!(find("digest").expect("it was sent").user, "conformance", "without the password");
    assert!(find("ip").is_some(), "{identities:?}");
    let plain = fixture.client().await.who_am_i().await.unwrap();
    assert!(plain.iter().all(|identity| identity.scheme == "ip"), "{plain:?}");
}

#[tokio::test]
async fn queries_are_refused_for_a_session_without_the_permission_of_the_list() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let write_only = Acl::new(Permissions::WRITE, "world", "anyone");
    let options = CreateOptions::from(PERSISTENT).acl(vec![write_only]);
    client.create("/w", "", options).await.unwrap();
    let results = client.multi_read(MultiRead::new().get_children("/w").get_data("/")).await;
    let [w, root] = results.unwrap().try_into().unwrap();
    assert_eq!(w.bare(), Err(refused(ErrorCode::NO_AUTH)));
    assert!(root.is_ok());
}
