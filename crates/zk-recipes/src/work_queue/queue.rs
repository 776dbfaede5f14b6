//! The work queue itself.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use zk_session::{Client, ConfigError};

use super::aside::BlockedItem;
use super::builder::WorkQueueBuilder;
use super::core::Core;
use super::error::WorkQueueError;
use super::leased::Leased;
use super::put::Put;
use super::search::try_take;
use super::take::{Take, TakeBatch};

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
    /// See [`Put`] for connection loss, cancellation and errors.
    pub fn put(&self, item: impl Into<Bytes>) -> Put {
        Put::new(&self.core, vec![item.into()])
    }

    /// Puts items into the queue in one transaction: all of them or none, next to each other in
    /// their order. At most 128 items, which together must not be longer than a request may be.
    ///
    /// See [`Put`] for connection loss, cancellation and errors.
    pub fn put_batch<T: Into<Bytes>>(&self, items: impl IntoIterator<Item = T>) -> Put {
        Put::new(&self.core, items.into_iter().map(Into::into).collect())
    }

    /// Takes the next item, and waits for one if the queue is empty: set options, then `.await`.
    /// Takers get items in the order in which they began to wait, except for those that
    /// [`try_take`](Self::try_take), and those whose connection or session is lost meanwhile.
    ///
    /// See [`Take`] for connection loss, cancellation and errors.
    pub fn take(&self) -> Take {
        Take::new(&self.core)
    }

    /// Takes several items at once, at least one and up to this number, which is from 1 to 128, and
    /// waits for an item if the queue is empty: set options, then `.await`. A consumer that works on
    /// many small items uses fewer requests with it, since the items share one turn and one list.
    ///
    /// See [`TakeBatch`] for connection loss, cancellation and errors.
    pub fn take_batch(&self, items: usize) -> TakeBatch {
        TakeBatch::new(&self.core, items)
    }

    /// Takes an item if there is one that nobody has taken. Does not wait for takers that wait in
    /// the queue of takers.
    ///
    /// If several calls compete for the first item, the others get items behind it. Without a
    /// connection, the call waits for one. After a **connection loss**, requests are replayed.
    /// **Cancel safe**: dropping the future at any moment leaves no lease.
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
    pub async fn try_take(&self) -> Result<Option<Leased>, WorkQueueError> {
        Box::pin(try_take(&self.core)).await
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

    /// Reads the number of items, leased ones included.
    ///
    /// After a lost connection, the read is repeated. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`RecipeError`](crate::RecipeError), if a server refuses the read or the client has stopped.
    pub async fn length(&self) -> Result<usize, WorkQueueError> {
        self.core.length(None).await
    }

    /// Returns the directory of the queue.
    pub fn directory(&self) -> &str {
        &self.core.layout.directory
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
