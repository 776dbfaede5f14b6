//! Streams that callers poll by the trait `Stream`, as loops and combinators of other crates do.

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use super::task::{Called, Task};
use crate::history::{Failure, What};

/// How many followers in worlds with aims use the trait, in percent.
const POLLED_PERCENT: u64 = 50;

/// Returns whether a follower polls its stream by the trait.
pub(super) fn is_polled(task: &Task) -> bool {
    task.aims("a stream that is polled", POLLED_PERCENT)
}

/// Returns the next item of a stream, and waits for ever after its end.
pub(super) async fn next<S: Stream + Unpin>(stream: &mut S) -> S::Item {
    match poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx)).await {
        Some(item) => item,
        None => pending().await,
    }
}

/// Polls a stream once more that has yielded this error, and records whether it goes on although its
/// client has stopped.
pub(super) fn poll_after<S: Stream + Unpin, T>(
    task: &Task,
    name: &'static str,
    called: &Called<T>,
    stream: &mut S,
) {
    let has_ended = matches!(
        called,
        Called::Failed(Failure::Closed | Failure::Lost(_) | Failure::SessionExpired, _)
    );
    if has_ended && !is_over(stream) {
        task.push(What::Endless { stream: name });
    }
}

/// Returns whether a stream says at once that nothing follows.
fn is_over<S: Stream + Unpin>(stream: &mut S) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    matches!(Pin::new(stream).poll_next(&mut cx), Poll::Ready(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream that yields so many items.
    struct Items(u32);

    impl Stream for Items {
        type Item = u32;

        fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<u32>> {
            let items = self.get_mut();
            let item = items.0.checked_sub(1);
            items.0 = item.unwrap_or(0);
            Poll::Ready(item)
        }
    }

    #[test]
    fn a_stream_that_yields_another_item_is_not_over() {
        assert!(is_over(&mut Items(0)));
        assert!(!is_over(&mut Items(1)));
    }
}
