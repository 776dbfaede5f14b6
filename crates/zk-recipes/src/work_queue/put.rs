//! Putting items: the call that callers await, and what follows it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tracing::{Instrument as _, Span, debug, debug_span, warn};
use zk_session::recipe::{Session, Slot};
use zk_session::{ConfigError, OptionDefect, Time};

use super::core::Core;
use super::error::WorkQueueError;
use super::layout::BATCH_MAX;
use super::machine::put::{NotPut, PutMachine};
use super::sweep;
use crate::engine::call::Call;
use crate::engine::drive::{Caller, before, drive};
use crate::engine::feed::Feed;
use crate::error::RecipeError;
use crate::machine::Repeating;

/// The priority of an item if none is set.
const PRIORITY: u16 = 100;
/// The worst priority.
const PRIORITY_MAX: u16 = 999;

/// A pending put into a [`WorkQueue`](crate::WorkQueue): set options, then `.await` it.
pub type Put = Call<(), WorkQueueError, PutOptions>;

/// The options of a [`Put`].
#[derive(Clone, Copy, Debug)]
pub struct PutOptions {
    priority: u16,
}

impl Put {
    pub(super) fn of(core: &Arc<Core>, items: Vec<Bytes>) -> Self {
        let queue = Arc::clone(core);
        let options = PutOptions { priority: PRIORITY };
        Self::with_options(
            &core.client,
            &core.layout.directory,
            options,
            |PutOptions { priority }, deadline| put(queue, items, priority, deadline),
        )
    }

    /// Sets the priority of the items, from 0, which is the best, to 999. Default: 100.
    pub fn priority(mut self, priority: u16) -> Self {
        self.options.priority = priority;
        self
    }
}

async fn put(
    core: Arc<Core>,
    items: Vec<Bytes>,
    priority: u16,
    deadline: Option<Time>,
) -> Result<(), WorkQueueError> {
    check(&items, priority)?;
    if items.is_empty() {
        return Ok(());
    }
    let session = Session::of(&core.client);
    let id = session.unique_id();
    let slot = session.reserve_slot(&core.layout.directory);
    let slot = before(&core.client, deadline, slot).await?;
    let bound = core.bound(id);
    let machine = PutMachine::new(Arc::clone(&core.layout), id, items, priority, bound);
    let span = debug_span!("put", directory = %core.layout.directory, id = format!("{id:032x}"));
    let feed = Feed::new(session.lane());
    let machine = Repeating::new(machine);
    let parts = PutParts { machine, feed, slot, core: Arc::clone(&core), id };
    let mut running = RunningPut { parts: Some(parts), span };
    let put = running.run(deadline).await;
    if let (Some(_), Ok(()) | Err(Interruption::NotPut(NotPut::Full(_)))) = (bound, &put) {
        core.is_full.store(put.is_err(), Ordering::Relaxed);
    }
    put.map_err(|not_put| match not_put {
        Interruption::NotPut(NotPut::Failed(failure)) => RecipeError::of(failure).into(),
        Interruption::NotPut(NotPut::Exhausted) => {
            WorkQueueError::QueueExhausted { directory: core.layout.entries.to_string() }
        }
        Interruption::NotPut(NotPut::Full(length)) => WorkQueueError::Full {
            directory: core.layout.directory.to_string(),
            length,
            limit: bound.map_or(0, |bound| bound.items),
        },
        Interruption::NotPut(NotPut::Unknown) => {
            WorkQueueError::Unknown { item: core.layout.entries.to_string() }
        }
        Interruption::Stopped(error) => error,
    })
}

fn check(items: &[Bytes], priority: u16) -> Result<(), WorkQueueError> {
    let invalid = |option, value: String, defect| {
        let defect = OptionDefect::Other(defect);
        Err(RecipeError::Config(ConfigError::Option { option, value, defect }).into())
    };
    if priority > PRIORITY_MAX {
        let value = priority.to_string();
        return invalid("priority of the item", value, "it must be at most 999");
    }
    if items.len() > BATCH_MAX {
        let value = items.len().to_string();
        return invalid("items of the batch", value, "there must be at most 128");
    }
    Ok(())
}

/// Why a put did not end with success.
enum Interruption {
    NotPut(NotPut),
    Stopped(WorkQueueError),
}

/// A put that may be dropped at any moment, and then hands its marker to the janitor.
struct RunningPut {
    /// `None` after the drop.
    parts: Option<PutParts>,
    span: Span,
}

struct PutParts {
    machine: Repeating<PutMachine>,
    feed: Feed,
    slot: Slot,
    core: Arc<Core>,
    id: u128,
}

impl RunningPut {
    async fn run(&mut self, deadline: Option<Time>) -> Result<(), Interruption> {
        let PutParts { machine, feed, .. } = self.parts.as_mut().expect("it was not dropped");
        match drive(feed, machine, &mut Caller { deadline }).await {
            Ok(put) => put.map_err(Interruption::NotPut),
            Err(interrupted) => Err(Interruption::Stopped(interrupted.into())),
        }
    }
}

impl Drop for RunningPut {
    fn drop(&mut self) {
        let Some(PutParts { machine, mut feed, slot, core, id }) = self.parts.take() else {
            return;
        };
        let mut machine = machine.machine;
        let needs_reply = machine.abandon();
        match feed.pending {
            // If the multi has not been sent yet, there is no need to send it.
            Some(token) if needs_reply => feed.lane.recall(token),
            Some(_) | None => {
                feed.pending = None;
                machine.forget_flight();
            }
        }
        if machine.is_clean() {
            return;
        }
        let sweeps = machine.has_marker() && sweep::is_due(id);
        let sweeper = sweeps.then(|| (core, machine.marker().to_owned()));
        let duty = async move {
            let own = match &sweeper {
                Some((core, marker)) => core.client.exists(marker).await.ok().flatten(),
                None => None,
            };
            let mut machine = Repeating::new(machine);
            if let Ok(Err(not_put)) =
                drive(&mut feed, &mut machine, &mut Caller { deadline: None }).await
            {
                warn!(?not_put, "the marker of a put could not be deleted");
            }
            if let (Some((core, _)), Some(own)) = (sweeper, own) {
                match sweep::sweep(&core.client, &core.layout, id, &own).await {
                    Ok(0) => {}
                    Ok(deleted) => debug!(deleted, "markers of puts whose clients have ended"),
                    Err(error) => debug!(%error, "the markers of puts were not swept"),
                }
            }
        };
        slot.run(duty.instrument(self.span.clone()));
    }
}
