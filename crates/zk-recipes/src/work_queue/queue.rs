//! The work queue itself.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use zk_session::{Client, ConfigError, OptionDefect, Time};

use super::aside::BlockedItem;
use super::builder::WorkQueueBuilder;
use super::core::Core;
use super::error::WorkQueueError;
use super::layout::BATCH_MAX;
use super::leased::Leased;
use super::put::Put;
use super::search::try_take;
use super::stats::QueueStats;
use super::take::take;
use crate::engine::call::Call;

/// A queue of items that several producers and consumers share. A consumer *leases* an item while
/// it works on it: the item is deleted when the consumer acknowledges it, and returns to the queue
/// if the consumer gives it back, drops it, or dies.
///
/// Building a queue does no I/O, and clones are cheap. A queue is identified by its directory.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
/// # let address = server.listen("127.0.0.1:0").await?;
/// use zk_recipes::{Client, WorkQueue};
///
/// let client = Client::connect(address.to_string()).await?;
/// let queue = WorkQueue::new(&client, "/queues/reports")?;
///
/// queue.put("monthly").await?;
/// queue.put("urgent").priority(10).await?;
///
/// let item = queue.take().await?;
/// assert_eq!(item.data(), "urgent");
/// item.ack().await?;
/// # Ok(()) }
/// ```
///
/// # Guarantees
///
/// - **Each put creates its items once**, whatever happens to the connection or the session.
/// - **At-least-once delivery.** An item is delivered again if its taker did not acknowledge it. So
///   the work on an item must be safe to repeat.
/// - **At most one taker has an item at a time**, within the limits that [`Guard`](crate::Guard)
///   describes: a process that was paused for longer than its session lived continues to work on an
///   item that another one has taken. Its [`ack`](Leased::ack) fails.
/// - **Order.** Items of a better priority are delivered first, and items of one priority in the
///   order in which they were put. An item that returns to the queue has its old place. Acks can be
///   in any order.
///
/// **Costs.** A put is two writes, and waits for one of them. Taking and acknowledging an item takes
/// six round trips and six writes. A taker lists the queue, so a take becomes more expensive as the
/// queue grows; the page of the recipe says from which size on another system is better.
///
/// **Permissions.** A producer needs CREATE and DELETE on `puts` and CREATE on `entries` below the
/// queue's directory. A consumer needs READ and DELETE on `entries`, and READ, CREATE and DELETE on
/// `taken` and `takers`, and READ, CREATE and DELETE on items. With a limit that you set, a producer needs READ on
/// `entries` too. Missing directories are created as containers, with the list of the items.
#[derive(Clone)]
pub struct WorkQueue {
    core: Arc<Core>,
}

impl WorkQueue {
    /// Builds a queue at a directory, with default options.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path below the root.
    pub fn new(client: &Client, directory: &str) -> Result<Self, ConfigError> {
        Self::builder(client, directory)?.build()
    }

    /// Returns a builder for a queue at a directory.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path below the root.
    pub fn builder(client: &Client, directory: &str) -> Result<WorkQueueBuilder, ConfigError> {
        WorkQueueBuilder::new(client, directory)
    }

    /// Puts an item into the queue: set options, then `.await`. An item can have about one megabyte
    /// at most, the limit of servers for a request; a few kilobytes are better.
    ///
    /// After a **connection loss**, requests are replayed: the items are put exactly once, even if
    /// the session expires in between. Without a connection, the call waits for one, at most for its
    /// [timeout](Call::timeout).
    ///
    /// **Cancel safe** in that dropping the future puts the items once or not at all, and so does a
    /// timeout. Afterwards, no request that would put them is sent any more; a request that was sent
    /// before may be applied. The janitor of the session removes what the put needs on the servers.
    ///
    /// # Errors
    ///
    /// [`WorkQueueError::Full`] if the queue has as many items as its
    /// [limit](crate::WorkQueueBuilder::limit) allows.
    /// [`WorkQueueError::QueueExhausted`] if the sequence counter of the items has reached its end.
    /// [`WorkQueueError::Unknown`] if servers keep failing. A [`RecipeError`](crate::RecipeError) if
    /// a server refuses the items, if they are too large for a request, if there are more than 128 of
    /// them, or if the priority is greater than 999: in these cases, nothing was put. After
    /// `TimedOut`, `Closed` and `AuthFailed`, the items may have been put.
    pub fn put(&self, item: impl Into<Bytes>) -> Put {
        Put::of(&self.core, vec![item.into()])
    }

    /// Puts items into the queue in one transaction: all of them or none, next to each other in
    /// their order. At most 128 items, which together must not be longer than a request may be. In
    /// all other respects it is like [`put`](Self::put).
    ///
    /// # Errors
    ///
    /// The errors are those of [`put`](Self::put).
    pub fn put_batch<T: Into<Bytes>>(&self, items: impl IntoIterator<Item = T>) -> Put {
        Put::of(&self.core, items.into_iter().map(Into::into).collect())
    }

    /// Takes the next item, and waits for one if the queue is empty: set options, then `.await`.
    /// Takers get items in the order in which they began to wait, except for those that
    /// [`try_take`](Self::try_take). A taker without a connection keeps its place until its session
    /// ends. If it is the first, the others wait for that; those whose own connection or session is
    /// lost wait at the end.
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned. If the session
    /// **expires** while the future waits, it continues in the next session, at the end of the queue
    /// of takers. **Cancel safe**: dropping the future at any moment leaves no lease, and neither does
    /// a timeout. The janitor of the session removes what is on the servers, and an item that was
    /// leased in this moment returns to the queue.
    ///
    /// Poll the future until it completes, or drop it. A taker at the head of the queue of takers
    /// that is not polled delays the others, once by a little more than the interval at which they
    /// [look for themselves](crate::WorkQueueBuilder::watch_check), and then by about a second.
    ///
    /// Items that cannot be delivered to this client are passed over, and logged; see
    /// [`blocked`](Self::blocked). If there are no others, the future waits.
    ///
    /// # Errors
    ///
    /// A [`RecipeError`](crate::RecipeError), such as `TimedOut`, `Refused` or `Closed`.
    /// [`WorkQueueError::TooLong`] if the queue has more items than this client can list.
    /// [`WorkQueueError::Takers`] if the queue of takers contains something else. After any error,
    /// nothing is leased.
    pub fn take(&self) -> Call<Leased, WorkQueueError> {
        self.call(async |core, deadline| {
            let mut items = take(&core, 1, deadline).await?;
            Ok(items.pop().expect("a take returns an item"))
        })
    }

    /// Takes several items at once, at least one and up to this number, which is from 1 to 128, and
    /// waits for an item if the queue is empty: set options, then `.await`. A consumer that works on
    /// many small items uses fewer requests with it, since the items share one turn and one list.
    ///
    /// It waits until the queue has an item, but not until it has as many as the caller takes. The
    /// items are leased at the same time, each with a lease of its own, and are returned in the order
    /// of the queue: acknowledge each of them. In all other respects it is like
    /// [`take`](Self::take).
    ///
    /// # Errors
    ///
    /// Those of [`take`](Self::take).
    /// [`RecipeError::Config`](crate::RecipeError::Config) if the number of items is 0 or greater than
    /// 128. If some of the items could be leased, they are returned, and an error of the others is
    /// discarded; the next take meets it again.
    pub fn take_batch(&self, items: usize) -> Call<Vec<Leased>, WorkQueueError> {
        self.call(async move |core, deadline| {
            if !(1..=BATCH_MAX).contains(&items) {
                let defect = OptionDefect::Other("it must be between 1 and 128");
                let (option, value) = ("items of the batch", items.to_string());
                return Err(ConfigError::Option { option, value, defect }.into());
            }
            take(&core, items, deadline).await
        })
    }

    /// Takes an item if there is one that nobody has taken. Does not wait for takers that wait in
    /// the queue of takers.
    ///
    /// If several calls compete for the first item, the others get items behind it. Without a
    /// connection, the call waits for one, at most for its [timeout](Call::timeout). After a
    /// **connection loss**, requests are replayed. **Cancel safe**: dropping the future at any moment
    /// leaves no lease, and neither does a timeout.
    ///
    /// `None` means that all items are leased, or were given back by a taker of this queue within
    /// the [delay of a redelivery](WorkQueueBuilder::redelivery_delay). It never means that there are items which this client
    /// cannot read: that is an error.
    ///
    /// # Errors
    ///
    /// [`WorkQueueError::Blocked`] if there are items without a lease, and none of them can be
    /// [delivered](Self::blocked) to this client. The other errors are those of
    /// [`take`](Self::take).
    pub fn try_take(&self) -> Call<Option<Leased>, WorkQueueError> {
        self.call(async |core, deadline| try_take(&core, deadline).await)
    }

    /// Returns the items that takers of this value and its clones have found and could not deliver,
    /// because the client may not read them, they are too long, or somebody has created znodes below
    /// them, so that they could not be acknowledged. Takers pass them over, log each of them once,
    /// and read them again after pauses that grow from a second to five minutes. An item that is delivered or deleted is no longer returned, once a
    /// taker has noticed that.
    ///
    /// Costs no request.
    pub fn blocked(&self) -> Vec<BlockedItem> {
        let path = |item| self.core.layout.item(item).to_string();
        let aside = self.core.aside();
        aside.blocked().map(|(item, reason)| BlockedItem { path: path(item), reason }).collect()
    }

    /// Reads the number of items, leased ones included. Needs no permission: servers tell everybody
    /// how many children a znode has. Returns 0 before the first put.
    ///
    /// After a lost connection, the read is repeated. Cancel safe.
    ///
    /// # Errors
    ///
    /// A [`RecipeError`](crate::RecipeError), if a server refuses the read, the client has stopped, or the call has
    /// [timed out](Call::timeout).
    pub fn length(&self) -> Call<usize, WorkQueueError> {
        self.call(async |core, deadline| core.length(deadline).await)
    }

    /// Returns the counters of this queue and its clones. Costs no request.
    pub fn stats(&self) -> QueueStats {
        let blocked = self.core.aside().blocked().count();
        self.core.counters.snapshot(blocked)
    }

    /// Returns the directory of the queue.
    pub fn directory(&self) -> &str {
        &self.core.layout.directory
    }

    fn call<T: 'static, F: Future<Output = Result<T, WorkQueueError>> + Send>(
        &self,
        start: impl FnOnce(Arc<Core>, Option<Time>) -> F + Send + 'static,
    ) -> Call<T, WorkQueueError> {
        let core = Arc::clone(&self.core);
        Call::new(&self.core.client, &self.core.layout.directory, |deadline| start(core, deadline))
    }
}

impl WorkQueueBuilder {
    /// Checks the options and builds the queue.
    ///
    /// # Errors
    ///
    /// Fails if the access control list is empty, the limit or the length of leases is 0, or the
    /// interval of the watch check is too short.
    pub fn build(self) -> Result<WorkQueue, ConfigError> {
        Ok(WorkQueue { core: Arc::new(self.finish()?) })
    }
}

impl fmt::Debug for WorkQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue")
            .field("directory", &self.directory())
            .field("limit", &self.core.layout.limit)
            .finish_non_exhaustive()
    }
}
