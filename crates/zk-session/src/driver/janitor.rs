//! The janitor: cleanup that belongs to the session and outlives whoever caused it.
//!
//! A dropped future cannot wait for its own cleanup, and `Drop` must neither block nor fail. So
//! whoever may leave something behind first reserves a [`Slot`]. A slot can be handed a future at
//! any time, also outside a runtime: it becomes a task on the runtime of the session. Slots are
//! limited.

use std::future::Future;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{Instrument as _, Span, debug};

/// Cleanups of one client that wait for its next reconnect; more are forgotten.
const MEMORIES_MAX: usize = 1024;

/// Slots of one client: locks held, attempts and cleanups at a time.
pub const JANITOR_SLOTS_MAX: usize = 65_536;

/// The janitor of one client.
#[derive(Clone, Debug)]
pub(crate) struct Janitor {
    slots: Arc<Semaphore>,
    memories: Arc<Semaphore>,
    room: Arc<Room>,
}

/// Where duties run.
#[derive(Debug)]
struct Room {
    runtime: Handle,
    span: Span,
}

/// The right to have one future run by the janitor.
#[derive(Debug)]
pub struct Slot {
    permit: OwnedSemaphorePermit,
    room: Arc<Room>,
}

impl Janitor {
    /// A janitor whose duties run on the current runtime.
    pub(crate) fn new(span: Span) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(JANITOR_SLOTS_MAX)),
            memories: Arc::new(Semaphore::new(MEMORIES_MAX)),
            room: Arc::new(Room { runtime: Handle::current(), span }),
        }
    }

    /// Reserves a slot; waits while all are taken.
    pub(crate) async fn reserve(&self) -> Slot {
        let permit = Arc::clone(&self.slots).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        Slot { permit, room: Arc::clone(&self.room) }
    }

    /// Runs a future that waits for something which may never come, and keeps nothing alive
    /// meanwhile. Beyond the limit it is dropped.
    pub(crate) fn remember(&self, memory: impl Future<Output = ()> + Send + 'static) {
        match Arc::clone(&self.memories).try_acquire_owned() {
            Ok(permit) => self.room.run(memory, permit),
            Err(_) => debug!("too many cleanups wait for a reconnect"),
        }
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
        self.room.run(duty, self.permit);
    }
}

impl Room {
    fn run(&self, duty: impl Future<Output = ()> + Send + 'static, permit: OwnedSemaphorePermit) {
        // In a box: otherwise it would be there twice, as it came and as it runs.
        let duty = Box::pin(duty.instrument(self.span.clone()));
        self.runtime.spawn(async move {
            duty.await;
            drop(permit);
        });
    }
}
