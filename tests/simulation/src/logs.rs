//! The log of the library in a run: what somebody sees who logs at INFO.
//!
//! Only the message and the path become part of the history, and what a line about the end of a session
//! says about it. Other fields say the same in numbers.

use std::fmt;
use std::sync::{Arc, Mutex, Once, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use zk_session::EndCause;
use zk_testserver::TestServer;

use crate::history::{History, What};

/// The beginnings of the targets of the library.
const TARGETS: [&str; 2] = ["zk_session", "zk_recipes"];

/// How a line begins that says that a session has ended although nobody has closed it.
const SESSION_LOST: &str = "session lost";

/// Writes the log of a thread into the history of its run.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Option<(History, TestServer)>>>);

impl Log {
    /// Lets all threads have a subscriber that wants the same lines as that of a run. If a line is
    /// logged for the first time by a thread without one, at the moment at which a run begins, tracing
    /// may decide that nobody wants it, and the run lacks it.
    pub fn accustom() {
        static ONCE: Once = Once::new();
        // Whoever has set another one takes the risk.
        ONCE.call_once(|| drop(tracing::subscriber::set_global_default(Self::default())));
    }

    /// Says to which history the lines belong from now on, and of which servers they tell.
    pub fn write_to(&self, history: &History, server: &TestServer) {
        let run = (history.clone(), server.clone());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(run);
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
        let Line { message, path, session, cause } = line;
        let run = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((history, server)) = run else { return };
        let ended = session.filter(|_| message.starts_with(SESSION_LOST));
        let level = event.metadata().level().as_str();
        history.note(What::Logged { level, message, path });
        if let Some(text) = ended {
            let alive = server.sessions();
            let session = alive.into_iter().find(|session| session.to_string() == text);
            let is_told = cause != Some(EndCause::GaveUp.to_string());
            history.note(What::LostSession { is_told, alive: session });
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
    session: Option<String>,
    cause: Option<String>,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "path" => self.path = Some(format!("{value:?}")),
            "session" => self.session = Some(format!("{value:?}")),
            "cause" => self.cause = Some(format!("{value:?}")),
            _ => {}
        }
    }
}
