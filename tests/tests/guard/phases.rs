//! The phases of an acquire and of its lock, over their whole life.

use std::time::Duration;

use jute_codec::OpCode;
use tokio::task::JoinHandle;
use zk_recipes::kind::Queued;
use zk_recipes::{AtRiskPolicy, ErrorCode, LockError, LostReason, Phase, Phases};
use zk_tests::case::{Case, Writer};
use zk_tests::for_each_lock;
use zk_tests::scene::{FIRST, SECOND, at_op, granted, hold, partition, release, session, spawn};
use zk_tests::wait::now;
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

for_each_lock! {
    #[test] locks: [
        a_lock_goes_through_all_phases_and_ends_with_its_release,
        a_lost_lock_ends_with_its_loss,
        a_failed_acquire_ends_its_phases,
        a_stream_of_phases_keeps_nothing_alive,
        an_acknowledgement_that_is_overdue_is_a_phase_and_so_is_its_arrival,
        a_new_attempt_is_told,
        phases_do_what_a_listener_of_a_lock_does,
    ]
    #[test] fifos: [the_place_in_the_queue_is_told]
}

/// Records all phases until the stream ends.
fn written(mut phases: Phases) -> JoinHandle<Vec<Phase>> {
    spawn(async move {
        let mut seen = vec![phases.current()];
        while let Some(phase) = phases.next().await {
            seen.push(phase);
        }
        assert_eq!(seen.last(), Some(&phases.current()), "the last one stays");
        seen
    })
}

async fn all(seen: JoinHandle<Vec<Phase>>) -> Vec<Phase> {
    sleep_ms(100).await;
    assert!(seen.is_finished(), "another phase could come");
    seen.await.expect("the task does not panic")
}

fn a_lock_goes_through_all_phases_and_ends_with_its_release<C: Case>() {
    for is_dropped in [false, true] {
        run(async {
            let world = World::new();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let held = hold(&C::Rival::of(&other)).await;
            let lock = C::of(&client);
            let (acquire, phases) = lock.acquire().phases();
            let seen = written(phases);
            let waiter = spawn(acquire.into_future());
            sleep_ms(500).await;
            drop(held);
            let guard = granted(waiter).await;
            sleep_ms(500).await;
            partition(&world, 300);
            sleep_ms(3_000).await;
            if is_dropped {
                drop(guard);
            } else {
                release(guard).await;
            }
            let expected = [
                Phase::Claiming,
                Phase::Queued { ahead: 1 },
                Phase::Held,
                Phase::AtRisk,
                Phase::Held,
                Phase::Released,
            ];
            let mut phases = all(seen).await;
            // A list right before the grant may report that no contender is ahead.
            phases.retain(|phase| *phase != Phase::Queued { ahead: 0 });
            assert_eq!(phases, expected, "dropped: {is_dropped}");
            world.check_clean(&[&client, &other]).await;
        });
    }
}

/// A listener with callbacks for the grant, the risk, the loss and the release is a loop over the
/// phases. It needs neither the guard nor the task that acquires.
fn phases_do_what_a_listener_of_a_lock_does<C: Case>() {
    async fn listen(mut phases: Phases) -> Vec<&'static str> {
        let mut calls = Vec::new();
        while let Some(phase) = phases.next().await {
            calls.push(match phase {
                Phase::Held => "acquired",
                Phase::AtRisk => "at risk",
                Phase::Lost(_) => "lost",
                Phase::Released => "released",
                Phase::Claiming | Phase::Queued { .. } | _ => continue,
            });
        }
        calls
    }
    for is_lost in [false, true] {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            let (acquire, phases) = C::of(&client).acquire().phases();
            let listener = spawn(listen(phases));
            let guard = acquire.await.expect("the lock is free");
            sleep_ms(500).await;
            partition(&world, 300);
            sleep_ms(3_000).await;
            if is_lost {
                assert!(world.server.admin_delete(guard.path()));
                guard.lost().await;
                drop(guard);
            } else {
                release(guard).await;
            }
            let end = if is_lost { "lost" } else { "released" };
            let calls = listener.await.expect("the listener does not panic");
            assert_eq!(calls, ["acquired", "at risk", "acquired", end]);
            world.check_clean(&[&client]).await;
        });
    }
}

/// The contender acquires the lock, holds it for a while, and loses it.
fn a_lost_lock_ends_with_its_loss<C: Case>() {
    for reason in [
        LostReason::AtRisk,
        LostReason::Closed,
        LostReason::DeadlinePassed,
        LostReason::SessionExpired,
        LostReason::ZnodeDeleted,
    ] {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            let policy = if reason == LostReason::AtRisk {
                AtRiskPolicy::TreatAsLost
            } else {
                AtRiskPolicy::GoOn
            };
            let lock = C::with(&client, |lock| lock.at_risk(policy));
            let (acquire, phases) = lock.acquire().phases();
            let seen = written(phases);
            let guard = acquire.await.expect("the lock is free");
            sleep_ms(500).await;
            match reason {
                LostReason::AtRisk => partition(&world, 300),
                LostReason::Closed => drop(client.close().await),
                LostReason::DeadlinePassed => partition(&world, 60_000),
                LostReason::SessionExpired => world.server.expire(session(&client)),
                LostReason::ZnodeDeleted | _ => assert!(world.server.admin_delete(guard.path())),
            }
            guard.lost().await;
            // The stream ends before the guard is dropped.
            let phases = all(seen).await;
            let told: Vec<_> =
                phases.iter().filter(|phase| **phase != Phase::AtRisk).copied().collect();
            let expected = [Phase::Claiming, Phase::Held, Phase::Lost(reason)];
            assert_eq!(told, expected, "{reason}: {phases:?}");
            drop(guard);
        });
    }
}

fn a_failed_acquire_ends_its_phases<C: Case>() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let held = hold(&C::Rival::of(&other)).await;
        let lock = C::of(&client);
        // There are four acquires: one times out, one is cancelled while it waits, one is refused,
        // and one never begins.
        let (acquire, phases) = lock.acquire().phases();
        let seen = written(phases);
        let ended = acquire.timeout(Duration::from_millis(300)).await.map(drop);
        assert!(matches!(ended, Err(LockError::TimedOut(_))));
        assert_eq!(all(seen).await, [Phase::Claiming, Phase::Queued { ahead: 1 }]);

        let (acquire, phases) = lock.acquire().phases();
        let seen = written(phases);
        let waiter = spawn(acquire.into_future());
        sleep_ms(300).await;
        waiter.abort();
        assert_eq!(all(seen).await, [Phase::Claiming, Phase::Queued { ahead: 1 }]);

        let refusal = Action::Error(ErrorCode::NO_AUTH);
        world.server.inject(at_op(session(&client), OpCode::CREATE2, refusal));
        let (acquire, mut phases) = lock.acquire().phases();
        assert!(matches!(acquire.await.map(drop), Err(LockError::Refused { .. })));
        assert_eq!((phases.next().await, phases.current()), (None, Phase::Claiming));

        let (acquire, mut phases) = lock.acquire().phases();
        assert_eq!(now(phases.next()), None, "another phase may still come");
        drop(acquire);
        assert_eq!(now(phases.next()), Some(None));
        drop(held);
        world.check_clean(&[&client, &other]).await;
    });
}

/// A stream of phases keeps neither the session nor the lock alive.
fn a_stream_of_phases_keeps_nothing_alive<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let (acquire, mut phases) = C::of(&client).acquire().phases();
        let guard = acquire.await.expect("the lock is free");
        drop((client, guard));
        world.until("the session is closed", |server| server.sessions().is_empty()).await;
        assert_eq!(phases.current(), Phase::Released);
        while phases.next().await.is_some() {}
    });
}

fn an_acknowledgement_that_is_overdue_is_a_phase_and_so_is_its_arrival<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let (acquire, phases) = C::of(&client).acquire().phases();
        let seen = written(phases);
        let guard = acquire.await.expect("the lock is free");
        sleep_ms(1_000).await;
        // The state depends on when the last request with a reply was sent. So both replies are
        // delayed, but the connection is never silent for so long that the client gives it up.
        let slow = Action::Delay(Duration::from_millis(1_000));
        world.server.inject(at_op(session(&client), OpCode::MULTI, slow));
        guard.validate().await.expect("the lock is held");
        let slow = Action::Delay(Duration::from_millis(5_000));
        world.server.inject(at_op(session(&client), OpCode::PING, slow));
        sleep_ms(12_000).await;
        let connection = client.status().connection;
        assert_eq!(connection, 1, "still the first");
        release(guard).await;
        let held = [Phase::Claiming, Phase::Held, Phase::AtRisk, Phase::Held, Phase::Released];
        assert_eq!(all(seen).await, held, "{}", world.trace());
    });
}

fn the_place_in_the_queue_is_told<C: Case<Kind: Queued>>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let (lock, rival) = (C::of(&client), C::Rival::of(&client));
        let mut held = vec![hold(&rival).await];
        let mut waiters = Vec::new();
        for _ in 0..3 {
            waiters.push(spawn(rival.acquire().into_future()));
            sleep_ms(10).await;
        }
        let (acquire, phases) = lock.acquire().phases();
        let seen = written(phases);
        let last = spawn(acquire.into_future());
        sleep_ms(10).await;
        // The predecessor gives up, and the waiter reads the queue.
        waiters.pop().expect("three wait").abort();
        sleep_ms(100).await;
        for waiter in waiters {
            held.pop();
            held.push(granted(waiter).await);
        }
        held.clear();
        drop(granted(last).await);
        let mut phases = all(seen).await;
        // A list right before the grant may report that no contender is ahead.
        phases.retain(|phase| *phase != Phase::Queued { ahead: 0 });
        let queued = |ahead| Phase::Queued { ahead };
        let expected = [Phase::Claiming, queued(4), queued(3), Phase::Held, Phase::Released];
        assert_eq!(phases, expected);
    });
}

fn a_new_attempt_is_told<C: Case>() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let held = hold(&C::Rival::of(&other)).await;
        let (acquire, phases) = C::of(&client).acquire().phases();
        let seen = written(phases);
        let waiter = spawn(acquire.into_future());
        sleep_ms(300).await;
        world.server.expire(session(&client));
        sleep_ms(3_000).await;
        drop(held);
        release(granted(waiter).await).await;
        let queued = Phase::Queued { ahead: 1 };
        let expected =
            [Phase::Claiming, queued, Phase::Claiming, queued, Phase::Held, Phase::Released];
        assert_eq!(all(seen).await, expected);
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn a_downgrade_goes_on_with_the_phases_of_the_writer() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let (acquire, phases) = Writer::of(&client).acquire().phases();
        let seen = written(phases);
        let writing = acquire.await.expect("the lock is free");
        let reading = writing.downgrade().await.expect("the lock is held");
        sleep_ms(500).await;
        partition(&world, 300);
        sleep_ms(3_000).await;
        release(reading).await;
        let expected = [Phase::Claiming, Phase::Held, Phase::AtRisk, Phase::Held, Phase::Released];
        assert_eq!(all(seen).await, expected, "{}", world.trace());
        world.check_clean(&[&client]).await;
    });
}
