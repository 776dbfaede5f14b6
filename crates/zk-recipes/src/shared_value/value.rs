//! The shared value itself.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use jute_codec::{ErrorCode, Response};
use zk_session::{Client, ConfigError, OpError, Time};

use super::builder::{SharedValueBuilder, ValueProfile};
use super::contention::Contention;
use super::error::ValueError;
use super::versioned::Versioned;
use super::write::{Written, write};
use crate::action::FailedAction;
use crate::engine::call::{Call, ScopedCall};
use crate::engine::drive::{pause, run, up_to};
use crate::engine::limited::limited;
use crate::engine::monitor::Monitored;
use crate::error::RecipeError;
use crate::machine::{Aspect, Ensure, Failure, ReadAll, read};
use crate::stream::stream;

/// How often an operation creates the znode. It reaches this number only if somebody deletes the
/// znode each time.
const CREATES_MAX: u32 = 5;

/// A value that clients share: the data of one znode, with its version.
///
/// Building a value does no I/O, and clones are cheap. The znode is persistent. The first operation
/// that needs it creates it with the [initial](SharedValueBuilder::initial) value, and its missing
/// ancestors as containers.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
/// # let address = server.listen("127.0.0.1:0").await?;
/// use zk_recipes::{Client, SharedValue, ValueError};
///
/// let client = Client::connect(address.to_string()).await?;
/// let limit = SharedValue::new(&client, "/settings/limit")?;
///
/// let before = limit.get().await?;
/// let after = limit.compare_and_set(&before, "10").await?;
/// assert_eq!(after.bytes(), "10");
/// // The value is no longer the one that was read.
/// assert_eq!(limit.compare_and_set(&before, "20").await, Err(ValueError::Conflict));
/// # Ok(()) }
/// ```
///
/// **Connection loss.** Writes are replayed, and applied at most once: each write creates an
/// ephemeral child of the znode in the same transaction, the *marker*, which shows whether the
/// write was applied. The janitor of the session deletes it. Only if the session ends before the
/// outcome is known can the result be [`ValueError::Undecided`].
///
/// **Cancel safe** in that a write whose future was dropped is applied once or not at all, and
/// leaves no marker.
///
/// **Costs.** A read is one read. A write is one transaction, and another one in the background that
/// deletes the marker; a caller waits for the first only. `compare_and_set` and `update` also read.
///
/// **Permissions.** READ, WRITE, CREATE and DELETE on the znode.
#[derive(Clone)]
pub struct SharedValue {
    client: Client,
    profile: Arc<ValueProfile>,
}

/// The values of a [`SharedValue`] over time; see [`SharedValue::changes`].
#[derive(Debug)]
pub struct ValueChanges {
    monitored: Monitored,
    has_ended: bool,
}

stream!(ValueChanges, Option<Versioned>, RecipeError);

impl SharedValue {
    /// Builds a value at a path, with default options.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path below the root.
    pub fn new(client: &Client, path: &str) -> Result<Self, ConfigError> {
        Self::builder(client, path)?.build()
    }

    /// Returns a builder for a value at a path.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path below the root.
    pub fn builder(client: &Client, path: &str) -> Result<SharedValueBuilder, ConfigError> {
        SharedValueBuilder::new(client, path)
    }

    /// Reads the value, or creates it with its initial value.
    ///
    /// A server that lags behind may reply with an older value. A write that is based on it fails
    /// with [`ValueError::Conflict`].
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned. **Cancel
    /// safe**. It costs one read if the znode exists.
    ///
    /// # Errors
    ///
    /// [`ValueError::Recipe`], if a server refuses to read or create the znode, the client has
    /// stopped, or the timeout has passed.
    pub fn get(&self) -> Call<Versioned, ValueError> {
        self.reading(Ok)
    }

    /// Replaces the value, whatever it is, and creates the znode if it is missing.
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned: the value is
    /// written once, and so never overwrites a later value. **Cancel safe** in that the value is
    /// written once or not at all.
    ///
    /// # Errors
    ///
    /// [`ValueError::Undecided`] if the session has ended or the timeout has passed before the
    /// outcome was known; otherwise as for [`get`](Self::get).
    pub fn set(&self, bytes: impl Into<Bytes>) -> Call<(), ValueError> {
        let bytes = bytes.into();
        self.writing(async move |value, deadline| {
            for _ in 0..CREATES_MAX {
                match write(&value.client, &value.profile, &bytes, None, deadline).await? {
                    Written::Applied(_) => return Ok(()),
                    Written::Missing => value.create(deadline).await?,
                }
            }
            Err(value.keeps_vanishing())
        })
    }

    /// Replaces the value, if it still is the one that was read. Returns the new value.
    ///
    /// Versions are compared, so a value that was replaced by an equal one is another value. A znode
    /// that was deleted and created again is another value, too, although its versions start at 0
    /// again: it is read before it is written. Costs a read and a write.
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned. **Cancel
    /// safe** in that the value is written once or not at all.
    ///
    /// # Errors
    ///
    /// [`ValueError::Conflict`] if the value has changed, or the znode was deleted;
    /// [`ValueError::Recreated`] if the znode was deleted and created again between the read and the
    /// write, and had the same version;
    /// [`ValueError::Undecided`] if the session has ended or the timeout has passed before the
    /// outcome was known; [`ValueError::Recipe`] if a server refuses the write, or the client has
    /// stopped.
    pub fn compare_and_set(
        &self,
        old: &Versioned,
        bytes: impl Into<Bytes>,
    ) -> Call<Versioned, ValueError> {
        let (old, bytes) = (old.clone(), bytes.into());
        self.writing(async move |value, deadline| {
            if value.is_replaced(&old, deadline).await? {
                return Err(ValueError::Conflict);
            }
            value.replace(&old, &bytes, deadline).await
        })
    }

    /// Replaces the value by a function of it. If another client changes the value meanwhile, calls
    /// the function again, after a pause that grows to a second. Returns the new value.
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned. **Cancel
    /// safe** in that a result of the function is written once or not at all. It costs a read and a
    /// write for each call of the function, and another read while other clients write often.
    ///
    /// # Errors
    ///
    /// As for [`compare_and_set`](Self::compare_and_set), without [`ValueError::Conflict`].
    pub fn update<'a>(
        &self,
        mut change: impl FnMut(&Bytes) -> Bytes + Send + 'a,
    ) -> ScopedCall<'a, Versioned, ValueError> {
        self.writing(async move |value, deadline| {
            let change = |old: &Versioned| Ok::<_, Infallible>(change(old.bytes()));
            let Ok(updated) = value.try_update(deadline, change).await?;
            Ok(updated)
        })
    }

    /// As `update`, with a function that may refuse.
    pub(crate) async fn try_update<E>(
        &self,
        deadline: Option<Time>,
        mut change: impl FnMut(&Versioned) -> Result<Bytes, E>,
    ) -> Result<Result<Versioned, E>, ValueError> {
        let mut contention = Contention::default();
        loop {
            let asked = self.client.now();
            let old = self.fetch(deadline).await?;
            if !contention.must_let_others_write(old.revision(), asked, self.client.now()) {
                let bytes = match change(&old) {
                    Ok(bytes) => bytes,
                    Err(refusal) => return Ok(Err(refusal)),
                };
                match self.replace(&old, &bytes, deadline).await {
                    Err(ValueError::Conflict) => {}
                    result => return result.map(Ok),
                }
            }
            let left = deadline.map(|at| at.saturating_since(self.client.now()));
            let length = up_to(&self.client, contention.next_pause());
            pause(&self.client, left.map_or(length, |left| left.min(length))).await;
        }
    }

    /// Creates a call that reads the value and decodes it, with the timeout of the value.
    pub(crate) fn reading<T: 'static>(
        &self,
        decode: impl FnOnce(Versioned) -> Result<T, ValueError> + Send + 'static,
    ) -> Call<T, ValueError> {
        let value = self.clone();
        let Self { client, profile } = self;
        Call::new(client, &profile.path, async move |deadline| decode(value.fetch(deadline).await?))
            .until(self.deadline())
    }

    /// Creates a call that writes, with the timeout of the value.
    pub(crate) fn writing<'a, T: 'a, F: Future<Output = Result<T, ValueError>> + Send>(
        &self,
        start: impl FnOnce(Self, Option<Time>) -> F + Send + 'a,
    ) -> ScopedCall<'a, T, ValueError> {
        let value = self.clone();
        let Self { client, profile } = self;
        ScopedCall::without_watchdog(client, &profile.path, (), |(), deadline| async move {
            let (client, path) = (value.client.clone(), value.profile.path.clone());
            let future = pin!(start(value, deadline));
            limited(&client, &path, deadline, undecided, future).await
        })
        .until(self.deadline())
    }

    /// Follows the value: the current one first, and then the newest one after each change.
    ///
    /// The stream continues after lost connections and in the next session. Values that follow each
    /// other fast may be skipped, but the last one is always reported. It does not create the znode,
    /// and keeps the client's session open. Each change costs one read, and while the stream is polled, a
    /// test of existence every 30 s shows whether an event was missed.
    pub fn changes(&self) -> ValueChanges {
        let monitored = Monitored::new(&self.client, &self.profile.path, Aspect::Data);
        ValueChanges { monitored, has_ended: false }
    }

    /// The path of the znode.
    pub fn path(&self) -> &str {
        &self.profile.path
    }

    async fn fetch(&self, deadline: Option<Time>) -> Result<Versioned, ValueError> {
        for _ in 0..CREATES_MAX {
            let path = &self.profile.path;
            let operations = vec![read(path.clone(), None)];
            let mut reading = ReadAll::new(operations, FailedAction::Read, path);
            let read = run(&self.client, &mut reading, deadline).await?.pop();
            if let Some(Some(Response::GetData(found))) = read {
                return Ok(Versioned::of(&found));
            }
            self.create(deadline).await?;
        }
        Err(self.keeps_vanishing())
    }

    /// Somebody deletes the znode as fast as it is created.
    fn keeps_vanishing(&self) -> ValueError {
        let error = OpError::server(ErrorCode::NO_NODE);
        let path = self.profile.path.clone();
        RecipeError::of(Failure::new(FailedAction::Create, path, error)).into()
    }

    async fn create(&self, deadline: Option<Time>) -> Result<(), RecipeError> {
        let ValueProfile { path, initial, acl, .. } = &*self.profile;
        let mut ensure = Ensure::znode(path.clone(), initial.clone(), acl.clone());
        run(&self.client, &mut ensure, deadline).await
    }

    /// Reads the znode, and returns whether it is certain that it no longer has this value. A server
    /// that lags behind may show an older znode or version, which proves nothing.
    async fn is_replaced(
        &self,
        old: &Versioned,
        deadline: Option<Time>,
    ) -> Result<bool, RecipeError> {
        let path = &self.profile.path;
        let mut reading = ReadAll::new(vec![read(path.clone(), None)], FailedAction::Read, path);
        let found = match run(&self.client, &mut reading, deadline).await?.pop().flatten() {
            Some(Response::GetData(found)) => Versioned::of(&found),
            _ => return Ok(false),
        };
        // Versions wrap around.
        let is_later = found.version().0.wrapping_sub(old.version().0) > 0;
        Ok(found.czxid() > old.czxid() || (found.czxid() == old.czxid() && is_later))
    }

    async fn replace(
        &self,
        old: &Versioned,
        bytes: &Bytes,
        deadline: Option<Time>,
    ) -> Result<Versioned, ValueError> {
        let expected = Some(old.revision());
        match write(&self.client, &self.profile, bytes, expected, deadline).await? {
            Written::Applied(revision) => {
                Ok(Versioned::new(bytes.clone(), revision.unwrap_or_else(|| old.revision())))
            }
            Written::Missing => Err(ValueError::Conflict),
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.profile.timeout.map(|timeout| self.client.now() + timeout)
    }
}

impl SharedValueBuilder {
    /// Checks the options and builds the value. This does no I/O.
    ///
    /// # Errors
    ///
    /// The access control list is empty.
    pub fn build(self) -> Result<SharedValue, ConfigError> {
        let (client, profile) = self.finish()?;
        Ok(SharedValue { client, profile: Arc::new(profile) })
    }
}

/// The client's runtime was not driven, so a request may have been sent.
fn undecided() -> ValueError {
    ValueError::Undecided { cause: RecipeError::timed_out(), found: None }
}

impl ValueChanges {
    /// Returns the current value on the first call. Each later call waits for a change, and returns
    /// the newest value. `None` means that the znode does not exist. Two equal results may follow
    /// each other.
    ///
    /// **Connection loss** and the end of the session are waited out. **Cancel safe**: no change is
    /// lost. Each change costs one read, two if the znode was deleted.
    ///
    /// # Errors
    ///
    /// A server refuses to read the znode, also if the permission was taken away since, which an idle
    /// stream notices within about 30 s: `server_code()` of the error returns the code. The next call
    /// tries again, and pauses before if it was refused several times, for 200 ms at first. Any other
    /// error says that the client has stopped, so each further call fails.
    pub async fn next(&mut self) -> Result<Option<Versioned>, RecipeError> {
        Ok(match self.monitored.next(None).await? {
            Some(Response::GetData(found)) => Some(Versioned::of(&found)),
            _ => None,
        })
    }
}

impl fmt::Debug for SharedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedValue").field("path", &self.path()).finish_non_exhaustive()
    }
}
