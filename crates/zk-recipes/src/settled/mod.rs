//! Operations of the client that are repeated until their outcome is known.

mod again;
mod change;
mod error;
mod guarded;
mod markers;
mod reads;
mod set_acl;
mod set_config;
mod write;
mod znode_changes;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{MultiOp, MultiResult};
use zk_session::recipe::Session;
use zk_session::{
    Acl, Client, ConfigError, CreateOptions, Multi, MultiOutcome, OpError, Stat, Time, Version,
};

pub use self::error::SettledError;
pub use self::set_acl::AclInForce;
pub use self::set_config::ConfigInForce;
pub use self::znode_changes::ZnodeChanges;

use self::markers::Markers;
use self::write::{Ancestors, Applied, Profile, Write, write};
use crate::engine::call::Call;
use crate::error::{RecipeError, check_acl, check_path};
use crate::timed_out::MayTimeOut;

/// The operations of a [`Client`], repeated across lost connections until their outcome is known.
///
/// A result says that the operation was applied, once. An error says why it was not applied or, in
/// a few cases, that nobody can know: see [`SettledError::outcome`]. There is no retry policy to
/// choose, only a [timeout](Call::timeout).
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
/// # let address = server.listen("127.0.0.1:0").await?;
/// use std::time::Duration;
/// use zk_recipes::{Client, CreateMode, SettledClient};
///
/// let client = Client::connect(address.to_string()).await?;
/// let settled = SettledClient::new(&client, "/app/markers")?.timeout(Duration::from_secs(30));
/// let job = settled.create_with_parents("/app/jobs/job-", "1", CreateMode::PersistentSequential);
/// let job = job.await?.path.ok_or("somebody has deleted the job already")?;
/// let (data, stat) = settled.get_data(&job).await?;
/// assert_eq!(data, "1");
/// settled.set_data(&job, "2", Some(stat.version)).await?;
/// settled.delete(&job, None).await?;
/// # Ok(()) }
/// ```
///
/// **How.** Each write is a transaction that also writes an ephemeral znode, the *marker*, which
/// nobody else writes. So a write whose reply was lost can be sent again: if the marker shows that it
/// was applied, the server refuses it. Markers are reused, so a client has as many of them as it
/// had concurrent writes, at most 64. They are in the directory that [`new`](Self::new) takes,
/// which several clients may share. The janitor deletes them when the last clone of this value is
/// dropped; drop it before a [hand-over](Client::hand_over), since they would stay for as long as
/// the session.
///
/// **Connection loss.** Requests are repeated, and no error is returned. A write is applied at most
/// once, at one moment between the call and its result; it is as if the request had been slow. What a
/// write has created is recognized by its transaction, not by its name.
///
/// **The end of the session.** Writes that were certainly not applied continue in the next session,
/// except for those that create an ephemeral znode: they belong to the session in which the call was
/// first polled. If the outcome is unknown when the session ends, the call fails with
/// [`SettledError::SessionEnded`], because the marker has ended too. [`set_acl`](Self::set_acl) and
/// [`reconfig`](Self::reconfig), which have no marker, continue in the next session in any case.
///
/// **Costs.** A read is one request. A write is one transaction of two operations; a marker that is
/// new is created in the same transaction. No transaction can contain [`set_acl`](Self::set_acl) and
/// [`reconfig`](Self::reconfig), which are one request if the version is given, and otherwise two.
///
/// **Permissions.** In addition to those of the operation, CREATE, DELETE and READ on the directory
/// of the markers. A client that may write or delete there can make outcomes unknown or, worse,
/// make an unknown write look applied, so use an [access control list](Self::acl) if you do not
/// trust all clients.
#[derive(Clone)]
pub struct SettledClient {
    profile: Profile,
    timeout: Option<Duration>,
    is_behind_barrier: bool,
}

/// A znode that an operation of a [`SettledClient`] has created.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct NewZnode {
    /// Its path. `None` only for a sequential znode, if the reply was lost, and the znode is gone
    /// since, or may not be listed or read: then nobody knows its number.
    pub path: Option<ByteString>,
    /// Its metadata right after it was created; if the reply was lost, when it was found. `None` if
    /// it was not found, or if the server is older than 3.7.2 or 3.8.2 and does not send it.
    pub stat: Option<Stat>,
}

impl SettledClient {
    /// Creates a handle that keeps its markers in this directory. It is created when it is needed,
    /// with its missing ancestors, as containers. This does no I/O.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path below the root.
    pub fn new(client: &Client, directory: &str) -> Result<Self, ConfigError> {
        check_path("directory of the markers", directory)?;
        let profile = Profile {
            client: Session::of(client).client(),
            directory: directory.into(),
            acl: Session::of(client).default_acl(),
            markers: Arc::new(Markers::new(client)),
        };
        Ok(Self { profile, timeout: None, is_behind_barrier: false })
    }

    /// Sets the access control list of the markers, and of their directory if it is missing. Default:
    /// that of the client
    /// ([`ClientBuilder::default_acl`](zk_session::ClientBuilder::default_acl)).
    #[must_use]
    pub fn acl(mut self, acl: Vec<Acl>) -> Self {
        self.profile.acl = acl;
        self
    }

    /// Makes each call give up after this time, unless it has a
    /// [timeout of its own](Call::timeout). Default: none.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Makes reads show everything that was committed before the call, by any client: each of them
    /// follows a write barrier, which costs as much as a small write
    /// ([`Client::catch_up`](zk_session::Client::catch_up)). Default: a server that lags behind may
    /// reply with an older state.
    #[must_use]
    pub fn behind_barrier(self) -> Self {
        Self { is_behind_barrier: true, ..self }
    }

    /// Creates a znode. An ephemeral one belongs to the session in which this call was first polled.
    ///
    /// After a **connection loss**, the request is repeated: the znode is created once, even if
    /// others delete it meanwhile. **Cancel safe** in that the znode is created once or not at all.
    /// Needs CREATE on the parent; to find a sequential znode whose reply was lost, READ there.
    ///
    /// # Errors
    ///
    /// [`SettledError::Refused`] if a server refuses the create, for example with `NODE_EXISTS`:
    /// then another call has created the znode, not this one. [`SettledError::SessionEnded`] if the
    /// session ended before the outcome was known, or before an ephemeral znode was created.
    /// [`SettledError::Unknown`] if the time was up, or the client stopped, before the outcome was
    /// known, or if somebody has deleted the marker. [`SettledError::Recipe`] if nothing was applied
    /// for another reason.
    pub fn create(
        &self,
        path: &str,
        data: impl Into<Bytes>,
        options: impl Into<CreateOptions>,
    ) -> Call<NewZnode, SettledError> {
        self.creating(path, data.into(), options.into(), false)
    }

    /// Creates a znode, and its ancestors if they are missing, as
    /// [`Client::create_with_parents`](zk_session::Client::create_with_parents) does. On servers
    /// that do not know containers, ancestors that should be containers are persistent.
    ///
    /// After a **connection loss**, the request is repeated: the znode is created once, as by
    /// [`create`](Self::create). **Cancel safe** in the same way. Ancestors that were created stay in
    /// any case. Needs CREATE on the parents.
    ///
    /// # Errors
    ///
    /// As for [`create`](Self::create). If an ancestor cannot be created, the error is
    /// [`SettledError::Recipe`].
    pub fn create_with_parents(
        &self,
        path: &str,
        data: impl Into<Bytes>,
        options: impl Into<CreateOptions>,
    ) -> Call<NewZnode, SettledError> {
        self.creating(path, data.into(), options.into(), true)
    }

    /// Replaces the data of a znode. If a version is given, the znode must have that version. Returns
    /// the new metadata, or `None` if the reply was lost, and other clients have changed the znode
    /// since, or it may not be read.
    ///
    /// After a **connection loss**, the request is repeated: the data is written once, and so never
    /// overwrites what others have written since. **Cancel safe** in that the data is written once or
    /// not at all. Needs WRITE.
    ///
    /// # Errors
    ///
    /// As for [`create`](Self::create). `BAD_VERSION` always means that another client has written.
    pub fn set_data(
        &self,
        path: &str,
        data: impl Into<Bytes>,
        version: Option<Version>,
    ) -> Call<Option<Stat>, SettledError> {
        let multi = Multi::new().set_data(path, data, version);
        let path = ByteString::from(path);
        let about = path.clone();
        let stat = async move |client: Client, applied, deadline| match applied {
            Applied::Replied(results) => match results.into_iter().next() {
                Some(MultiResult::SetData(stat)) => Some(stat.into()),
                _ => None,
            },
            Applied::Lost(zxid) => {
                let found = write::found(&client, &path, zxid, |stat| stat.mzxid, deadline);
                Box::pin(found).await
            }
        };
        self.writing(&about, self.operations(multi), None, stat)
    }

    /// Deletes a znode, which must have no children. If a version is given, the znode must have that
    /// version.
    ///
    /// After a **connection loss**, the request is repeated: one znode is deleted, and never another
    /// one that was created in its place since. **Cancel safe** in that the znode is deleted by this
    /// call or not. Needs DELETE on the parent.
    ///
    /// # Errors
    ///
    /// As for [`create`](Self::create). `NO_NODE` always means that another client has deleted the
    /// znode.
    pub fn delete(&self, path: &str, version: Option<Version>) -> Call<(), SettledError> {
        let operations = self.operations(Multi::new().delete(path, version));
        self.writing(&path.into(), operations, None, async |_, _, _| ())
    }

    /// Commits writes together or not at all. Returns one result per write, or `None` if they were
    /// applied and the reply was lost.
    ///
    /// If one of the writes creates an ephemeral znode, all of them belong to the session in which
    /// this call was first polled.
    ///
    /// After a **connection loss**, the transaction is repeated, and applied once. **Cancel safe** in
    /// that it is applied once or not at all. Needs the permissions of its operations.
    ///
    /// # Errors
    ///
    /// As for [`create`](Self::create).
    pub fn commit(&self, multi: Multi) -> Call<Option<Vec<MultiOutcome>>, SettledError> {
        let outcomes = async |_, applied, _| match applied {
            Applied::Replied(results) => Some(Session::outcomes(results)),
            Applied::Lost(_) => None,
        };
        self.writing(&self.profile.directory, self.operations(multi), None, outcomes)
    }

    fn creating(
        &self,
        path: &str,
        data: Bytes,
        options: CreateOptions,
        with_parents: bool,
    ) -> Call<NewZnode, SettledError> {
        let (mode, acl) = Session::of(&self.profile.client).ancestors(&options);
        let ancestors = with_parents.then_some(Ancestors { mode, acl });
        let operations = self.operations(Multi::new().create(path, data, options));
        let is_sequential = matches!(
            operations.as_deref(), Ok([MultiOp::Create(create)]) if create.mode.is_sequential()
        );
        let path = ByteString::from(path);
        let about = path.clone();
        let found = async move |client: Client, applied, deadline| match applied {
            Applied::Replied(results) => match results.into_iter().next() {
                Some(MultiResult::Create2 { path, stat }) => {
                    NewZnode { path: Some(path), stat: Some(stat.into()) }
                }
                Some(MultiResult::Create { path }) => NewZnode { path: Some(path), stat: None },
                _ => NewZnode { path: None, stat: None },
            },
            Applied::Lost(zxid) if is_sequential => {
                let found = Box::pin(write::sequential(&client, &path, zxid, deadline)).await;
                let (path, stat) = found.unzip();
                NewZnode { path, stat }
            }
            Applied::Lost(zxid) => {
                let found = write::found(&client, &path, zxid, |stat| stat.czxid, deadline);
                let stat = Box::pin(found).await;
                NewZnode { path: Some(path), stat }
            }
        };
        self.writing(&about, operations, ancestors, found)
    }

    fn operations(&self, multi: Multi) -> Result<Vec<MultiOp>, OpError> {
        Session::of(&self.profile.client).operations(multi)
    }

    /// Creates a call that applies a transaction, and finds out what the caller wants to know of it.
    fn writing<T: Send + 'static, F: Future<Output = T> + Send>(
        &self,
        path: &ByteString,
        operations: Result<Vec<MultiOp>, OpError>,
        ancestors: Option<Ancestors>,
        found: impl FnOnce(Client, Applied, Option<Time>) -> F + Send + 'static,
    ) -> Call<T, SettledError> {
        let profile = self.profile.clone();
        self.call(path, async move |deadline| {
            check_acl("acl of the markers", &profile.client, &profile.acl)?;
            let operations = operations.map_err(invalid)?;
            let ancestors = ancestors.as_ref();
            let request = Write { operations: &operations, ancestors, session: None };
            let applied = write(&profile, &request, deadline).await?;
            Ok(found(profile.client, applied, deadline).await)
        })
    }

    /// Creates a call with the timeout of this handle.
    fn call<T, E, F>(
        &self,
        path: &ByteString,
        start: impl FnOnce(Option<Time>) -> F + Send + 'static,
    ) -> Call<T, E>
    where
        T: 'static,
        E: MayTimeOut + 'static,
        F: Future<Output = Result<T, E>> + Send,
    {
        let client = &self.profile.client;
        let deadline = self.timeout.map(|timeout| client.now() + timeout);
        Call::new(client, path, start).until(deadline)
    }
}

fn invalid(error: OpError) -> RecipeError {
    let OpError::InvalidPath { path, defect } = error else { return RecipeError::of_client(error) };
    ConfigError::Path { option: "path to write", path, defect }.into()
}

impl fmt::Debug for SettledClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SettledClient")
            .field("directory", &self.profile.directory)
            .field("timeout", &self.timeout)
            .field("is_behind_barrier", &self.is_behind_barrier)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function that takes a future by value keeps it twice, and each one that passes it on, once
    /// more.
    #[tokio::test]
    async fn a_call_has_room_for_one_future() {
        let client = Client::builder("127.0.0.1:1").start().expect("valid");
        let settled = SettledClient::new(&client, "/markers").expect("valid");
        let sizes = [
            settled.get_data("/a").size(),
            settled.set_data("/a", "", None).size(),
            settled.create("/a", "", jute_codec::CreateMode::Persistent).size(),
            settled.delete("/a", None).size(),
        ];
        // Before, it was up to 3,400 bytes.
        assert!(sizes.iter().all(|size| *size < 2048), "{sizes:?}");
    }
}
