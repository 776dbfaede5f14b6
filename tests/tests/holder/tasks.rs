//! Several tasks of one holder that acquire at the same time.

use std::future::IntoFuture as _;
use std::time::Duration;

use tokio::task::JoinHandle;
use zk_recipes::kind::Kind;
use zk_recipes::{Client, Guard, Holder, Level, LockError, LockState, Released};
use zk_tests::case::Case;
use zk_tests::for_each_lock;
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND, hold, release, settle, spawn};
use zk_tests::world::{World, run, sleep_ms};

use crate::holder;

for_each_lock! {
    #[test] pairs: [
        of_many_tasks_one_acquires_and_the_others_nest,
        if_the_task_that_acquires_is_dropped_another_takes_over,
        a_task_that_waits_for_another_task_keeps_its_own_deadline,
        a_try_beside_a_task_that_waits_returns_at_once,
    ]
}

const TASKS: usize = 5;

type Task<K> = JoinHandle<Result<Level<K>, LockError>>;

fn start<K: Kind>(holder: &Holder<K>) -> Task<K> {
    spawn(holder.acquire().into_future())
}

fn of_many_tasks_one_acquires_and_the_others_nest<H: Case, W: Case>() {
    for has_rival in [false, true] {
        run(async {
            let world = World::new().pace(Pace::of(TASKS));
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let held = if has_rival { Some(hold(&H::of(&other)).await) } else { None };
            let holder = holder::<W>(&client);
            let tasks: Vec<_> = (0..TASKS).map(|_| start(&holder)).collect();
            sleep_ms(1_000).await;
            assert_eq!(world.znodes().len(), if has_rival && W::MARK.is_some() { 2 } else { 1 });
            if let Some(held) = held {
                assert!(tasks.iter().all(|task| !task.is_finished()));
                release(held).await;
            }
            settle().await;
            let mut levels = Vec::new();
            for task in tasks {
                assert!(task.is_finished(), "a task hangs\n{}", world.trace());
                levels.push(task.await.expect("no panic").expect("the lock is free"));
            }
            assert_eq!(holder.levels(), TASKS);
            let last = levels.pop().expect("there are several");
            assert!(levels.iter().all(|level| level.path() == last.path()));
            for level in levels {
                assert_eq!(level.release().await, Ok(None));
            }
            assert_eq!(last.release().await, Ok(Some(Released::Released)));
            world.check_clean(&[&client, &other]).await;
        });
    }
}

/// The task in front is aborted after any number of turns, before and after it has the lock.
fn if_the_task_that_acquires_is_dropped_another_takes_over<H: Case, W: Case>() {
    let mut took_over = 0;
    for has_rival in [false, true] {
        for turns in 0..40 {
            run(async {
                let world = World::new().pace(Pace::of(TASKS));
                let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
                let held = if has_rival { Some(hold(&H::of(&other)).await) } else { None };
                let holder = holder::<W>(&client);
                let mut tasks: Vec<_> = (0..3).map(|_| start(&holder)).collect();
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
                let first = tasks.remove(0);
                took_over += usize::from(!first.is_finished());
                first.abort();
                drop(first);
                drop(held);
                sleep_ms(1_000).await;
                let mut levels = Vec::new();
                for task in tasks {
                    assert!(task.is_finished(), "{turns} turns: it hangs\n{}", world.trace());
                    levels.push(task.await.expect("no panic").expect("the lock is free"));
                }
                assert_eq!(world.znodes().len(), 1, "{turns} turns\n{}", world.trace());
                for level in &levels {
                    assert_eq!(level.state(), LockState::Held);
                    level.validate().await.expect("it is held");
                }
                drop(levels);
                world.check_clean(&[&client, &other]).await;
            });
        }
    }
    assert!(took_over >= 40, "the other holder keeps the first task waiting: {took_over}");
}

/// A holder with a task that waits for the lock, which another client holds.
struct Waiting<H: Case, W: Case> {
    world: World,
    clients: [Client; 2],
    held: Guard<H::Kind>,
    holder: Holder<W::Kind>,
    patient: Task<W::Kind>,
}

impl<H: Case, W: Case> Waiting<H, W> {
    async fn start() -> Self {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let held = hold(&H::of(&other)).await;
        let holder = holder::<W>(&client);
        let patient = start(&holder);
        sleep_ms(100).await;
        Self { world, clients: [client, other], held, holder, patient }
    }

    /// Returns the client of the holder.
    fn client(&self) -> &Client {
        &self.clients[0]
    }

    /// Releases the lock, lets the task have it, and ends its level when the test has used it.
    async fn end(self, test: impl AsyncFnOnce(Holder<W::Kind>)) {
        release(self.held).await;
        let level = self.patient.await.expect("no panic").expect("the lock is free");
        test(self.holder).await;
        drop(level);
        self.world.check_clean(&self.clients.each_ref()).await;
    }
}

fn a_task_that_waits_for_another_task_keeps_its_own_deadline<H: Case, W: Case>() {
    run(async {
        let waiting = Waiting::<H, W>::start().await;
        for timeout in [Duration::from_millis(700), Duration::ZERO] {
            let before = waiting.client().now();
            let timed = waiting.holder.acquire().timeout(timeout).await.map(drop);
            assert!(matches!(timed, Err(LockError::TimedOut(_))), "{timed:?}");
            assert_eq!(waiting.client().now().saturating_since(before), timeout);
        }
        waiting
            .end(async |holder| {
                // A nested acquire needs no time.
                drop(holder.acquire().timeout(Duration::ZERO).await.expect("it is held"));
            })
            .await;
    });
}

fn a_try_beside_a_task_that_waits_returns_at_once<H: Case, W: Case>() {
    run(async {
        let waiting = Waiting::<H, W>::start().await;
        let before = waiting.client().now();
        assert!(waiting.holder.try_acquire().await.expect("it sends nothing").is_none());
        assert_eq!(waiting.client().now(), before);
        waiting.end(async |_| {}).await;
    });
}
