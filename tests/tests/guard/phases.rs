//! The phases of an acquire and of its lock, over the whole life.

use std::time::Duration;

use jute_codec::OpCode;
use tokio::task::JoinHandle;
use zk_recipes::kind::Kind;
use zk_recipes::{AtRiskPolicy, ErrorCode, LockError, LostReason, Phase, Phases};
use zk_tests::scene::{at_op, partition, session, spawn};
use zk_tests::wait::now;
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

use crate::{FIRST, Locks, SECOND, Way, check_clean, for_every_kind, release};

/// Writes down all phases, to the end.
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
    seen.await.expect("it does not panic")
}

fn whole_life<K: Kind>(way: &Way<K>) {
    for is_dropped in [false, true] {
        run(async {
            let world = World::new();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let others = Locks::new(&other);
            let (fair, write) = (others.fair.acquire().await, others.rw.write().await);
            let exclusive = others.exclusive.acquire().await;
            let locks = Locks::new(&client);
            let (acquire, phases) = (way.acquire)(&locks).phases();
            let seen = written(phases);
            let waiter = spawn(acquire.into_future());
            sleep_ms(500).await;
            drop((fair, write, exclusive));
            let guard = waiter.await.expect("it does not panic").expect("it becomes free");
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
            // A queue that is read again says that nobody is ahead, a moment before the grant.
            phases.retain(|phase| *phase != Phase::Queued { ahead: 0 });
            assert_eq!(phases, expected, "{}, dropped: {is_dropped}", way.name);
            check_clean(&world, &[&client, &other]).await;
        });
    }
}

#[test]
fn a_lock_goes_through_all_phases_and_ends_with_its_release() {
    for_every_kind!(whole_life);
}

/// Acquires, holds for a while, and loses the lock.
fn lost<K: Kind>(way: &Way<K>) {
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
            let locks = Locks::with(&client, policy);
            let (acquire, phases) = (way.acquire)(&locks).phases();
            let seen = written(phases);
            let guard = acquire.await.expect("nobody else wants it");
            sleep_ms(500).await;
            match reason {
                LostReason::AtRisk => partition(&world, 300),
                LostReason::Closed => drop(client.close().await),
                LostReason::DeadlinePassed => partition(&world, 60_000),
                LostReason::SessionExpired => world.server.expire(session(&client)),
                LostReason::ZnodeDeleted | _ => assert!(world.server.admin_delete(guard.path())),
            }
            guard.lost().await;
            // Before anybody releases it.
            let phases = all(seen).await;
            let told: Vec<_> =
                phases.iter().filter(|phase| **phase != Phase::AtRisk).copied().collect();
            let expected = [Phase::Claiming, Phase::Held, Phase::Lost(reason)];
            assert_eq!(told, expected, "{} {reason}: {phases:?}", way.name);
            drop(guard);
        });
    }
}

#[test]
fn a_lost_lock_ends_with_its_loss() {
    for_every_kind!(lost);
}

fn failed<K: Kind>(way: &Way<K>) {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let others = Locks::new(&other);
        let held = (others.fair.acquire().await, others.rw.write().await);
        let exclusive = others.exclusive.acquire().await;
        let locks = Locks::new(&client);
        // Timed out in the queue, cancelled in the queue, refused at once, never begun.
        let (acquire, phases) = (way.acquire)(&locks).phases();
        let seen = written(phases);
        let ended = acquire.timeout(Duration::from_millis(300)).await.map(drop);
        assert_eq!(ended, Err(LockError::TimedOut));
        assert_eq!(all(seen).await, [Phase::Claiming, Phase::Queued { ahead: 1 }], "{}", way.name);

        let (acquire, phases) = (way.acquire)(&locks).phases();
        let seen = written(phases);
        let waiter = spawn(acquire.into_future());
        sleep_ms(300).await;
        waiter.abort();
        assert_eq!(all(seen).await, [Phase::Claiming, Phase::Queued { ahead: 1 }], "{}", way.name);

        let refusal = Action::Error(ErrorCode::NO_AUTH);
        world.server.inject(at_op(session(&client), OpCode::CREATE2, refusal));
        let (acquire, mut phases) = (way.acquire)(&locks).phases();
        assert!(matches!(acquire.await.map(drop), Err(LockError::Refused { .. })));
        assert_eq!((phases.next().await, phases.current()), (None, Phase::Claiming));

        let (acquire, mut phases) = (way.acquire)(&locks).phases();
        assert_eq!(now(phases.next()), None, "it may still come");
        drop(acquire);
        assert_eq!(now(phases.next()), Some(None));
        drop((held, exclusive));
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn a_failed_acquire_ends_its_phases() {
    for_every_kind!(failed);
}

/// A stream that is kept keeps neither session nor lock.
fn keeps_nothing<K: Kind>(way: &Way<K>) {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let (acquire, mut phases) = (way.acquire)(&Locks::new(&client)).phases();
        let guard = acquire.await.expect("nobody else wants it");
        drop((client, guard));
        world.until("the session is closed", |server| server.sessions().is_empty()).await;
        assert_eq!(phases.current(), Phase::Released, "{}", way.name);
        while phases.next().await.is_some() {}
    });
}

#[test]
fn a_stream_of_phases_keeps_nothing_alive() {
    for_every_kind!(keeps_nothing);
}

/// Without anybody who watches, a lock at risk by silence is seen when asked for only.
#[test]
fn an_acknowledgement_that_is_overdue_is_a_phase_and_so_is_its_arrival() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let (acquire, phases) = Locks::new(&client).fair.acquire().phases();
        let seen = written(phases);
        let guard = acquire.await.expect("nobody else wants it");
        sleep_ms(1_000).await;
        // What counts is when the last answered request was sent, so both answers are late, and
        // the connection is not silent for so long that it is given up.
        let slow = Action::Delay(Duration::from_millis(1_000));
        world.server.inject(at_op(session(&client), OpCode::MULTI, slow));
        guard.validate().await.expect("it is held");
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

#[test]
fn the_place_in_the_queue_is_told() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let lock = Locks::new(&client).fair;
        let mut held = vec![lock.acquire().await.expect("nobody else wants it")];
        let mut waiters = Vec::new();
        for _ in 0..3 {
            waiters.push(spawn(lock.acquire().into_future()));
            sleep_ms(10).await;
        }
        let (acquire, phases) = lock.acquire().phases();
        let seen = written(phases);
        let last = spawn(acquire.into_future());
        sleep_ms(10).await;
        // The one directly ahead gives up, and the queue is read.
        waiters.pop().expect("three wait").abort();
        sleep_ms(100).await;
        for waiter in waiters {
            held.pop();
            held.push(waiter.await.expect("it does not panic").expect("it becomes free"));
        }
        held.clear();
        drop(last.await.expect("it does not panic").expect("it becomes free"));
        let mut phases = all(seen).await;
        // A queue that is read again says that nobody is ahead, a moment before the grant.
        phases.retain(|phase| *phase != Phase::Queued { ahead: 0 });
        let queued = |ahead| Phase::Queued { ahead };
        let expected = [Phase::Claiming, queued(4), queued(3), Phase::Held, Phase::Released];
        assert_eq!(phases, expected);
    });
}

#[test]
fn a_new_attempt_is_told() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let held = Locks::new(&other).fair.acquire().await.expect("nobody else wants it");
        let (acquire, phases) = Locks::new(&client).fair.acquire().phases();
        let seen = written(phases);
        let waiter = spawn(acquire.into_future());
        sleep_ms(300).await;
        world.server.expire(session(&client));
        sleep_ms(3_000).await;
        drop(held);
        release(waiter.await.expect("it does not panic").expect("it becomes free")).await;
        let queued = Phase::Queued { ahead: 1 };
        let expected =
            [Phase::Claiming, queued, Phase::Claiming, queued, Phase::Held, Phase::Released];
        assert_eq!(all(seen).await, expected);
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn a_downgrade_goes_on_with_the_phases_of_the_writer() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let (acquire, phases) = Locks::new(&client).rw.write().phases();
        let seen = written(phases);
        let writing = acquire.await.expect("nobody else wants it");
        let reading = writing.downgrade().await.expect("it is held");
        sleep_ms(500).await;
        partition(&world, 300);
        sleep_ms(3_000).await;
        release(reading).await;
        let expected = [Phase::Claiming, Phase::Held, Phase::AtRisk, Phase::Held, Phase::Released];
        assert_eq!(all(seen).await, expected, "{}", world.trace());
        check_clean(&world, &[&client]).await;
    });
}
