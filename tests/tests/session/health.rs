//! What a probe sees of a client, and a close that must not take long.

use std::time::Duration;

use zk_recipes::{Client, Clock};
use zk_session::{CloseOutcome, CreateMode, SessionState};
use zk_tests::scene::{partition, session, settle};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Reception;

use crate::connected;

#[test]
fn health_says_who_answers_and_since_when() {
    run(async {
        let world = World::new().leased();
        let client = world.client(1).await;
        sleep_ms(3_000).await;
        let health = client.health();
        assert!(health.is_ready(), "{health}");
        assert_eq!(health.state, SessionState::Connected);
        assert_eq!(health.session, client.session_id());
        assert!(health.server.is_some() && health.last_failure.is_none(), "{health:?}");
        assert_eq!(health.since.map(|since| since.as_secs()), Some(3));
        assert!(health.acknowledged.is_some_and(|ago| ago <= Duration::from_secs(4)), "{health}");
        assert_eq!(health.pending, 0);
        let guard = World::lock(&client).acquire().await.expect("the lock is free");
        sleep_ms(3_000).await;
        let leased = client.health();
        assert_eq!(leased.lease, guard.remaining());
        assert!(leased.lease.is_some_and(|lease| !lease.is_zero()), "{leased}");
        let line = leased.to_string();
        for part in ["connected to", "for 6.0s", "session 0x", "leased for", ", 0 pending"] {
            assert!(line.contains(part), "{part:?}: {line}");
        }
    });
}

#[test]
fn a_client_without_a_connection_is_not_ready_and_says_why() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        partition(&world, 5_000);
        settle().await;
        let waiting: Vec<_> = (0..5).map(|_| client.get_data("/")).collect();
        sleep_ms(2_000).await;
        let health = client.health();
        assert!(!health.is_ready(), "{health}");
        assert_eq!(health.state, SessionState::Suspended);
        assert_eq!((health.server.clone(), health.pending), (None, 5), "{health:?}");
        assert_eq!(health.since.map(|since| since.as_secs()), Some(2));
        let line = health.to_string();
        for part in ["Suspended for 2.0s", "5 pending", "last failure: ", "refused"] {
            assert!(line.contains(part), "{part:?}: {line}");
        }
        connected(&client).await;
        for read in waiting {
            read.await.expect("the root exists");
        }
        let health = client.health();
        assert!(health.is_ready() && health.last_failure.is_some(), "{health:?}");
        assert_eq!(health.pending, 0);
    });
}

/// The connection is open, but nobody answers.
#[test]
fn a_server_that_is_silent_is_noticed_before_the_connection_is_given_up() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let timeout = client.status().timeout;
        world.server.pause_connection(session(&client), timeout * 10);
        let mut was_silent = false;
        for _ in 0..200 {
            sleep_ms(100).await;
            let health = client.health();
            if health.state != SessionState::Connected {
                break;
            }
            was_silent |= !health.is_ready();
        }
        assert!(was_silent, "{}", client.health());
    });
}

#[test]
fn a_client_that_was_closed_is_not_ready() {
    run(async {
        let client = World::new().client(1).await;
        client.close().await;
        let health = client.health();
        assert!(!health.is_ready());
        assert_eq!((health.state, health.session), (SessionState::Closed, None), "{health}");
    });
}

#[test]
fn a_close_with_a_limit_is_complete_if_a_server_answers() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        client.create("/e", "", CreateMode::Ephemeral).await.expect("it is free");
        let limit = Duration::from_secs(5);
        assert_eq!(client.close_within(limit).await, CloseOutcome::Closed);
        assert!(world.server.stat("/e").is_none());
        // Once more.
        assert_eq!(client.close_within(limit).await, CloseOutcome::Closed);
    });
}

#[test]
fn a_close_with_a_limit_ends_in_time_and_goes_on_in_the_background() {
    for reception in [Reception::Refused, Reception::BlackHole, Reception::Silent] {
        run(async {
            let world = World::new();
            let builder = Client::builder("in-process").transport(world.server.connector());
            let client = builder.clock(Clock::tokio()).connect().await.expect("it is there");
            client.create("/e", "", CreateMode::Ephemeral).await.expect("it is free");
            world.server.set_reception(reception);
            world.server.disconnect_all();
            settle().await;
            for limit in [0, 700] {
                let began = client.now();
                let limit = Duration::from_millis(limit);
                assert_eq!(client.close_within(limit).await, CloseOutcome::Abandoned);
                let took = client.now().saturating_since(began);
                assert!(took >= limit && took <= limit + Duration::from_millis(2), "{took:?}");
            }
            assert!(world.server.stat("/e").is_some());
            world.server.set_reception(Reception::Open);
            world.server.disconnect_all();
            world.until("the session is closed", |server| server.stat("/e").is_none()).await;
            assert_eq!(client.close().await, CloseOutcome::Closed, "{reception:?}");
        });
    }
}

#[test]
fn a_close_with_a_limit_may_be_dropped() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        client.create("/e", "", CreateMode::Ephemeral).await.expect("it is free");
        partition(&world, 500);
        let closing = client.close_within(Duration::from_secs(60));
        assert!(tokio::time::timeout(Duration::from_millis(100), closing).await.is_err());
        world.until("the session is closed", |server| server.stat("/e").is_none()).await;
    });
}

/// A probe that asks an idle client must not take it out of service between two pings.
#[test]
fn a_client_that_idles_is_ready_at_every_moment() {
    for seconds in [1, 4, 10, 30, 60] {
        for is_shipped in [true, false] {
            run(async {
                let world = World::new().session_timeout(Duration::from_secs(seconds));
                let world = if is_shipped { world.leased() } else { world };
                let client = world.client(1).await;
                for _ in 0..900 {
                    sleep_ms(100).await;
                    let health = client.health();
                    assert!(health.is_ready(), "{seconds} s, {is_shipped}: {health}");
                }
            });
        }
    }
}
