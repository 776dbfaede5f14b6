//! Sessions that another client continues.

use std::time::Duration;

use zk_session::{
    Client, Clock, CloseOutcome, ConnectError, CreateMode, EventType, HandOverError, OpError,
    Outcome, SessionState, SessionTicket,
};
use zk_tests::world::{SESSION_TIMEOUT, World, run, sleep_ms};
use zk_testserver::{Action, ServerConfig, Until};

use crate::at_op;
use jute_codec::OpCode;

async fn resume(world: &World, ticket: SessionTicket) -> Result<Client, ConnectError> {
    let builder = Client::builder("in-process").transport(world.server.connector());
    builder.clock(Clock::tokio()).lease(None).resume(ticket).connect().await
}

#[test]
fn another_client_continues_the_session_with_its_znodes() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        client.create("/e", "", CreateMode::Ephemeral).await.expect("it is new");
        let session = client.session_id();
        let ticket = client.hand_over().await.expect("there is a session");
        assert_eq!((Some(ticket.session()), ticket.timeout()), (session, SESSION_TIMEOUT));
        assert_eq!(client.state(), SessionState::Closed);
        assert_eq!(
            client.exists("/").await.map_err(|error| error.outcome()),
            Err(Outcome::NotApplied)
        );
        assert_eq!(client.hand_over().await, Err(HandOverError::NoSession), "it is gone");
        assert_eq!(client.close().await, CloseOutcome::Abandoned);
        assert!(world.server.stat("/e").is_some(), "the session was not closed");

        // Another process gets the text.
        let text = ticket.to_secret_text();
        let heir =
            resume(&world, text.parse().expect("it was just written")).await.expect("it lives");
        assert_eq!(heir.session_id(), session);
        heir.create("/f", "", CreateMode::Ephemeral).await.expect("it is new");
        let mut ephemerals = heir.get_ephemerals("/").await.expect("the server answers");
        ephemerals.sort();
        assert_eq!(ephemerals, ["/e", "/f"]);
        sleep_ms(30_000).await;
        assert!(world.server.stat("/e").is_some(), "the heir sends heartbeats");
        assert_eq!(heir.close().await, CloseOutcome::Closed);
        assert!(world.server.stat("/e").is_none());
    });
}

/// The ticket has the zxid of the last reply, not that of the last event.
#[test]
fn an_heir_reads_nothing_that_is_older_than_the_events_of_the_first_client() {
    run(async {
        let config = ServerConfig::default().members(2).unapplied(Duration::from_secs(5));
        let world = World::with(config);
        world.server.admin_create("/a", b"", None);
        let client = world.client(1).await;
        let (_, mut watcher) = client.exists_and_watch("/a").await.expect("it is there");
        // The other member applies everything but the deletion.
        sleep_ms(6_000).await;
        world.server.admin_delete("/a");
        let event = watcher.changed().await.expect("the session lives");
        assert_eq!(event.kind, EventType::NODE_DELETED);
        let ticket = client.hand_over().await.expect("there is a session");

        let connector = world.server.connector_by(|_| 1);
        let builder = Client::builder("in-process").transport(connector);
        let heir = builder.clock(Clock::tokio()).lease(None).resume(ticket).connect().await;
        let heir = heir.expect("the session lives");
        assert_eq!(heir.exists("/a").await, Ok(None));
        assert_eq!(heir.close().await, CloseOutcome::Closed);
    });
}

/// A server finds the reply to a commit by session and xid. A late commit of the first client must
/// not answer a request of the second.
#[test]
fn xids_continue_so_that_no_late_commit_answers_another_request() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let lost = at_op(OpCode::CREATE2, Action::LateCommit(Until::NextWrite));
        world.server.inject(lost);
        let created = client.create("/late", "", CreateMode::Persistent).await;
        assert_eq!(created.expect_err("it is late").outcome(), Outcome::Unknown);
        let ticket = client.hand_over().await.expect("there is a session");
        let heir = resume(&world, ticket).await.expect("it lives");
        let created = heir.create("/new", "", CreateMode::Persistent).await.expect("it is new");
        assert_eq!(created.path, "/new");
        assert!(world.server.stat("/late").is_some() && world.server.stat("/new").is_some());
        // The sync of the heir makes the server commit the late create, so its reply alone would not
        // show an xid that is used twice.
        let xids: Vec<_> = world.server.requests().iter().map(|request| request.xid).collect();
        let xids: Vec<_> = xids.into_iter().filter(|xid| *xid > 0).collect();
        assert!(xids.is_sorted_by(|one, next| one < next), "{xids:?}");
    });
}

#[test]
fn requests_in_flight_complete_first_and_waiting_ones_are_refused() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        world.server.inject(at_op(OpCode::CREATE2, Action::Delay(Duration::from_secs(1))));
        let in_flight = client.create("/a", "", CreateMode::Persistent);
        sleep_ms(10).await;
        let begin = client.now();
        let (created, ticket) = tokio::join!(in_flight, client.hand_over());
        created.expect("its reply is awaited");
        assert!(ticket.is_ok());
        assert!(client.now().saturating_since(begin) < Duration::from_secs(2));
    });
}

#[test]
fn a_hand_over_without_a_connection_does_not_wait() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        client.create("/e", "", CreateMode::Ephemeral).await.expect("it is new");
        world.server.refuse_for(Duration::from_secs(2));
        world.server.disconnect_all();
        sleep_ms(10).await;
        let waiting = client.create("/w", "", CreateMode::Persistent);
        let begin = client.now();
        let ticket = client.hand_over().await.expect("there is a session");
        assert_eq!(client.now(), begin);
        let refused = waiting.await.expect_err("it was not sent");
        assert!(
            matches!(refused, OpError::Closed { outcome: Outcome::NotApplied, .. }),
            "{refused}"
        );
        let heir = resume(&world, ticket).await.expect("the server returns in time");
        assert!(heir.exists("/e").await.expect("the server answers").is_some());
    });
}

#[test]
fn a_silent_server_delays_a_hand_over_by_at_most_a_session_timeout() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        world.server.inject(at_op(OpCode::CREATE2, Action::Freeze));
        let lost = client.create("/a", "", CreateMode::Persistent);
        sleep_ms(10).await;
        let begin = client.now();
        let (lost, ticket) = tokio::join!(lost, client.hand_over());
        assert_eq!(lost.expect_err("there is no reply").outcome(), Outcome::Unknown);
        assert!(ticket.is_ok());
        assert!(client.now().saturating_since(begin) <= SESSION_TIMEOUT);
    });
}

#[test]
fn a_session_that_has_ended_or_a_wrong_password_is_an_error() {
    run(async {
        let world = World::new();
        for is_expired in [true, false] {
            let client = world.client(1).await;
            let session = client.session_id().expect("it is connected");
            let mut text = client.hand_over().await.expect("there is a session").to_secret_text();
            if is_expired {
                world.server.expire(session);
            } else {
                // The third part is the password.
                let mut parts: Vec<_> = text.split(':').map(str::to_owned).collect();
                parts[2] = "00".repeat(16);
                text = parts.join(":");
            }
            let error = resume(&world, text.parse().expect("it is well formed")).await;
            let error = error.expect_err("the server refuses");
            assert_eq!(error, ConnectError::NotResumed { session });
            sleep_ms(100).await;
        }
        // The session opened instead was closed.
        assert!(world.server.sessions().len() <= 1, "{:?}", world.server.sessions());
    });
}

#[test]
fn two_clients_with_one_session_evict_each_other_at_a_bounded_rate() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let ticket = client.hand_over().await.expect("there is a session");
        let one = resume(&world, ticket.clone()).await.expect("it lives");
        let two = resume(&world, ticket).await.expect("it lives");
        let connections = || one.status().connection + two.status().connection;
        sleep_ms(30_000).await;
        let before = connections();
        sleep_ms(60_000).await;
        let made = connections() - before;
        assert!((1..=130).contains(&made), "{made} connections in a minute");
        assert_eq!(one.session_id(), two.session_id(), "the session survives");
        let failure = one.last_failure().expect("it was evicted").to_string();
        assert!(failure.contains("closed"), "{failure}");
    });
}

#[test]
fn neither_the_ticket_nor_a_client_shows_the_password() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let shown = format!("{client:?}");
        let ticket = client.hand_over().await.expect("there is a session");
        let secret = ticket.to_secret_text();
        let password = secret.split(':').nth(2).expect("it is the third part").to_owned();
        let builder = Client::builder("in-process").resume(ticket.clone());
        let shown = format!("{shown} {ticket:?} {builder:?}");
        assert!(!password.is_empty() && !shown.contains(&password), "{shown}");
    });
}
