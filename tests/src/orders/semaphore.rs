//! Every order in which contenders can join and leave, with one to three permits. After each step
//! exactly those contenders hold a permit that may.

#![expect(clippy::indexing_slicing, reason = "contenders are known by their index")]

use zk_recipes::{Client, LockState, PermitGuard, Semaphore, kind};

use crate::case::{LOCK, OnePermit};
use crate::scene::{Waiter, create_directory, granted, release, spawn};
use crate::world::{World, run, sleep_ms};

const PERMITS: std::ops::RangeInclusive<u32> = 1..=3;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The next contender joins the queue.
    Join,
    /// A contender leaves: it releases its permit, or gives up waiting.
    Leave(usize),
}

/// All orders in which this many contenders can join and leave.
fn schedules(contenders: usize) -> Vec<Vec<Step>> {
    let mut schedules = Vec::new();
    let mut open: Vec<(Vec<Step>, usize, Vec<usize>)> = vec![(vec![], 0, vec![])];
    while let Some((begun, joined, queue)) = open.pop() {
        if joined == contenders && queue.is_empty() {
            schedules.push(begun);
            continue;
        }
        if joined < contenders {
            let queue = [queue.as_slice(), &[joined]].concat();
            open.push(([begun.as_slice(), &[Step::Join]].concat(), joined + 1, queue));
        }
        for leaving in &queue {
            let queue = queue.iter().copied().filter(|other| other != leaving).collect();
            open.push(([begun.as_slice(), &[Step::Leave(*leaving)]].concat(), joined, queue));
        }
    }
    schedules
}

enum Contender {
    Waiting(Waiter<kind::Permit>),
    Holding(PermitGuard),
}

fn semaphore(client: &Client, permits: u32) -> Semaphore {
    Semaphore::builder(client, LOCK)
        .and_then(|builder| builder.permits(permits).watch_check(None).build())
        .expect("the options are legal")
}

/// Runs one order, and checks after each step who holds a permit.
async fn check_order(world: &World, clients: &[Client], schedule: &[Step], permits: u32) {
    // The contenders that have joined and not left, in the order of their places.
    let mut queue: Vec<(usize, Contender)> = Vec::new();
    let mut joined = 0;
    for step in schedule {
        match step {
            Step::Join => {
                let semaphore = semaphore(&clients[joined % clients.len()], permits);
                let before = world.contenders().len();
                let waiter = spawn(IntoFuture::into_future(semaphore.acquire()));
                world.until("it is in the queue", |_| world.contenders().len() > before).await;
                queue.push((joined, Contender::Waiting(waiter)));
                joined += 1;
            }
            Step::Leave(who) => {
                let place = queue.iter().position(|(other, _)| other == who);
                match queue.remove(place.expect("it has joined")).1 {
                    Contender::Holding(guard) => release(guard).await,
                    Contender::Waiting(waiter) => waiter.abort(),
                }
            }
        }
        sleep_ms(20).await;
        let mut now = Vec::new();
        for (who, contender) in queue {
            now.push((
                who,
                match contender {
                    Contender::Waiting(waiter) if waiter.is_finished() => {
                        Contender::Holding(granted(waiter).await)
                    }
                    held_or_waiting @ (Contender::Waiting(_) | Contender::Holding(_)) => {
                        held_or_waiting
                    }
                },
            ));
        }
        queue = now;
        for (place, (who, contender)) in queue.iter().enumerate() {
            let holds = matches!(contender, Contender::Holding(_));
            let label = format!("{who} after {step:?} of {schedule:?}, {permits} permits");
            assert_eq!(holds, place < permits as usize, "{label}\n{}", world.trace());
            if let Contender::Holding(guard) = contender {
                assert_eq!(guard.state(), LockState::Held, "{label}");
            }
        }
    }
}

/// Runs every order of so many contenders, which share so many sessions, with each number of permits.
/// Returns the number of orders.
///
/// # Panics
///
/// If a contender holds a permit that must not, or waits though a permit is free.
pub fn check_every_order(contenders: usize, sessions: usize) -> usize {
    let schedules = schedules(contenders);
    for permits in PERMITS {
        for schedule in &schedules {
            run(async {
                let world = World::new();
                create_directory::<OnePermit>(&world);
                let mut clients = Vec::new();
                for seed in 0..sessions as u64 {
                    clients.push(world.client(seed).await);
                }
                check_order(&world, &clients, schedule, permits).await;
                world.check_clean(&clients.iter().collect::<Vec<_>>()).await;
            });
        }
    }
    eprintln!("{} orders for each of {PERMITS:?} permits", schedules.len());
    schedules.len()
}
