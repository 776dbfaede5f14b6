//! Finding items that can be taken, and leasing them.

use std::sync::Arc;

use jute_codec::{DataReply, ErrorCode, Response};
use zk_session::recipe::Session;
use zk_session::{OpError, Time};

use super::aside::BlockReason;
use super::core::Core;
use super::error::WorkQueueError;
use super::layout::{ItemName, Layout};
use super::leased::Leased;
use super::machine::look::{Found, Look};
use super::stats::METRIC;
use crate::engine::drive::run;
use crate::engine::join::join_all;
use crate::error::RecipeError;
use crate::exclusive::{ExclusiveGuard, ExclusiveLock};
use crate::machine::{FailedAction, ReadAll, child, delete, exists, list, read};

/// Number of items of one list that a taker tries before it lists again.
const TRIES_MAX: usize = 4;
/// Number of items that a taker reads at once to learn which can be delivered.
const PROBES_MAX: usize = 16;

/// Waits until there are items that can be taken.
pub(crate) async fn look_for_available(
    core: &Arc<Core>,
    deadline: Option<Time>,
) -> Result<(Vec<ItemName>, bool), WorkQueueError> {
    loop {
        let (Found { available, due, .. }, has_leases) = look(core, true, deadline).await?;
        if due.is_empty() {
            return Ok((available, has_leases));
        }
        probe(core, &due, deadline).await?;
    }
}

/// Leases the first of these items that can be leased, up to this many.
pub(crate) async fn lease_first(
    core: &Arc<Core>,
    available: &[ItemName],
    items: usize,
    deadline: Option<Time>,
) -> Result<Vec<Leased>, WorkQueueError> {
    let mut available = available.to_vec();
    for _ in 0..TRIES_MAX {
        let chosen: Vec<_> = available.drain(..items.min(available.len())).collect();
        let leasing = chosen.iter().map(|item| lease(core, item, deadline));
        let (mut leased, mut failed) = (Vec::new(), None);
        for result in join_all(leasing).await {
            match result {
                Ok(item) => leased.extend(item),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) if leased.is_empty() => return Err(error),
            _ if !leased.is_empty() => return Ok(leased),
            _ => {}
        }
        if available.is_empty() {
            break;
        }
        // An item that is blocked rarely comes alone.
        if chosen.iter().any(|item| core.is_blocked(item)) {
            pass_over_blocked(core, &mut available, deadline).await?;
        }
    }
    Ok(Vec::new())
}

/// Removes items from the front that cannot be delivered.
async fn pass_over_blocked(
    core: &Arc<Core>,
    available: &mut Vec<ItemName>,
    deadline: Option<Time>,
) -> Result<(), WorkQueueError> {
    while !available.is_empty() {
        let probed: Vec<_> = available.iter().take(PROBES_MAX).cloned().collect();
        probe(core, &probed, deadline).await?;
        available.retain(|item| !core.is_blocked(item));
        if probed.iter().any(|item| !core.is_blocked(item)) {
            break;
        }
    }
    Ok(())
}

/// Reads items, to learn which of them can be delivered.
async fn probe(
    core: &Arc<Core>,
    items: &[ItemName],
    deadline: Option<Time>,
) -> Result<(), WorkQueueError> {
    let reading = items.iter().map(|item| read_item(core, item, deadline));
    join_all(reading).await.into_iter().try_for_each(|read| read.map(|_| ()))
}

/// Takes an item if there is one.
pub(crate) async fn try_take(
    core: &Arc<Core>,
    deadline: Option<Time>,
) -> Result<Option<Leased>, WorkQueueError> {
    match take_now(core, deadline).await? {
        Now::Item(item) => Ok(Some(*item)),
        Now::Blocked(item, reason) => {
            Err(WorkQueueError::Blocked { item: core.layout.item(&item).to_string(), reason })
        }
        Now::Nothing => Ok(None),
    }
}

/// The result of a take that does not wait.
pub(crate) enum Now {
    Item(Box<Leased>),
    /// All items without a lease are passed over, and this one is blocked.
    Blocked(ItemName, BlockReason),
    Nothing,
}

/// Takes an item if there is one. Each failed try means that another taker was faster. After each
/// of them, the next one is chosen at random among twice as many items, so that many takers do not
/// compete for the same items again and again.
pub(crate) async fn take_now(
    core: &Arc<Core>,
    deadline: Option<Time>,
) -> Result<Now, WorkQueueError> {
    let mut width = 1;
    loop {
        let (found, _) = look(core, false, deadline).await?;
        let Found { mut available, due, blocked, .. } = found;
        if !due.is_empty() {
            probe(core, &due, deadline).await?;
            continue;
        }
        if available.is_empty() {
            let blocked = blocked.and_then(|item| {
                let reason = core.aside().reason(&item)?;
                Some(Now::Blocked(item, reason))
            });
            return Ok(blocked.unwrap_or(Now::Nothing));
        }
        for _ in 0..TRIES_MAX.min(available.len()) {
            let choices = u128::try_from(available.len().min(width)).unwrap_or(1);
            let at = usize::try_from(unique_id(core) % choices.max(1)).unwrap_or(0);
            let item = available.remove(at);
            if let Some(leased) = lease(core, &item, deadline).await? {
                return Ok(Now::Item(Box::new(leased)));
            }
            if core.is_blocked(&item) {
                pass_over_blocked(core, &mut available, deadline).await?;
                break;
            }
            width = width.saturating_mul(2);
        }
    }
}

/// Looks for items that can be taken. Also returns whether the directory of the leases exists.
pub(crate) async fn look(
    core: &Arc<Core>,
    may_wait: bool,
    deadline: Option<Time>,
) -> Result<(Found, bool), WorkQueueError> {
    loop {
        let (layout, aside) = (Arc::clone(&core.layout), core.aside().clone());
        let mut look = Look::new(layout, core.listed(), aside, may_wait, unique_id(core));
        let mut found = match run(&core.client, &mut look, deadline).await {
            Err(RecipeError::TooLarge(OpError::ResponseTooLarge { length: bytes, .. })) => {
                let items = core.length(deadline).await?;
                let directory = core.layout.directory.to_string();
                return Err(WorkQueueError::TooLong { directory, items, bytes });
            }
            found => found?,
        };
        let has_leases = look.has_leases();
        for item in &found.gone {
            core.aside().forget(item);
        }
        core.set_listed(look.into_listed());
        // Other takers may have learned of items to pass over while this one was looking.
        let (aside, now) = (core.aside().clone(), core.client.now());
        found.available.retain(|item| !aside.has(item, now));
        if !may_wait || !found.available.is_empty() || !found.due.is_empty() {
            return Ok((found, has_leases));
        }
    }
}

/// Leases an item; `None` if another taker was faster, or the item cannot be delivered.
///
/// The item is read after its lease was created: from then on, no other taker acknowledges it.
async fn lease(
    core: &Arc<Core>,
    item: &ItemName,
    deadline: Option<Time>,
) -> Result<Option<Leased>, WorkQueueError> {
    let layout = &core.layout;
    let lock = ExclusiveLock::builder(&core.client, &layout.lease(item))
        .map_err(RecipeError::Config)?
        .acl(layout.acl.clone())
        .build_as(METRIC)
        .map_err(RecipeError::Config)?;
    let mut acquire = lock.acquire().hold_for(layout.lease_for);
    if let Some(deadline) = deadline {
        acquire = acquire.timeout(deadline.saturating_since(core.client.now()));
    }
    let Some(guard) = acquire.without_wait().await? else { return Ok(None) };
    if let Some(found) = read_leased(core, item, &guard, deadline).await? {
        return Ok(Some(Leased::new(core, item.clone(), guard, found)));
    }
    // Wait for the end of the lease, because the next list would show it as that of another taker.
    // If a server refuses the release, the client retries it.
    let mut release = guard.release();
    if let Some(deadline) = deadline {
        release = release.timeout(deadline.saturating_since(core.client.now()));
    }
    let _ = release.await;
    Ok(None)
}

/// Reads an item that was leased, and deletes the pins of earlier takers. Returns `None` if it cannot
/// be delivered.
async fn read_leased(
    core: &Arc<Core>,
    item: &ItemName,
    lease: &ExclusiveGuard,
    deadline: Option<Time>,
) -> Result<Option<DataReply>, WorkQueueError> {
    let Some((found, pins)) = read_item(core, item, deadline).await? else { return Ok(None) };
    // The item that was listed may be gone, and this one was put after the lease was created: the
    // token of the lease would be lower than those of leases that others had since.
    if found.stat.czxid.0 > lease.fencing_token().get() {
        return Ok(None);
    }
    if !pins.is_empty() && !unpin(core, item, &pins, deadline).await? {
        return Ok(None);
    }
    Ok(Some(found))
}

/// Reads an item and, if it has children, lists its pins. Returns `None` if the item is gone or cannot
/// be delivered, which the queue then remembers.
async fn read_item(
    core: &Arc<Core>,
    item: &ItemName,
    deadline: Option<Time>,
) -> Result<Option<(DataReply, Vec<String>)>, WorkQueueError> {
    let path = core.layout.item(item);
    let mut reading = ReadAll::new(vec![read(path.clone(), None)], FailedAction::Read, &path);
    let found = match run(&core.client, &mut reading, deadline).await {
        Ok(mut found) => found.pop().flatten(),
        Err(RecipeError::Refused { code: ErrorCode::NO_AUTH, .. }) => {
            core.block(item, BlockReason::NotPermitted);
            return Ok(None);
        }
        Err(RecipeError::TooLarge(OpError::ResponseTooLarge { .. })) => {
            core.block(item, BlockReason::TooLarge);
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let Some(Response::GetData(found)) = found else {
        core.forget(item);
        return Ok(None);
    };
    let children = match found.stat.num_children {
        0 => Some(Vec::new()),
        _ => list_children(core, item, deadline).await?,
    };
    // An acknowledgement of an earlier taker was faster: its pin was one of the children.
    let Some(children) = children else {
        core.forget(item);
        return Ok(None);
    };
    // An acknowledgement would be refused as long as they are there. Znodes with the names of pins that
    // have blocked an item are none, so it stays blocked until they are gone.
    let is_blocked = core.is_blocked(item);
    if children.iter().any(|name| is_blocked || !Layout::is_pin(name)) {
        core.block(item, BlockReason::HasChildren);
        return Ok(None);
    }
    core.aside().forget(item);
    Ok(Some((found, children)))
}

/// Returns the names of the children of an item, or `None` if the item is gone.
async fn list_children(
    core: &Arc<Core>,
    item: &ItemName,
    deadline: Option<Time>,
) -> Result<Option<Vec<String>>, WorkQueueError> {
    let path = core.layout.item(item);
    let mut listing = ReadAll::new(vec![list(&path, None)], FailedAction::List, &path);
    let found = run(&core.client, &mut listing, deadline).await?.pop().flatten();
    let Some(Response::GetChildren(names)) = found else { return Ok(None) };
    Ok(Some(names.into_iter().map(|name| name.to_string()).collect()))
}

/// Deletes the pins of earlier takers from an item that this client has leased. Returns false if the
/// item is gone or cannot be delivered, which the queue then remembers.
///
/// If somebody has deleted the lease of an earlier taker by hand, its acknowledgement may be on its
/// way, and would take the new lease, which has the same name, for its own. Without its pin, it is
/// refused. A pin that it creates after this one has read the item comes too late: the acknowledgement
/// reads the lease behind it.
async fn unpin(
    core: &Arc<Core>,
    item: &ItemName,
    pins: &[String],
    deadline: Option<Time>,
) -> Result<bool, WorkQueueError> {
    let path = core.layout.item(item);
    let pins = pins.iter().map(|pin| delete(child(&path, pin)));
    // The acknowledgement may have been faster.
    let operations = pins.chain([exists(path.clone())]).collect();
    let mut deleting = ReadAll::new(operations, FailedAction::Delete, &path);
    match run(&core.client, &mut deleting, deadline).await {
        Ok(found) => {
            let exists = found.last().is_some_and(Option::is_some);
            if !exists {
                core.forget(item);
            }
            return Ok(exists);
        }
        // It has the name of a pin, and children: it is none.
        Err(RecipeError::Refused { code: ErrorCode::NOT_EMPTY, .. }) => {
            core.block(item, BlockReason::HasChildren);
        }
        Err(RecipeError::Refused { code: ErrorCode::NO_AUTH, .. }) => {
            core.block(item, BlockReason::NotPermitted);
        }
        Err(error) => return Err(error.into()),
    }
    Ok(false)
}

pub(crate) fn unique_id(core: &Core) -> u128 {
    Session::of(&core.client).unique_id()
}
