//! A deadline that does not depend on the runtime of the client.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use zk_session::recipe::Session;
use zk_session::{Client, FailureCause, SessionState, Time};

use crate::timed_out::{LastSeen, MayTimeOut, TimedOut};

/// Runs a future that gives up at this deadline by itself. If the client's runtime is not driven,
/// so that the future does not notice its deadline, ends with `late` instead.
///
/// Completes a timeout with the path, the time and the state of the connection.
///
/// The future is borrowed, because an `async fn` that owned it would keep it twice.
pub(crate) async fn limited<T, E: MayTimeOut>(
    client: &Client,
    path: &str,
    deadline: Option<Time>,
    late: impl FnOnce() -> E,
    mut future: Pin<&mut impl Future<Output = Result<T, E>>>,
) -> Result<T, E> {
    let begun = Begun::now(client);
    let mut late = Some(late);
    let mut watchdog = Session::of(client).watchdog();
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(output.map_err(|error| begun.explained(error, client, path)));
        }
        if let Some(deadline) = deadline
            && watchdog.poll(cx, client.now(), deadline).is_ready()
            && let Some(late) = late.take()
        {
            let mut error = late();
            if let Some(timed_out) = error.timed_out_mut() {
                timed_out.seen = LastSeen::RuntimeStopped;
            }
            return Poll::Ready(Err(begun.explained(error, client, path)));
        }
        Poll::Pending
    })
    .await
}

/// The state of the client when a call began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    at: Time,
    /// The number of the newest connection before the call, not including an open one.
    ended_connections: u64,
}

impl Begun {
    pub(crate) fn now(client: &Client) -> Self {
        let status = client.status();
        let is_open = u64::from(status.state == SessionState::Connected);
        Self { at: client.now(), ended_connections: status.connection.saturating_sub(is_open) }
    }

    /// Adds to a timeout what only the caller's side knows. A timeout that an inner call has
    /// completed keeps its path and its time.
    pub(crate) fn explain(self, timed_out: &mut TimedOut, client: &Client, path: &str) {
        if !timed_out.path.is_empty() {
            return;
        }
        path.clone_into(&mut timed_out.path);
        timed_out.waited = client.now().saturating_since(self.at);
        let (status, failure) = (client.status(), client.last_failure());
        let has_stopped =
            failure.as_ref().is_some_and(|it| matches!(it.cause, FailureCause::NotRun(_)));
        if has_stopped {
            timed_out.seen = LastSeen::RuntimeStopped;
        }
        if timed_out.seen != LastSeen::RuntimeStopped && status.state != SessionState::Connected {
            let was_connected = status.connection > self.ended_connections;
            timed_out.seen = if was_connected {
                LastSeen::ConnectionLost(failure)
            } else {
                LastSeen::NeverConnected(failure)
            };
        }
    }

    fn explained<E: MayTimeOut>(self, mut error: E, client: &Client, path: &str) -> E {
        if let Some(timed_out) = error.timed_out_mut() {
            self.explain(timed_out, client, path);
        }
        error
    }
}
