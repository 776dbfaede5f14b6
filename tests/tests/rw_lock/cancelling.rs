//! Acquires of either side that are dropped, at every moment, with every cut of the connection
//! around it. Nothing stays behind.

use std::time::Duration;

use zk_recipes::{Client, LockError};
use zk_tests::cancel::{self, abort_after_turns, at_every_poll, at_every_turn, drop_after_polls};
use zk_tests::scene::{FIRST, SECOND, THIRD, at_request, session};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

use crate::Side::{self, Read, Write};
use crate::{Holding, acquire, acquire_within, granted_now, holder, queue_up, try_acquire};

/// Who holds, and what is wanted: free, shared, and to be waited for.
const CASES: [(Option<Side>, Side); 6] = [
    (None, Read),
    (None, Write),
    (Some(Read), Read),
    (Some(Read), Write),
    (Some(Write), Read),
    (Some(Write), Write),
];

struct Bench {
    world: World,
    client: Client,
    /// Who holds the lock, if it is to be held.
    other: Client,
    held: Option<Holding>,
}

impl Bench {
    async fn new(held_by: Option<Side>) -> Self {
        let world = World::new();
        let other = world.client(FIRST).await;
        let client = world.client(SECOND).await;
        let held = match held_by {
            Some(side) => Some(acquire(&World::rw_lock(&other), side).await.expect("it is free")),
            None => None,
        };
        Self { world, client, other, held }
    }
}

impl cancel::Bench for Bench {
    fn world(&self) -> &World {
        &self.world
    }

    /// First only the holder's znode is left, then nothing.
    async fn check(self, label: &str) {
        let Self { world, client, other, held } = self;
        let held_slots = usize::from(held.is_some());
        for _ in 0..20_000 {
            let is_busy = client.janitor_slots_busy() > 0;
            if !is_busy && world.contenders().len() == held_slots {
                break;
            }
            sleep_ms(1).await;
        }
        world.server.clear_faults();
        assert_eq!(world.contenders().len(), held_slots, "{label}\n{}", world.trace());
        assert_eq!(client.janitor_slots_busy(), 0, "{label}\n{}", world.trace());
        if let Some(held) = held {
            held.validate().await.expect("the holder is undisturbed");
            held.release().await;
        }
        world.check_clean(&[&client, &other]).await;
        assert!(world.server.sessions().contains(&session(&client)), "it was no expiry: {label}");
    }
}

#[test]
fn an_acquire_dropped_after_any_poll_leaves_nothing() {
    let drop_in = |case: (Option<Side>, Side)| {
        at_every_poll(8, move |polls, trouble| {
            run(async {
                let bench = Bench::new(case.0).await;
                let acquire =
                    |bench: &Bench| acquire_within(World::rw_lock(&bench.client), case.1, None);
                drop_after_polls(bench, acquire, polls, trouble, case).await
            })
        })
    };
    let points: usize = CASES.map(drop_in).iter().sum();
    eprintln!("{points} reads and writes dropped");
    assert!(points >= 1_500, "{points}");
}

fn abort_everywhere(is_try: bool, requests: usize) -> usize {
    let abort_in = |case: (Option<Side>, Side)| {
        at_every_turn(requests, move |turns, trouble| {
            run(async {
                let bench = Bench::new(case.0).await;
                let acquire = |bench: &Bench| {
                    let lock = World::rw_lock(&bench.client);
                    async move {
                        if is_try {
                            try_acquire(&lock, case.1).await
                        } else {
                            acquire(&lock, case.1).await.map(Some)
                        }
                    }
                };
                abort_after_turns(bench, acquire, turns, trouble, case).await
            })
        })
    };
    CASES.map(abort_in).iter().sum()
}

#[test]
fn an_acquire_aborted_after_any_turn_leaves_nothing() {
    let points = abort_everywhere(false, 5);
    eprintln!("{points} reads and writes aborted");
    assert!(points >= 10_000, "{points}");
}

#[test]
fn a_try_aborted_after_any_turn_leaves_nothing() {
    let points = abort_everywhere(true, 4);
    eprintln!("{points} try_reads and try_writes aborted");
    assert!(points >= 5_000, "{points}");
}

/// A middle contender is aborted around the moment at which it is granted, and the one behind it
/// enters in any case.
#[test]
fn a_hand_off_aborted_after_any_turn_leaves_nothing() {
    for queue in [[Write, Read, Write], [Read, Write, Read], [Write, Write, Read]] {
        let mut was_granted = 0;
        for turns in 0..50 {
            run(async {
                let world = World::new();
                let (other, held) = holder(&world, FIRST, queue[0]).await;
                let (client, third) = (world.client(SECOND).await, world.client(THIRD).await);
                let waiter = queue_up(&world, &World::rw_lock(&client), queue[1]).await;
                let last = queue_up(&world, &World::rw_lock(&third), queue[2]).await;
                drop(held);
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
                was_granted += usize::from(waiter.is_finished());
                waiter.abort();
                drop(waiter);
                sleep_ms(10).await;
                granted_now(&world, last).await.release().await;
                world.check_clean(&[&client, &other, &third]).await;
            });
        }
        assert!((1..50).contains(&was_granted), "before and after the grant: {was_granted}");
    }
}

/// Each reply takes 3 ms, and the lock becomes free after 20 ms.
#[test]
fn a_timeout_at_any_moment_around_the_grant_is_a_grant_or_leaves_nothing() {
    let (mut granted, mut timed_out) = (0, 0);
    for case in CASES {
        for timeout in 0..=60 {
            run(async {
                let (held_by, side) = case;
                let Bench { world, client, other, held } = Bench::new(held_by).await;
                for nth in 0..8 {
                    let slow = Action::Delay(Duration::from_millis(3));
                    let slow = at_request(session(&client), nth, slow);
                    world.server.inject(slow);
                }
                let holding = async {
                    sleep_ms(20).await;
                    drop(held);
                };
                let patience = Some(Duration::from_millis(timeout));
                let waiting = acquire_within(World::rw_lock(&client), side, patience);
                let (ended, ()) = tokio::join!(waiting, holding);
                world.server.clear_faults();
                match ended {
                    Ok(guard) => {
                        granted += 1;
                        guard.validate().await.expect("it is held");
                        guard.release().await;
                    }
                    Err(error) => {
                        timed_out += 1;
                        assert_eq!(error, LockError::TimedOut);
                    }
                }
                world.check_clean(&[&client, &other]).await;
            });
        }
    }
    assert!(granted >= 180 && timed_out >= 30, "{granted} granted, {timed_out} timed out");
}
