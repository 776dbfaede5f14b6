//! Taking an item although it is not the taker's turn, because the head is stalled.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use jute_codec::{Response, Stat};
use zk_session::Time;

use super::core::Core;
use super::error::WorkQueueError;
use super::layout::ItemName;
use super::leased::Leased;
use super::search::{Now, look, take_now, unique_id};
use super::stall::HASTE;
use crate::engine::drive::{pause, run};
use crate::machine::{FailedAction, ReadAll, exists};

/// Waits until this taker has to take an item out of turn.
pub(crate) async fn take_out_of_turn(
    core: &Arc<Core>,
    deadline: Option<Time>,
) -> Result<Leased, WorkQueueError> {
    let Some(interval) = core.layout.watch_check else { return pending().await };
    let (since, seed) = (core.client.now(), unique_id(core));
    loop {
        let now = core.client.now();
        let at = core.stall().next(interval, since, seed, now);
        if at > now {
            tokio::select! {
                () = core.taken_out_of_turn.notified() => {}
                () = pause(&core.client, at.saturating_since(now)) => {
                    if core.client.now() < at {
                        // The client has stopped, which the wait for the turn reports.
                        return pending().await;
                    }
                    continue;
                }
            }
        }
        core.stall().looked_at = Some(core.client.now());
        if let Some(item) = Box::pin(take_from_stalled(core, interval, deadline)).await? {
            core.stall().taken(core.client.now());
            // There may be more items, and another taker of this queue that waits.
            core.taken_out_of_turn.notify_one();
            return Ok(item);
        }
    }
}

/// Takes an item if the head is stalled.
async fn take_from_stalled(
    core: &Arc<Core>,
    interval: Duration,
    deadline: Option<Time>,
) -> Result<Option<Leased>, WorkQueueError> {
    let Some(first) = first_item(core, deadline).await? else { return Ok(None) };
    if !core.stall().is_stalled(interval, core.client.now()) {
        // A head that is about to take the item has taken it by then.
        pause(&core.client, interval / HASTE).await;
        if first_item(core, deadline).await?.as_ref() != Some(&first) {
            return Ok(None);
        }
    }
    match take_now(core, deadline).await? {
        Now::Item(item) => Ok(Some(*item)),
        Now::Blocked(..) | Now::Nothing => Ok(None),
    }
}

/// Returns the first item that can be taken.
async fn first_item(
    core: &Arc<Core>,
    deadline: Option<Time>,
) -> Result<Option<ItemName>, WorkQueueError> {
    let Some(items) = measure(core, &core.layout.entries, deadline).await? else { return Ok(None) };
    if items.num_children == 0 {
        return Ok(None);
    }
    let leases = measure(core, &core.layout.leases, deadline).await?;
    let last_change = |stat: &Stat| (stat.czxid, stat.pzxid);
    let seen = [Some(last_change(&items)), leases.as_ref().map(last_change)];
    if core.stall().quiet == Some(seen) {
        return Ok(None);
    }
    let (found, _) = look(core, false, deadline).await?;
    // What has changed since the directories were measured is seen with the next look.
    core.stall().quiet = found.is_quiet().then_some(seen);
    Ok(found.available.into_iter().chain(found.due).next())
}

async fn measure(
    core: &Arc<Core>,
    path: &bytestring::ByteString,
    deadline: Option<Time>,
) -> Result<Option<Stat>, WorkQueueError> {
    let mut reading = ReadAll::new(vec![exists(path.clone())], FailedAction::Check, path);
    let measured = run(&core.client, &mut reading, deadline).await?.pop().flatten();
    let Some(Response::Exists(stat)) = measured else { return Ok(None) };
    Ok(Some(stat))
}
