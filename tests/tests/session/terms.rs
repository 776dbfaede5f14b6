//! Handles whose operations belong to one session, or are limited in number.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use jute_codec::OpCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};
use zk_recipes::Client;
use zk_session::{AuthError, CreateMode, Limits, Multi, MultiError, OpError, Outcome};
use zk_tests::bare::Bare as _;
use zk_tests::scene::{session, spawn};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Reception;

const EXPIRED: OpError = OpError::session_expired(Outcome::NotApplied);

/// Forwards what one side sends to the other side, 50 ms later.
async fn delay(mut from: ReadHalf<DuplexStream>, mut to: WriteHalf<DuplexStream>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(taken @ 1..) = from.read(&mut buffer).await {
        sleep_ms(50).await;
        let arrived = buffer.get(..taken).expect("no more than there is room for");
        if to.write_all(arrived).await.is_err() {
            return;
        }
    }
}

/// Connects a client by a link on which a round trip takes 100 ms.
async fn far_client(world: &World) -> Client {
    let server = world.server.clone();
    let connect = move |_host| {
        let stream = server.connect();
        async move {
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            let (from_server, to_server) = tokio::io::split(stream?);
            let (from_client, to_client) = tokio::io::split(theirs);
            spawn(delay(from_client, to_server));
            spawn(delay(from_server, to_client));
            Ok(ours)
        }
    };
    world.client_with(1, |builder| builder.transport(connect)).await
}

/// Returns how many reads of metadata have arrived. A link limits reads with longer replies too.
fn reads(world: &World) -> usize {
    world.server.requests().iter().filter(|request| request.op == OpCode::EXISTS).count()
}

/// Starts this many reads.
fn start(client: &Client, count: usize) -> Vec<tokio::task::JoinHandle<bool>> {
    let read = |_| {
        let read = client.exists("/");
        spawn(async move { read.await.is_ok() })
    };
    (0..count).map(read).collect()
}

#[test]
fn no_operation_of_a_bound_handle_reaches_another_session() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let bound = client.in_session(session(&client));
        bound.create("/e", "", CreateMode::Ephemeral).await.expect("it is the session");
        let stream = bound.watch("/e", zk_session::WatchMode::Persistent).await.expect("3.6");
        world.server.expire(session(&client));
        client.exists("/").await.expect_err("the session has expired");
        client.exists("/").await.expect("there is a new session");
        drop(stream);
        let before = world.server.requests().len();
        assert_eq!(bound.exists("/").await.map_err(OpError::bare), Err(EXPIRED));
        assert_eq!(bound.get_data_and_watch("/").await.expect_err("ended").bare(), EXPIRED);
        assert_eq!(bound.set_data("/", "", None).await.expect_err("ended").bare(), EXPIRED);
        assert_eq!(bound.delete("/e", None).await.expect_err("ended").bare(), EXPIRED);
        let create = bound.create_with_parents("/e", "", CreateMode::Ephemeral).await;
        assert_eq!(create.expect_err("ended").bare(), EXPIRED);
        let watch = bound.watch("/e", zk_session::WatchMode::Persistent).await;
        assert_eq!(watch.expect_err("ended").bare(), EXPIRED);
        assert_eq!(bound.who_am_i().await.expect_err("ended").bare(), EXPIRED);
        assert_eq!(bound.catch_up().await.expect_err("ended").bare(), EXPIRED);
        assert_eq!(bound.get_config().await.expect_err("ended").bare(), EXPIRED);
        let multi = bound.commit(Multi::new().check("/", None)).await;
        let Err(MultiError::Op(error)) = multi else { panic!("{multi:?}") };
        assert_eq!(error.bare(), EXPIRED);
        assert_eq!(world.server.requests().len(), before, "nothing was sent");
        client.commit_in(session(&client), Multi::new().check("/", None)).await.expect("it is");
    });
}

#[test]
fn a_limited_handle_has_so_many_requests_in_flight_and_others_go_past() {
    run(async {
        let world = World::new();
        let client = far_client(&world).await;
        let limited = client.with_limits(Limits::new().in_flight(3));
        let begun = client.now();
        let mut tasks = start(&limited, 9);
        tasks.extend(start(&limited.clone(), 9));
        let other = spawn(client.get_data("/"));
        for sent in [3, 6, 9] {
            // The requests arrive after 50 ms, and their replies 50 ms later.
            sleep_ms(40).await;
            assert_eq!(reads(&world), sent - 3);
            sleep_ms(20).await;
            assert_eq!(reads(&world), sent, "after {:?}", client.now().saturating_since(begun));
            sleep_ms(40).await;
            if sent == 3 {
                sleep_ms(1).await;
                assert!(other.is_finished(), "another handle does not wait");
            }
        }
        for task in tasks {
            assert!(task.await.expect("it does not panic"));
        }
    });
}

#[test]
fn a_rate_is_kept_in_the_long_run_and_a_short_burst_is_allowed() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let limited = client.with_limits(Limits::new().per_second(20));
        for _ in 0..2 {
            let (begun, before) = (client.now(), reads(&world));
            let tasks = start(&limited, 43);
            sleep_ms(1).await;
            // 100 ms at 20 a second, and one more.
            assert_eq!(reads(&world) - before, 3);
            sleep_ms(1_000).await;
            assert_eq!(reads(&world) - before, 23);
            for task in tasks {
                assert!(task.await.expect("it does not panic"));
            }
            let took = client.now().saturating_since(begun);
            assert!((2_000..2_010).contains(&took.as_millis()), "{took:?}");
            // The handle is idle, and as if it were new.
            sleep_ms(3_000).await;
        }
    });
}

#[test]
fn a_request_keeps_its_place_until_its_reply_arrives() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let limited = client.with_limits(Limits::new().in_flight(1));
        world.server.withhold_replies(Some(1));
        let late = limited.exists("/").timeout(Duration::from_secs(1)).await;
        let outcome = late.expect_err("the reply is withheld").outcome();
        assert_eq!(outcome, Outcome::Unknown, "it was sent");
        // It waits for the place of the first.
        let late = limited.exists("/").timeout(Duration::from_secs(1)).await;
        assert_eq!(late.expect_err("there is no place").outcome(), Outcome::NotApplied);
        drop(limited.exists("/"));
        let waiting = spawn(limited.get_data("/"));
        sleep_ms(100).await;
        assert_eq!(reads(&world), 1);
        // Requests that were submitted after a lost one fail with it.
        world.server.disconnect_all();
        let lost = waiting.await.expect("it does not panic").expect_err("it has waited");
        assert_eq!(lost.bare(), OpError::connection_loss(Outcome::NotApplied));
        limited.exists("/").await.expect("the place is free");
        assert_eq!(reads(&world), 2);
    });
}

#[test]
fn dropped_operations_leave_their_places_to_others() {
    run(async {
        let world = World::new();
        let client = far_client(&world).await;
        let limited = client.with_limits(Limits::new().in_flight(1));
        let begun = client.now();
        // The first is sent at once, and the second one waits.
        let first = limited.exists("/");
        let second = limited.exists("/");
        let third = limited.get_data("/");
        sleep_ms(10).await;
        drop((first, second));
        third.await.expect("its turn comes");
        assert_eq!(reads(&world), 1);
        assert_eq!(client.now().saturating_since(begun).as_millis(), 200, "two round trips");
        // The futures need not be polled.
        let ops: Vec<_> = (0..5).map(|_| limited.exists("/")).collect();
        sleep_ms(1_000).await;
        for op in ops {
            let mut op = pin!(op);
            assert!(op.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        }
    });
}

#[test]
fn what_waits_for_a_place_ends_with_its_session_and_its_client() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let limited = client.with_limits(Limits::new().in_flight(1));
        let slow = client.with_limits(Limits::new().per_second(1));
        slow.exists("/").await.expect("it is the first");
        let waiting = slow.exists("/");
        sleep_ms(10).await;
        world.server.expire(session(&client));
        assert_eq!(waiting.await.expect_err("the session has expired").bare(), EXPIRED);
        assert_eq!(reads(&world), 1);
        limited.exists("/").await.expect("the next session has places");

        world.server.withhold_replies(None);
        let ops = [limited.exists("/"), limited.exists("/")];
        sleep_ms(10).await;
        let [_first, second] = ops;
        let closing = spawn(async move { client.close().await });
        let error = second.await.expect_err("the client is closed");
        assert_eq!(error.bare(), OpError::closed(Outcome::NotApplied));
        drop(closing);
    });
}

#[test]
fn a_limited_handle_that_is_flooded_leaves_places_to_others() {
    run(async {
        let world = World::new();
        let client = world.client_with(1, |builder| builder.outstanding_limit(10)).await;
        let limited = client.with_limits(Limits::new().in_flight(1));
        world.server.withhold_replies(None);
        let mut ops = vec![];
        for _ in 0..20 {
            ops.push(spawn(limited.exists("/")));
            sleep_ms(1).await;
        }
        sleep_ms(10).await;
        let refused = ops.iter().filter(|op| op.is_finished()).count();
        // One is in flight, and five wait.
        assert_eq!(refused, 14);
        for op in ops {
            if op.is_finished() {
                let error = op.await.expect("it does not panic").expect_err("it is refused");
                assert!(matches!(error, OpError::QueueFull { waiting: 5, .. }), "{error}");
            }
        }
        let other = spawn(client.get_data("/"));
        sleep_ms(10).await;
        assert!(!other.is_finished(), "another handle is not refused");
    });
}

#[test]
fn a_change_of_the_credentials_does_not_wait_for_a_connection_without_end() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        world.server.set_reception(Reception::Refused);
        world.server.disconnect_all();
        let begun = client.now();
        let limited = client.with_timeout(Duration::from_secs(1));
        let handle = limited.add_auth("digest", "a:1");
        let own = limited.add_auth("digest", "b:2").timeout(Duration::from_secs(3));
        let unlimited = client.add_auth("digest", "c:3");
        let timed_out = Err(AuthError::TimedOut { outcome: Outcome::NotApplied });
        assert_eq!(handle.await, timed_out);
        assert_eq!(client.now().saturating_since(begun), Duration::from_secs(1));
        assert_eq!(own.await, timed_out);
        assert_eq!(client.now().saturating_since(begun), Duration::from_secs(3));
        world.server.reset();
        assert_eq!(unlimited.await, Ok(()));
        let ids: Vec<String> = client
            .who_am_i()
            .await
            .expect("3.7")
            .into_iter()
            .map(|it| it.scheme.to_string())
            .collect();
        assert_eq!(ids.iter().filter(|scheme| *scheme == "digest").count(), 1, "{ids:?}");
    });
}
