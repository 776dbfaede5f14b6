//! Acquires of either side that are dropped, at every moment, with every cut of the connection
//! around it. Nothing stays behind.

use std::time::Duration;

use zk_recipes::{Client, LockError};
use zk_tests::scene::{
    FIRST, SECOND, THIRD, TURNS, Trouble, at_request, poll_times, session, spawn,
};
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

/// Session of the second client of a world.
fn second_session() -> i64 {
    run(async {
        let world = World::new();
        let (_first, second) = (world.client(FIRST).await, world.client(SECOND).await);
        session(&second)
    })
}

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

/// Runs one cancelled acquire; true if it had ended by itself before.
fn drop_after_polls(polls: usize, case: (Option<Side>, Side), trouble: &Trouble) -> bool {
    run(async {
        let (held_by, side) = case;
        let bench = Bench::new(held_by).await;
        trouble.begin(&bench.world);
        let lock = World::rw_lock(&bench.client);
        let patience = Duration::from_millis(2_000);
        let before = || trouble.cancelling(&bench.world);
        let acquiring = poll_times(acquire_within(lock, side, None), polls, before);
        let ended = tokio::time::timeout(patience, acquiring).await;
        trouble.cancelled(&bench.world);
        let is_over = match ended {
            Ok(Some(acquired)) => {
                drop(acquired.expect("it is free"));
                true
            }
            Ok(None) => false,
            // It waits, and nothing wakes it any more.
            Err(_) => true,
        };
        bench.check(&format!("dropped after {polls} polls, {case:?}, {trouble:?}")).await;
        is_over
    })
}

#[test]
fn an_acquire_dropped_after_any_poll_leaves_nothing() {
    let session = second_session();
    let mut points = 0;
    for case in CASES {
        for trouble in Trouble::all(session, 8) {
            for polls in 0..TURNS {
                points += 1;
                if drop_after_polls(polls, case, &trouble) {
                    break;
                }
                assert!(polls + 1 < TURNS, "it never ends: {trouble:?}");
            }
        }
    }
    eprintln!("{points} reads and writes dropped");
    assert!(points >= 1_500, "{points}");
}

/// Runs one aborted acquire; true if it had ended by itself before.
fn abort_after_turns(
    turns: usize,
    case: (Option<Side>, Side),
    is_try: bool,
    trouble: &Trouble,
) -> bool {
    run(async {
        let (held_by, side) = case;
        let bench = Bench::new(held_by).await;
        trouble.begin(&bench.world);
        let lock = World::rw_lock(&bench.client);
        let task = spawn(async move {
            if is_try {
                try_acquire(&lock, side).await
            } else {
                acquire(&lock, side).await.map(Some)
            }
        });
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        let is_over = task.is_finished();
        trouble.cancelling(&bench.world);
        task.abort();
        trouble.cancelled(&bench.world);
        drop(task);
        bench.check(&format!("aborted after {turns}, {case:?}, {trouble:?}")).await;
        is_over
    })
}

fn abort_everywhere(is_try: bool, requests: usize) -> usize {
    let session = second_session();
    let mut points = 0;
    for case in CASES {
        for trouble in Trouble::all(session, requests) {
            for turns in 0..=TURNS {
                points += 1;
                if abort_after_turns(turns, case, is_try, &trouble) {
                    break;
                }
            }
        }
    }
    points
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
