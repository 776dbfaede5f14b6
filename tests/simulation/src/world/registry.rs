//! The guards and leases that callers have at this moment. Everything runs in one thread of virtual
//! time, so what they say at one moment can be compared.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jute_codec::SessionId;
use zk_recipes::Client;
use zk_testserver::TestServer;

use super::clients::Life;
use crate::history::{History, Id, Share, What};

/// Says whether a guard is held, or `None` if its caller has given it up.
type Asks = Box<dyn Fn() -> Option<bool> + Send>;

/// The guards of all locks and the leases of all items, by the name of what they exclude others
/// from.
#[derive(Clone)]
pub struct Registry {
    history: History,
    server: TestServer,
    /// Nothing goes wrong, so that a guard that is held stays so.
    is_steady: bool,
    inner: Arc<Mutex<BTreeMap<String, Lock>>>,
}

#[derive(Default)]
struct Lock {
    guards: Vec<Entry>,
    last: Vec<(Id, Share)>,
}

struct Entry {
    guard: Id,
    share: Share,
    /// The session that must live while the guard says *held*, if its client keeps a lease.
    session: Option<SessionId>,
    /// The client that must have a lease then, if it keeps one.
    client: Option<Client>,
    /// The life of its client. `None`: it was told already that the guard outlives it.
    life: Option<Life>,
    /// It must be held until its caller gives it back or its client ends: nothing goes wrong.
    must_stay: Option<Life>,
    was_held: bool,
    asks: Asks,
}

impl Registry {
    /// Creates an empty registry of guards of sessions of this server.
    pub fn new(history: History, server: TestServer, is_steady: bool) -> Self {
        Self { history, server, is_steady, inner: Arc::default() }
    }

    /// Adds a guard, and records which guards of its lock are held now.
    pub fn add(
        &self,
        lock: &str,
        guard: Id,
        share: Share,
        leased: Option<(SessionId, Client)>,
        life: Life,
        is_held: impl Fn() -> Option<bool> + Send + 'static,
    ) {
        let mut inner = self.lock();
        let entry = inner.entry(lock.to_owned()).or_default();
        // A lease of an item ends by itself, and so does a lock that nothing renews.
        let must_stay = Some(life.clone()).filter(|_| self.is_steady && leased.is_some());
        let (session, client) = leased.unzip();
        entry.guards.push(Entry {
            guard,
            share,
            session,
            client,
            life: Some(life),
            must_stay,
            was_held: false,
            asks: Box::new(is_held),
        });
        entry.look(&self.history, lock, &self.server.sessions());
    }

    /// Records for all locks which of their guards are held now.
    pub fn look(&self) {
        let sessions = self.server.sessions();
        for (name, lock) in &mut *self.lock() {
            lock.look(&self.history, name, &sessions);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Lock>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lock {
    fn look(&mut self, history: &History, name: &str, sessions: &[SessionId]) {
        let mut held = Vec::new();
        self.guards.retain_mut(|entry| {
            let Entry { guard, share, session, client, life, must_stay, was_held, asks } = entry;
            match asks() {
                Some(is_held) => {
                    let has_wavered = *was_held && !is_held;
                    *was_held |= is_held;
                    if has_wavered && must_stay.take().is_some_and(|life| !life.is_ending()) {
                        history.note(What::Wavered { lock: name.to_owned(), guard: *guard });
                    }
                    held.extend(is_held.then_some((*guard, *share)));
                    if is_held && session.is_some_and(|session| !sessions.contains(&session)) {
                        let (lock, session) = (name.to_owned(), session.take());
                        history.note(What::Outlived { lock, guard: *guard, session });
                    }
                    let has_none = |client: &mut Client| !client.status().is_leased(client.now());
                    if is_held && client.take_if(has_none).is_some() {
                        history.note(What::Unleased { lock: name.to_owned(), guard: *guard });
                    }
                    if is_held && life.take_if(|life| life.is_closed()).is_some() {
                        history.note(What::HeldByClosed { lock: name.to_owned(), guard: *guard });
                    }
                    true
                }
                None => false,
            }
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
