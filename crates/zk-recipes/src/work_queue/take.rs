//! Taking items: the future that callers await.
//!
//! Takers form a queue, which is a fair lock, and the one at its head looks for items. So an item
//! that arrives wakes one taker, however many wait. The lease of an item, not this lock, decides
//! which taker gets the item.

use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use zk_session::{ConfigError, OptionDefect, Time};

use super::core::Core;
use super::error::WorkQueueError;
use super::layout::BATCH_MAX;
use super::leased::Leased;
use super::out_of_turn::take_out_of_turn;
use super::search::{lease_first, look_for_available};
use crate::engine::limited::limited;
use crate::error::RecipeError;
use crate::guard::Guard;

/// A pending take: set options, then `.await` it. It returns a [`Leased`] item.
///
/// After a **connection loss**, requests are replayed, and no error is returned. If the session
/// **expires** while the future waits, it continues in the next session, at the end of the queue of
/// takers. **Cancel safe**: dropping the future at any moment leaves no lease. The janitor of the
/// session removes what is on the servers, and an item that was leased in this moment returns to
/// the queue.
///
/// Poll the future until it completes, or drop it. A taker at the head of the queue of takers that
/// is not polled delays the others, once by a little more than the interval at which they
/// [look for themselves](crate::WorkQueueBuilder::watch_check), and then by about a second.
///
/// Items that cannot be delivered to this client are passed over, and logged; see
/// [`WorkQueue::blocked`](crate::WorkQueue::blocked). If there are no others, the future waits.
///
/// # Errors
///
/// A [`RecipeError`](crate::RecipeError), such as `TimedOut`, `Refused` or `Closed`.
/// [`WorkQueueError::TooLong`] if the queue has more items than this client can list.
/// [`WorkQueueError::Takers`] if the queue of takers contains something else. After any error,
/// nothing is leased.
#[must_use = "nothing is taken until this is awaited"]
pub struct Take {
    core: Arc<Core>,
    deadline: Option<Time>,
}

impl Take {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self { core: Arc::clone(core), deadline: None }
    }

    /// Makes the take give up after this time with
    /// [`RecipeError::TimedOut`](crate::RecipeError::TimedOut). The timeout limits only the wait:
    /// a znode that may be on the servers is removed in the background.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.deadline = Some(self.core.client.now() + timeout);
        self
    }
}

impl IntoFuture for Take {
    type Output = Result<Leased, WorkQueueError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { core, deadline } = self;
        Box::pin(async move {
            let mut items = take_within(&core, 1, deadline).await?;
            Ok(items.pop().expect("a take returns an item"))
        })
    }
}

/// A pending take of several items: set options, then `.await` it. It returns at least one
/// [`Leased`] item, in the order of the queue.
///
/// It waits until the queue has an item, but not until it has as many as the caller takes. The
/// items are leased at the same time, each with a lease of its own: acknowledge each of them.
///
/// What [`Take`] says about connection loss, expiry, cancellation and polling applies here too.
///
/// # Errors
///
/// Those of [`Take`]. [`RecipeError::Config`] if the number of items is 0 or
/// greater than 128. If some of the items could be leased, they are returned, and an error of the
/// others is discarded; the next take meets it again.
#[must_use = "nothing is taken until this is awaited"]
pub struct TakeBatch {
    core: Arc<Core>,
    items: usize,
    deadline: Option<Time>,
}

impl TakeBatch {
    pub(crate) fn new(core: &Arc<Core>, items: usize) -> Self {
        Self { core: Arc::clone(core), items, deadline: None }
    }

    /// Makes the take give up after this time, as [`Take::timeout`] does.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.deadline = Some(self.core.client.now() + timeout);
        self
    }
}

impl IntoFuture for TakeBatch {
    type Output = Result<Vec<Leased>, WorkQueueError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { core, items, deadline } = self;
        Box::pin(async move {
            if !(1..=BATCH_MAX).contains(&items) {
                let defect = OptionDefect::Other("it must be between 1 and 128");
                let (option, value) = ("items of the batch", items.to_string());
                return Err(
                    RecipeError::Config(ConfigError::Option { option, value, defect }).into()
                );
            }
            take_within(&core, items, deadline).await
        })
    }
}

impl fmt::Debug for TakeBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TakeBatch")
            .field("directory", &self.core.layout.directory)
            .field("items", &self.items)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Take {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Take")
            .field("directory", &self.core.layout.directory)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// The end of the wait for a turn.
enum Waited {
    /// The taker is at the head of the queue of takers.
    Turn(Guard),
    /// The taker got an item out of turn.
    Item(Leased),
}

/// Takes up to this many items, and at least one, before the deadline.
async fn take_within(
    core: &Arc<Core>,
    items: usize,
    deadline: Option<Time>,
) -> Result<Vec<Leased>, WorkQueueError> {
    let late = || RecipeError::timed_out().into();
    let path = &core.layout.directory;
    limited(&core.client, path, deadline, late, take(core, items, deadline)).await
}

async fn take(
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
    let mut acquire = core.turn.acquire().beside_own_session();
    if let Some(deadline) = deadline {
        acquire = acquire.timeout(deadline.saturating_since(core.client.now()));
    }
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
