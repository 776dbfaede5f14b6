//! Time limits of single operations.

use std::time::Duration;

use zk_session::{CreateMode, OpError, Outcome};
use zk_tests::bare::Bare as _;
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

use crate::at_op;
use jute_codec::OpCode;

const LIMIT: Duration = Duration::from_millis(300);

fn outcome<T: std::fmt::Debug>(result: Result<T, OpError>) -> Outcome {
    let error = result.expect_err("the time has run out");
    assert!(error.is_timed_out(), "{error}");
    error.outcome()
}

#[test]
fn an_operation_that_expires_before_it_is_sent_is_never_sent() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let session = client.session_id();
        world.server.refuse_for(Duration::from_secs(3));
        world.server.disconnect_all();
        sleep_ms(10).await;
        let begin = client.now();
        let limited = client.create("/late", "", CreateMode::Persistent).timeout(LIMIT);
        let patient = client.create("/patient", "", CreateMode::Persistent);
        let error = limited.await.expect_err("there is no connection");
        let text = error.to_string();
        assert!(text.contains("create \"/late\""), "{text}");
        assert!(text.contains("; the client is not connected ("), "{text}");
        assert_eq!(outcome::<()>(Err(error)), Outcome::NotApplied);
        assert_eq!(client.now().saturating_since(begin), LIMIT);
        patient.await.expect("it has no limit");
        assert!(world.server.stat("/late").is_none());
        assert_eq!(client.session_id(), session, "the session is not affected");
    });
}

#[test]
fn an_operation_that_expires_after_it_was_sent_is_unknown_and_its_reply_is_ignored() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        world.server.inject(at_op(OpCode::CREATE2, Action::Delay(2 * LIMIT)));
        let limited = client.create("/a", "", CreateMode::Persistent).timeout(LIMIT);
        let behind = client.exists("/a");
        let error = limited.await.expect_err("the reply is late");
        assert!(!error.to_string().contains("not connected"), "{error}");
        assert_eq!(outcome::<()>(Err(error)), Outcome::Unknown);
        // The replies keep their order, and that of the expired operation is not mistaken for the
        // next one.
        assert!(behind.await.expect("the connection is not affected").is_some());
        assert_eq!(client.status().connection, 1);
    });
}

#[test]
fn a_handle_with_a_limit_limits_each_of_its_operations_and_no_others() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let limited = client.with_timeout(LIMIT);
        limited.create("/a", "", CreateMode::Persistent).await.expect("the server answers at once");
        world.server.refuse_for(Duration::from_secs(3));
        world.server.disconnect_all();
        sleep_ms(10).await;
        let begin = client.now();
        let (read, list, multi, watched, other) = tokio::join!(
            limited.get_data("/a"),
            limited.get_children("/"),
            limited.multi_read(zk_session::MultiRead::new().get_data("/a")),
            limited.exists_and_watch("/a"),
            client.get_data("/a"),
        );
        assert_eq!(outcome(read), Outcome::NotApplied);
        assert_eq!(outcome(list), Outcome::NotApplied);
        assert_eq!(outcome(multi), Outcome::NotApplied);
        assert_eq!(outcome(watched.map(drop)), Outcome::NotApplied);
        other.expect("it has no limit");
        assert!(client.now().saturating_since(begin) >= Duration::from_secs(2));
    });
}

#[test]
fn the_last_limit_counts_and_no_limit_is_too_long() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        world.server.refuse_for(Duration::from_secs(3));
        world.server.disconnect_all();
        sleep_ms(10).await;
        let begin = client.now();
        let shorter = client.exists("/").timeout(Duration::from_secs(2)).timeout(LIMIT);
        assert_eq!(outcome(shorter.await), Outcome::NotApplied);
        assert_eq!(client.now().saturating_since(begin), LIMIT);
        let longer = client.exists("/").timeout(LIMIT).timeout(Duration::MAX);
        longer.await.expect("the server returns");
        let path = client.exists("x").timeout(LIMIT).await.expect_err("it is invalid");
        assert!(matches!(path.bare(), OpError::InvalidPath { .. }));
    });
}
