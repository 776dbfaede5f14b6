//! The clients of a run: which of them works at this moment under each number, and how the others
//! have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jute_codec::SessionId;
use tokio::sync::Notify;
use zk_recipes::{Client, WorkQueue};

use crate::history::Id;

/// The clients that work, and those of which everybody has dropped the last handle.
#[derive(Debug, Default)]
pub struct Clients(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    slots: BTreeMap<usize, (Client, Life)>,
    /// How many lives there were of each number.
    lives: BTreeMap<usize, u64>,
    abandoned: BTreeSet<SessionId>,
}

/// A queue that all tasks of a client use, so that its takers know of each other.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "programs use its parts")]
pub struct CommonQueue {
    /// The queue.
    pub queue: WorkQueue,
    /// Its number, for judges.
    pub id: Id,
    /// For how long its takers pass over what one of them has given back.
    pub delay: Duration,
}

/// The life of a client. Another client may follow under the same number.
#[derive(Clone, Debug, Default)]
pub struct Life(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// Its place among the clients of its number.
    place: u64,
    /// Since when its list of servers has had these members, if it was changed.
    hosts: Mutex<Option<(Duration, Vec<usize>)>>,
    /// The queue that its tasks have in common, until it ends.
    queue: Mutex<Option<CommonQueue>>,
    is_ending: AtomicBool,
    is_closed: AtomicBool,
    has_expired: AtomicBool,
    has_heir: AtomicBool,
    has_trusted: AtomicBool,
    /// When it has got its newest connection.
    connected_since: Mutex<Option<Duration>>,
    is_abandoned: AtomicBool,
    abandoned: Notify,
    /// A watch of a caller has fired.
    told: Notify,
}

impl Life {
    /// The life of a client before which there were this many of its number.
    pub fn new(place: u64) -> Self {
        Self(Arc::new(State { place, ..State::default() }))
    }

    /// Returns how many clients of its number there were before.
    pub fn place(&self) -> u64 {
        self.0.place
    }

    /// Returns whether this is the life of the same client.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The list of servers has these members from now on.
    pub fn set_hosts(&self, now: Duration, members: Vec<usize>) {
        *self.0.hosts.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, members));
    }

    /// Returns whether this member had left the list of servers before.
    pub fn has_left(&self, now: Duration, member: usize) -> bool {
        let hosts = self.0.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.as_ref().is_some_and(|(since, members)| *since < now && !members.contains(&member))
    }

    /// The client has a new connection.
    pub fn connect(&self, now: Duration) {
        *self.0.connected_since.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    /// Returns when the client has got its newest connection.
    pub fn connected_since(&self) -> Option<Duration> {
        *self.0.connected_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client is about to end, or goes on.
    pub fn set_ending(&self, is_ending: bool) {
        self.0.is_ending.store(is_ending, Ordering::Relaxed);
        if is_ending {
            self.drop_queue();
        }
    }

    /// A caller was told of a change that it has watched.
    pub fn tell(&self) {
        self.0.told.notify_waiters();
    }

    /// Waits until a caller is told of a change that it has watched.
    pub async fn told(&self) {
        self.0.told.notified().await;
    }

    /// Returns the queue that the tasks of this client have in common. The first of them builds it.
    /// `None`: the client is about to end, and the queue must not keep it.
    pub fn queue(&self, build: impl FnOnce() -> CommonQueue) -> Option<CommonQueue> {
        if self.is_ending() {
            return None;
        }
        let mut queue = self.0.queue.lock().unwrap_or_else(PoisonError::into_inner);
        Some(queue.get_or_insert_with(build).clone())
    }

    /// Drops the queue, which has a handle of the client.
    fn drop_queue(&self) {
        let queue = self.0.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        // It may have the last handle, whose drop does more than that of others.
        drop(queue);
    }

    /// Returns whether the client is about to end, or has ended.
    pub fn is_ending(&self) -> bool {
        self.0.is_ending.load(Ordering::Relaxed) || self.has_expired()
    }

    /// The client has ended with its session. Returns whether nobody knew it.
    pub fn expire(&self) -> bool {
        self.0.is_closed.store(true, Ordering::Relaxed);
        self.drop_queue();
        !self.0.has_expired.swap(true, Ordering::Relaxed)
    }

    /// Returns whether somebody knows that the client has ended with its session.
    pub fn has_expired(&self) -> bool {
        self.0.has_expired.load(Ordering::Relaxed)
    }

    /// The client has a lease that no server keeps. Returns whether nobody knew it.
    pub fn trust(&self) -> bool {
        !self.0.has_trusted.swap(true, Ordering::Relaxed)
    }

    /// Another client is about to follow this one. Returns whether it is the first.
    pub fn bequeath(&self) -> bool {
        !self.0.has_heir.swap(true, Ordering::Relaxed)
    }

    /// Somebody was told that the client is closed.
    pub fn close(&self) {
        self.set_ending(true);
        self.0.is_closed.store(true, Ordering::Relaxed);
    }

    /// Returns whether somebody was told that the client is closed.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed.load(Ordering::Relaxed)
    }

    /// From now on, whoever has a handle of the client drops it.
    pub fn abandon(&self) {
        self.set_ending(true);
        self.0.is_abandoned.store(true, Ordering::Relaxed);
        self.0.abandoned.notify_waiters();
    }

    /// Returns whether all drop their handles.
    pub fn is_abandoned(&self) -> bool {
        self.0.is_abandoned.load(Ordering::Relaxed)
    }

    /// Waits until all drop their handles.
    pub async fn abandoned(&self) {
        let told = self.0.abandoned.notified();
        if !self.is_abandoned() {
            told.await;
        }
    }
}

impl Clients {
    /// Begins the life of another client of this number.
    pub fn begin(&self, number: usize) -> Life {
        let mut inner = self.lock();
        let lives = inner.lives.entry(number).or_default();
        *lives += 1;
        Life::new(*lives - 1)
    }

    /// Adds the client of this number, or puts it in the place of the one that has the number.
    pub fn put(&self, number: usize, client: Client, life: Life) {
        // The old handle may be the last one, whose drop does more than that of others.
        let old = self.lock().slots.insert(number, (client, life));
        drop(old);
    }

    /// Returns the client of this number.
    pub fn get(&self, number: usize) -> Option<(Client, Life)> {
        self.lock().slots.get(&number).cloned()
    }

    /// Returns all clients that work, by their numbers.
    pub fn all(&self) -> BTreeMap<usize, (Client, Life)> {
        self.lock().slots.clone()
    }

    /// Drops the handles of all clients.
    pub fn clear(&self) {
        let slots = std::mem::take(&mut self.lock().slots);
        slots.values().for_each(|(_, life)| life.drop_queue());
        drop(slots);
    }

    /// The last handle of the client with this session is dropped while nothing goes wrong.
    pub fn abandon(&self, session: SessionId) {
        self.lock().abandoned.insert(session);
    }

    /// Returns the sessions of clients without handles. Some trouble may keep them from ending.
    pub fn abandoned(&self, is_calm: bool) -> BTreeSet<SessionId> {
        let mut inner = self.lock();
        if !is_calm {
            inner.abandoned.clear();
        }
        inner.abandoned.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
