//! The queue from the task to a lane.
//!
//! It differs from a channel in two ways. An empty inbox has no buffer: a lock's waiter has a lane
//! in which nothing arrives for nearly all of its life, and there are clients with ten thousand
//! waiters. And its length is bounded although its sender never waits: a lane whose reader is not
//! polled gets one reply for each of its flights and one event for each of its watches, and between
//! two of these at most two changes of a kind (see [`Queue::push`]).

use std::collections::VecDeque;
use std::mem::discriminant;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use tokio::task::coop;

use super::shared::LaneEvent;
use crate::machine::Change;

/// The reader's end. Events sent after it is dropped are discarded.
#[derive(Debug)]
pub(crate) struct Inbox(Arc<Mutex<Queue>>);

/// The task's end. Dropping it is the last thing that the reader hears of.
#[derive(Debug)]
pub(crate) struct Teller(Arc<Mutex<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<LaneEvent>,
    reader: Option<Waker>,
    /// One of the ends is gone.
    is_closed: bool,
}

impl Inbox {
    pub(crate) fn open() -> (Teller, Self) {
        let queue = Arc::<Mutex<Queue>>::default();
        (Teller(Arc::clone(&queue)), Self(queue))
    }

    /// Takes the next event, or has the task woken when it is there. Subject to tokio's
    /// cooperative budget.
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

    /// Takes the next event, if it is there.
    pub(crate) fn try_next(&self) -> Option<LaneEvent> {
        lock(&self.0).take()
    }
}

impl Teller {
    /// Enqueues an event, and leaves it to [`wake`](Self::wake) to have it read.
    pub(crate) fn push(&self, event: LaneEvent) {
        let mut queue = lock(&self.0);
        if !queue.is_closed {
            queue.push(event);
        }
    }

    pub(crate) fn wake(&self) {
        wake(lock(&self.0));
    }
}

impl Queue {
    /// Enqueues an event. A change replaces one of its kind that nothing but other changes follows:
    /// whoever reads both only learns the same thing twice. The first end of a session stays, since
    /// it may be the end of the session that the reader depends on; what the reader knows of later
    /// sessions it has from replies, and no change is moved over a reply.
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
                && let Some((behind, _)) = same.first()
            {
                let at = self.events.len() - 1 - behind;
                self.events.remove(at);
            }
        }
        self.events.push_back(event);
    }

    fn take(&mut self) -> Option<LaneEvent> {
        let event = self.events.pop_front();
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
        event.or_else(|| self.is_closed.then_some(LaneEvent::Stopped))
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        // The other end lives until the task has heard of it. Neither events nor the reader's task
        // have to live as long.
        let queue =
            std::mem::replace(&mut *lock(&self.0), Queue { is_closed: true, ..Queue::default() });
        drop(queue);
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        let mut queue = lock(&self.0);
        queue.is_closed = true;
        wake(queue);
    }
}

/// Not under the lock, because a waker may run anything.
fn wake(mut queue: MutexGuard<'_, Queue>) {
    let reader = queue.reader.take();
    drop(queue);
    if let Some(reader) = reader {
        reader.wake();
    }
}

/// Nothing under the lock can panic halfway.
fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::machine::EndCause;
    use crate::types::{SessionId, WatchedEvent};

    /// How often a reader was woken.
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
        let (teller, inbox) = Inbox::open();
        assert_eq!(inbox.try_next(), None);
        teller.push(EVENT);
        teller.push(LaneEvent::Change(Change::AuthFailed));
        drop(teller);
        assert_eq!(inbox.try_next(), Some(EVENT));
        assert_eq!(inbox.try_next(), Some(LaneEvent::Change(Change::AuthFailed)));
        assert_eq!(inbox.try_next(), Some(LaneEvent::Stopped));
        assert_eq!(inbox.try_next(), Some(LaneEvent::Stopped));
    }

    #[test]
    fn the_newest_reader_is_woken_by_an_event_and_by_the_end() {
        let (teller, inbox) = Inbox::open();
        let (first, second) = (Arc::<Count>::default(), Arc::<Count>::default());
        for reader in [&first, &second] {
            let waker = Waker::from(Arc::clone(reader));
            assert!(inbox.poll_next(&mut Context::from_waker(&waker)).is_pending());
        }
        teller.push(EVENT);
        teller.push(LaneEvent::Alarm);
        teller.wake();
        let waker = Waker::from(Arc::clone(&second));
        let mut cx = Context::from_waker(&waker);
        for event in [EVENT, LaneEvent::Alarm] {
            assert_eq!(inbox.poll_next(&mut cx), Poll::Ready(event));
        }
        assert!(inbox.poll_next(&mut cx).is_pending());
        drop(teller);
        let woken = |reader: &Count| reader.0.load(Ordering::Relaxed);
        assert_eq!((woken(&first), woken(&second)), (0, 2));
        assert_eq!(inbox.poll_next(&mut cx), Poll::Ready(LaneEvent::Stopped));
    }

    #[test]
    fn an_empty_inbox_has_no_buffer_and_an_abandoned_one_keeps_no_reader() {
        let (teller, inbox) = Inbox::open();
        teller.push(EVENT);
        assert_eq!(inbox.try_next(), Some(EVENT));
        assert_eq!(lock(&inbox.0).events.capacity(), 0);
        let reader = Arc::<Count>::default();
        let waker = Waker::from(Arc::clone(&reader));
        assert!(inbox.poll_next(&mut Context::from_waker(&waker)).is_pending());
        drop((inbox, waker));
        assert_eq!(Arc::strong_count(&reader), 1);
        teller.push(EVENT);
        assert!(lock(&teller.0).events.is_empty());
    }

    fn changes(inbox: &Inbox) -> Vec<Change> {
        std::iter::from_fn(|| inbox.try_next())
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
        let (teller, inbox) = Inbox::open();
        let (mut connection, first) = (0, SessionId(1));
        for n in 1..=1000 {
            let session = SessionId(n);
            for _ in 0..10 {
                connection += 1;
                teller.push(LaneEvent::Change(Change::Suspended { session }));
                teller.push(LaneEvent::Change(Change::Lapsed { session }));
                let resumed = true;
                let connected = Change::Connected { session, connection, resumed };
                teller.push(LaneEvent::Change(connected));
            }
            teller.push(LaneEvent::Change(Change::Ended { session, cause: EndCause::Expired }));
        }
        let (cause, session) = (EndCause::Expired, SessionId(1000));
        assert_eq!(
            changes(&inbox),
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
        let (teller, inbox) = Inbox::open();
        let session = SessionId(7);
        let suspended = LaneEvent::Change(Change::Suspended { session });
        let kind = jute_codec::EventType::NODE_DELETED;
        let event = WatchedEvent { kind, path: "/a".into() };
        let watch = LaneEvent::Watch { local: 1, event };
        for event in [&suspended, &suspended, &watch, &suspended, &suspended, &LaneEvent::Alarm] {
            teller.push(event.clone());
        }
        let arrived: Vec<_> = std::iter::from_fn(|| inbox.try_next()).collect();
        assert_eq!(arrived, [suspended.clone(), watch, suspended, LaneEvent::Alarm]);
    }
}
