//! The log of the library in a run: what somebody sees who logs at INFO.
//!
//! Only the message and the path become part of the history. Other fields say the same in numbers.

use std::fmt;
use std::sync::{Arc, Mutex, Once, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::history::{History, What};

/// The beginnings of the targets of the library.
const TARGETS: [&str; 2] = ["zk_session", "zk_recipes"];

/// Writes the log of a thread into the history of its run.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Option<History>>>);

impl Log {
    /// Lets all threads have a subscriber that wants the same lines as that of a run. If a line is
    /// logged for the first time by a thread without one, at the moment at which a run begins, tracing
    /// may decide that nobody wants it, and the run lacks it.
    pub fn accustom() {
        static ONCE: Once = Once::new();
        // Whoever has set another one takes the risk.
        ONCE.call_once(|| drop(tracing::subscriber::set_global_default(Self::default())));
    }

    /// Says to which history the lines belong from now on.
    pub fn write_to(&self, history: &History) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(history.clone());
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_ours = TARGETS.iter().any(|target| metadata.target().starts_with(target));
        is_ours && metadata.is_event() && *metadata.level() <= Level::INFO
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(tracing::level_filters::LevelFilter::INFO)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let Line { message, path } = line;
        let history = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(history) = history {
            let level = event.metadata().level().as_str();
            history.note(What::Logged { level, message, path });
        }
    }

    // There are no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    path: Option<String>,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "path" => self.path = Some(format!("{value:?}")),
            _ => {}
        }
    }
}
