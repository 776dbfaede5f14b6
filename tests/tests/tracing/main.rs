//! Tracing: spans for sessions and connections, and no secrets anywhere.

mod access;
mod attempts;
mod cache;
mod commits;
mod following;
mod long_paths;
mod outage;

use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use zk_recipes::{Client, Clock};
use zk_tests::world::{World, run, sleep_ms};

const PASSWORD: &str = "correct-horse-battery-staple";

/// Records everything, at every level.
#[derive(Clone, Default)]
struct Recorder(Arc<Recorded>);

#[derive(Default)]
struct Recorded {
    text: Mutex<String>,
    spans: AtomicU64,
}

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Recorder {
    fn line(&self, name: &str, record: impl FnOnce(&mut Line<'_>)) {
        let mut text = self.0.text.lock().unwrap_or_else(PoisonError::into_inner);
        text.push_str(name);
        record(&mut Line(&mut text));
        text.push('\n');
    }

    fn text(&self) -> String {
        self.0.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.line(span.metadata().name(), |line| span.record(line));
        Id::from_u64(self.0.spans.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        self.line("record", |line| values.record(line));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.line(event.metadata().target(), |line| event.record(line));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn session_and_connection_have_spans_and_secrets_stay_out() {
    let recorder = Recorder::default();
    let subscriber = recorder.clone();
    let described = tracing::subscriber::with_default(subscriber, || {
        run(async {
            let world = World::new();
            let builder = Client::builder("in-process/app")
                .clock(Clock::tokio())
                .auth("digest", format!("user:{PASSWORD}"))
                .transport(world.server.connector());
            let mut described = format!("{builder:?}");
            let client = builder.connect().await.expect("the server takes any digest");
            let guard = World::lock(&client).acquire().await.expect("the lock is free");
            world.server.disconnect_all();
            sleep_ms(1_000).await;
            let _ = write!(described, "{client:?} {guard:?} {:?}", client.status());
            drop(guard);
            client.close().await;
            described
        })
    });
    let text = recorder.text();
    assert!(text.contains("zk_session hosts=in-process:2181 chroot=/app"), "{text}");
    assert!(text.contains("zk_connection host=in-process:2181"), "{text}");
    // The test server's session passwords have 16 bytes, which would be shown escaped or as a list.
    for shown in [&text, &described] {
        assert!(!shown.contains(PASSWORD) && !shown.contains("user:"), "{shown}");
        assert!(!shown.contains("password") && !shown.contains("passwd"), "{shown}");
    }
}
