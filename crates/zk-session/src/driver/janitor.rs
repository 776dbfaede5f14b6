//! The janitor: cleanup that belongs to the session and outlives the code that started it.
//!
//! A dropped future cannot wait for its own cleanup, and `Drop` must neither block nor fail. So
//! code that may have to clean up later reserves a [`Slot`] first. A slot accepts a future at any
//! time, even outside of a runtime, and spawns it as a task on the runtime of the session. The
//! number of slots is limited.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytestring::ByteString;
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
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
    duties: Arc<Duties>,
    /// Sweeps that run after the next reconnect.
    sweeps: Arc<Duties>,
    backlog: Arc<AtomicUsize>,
}

/// Work of the janitor that is due: it counts in the backlog until it is dropped.
#[derive(Debug)]
pub struct Due(Arc<AtomicUsize>);

/// The paths below which the janitor has to delete znodes, or may have to.
#[derive(Default)]
struct Duties {
    places: Mutex<BTreeMap<ByteString, Weak<Place>>>,
    /// Told whenever a place is left.
    ended: Notify,
}

/// A path about which there are duties. Thousands of waiters may have the same one, so they share
/// it, and each needs only a pointer.
struct Place {
    path: ByteString,
    duties: Arc<Duties>,
}

/// One of the duties, until it is dropped.
type Duty = Arc<Place>;

/// All slots. Until it is dropped, the janitor has no duty and gets no other.
pub(crate) struct Idle {
    _slots: OwnedSemaphorePermit,
}

/// Spawns cleanups on the runtime of the session.
struct Spawner {
    runtime: Handle,
    span: Span,
}

/// The right to have the janitor run one future.
pub struct Slot {
    /// Dropped before the permit: when all slots are free, there are no duties.
    duty: Duty,
    permit: OwnedSemaphorePermit,
    spawner: Arc<Spawner>,
    backlog: Arc<AtomicUsize>,
}

impl Janitor {
    /// Creates a janitor that runs cleanups on this runtime.
    pub(crate) fn new(span: Span, runtime: Handle) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(JANITOR_SLOTS_MAX)),
            deferred: Arc::new(Semaphore::new(DEFERRED_MAX)),
            spawner: Arc::new(Spawner { runtime, span }),
            duties: Arc::default(),
            sweeps: Arc::default(),
            backlog: Arc::default(),
        }
    }

    /// Reserves a slot for a duty about this path. Waits while all slots are taken.
    pub(crate) async fn reserve(&self, path: ByteString) -> Slot {
        let permit = Arc::clone(&self.slots).acquire_owned().await;
        self.slot(path, permit.expect("the semaphore is never closed"))
    }

    /// Reserves a slot if there is one that nobody else waits for.
    pub(crate) fn try_reserve(&self, path: ByteString) -> Option<Slot> {
        let permit = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        Some(self.slot(path, permit))
    }

    fn slot(&self, path: ByteString, permit: OwnedSemaphorePermit) -> Slot {
        let duty = Duties::begin(&self.duties, path);
        let (spawner, backlog) = (Arc::clone(&self.spawner), Arc::clone(&self.backlog));
        Slot { duty, permit, spawner, backlog }
    }

    /// Waits until no slot is taken. Until then, and until the result is dropped, nobody else gets a
    /// slot.
    pub(crate) async fn idle(&self) -> Idle {
        let all = Arc::clone(&self.slots).acquire_many_owned(JANITOR_SLOTS_MAX as u32).await;
        Idle { _slots: all.expect("the semaphore is never closed") }
    }

    /// Returns the paths of all duties, including those without a slot: a removal that was refused
    /// is tried again after a pause.
    pub(crate) fn duties(&self) -> BTreeSet<String> {
        self.duties.paths()
    }

    /// Returns the paths of which a sweep waits for the next reconnect, or runs.
    pub(crate) fn sweeps(&self) -> BTreeSet<String> {
        self.sweeps.paths()
    }

    /// Waits until there is no duty.
    pub(crate) async fn done(&self) {
        self.duties.none().await;
    }

    /// Waits until no sweep waits or runs.
    pub(crate) async fn swept(&self) {
        self.sweeps.none().await;
    }

    /// Like [`defer`](Self::defer), for a cleanup after the next reconnect that looks below this
    /// path for what a lost request has left.
    pub(crate) fn defer_sweep(
        &self,
        path: ByteString,
        cleanup: impl Future<Output = ()> + Send + 'static,
    ) {
        self.defer(cleanup, Duties::begin(&self.sweeps, path));
    }

    /// Like [`defer`](Self::defer), for a cleanup that deletes a znode at this path.
    pub(crate) fn defer_duty(
        &self,
        path: ByteString,
        cleanup: impl Future<Output = ()> + Send + 'static,
    ) {
        self.defer(cleanup, (self.due(), Duties::begin(&self.duties, path)));
    }

    /// Runs a cleanup that first waits for an event that may never happen, and that keeps only
    /// `kept` alive while it waits. Drops the cleanup if too many others are waiting.
    fn defer(&self, cleanup: impl Future<Output = ()> + Send + 'static, kept: impl Send + 'static) {
        match Arc::clone(&self.deferred).try_acquire_owned() {
            Ok(permit) => self.spawner.spawn(cleanup, (kept, permit)),
            Err(_) => debug!("too many deferred cleanups; discarding one"),
        }
    }

    /// Runs a future on the runtime of the session.
    pub(crate) fn run_beside(&self, future: impl Future<Output = ()> + Send + 'static) {
        let Spawner { runtime, span } = &*self.spawner;
        runtime.spawn(future.instrument(span.clone()));
    }

    /// Counts work that is due from now on.
    pub(crate) fn due(&self) -> Due {
        Due::begin(&self.backlog)
    }

    /// Returns how much work is due and not complete.
    pub(crate) fn backlog(&self) -> usize {
        self.backlog.load(Ordering::Relaxed)
    }

    /// Returns the number of slots in use.
    pub(crate) fn busy(&self) -> usize {
        JANITOR_SLOTS_MAX - self.slots.available_permits()
    }
}

impl Slot {
    /// Spawns a cleanup on the runtime of the session, and frees the slot when it completes. Until
    /// then it counts in the [backlog](crate::recipe::Session::janitor_backlog).
    ///
    /// This call never blocks or fails, and works outside of a runtime. After the runtime of the
    /// session has shut down, the future is dropped. The ephemeral znodes that it was meant to
    /// delete are then deleted when the session expires.
    pub fn run(self, cleanup: impl Future<Output = ()> + Send + 'static) {
        let due = Due::begin(&self.backlog);
        self.spawn(cleanup, Some(due));
    }

    /// Like [`run`](Self::run), for a future that keeps something for now. Its cleanup counts in the
    /// backlog only while it has a [`Due`].
    pub fn keep(self, keeper: impl Future<Output = ()> + Send + 'static) {
        self.spawn(keeper, None);
    }

    fn spawn(self, future: impl Future<Output = ()> + Send + 'static, due: Option<Due>) {
        let Self { duty, permit, spawner, backlog: _ } = self;
        // The permit is dropped last: when all slots are free, there are no duties.
        spawner.spawn(future, (due, duty, permit));
    }
}

impl Due {
    fn begin(backlog: &Arc<AtomicUsize>) -> Self {
        backlog.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(backlog))
    }
}

impl Drop for Due {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Duties {
    fn begin(duties: &Arc<Self>, path: ByteString) -> Duty {
        let mut places = duties.lock();
        if let Some(place) = places.get(&path).and_then(Weak::upgrade) {
            return place;
        }
        let place = Arc::new(Place { path: path.clone(), duties: Arc::clone(duties) });
        places.insert(path, Arc::downgrade(&place));
        place
    }

    /// Waits until there are none.
    async fn none(&self) {
        loop {
            // It counts from here on, so it misses no duty that ends before it is awaited.
            let ended = self.ended.notified();
            if self.paths().is_empty() {
                return;
            }
            ended.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ByteString, Weak<Place>>> {
        // No code that holds the lock can panic half-way through a change.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn paths(&self) -> BTreeSet<String> {
        let places = self.lock();
        // A place without duties is about to remove itself.
        let in_use = places.iter().filter(|(_, place)| place.strong_count() > 0);
        in_use.map(|(path, _)| path.to_string()).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.duties.lock();
        // A new duty about the path may have replaced this place already.
        if places.get(&self.path).is_some_and(|place| place.strong_count() == 0) {
            places.remove(&self.path);
        }
        drop(places);
        self.duties.ended.notify_waiters();
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

impl Spawner {
    /// Runs a cleanup, and then drops what is kept until its end.
    fn spawn(&self, cleanup: impl Future<Output = ()> + Send + 'static, kept: impl Send + 'static) {
        // Boxed, because the task would otherwise hold two copies: the argument of the async block
        // and the future that it awaits. So does each async block around it, which is why what is
        // kept is not in one.
        let cleanup = Box::pin(cleanup.instrument(self.span.clone()));
        self.runtime.spawn(async move {
            cleanup.await;
            drop(kept);
        });
    }
}
