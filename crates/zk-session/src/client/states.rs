//! The stream of a session's states.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use crate::driver::latest::Reader;
use crate::machine::Status;

/// A stream of snapshots of the session; see
/// [`Client::states`](crate::Client::states).
///
/// As a [`Stream`], it yields what [`next`](Self::next) returns. Both may alternate.
pub struct StateStream {
    status: Reader<Status>,
    /// Wakes the task that has polled the stream last.
    change: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl StateStream {
    pub(super) fn new(status: &Reader<Status>) -> Self {
        Self { status: status.clone(), change: None }
    }

    /// Waits for the next change. Returns `None` after the client has stopped and its last state
    /// has been returned. Cancel safe.
    pub async fn next(&mut self) -> Option<Status> {
        self.status.changed().await.ok()?;
        Some(*self.status.borrow_and_update())
    }

    /// Returns the newest snapshot. [`next`](Self::next) does not return it again.
    pub fn current(&mut self) -> Status {
        *self.status.borrow_and_update()
    }
}

impl Stream for StateStream {
    type Item = Status;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Status>> {
        loop {
            if let Poll::Ready(status) = pin!(self.next()).poll(cx) {
                return Poll::Ready(status);
            }
            // A future that is dropped wakes nobody.
            let mut reader = self.status.clone();
            let change = self
                .change
                .get_or_insert_with(|| Box::pin(async move { drop(reader.changed().await) }));
            ready!(change.as_mut().poll(cx));
            self.change = None;
        }
    }
}

impl Clone for StateStream {
    fn clone(&self) -> Self {
        Self::new(&self.status)
    }
}

impl fmt::Debug for StateStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateStream").field("newest", &*self.status.borrow()).finish()
    }
}
