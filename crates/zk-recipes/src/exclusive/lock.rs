//! The exclusive lock itself.

use std::convert::Infallible;
use std::fmt::DebugStruct;
use std::sync::Arc;

use bytestring::ByteString;
use jute_codec::Response;
use zk_session::recipe::Operation;
use zk_session::{Client, ConfigError, SessionId};

use super::holder::holder;
use super::machine::attempt::ExclusiveAttempt;
use super::machine::removal::ExclusiveRemoval;
use crate::acquire::lock::Lock;
use crate::engine::call::Call;
use crate::guard::Guard;
use crate::lock::contender::Contender;
use crate::lock::error::LockError;
use crate::lock::kind::{Fenced, Kind};
use crate::lock::options::LockOptions;
use crate::lock::recipe::Recipe;
use crate::machine::{FailedAction, read};

/// A lock that is one znode: the contender that creates it holds the lock. Contenders are served in
/// no particular order.
///
/// Use it where the lock is mostly free, or where a contender that does not get the lock does
/// something else (see [`try_acquire`](Lock::try_acquire)). When the lock is released, all waiters
/// try at once, and one of them succeeds, not necessarily the one that has waited longest. If there
/// are more than a few waiters, or if every waiter must get its turn, use
/// [`FairLock`](crate::FairLock).
///
/// Building a lock does no I/O, and clones are cheap. A lock is identified by the path of its
/// znode. A znode there that is not ephemeral is not a lock: an acquire fails with
/// [`LockError::MixedKinds`].
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
/// # let address = server.listen("127.0.0.1:0").await?;
/// use zk_recipes::{Client, ExclusiveLock};
///
/// let client = Client::connect(address.to_string()).await?;
/// let lock = ExclusiveLock::new(&client, "/locks/nightly-report")?;
///
/// match lock.try_acquire().await? {
///     Some(guard) => {
///         println!("fencing token {}", guard.fencing_token());
///         guard.release().await?;
///     }
///     None => println!("another process writes it"),
/// }
/// # Ok(()) }
/// ```
///
/// **No transactions.** All holders use the same znode name, so a check of that name could not tell
/// them apart. The guard has a [`fencing_token`](crate::Guard::fencing_token) and
/// [`validate`](crate::Guard::validate).
///
/// **Deletes by an administrator.** ZooKeeper has no "delete if it is mine". Suppose that somebody
/// deletes the holder's znode by hand and another contender creates its own. If the first holder
/// releases the lock before it is notified, it deletes the znode of the second, which may do the same
/// to a third. Each of them loses the lock when it is notified. Names in a queue are unique, so this
/// cannot happen to a [`FairLock`](crate::FairLock).
///
/// **Costs.** An uncontended acquire costs one round trip, a `try_acquire` of a busy lock one read,
/// and a release one delete.
///
/// **Permissions.** The client needs CREATE and DELETE on the parent directory, and READ on the
/// znode. The lock creates missing directories as containers, with the list of the znode.
///
/// **Not reentrant.** A second acquire by the holder waits for the first.
pub type ExclusiveLock = Lock<Exclusive>;

/// The kind of an [`ExclusiveLock`].
#[derive(Clone, Copy, Debug)]
pub enum Exclusive {}

/// An [`ExclusiveLock`] that is held.
pub type ExclusiveGuard = Guard<Exclusive>;

impl ExclusiveLock {
    /// Builds a lock at a path, with default options.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path below the root.
    pub fn new(client: &Client, path: &str) -> Result<Self, ConfigError> {
        Self::builder(client, path)?.build()
    }

    /// Reads which contender holds the lock. Returns `None` if the lock is free. Waiters are not
    /// visible.
    ///
    /// After a lost connection, the read is repeated. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`LockError::Refused`] if the client may not read the znode; [`LockError::MixedKinds`] if it
    /// is not ephemeral, and so not a lock; [`LockError::TimedOut`] after a [timeout](Call::timeout);
    /// [`LockError::Closed`] and similar errors if the client has stopped.
    pub fn holder(&self) -> Call<Option<Contender>, LockError> {
        self.call(async |lock, deadline| holder(lock.client(), &lock.profile.path, deadline).await)
    }
}

impl Recipe for Exclusive {
    type Profile = LockOptions;
    type Attempt = ExclusiveAttempt;
    type Removal = ExclusiveRemoval;
    type Change = Infallible;

    const HAS_UNIQUE_NAMES: bool = false;

    fn path(profile: &LockOptions) -> &ByteString {
        &profile.path
    }

    fn attempt(profile: &Arc<LockOptions>, id: u128, may_wait: bool) -> ExclusiveAttempt {
        ExclusiveAttempt::new(Arc::clone(profile), id, may_wait)
    }

    fn look(profile: &LockOptions) -> (Operation, FailedAction) {
        (read(profile.path.clone(), None), FailedAction::Read)
    }

    fn is_taken(_: &LockOptions, seen: &Response) -> Result<bool, LockError> {
        let Response::GetData(found) = seen else { return Ok(false) };
        // A znode that is not ephemeral is not a lock. The attempt will report this as an error.
        Ok(found.stat.ephemeral_owner != SessionId::NONE)
    }
}

impl Kind for Exclusive {
    type Naming = ();

    const LOCK: &'static str = "ExclusiveLock";
    const METRIC: &'static str = "exclusive";

    fn profile(options: LockOptions, (): ()) -> Result<LockOptions, ConfigError> {
        Ok(options)
    }

    fn describe(profile: &LockOptions, output: &mut DebugStruct<'_, '_>) {
        output.field("path", &profile.path);
    }
}

impl Fenced for Exclusive {}
