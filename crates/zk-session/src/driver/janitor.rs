//! The janitor: cleanup that belongs to the session and outlives whoever caused it.
//!
//! A dropped future cannot wait for its own cleanup, and `Drop` must neither block nor fail. So
//! whoever may leave something behind first reserves a [`Slot`]. A slot can be handed a future at
//! any time, also outside a runtime; the janitor runs it to its end. Slots are limited, and so is
//! the janitor's queue.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tracing::{Instrument as _, debug};

/// Cleanups of one client that wait for its next reconnect; more are forgotten.
const MEMORIES_MAX: usize = 1024;

/// Slots of one client: locks held, attempts and cleanups at a time.
pub const JANITOR_SLOTS_MAX: usize = 65_536;

type Duty = (Pin<Box<dyn Future<Output = ()> + Send>>, OwnedSemaphorePermit);

/// The sending half.
#[derive(Clone, Debug)]
pub(crate) struct Janitor {
    slots: Arc<Semaphore>,
    memories: Arc<Semaphore>,
    duties: mpsc::UnboundedSender<Duty>,
}

/// The right to have one future run by the janitor.
#[derive(Debug)]
pub struct Slot {
    permit: OwnedSemaphorePermit,
    duties: mpsc::UnboundedSender<Duty>,
}

impl Janitor {
    /// A janitor whose task is spawned on the current runtime. It ends when nobody can hand it
    /// anything any more.
    pub(crate) fn spawn() -> Self {
        let (duties, mut queue) = mpsc::unbounded_channel::<Duty>();
        let work = async move {
            while let Some((duty, permit)) = queue.recv().await {
                let run = async move {
                    duty.await;
                    drop(permit);
                };
                tokio::spawn(run.in_current_span());
            }
        };
        tokio::spawn(work.in_current_span());
        let slots = Arc::new(Semaphore::new(JANITOR_SLOTS_MAX));
        Self { slots, memories: Arc::new(Semaphore::new(MEMORIES_MAX)), duties }
    }

    /// Reserves a slot; waits while all are taken.
    pub(crate) async fn reserve(&self) -> Slot {
        let permit = Arc::clone(&self.slots).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        Slot { permit, duties: self.duties.clone() }
    }

    /// Runs a future that waits for something which may never come, and keeps nothing alive
    /// meanwhile. Beyond the limit it is dropped.
    pub(crate) fn remember(&self, memory: impl Future<Output = ()> + Send + 'static) {
        let Ok(permit) = Arc::clone(&self.memories).try_acquire_owned() else {
            debug!("too many cleanups wait for a reconnect");
            return;
        };
        let _ = self.duties.send((Box::pin(memory), permit));
    }

    /// Slots in use.
    pub(crate) fn busy(&self) -> usize {
        JANITOR_SLOTS_MAX - self.slots.available_permits()
    }
}

impl Slot {
    /// Hands a future over. It does not block, works outside a runtime and cannot fail; after the
    /// runtime has shut down the future is dropped, and what it was to remove goes with the
    /// session.
    pub fn run(self, duty: impl Future<Output = ()> + Send + 'static) {
        // The only error is a janitor that is gone, with its runtime.
        let _ = self.duties.send((Box::pin(duty), self.permit));
    }
}
