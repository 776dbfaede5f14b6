//! Downgrades whose future is dropped at every moment, with every cut of the connection around that
//! moment: the lock is released, and the waiters get it.

use std::time::Duration;

use zk_recipes::{Client, WriteGuard};
use zk_session::SessionId;
use zk_tests::scene::{FIRST, SECOND, THIRD, Trouble, poll_times, session, spawn};
use zk_tests::world::{World, run};

use crate::Access::{Read, Write};
use crate::{Waiter, granted, queue_up, writer};

struct Bench {
    world: World,
    clients: Vec<Client>,
    guard: Option<WriteGuard>,
    waiters: Vec<Waiter>,
}

impl Bench {
    async fn new(is_waited_for: bool) -> Self {
        let world = World::new();
        let (client, guard) = writer(&world, FIRST).await;
        let mut clients = vec![client];
        let mut waiters = Vec::new();
        if is_waited_for {
            for (seed, side) in [(SECOND, Read), (THIRD, Write)] {
                let client = world.client(seed).await;
                waiters.push(queue_up(&world, &World::rw_lock(&client), side).await);
                clients.push(client);
            }
        }
        Self { world, clients, guard: Some(guard), waiters }
    }

    async fn check(self, label: &str) {
        let Self { world, clients, guard, waiters } = self;
        drop(guard);
        for waiter in waiters {
            granted(waiter).await.release().await;
        }
        world.server.clear_faults();
        world.check_clean(&clients.iter().collect::<Vec<_>>()).await;
        for client in &clients {
            let is_alive = world.server.sessions().contains(&session(client));
            assert!(is_alive, "it was no expiry: {label}");
        }
    }
}

fn first_session() -> SessionId {
    run(async {
        let world = World::new();
        session(&world.client(FIRST).await)
    })
}

#[test]
fn a_downgrade_dropped_after_any_poll_releases() {
    let session = first_session();
    let mut points = 0;
    for is_waited_for in [false, true] {
        for trouble in Trouble::all(session, 4) {
            for polls in 0..10 {
                points += 1;
                let is_over = run(async {
                    let mut bench = Bench::new(is_waited_for).await;
                    trouble.begin(&bench.world);
                    let guard = bench.guard.take().expect("the lock is held");
                    let before = || trouble.cancelling(&bench.world);
                    let patience = Duration::from_millis(2_000);
                    let downgrading = poll_times(guard.downgrade(), polls, before);
                    let ended = tokio::time::timeout(patience, downgrading).await;
                    trouble.cancelled(&bench.world);
                    let is_over = !matches!(ended, Ok(None));
                    drop(ended);
                    bench.check(&format!("dropped after {polls} polls, {trouble:?}")).await;
                    is_over
                });
                if is_over {
                    break;
                }
            }
        }
    }
    eprintln!("{points} downgrades dropped");
    assert!(points >= 100, "{points}");
}

#[test]
fn a_downgrade_aborted_after_any_turn_releases() {
    let session = first_session();
    let mut points = 0;
    for is_waited_for in [false, true] {
        for trouble in Trouble::all(session, 4) {
            for turns in 0..40 {
                points += 1;
                let is_over = run(async {
                    let mut bench = Bench::new(is_waited_for).await;
                    trouble.begin(&bench.world);
                    let guard = bench.guard.take().expect("the lock is held");
                    let task = spawn(guard.downgrade());
                    for _ in 0..turns {
                        tokio::task::yield_now().await;
                    }
                    let is_over = task.is_finished();
                    trouble.cancelling(&bench.world);
                    task.abort();
                    trouble.cancelled(&bench.world);
                    drop(task);
                    bench.check(&format!("aborted after {turns}, {trouble:?}")).await;
                    is_over
                });
                if is_over {
                    break;
                }
            }
        }
    }
    eprintln!("{points} downgrades aborted");
    assert!(points >= 500, "{points}");
}

/// The future is dropped while the client is disconnected, and reconnecting takes a while.
#[test]
fn a_downgrade_aborted_at_any_time_after_a_cut_releases() {
    let session = first_session();
    let mut points = 0;
    for trouble in Trouble::all(session, 3) {
        for after in [0, 1, 20, 60, 149, 151, 299, 301, 340, 400, 600] {
            points += 1;
            run(async {
                let mut bench = Bench::new(true).await;
                trouble.begin(&bench.world);
                let task = spawn(bench.guard.take().expect("the lock is held").downgrade());
                zk_tests::world::sleep_ms(after).await;
                task.abort();
                drop(task);
                bench.check(&format!("aborted after {after} ms, {trouble:?}")).await;
            });
        }
    }
    eprintln!("{points} downgrades aborted in time");
}

/// A dropped downgrade that has created the reader's znode releases that znode.
#[test]
fn a_downgrade_that_nobody_asks_for_any_more_is_released() {
    run(async {
        let world = World::new();
        let (client, guard) = writer(&world, FIRST).await;
        drop(guard.downgrade());
        world.check_clean(&[&client]).await;
    });
}
