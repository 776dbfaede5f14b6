//! The levels of a holder.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use zk_session::Time;

use crate::acquire::lock::Lock;
use crate::engine::call::Call;
use crate::guard::Guard;
use crate::lock::error::LockError;
use crate::lock::kind::Kind;
use crate::lock::outcome::Released;
use crate::lock::state::LockState;

/// The state that the clones of a holder and its levels share.
pub(super) struct Shared<K: Kind> {
    pub(super) lock: Lock<K>,
    /// The task that has the turn may acquire the lock.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// The guard of the current hold. Levels begin and end while this is locked, so that exactly
    /// one of them is the last.
    hold: Mutex<Weak<Guard<K>>>,
}

/// A level of a [`Holder`](crate::Holder): it ends when it is released or dropped, and the last
/// level releases the lock.
///
/// It dereferences to the [`Guard`] of the lock, so [`state`](Guard::state), [`lost`](Guard::lost),
/// [`run`](Guard::run) and the token, for example, are available on every level. A lock that one
/// level loses is lost for all of them.
#[must_use = "a dropped level ends"]
pub struct Level<K: Kind> {
    shared: Arc<Shared<K>>,
    /// `None` after the end.
    guard: Option<Arc<Guard<K>>>,
}

impl<K: Kind> Shared<K> {
    pub(super) fn new(lock: Lock<K>) -> Self {
        Self { lock, turn: tokio::sync::Mutex::new(()), hold: Mutex::new(Weak::new()) }
    }

    /// Adds a level to the current hold. Fails if the lock is lost. Returns `None` if there is no
    /// hold.
    pub(super) fn nest(self: &Arc<Self>) -> Option<Result<Level<K>, LockError>> {
        self.with_hold(|hold| {
            let guard = hold.upgrade()?;
            // An outer level counts on this hold, so the loss must not be hidden by a new hold.
            if let LockState::Lost(reason) = guard.state() {
                return Some(Err(LockError::Lost(reason)));
            }
            Some(Ok(Level { shared: Arc::clone(self), guard: Some(guard) }))
        })
    }

    /// Begins a hold with its first level.
    pub(super) fn begin(self: &Arc<Self>, guard: Guard<K>) -> Level<K> {
        let guard = Arc::new(guard);
        self.with_hold(|hold| {
            debug_assert_eq!(hold.strong_count(), 0, "a hold begins after the last one has ended");
            *hold = Arc::downgrade(&guard);
        });
        Level { shared: Arc::clone(self), guard: Some(guard) }
    }

    /// Creates a call about the lock.
    pub(super) fn call<T: 'static, F: Future<Output = Result<T, LockError>> + Send>(
        self: &Arc<Self>,
        start: impl FnOnce(Arc<Self>, Option<Time>) -> F + Send + 'static,
    ) -> Call<T, LockError> {
        let shared = Arc::clone(self);
        Call::new(self.lock.client(), K::path(&self.lock.profile), |deadline| {
            start(shared, deadline)
        })
    }

    pub(super) fn levels(&self) -> usize {
        self.with_hold(|hold| hold.strong_count())
    }

    fn with_hold<T>(&self, act: impl FnOnce(&mut Weak<Guard<K>>) -> T) -> T {
        act(&mut self.hold.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<K: Kind> Level<K> {
    /// Ends this level. If it is the last one, releases the lock and returns how that ended. If
    /// other levels hold the lock, sends nothing and returns `None`.
    ///
    /// **Cancel safe**: this method ends the level itself, so dropping what it returns changes
    /// nothing, and neither does a [timeout](Call::timeout). After a **connection loss**, requests are
    /// replayed; see [`Guard::release`].
    ///
    /// # Errors
    ///
    /// The errors are those of [`Guard::release`], and only the last level returns them.
    pub fn release(mut self) -> Call<Option<Released>, LockError> {
        let releasing = self.end().map(Guard::release);
        self.shared.call(async |_, deadline| match releasing {
            Some(releasing) => releasing.until(deadline).await.map(Some),
            None => Ok(None),
        })
    }

    /// Ends this level. Returns the guard if this was the last level.
    fn end(&mut self) -> Option<Guard<K>> {
        let guard = self.guard.take();
        self.shared.with_hold(|_| guard.and_then(Arc::into_inner))
    }
}

impl<K: Kind> Deref for Level<K> {
    type Target = Guard<K>;

    fn deref(&self) -> &Guard<K> {
        self.guard.as_ref().expect("only the end takes the guard")
    }
}

/// Ends the level. If it is the last one, the lock is released in the background.
impl<K: Kind> Drop for Level<K> {
    fn drop(&mut self) {
        drop(self.end());
    }
}

impl<K: Kind> fmt::Debug for Level<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Level").field("guard", &self.guard).finish_non_exhaustive()
    }
}
