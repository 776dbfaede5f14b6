//! Waiting for several futures in one task.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// Runs futures at the same time, and returns their outputs in their order.
///
/// Each wake-up polls all futures that have not completed, so this is for few futures.
pub(crate) async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut pending: Vec<_> = futures.map(|future| Joined::Pending(Box::pin(future))).collect();
    poll_fn(|cx| {
        let mut are_done = true;
        for joined in &mut pending {
            if let Joined::Pending(future) = joined {
                match future.as_mut().poll(cx) {
                    Poll::Ready(output) => *joined = Joined::Done(output),
                    Poll::Pending => are_done = false,
                }
            }
        }
        if are_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    let output = |joined| match joined {
        Joined::Done(output) => output,
        Joined::Pending(_) => unreachable!("all futures have completed"),
    };
    pending.into_iter().map(output).collect()
}

enum Joined<F: Future> {
    Pending(Pin<Box<F>>),
    Done(F::Output),
}
