//! The queue from the session's task to a watch stream.
//!
//! It is bounded although its sender never waits: if a reader falls behind, its backlog is replaced
//! by one gap, which tells it to read again.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytestring::ByteString;
use tokio::task::coop;

use crate::error::WatchEnded;
use crate::machine::WatchNews;
use crate::types::WatchedEvent;
use crate::watch::item::{GapCause, WatchItem};

/// The reader's end of the queue. News that is sent after this end is dropped is discarded.
pub(crate) struct WatchReceiver(Arc<Mutex<Queue>>);

/// The task's end of the queue. When it is dropped, the stream ends.
pub(crate) struct StreamSender(Arc<Mutex<Queue>>);

struct Queue {
    items: VecDeque<WatchItem>,
    capacity: NonZeroUsize,
    overflows: u64,
    reader: Option<Waker>,
    ended: Option<WatchEnded>,
    is_reader_gone: bool,
}

/// Creates an empty queue for this many items.
pub(crate) fn watch_queue(capacity: NonZeroUsize) -> (StreamSender, WatchReceiver) {
    let queue = Arc::new(Mutex::new(Queue {
        items: VecDeque::new(),
        capacity,
        overflows: 0,
        reader: None,
        ended: None,
        is_reader_gone: false,
    }));
    (StreamSender(Arc::clone(&queue)), WatchReceiver(queue))
}

impl StreamSender {
    /// Enqueues news, and wakes the reader.
    pub(crate) fn push(&self, news: WatchNews) {
        let mut queue = lock(&self.0);
        if queue.is_reader_gone || queue.ended.is_some() {
            return;
        }
        match news {
            WatchNews::Ended(ended) => queue.ended = Some(ended),
            WatchNews::Event(event) => {
                // A path is a slice of the received bytes, and an event that nobody reads would
                // keep all of them in memory.
                let path = ByteString::from(&*event.path);
                queue.push(WatchItem::Event(WatchedEvent { path, ..event }));
            }
            WatchNews::Gap => queue.push(WatchItem::Gap(GapCause::Reconnected)),
            WatchNews::Reset => queue.push(WatchItem::Gap(GapCause::Reset)),
        }
        wake(queue);
    }

    /// Ends the stream after the items in the queue.
    pub(crate) fn end(&self, ended: WatchEnded) {
        self.push(WatchNews::Ended(ended));
    }
}

impl WatchReceiver {
    /// Takes the next item, or registers the task to be woken when one arrives. This call is
    /// subject to tokio's cooperative budget.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Result<WatchItem, WatchEnded>> {
        let coop = ready!(coop::poll_proceed(cx));
        let mut queue = lock(&self.0);
        if let Some(next) = queue.take() {
            coop.made_progress();
            return Poll::Ready(next);
        }
        match &mut queue.reader {
            Some(reader) => reader.clone_from(cx.waker()),
            reader @ None => *reader = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Takes the next item if there is one.
    pub(crate) fn try_next(&self) -> Option<Result<WatchItem, WatchEnded>> {
        lock(&self.0).take()
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.0).items.len()
    }

    pub(crate) fn overflows(&self) -> u64 {
        lock(&self.0).overflows
    }
}

impl Queue {
    fn push(&mut self, item: WatchItem) {
        // A gap says that anything may have changed, so a second one right behind it says nothing.
        let is_repeated = matches!(item, WatchItem::Gap(_))
            && matches!(self.items.back(), Some(WatchItem::Gap(_)));
        if is_repeated {
            return;
        }
        if self.items.len() >= self.capacity.get() {
            self.overflows += 1;
            // Frees the buffer too.
            self.items = VecDeque::from([WatchItem::Gap(GapCause::Overflow)]);
            return;
        }
        self.items.push_back(item);
    }

    fn take(&mut self) -> Option<Result<WatchItem, WatchEnded>> {
        let item = self.items.pop_front();
        if self.items.is_empty() {
            // Frees the buffer.
            self.items = VecDeque::new();
        }
        item.map(Ok).or_else(|| self.ended.map(Err))
    }
}

impl Drop for WatchReceiver {
    fn drop(&mut self) {
        let mut queue = lock(&self.0);
        queue.is_reader_gone = true;
        let dropped = (std::mem::take(&mut queue.items), queue.reader.take());
        drop(queue);
        drop(dropped);
    }
}

impl Drop for StreamSender {
    fn drop(&mut self) {
        self.end(WatchEnded::Closed);
    }
}

/// Wakes the reader after the lock is released.
fn wake(mut queue: MutexGuard<'_, Queue>) {
    let reader = queue.reader.take();
    drop(queue);
    if let Some(reader) = reader {
        reader.wake();
    }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use jute_codec::EventType;

    use super::*;

    fn event(path: &str) -> WatchNews {
        let kind = EventType::NODE_CREATED;
        WatchNews::Event(WatchedEvent { kind, path: path.into(), zxid: None })
    }

    /// Takes everything, as paths and causes of gaps.
    fn taken(receiver: &WatchReceiver) -> Vec<String> {
        let text = |next| match next {
            Ok(WatchItem::Event(event)) => event.path.to_string(),
            Ok(WatchItem::Gap(cause)) => format!("{cause:?}"),
            Err(ended) => format!("{ended:?}"),
        };
        let mut all = Vec::new();
        while let Some(next) = receiver.try_next() {
            let is_end = next.is_err();
            all.push(text(next));
            if is_end {
                break;
            }
        }
        all
    }

    #[test]
    fn a_backlog_over_the_capacity_becomes_one_gap() {
        let (sender, receiver) = watch_queue(NonZeroUsize::new(3).unwrap());
        for path in ["/1", "/2", "/3"] {
            sender.push(event(path));
        }
        assert_eq!(receiver.overflows(), 0);
        sender.push(event("/4"));
        assert_eq!((receiver.overflows(), receiver.len()), (1, 1));
        sender.push(event("/5"));
        sender.push(event("/6"));
        assert_eq!(taken(&receiver), ["Overflow", "/5", "/6"]);
        for number in 0..100 {
            sender.push(event(&format!("/{number}")));
            assert!(receiver.len() <= 3);
        }
        sender.push(event("/last"));
        assert_eq!(taken(&receiver).last().map(String::as_str), Some("/last"));
    }

    #[test]
    fn gaps_in_a_row_are_one_and_the_end_is_repeated() {
        let (sender, receiver) = watch_queue(NonZeroUsize::MIN);
        sender.push(WatchNews::Gap);
        sender.push(WatchNews::Gap);
        assert_eq!((receiver.len(), receiver.overflows()), (1, 0));
        sender.end(WatchEnded::SessionExpired);
        sender.push(event("/late"));
        drop(sender);
        let end = WatchEnded::SessionExpired.to_string();
        assert_eq!(taken(&receiver), ["Reconnected", &*end]);
        assert_eq!(taken(&receiver), [end]);
    }
}
