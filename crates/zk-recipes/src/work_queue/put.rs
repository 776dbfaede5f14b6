//! Putting items: the call that callers await, and what follows it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tracing::{Instrument as _, Span, debug, debug_span, warn};
use zk_session::recipe::{Abridged, Notice, Session};
use zk_session::{ConfigError, OptionDefect, Time};

use super::core::Core;
use super::error::WorkQueueError;
use super::layout::BATCH_MAX;
use super::machine::put::{NotPut, PutMachine};
use super::sweep;
use crate::engine::attended::{Attended, Duty};
use crate::engine::call::Call;
use crate::engine::drive::{Caller, drive, reserve};
use crate::engine::feed::Feed;
use crate::engine::notice::is_among_first;
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
    let slot = reserve(&core.client, &core.layout.directory, deadline).await?;
    let (bound, count) = (core.bound(id), items.len());
    let machine = PutMachine::new(Arc::clone(&core.layout), id, items, priority, bound);
    let span = debug_span!("put", directory = %Abridged(&core.layout.directory), id = format!("{id:032x}"));
    let duty = Clearing { core: Arc::clone(&core), id, span };
    let mut put = Attended::with(&core.client, slot, machine, duty);
    let put = put.run_to_end(deadline).await?;
    if bound.is_some() && matches!(put, Ok(()) | Err(NotPut::Full(_))) {
        core.is_full.store(put.is_err(), Ordering::Relaxed);
    }
    if put.is_ok() {
        core.counters.put(count);
    }
    put.map_err(|not_put| match not_put {
        NotPut::Failed(failure) => RecipeError::of(failure).into(),
        NotPut::Exhausted => {
            WorkQueueError::QueueExhausted { directory: core.layout.entries.to_string() }
        }
        NotPut::Full(length) => WorkQueueError::Full {
            directory: core.layout.directory.to_string(),
            length,
            limit: bound.map_or(0, |bound| bound.items),
        },
        NotPut::Unknown => WorkQueueError::Unknown { item: core.layout.entries.to_string() },
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

/// What the janitor does with a put that has ended or was dropped: it deletes the marker and, from
/// time to time, the markers that other clients have left.
struct Clearing {
    core: Arc<Core>,
    id: u128,
    span: Span,
}

impl Duty<PutMachine> for Clearing {
    fn perform(
        self,
        mut feed: Feed,
        machine: PutMachine,
    ) -> impl Future<Output = ()> + Send + 'static {
        let Self { core, id, span } = self;
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
                if is_among_first(Notice::Refused, feed.lane.count_notice(Notice::Refused)) {
                    warn!(?not_put, "the marker of a put could not be deleted");
                } else {
                    debug!(?not_put, "the marker of a put could not be deleted");
                }
            }
            if let (Some((core, _)), Some(own)) = (sweeper, own) {
                match sweep::sweep(&core.client, &core.layout, id, &own).await {
                    Ok(0) => {}
                    Ok(deleted) => debug!(deleted, "markers of puts whose clients have ended"),
                    Err(error) => debug!(%error, "the markers of puts were not swept"),
                }
            }
        };
        duty.instrument(span)
    }
}
