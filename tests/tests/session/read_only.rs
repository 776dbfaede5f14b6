//! Servers that have lost their ensemble and serve only reads.

use std::time::Duration;

use jute_codec::ErrorCode;
use zk_recipes::{FairLock, LockError, LockState, Tree};
use zk_session::{Client, Clock, ConnectError, CreateMode, Host, Outcome, SessionState};
use zk_tests::world::{SESSION_TIMEOUT, World, run, sleep_ms};
use zk_testserver::{Action, At, Fault, ServerConfig, ServerVersion};

async fn client(world: &World, seed: u64) -> Client {
    world.client_with(seed, |builder| builder.read_only()).await
}

async fn until(client: &Client, state: SessionState) {
    let mut states = client.states();
    while states.current().state != state {
        states.next().await.expect("the client continues");
    }
}

#[test]
fn reads_continue_writes_are_refused_and_the_session_returns() {
    run(async {
        let world = World::new();
        let client = client(&world, 1).await;
        client.create("/a", "1", CreateMode::Persistent).await.expect("it is new");
        client.create("/e", "", CreateMode::Ephemeral).await.expect("it is new");
        let session = client.session_id();

        world.server.partition();
        until(&client, SessionState::ConnectedReadOnly).await;
        assert_eq!(client.session_id(), session, "the session is not given up");
        assert_eq!(client.get_data("/a").await.expect("reads continue").0, "1");
        let error = client.set_data("/a", "2", None).await.expect_err("the server is read-only");
        assert_eq!(
            (error.server_code(), error.outcome()),
            (Some(ErrorCode::NOT_READ_ONLY), Outcome::NotApplied)
        );
        assert!(error.to_string().contains("read-only"), "{error}");
        assert!(client.health().to_string().contains("read-only"), "{}", client.health());
        assert!(!client.health().is_ready());

        // Longer than the client would go without any server before it gives up the session.
        sleep_ms(60_000).await;
        assert_eq!(client.state(), SessionState::ConnectedReadOnly);
        world.server.heal();
        until(&client, SessionState::Connected).await;
        assert_eq!(client.session_id(), session);
        assert!(client.exists("/e").await.expect("the server answers").is_some());
        client.set_data("/a", "2", None).await.expect("the server accepts writes");
        assert_eq!(world.server.sessions().len(), 1, "no other session is left");
    });
}

/// Another server accepts writes all the time.
#[test]
fn a_read_only_server_is_used_when_its_turn_comes_and_left_for_a_better_one() {
    run(async {
        let world = World::with(ServerConfig::default().members(3));
        let transport = world.server.connector_by(|host: Host| usize::from(host.name == "zk2"));
        let builder = Client::builder("zk1,zk2").transport(transport).read_only();
        let builder = builder.session_timeout(SESSION_TIMEOUT).clock(Clock::tokio()).seed(1);
        let client = builder.connect().await.expect("the servers accept everybody");
        let session = client.session_id();
        world.server.member(0).partition();
        world.server.member(1).disconnect_member();
        until(&client, SessionState::ConnectedReadOnly).await;
        let begin = client.now();
        until(&client, SessionState::Connected).await;
        assert!(client.now().saturating_since(begin) < Duration::from_secs(1));
        assert_eq!(client.session_id(), session);
        client.create("/a", "", CreateMode::Persistent).await.expect("the server accepts writes");
    });
}

/// The read-only server has lost the others before the session was opened, and says that it has
/// expired. It refuses clients that have seen a later state, so this one has seen nothing yet.
#[test]
fn a_session_that_a_read_only_server_does_not_know_goes_on() {
    for version in [ServerVersion::V3_6, ServerVersion::V3_8] {
        run(async {
            let world = World::with(ServerConfig::default().members(3).version(version));
            world.server.member(1).partition();
            let transport = world.server.connector_by(|host: Host| usize::from(host.name == "zk2"));
            let builder = Client::builder("zk1").transport(transport).read_only();
            let builder = builder.session_timeout(SESSION_TIMEOUT).clock(Clock::tokio()).seed(1);
            let client = builder.connect().await.expect("the servers accept everybody");
            let session = client.session_id();
            client.set_hosts("zk2").expect("the list is valid");
            until(&client, SessionState::ConnectedReadOnly).await;
            assert_eq!(client.session_id(), session);
            client.set_hosts("zk1").expect("the list is valid");
            until(&client, SessionState::Connected).await;
            assert_eq!(client.session_id(), session);
            assert_eq!(world.server.sessions().len(), 1, "no other session is left");
        });
    }
}

#[test]
fn a_session_that_was_given_up_does_not_keep_the_client_from_reading() {
    run(async {
        let world = World::new();
        let client = client(&world, 1).await;
        client.create("/a", "1", CreateMode::Persistent).await.expect("it is new");
        client.create("/e", "", CreateMode::Ephemeral).await.expect("it is new");
        let session = client.session_id();
        // No server answers for so long that the client gives the session up. Then one serves reads.
        world.server.partition();
        world.server.refuse_for(3 * SESSION_TIMEOUT);
        world.server.disconnect_all();
        until(&client, SessionState::Connecting).await;
        until(&client, SessionState::ConnectedReadOnly).await;
        assert_eq!(client.session_id(), None);
        assert_eq!(client.get_data("/a").await.expect("it serves reads").0, "1");
        world.server.heal();
        until(&client, SessionState::Connected).await;
        assert_ne!(client.session_id(), session);
        // The session that was given up is closed first.
        assert_eq!(client.exists("/e").await.expect("the server answers"), None);
        assert_eq!(world.server.sessions().len(), 1, "no other session is left");
    });
}

/// After each handshake that ends without a reply, the client asks once more without a session. The
/// first handshake with a reply may be either.
#[test]
fn a_session_that_was_given_up_is_closed_whenever_the_servers_return() {
    for cuts in 0..5 {
        run(async {
            let world = World::new();
            let client = client(&world, 1).await;
            client.create("/e", "", CreateMode::Ephemeral).await.expect("it is new");
            let cut = Fault::new(At::Connect { nth: 0 }, Action::CutBefore);
            world.inject(vec![cut; cuts]);
            world.server.refuse_for(3 * SESSION_TIMEOUT);
            world.server.disconnect_all();
            until(&client, SessionState::Connecting).await;
            until(&client, SessionState::Connected).await;
            assert_eq!(client.exists("/e").await.expect("the server answers"), None);
            // A session that was opened without need owns nothing, and expires.
            sleep_ms(15_000).await;
            assert_eq!(world.server.sessions().len(), 1, "after {cuts} cuts");
        });
    }
}

#[test]
fn a_client_without_the_option_waits() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        world.server.partition();
        sleep_ms(100).await;
        let read = client.exists("/").timeout(Duration::from_secs(2)).await;
        assert!(read.expect_err("the server refuses it").is_timed_out());
        assert_eq!(client.state(), SessionState::Suspended);
        world.server.heal();
        client.exists("/").await.expect("the server accepts everybody");
    });
}

#[test]
fn a_lock_is_at_risk_and_survives_a_short_outage() {
    run(async {
        let world = World::new();
        let (client, other) = (client(&world, 1).await, world.client(2).await);
        let lock = FairLock::new(&client, "/lock").expect("the path is valid");
        let guard = lock.acquire().await.expect("nobody else wants it");
        world.server.partition();
        until(&client, SessionState::ConnectedReadOnly).await;
        assert_eq!(guard.state(), LockState::AtRisk);
        // Acknowledgements of a read-only server are no proof.
        let deadline = client.status().guard_deadline();
        sleep_ms(3_000).await;
        client.exists("/").await.expect("reads continue");
        assert_eq!(client.status().guard_deadline(), deadline);
        assert_eq!(guard.state(), LockState::AtRisk, "it is not lost early");
        world.server.heal();
        until(&client, SessionState::Connected).await;
        guard.validate().await.expect("the session is the same");
        assert_eq!(guard.state(), LockState::Held);
        guard.release().await.expect("it is held");
        drop(other);
    });
}

#[test]
fn a_lock_is_lost_when_its_time_has_passed_and_nobody_acquires_meanwhile() {
    run(async {
        let world = World::new();
        let (client, other) = (client(&world, 1).await, client(&world, 2).await);
        let lock = FairLock::new(&client, "/lock").expect("the path is valid");
        let theirs = FairLock::new(&other, "/lock").expect("the path is valid");
        let guard = lock.acquire().await.expect("nobody else wants it");
        world.server.partition();
        until(&other, SessionState::ConnectedReadOnly).await;
        let waiting = theirs.acquire().timeout(3 * SESSION_TIMEOUT).await;
        assert!(matches!(waiting, Err(LockError::TimedOut(_))), "{waiting:?}");
        assert!(matches!(guard.state(), LockState::Lost(_)), "{:?}", guard.state());
        // Recipes wait until a server accepts writes.
        let ensured = Tree::of(&other).timeout(Duration::from_secs(5)).ensure("/x").await;
        assert!(ensured.expect_err("no server accepts writes").is_timed_out());
        world.server.heal();
        let guard = theirs.acquire().await.expect("the lock was given up");
        guard.release().await.expect("it is held");
    });
}

#[test]
fn a_client_may_begin_at_a_read_only_server() {
    run(async {
        let world = World::new();
        world.server.admin_create("/a", b"1", None);
        world.server.partition();
        let client = client(&world, 1).await;
        assert_eq!((client.state(), client.session_id()), (SessionState::ConnectedReadOnly, None));
        let ((data, _), mut watcher) = client.get_data_and_watch("/a").await.expect("it exists");
        assert_eq!(data, "1");
        world.server.heal();
        until(&client, SessionState::Connected).await;
        assert!(client.session_id().is_some());
        client.set_data("/a", "2", None).await.expect("the server accepts writes");
        watcher.changed().await.expect("the watch was restored");
    });
}

#[test]
fn a_client_that_accepts_no_read_only_server_cannot_begin_at_one() {
    run(async {
        let world = World::new();
        world.server.partition();
        let builder = Client::builder("in-process")
            .transport(world.server.connector())
            .clock(Clock::tokio())
            .connect_within(Duration::from_secs(3));
        let error = builder.connect().await.expect_err("the server refuses it");
        assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");
    });
}

#[test]
fn a_client_that_is_closed_at_a_read_only_server_gives_up_after_a_session_timeout() {
    run(async {
        let world = World::new();
        let client = client(&world, 1).await;
        world.server.partition();
        until(&client, SessionState::ConnectedReadOnly).await;
        let begin = client.now();
        assert_eq!(client.close().await, zk_session::CloseOutcome::Abandoned);
        assert!(client.now().saturating_since(begin) <= SESSION_TIMEOUT);
    });
}
