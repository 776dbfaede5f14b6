//! An item that is leased.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{DataReply, ErrorCode};
use zk_session::recipe::Session;
use zk_session::{SessionId, Time, Zxid};

use super::aside::BlockReason;
use super::core::Core;
use super::error::WorkQueueError;
use super::layout::ItemName;
use super::machine::ack::{AckMachine, Acked};
use crate::engine::attended::Attended;
use crate::engine::call::Call;
use crate::engine::drive::at_most;
use crate::error::RecipeError;
use crate::exclusive::ExclusiveGuard;
use crate::guard::{FencingToken, LockStatus, Run};
use crate::lock::error::{LockError, LostReason};
use crate::lock::state::LockState;

/// How long an acknowledgement waits until the guard knows that its lease is lost.
const NOTICE_MAX: Duration = Duration::from_secs(1);

/// An item of a [`WorkQueue`](crate::WorkQueue) that this taker has, and no other.
///
/// The lease is an ephemeral znode. It is lost when that znode is gone, when its session has ended,
/// or when its deadline has passed, exactly as a lock is; see [`Guard`](crate::Guard). A queue may
/// also [limit](crate::WorkQueueBuilder::lease_for) how long its takers have items. From then on,
/// another taker may have the item.
///
/// Dropping the value returns the item to the queue, in the background, as
/// [`give_back`](Self::give_back) does, with the same delay for the takers of this queue. If the
/// runtime of the client has shut down, the item returns when the session expires.
#[must_use = "a dropped item returns to the queue"]
pub struct Leased {
    /// This is dropped before the lease, so that no taker of this queue sees the item without either.
    returning: Returning,
    path: ByteString,
    data: Bytes,
    /// The transaction that created the item.
    czxid: Zxid,
    lease: ExclusiveGuard,
}

/// Notes that an item has returned, unless it was settled, and for how long it was leased.
struct Returning {
    core: Arc<Core>,
    item: ItemName,
    is_settled: bool,
    is_acknowledged: bool,
    since: Time,
}

impl Drop for Returning {
    fn drop(&mut self) {
        if !self.is_settled {
            self.core.postpone(&self.item);
        }
        let leased = self.core.client.now().saturating_since(self.since);
        self.core.counters.ended(self.is_acknowledged, leased);
    }
}

impl Returning {
    /// A taker has the item from now on.
    fn new(core: &Arc<Core>, item: ItemName) -> Self {
        core.counters.began();
        let (core, since) = (Arc::clone(core), core.client.now());
        Self { core, item, is_settled: false, is_acknowledged: false, since }
    }
}

impl Leased {
    pub(crate) fn new(
        core: &Arc<Core>,
        item: ItemName,
        lease: ExclusiveGuard,
        found: DataReply,
    ) -> Self {
        Self {
            path: core.layout.item(&item),
            returning: Returning::new(core, item),
            data: found.data.unwrap_or_default(),
            czxid: found.stat.czxid,
            lease,
        }
    }

    /// Returns the data of the item.
    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// Returns the priority of the item.
    pub fn priority(&self) -> u16 {
        self.returning.item.priority
    }

    /// Returns the path of the item. No two items of the queue have the same path at the same time.
    /// But servers remove the directory of the items once it is empty, and then number the items
    /// from 0 again, so a later item may have this path; so may one that is put when the numbers are
    /// [exhausted](WorkQueueError::QueueExhausted).
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the state of the lease right now, computed by this call.
    pub fn state(&self) -> LockState {
        self.lease.state()
    }

    /// Returns a view of the lease for code that does not own this value.
    pub fn status(&self) -> LockStatus {
        self.lease.status()
    }

    /// Returns the session that owns the lease.
    pub fn session(&self) -> SessionId {
        self.lease.session()
    }

    /// Returns the time, from now, during which no other taker can get the item, even if no server
    /// responds again. It ends with the lease of the session, as [`Guard::remaining`] describes, or
    /// with the [limit](crate::WorkQueueBuilder::lease_for) of the queue, if that is sooner. Returns
    /// `None` if the session has no lease, and zero if this lease is lost.
    ///
    /// [`Guard::remaining`]: crate::Guard::remaining
    pub fn remaining(&self) -> Option<Duration> {
        let left = self.lease.remaining()?;
        let now = self.returning.core.client.now();
        let until_limit = self.lease.ends_at().map(|end| end.saturating_since(now));
        Some(until_limit.map_or(left, |limit| limit.min(left)))
    }

    /// Returns the token of this lease. Every later lease of the queue has a greater token, so a
    /// resource that compares tokens can refuse the writes of a taker that has lost its lease.
    pub fn fencing_token(&self) -> FencingToken {
        self.lease.fencing_token()
    }

    /// Waits until the lease is lost, as [`Guard::lost`](crate::Guard::lost) does. A lost
    /// **connection** alone does not end the wait. **Cancel safe.**
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        self.lease.lost()
    }

    /// Runs a body of work while the lease is not lost, and drops the body when the lease is lost,
    /// as [`Guard::run`](crate::Guard::run) does. Acknowledge the item afterwards.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
    /// # let address = server.listen("127.0.0.1:0").await?;
    /// # let client = zk_recipes::Client::connect(address.to_string()).await?;
    /// # let queue = zk_recipes::WorkQueue::new(&client, "/queues/reports")?;
    /// # queue.put("monthly").await?;
    /// # async fn write_report(_: &[u8]) {}
    /// let item = queue.take().await?;
    /// item.run(write_report(item.data())).await?;
    /// item.ack().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// A lost **connection** alone does not stop the body, unless
    /// [`stop_at_risk`](Run::stop_at_risk) asks for that. **Cancel safe** if the body is.
    ///
    /// # Errors
    ///
    /// [`Stopped`](crate::Stopped), which converts to a [`WorkQueueError`], if the body was dropped, or
    /// was not started because the lease was lost already.
    ///
    /// # Panics
    ///
    /// The future panics if the body panics, and if it is polled after completion.
    pub fn run<F: Future>(&self, body: F) -> Run<'_, F> {
        self.lease.run(body)
    }

    /// Proves that the lease is held, by a write that is committed only if its znode exists, as
    /// [`Guard::validate`](crate::Guard::validate) does. When the call succeeds, this taker had the
    /// item at some moment since the call began. The client needs READ on the directory of the leases.
    ///
    /// After a **connection loss**, the write is repeated. **Cancel safe**, and a
    /// [timeout](Call::timeout) changes nothing either: the lease is what it was.
    ///
    /// # Errors
    ///
    /// [`WorkQueueError::LeaseLost`] if the lease is lost. A [`RecipeError`](crate::RecipeError) if a
    /// server refuses the write, for about 20 s if it may pass later, or if the client has stopped.
    pub fn validate(&self) -> Call<(), WorkQueueError> {
        let validated = self.lease.validate();
        let (client, path) = (&self.returning.core.client, &self.path);
        Call::new(client, path, async |deadline| match validated.until(deadline).await {
            Err(LockError::Lost(reason)) => Err(WorkQueueError::LeaseLost(reason)),
            validated => Ok(validated?),
        })
    }

    /// Acknowledges the item: deletes it, provided that the lease still exists when the ensemble
    /// commits the delete. After success, no taker gets the item again. Nothing else can go into that
    /// transaction: record the result of the work before, in a way that can be repeated.
    ///
    /// After a **connection loss**, requests are replayed, and the result is definite, with the
    /// exception of [`WorkQueueError::Unknown`]. **Cancel safe** in that the item is deleted or
    /// returns to the queue if the call is dropped, and so it is after a [timeout](Call::timeout). A
    /// call that is neither awaited to its end nor dropped keeps the item for as long as the session
    /// lives, or until the [limit](crate::WorkQueueBuilder::lease_for) of the lease.
    ///
    /// # Errors
    ///
    /// [`WorkQueueError::LeaseLost`]: the item was not deleted, and another taker may have it.
    /// [`WorkQueueError::ItemGone`]: somebody else has deleted the item while it was leased; an item
    /// that was put since is not touched, even if it has the same path.
    /// [`WorkQueueError::Unknown`]: the connection dropped, or the limit of the lease passed, before
    /// the reply, the lease was lost, and the item is gone; or servers keep failing. [`WorkQueueError::HasChildren`]: somebody has created znodes
    /// below the item, which this call does not delete; it waits for about 20 s for them to disappear.
    /// A [`RecipeError`](crate::RecipeError) if a server refuses the delete; after `TimedOut`,
    /// `Closed` and `AuthFailed`, the item may have been deleted. After any error the lease is given
    /// up.
    pub fn ack(self) -> Call<(), WorkQueueError> {
        let (client, path) = (self.returning.core.client.clone(), self.path.clone());
        Call::new(&client, &path, |deadline| self.acknowledge(deadline))
    }

    async fn acknowledge(self, deadline: Option<Time>) -> Result<(), WorkQueueError> {
        let Self { path, czxid, lease, mut returning, .. } = self;
        // The multi checks the lease by its name, which that of the next taker has too. So the client
        // must not delete the lease before the multi is decided, even if the lease is lost.
        let used = lease.use_znode();
        if let LockState::Lost(reason) = lease.state() {
            return Err(WorkQueueError::LeaseLost(reason));
        }
        let (core, item) = (Arc::clone(&returning.core), returning.item.clone());
        let id = Session::of(&core.client).unique_id();
        let ack = AckMachine::new(
            Arc::clone(&core.layout),
            id,
            (item.clone(), czxid),
            (lease.session(), Zxid(lease.fencing_token().get())),
            lease.ends_at(),
        );
        let item_path = || path.to_string();
        // If this call is dropped, the pin may be created later, and would keep the next taker from
        // its acknowledgement. So the lease stays until the pin is gone.
        let (client, directory) = (&core.client, &core.layout.directory);
        let mut ack = Attended::before(client, ack, directory, deadline, (used, lease)).await?;
        let acked = match ack.run(deadline).await {
            Err(RecipeError::Refused { code: ErrorCode::NOT_EMPTY, .. }) => {
                returning.is_settled = true;
                core.block(&item, BlockReason::HasChildren);
                return Err(WorkQueueError::HasChildren { item: item_path() });
            }
            acked => acked?,
        };
        match acked {
            // Dropping the guard deletes the lease in the background.
            Acked::Done => {
                (returning.is_settled, returning.is_acknowledged) = (true, true);
                core.forget(&item);
                Ok(())
            }
            Acked::ItemGone => {
                returning.is_settled = true;
                core.forget(&item);
                Err(WorkQueueError::ItemGone { item: item_path() })
            }
            Acked::Lost(reason) => {
                // A guard that does not know yet that it is lost deletes the lease by its name, and
                // that may be the lease of the next taker. The event has arrived with the reply.
                let latest = core.client.now() + NOTICE_MAX;
                let latest = deadline.map_or(latest, |deadline| deadline.min(latest));
                let noticed = at_most(&core.client, Some(latest), ack.value().1.lost()).await;
                // Then the client itself has deleted the lease.
                let is_too_long = noticed == Some(LostReason::HeldTooLong);
                let reason = if is_too_long { LostReason::HeldTooLong } else { reason };
                Err(WorkQueueError::LeaseLost(reason))
            }
            Acked::Unknown => Err(WorkQueueError::Unknown { item: item_path() }),
        }
    }

    /// Returns the item to the queue, at its old place, and waits until other takers can get it. The
    /// takers of this queue and its clones pass it over for the
    /// [delay of a redelivery](crate::WorkQueueBuilder::redelivery_delay).
    ///
    /// After a **connection loss**, requests are replayed. If no server is reachable, the call waits
    /// for one, or for the end of the session. **Cancel safe**: this method sends the command itself,
    /// so dropping what it returns changes nothing, and neither does a [timeout](Call::timeout).
    ///
    /// # Errors
    ///
    /// A [`RecipeError`](crate::RecipeError): `Refused` if a server refuses to delete the lease,
    /// which the client then retries in the background; `TimedOut`; `Closed` if the client has stopped
    /// in the meantime. The item returns to the queue in all cases, at the latest when the session
    /// expires.
    pub fn give_back(self) -> Call<(), WorkQueueError> {
        let Self { returning, lease, path, .. } = self;
        let client = returning.core.client.clone();
        drop(returning);
        let released = lease.release();
        Call::new(&client, &path, async |deadline| {
            released.until(deadline).await?;
            Ok(())
        })
    }
}

impl fmt::Debug for Leased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leased")
            .field("path", &self.path)
            .field("bytes", &self.data.len())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
