//! What the tasks beside that of a session share: they end with the session, and have pauses that
//! depend on its state.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::latest::Reader;
use crate::machine::{SessionState, Status};

/// Pause between two look-ups while the client is connected.
const CALM: Duration = Duration::from_secs(60);
/// Pause between two look-ups while it is not. The old list may have no server left.
const URGENT: Duration = Duration::from_secs(5);

/// Watches a session from a task beside it.
pub(super) struct Beside {
    status: Reader<Status>,
}

impl Beside {
    pub(super) fn new(status: Reader<Status>) -> Self {
        Self { status }
    }

    /// Returns whether the client has stopped.
    pub(super) fn is_stopped(&self) -> bool {
        self.status.borrow().state.is_final()
    }

    /// Returns whether a server serves the client.
    pub(super) fn is_connected(&self) -> bool {
        let state = self.status.borrow().state;
        matches!(state, SessionState::Connected | SessionState::ConnectedReadOnly)
    }

    /// Waits for a future. Returns `None` as soon as the client has stopped.
    pub(super) async fn unless_stopped<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        let mut stopped = pin!(self.status.wait_for(|status| status.state.is_final()));
        let ended = poll_fn(|cx| match stopped.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => future.as_mut().poll(cx).map(Some),
        });
        ended.await
    }

    /// Waits until the next look-up is due. Returns false when the client has stopped.
    pub(super) async fn pause(&mut self) -> bool {
        let begun = Instant::now();
        loop {
            let state = self.status.borrow_and_update().state;
            let pause = match state {
                SessionState::Connected => CALM,
                SessionState::ConnectedReadOnly
                | SessionState::Connecting
                | SessionState::Suspended => URGENT,
                SessionState::AuthFailed | SessionState::Expired | SessionState::Closed => {
                    return false;
                }
            };
            match timeout_at(begun + pause, self.status.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return false,
                Err(_) => return true,
            }
        }
    }
}
