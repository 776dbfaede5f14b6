//! Taking items in turn.
//!
//! Takers form a queue, which is a fair lock, and the one at its head looks for items. So an item
//! that arrives wakes one taker, however many wait. The lease of an item, not this lock, decides
//! which taker gets the item.

use std::future::{Future, IntoFuture as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use zk_session::Time;

use super::core::Core;
use super::error::WorkQueueError;
use super::leased::Leased;
use super::out_of_turn::take_out_of_turn;
use super::search::{lease_first, look_for_available};
use crate::guard::Guard;

/// The end of the wait for a turn.
enum Waited {
    /// The taker is at the head of the queue of takers.
    Turn(Guard),
    /// The taker got an item out of turn.
    Item(Leased),
}

/// Takes up to this many items, and at least one.
pub(crate) async fn take(
    core: &Arc<Core>,
    items: usize,
    deadline: Option<Time>,
) -> Result<Vec<Leased>, WorkQueueError> {
    loop {
        let turn = match wait_for_turn(core, deadline).await? {
            Waited::Turn(turn) => turn,
            Waited::Item(item) => return Ok(vec![item]),
        };
        let (available, has_leases) = tokio::select! {
            biased;
            found = look_for_available(core, deadline) => found?,
            // Another taker is at the head now. If this one continued to look, each expiry of a
            // session would add one that is woken by every item.
            _ = turn.lost() => continue,
        };
        let mut leasing = pin!(lease_first(core, &available, items, deadline));
        let polled = poll_fn(|cx| Poll::Ready(leasing.as_mut().poll(cx))).await;
        // The creates of the leases are on their way. Requests of one session are executed in order,
        // so the next taker gets its turn after the leases were created. If the directory of the
        // leases is missing, these creates fail, and the turn ends after the next ones.
        let turn = (!has_leases).then_some(turn);
        let leased = match polled {
            Poll::Ready(leased) => leased,
            Poll::Pending => leasing.await,
        };
        drop(turn);
        let leased = leased?;
        // Otherwise takers that do not wait for their turn were faster.
        if !leased.is_empty() {
            return Ok(leased);
        }
    }
}

async fn wait_for_turn(core: &Arc<Core>, deadline: Option<Time>) -> Result<Waited, WorkQueueError> {
    let acquire = core.turn.acquire().beside_own_session().until(deadline);
    tokio::select! {
        biased;
        turn = acquire.into_future() => {
            core.stall().end();
            Ok(Waited::Turn(turn?))
        }
        // The taker at the head may have stopped polling its future, and must not strand items.
        item = take_out_of_turn(core, deadline) => Ok(Waited::Item(item?)),
    }
}
