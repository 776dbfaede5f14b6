//! Handles of one session, with roots, sessions and limits of their own.

use zk_session::{CreateMode, Limits, OpError, Outcome};
use zk_tests::bare::Bare as _;
use zk_tests::target::Fixture;
use zk_tests::wait::event;

use super::expiry::{NEVER, Victim};

const PERSISTENT: CreateMode = CreateMode::Persistent;

#[tokio::test]
async fn a_handle_with_a_root_sees_its_subtree_as_the_whole_tree() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/app", "", PERSISTENT).await.unwrap();
    let app = client.rooted_at("/app").unwrap();
    assert_eq!(app.root(), fixture.full("/app"));
    let (_, mut watcher) = client.exists_and_watch("/app/a").await.unwrap();
    let (_, mut inside) = app.exists_and_watch("/a").await.unwrap();
    assert_eq!(app.create("/a", "1", PERSISTENT).await.unwrap().path, "/a");
    assert_eq!(event(&mut watcher).await.path, "/app/a");
    assert_eq!(event(&mut inside).await.path, "/a");
    assert_eq!(client.get_children("/app").await.unwrap(), ["a"]);
    let missing = app.delete("/none", None).await.unwrap_err();
    assert_eq!(missing.target().unwrap().path, "/none");
    assert_eq!(app.session_id(), client.session_id());
}

#[tokio::test]
async fn requests_above_a_limit_wait_and_are_all_answered_in_order() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    let slow = client.with_limits(Limits::new().in_flight(2));
    let writes: Vec<_> = (0..50).map(|at| slow.set_data("/a", format!("{at}"), None)).collect();
    let mut last = 0;
    for write in writes {
        let version = write.await.unwrap().version.0;
        assert_eq!(version, last + 1);
        last = version;
    }
    let (data, _) = client.get_data("/a").await.unwrap();
    assert_eq!(data, "49");
}

#[tokio::test]
async fn a_handle_of_a_session_that_has_expired_writes_nothing() {
    let victim = Victim::start(NEVER, true).await;
    let bound = victim.client.in_session(victim.client.session_id().unwrap());
    bound.create("/a", "", PERSISTENT).await.unwrap();
    victim.expire().await;
    victim.proxy.resume();
    victim.next_session().await;
    let refused = bound.create("/b", "", PERSISTENT).await.unwrap_err();
    assert_eq!(refused.bare(), OpError::session_expired(Outcome::NotApplied));
    assert_eq!(victim.client.exists("/b").await, Ok(None));
    victim.client.create("/b", "", PERSISTENT).await.unwrap();
}
