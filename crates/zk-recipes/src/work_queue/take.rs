//! Taking items: the future that callers await.
//!
//! Takers form a queue, which is a fair lock, and the one at its head looks for items. So an item
//! that arrives wakes one taker, however many wait. The lease of an item, not this lock, decides
//! which taker gets the item.

use std::fmt;
use std::future::{Future, IntoFuture, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use jute_codec::Response;
use zk_session::recipe::Session;
use zk_session::{ConfigError, OptionDefect, Time};

use super::core::Core;
use super::error::WorkQueueError;
use super::layout::{BATCH_MAX, ItemName};
use super::leased::Leased;
use super::machine::look::Look;
use crate::engine::drive::{pause, run};
use crate::engine::join::join_all;
use crate::engine::limited::limited;
use crate::error::RecipeError;
use crate::exclusive::ExclusiveLock;
use crate::guard::Guard;
use crate::machine::{FailedAction, ReadAll, read, spread};

/// Number of items of one list that a taker tries before it lists again.
const TRIES_MAX: usize = 4;

/// A pending take: set options, then `.await` it. It returns a [`Leased`] item.
///
/// After a **connection loss**, requests are replayed, and no error is returned. If the session
/// **expires** while the future waits, it continues in the next session, at the end of the queue of
/// takers. **Cancel safe**: dropping the future at any moment leaves no lease. The janitor of the
/// session removes what is on the servers, and an item that was leased in this moment returns to
/// the queue.
///
/// Poll the future until it completes, or drop it. A taker at the head of the queue of takers that
/// is not polled delays the others, by up to the interval of the
/// [check for missed watches](crate::WorkQueueBuilder::watch_check) for each item.
///
/// # Errors
///
/// A [`RecipeError`](crate::RecipeError), such as `TimedOut`, `Refused` or `Closed`.
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
        let Found { available, has_leases } = tokio::select! {
            biased;
            found = look(core, true, deadline) => found?,
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
    let mut acquiring = pin!(acquire.into_future());
    let interval = core.layout.watch_check;
    let interval = interval.map(|interval| spread(interval, unique_id(core)));
    loop {
        let look = async {
            match interval {
                Some(interval) => pause(&core.client, interval).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            turn = &mut acquiring => return Ok(Waited::Turn(turn?)),
            () = look => {}
        }
        // The taker at the head may have stopped polling its future, and must not strand items.
        if let Some(item) = take_now(core, deadline).await? {
            return Ok(Waited::Item(item));
        }
    }
}

/// Leases the first of these items that can be leased, up to this many.
async fn lease_first(
    core: &Arc<Core>,
    available: &[ItemName],
    items: usize,
    deadline: Option<Time>,
) -> Result<Vec<Leased>, WorkQueueError> {
    for items in available.chunks(items).take(TRIES_MAX) {
        let leasing = items.iter().map(|item| lease(core, item, deadline));
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
    }
    Ok(Vec::new())
}

/// Takes an item if there is one.
pub(crate) async fn try_take(core: &Arc<Core>) -> Result<Option<Leased>, WorkQueueError> {
    take_now(core, None).await
}

/// Takes an item if there is one. Each failed try means that another taker was faster. After each
/// of them, the next one is chosen at random among twice as many items, so that many takers do not
/// compete for the same items again and again.
async fn take_now(
    core: &Arc<Core>,
    deadline: Option<Time>,
) -> Result<Option<Leased>, WorkQueueError> {
    let mut width = 1;
    loop {
        let Found { mut available, .. } = look(core, false, deadline).await?;
        if available.is_empty() {
            return Ok(None);
        }
        for _ in 0..TRIES_MAX.min(available.len()) {
            let choices = u128::try_from(available.len().min(width)).unwrap_or(1);
            let at = usize::try_from(unique_id(core) % choices.max(1)).unwrap_or(0);
            let item = available.remove(at);
            if let Some(leased) = lease(core, &item, deadline).await? {
                return Ok(Some(leased));
            }
            width = width.saturating_mul(2);
        }
    }
}

/// What a search has found.
struct Found {
    /// The items without a lease.
    available: Vec<ItemName>,
    /// The directory of the leases exists.
    has_leases: bool,
}

/// Looks for items that can be taken.
async fn look(
    core: &Arc<Core>,
    may_wait: bool,
    deadline: Option<Time>,
) -> Result<Found, WorkQueueError> {
    let layout = Arc::clone(&core.layout);
    let mut look = Look::new(layout, core.listed(), may_wait, unique_id(core));
    let available = run(&core.client, &mut look, deadline).await??;
    let has_leases = look.has_leases();
    core.set_listed(look.into_listed());
    Ok(Found { available, has_leases })
}

/// Leases an item; `None` if another taker was faster.
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
        .build()
        .map_err(RecipeError::Config)?;
    let mut acquire = lock.acquire();
    if let Some(deadline) = deadline {
        acquire = acquire.timeout(deadline.saturating_since(core.client.now()));
    }
    let Some(guard) = acquire.without_wait().await? else { return Ok(None) };
    let path = layout.item(item);
    let mut reading = ReadAll::new(vec![read(path.clone(), None)], FailedAction::Read, &path);
    match run(&core.client, &mut reading, deadline).await??.pop().flatten() {
        // The item that was listed may be gone, and this one was put after the lease was created: the
        // token of the lease would be lower than those of leases that others had since.
        Some(Response::GetData(found)) if found.stat.czxid.0 > guard.fencing_token().get() => {
            Ok(None)
        }
        Some(Response::GetData(found)) => Ok(Some(Leased::new(core, item.clone(), guard, found))),
        _ => {
            core.forget(item);
            Ok(None)
        }
    }
}

fn unique_id(core: &Core) -> u128 {
    Session::of(&core.client).unique_id()
}
