//! A deadline that does not depend on the runtime of the client.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use zk_session::{Client, Time};

use super::watchdog::Watchdog;

/// Runs a future that gives up at this deadline by itself. If the client's runtime is not driven,
/// so that the future does not notice its deadline, ends with `late` instead.
pub(crate) async fn limited<T, E>(
    client: &Client,
    deadline: Option<Time>,
    late: impl FnOnce() -> E,
    future: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let mut future = pin!(future);
    let mut late = Some(late);
    let mut watchdog = Watchdog::default();
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(output);
        }
        if let Some(deadline) = deadline
            && watchdog.poll(cx, client.now(), deadline).is_ready()
            && let Some(late) = late.take()
        {
            return Poll::Ready(Err(late()));
        }
        Poll::Pending
    })
    .await
}
