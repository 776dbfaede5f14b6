//! A barrier: closed while its znode exists.
//!
//! Closing and opening are transactions with a marker, see [`Once`](crate::machine::Once). Without
//! it, a lost create could not be repeated: if the barrier is found open, the create was lost, or it
//! was applied, and another client has opened the barrier since. In the second case a repeated
//! create would close a barrier that nobody opens any more. In the same way, a repeated delete could
//! open a barrier that another client has closed since.
//!
//! Waiters compare the transaction that created the znode. If it changes, the barrier was open in
//! between, so a barrier that is opened and closed again at once releases all who waited.

mod builder;
mod change;
mod wait;

use std::fmt;
use std::future::Future;

use zk_session::{Client, ConfigError, Time};

pub use self::builder::BarrierBuilder;

use self::builder::Profile;
use self::change::{Change, change_before, is_there};
use self::wait::wait;
use crate::engine::call::Call;
use crate::error::RecipeError;

/// A barrier that tasks in any process wait for. It is closed while its znode exists.
///
/// Building a barrier does no I/O, and clones are cheap. The znode is persistent, so the barrier
/// stays closed when the client that has closed it ends. Curator's `DistributedBarrier` and kazoo's
/// `Barrier` at the same path are the same barrier.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
/// # let address = server.listen("127.0.0.1:0").await?;
/// use std::time::Duration;
/// use zk_recipes::{Barrier, Client, RecipeError};
///
/// let client = Client::connect(address.to_string()).await?;
/// let migration = Barrier::new(&client, "/barriers/migration")?;
/// migration.close().await?;
/// let waited = migration.wait().timeout(Duration::from_millis(50)).await;
/// assert!(matches!(waited, Err(RecipeError::TimedOut(_))));
/// migration.open().await?;
/// migration.wait().await?;
/// # Ok(()) }
/// ```
///
/// **Costs.** Closing and opening are one transaction each, and another one in the background that
/// deletes the marker. A wait is one read, and another one for each change of the barrier.
///
/// **Permissions.** CREATE and DELETE on the parent; READ on the barrier for those who wait.
#[derive(Clone)]
pub struct Barrier {
    profile: Profile,
}

impl Barrier {
    /// Builds a barrier at a path, with default options.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path below the root.
    pub fn new(client: &Client, path: &str) -> Result<Self, ConfigError> {
        Self::builder(client, path)?.build()
    }

    /// Returns a builder for a barrier at a path.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path below the root.
    pub fn builder(client: &Client, path: &str) -> Result<BarrierBuilder, ConfigError> {
        BarrierBuilder::new(client, path)
    }

    /// Closes the barrier. If it is closed already, nothing changes. Missing ancestors are created
    /// as containers.
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned: the barrier is
    /// closed at most once, even if others open it meanwhile. **Cancel safe** in that the barrier
    /// is closed once or not at all.
    ///
    /// # Errors
    ///
    /// [`RecipeError::SessionExpired`] if the session ended before the outcome was known, and the
    /// barrier is open: it may have been closed, and opened by another client.
    /// [`RecipeError::Refused`] if a server refuses the create; [`RecipeError::TimedOut`] if the
    /// barrier has a [timeout](BarrierBuilder::timeout); [`RecipeError::Closed`] and similar errors
    /// if the client has stopped.
    pub fn close(&self) -> Call<(), RecipeError> {
        self.change(Change::Close)
    }

    /// Opens the barrier, which releases all who wait. If it is open already, nothing changes.
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned: the barrier is
    /// opened at most once, even if others close it meanwhile. **Cancel safe** in that the barrier
    /// is opened once or not at all.
    ///
    /// # Errors
    ///
    /// As for [`close`](Self::close), with open and closed exchanged. A znode with children cannot
    /// be deleted, so it is not a barrier.
    pub fn open(&self) -> Call<(), RecipeError> {
        self.change(Change::Open)
    }

    /// Reads whether the barrier is open.
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned. **Cancel
    /// safe**. It costs one read.
    ///
    /// # Errors
    ///
    /// [`RecipeError::TimedOut`] if the barrier has a [timeout](BarrierBuilder::timeout);
    /// [`RecipeError::Closed`] and similar errors if the client has stopped.
    pub fn is_open(&self) -> Call<bool, RecipeError> {
        self.call(async |profile, deadline| Ok(!is_there(&profile, false, deadline).await?))
    }

    /// Waits until the barrier is open, or has been open since the wait began. Set a timeout, then
    /// `.await` it.
    ///
    /// A barrier that is opened and closed again at once releases all who waited, even those
    /// without a connection at that time, and those whose session has expired since.
    ///
    /// **Connection loss** and the **end of the session** are waited out. **Cancel safe**: dropping
    /// the future leaves nothing. Many waiters cost a server a watch each, a test of existence each every
    /// 30 s, and a read each when the barrier is opened. Needs READ on the barrier.
    ///
    /// # Errors
    ///
    /// [`RecipeError::TimedOut`]; [`RecipeError::Refused`] without READ, also if it was taken away
    /// during the wait; [`RecipeError::Closed`] and similar errors if the client has
    /// stopped.
    pub fn wait(&self) -> Call<(), RecipeError> {
        let Profile { client, path, .. } = self.profile.clone();
        Call::new(&client.clone(), &path.clone(), |deadline| wait(client, path, deadline))
    }

    /// Returns the path of the znode.
    pub fn path(&self) -> &str {
        &self.profile.path
    }

    fn change(&self, change: Change) -> Call<(), RecipeError> {
        self.call(move |profile, deadline| change_before(profile, change, deadline))
    }

    /// Creates a call with the timeout of the barrier.
    fn call<T: 'static, F: Future<Output = Result<T, RecipeError>> + Send>(
        &self,
        start: impl FnOnce(Profile, Option<Time>) -> F + Send + 'static,
    ) -> Call<T, RecipeError> {
        let profile = self.profile.clone();
        Call::new(&self.profile.client, &self.profile.path, |deadline| start(profile, deadline))
            .until(self.profile.deadline())
    }
}

impl BarrierBuilder {
    /// Checks the options and builds the barrier.
    ///
    /// # Errors
    ///
    /// Fails if the access control list is empty.
    pub fn build(self) -> Result<Barrier, ConfigError> {
        Ok(Barrier { profile: self.finish()? })
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").field("path", &self.path()).finish_non_exhaustive()
    }
}
