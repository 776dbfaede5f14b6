//! The subtree that a client sees as the whole tree, and the connect string that names it.

use std::time::Duration;

use zk_session::{
    Client, ConfigError, ConnectError, ConnectString, CreateMode, ErrorCode, EventType, Multi,
    MultiOutcome, OpError,
};
use zk_tests::bare::Bare as _;
use zk_tests::dead_host::DeadHost;
use zk_tests::target::{Fixture, long_session};
use zk_tests::wait::{catch_up, event};

const PERSISTENT: CreateMode = CreateMode::Persistent;

#[tokio::test]
async fn connecting_creates_the_chroot_and_its_ancestors() {
    let fixture = Fixture::start().await;
    let deep = fixture.full("/one/two/three");
    assert_eq!(fixture.observer.exists(&deep).await, Ok(None));
    for _ in 0..2 {
        let builder = Client::builder(format!("{}{deep}", fixture.target.hosts()));
        let client = builder.session_timeout(long_session()).connect().await.unwrap();
        assert_eq!(client.get_children("/").await, Ok(vec![]));
    }
    catch_up(&fixture.observer).await;
    let stat = fixture.observer.exists(&deep).await.unwrap().unwrap();
    assert_eq!(stat.ephemeral_owner, None);
}

#[tokio::test]
async fn a_missing_chroot_is_left_alone_if_so_wanted() {
    let fixture = Fixture::start().await;
    let client = fixture.builder().create_chroot(false).connect().await.unwrap();
    assert_eq!(client.exists("/").await, Ok(None));
    let refusal = client.create("/a", "", PERSISTENT).await.unwrap_err();
    let (chroot, path) = (fixture.chroot().to_owned(), "/a".to_owned());
    assert_eq!(refusal, OpError::ChrootMissing { chroot, path });
    assert_eq!(fixture.observer.exists(fixture.chroot()).await, Ok(None));
}

#[tokio::test]
async fn a_chroot_below_an_ephemeral_is_an_error_of_connecting() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/e", "", CreateMode::Ephemeral).await.unwrap();
    let connect =
        Client::builder(format!("{}{}", fixture.target.hosts(), fixture.full("/e/below")));
    let error = connect.session_timeout(long_session()).connect().await.unwrap_err();
    let ConnectError::Chroot { path, error } = error else { panic!("{error}") };
    assert_eq!(path, fixture.full("/e/below"));
    assert_eq!(error.bare(), OpError::server(ErrorCode::NO_CHILDREN_FOR_EPHEMERALS));
}

#[tokio::test]
async fn paths_begin_at_the_chroot_in_both_directions() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    assert_eq!(client.create("/a", "", PERSISTENT).await.unwrap().path, "/a");
    let sequential = CreateMode::PersistentSequential;
    assert_eq!(client.create("/a/s-", "", sequential).await.unwrap().path, "/a/s-0000000000");
    let multi = Multi::new()
        .create("/a/b", "x", PERSISTENT)
        .create("/a/s-", "", sequential)
        .check("/a/b", None)
        .set_data("/a/b", "y", None)
        .delete("/a/s-0000000000", None);
    let outcomes = client.commit(multi).await.unwrap();
    let created = |outcome: &MultiOutcome| match outcome {
        MultiOutcome::Created { path, .. } => Some(path.to_string()),
        _ => None,
    };
    let paths: Vec<_> = outcomes.iter().filter_map(created).collect();
    assert_eq!(paths, ["/a/b", "/a/s-0000000002"]);

    // The observer may be connected to a server that lags behind.
    catch_up(&fixture.observer).await;
    let (data, _) = fixture.observer.get_data(&fixture.full("/a/b")).await.unwrap();
    assert_eq!(data, "y");
    let mut names = client.get_children("/").await.unwrap();
    names.sort();
    assert_eq!(names, ["a"]);
}

#[tokio::test]
async fn the_root_of_the_client_is_the_chroot() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let stat = client.set_data("/", "root", None).await.unwrap();
    catch_up(&fixture.observer).await;
    assert_eq!(fixture.observer.get_data(fixture.chroot()).await, Ok(("root".into(), stat)));
    let refusal = client.create("/", "", PERSISTENT).await.unwrap_err();
    assert_eq!(refusal.bare(), OpError::server(ErrorCode::NODE_EXISTS));

    let (_, mut watcher) = client.get_children_and_watch("/").await.unwrap();
    fixture.observer.create(&fixture.full("/x"), "", PERSISTENT).await.unwrap();
    let event = event(&mut watcher).await;
    assert_eq!((event.kind, event.path.as_ref()), (EventType::NODE_CHILDREN_CHANGED, "/"));
}

#[tokio::test]
async fn events_name_the_path_as_the_client_knows_it() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let (_, mut inside) = client.exists_and_watch("/a").await.unwrap();
    let (_, mut outside) = fixture.observer.exists_and_watch(&fixture.full("/a")).await.unwrap();
    client.create("/a", "", PERSISTENT).await.unwrap();
    assert_eq!(event(&mut inside).await.path, "/a");
    assert_eq!(event(&mut outside).await.path, fixture.full("/a"));
}

#[tokio::test]
async fn a_dead_host_in_the_list_does_no_harm() {
    let fixture = Fixture::start().await;
    let dead = DeadHost::new();
    let hosts = format!("{},{}", dead.addr(), fixture.target.hosts());
    // The client shuffles the list. These seeds cover both orders of the two addresses.
    for seed in 0..4 {
        let client = fixture.builder_at(&hosts).seed(seed).connect().await.unwrap();
        assert!(client.exists("/").await.unwrap().is_some());
    }
}

#[tokio::test]
async fn dead_hosts_alone_are_an_error_that_says_why() {
    let dead = DeadHost::new();
    let address = dead.addr().to_string();
    let builder = Client::builder(&address).connect_within(Duration::from_millis(300));
    let error = builder.connect().await.unwrap_err();
    let ConnectError::TimedOut { hosts, last_failure, .. } = &error else { panic!("{error}") };
    assert_eq!((hosts, last_failure.is_some()), (&address, true), "{error}");
}

#[test]
fn connect_strings_name_hosts_ports_and_the_chroot() {
    let parsed: ConnectString = "zk1, [::1]:2183,[fe80::1%eth0],10.0.0.1:1/app/x".parse().unwrap();
    let hosts: Vec<_> = parsed.hosts.iter().map(|host| (host.name.as_str(), host.port)).collect();
    assert_eq!(hosts, [("zk1", 2181), ("::1", 2183), ("fe80::1%eth0", 2181), ("10.0.0.1", 1)]);
    assert_eq!(parsed.chroot.as_str(), "/app/x");
    for bad in ["", "/app", "zk1:", "zk1:70000", "::1", "[::1", "zk1,,zk2", "zk1/a//b", "zk1/a/"] {
        assert!(bad.parse::<ConnectString>().is_err(), "{bad}");
    }
}

#[tokio::test]
async fn a_connect_string_that_cannot_work_is_refused_at_once() {
    let error = Client::connect("zk1:0").await.unwrap_err();
    assert!(matches!(error, ConnectError::Config(ConfigError::Host { .. })), "{error}");
}
