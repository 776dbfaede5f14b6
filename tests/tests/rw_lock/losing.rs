//! Ways to lose a lock that is held, for readers and writers.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{LockError, LockState, LostReason, Released};
use zk_tests::scene::{FIRST, SECOND, at_op, partition, session};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, At, Fault, ServerConfig};

use crate::Access::{Read, Write};
use crate::{WAITS, granted, holder, queue_up};

#[test]
fn deleting_the_znode_loses_the_lock() {
    for side in [Read, Write] {
        for after in [0, 99, 101, 5_000] {
            run(async {
                let world = World::new();
                let (client, held) = holder(&world, FIRST, side).await;
                sleep_ms(after).await;
                assert!(world.server.admin_delete(held.path()));
                assert_eq!(held.lost().await, LostReason::ZnodeDeleted);
                assert_eq!(held.state(), LockState::Lost(LostReason::ZnodeDeleted));
                assert_eq!(held.validate().await, Err(LockError::Lost(LostReason::ZnodeDeleted)));
                assert_eq!(held.end().await, Ok(Released::AlreadyGone));
                world.check_clean(&[&client]).await;
            });
        }
    }
}

#[test]
fn the_end_of_the_session_loses_the_lock() {
    for side in [Read, Write] {
        for is_swapped in [false, true] {
            run(async {
                let world = World::new();
                let (client, held) = holder(&world, FIRST, side).await;
                let dead = session(&client);
                if is_swapped {
                    world.server.inject(Fault::new(At::connect(0), Action::SwapSession));
                    world.server.disconnect_all();
                } else {
                    world.server.expire(dead);
                }
                assert_eq!(held.lost().await, LostReason::SessionExpired);
                sleep_ms(3_000).await;
                assert_ne!(session(&client), dead);
                assert_eq!(held.state(), LockState::Lost(LostReason::SessionExpired));
                assert_eq!(held.end().await, Ok(Released::EndedWithSession));
                world.until("it is over", |server| !server.sessions().contains(&dead)).await;
                world.check_clean(&[&client]).await;
            });
        }
    }
}

#[test]
fn a_renewed_session_keeps_the_lock() {
    for side in [Read, Write] {
        run(async {
            let world = World::new();
            let (client, held) = holder(&world, FIRST, side).await;
            for _ in 0..5 {
                partition(&world, 500);
                sleep_ms(400).await;
                assert_eq!(held.state(), LockState::AtRisk);
                sleep_ms(3_000).await;
                assert_eq!(held.state(), LockState::Held, "{}", world.trace());
                held.validate().await.expect("the lock is held");
            }
            held.release().await;
            world.check_clean(&[&client]).await;
        });
    }
}

/// The guard is lost before the server expires the session, so no other contender holds the lock at
/// the same time.
#[test]
fn a_holder_in_a_black_hole_is_lost_before_the_next_is_granted() {
    for (ahead, behind) in WAITS {
        run(async {
            let world = World::new();
            let (client, held) = holder(&world, FIRST, ahead).await;
            sleep_ms(150).await;
            let other = world.client(SECOND).await;
            let waiter = queue_up(&world, &World::rw_lock(&other), behind).await;
            let dead = session(&client);
            world.server.inject(at_op(dead, OpCode::PING, Action::Freeze));
            // The other clients stay connected.
            world.server.refuse_for(Duration::from_secs(30));
            let lost = held.lost().await;
            assert!(!waiter.is_finished(), "lost by {lost}\n{}", world.trace());
            assert_eq!(lost, LostReason::DeadlinePassed);
            granted(waiter).await.release().await;
            drop(held);
            world.check_clean(&[&client, &other]).await;
        });
    }
}

/// The session lives longer than the guard deadline, because servers count in ticks. The guard is
/// lost at the deadline, and the waiters get the lock when its znode is removed.
#[test]
fn a_lost_guard_lets_the_next_in_when_the_session_comes_back() {
    for (ahead, behind) in WAITS {
        run(async {
            let config = ServerConfig::default().tick(Duration::from_secs(5));
            let world = World::with(config);
            let (client, held) = holder(&world, FIRST, ahead).await;
            held.validate().await.expect("the lock is held");
            let other = world.client(SECOND).await;
            let waiter = queue_up(&world, &World::rw_lock(&other), behind).await;
            partition(&world, 10_500);
            assert_eq!(held.lost().await, LostReason::DeadlinePassed);
            assert!(!waiter.is_finished());
            let next = granted(waiter).await;
            assert_eq!(held.state(), LockState::Lost(LostReason::DeadlinePassed));
            drop((held, next));
            world.check_clean(&[&client, &other]).await;
        });
    }
}
