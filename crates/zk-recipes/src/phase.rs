//! How an acquire goes, for whoever wants to watch it.

use tokio::sync::watch;

/// Phase of an acquire.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Phase {
    /// Getting a place in the queue.
    Claiming,
    /// Waiting in the queue.
    Queued {
        /// Contenders ahead. It is brought up to date when the queue is read, which happens when
        /// the one directly ahead goes.
        ahead: usize,
    },
}

/// A stream of phases; see [`Acquire::phases`](crate::Acquire::phases).
#[derive(Debug)]
pub struct Phases {
    pub(crate) phases: watch::Receiver<Phase>,
}

impl Phases {
    /// Waits for the next phase; `None` after the acquire has ended, in whatever way. Phases in
    /// between may be skipped. Cancel safe.
    pub async fn next(&mut self) -> Option<Phase> {
        self.phases.changed().await.ok()?;
        Some(*self.phases.borrow_and_update())
    }
}
