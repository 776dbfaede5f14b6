//! Interleavings of a contender that leaves, and removes the directory, with one that arrives and
//! needs it. The requests of a flight are processed one after another, so the requests of two
//! clients can follow each other in any order. No contender is lost, and none is granted a lock
//! that another holds.

use std::future::IntoFuture as _;

use tokio::task::JoinHandle;
use zk_recipes::{Guard, LockError, LockState};
use zk_tests::case::LOCK;
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND, THIRD, spawn};
use zk_tests::world::{World, run, session_of_first, sleep_ms};

use crate::{check_gone, hold, lock};

/// The turns of the scheduler after which the second client begins. A release takes fewer turns.
const TURNS: usize = 30;

/// Acquires and releases once, and checks the state at the grant.
async fn pass(world: &World, lock: &zk_recipes::FairLock) -> Guard {
    let guard = hold(lock).await;
    world.check_granted::<zk_recipes::FairLock>(&guard);
    assert_eq!(guard.state(), LockState::Held, "\n{}", world.trace());
    guard
}

fn start(lock: &zk_recipes::FairLock) -> JoinHandle<Result<Guard, LockError>> {
    spawn(lock.acquire().into_future())
}

/// The second and the third client arrive at any two moments around the release of the first.
#[test]
fn contenders_that_arrive_at_any_moment_of_a_removal_are_served_once() {
    let (mut points, mut missing, mut present) = (0, 0, 0);
    for second_after in 0..TURNS {
        for third_after in 0..TURNS {
            points += 1;
            run(async {
                let world = World::new().pace(Pace::of(10));
                let mut clients = Vec::new();
                for seed in [FIRST, SECOND, THIRD] {
                    clients.push(world.client(seed).await);
                }
                let locks: Vec<_> = clients.iter().map(lock).collect();
                let guard = pass(&world, &locks[0]).await;
                let releasing = spawn(guard.release());
                let (mut second, mut third) = (None, None);
                for turn in 0..TURNS {
                    if turn == second_after {
                        match world.server.stat(LOCK) {
                            None => missing += 1,
                            Some(_) => present += 1,
                        }
                        second = Some(start(&locks[1]));
                    }
                    if turn == third_after {
                        third = Some(start(&locks[2]));
                    }
                    tokio::task::yield_now().await;
                }
                releasing.await.expect("no panic").expect("its znode can be deleted");
                // One of the two holds the lock, and the other gets it afterwards.
                let (second, third) =
                    (second.expect("it has started"), third.expect("it has started"));
                sleep_ms(500).await;
                let is_second = second.is_finished();
                assert_ne!(is_second, third.is_finished(), "one holds it\n{}", world.trace());
                let (first, next) = if is_second { (second, third) } else { (third, second) };
                let guard = first.await.expect("no panic").expect("it is granted");
                world.check_granted::<zk_recipes::FairLock>(&guard);
                let token = guard.fencing_token();
                guard.release().await.expect("its znode can be deleted");
                sleep_ms(500).await;
                assert!(next.is_finished(), "a contender is lost\n{}", world.trace());
                let guard = next.await.expect("no panic").expect("it is granted");
                assert!(guard.fencing_token() > token);
                guard.release().await.expect("its znode can be deleted");
                check_gone(&world, &clients.iter().collect::<Vec<_>>()).await;
            });
        }
    }
    eprintln!("{points} pairs of moments; {missing} without and {present} with a directory");
    assert!(missing >= 100 && present >= 100, "{missing} without, {present} with a directory");
}

/// Somebody deletes the empty directory between any two requests of an acquire: between the creates
/// of the directory and of the contender, too. The acquire continues.
#[test]
fn a_directory_that_is_removed_between_any_two_requests_is_created_again() {
    use zk_recipes::ErrorCode;
    use zk_testserver::Action;
    let session = session_of_first(FIRST);
    // The server answers as if the directory had just been removed, once or several times.
    for has_root in [false, true] {
        for times in 0..=12 {
            run(async {
                let world = World::new().pace(Pace::of(2));
                if has_root {
                    world.server.admin_create("/locks", b"", None);
                }
                let client = world.client(FIRST).await;
                for _ in 0..times {
                    let missing = Action::Error(ErrorCode::NO_NODE);
                    let op = jute_codec::OpCode::CREATE2;
                    let mut fault = zk_tests::scene::at_op(session, op, missing);
                    if let zk_testserver::At::Request { filter, .. } = &mut fault.at {
                        filter.path_prefix = Some(format!("{LOCK}/"));
                    }
                    world.server.inject(fault);
                }
                let guard = pass(&world, &lock(&client)).await;
                let left = world.server.pending_faults().len();
                assert_eq!(left, 0, "{times} times\n{}", world.trace());
                guard.release().await.expect("its znode can be deleted");
                check_gone(&world, &[&client]).await;
            });
        }
    }
}
