//! The janitor: cleanup that belongs to the session and outlives the code that started it.
//!
//! A dropped future cannot wait for its own cleanup, and `Drop` must neither block nor fail. So
//! code that may have to clean up later reserves a [`Slot`] first. A slot accepts a future at any
//! time, even outside of a runtime, and spawns it as a task on the runtime of the session. The
//! number of slots is limited.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{Instrument as _, Span, debug};

/// Maximum number of cleanups of one client that wait for a reconnect, or for the end of a pause;
/// further ones are discarded.
const DEFERRED_MAX: usize = 1024;

/// Number of slots of one client. Each held lock, attempt or cleanup takes one.
pub const JANITOR_SLOTS_MAX: usize = 65_536;

/// The janitor of one client.
#[derive(Clone)]
pub(crate) struct Janitor {
    slots: Arc<Semaphore>,
    deferred: Arc<Semaphore>,
    spawner: Arc<Spawner>,
}

/// Spawns cleanups on the runtime of the session.
struct Spawner {
    runtime: Handle,
    span: Span,
}

/// The right to have the janitor run one future.
pub struct Slot {
    permit: OwnedSemaphorePermit,
    spawner: Arc<Spawner>,
}

impl Janitor {
    /// Creates a janitor that runs cleanups on this runtime.
    pub(crate) fn new(span: Span, runtime: Handle) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(JANITOR_SLOTS_MAX)),
            deferred: Arc::new(Semaphore::new(DEFERRED_MAX)),
            spawner: Arc::new(Spawner { runtime, span }),
        }
    }

    /// Reserves a slot. Waits while all slots are taken.
    pub(crate) async fn reserve(&self) -> Slot {
        let permit = Arc::clone(&self.slots).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        Slot { permit, spawner: Arc::clone(&self.spawner) }
    }

    /// Runs a cleanup that first waits for an event that may never happen, and that keeps nothing
    /// alive while it waits. Drops the cleanup if too many others are waiting.
    pub(crate) fn defer(&self, cleanup: impl Future<Output = ()> + Send + 'static) {
        match Arc::clone(&self.deferred).try_acquire_owned() {
            Ok(permit) => self.spawner.spawn(cleanup, permit),
            Err(_) => debug!("too many deferred cleanups; discarding one"),
        }
    }

    /// Returns the number of slots in use.
    pub(crate) fn busy(&self) -> usize {
        JANITOR_SLOTS_MAX - self.slots.available_permits()
    }
}

impl Slot {
    /// Spawns a future on the runtime of the session, and frees the slot when it completes.
    ///
    /// This call never blocks or fails, and works outside of a runtime. After the runtime of the
    /// session has shut down, the future is dropped. The ephemeral znodes that it was meant to
    /// delete are then deleted when the session expires.
    pub fn run(self, cleanup: impl Future<Output = ()> + Send + 'static) {
        self.spawner.spawn(cleanup, self.permit);
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

impl Spawner {
    fn spawn(
        &self,
        cleanup: impl Future<Output = ()> + Send + 'static,
        permit: OwnedSemaphorePermit,
    ) {
        // Boxed, because the task would otherwise hold two copies: the argument of the async block
        // and the future that it awaits.
        let cleanup = Box::pin(cleanup.instrument(self.span.clone()));
        self.runtime.spawn(async move {
            cleanup.await;
            drop(permit);
        });
    }
}
