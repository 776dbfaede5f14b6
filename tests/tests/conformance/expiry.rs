//! The expiry of a session whose client is cut off.
//!
//! A proxy that forwards nothing separates the client from its server, and the watch of an observer
//! fires when the server has expired the session. No test depends on how long the expiry takes.

use std::time::Duration;

use zk_session::recipe::{Change, LaneEvent, Session};
use zk_session::{
    Client, CreateMode, EventType, OpError, Outcome, SessionState, Status, WatchEnded,
};
use zk_tests::bare::Bare as _;
use zk_tests::proxy::Proxy;
use zk_tests::target::{Fixture, short_session};
use zk_tests::wait::{catch_up, kind, soon, status};

const EPHEMERAL: CreateMode = CreateMode::Ephemeral;
const PERSISTENT: CreateMode = CreateMode::Persistent;

/// A time longer than any test takes, so the client waits for a server to end its session.
pub(super) const NEVER: Duration = Duration::from_secs(600);

/// A client that is about to lose its session.
pub(super) struct Victim {
    pub(super) fixture: Fixture,
    pub(super) proxy: Proxy,
    pub(super) client: Client,
    pub(super) before: Status,
}

impl Victim {
    /// Starts a client with an ephemeral znode `/e`. After `give_up` without a server, the client
    /// treats its session as expired.
    pub(super) async fn start(give_up: Duration, renew: bool) -> Self {
        Self::with_timeout(short_session(), give_up, renew).await
    }

    async fn with_timeout(timeout: Duration, give_up: Duration, renew: bool) -> Self {
        let fixture = Fixture::start().await;
        let proxy = fixture.proxy().await;
        let builder = fixture
            .builder_at(proxy.addr())
            .session_timeout(timeout)
            .connect_within(Duration::from_secs(30))
            .connect_timeout(Duration::from_millis(500))
            .give_up_after(give_up)
            .renew_after_expiry(renew);
        let client = builder.connect().await.unwrap();
        client.create("/e", "", EPHEMERAL).await.unwrap();
        let before = client.status();
        Self { fixture, proxy, client, before }
    }

    /// Blocks the client until its server has expired the session.
    pub(super) async fn expire(&self) {
        let observer = &self.fixture.observer;
        catch_up(observer).await;
        let path = self.fixture.full("/e");
        let (stat, mut watcher) = observer.exists_and_watch(&path).await.unwrap();
        assert_eq!(stat.and_then(|stat| stat.ephemeral_owner), self.before.session);
        self.proxy.pause();
        assert_eq!(kind(&mut watcher).await, EventType::NODE_DELETED);
        assert_eq!(observer.exists(&path).await, Ok(None));
    }

    /// Waits like [`Victim::expire`], for a client that is already blocked.
    pub(super) async fn expire_while_blocked(&self) {
        let path = self.fixture.full("/e");
        catch_up(&self.fixture.observer).await;
        let (stat, mut watcher) = self.fixture.observer.exists_and_watch(&path).await.unwrap();
        if stat.is_some() {
            assert_eq!(kind(&mut watcher).await, EventType::NODE_DELETED);
        }
    }

    pub(super) async fn next_session(&self) -> Status {
        status(&self.client, "the next session", |now| {
            now.state == SessionState::Connected && now.session != self.before.session
        })
        .await
    }
}

#[tokio::test]
async fn an_expired_client_opens_the_next_session_by_itself() {
    let victim = Victim::start(NEVER, true).await;
    victim.expire().await;
    victim.proxy.resume();
    let after = victim.next_session().await;
    assert!(after.connection > victim.before.connection);
    let client = &victim.client;
    assert_eq!(client.exists("/e").await, Ok(None));
    let stat = client.create("/e", "", EPHEMERAL).await.unwrap().stat;
    assert_eq!(stat.ephemeral_owner, after.session);
}

#[tokio::test]
async fn nothing_crosses_into_the_next_session() {
    let victim = Victim::start(NEVER, true).await;
    let client = &victim.client;
    let (_, mut data) = client.get_data_and_watch("/e").await.unwrap();
    let (_, mut existence) = client.exists_and_watch("/missing").await.unwrap();
    victim.proxy.pause();
    let under_way = client.create("/under-way", "", PERSISTENT);
    status(client, "the loss", |now| now.state == SessionState::Suspended).await;
    assert_eq!(under_way.await.unwrap_err().bare(), OpError::connection_loss(Outcome::Unknown));
    let waiting = client.create("/waiting", "", PERSISTENT);
    victim.expire_while_blocked().await;
    victim.proxy.resume();
    let expired = OpError::session_expired(Outcome::NotApplied);
    assert_eq!(waiting.await.unwrap_err().bare(), expired);
    assert_eq!(soon("the end", data.changed()).await, Err(WatchEnded::SessionExpired));
    assert_eq!(soon("the end", existence.changed()).await, Err(WatchEnded::SessionExpired));
    victim.next_session().await;
    assert_eq!(client.exists("/waiting").await, Ok(None));
    // Watches can be set again in the new session.
    let (_, mut again) = client.exists_and_watch("/again").await.unwrap();
    client.create("/again", "", PERSISTENT).await.unwrap();
    assert_eq!(kind(&mut again).await, EventType::NODE_CREATED);
}

#[tokio::test]
async fn a_lane_is_told_which_session_ended_and_which_began() {
    let victim = Victim::start(NEVER, true).await;
    let mut lane = Session::of(&victim.client).lane();
    victim.expire().await;
    victim.proxy.resume();
    let after = victim.next_session().await;
    let mut changes = Vec::new();
    let is_new = |change: &Change| matches!(change, Change::Connected { session, .. } if Some(*session) == after.session);
    while !changes.last().is_some_and(is_new) {
        if let LaneEvent::Change(change) = soon("a change", lane.next()).await {
            changes.push(change);
        }
    }
    let before = victim.before.session.unwrap();
    let ended = changes
        .iter()
        .position(|change| matches!(change, Change::Ended { session, .. } if *session == before));
    assert!(ended.is_some_and(|at| at + 1 < changes.len()), "{changes:?}");
    assert!(changes.contains(&Change::Suspended { session: before }), "{changes:?}");
}

#[tokio::test]
async fn a_client_that_is_not_to_renew_stops() {
    let victim = Victim::start(NEVER, false).await;
    victim.expire().await;
    victim.proxy.resume();
    let client = &victim.client;
    status(client, "the end", |now| now.state == SessionState::Expired).await;
    let error = client.exists("/e").await.unwrap_err();
    assert_eq!(error.bare(), OpError::session_expired(Outcome::NotApplied));
}

#[tokio::test]
async fn a_client_that_gives_up_buries_its_session_before_the_next() {
    let victim = Victim::start(short_session(), true).await;
    let client = &victim.client;
    victim.proxy.pause();
    status(client, "the giving up", |now| now.session.is_none()).await;
    victim.proxy.resume();
    let after = victim.next_session().await;
    // The old session is over now, whether or not the server had expired it earlier.
    catch_up(client).await;
    assert_eq!(client.exists("/e").await, Ok(None));
    assert_eq!(client.session_id(), after.session);
}

#[tokio::test]
async fn idle_sessions_are_kept_alive() {
    // The timeout is long enough for a few late pings.
    let timeout = 2 * short_session();
    let victim = Victim::with_timeout(timeout, NEVER, true).await;
    let idle = victim.fixture.builder().session_timeout(timeout);
    let idle = idle.connect_within(Duration::from_secs(30)).connect().await.unwrap();
    let stat = idle.create("/idle", "", EPHEMERAL).await.unwrap().stat;
    // The victim has the same timeout, and sends its last request after the idle client's last
    // request.
    catch_up(&victim.client).await;
    victim.expire().await;
    let seen = victim.fixture.observer.exists(&victim.fixture.full("/idle")).await.unwrap();
    assert_eq!(seen, Some(stat));
    assert_eq!((idle.session_id(), idle.status().connection), (stat.ephemeral_owner, 1));
}
