//! The guards and leases that callers have at this moment. Everything runs in one thread of virtual
//! time, so what they say at one moment can be compared.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::history::{History, Id, Share, What};

/// Says whether a guard is held, or `None` if its caller has given it up.
type Asks = Box<dyn Fn() -> Option<bool> + Send>;

/// The guards of all locks and the leases of all items, by the name of what they exclude others
/// from.
#[derive(Clone)]
pub struct Registry {
    history: History,
    inner: Arc<Mutex<BTreeMap<String, Lock>>>,
}

#[derive(Default)]
struct Lock {
    guards: Vec<(Id, Share, Asks)>,
    last: Vec<(Id, Share)>,
}

impl Registry {
    /// Creates an empty registry.
    pub fn new(history: History) -> Self {
        Self { history, inner: Arc::default() }
    }

    /// Adds a guard, and records which guards of its lock are held now.
    pub fn add(
        &self,
        lock: &str,
        guard: Id,
        share: Share,
        is_held: impl Fn() -> Option<bool> + Send + 'static,
    ) {
        let mut inner = self.lock();
        let entry = inner.entry(lock.to_owned()).or_default();
        entry.guards.push((guard, share, Box::new(is_held)));
        entry.look(&self.history, lock);
    }

    /// Records for all locks which of their guards are held now.
    pub fn look(&self) {
        for (name, lock) in &mut *self.lock() {
            lock.look(&self.history, name);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Lock>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lock {
    fn look(&mut self, history: &History, name: &str) {
        let mut held = Vec::new();
        self.guards.retain(|(guard, share, is_held)| match is_held() {
            Some(is_held) => {
                held.extend(is_held.then_some((*guard, *share)));
                true
            }
            None => false,
        });
        if held != self.last {
            self.last.clone_from(&held);
            history.note(What::Held { lock: name.to_owned(), guards: held });
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}
