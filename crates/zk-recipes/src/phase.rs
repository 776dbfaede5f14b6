//! How a lock goes, from the first request to its release, for whoever wants to watch it.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::error::LostReason;

/// Phase of an acquire, and of the lock it has obtained.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Phase {
    /// Getting a place in the queue.
    Claiming,
    /// Waiting in the queue.
    Queued {
        /// Contenders ahead, whatever their kind. It is brought up to date when the queue is read,
        /// which happens when the one directly ahead goes. An exclusive lock has no queue, and
        /// says 1.
        ahead: usize,
    },
    /// Held.
    Held,
    /// Obtained, but without a current proof that it is held.
    AtRisk,
    /// Lost, for ever.
    Lost(LostReason),
    /// Given back.
    Released,
}

/// A stream of phases; see [`Acquire::phases`](crate::Acquire::phases).
#[derive(Debug)]
pub struct Phases {
    pub(crate) phases: watch::Receiver<Phase>,
}

impl Phases {
    /// The phase now.
    pub fn current(&self) -> Phase {
        *self.phases.borrow()
    }

    /// Waits for the next phase; `None` when no other can come: after the acquire has failed, or
    /// the lock is released or lost. Phases in between may be skipped, the last one never is.
    /// A lost connection is no phase while waiting, and [`Phase::AtRisk`] afterwards. Cancel safe.
    pub async fn next(&mut self) -> Option<Phase> {
        self.phases.changed().await.ok()?;
        Some(*self.phases.borrow_and_update())
    }
}

/// Where phases are told, if anybody wants to know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observer(Option<Arc<Mutex<Option<watch::Sender<Phase>>>>>);

impl Observer {
    pub(crate) fn new() -> (Self, Phases) {
        let (sender, phases) = watch::channel(Phase::Claiming);
        (Self(Some(Arc::new(Mutex::new(Some(sender))))), Phases { phases })
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.with(|sender| sender.as_ref().is_some_and(|sender| !sender.is_closed()))
            .unwrap_or(false)
    }

    pub(crate) fn tell(&self, phase: Phase) {
        self.with(|sender| {
            if let Some(sender) = sender {
                sender.send_if_modified(|current| std::mem::replace(current, phase) != phase);
            }
        });
    }

    /// No other phase comes after this one.
    pub(crate) fn end(&self, phase: Phase) {
        self.tell(phase);
        self.with(Option::take);
    }

    fn with<T>(&self, act: impl FnOnce(&mut Option<watch::Sender<Phase>>) -> T) -> Option<T> {
        let mut sender = self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        Some(act(&mut sender))
    }
}
