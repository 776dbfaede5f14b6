//! Operations with the refusals that their documentation names, and operations on the client
//! itself. `coverage` fails if one is missing in the suite.

use std::time::Duration;

use zk_session::{
    Acl, Client, CloseOutcome, ConnectError, CreateMode, CreateOptions, ErrorCode, Multi,
    MultiError, MultiRead, OpError, Outcome, SessionState, Version,
};
use zk_tests::bare::Bare as _;
use zk_tests::target::{CREDENTIALS, Fixture};
use zk_tests::wait::{PATIENCE, catch_up, kind, reconnected, status};

const PERSISTENT: CreateMode = CreateMode::Persistent;
const EPHEMERAL: CreateMode = CreateMode::Ephemeral;

fn code<T>(result: Result<T, OpError>) -> Option<ErrorCode> {
    match result {
        Ok(_) => None,
        Err(error) => error.server_code(),
    }
}

async fn create_all(client: &Client, paths: &[&str]) {
    for path in paths {
        client.create(path, "", PERSISTENT).await.unwrap();
    }
}

#[tokio::test]
async fn creates_are_refused_as_documented() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    create_all(&client, &["/a"]).await;
    client.create("/e", "", EPHEMERAL).await.unwrap();
    for (path, expected) in [
        ("/a", ErrorCode::NODE_EXISTS),
        ("/missing/b", ErrorCode::NO_NODE),
        ("/e/b", ErrorCode::NO_CHILDREN_FOR_EPHEMERALS),
    ] {
        assert_eq!(code(client.create(path, "", PERSISTENT).await), Some(expected), "{path}");
    }
    assert_eq!(client.get_children("/").await.unwrap().len(), 2);
}

#[tokio::test]
async fn deletes_and_changes_of_data_are_refused_as_documented() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    create_all(&client, &["/a", "/a/b"]).await;
    let wrong = Some(Version(9));
    assert_eq!(code(client.delete("/missing", None).await), Some(ErrorCode::NO_NODE));
    assert_eq!(code(client.delete("/a", None).await), Some(ErrorCode::NOT_EMPTY));
    assert_eq!(code(client.delete("/a/b", wrong).await), Some(ErrorCode::BAD_VERSION));
    assert_eq!(code(client.set_data("/missing", "", None).await), Some(ErrorCode::NO_NODE));
    assert_eq!(code(client.set_data("/a", "", wrong).await), Some(ErrorCode::BAD_VERSION));
    assert_eq!(client.get_children("/a").await.unwrap(), ["b"]);
    assert_eq!(client.exists("/a").await.unwrap().unwrap().version, Version(0));
}

#[tokio::test]
async fn reads_of_a_missing_znode_are_refused_as_documented() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    for code in [
        code(client.get_data("/a").await),
        code(client.get_data_and_watch("/a").await),
        code(client.get_children("/a").await),
        code(client.get_children_and_watch("/a").await),
        code(client.get_children_with_stat("/a").await),
        code(client.get_children_with_stat_and_watch("/a").await),
        code(client.get_acl("/a").await),
        code(client.count_descendants("/a").await),
    ] {
        assert_eq!(code, Some(ErrorCode::NO_NODE));
    }
    assert_eq!(client.exists("/a").await, Ok(None));
    for read in [MultiRead::new().get_data("/a"), MultiRead::new().get_children("/a")] {
        let result = client.multi_read(read).await.unwrap().remove(0);
        assert_eq!(code(result), Some(ErrorCode::NO_NODE));
    }
}

#[tokio::test]
async fn reads_of_a_znode_of_somebody_else_are_refused() {
    let fixture = Fixture::start().await;
    let owner = fixture.builder().auth("digest", CREDENTIALS).connect().await.unwrap();
    let locked = CreateOptions::from(PERSISTENT).acl(Acl::creator_all());
    owner.create("/a", "", locked).await.unwrap();
    fixture.settle().await;
    let client = fixture.client().await;
    for code in [
        code(client.get_data("/a").await),
        code(client.get_data_and_watch("/a").await),
        code(client.get_children("/a").await),
        code(client.get_children_and_watch("/a").await),
        code(client.get_children_with_stat("/a").await),
        code(client.get_children_with_stat_and_watch("/a").await),
        code(client.get_acl("/a").await),
        code(client.count_descendants("/a").await),
    ] {
        assert_eq!(code, Some(ErrorCode::NO_AUTH));
    }
    // Servers before 3.8.4 and 3.9.2 do not protect metadata.
    match client.exists_and_watch("/a").await {
        Ok((stat, _)) => assert_eq!(stat.unwrap().version, Version(0)),
        refused => assert_eq!(code(refused), Some(ErrorCode::NO_AUTH)),
    }
}

#[tokio::test]
async fn changes_of_permissions_are_refused_as_documented() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    create_all(&client, &["/a"]).await;
    for (path, acl, version, expected) in [
        ("/missing", Acl::open(), None, ErrorCode::NO_NODE),
        ("/a", Acl::open(), Some(Version(9)), ErrorCode::BAD_VERSION),
        ("/a", vec![], None, ErrorCode::INVALID_ACL),
    ] {
        assert_eq!(code(client.set_acl(path, acl, version).await), Some(expected), "{path}");
    }
    assert_eq!(client.get_acl("/a").await.unwrap().1.aversion, Version(0));
}

#[tokio::test]
async fn refused_credentials_end_the_client() {
    let fixture = Fixture::start().await;
    let error = fixture.builder().auth("nosuchscheme", "x").connect().await.unwrap_err();
    assert_eq!(error, ConnectError::AuthFailed);
    let mut raw = zk_tests::wire::Connection::open(fixture.target.address().await).await;
    raw.connect(&zk_tests::wire::new_session(8000)).await.expect("a session");
    let packet = jute_codec::AuthPacket { scheme: "nosuchscheme".into(), auth: None };
    let request = zk_tests::wire::request(-4, &jute_codec::Request::Auth(packet));
    raw.send(&request).await;
    let (_, header, _) = raw.reply().await;
    assert_eq!((header.xid, header.err), (-4, ErrorCode::AUTH_FAILED));
}

/// The client turns the results behind the failed one into nothing, so they are read as they are.
#[tokio::test]
async fn results_behind_the_refused_write_of_a_multi_say_so() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let multi = Multi::new()
        .create("/a", "", PERSISTENT)
        .delete("/missing", None)
        .create("/b", "", PERSISTENT);
    let refused = client.commit(multi).await.unwrap_err();
    let MultiError::Refused { index, code, .. } = refused else { panic!("{refused}") };
    assert_eq!((index, code), (1, ErrorCode::NO_NODE));
    assert_eq!(client.get_children("/").await.unwrap(), Vec::<&str>::new());

    let delete = |path: &str| {
        let version = Version::ANY;
        jute_codec::MultiOp::Delete(jute_codec::DeleteRequest { path: path.into(), version })
    };
    let request = jute_codec::Request::Multi(vec![delete("/no-such-znode"), delete("/neither")]);
    let mut raw = zk_tests::wire::Connection::open(fixture.target.address().await).await;
    raw.connect(&zk_tests::wire::new_session(8000)).await.expect("a session");
    raw.send(&zk_tests::wire::request(1, &request)).await;
    let (_, header, mut body) = raw.reply().await;
    assert_eq!(header.err, ErrorCode::OK);
    let results = jute_codec::Response::decode(jute_codec::OpCode::MULTI, &mut body).unwrap();
    let results = match results {
        jute_codec::Response::Multi(results) => results,
        other => panic!("{other:?}"),
    };
    let codes = [ErrorCode::NO_NODE, ErrorCode::RUNTIME_INCONSISTENCY];
    assert_eq!(results, codes.map(jute_codec::MultiResult::Error));
}

#[tokio::test]
async fn missing_ancestors_are_created_with_the_znode() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let created = client.create_with_parents("/a/b/c", "x", EPHEMERAL).await.unwrap();
    assert_eq!((created.path.as_ref(), created.stat.data_length), ("/a/b/c", 1));
    assert_eq!(client.get_data("/a/b").await.unwrap().0, "");
    let again = client.create_with_parents("/a/b/c", "y", PERSISTENT).await;
    assert_eq!(code(again), Some(ErrorCode::NODE_EXISTS));
    let below = client.create_with_parents("/a/b/c/d", "", PERSISTENT).await;
    assert_eq!(code(below), Some(ErrorCode::NO_CHILDREN_FOR_EPHEMERALS));
    let bad = CreateOptions::from(PERSISTENT).acl(vec![]);
    let bad = client.create_with_parents("/x/y", "", bad).await;
    assert_eq!(code(bad), Some(ErrorCode::INVALID_ACL));
    let sequential = CreateOptions::from(CreateMode::PersistentSequential).container_parents();
    let path = client.create_with_parents("/q/n-", "", sequential).await.unwrap().path;
    assert_eq!(path, "/q/n-0000000000");
}

#[tokio::test]
async fn ancestors_that_nobody_may_create_are_named() {
    let fixture = Fixture::start().await;
    let owner = fixture.builder().auth("digest", CREDENTIALS).connect().await.unwrap();
    let locked = CreateOptions::from(PERSISTENT).acl(Acl::creator_all());
    owner.create("/locked", "", locked).await.unwrap();
    fixture.settle().await;
    let client = fixture.client().await;
    let error = client.create_with_parents("/locked/a/b", "", PERSISTENT).await.unwrap_err();
    assert_eq!(error.server_code(), Some(ErrorCode::NO_AUTH));
    assert!(error.to_string().contains("\"/locked/a\""), "{error}");
}

#[tokio::test]
async fn a_commit_belongs_to_its_session() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let create = |path: &str| Multi::new().create(path, "", PERSISTENT);
    let session = client.session_id().unwrap();
    assert_eq!(client.commit_in(session, create("/a")).await.unwrap().len(), 1);
    let again = client.commit_in(session, create("/a")).await.unwrap_err();
    let MultiError::Refused { index, code, .. } = again else { panic!("{again}") };
    assert_eq!((index, code), (0, ErrorCode::NODE_EXISTS));
    let theirs = client.commit_in(other.session_id().unwrap(), create("/b")).await;
    let over = MultiError::Op(OpError::session_expired(Outcome::NotApplied));
    assert_eq!(theirs.bare(), Err(over));
    assert_eq!(client.exists("/b").await, Ok(None));
}

#[tokio::test]
async fn an_operation_ends_in_time_while_the_server_is_silent() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    let limited = client.with_timeout(Duration::from_millis(100));
    assert_eq!(limited.exists("/a").timeout(PATIENCE).await, Ok(None));
    proxy.pause();
    let late = limited.create("/a", "", PERSISTENT).await.unwrap_err();
    assert!(late.is_timed_out(), "{late}");
    proxy.resume();
    client.sync("/").await.ok();
    assert_eq!(limited.session_id(), client.session_id());
}

#[tokio::test]
async fn a_client_reports_what_it_does() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    assert_eq!(client.last_failure(), None);
    assert!(client.health().is_ready(), "{}", client.health());
    client.create("/a", "", PERSISTENT).await.unwrap();
    client.set_data("/a", "x", None).await.unwrap();
    let watcher = client.exists_and_watch("/a").await.unwrap().1;
    let before = client.status();
    proxy.cut_all();
    reconnected(&client, before).await;
    assert!(client.last_failure().is_some());
    let stats = client.stats();
    assert_eq!((stats.connections, stats.connections_lost, stats.sessions), (2, 1, 1));
    assert_eq!((stats.watches, stats.pending), (1, 0));
    assert_eq!(stats.request("set_data").unwrap().completed, 1);
    assert_eq!(client.health().session, before.session);
    drop(watcher);
}

#[tokio::test]
async fn a_client_moves_to_another_server_with_its_session_and_its_watches() {
    let fixture = Fixture::start().await;
    let (_first, client) = fixture.proxied().await;
    let second = fixture.proxy().await;
    client.create("/e", "", EPHEMERAL).await.unwrap();
    let mut watcher = client.get_data_and_watch("/e").await.unwrap().1;
    let before = client.status();
    client.set_hosts("127.0.0.1:1/elsewhere").unwrap_err();
    client.set_hosts(&second.addr().to_string()).unwrap();
    let write = client.create("/behind", "", PERSISTENT);
    let after = reconnected(&client, before).await;
    assert_eq!(after.session, before.session);
    write.await.expect("it is sent to either server");
    assert_eq!(client.health().server.unwrap().port, second.addr().port());
    client.set_data("/e", "x", None).await.unwrap();
    assert_eq!(kind(&mut watcher).await, zk_session::EventType::NODE_DATA_CHANGED);
}

#[tokio::test]
async fn another_client_continues_a_session_that_is_handed_over() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/e", "", EPHEMERAL).await.unwrap();
    let session = client.session_id();
    let ticket = client.hand_over().await.expect("there is a session");
    assert_eq!(client.state(), SessionState::Closed);
    assert_eq!(client.hand_over().await, Err(zk_session::HandOverError::NoSession));

    let text = ticket.to_secret_text();
    let heir = fixture.builder().resume(text.parse().unwrap()).connect().await.unwrap();
    assert_eq!(heir.session_id(), session);
    let stat = heir.exists("/e").await.unwrap().expect("the session lives on");
    assert_eq!(stat.ephemeral_owner, session);
    assert_eq!(heir.close().await, CloseOutcome::Closed);

    let error = fixture.builder().resume(ticket).connect().await.unwrap_err();
    assert_eq!(error, ConnectError::NotResumed { session: session.unwrap() });
    catch_up(&fixture.observer).await;
    assert_eq!(fixture.observer.exists(&fixture.full("/e")).await, Ok(None));
}

#[tokio::test]
async fn a_close_within_a_limit_ends_within_it() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    assert_eq!(client.close_within(PATIENCE).await, CloseOutcome::Closed);

    let (proxy, client) = fixture.proxied().await;
    proxy.pause();
    proxy.cut_all();
    status(&client, "the loss", |now| now.state == SessionState::Suspended).await;
    let limit = Duration::from_millis(50);
    assert_eq!(client.close_within(limit).await, CloseOutcome::Abandoned);
    proxy.resume();
    assert_eq!(client.close().await, CloseOutcome::Closed, "it keeps trying");
}
