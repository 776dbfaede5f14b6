//! Busy connections: links that are too slow for the requested data, and requests that wait for
//! others. [`uplink`](super::uplink) has the links that are too slow for what is sent.

use std::time::Duration;

use jute_codec::{ReadRequest, Request};
use zk_recipes::{FairLock, LockState};
use zk_session::recipe::{Flight, LaneEvent, Operation, Session};
use zk_session::{OpCode, OpError, Target};
use zk_tests::meter::Pace;
use zk_tests::world::{World, run, sleep_ms};

use super::links::Link;

const SECOND: Duration = Duration::from_secs(1);
/// Bytes of one reply.
const LARGE: usize = 1_000_000;

#[test]
fn a_link_full_of_replies_loses_neither_a_read_nor_the_lock() {
    // The links have from 100 Mbit/s to 0.8 Mbit/s.
    for (bytes, timeout, size, reads) in [
        (12_500, 30, LARGE, 100),
        (2_500, 30, LARGE, 60),
        (250, 30, LARGE / 2, 30),
        (100, 30, LARGE / 4, 30),
        (250, 10, LARGE / 10, 60),
        (250, 6, LARGE / 20, 60),
    ] {
        run(async {
            let world = World::new();
            let client = Link::down(bytes).timeout(SECOND * timeout).client(&world).await;
            let lock = FairLock::new(&client, "/locks/x").expect("the path is legal");
            let guard = lock.acquire().await.expect("the lock is free");
            world.server.admin_create("/big", &vec![b'x'; size], None);
            sleep_ms(40_000).await;
            let case = format!("{bytes} kB/s, {timeout} s, {reads} reads of {size} bytes");
            let begun = client.now();
            let pending: Vec<_> = (0..reads).map(|_| client.get_data("/big")).collect();
            for (n, read) in pending.into_iter().enumerate() {
                read.await.expect("the connection lives");
                let (state, remaining) = (guard.state(), guard.remaining());
                let is_well = match state {
                    LockState::Held => true,
                    // The replies ahead of a renewal take longer than it usually does.
                    LockState::AtRisk => bytes < 1_000,
                    _ => false,
                };
                assert!(is_well && remaining.is_some(), "{case}: {state:?} at read {n}");
            }
            let took = client.now().saturating_since(begun).as_millis() as usize;
            let least = size * reads / bytes;
            // A limit that is too low leaves the link idle between two replies.
            assert!((least..least * 11 / 10).contains(&took), "{case}: {took} ms, not {least}");
            assert_eq!(client.status().connection, 1, "{case}");
            assert!(guard.release().await.is_ok(), "{case}");
        });
    }
}

/// A reply takes longer than a ping may wait for its own.
#[test]
fn a_link_that_is_too_slow_for_pings_loses_no_read() {
    run(async {
        let world = World::new();
        let client = Link::down(150).client(&world).await;
        world.server.admin_create("/big", &vec![b'x'; 3_500_000], None);
        let session = client.session_id();
        let begun = client.now();
        client.get_data("/big").await.expect("the connection lives");
        let reads: Vec<_> = (0..3).map(|_| client.get_data("/big")).collect();
        for read in reads {
            read.await.expect("the connection lives");
        }
        assert!(client.now().saturating_since(begun) >= 93 * SECOND, "the link was not full");
        assert_eq!((client.status().connection, client.session_id()), (1, session));
    });
}

#[test]
fn a_lane_takes_a_bounded_number_of_operations_whatever_users_do() {
    run(async {
        let world = World::new().pace(Pace::of(100));
        let client = world.client_with(1, |builder| builder.outstanding_limit(1)).await;
        let taken = client.exists("/");
        let full = client.exists("/").await;
        assert!(matches!(full, Err(OpError::QueueFull { waiting: 1, .. })), "{full:?}");
        let look =
            || Operation::new(Request::Exists(ReadRequest { path: "/".into(), watch: false }));
        let flight =
            |count| Flight { operations: vec![look(); count], session: None, deadline: None };
        let target = Target::new(OpCode::EXISTS, "/");
        let full = |waiting| Err(OpError::QueueFull { waiting, target: target.clone() });
        for mut lane in [Session::of(&client).lane(), Session::of(&client).lane()] {
            for _ in 0..25 {
                lane.submit(flight(10)).expect("there is room");
            }
            assert_eq!(lane.submit(flight(10)), full(250));
            lane.submit(flight(6)).expect("there is room");
            assert_eq!(lane.submit(flight(1)), full(256));
            let mut answered = 0;
            while answered < 256 {
                let event = lane.next().await;
                assert_ne!(event, LaneEvent::Stopped);
                if let LaneEvent::Reply { reply, .. } = event {
                    assert!(reply.results.iter().all(Result::is_ok), "{reply:?}");
                    answered += reply.results.len();
                }
            }
            lane.submit(flight(256)).expect("there is room again");
        }
        taken.await.expect("it exists");
    });
}

/// Requests whose futures are dropped are removed from the count of pending ones.
#[test]
fn a_client_that_has_stopped_says_so_however_often_it_is_asked() {
    run(async {
        let world = World::new();
        let client = world.client_with(1, |builder| builder.outstanding_limit(2)).await;
        client.close().await;
        for _ in 0..10 {
            let result = client.exists("/").await;
            assert!(matches!(result, Err(OpError::Closed { .. })), "{result:?}");
        }
    });
}
