//! Putting items: the future that callers await, and what follows it.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tracing::{Instrument as _, Span, debug, debug_span, warn};
use zk_session::recipe::{Session, Slot};
use zk_session::{ConfigError, OptionDefect};

use super::core::Core;
use super::error::WorkQueueError;
use super::layout::BATCH_MAX;
use super::machine::put::{NotPut, PutMachine};
use super::sweep;
use crate::engine::drive::{Caller, drive};
use crate::engine::feed::Feed;
use crate::error::RecipeError;
use crate::machine::Repeating;

/// The priority of an item if none is set.
const PRIORITY: u16 = 100;
/// The worst priority.
const PRIORITY_MAX: u16 = 999;

/// A pending put: set options, then `.await` it.
///
/// After a **connection loss**, requests are replayed: the items are put exactly once, even if the
/// session expires in between. Without a connection, the future waits for one; combine it with a
/// timer to limit the wait.
///
/// **Cancellation.** Dropping the future puts the items once or not at all. After the drop, no
/// request that would put them is sent any more; a request that was sent before may be applied. The
/// janitor of the session removes what the put needs on the servers.
///
/// # Errors
///
/// [`WorkQueueError::Full`] if the queue has as many items as its
/// [limit](crate::WorkQueueBuilder::limit) allows.
/// [`WorkQueueError::QueueExhausted`] if the sequence counter of the items has reached its end.
/// [`WorkQueueError::Unknown`] if servers keep failing. A [`RecipeError`] if a server refuses the
/// items, if they are too large for a request, if there are more than 128 of them, or if the
/// priority is greater than 999: in these cases, nothing was put. After
/// [`RecipeError::Closed`] and [`RecipeError::AuthFailed`], the items may have been put.
#[must_use = "nothing is put until this is awaited"]
pub struct Put {
    core: Arc<Core>,
    items: Vec<Bytes>,
    priority: u16,
}

impl Put {
    pub(crate) fn new(core: &Arc<Core>, items: Vec<Bytes>) -> Self {
        Self { core: Arc::clone(core), items, priority: PRIORITY }
    }

    /// Sets the priority of the items, from 0, which is the best, to 999. Default: 100.
    pub fn priority(mut self, priority: u16) -> Self {
        self.priority = priority;
        self
    }

    async fn run(self) -> Result<(), WorkQueueError> {
        self.check()?;
        if self.items.is_empty() {
            return Ok(());
        }
        let Self { core, items, priority } = self;
        let session = Session::of(&core.client);
        let id = session.unique_id();
        let slot = session.reserve_slot(&core.layout.directory).await;
        let bound = core.bound(id);
        let machine = PutMachine::new(Arc::clone(&core.layout), id, items, priority, bound);
        let span =
            debug_span!("put", directory = %core.layout.directory, id = format!("{id:032x}"));
        let feed = Feed::new(session.lane());
        let machine = Repeating::new(machine);
        let parts = PutParts { machine, feed, slot, core: Arc::clone(&core), id };
        let mut running = RunningPut { parts: Some(parts), span };
        let put = running.run().await;
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

    fn check(&self) -> Result<(), WorkQueueError> {
        let invalid = |option, value: String, defect| {
            let defect = OptionDefect::Other(defect);
            Err(RecipeError::Config(ConfigError::Option { option, value, defect }).into())
        };
        if self.priority > PRIORITY_MAX {
            let value = self.priority.to_string();
            return invalid("priority of the item", value, "it must be at most 999");
        }
        if self.items.len() > BATCH_MAX {
            let value = self.items.len().to_string();
            return invalid("items of the batch", value, "there must be at most 128");
        }
        Ok(())
    }
}

impl IntoFuture for Put {
    type Output = Result<(), WorkQueueError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for Put {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Put")
            .field("directory", &self.core.layout.directory)
            .field("items", &self.items.len())
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
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
    async fn run(&mut self) -> Result<(), Interruption> {
        let PutParts { machine, feed, .. } = self.parts.as_mut().expect("it was not dropped");
        match drive(feed, machine, &mut Caller { deadline: None }).await {
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
