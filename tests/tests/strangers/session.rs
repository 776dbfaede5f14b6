//! The default list of a client: plain creates, multis, missing parents, and the chroot.

use zk_recipes::{Acl, Client, CreateMode, CreateOptions, ErrorCode, Tree};
use zk_session::{ConfigError, ConnectError, Multi};
use zk_tests::target::{CREDENTIALS, Fixture};

const PERSISTENT: CreateMode = CreateMode::Persistent;

async fn protected(fixture: &Fixture) -> Client {
    let builder = fixture.builder().auth("digest", CREDENTIALS);
    builder.default_acl(Acl::creator_all()).connect().await.unwrap()
}

async fn is_open(client: &Client, path: &str) -> bool {
    client.get_acl(path).await.unwrap().0 == Acl::open()
}

#[tokio::test]
async fn the_chroot_and_its_parents_have_the_default_list() {
    let fixture = Fixture::start().await;
    let client = protected(&fixture).await;
    assert!(!is_open(&client, "/").await);
    let stranger = fixture.client().await;
    let made = stranger.create("/x", "", PERSISTENT).await;
    assert_eq!(made.unwrap_err().server_code(), Some(ErrorCode::NO_AUTH));
}

#[tokio::test]
async fn a_create_has_the_default_list_unless_it_has_its_own() {
    let fixture = Fixture::start().await;
    let client = protected(&fixture).await;
    let open = || CreateOptions::from(PERSISTENT).acl(Acl::open());
    client.create("/closed", "", PERSISTENT).await.unwrap();
    client.create("/open", "", open()).await.unwrap();
    client.create_with_parents("/p/q/closed", "", PERSISTENT).await.unwrap();
    client.create_with_parents("/r/s/open", "", open()).await.unwrap();
    let parents = CreateOptions::from(PERSISTENT).parent_acl(Acl::open());
    client.create_with_parents("/t/u/closed", "", parents).await.unwrap();
    let multi = Multi::new()
        .create("/multi-closed", "", PERSISTENT)
        .create("/multi-open", "", open())
        .append(Multi::new().create("/appended", "", PERSISTENT));
    client.commit(multi).await.unwrap();
    for path in [
        "/closed",
        "/p",
        "/p/q",
        "/p/q/closed",
        "/r",
        "/r/s",
        "/t/u/closed",
        "/multi-closed",
        "/appended",
    ] {
        assert!(!is_open(&client, path).await, "{path}");
    }
    for path in ["/open", "/r/s/open", "/t", "/t/u", "/multi-open"] {
        assert!(is_open(&client, path).await, "{path}");
    }
}

#[tokio::test]
async fn a_list_may_depend_on_the_path_on_the_server() {
    let fixture = Fixture::start().await;
    let public = format!("{}/public", fixture.chroot());
    let acl_of = move |path: &str| {
        if path.starts_with(&public) { Acl::open() } else { Acl::creator_all() }
    };
    let builder = fixture.builder().auth("digest", CREDENTIALS).default_acl_by_path(acl_of);
    let client = builder.connect().await.unwrap();
    assert!(!is_open(&client, "/").await);
    client.create("/public", "", PERSISTENT).await.unwrap();
    client.create("/private", "", PERSISTENT).await.unwrap();
    client.create_with_parents("/public-too/a/b", "", PERSISTENT).await.unwrap();
    client.create_with_parents("/private-too/a/b", "", PERSISTENT).await.unwrap();
    let own = CreateOptions::from(PERSISTENT).acl(Acl::open());
    let multi = Multi::new()
        .create("/public/multi", "", PERSISTENT)
        .create("/private/multi", "", PERSISTENT)
        .create("/private/open", "", own);
    client.commit(multi).await.unwrap();
    Tree::of(&client).ensure("/private-tree/a").await.unwrap();
    Tree::of(&client).ensure("/public-tree/a").await.unwrap();
    let open = [
        "/public",
        "/public-too",
        "/public-too/a",
        "/public-too/a/b",
        "/public/multi",
        "/private/open",
        "/public-tree",
        "/public-tree/a",
    ];
    let closed = [
        "/private",
        "/private-too",
        "/private-too/a",
        "/private-too/a/b",
        "/private/multi",
        "/private-tree",
        "/private-tree/a",
    ];
    for path in open {
        assert!(is_open(&client, path).await, "{path}");
        assert_eq!(
            client.default_acl(path),
            if path == "/private/open" { Acl::creator_all() } else { Acl::open() }
        );
    }
    for path in closed {
        assert!(!is_open(&client, path).await, "{path}");
    }
}

#[tokio::test]
async fn an_empty_default_list_is_refused() {
    let fixture = Fixture::start().await;
    let refused = fixture.builder().default_acl(vec![]).connect().await.unwrap_err();
    let ConnectError::Config(ConfigError::Option { option, .. }) = refused else {
        panic!("{refused}")
    };
    assert_eq!(option, "default_acl");
}
