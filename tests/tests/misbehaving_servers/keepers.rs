//! ClickHouse Keeper, which gives each connection another session, and lacks operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jute_codec::{OpCode, SessionId};
use zk_recipes::{
    Client, Counter, CreateMode, LockState, LostReason, OpError, SessionState, ValueError,
    WorkQueueError,
};
use zk_tests::case::Case;
use zk_tests::for_each_lock;
use zk_tests::scene::{at_op, spawn};
use zk_tests::work_queue::{ENTRIES, children, queue};
use zk_tests::world::{SESSION_TIMEOUT, World, run, sleep_ms};
use zk_testserver::{Action, At, Fault, Outcome, ServerConfig, ServerVersion, TestServer};

for_each_lock! {
    #[test] pairs: [
        a_lock_passes_on_when_the_session_of_its_holder_has_expired_and_not_before,
        a_lock_is_acquired_again_after_each_lost_connection,
    ]
}

fn keeper() -> World {
    World::with(ServerConfig::default().version(ServerVersion::Keeper))
}

fn session(client: &Client) -> SessionId {
    client.session_id().expect("the client has a session")
}

async fn connected(client: &Client) {
    while client.state() != SessionState::Connected {
        sleep_ms(1).await;
    }
}

fn is_alive(server: &TestServer, session: SessionId) -> bool {
    server.sessions().contains(&session)
}

/// The connections of both drop. The holder's contender is still there, although its client has
/// another session, so the lock must not pass on yet.
fn a_lock_passes_on_when_the_session_of_its_holder_has_expired_and_not_before<H: Case, W: Case>() {
    run(async {
        let world = keeper();
        let (first, second) = (world.client(1).await, world.client(2).await);
        let guard = H::of(&first).acquire().await.expect("nobody else wants the lock");
        let before = session(&first);
        let waiter = W::of(&second);
        #[expect(clippy::disallowed_methods, reason = "the waiter runs beside the test")]
        let waiting = tokio::spawn(async move { waiter.acquire().await });
        sleep_ms(500).await;
        world.server.disconnect_all();
        assert_eq!(guard.lost().await, LostReason::SessionExpired);
        connected(&first).await;
        assert_ne!(session(&first), before);
        while !waiting.is_finished() {
            assert!(world.server.sessions().len() <= 4, "a session is left behind");
            assert_eq!(guard.state(), LockState::Lost(LostReason::SessionExpired));
            sleep_ms(100).await;
        }
        assert!(!is_alive(&world.server, before), "its contender was there\n{}", world.trace());
        let next = waiting.await.expect("the task does not panic").expect("the lock is free");
        world.check_granted::<W>(&next);
        next.release().await.expect("the session lives");
        drop(guard);
        sleep_ms(1_000).await;
        world.check_clean(&[&first, &second]).await;
        assert_eq!(world.server.sessions().len(), 2);
    });
}

/// Each of the lost connections costs one session, and the next acquire waits for the end of it.
fn a_lock_is_acquired_again_after_each_lost_connection<H: Case, W: Case>() {
    run(async {
        let world = keeper();
        let client = world.client(1).await;
        for round in 1..=3 {
            let lock = if round == 2 { None } else { Some(H::of(&client)) };
            let begun = session(&client);
            let lost = match lock {
                Some(lock) => {
                    let guard = lock.acquire().await.expect("the old session expires");
                    assert_eq!(guard.session(), begun);
                    world.server.disconnect_all();
                    guard.lost().await
                }
                None => {
                    let guard = W::of(&client).acquire().await.expect("the old session expires");
                    world.server.disconnect_all();
                    guard.lost().await
                }
            };
            assert_eq!(lost, LostReason::SessionExpired);
            connected(&client).await;
            assert_ne!(session(&client), begun);
            assert_eq!(world.server.sessions().len(), 2, "round {round}\n{}", world.trace());
        }
        sleep_ms(1_000).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_keeper_without_a_leader_costs_no_session() {
    run(async {
        let world = keeper();
        let client = world.client(1).await;
        world.server.elect(Duration::from_secs(3));
        let before = session(&client);
        sleep_ms(2_900).await;
        assert_eq!(client.session_id(), Some(before), "its end is not known before");
        connected(&client).await;
        assert_ne!(session(&client), before);
        assert_eq!(world.server.sessions().len(), 2);
        sleep_ms(u64::try_from(SESSION_TIMEOUT.as_millis()).expect("it is short") * 2).await;
        assert_eq!(world.server.sessions(), [session(&client)]);
    });
}

/// Creates two members, and a client of the second one. The next connections of the client go to the
/// member with the returned number.
async fn two_keepers() -> (World, Client, Arc<AtomicUsize>) {
    let config = ServerConfig::default().version(ServerVersion::Keeper).members(2);
    let (world, member) = (World::with(config), Arc::new(AtomicUsize::new(1)));
    let client = world.moving_client(1, &member).await;
    (world, client, member)
}

#[test]
fn a_put_whose_session_is_swapped_puts_once() {
    run(async {
        let (world, client, member) = two_keepers().await;
        let queue = queue(&client);
        queue.put("first").await.expect("nothing goes wrong yet");
        let before = session(&client);
        make_late(&world, before, &member);
        queue.put("second").await.expect("the new session puts it");
        assert_ne!(session(&client), before);
        until_the_late_multi(&world, before).await;
        assert_eq!(children(&world, ENTRIES).len(), 2, "{}", world.trace());
    });
}

/// The multi of the first session comes late, and the replies to those of the next ones are lost.
#[test]
fn a_dropped_put_whose_session_is_swapped_twice_puts_once() {
    run(async {
        let (world, client, member) = two_keepers().await;
        let queue = queue(&client);
        queue.put("first").await.expect("nothing goes wrong yet");
        let before = session(&client);
        make_late(&world, before, &member);
        for next in 1..=9 {
            let lost = At::op(OpCode::MULTI).after(next);
            world.server.inject(Fault::new(lost, Action::CutAfter));
        }
        let put = spawn(async move { queue.put("second").await });
        world.until("the put is applied", |_| children(&world, ENTRIES).len() == 2).await;
        put.abort();
        put.await.expect_err("the put was dropped");
        until_the_late_multi(&world, before).await;
        assert_eq!(children(&world, ENTRIES).len(), 2, "{}", world.trace());
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn an_ack_whose_session_is_swapped_deletes_nothing_afterwards() {
    run(async {
        let (world, client, member) = two_keepers().await;
        let queue = queue(&client);
        queue.put("first").await.expect("nothing goes wrong yet");
        let item = queue.take().await.expect("there is one");
        let before = session(&client);
        make_late(&world, before, &member);
        let refused = item.ack().await;
        assert_eq!(refused, Err(WorkQueueError::LeaseLost(LostReason::SessionExpired)));
        assert_ne!(session(&client), before);
        until_the_late_multi(&world, before).await;
        assert_eq!(children(&world, ENTRIES).len(), 1, "{}", world.trace());
        let item = queue.take().await.expect("its lease has ended with its session");
        item.ack().await.expect("the session lives");
    });
}

/// The multi of the first session comes late, after the next session has read the old value, and before it
/// writes again.
#[test]
fn a_sum_whose_session_is_swapped_counts_once() {
    for is_conditional in [false, true] {
        run(async {
            let (world, client, member) = two_keepers().await;
            let counter = Counter::new(&client, "/counter").expect("the path is legal");
            counter.add(1).await.expect("nothing goes wrong yet");
            let before = session(&client);
            make_late(&world, before, &member);
            // A multi is in front of these two: the one that comes late, and the barrier of the read.
            let again = At::op(OpCode::MULTI).after(2);
            world.server.inject(Fault::new(again, Action::Pause(SESSION_TIMEOUT * 3 / 10)));
            let failed = if is_conditional {
                counter.compare_and_set(1, 6).await
            } else {
                counter.add(5).await.map(drop)
            };
            let trace = world.trace();
            assert!(matches!(failed, Err(ValueError::Undecided { .. })), "{failed:?}\n{trace}");
            until_the_late_multi(&world, before).await;
            assert_eq!(counter.get().await, Ok(6), "{trace}");
            counter.add(1).await.expect("the next one knows its outcome");
            world.check_clean(&[&client]).await;
        });
    }
}

/// Pauses the member of a session when that sends its next multi, which the member executes after the
/// pause. The client gives up this connection, and goes to the other member.
fn make_late(world: &World, session: SessionId, member: &AtomicUsize) {
    let late = Action::Pause(SESSION_TIMEOUT * 9 / 10);
    world.server.inject(at_op(session, OpCode::MULTI, late));
    member.store(0, Ordering::SeqCst);
}

/// Waits until the late multi was executed and its session has expired.
async fn until_the_late_multi(world: &World, session: SessionId) {
    assert!(is_alive(&world.server, session), "the multi is late enough");
    while is_alive(&world.server, session) {
        sleep_ms(100).await;
    }
    let requests = world.server.requests();
    let late = requests.iter().rfind(|it| it.session == session && it.op == OpCode::MULTI);
    let is_executed = late.is_some_and(|it| !matches!(it.outcome, Outcome::Dropped));
    assert!(is_executed, "{}", world.trace());
}

#[test]
fn what_a_keeper_may_lack_is_unsupported_and_keeps_the_connection() {
    run(async {
        let world = keeper();
        let client = world.client(1).await;
        let before = session(&client);
        let refused = client.create("/a", "", CreateMode::Container).await;
        assert!(matches!(refused, Err(OpError::Unsupported { .. })));
        assert!(matches!(client.who_am_i().await, Err(OpError::Unsupported { .. })));
        client.create("/a", "", CreateMode::Ephemeral).await.expect("it knows that");
        assert_eq!(session(&client), before);
    });
}
