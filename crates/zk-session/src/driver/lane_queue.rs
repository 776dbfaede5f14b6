//! The queue from the session's task to a lane.
//!
//! It differs from a channel in two ways. First, an empty queue has no buffer: the lane of a waiter
//! receives nothing for nearly all of its life, and some clients have ten thousand waiters. Second,
//! its length is bounded although its sender never waits: the queue of a lane that is not polled
//! receives one reply for each of the lane's flights, one event for each of its watches, and
//! between any two of these at most two changes of each kind (see [`Queue::push`]).

use std::collections::VecDeque;
use std::fmt;
use std::mem::discriminant;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use tokio::task::coop;

use super::lane_event::LaneEvent;
use crate::machine::Change;

/// The lane's end of the queue. Events sent after this end is dropped are discarded.
pub(crate) struct LaneReceiver(Arc<Mutex<Queue>>);

/// The task's end of the queue. When it is dropped, the receiver gets [`LaneEvent::Stopped`] after
/// all other events.
pub(crate) struct LaneSender(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    events: VecDeque<LaneEvent>,
    reader: Option<Waker>,
    /// The newest need for the lease that the task knows of, and whether there was a lease then.
    kept_need: (u32, bool),
    /// One of the ends was dropped.
    is_closed: bool,
}

/// Creates an open queue.
pub(crate) fn lane_queue() -> (LaneSender, LaneReceiver) {
    let queue = Arc::<Mutex<Queue>>::default();
    (LaneSender(Arc::clone(&queue)), LaneReceiver(queue))
}

impl LaneReceiver {
    /// Takes the next event, or registers the task to be woken when one arrives. This call is
    /// subject to tokio's cooperative budget.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<LaneEvent> {
        let coop = ready!(coop::poll_proceed(cx));
        let mut queue = lock(&self.0);
        if let Some(event) = queue.take() {
            coop.made_progress();
            return Poll::Ready(event);
        }
        match &mut queue.reader {
            Some(reader) => reader.clone_from(cx.waker()),
            reader @ None => *reader = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Takes the next event if there is one.
    pub(crate) fn try_next(&self) -> Option<LaneEvent> {
        lock(&self.0).take()
    }

    /// Returns a view of this need for the lease.
    pub(crate) fn need(&self, number: u32) -> LeaseNeed {
        LeaseNeed { queue: Arc::clone(&self.0), number }
    }
}

/// One period in which a lane needs the lease. It can say whether the session's task knows of it.
///
/// Until the task does, it may still discard what is left of an old lease. So
/// a status that was published before that says nothing about the lease of this lane.
#[derive(Clone)]
pub struct LeaseNeed {
    queue: Arc<Mutex<Queue>>,
    number: u32,
}

impl LeaseNeed {
    /// Returns whether the session's task knows of the need. A status that is read afterwards takes
    /// the need into account.
    pub fn is_kept(&self) -> bool {
        lock(&self.queue).kept_need.0 >= self.number
    }

    /// Returns whether there was a lease when the session's task learned of the need. Returns false
    /// until then.
    pub fn began_leased(&self) -> bool {
        let (newest, is_leased) = lock(&self.queue).kept_need;
        newest == self.number && is_leased
    }
}

impl fmt::Debug for LeaseNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseNeed").field("is_kept", &self.is_kept()).finish()
    }
}

impl LaneSender {
    /// Enqueues an event without waking the reader, which is left to [`wake`](Self::wake).
    pub(crate) fn push(&self, event: LaneEvent) {
        let mut queue = lock(&self.0);
        if !queue.is_closed {
            queue.push(event);
        }
    }

    pub(crate) fn wake(&self) {
        wake(lock(&self.0));
    }

    /// Records that the task knows of this need for the lease, and whether there is a lease.
    pub(crate) fn keep_need(&self, need: u32, is_leased: bool) {
        lock(&self.0).kept_need = (need, is_leased);
    }
}

impl Queue {
    /// Enqueues an event. A change replaces an earlier one of its kind if only changes are between
    /// them, because a reader of both learns nothing from the first.
    ///
    /// The first end of a session is kept, because it may be the end of the session that the reader
    /// depends on. The reader learns of later sessions from replies only, and no change is moved
    /// past a reply.
    fn push(&mut self, event: LaneEvent) {
        if let LaneEvent::Change(new) = event {
            let changes = self.events.iter().rev().map_while(|event| match event {
                LaneEvent::Change(change) => Some(change),
                LaneEvent::Alarm
                | LaneEvent::Reply { .. }
                | LaneEvent::Stopped
                | LaneEvent::Watch { .. } => None,
            });
            let is_same = |change: &Change| discriminant(change) == discriminant(&new);
            let kept = usize::from(matches!(new, Change::Ended { .. }));
            let same: Vec<_> = changes.enumerate().filter(|(_, change)| is_same(change)).collect();
            if same.len() > kept
                && let Some((from_end, _)) = same.first()
            {
                let at = self.events.len() - 1 - from_end;
                self.events.remove(at);
            }
        }
        self.events.push_back(event);
    }

    fn take(&mut self) -> Option<LaneEvent> {
        let event = self.events.pop_front();
        if self.events.is_empty() {
            // Frees the buffer.
            self.events = VecDeque::new();
        }
        event.or_else(|| self.is_closed.then_some(LaneEvent::Stopped))
    }
}

impl Drop for LaneReceiver {
    fn drop(&mut self) {
        // The sender lives until the session's task has processed the end of the lane. The queued
        // events and the reader's waker need not live that long.
        let queue =
            std::mem::replace(&mut *lock(&self.0), Queue { is_closed: true, ..Queue::default() });
        drop(queue);
    }
}

impl Drop for LaneSender {
    fn drop(&mut self) {
        let mut queue = lock(&self.0);
        queue.is_closed = true;
        wake(queue);
    }
}

/// Wakes the reader after releasing the lock, because a waker may run any code.
fn wake(mut queue: MutexGuard<'_, Queue>) {
    let reader = queue.reader.take();
    drop(queue);
    if let Some(reader) = reader {
        reader.wake();
    }
}

/// Locks the queue. Poisoning can be ignored, because no code that holds the lock panics halfway
/// through a change.
fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::machine::{EndCause, WatchNumber};
    use crate::types::SessionId;

    /// Counts how often a reader was woken.
    #[derive(Default)]
    pub(in crate::driver) struct Count(pub(in crate::driver) AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    const EVENT: LaneEvent = LaneEvent::Change(Change::Closing);

    #[test]
    fn events_come_in_their_order_and_the_end_comes_last() {
        let (sender, receiver) = lane_queue();
        assert_eq!(receiver.try_next(), None);
        sender.push(EVENT);
        sender.push(LaneEvent::Change(Change::AuthFailed));
        drop(sender);
        assert_eq!(receiver.try_next(), Some(EVENT));
        assert_eq!(receiver.try_next(), Some(LaneEvent::Change(Change::AuthFailed)));
        assert_eq!(receiver.try_next(), Some(LaneEvent::Stopped));
        assert_eq!(receiver.try_next(), Some(LaneEvent::Stopped));
    }

    #[test]
    fn the_newest_reader_is_woken_by_an_event_and_by_the_end() {
        let (sender, receiver) = lane_queue();
        let first = Arc::<Count>::default();
        let second = Arc::<Count>::default();
        for reader in [&first, &second] {
            let waker = Waker::from(Arc::clone(reader));
            assert!(receiver.poll_next(&mut Context::from_waker(&waker)).is_pending());
        }
        sender.push(EVENT);
        sender.push(LaneEvent::Alarm);
        sender.wake();
        let waker = Waker::from(Arc::clone(&second));
        let mut cx = Context::from_waker(&waker);
        for event in [EVENT, LaneEvent::Alarm] {
            assert_eq!(receiver.poll_next(&mut cx), Poll::Ready(event));
        }
        assert!(receiver.poll_next(&mut cx).is_pending());
        drop(sender);
        let woken = |reader: &Count| reader.0.load(Ordering::Relaxed);
        assert_eq!((woken(&first), woken(&second)), (0, 2));
        assert_eq!(receiver.poll_next(&mut cx), Poll::Ready(LaneEvent::Stopped));
    }

    #[test]
    fn an_empty_inbox_has_no_buffer_and_an_abandoned_one_keeps_no_reader() {
        let (sender, receiver) = lane_queue();
        sender.push(EVENT);
        assert_eq!(receiver.try_next(), Some(EVENT));
        assert_eq!(lock(&receiver.0).events.capacity(), 0);
        let reader = Arc::<Count>::default();
        let waker = Waker::from(Arc::clone(&reader));
        assert!(receiver.poll_next(&mut Context::from_waker(&waker)).is_pending());
        drop((receiver, waker));
        assert_eq!(Arc::strong_count(&reader), 1);
        sender.push(EVENT);
        assert!(lock(&sender.0).events.is_empty());
    }

    fn changes(receiver: &LaneReceiver) -> Vec<Change> {
        std::iter::from_fn(|| receiver.try_next())
            .filter_map(|event| match event {
                LaneEvent::Change(change) => Some(change),
                LaneEvent::Alarm
                | LaneEvent::Reply { .. }
                | LaneEvent::Stopped
                | LaneEvent::Watch { .. } => None,
            })
            .collect()
    }

    #[test]
    fn an_inbox_that_nobody_reads_does_not_grow_with_reconnects_and_sessions() {
        let (sender, receiver) = lane_queue();
        let (mut connection, first) = (0, SessionId(1));
        for n in 1..=1000 {
            let session = SessionId(n);
            for _ in 0..10 {
                connection += 1;
                sender.push(LaneEvent::Change(Change::Suspended { session }));
                sender.push(LaneEvent::Change(Change::Lapsed { session }));
                let resumed = true;
                let connected = Change::Connected { session, connection, resumed };
                sender.push(LaneEvent::Change(connected));
            }
            sender.push(LaneEvent::Change(Change::Ended { session, cause: EndCause::Expired }));
        }
        let cause = EndCause::Expired;
        let session = SessionId(1000);
        assert_eq!(
            changes(&receiver),
            [
                Change::Ended { session: first, cause },
                Change::Suspended { session },
                Change::Lapsed { session },
                Change::Connected { session, connection, resumed: true },
                Change::Ended { session, cause },
            ]
        );
    }

    #[test]
    fn no_change_is_moved_over_an_event_of_another_kind() {
        let (sender, receiver) = lane_queue();
        let session = SessionId(7);
        let suspended = LaneEvent::Change(Change::Suspended { session });
        let kind = jute_codec::EventType::NODE_DELETED;
        let watch = LaneEvent::Watch { number: WatchNumber::FIRST, kind };
        for event in [&suspended, &suspended, &watch, &suspended, &suspended, &LaneEvent::Alarm] {
            sender.push(event.clone());
        }
        let arrived: Vec<_> = std::iter::from_fn(|| receiver.try_next()).collect();
        assert_eq!(arrived, [suspended.clone(), watch, suspended, LaneEvent::Alarm]);
    }
}
