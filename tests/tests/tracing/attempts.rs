//! An attempt has a span, which contains all its events, including events of its keeper, and of the
//! janitor after the caller is gone.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jute_codec::OpCode;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use zk_recipes::{Client, ExclusiveLock, FairLock, LockError, WorkQueue};
use zk_tests::case::{Case, LOCK};
use zk_tests::for_each_lock;
use zk_tests::scene::{FIRST, SECOND, at_op, hold, partition, release, session, spawn};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

for_each_lock! {
    #[test] locks: [
        the_span_of_an_attempt_carries_path_and_id_and_its_release_is_inside,
        the_loss_of_a_lock_is_told_inside_its_span,
    ]
    #[test] pairs: [what_is_left_of_a_cancelled_attempt_is_removed_inside_its_span]
}

const IDENTITY: &str = "somebody-whom-nobody-has-to-know";

/// Records every event with its spans.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    spans: BTreeMap<u64, String>,
    entered: Vec<u64>,
    /// The spans, outermost first, and the event, which begins with its level.
    events: Vec<(String, String)>,
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Recorder {
    fn with<T>(&self, act: impl FnOnce(&mut Seen) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the spans of attempts in the order of their creation, without duplicates.
    fn attempts(&self) -> Vec<String> {
        self.with(|seen| {
            let spans = seen.spans.values();
            spans.filter(|span| span.starts_with("attempt ")).cloned().collect()
        })
    }

    /// Returns the attempts whose spans contain an event with this message.
    fn attempts_that(&self, message: &str) -> Vec<String> {
        self.with(|seen| {
            let events = seen.events.iter().filter(|(_, event)| event.contains(message));
            let attempt = |(spans, _): &(String, String)| {
                let from = spans.rfind("attempt ").unwrap_or_else(|| {
                    panic!("{message} happened in none, but in {spans:?}");
                });
                spans[from..].to_owned()
            };
            events.map(attempt).collect()
        })
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line(span.metadata().name().to_owned());
        span.record(&mut line);
        self.with(|seen| {
            let id = seen.spans.len() as u64 + 1;
            seen.spans.insert(id, line.0);
            Id::from_u64(id)
        })
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut line = Line(format!("{} {}", metadata.level(), metadata.target()));
        event.record(&mut line);
        self.with(|seen| {
            let spans: Vec<_> =
                seen.entered.iter().filter_map(|id| seen.spans.get(id)).cloned().collect();
            let spans = spans.join(" > ");
            seen.events.push((spans, line.0));
        });
    }

    fn enter(&self, span: &Id) {
        self.with(|seen| seen.entered.push(span.into_u64()));
    }

    fn exit(&self, span: &Id) {
        self.with(|seen| {
            let at = seen.entered.iter().rposition(|id| *id == span.into_u64());
            seen.entered.remove(at.expect("it was entered"));
        });
    }
}

/// Runs a scenario, and returns its trace.
fn traced(scenario: impl Future<Output = ()>) -> Recorder {
    let recorder = Recorder::default();
    tracing::subscriber::with_default(recorder.clone(), || run(scenario));
    recorder.with(|seen| {
        for (spans, event) in &seen.events {
            assert!(!spans.contains(IDENTITY) && !event.contains(IDENTITY), "{spans} {event}");
        }
    });
    recorder
}

/// Creates a lock whose contenders have the identity `IDENTITY`.
fn lock<C: Case>(client: &Client) -> C {
    C::with(client, |lock| lock.identity(IDENTITY))
}

fn the_span_of_an_attempt_carries_path_and_id_and_its_release_is_inside<C: Case>() {
    for is_dropped in [false, true] {
        let recorder = traced(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            let guard = hold(&lock::<C>(&client)).await;
            // The name of the znode contains the id.
            let name = guard.path().rsplit('/').next().unwrap_or_default().to_owned();
            if is_dropped {
                drop(guard);
            } else {
                release(guard).await;
            }
            world.check_clean(&[&client]).await;
            tracing::debug!("znode {name}");
        });
        let attempts = recorder.attempts();
        let [attempt] = attempts.as_slice() else { panic!("{attempts:?}") };
        assert!(attempt.contains(&format!("path={LOCK}")), "{attempt}");
        let id = attempt.split_once(" id=").expect("it has an id").1.trim_matches('"');
        assert_eq!(id.len(), 32, "{attempt}");
        if let Some(mark) = C::MARK {
            let name = format!("znode {id}{mark}");
            let is_named = |(_, event): &(String, String)| event.contains(&name);
            assert!(recorder.with(|seen| seen.events.iter().any(is_named)), "no {name}");
        }
        assert_eq!(recorder.attempts_that("released"), attempts);
    }
}

fn what_is_left_of_a_cancelled_attempt_is_removed_inside_its_span<H: Case, W: Case>() {
    for is_lost in [false, true] {
        let recorder = traced(async {
            let world = World::new();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let held = hold(&lock::<H>(&other)).await;
            if is_lost {
                world.server.inject(at_op(session(&client), OpCode::CREATE2, Action::CutAfter));
            }
            for _ in 0..2 {
                let soon = Duration::from_millis(1);
                let ended = lock::<W>(&client).acquire().timeout(soon).await.map(drop);
                assert!(matches!(ended, Err(LockError::TimedOut(_))));
                let waiter = spawn(lock::<W>(&client).acquire().into_future());
                sleep_ms(200).await;
                waiter.abort();
            }
            // The janitor sweeps once more for an attempt with an unknown outcome.
            partition(&world, 100);
            sleep_ms(3_000).await;
            drop(held);
            world.check_clean(&[&client, &other]).await;
        });
        let attempts = recorder.attempts();
        assert_eq!(attempts.len(), 5, "{attempts:?}");
        let mut released = recorder.attempts_that("released");
        released.sort();
        let mut expected = attempts.clone();
        expected.sort();
        assert_eq!(released, expected);
        let swept = recorder.attempts_that("swept once more");
        assert_eq!(swept.len(), usize::from(is_lost), "{swept:?}");
        assert!(swept.iter().all(|one| attempts.contains(one)));
    }
}

fn the_loss_of_a_lock_is_told_inside_its_span<C: Case>() {
    let recorder = traced(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let guard = hold(&lock::<C>(&client)).await;
        sleep_ms(500).await;
        assert!(world.server.admin_delete(guard.path()));
        guard.lost().await;
        sleep_ms(100).await;
        drop(guard);
        world.check_clean(&[&client]).await;
    });
    let attempts = recorder.attempts();
    assert_eq!(attempts.len(), 1);
    assert_eq!(recorder.attempts_that("the lock is lost"), attempts);
    assert_eq!(recorder.attempts_that("released"), attempts);
}

/// A second acquire by the holder waits for itself. The log says so at once, and once a minute for
/// each lock, however many tasks wait, and however often they list and check afterwards.
fn waits_behind_the_own_session_are_told_once_a_minute<L: Case>() {
    let recorder = traced(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let held = hold(&lock::<L>(&client)).await;
        let stranger = spawn(lock::<L>(&other).acquire().into_future());
        sleep_ms(1_000).await;
        stranger.abort();
        // The second one begins within a minute after the first, and the third does not.
        for _ in 0..3 {
            let waiters: Vec<_> =
                (0..5).map(|_| spawn(lock::<L>(&client).acquire().into_future())).collect();
            sleep_ms(200).await;
            partition(&world, 100);
            sleep_ms(31_000).await;
            waiters.iter().for_each(|waiter| waiter.abort());
        }
        sleep_ms(1_000).await;
        drop(held);
        world.check_clean(&[&client, &other]).await;
    });
    let told = |event: &&(String, String)| event.1.contains("znode of this client's session");
    let events = recorder.with(|seen| seen.events.iter().filter(told).cloned().collect::<Vec<_>>());
    assert!(events.iter().all(|(_, event)| event.contains(LOCK)), "{events:?}");
    let is_loud = |event: &&(String, String)| event.1.starts_with("WARN");
    assert_eq!(events.iter().filter(is_loud).count(), 2, "{events:?}");
}

#[test]
fn a_second_acquire_of_a_fair_lock_is_told() {
    waits_behind_the_own_session_are_told_once_a_minute::<FairLock>();
}

#[test]
fn a_second_acquire_of_an_exclusive_lock_is_told() {
    waits_behind_the_own_session_are_told_once_a_minute::<ExclusiveLock>();
}

/// Several takers of one client are no mistake, although they wait for each other.
#[test]
fn takers_of_one_client_are_not_told_about() {
    let recorder = traced(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let queue = WorkQueue::new(&client, "/queue").expect("the path is valid");
        let takers = [queue.take(), queue.take()].map(|take| spawn(take.into_future()));
        sleep_ms(1_000).await;
        takers.iter().for_each(|taker| taker.abort());
        sleep_ms(1_000).await;
        client.close().await;
    });
    let told = |event: &(String, String)| event.1.contains("znode of this client's session");
    assert!(!recorder.with(|seen| seen.events.iter().any(told)));
}
