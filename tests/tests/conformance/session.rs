//! Sessions and their connections: what survives the loss of a connection, what ends, and what the
//! client reports.

use std::time::Duration;

use zk_session::{
    CloseOutcome, CreateMode, ErrorCode, EventType, OpError, Outcome, SessionState, Version,
};
use zk_tests::bare::Bare as _;
use zk_tests::target::Fixture;
use zk_tests::wait::{PATIENCE, catch_up, event, kind, now, reconnected, soon, status};

const PERSISTENT: CreateMode = CreateMode::Persistent;
const EPHEMERAL: CreateMode = CreateMode::Ephemeral;

#[tokio::test]
async fn every_client_has_a_session_of_its_own() {
    let fixture = Fixture::start().await;
    let (first, second) = (fixture.client().await, fixture.client().await);
    assert_eq!(first.state(), SessionState::Connected);
    assert!(first.session_id().is_some());
    assert_ne!(first.session_id(), second.session_id());
    assert_eq!(first.clone().session_id(), first.session_id());
    assert_eq!(first.status().connection, 1);
}

#[tokio::test]
async fn the_server_has_the_last_word_on_the_timeout() {
    let fixture = Fixture::start().await;
    let (shortest, longest) = (Duration::from_millis(50), Duration::from_secs(1_000_000));
    let ask = |timeout| fixture.builder().session_timeout(timeout);
    let short = ask(shortest).connect_within(Duration::from_secs(30)).connect().await.unwrap();
    let long = ask(longest).connect().await.unwrap();
    assert!(short.status().timeout > shortest, "{:?}", short.status());
    assert!(long.status().timeout < longest, "{:?}", long.status());
    assert!(short.status().timeout < long.status().timeout);
}

#[tokio::test]
async fn closing_ends_the_session_and_its_ephemerals() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    client.create("/e", "", EPHEMERAL).await.unwrap();
    client.create("/p", "", PERSISTENT).await.unwrap();
    assert_eq!(client.close().await, CloseOutcome::Closed);
    catch_up(&other).await;
    assert_eq!(other.get_children("/").await, Ok(vec!["p".into()]));

    assert_eq!(client.state(), SessionState::Closed);
    let late = client.exists("/p").await;
    assert_eq!(late.bare(), Err(OpError::closed(Outcome::NotApplied)));
    assert_eq!(client.close().await, CloseOutcome::Closed);
}

#[tokio::test]
async fn what_was_called_before_the_close_is_answered() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    client.create("/a", "", PERSISTENT).await.unwrap();
    let writes: Vec<_> = (0..50).map(|_| client.set_data("/a", "x", None)).collect();
    assert_eq!(client.close().await, CloseOutcome::Closed);
    let mut applied = 0;
    for write in writes {
        match write.await {
            Ok(_) => applied += 1,
            Err(error) => assert_eq!(error.bare(), OpError::closed(Outcome::NotApplied)),
        }
    }
    catch_up(&other).await;
    let stat = other.exists("/a").await.unwrap().unwrap();
    assert_eq!(stat.version, Version(applied), "what was refused was not applied");
}

#[tokio::test]
async fn the_last_handle_closes_the_session_in_the_background() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    client.create("/e", "", EPHEMERAL).await.unwrap();
    catch_up(&other).await;
    let (_, mut watcher) = other.exists_and_watch("/e").await.unwrap();
    let clone = client.clone();
    drop(client);
    assert!(clone.exists("/e").await.unwrap().is_some());
    drop(clone);
    assert_eq!(kind(&mut watcher).await, EventType::NODE_DELETED);
}

#[tokio::test]
async fn a_session_and_its_ephemerals_survive_their_connection() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    let stat = client.create("/e", "", EPHEMERAL).await.unwrap().stat;
    for _ in 0..3 {
        let before = client.status();
        proxy.cut_all();
        let after = reconnected(&client, before).await;
        assert_eq!((after.session, after.timeout), (before.session, before.timeout));
        assert_eq!(client.exists("/e").await, Ok(Some(stat)));
    }
    assert_eq!(stat.ephemeral_owner, client.session_id());
}

#[tokio::test]
async fn requests_without_a_connection_wait_for_the_next_in_order() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    let before = client.status();
    proxy.pause();
    proxy.cut_all();
    status(&client, "the loss", |now| now.state == SessionState::Suspended).await;
    let writes: Vec<_> = (0..20).map(|at| client.set_data("/a", format!("{at}"), None)).collect();
    let dropped = client.create("/dropped", "", PERSISTENT);
    let mut read = client.get_data("/a");
    assert!(now(&mut read).is_none());
    drop(dropped);
    proxy.resume();
    for (version, write) in (1..).zip(writes) {
        assert_eq!(write.await.unwrap().version, Version(version));
    }
    assert_eq!(read.await.unwrap().0, "19");
    // The client does not send operations whose futures were dropped.
    assert_eq!(client.exists("/dropped").await, Ok(None));
    assert_eq!(client.session_id(), before.session);
}

#[tokio::test]
async fn a_write_whose_reply_was_lost_has_an_unknown_outcome() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    proxy.lose_replies();
    let error = client.set_data("/a", "x", None).await.unwrap_err();
    assert_eq!(error.clone().bare(), OpError::connection_loss(Outcome::Unknown));
    assert_eq!(error.outcome(), Outcome::Unknown);
    // In this case the write was applied, exactly once.
    let (data, stat) = client.get_data("/a").await.unwrap();
    assert_eq!((data, stat.version), ("x".into(), Version(1)));
}

#[tokio::test]
async fn a_create_whose_reply_was_lost_belongs_to_the_session() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    proxy.lose_replies();
    let error = client.create("/e", "", EPHEMERAL).await.unwrap_err();
    assert_eq!(error.bare(), OpError::connection_loss(Outcome::Unknown));
    let stat = client.exists("/e").await.unwrap().expect("the server had got the request");
    assert_eq!(stat.ephemeral_owner, client.session_id());
    let again = client.create("/e", "", EPHEMERAL).await.unwrap_err();
    assert_eq!(again.bare(), OpError::server(ErrorCode::NODE_EXISTS));
}

#[tokio::test]
async fn all_that_is_under_way_when_a_connection_ends_is_answered() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    proxy.lose_replies();
    let writes: Vec<_> = (0..200).map(|_| client.set_data("/a", "x", None)).collect();
    let (mut applied, mut unknown) = (0, 0);
    for write in writes {
        match soon("a reply", write).await {
            Ok(_) => applied += 1,
            Err(OpError::ConnectionLoss { outcome: Outcome::Unknown, .. }) => unknown += 1,
            Err(error) => {
                assert_eq!(error.bare(), OpError::connection_loss(Outcome::NotApplied));
            }
        }
    }
    let version = client.exists("/a").await.unwrap().unwrap().version;
    assert!((applied..=applied + unknown).contains(&version.0), "{version:?}");
}

#[tokio::test]
async fn a_close_without_a_server_says_so() {
    let fixture = Fixture::start().await;
    let proxy = fixture.proxy().await;
    let short = zk_tests::target::short_session();
    let client = fixture.builder_at(proxy.addr()).session_timeout(short).connect().await.unwrap();
    client.create("/e", "", EPHEMERAL).await.unwrap();
    let other = fixture.client().await;
    let (_, mut watcher) = other.exists_and_watch("/e").await.unwrap();
    // The proxy keeps its port, which the server of another test would get.
    proxy.refuse_for(2 * PATIENCE);
    proxy.cut_all();
    let closed = soon("the end of the close", client.close()).await;
    assert_eq!(closed, CloseOutcome::Abandoned);
    // The server expires the session after its timeout.
    assert_eq!(kind(&mut watcher).await, EventType::NODE_DELETED);
}

#[tokio::test]
async fn states_tell_of_losses_and_of_the_end() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    let mut states = client.states();
    assert_eq!(states.current().state, SessionState::Connected);
    proxy.pause();
    proxy.cut_all();
    let next = soon("a change", states.next()).await.unwrap();
    assert_eq!((next.state, next.session), (SessionState::Suspended, client.session_id()));
    proxy.resume();
    status(&client, "the return", |now| now.state == SessionState::Connected).await;
    client.close().await;
    let last = soon("the end", async {
        let mut last = states.current();
        while let Some(next) = states.next().await {
            last = next;
        }
        last
    });
    assert_eq!(last.await.state, SessionState::Closed);
}

#[tokio::test]
async fn an_observer_sees_the_whole_life_of_an_ephemeral() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let path = fixture.full("/e");
    let (stat, mut watcher) = fixture.observer.exists_and_watch(&path).await.unwrap();
    assert_eq!(stat, None);
    client.create("/e", "", EPHEMERAL).await.unwrap();
    assert_eq!(event(&mut watcher).await.kind, EventType::NODE_CREATED);
    let (stat, mut watcher) = fixture.observer.exists_and_watch(&path).await.unwrap();
    assert_eq!(stat.and_then(|stat| stat.ephemeral_owner), client.session_id());
    client.close().await;
    assert_eq!(event(&mut watcher).await.kind, EventType::NODE_DELETED);
}
