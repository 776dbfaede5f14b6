//! An attempt has a span, and all that is done for it happens inside: also what its keeper and the
//! janitor do when nobody waits for it any more.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jute_codec::OpCode;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use zk_recipes::{ExclusiveLock, FairLock, LockError};
use zk_tests::exclusive::ZNODE;
use zk_tests::scene::{at_op, partition, session, spawn};
use zk_tests::world::{DIRECTORY, World, run, sleep_ms};
use zk_testserver::Action;

const IDENTITY: &str = "somebody-whom-nobody-has-to-know";

/// Writes down every event, with the spans that it happens in.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    spans: BTreeMap<u64, String>,
    entered: Vec<u64>,
    /// Spans, outermost first, and the event.
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

    /// Spans of attempts in the order in which they were made, each once.
    fn attempts(&self) -> Vec<String> {
        self.with(|seen| {
            let spans = seen.spans.values();
            spans.filter(|span| span.starts_with("attempt ")).cloned().collect()
        })
    }

    /// Attempts in whose spans an event like this happened.
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
        let mut line = Line(event.metadata().target().to_owned());
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

/// Runs a scenario, and hands in what was traced of it.
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

fn fair(client: &zk_recipes::Client) -> FairLock {
    FairLock::builder(client, DIRECTORY)
        .and_then(|lock| lock.identity(IDENTITY).build())
        .expect("the options are legal")
}

fn exclusive(client: &zk_recipes::Client) -> ExclusiveLock {
    ExclusiveLock::builder(client, ZNODE)
        .and_then(|lock| lock.identity(IDENTITY).build())
        .expect("the options are legal")
}

#[test]
fn the_span_of_an_attempt_carries_path_and_id_and_its_release_is_inside() {
    let recorder = traced(async {
        let world = World::new();
        let client = world.client(1).await;
        let guard = fair(&client).acquire().await.expect("nobody else wants it");
        // The id is that of the znode.
        let name = guard.path().rsplit('/').next().unwrap_or_default().to_owned();
        drop(guard);
        let guard = exclusive(&client).acquire().await.expect("nobody else wants it");
        guard.release().await.expect("it can be deleted");
        world.check_clean(&[&client]).await;
        tracing::debug!("znode {name}");
    });
    let attempts = recorder.attempts();
    let [fair, exclusive] = attempts.as_slice() else { panic!("{attempts:?}") };
    assert!(fair.contains(&format!("path={DIRECTORY}")), "{fair}");
    assert!(exclusive.contains(&format!("path={ZNODE}")), "{exclusive}");
    let id = fair.split_once(" id=").expect("it has one").1.trim_matches('"');
    assert_eq!(id.len(), 32, "{fair}");
    let is_named = |(_, event): &(String, String)| event.contains(&format!("znode {id}-lock-"));
    assert!(recorder.with(|seen| seen.events.iter().any(is_named)));
    assert_eq!(recorder.attempts_that("released"), attempts);
}

#[test]
fn what_is_left_of_a_cancelled_attempt_is_removed_inside_its_span() {
    for is_lost in [false, true] {
        let recorder = traced(async {
            let world = World::new();
            let (client, other) = (world.client(1).await, world.client(2).await);
            let held = exclusive(&other).acquire().await.expect("nobody else wants it");
            let queue = fair(&other).acquire().await.expect("nobody else wants it");
            if is_lost {
                world.server.inject(at_op(session(&client), OpCode::CREATE2, Action::CutAfter));
            }
            for _ in 0..2 {
                let soon = Duration::from_millis(1);
                let ended = fair(&client).acquire().timeout(soon).await.map(drop);
                assert_eq!(ended, Err(LockError::TimedOut));
                let waiter = spawn(exclusive(&client).acquire().into_future());
                sleep_ms(200).await;
                waiter.abort();
            }
            // Whoever is in doubt is looked for once more.
            partition(&world, 100);
            sleep_ms(3_000).await;
            drop((held, queue));
            world.check_clean(&[&client, &other]).await;
        });
        let attempts = recorder.attempts();
        assert_eq!(attempts.len(), 6, "{attempts:?}");
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

#[test]
fn the_loss_of_a_lock_is_told_inside_its_span() {
    let recorder = traced(async {
        let world = World::new();
        let client = world.client(1).await;
        let guard = exclusive(&client).acquire().await.expect("nobody else wants it");
        sleep_ms(500).await;
        assert!(world.server.admin_delete(ZNODE));
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
