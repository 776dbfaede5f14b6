//! Reads that settle, and watches that are set for certain.

use bytes::Bytes;
use bytestring::ByteString;
use zk_session::{
    Acl, Client, ConfigError, EnsembleConfig, Identity, MultiRead, Op, OpError, ReadOutcome, Stat,
    WatchOptions, WatchStream, Watcher,
};

use super::again::Again;
use super::{SettledClient, ZnodeChanges};
use crate::action::FailedAction;
use crate::engine::call::Call;
use crate::error::{RecipeError, check_path};

/// The znode that has the configuration of the ensemble.
pub(super) const CONFIG: &str = "/zookeeper/config";

/// # Reads
///
/// After a **connection loss**, the request is repeated, and no error is returned. Reads are **cancel
/// safe**.
///
/// **Errors** of all of these: [`RecipeError::Refused`] if a server refuses the request, with
/// `NO_NODE` if the znode does not exist; [`RecipeError::TimedOut`] after a timeout;
/// [`RecipeError::Closed`] and similar errors if the client has stopped; [`RecipeError::Config`] if
/// the path is invalid; [`RecipeError::Client`] if the server is too old for the request, or its reply
/// cannot be read.
///
/// **Watches.** A method that ends with `_and_watch` returns its [`Watcher`] together with the reply.
/// The reply shows that the watch is set, and since when: the watch fires for the first change after
/// the state that was returned. From then on the client restores it on each new connection, so it is
/// reliable until it fires or its session ends, which the watcher reports. A watch whose reply was
/// lost is replaced by that of the next reply.
impl SettledClient {
    /// Reads the data and metadata of a znode. Needs READ.
    ///
    /// Repeated after a lost connection. **Cancel safe**.
    ///
    /// # Errors
    ///
    /// Those of all reads, see above.
    pub fn get_data(&self, path: &str) -> Call<(Bytes, Stat), RecipeError> {
        self.reading(path, FailedAction::Read, Client::get_data)
    }

    /// Like [`get_data`](Self::get_data), and watches the znode, as
    /// [`Client::get_data_and_watch`] does.
    ///
    /// Repeated after a lost connection. **Cancel safe**.
    ///
    /// # Errors
    ///
    /// Those of all reads, see above.
    pub fn get_data_and_watch(&self, path: &str) -> Call<((Bytes, Stat), Watcher), RecipeError> {
        self.reading(path, FailedAction::Read, Client::get_data_and_watch)
    }

    /// Lists the names of a znode's children, in no particular order. Needs READ.
    ///
    /// Repeated after a lost connection. **Cancel safe**.
    ///
    /// # Errors
    ///
    /// Those of all reads, see above.
    pub fn get_children(&self, path: &str) -> Call<Vec<ByteString>, RecipeError> {
        self.reading(path, FailedAction::List, Client::get_children)
    }

    /// Like [`get_children`](Self::get_children), and watches the children, as
    /// [`Client::get_children_and_watch`] does.
    ///
    /// Repeated after a lost connection. **Cancel safe**.
    ///
    /// # Errors
    ///
    /// Those of all reads, see above.
    pub fn get_children_and_watch(
        &self,
        path: &str,
    ) -> Call<(Vec<ByteString>, Watcher), RecipeError> {
        self.reading(path, FailedAction::List, Client::get_children_and_watch)
    }

    /// Lists the names of a znode's children, in no particular order, and reads the znode's own
    /// metadata. Needs READ.
    ///
    /// Repeated after a lost connection. **Cancel safe**.
    ///
    /// # Errors
    ///
    /// Those of all reads, see above.
    pub fn get_children_with_stat(&self, path: &str) -> Call<(Vec<ByteString>, Stat), RecipeError> {
        self.reading(path, FailedAction::List, Client::get_children_with_stat)
    }

    /// Like [`get_children_with_stat`](Self::get_children_with_stat), and watches the children.
    ///
    /// Repeated after a lost connection. **Cancel safe**.
    ///
    /// # Errors
    ///
    /// Those of all reads, see above.
    pub fn get_children_with_stat_and_watch(
        &self,
        path: &str,
    ) -> Call<((Vec<ByteString>, Stat), Watcher), RecipeError> {
        self.reading(path, FailedAction::List, Client::get_children_with_stat_and_watch)
    }

    /// Reads the metadata of a znode. Returns `None` if it does not exist. Servers since 3.8.4 and
    /// 3.9.2 need READ.
    ///
    /// Repeated after a lost connection. **Cancel safe**.
    ///
    /// # Errors
    ///
    /// Those of all reads, see above.
    pub fn exists(&self, path: &str) -> Call<Option<Stat>, RecipeError> {
        self.reading(path, FailedAction::Check, Client::exists)
    }

    /// Like [`exists`](Self::exists), and watches the znode, whether it exists or not.
    ///
    /// Repeated after a lost connection. **Cancel safe**.
    ///
    /// # Errors
    ///
    /// Those of all reads, see above.
    pub fn exists_and_watch(&self, path: &str) -> Call<(Option<Stat>, Watcher), RecipeError> {
        self.reading(path, FailedAction::Check, Client::exists_and_watch)
    }

    /// Reads the access control list and the metadata of a znode. Needs READ or ADMIN; without ADMIN,
    /// newer servers hide the passwords of `digest` identities.
    ///
    /// Repeated after a lost connection. **Cancel safe**.
    ///
    /// # Errors
    ///
    /// Those of all reads, see above.
    pub fn get_acl(&self, path: &str) -> Call<(Vec<Acl>, Stat), RecipeError> {
        self.reading(path, FailedAction::ReadAcl, Client::get_acl)
    }

    /// Executes several reads in one request, as [`Client::multi_read`] does. Servers know it since
    /// 3.6.
    ///
    /// Repeated after a lost connection. **Cancel safe**.
    ///
    /// # Errors
    ///
    /// Those of all reads, see above; those of single reads are in the results.
    pub fn multi_read(
        &self,
        reads: MultiRead,
    ) -> Call<Vec<Result<ReadOutcome, OpError>>, RecipeError> {
        self.reading("/", FailedAction::Read, move |client, _| client.multi_read(reads.clone()))
    }

    /// Counts all descendants of a znode, as [`Client::count_descendants`] does. Servers know it since
    /// 3.6. Needs READ.
    ///
    /// Repeated after a lost connection. **Cancel safe**.
    ///
    /// # Errors
    ///
    /// Those of all reads, see above.
    pub fn count_descendants(&self, path: &str) -> Call<usize, RecipeError> {
        self.reading(path, FailedAction::List, Client::count_descendants)
    }

    /// Lists the paths of ephemeral znodes of the session, as [`Client::get_ephemerals`] does. If the
    /// session ends in between, these are the znodes of the session that follows. Servers know it
    /// since 3.6.
    ///
    /// Repeated after a lost connection. **Cancel safe**.
    ///
    /// # Errors
    ///
    /// Those of all reads, see above.
    pub fn get_ephemerals(&self, prefix: &str) -> Call<Vec<ByteString>, RecipeError> {
        self.reading(prefix, FailedAction::List, Client::get_ephemerals)
    }

    /// Lists the identities that the server attributes to the connection on which the reply arrives,
    /// as [`Client::who_am_i`] does. Servers know it since 3.7.
    ///
    /// Repeated after a lost connection. **Cancel safe**.
    ///
    /// # Errors
    ///
    /// Those of all reads, see above.
    pub fn who_am_i(&self) -> Call<Vec<Identity>, RecipeError> {
        self.reading("/", FailedAction::Read, |client, _| client.who_am_i())
    }

    /// Reads the configuration of the ensemble, as [`Client::get_config`] does.
    ///
    /// Repeated after a lost connection. **Cancel safe**.
    ///
    /// # Errors
    ///
    /// Those of all reads, see above.
    pub fn get_config(&self) -> Call<EnsembleConfig, RecipeError> {
        self.reading(CONFIG, FailedAction::Read, |client, _| client.get_config())
    }

    /// Like [`get_config`](Self::get_config), and watches the configuration.
    ///
    /// Repeated after a lost connection. **Cancel safe**.
    ///
    /// # Errors
    ///
    /// Those of all reads, see above.
    pub fn get_config_and_watch(&self) -> Call<(EnsembleConfig, Watcher), RecipeError> {
        self.reading(CONFIG, FailedAction::Read, |client, _| client.get_config_and_watch())
    }

    /// Sets a watch that stays, as [`Client::watch`] does. The stream is returned with the reply that
    /// sets the watch; all later changes are reported, until the session ends. Servers know it since
    /// 3.6. Needs READ.
    ///
    /// Repeated after a lost connection. **Cancel safe**.
    ///
    /// # Errors
    ///
    /// Those of all reads, see above.
    pub fn watch(
        &self,
        path: &str,
        options: impl Into<WatchOptions>,
    ) -> Call<WatchStream, RecipeError> {
        let options = options.into();
        self.reading(path, FailedAction::Read, move |client, path| client.watch(path, options))
    }

    /// Waits until a server has applied everything that was committed before the call, by any client,
    /// as [`Client::catch_up`] does. Later reads of the session are not older.
    ///
    /// Repeated after a lost connection. **Cancel safe**.
    ///
    /// # Errors
    ///
    /// Those of all reads, see above.
    pub fn catch_up(&self) -> Call<(), RecipeError> {
        self.reading("/", FailedAction::Write, |client, _| client.catch_up())
    }

    /// Sends a sync, as [`Client::sync`] does, until there is a reply. What a sync does not prove, its
    /// repetition does not prove either; prefer [`catch_up`](Self::catch_up).
    ///
    /// Repeated after a lost connection. **Cancel safe**.
    ///
    /// # Errors
    ///
    /// Those of all reads, see above.
    pub fn sync(&self, path: &str) -> Call<(), RecipeError> {
        self.reading(path, FailedAction::Read, Client::sync)
    }

    /// Returns the states of a znode: what it is now, and what it is after each change. This does no
    /// I/O. A [barrier](Self::behind_barrier) and the [timeout](Self::timeout) of this handle do not
    /// concern it.
    ///
    /// The stream repeats its reads after a lost connection; see [`ZnodeChanges::next`].
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path.
    pub fn changes(&self, path: &str) -> Result<ZnodeChanges, ConfigError> {
        if path != "/" {
            check_path("path to read", path)?;
        }
        Ok(ZnodeChanges::new(&self.profile.client, path))
    }

    /// Creates a call that issues a read until there is a reply.
    fn reading<T: Send + 'static>(
        &self,
        path: &str,
        action: FailedAction,
        mut read: impl FnMut(&Client, &str) -> Op<T> + Send + 'static,
    ) -> Call<T, RecipeError> {
        let (client, path) = (self.profile.client.clone(), ByteString::from(path));
        let (about, has_barrier) = (path.clone(), self.is_behind_barrier);
        self.call(&about, async move |deadline| {
            let (client, path) = (&client, &path);
            let again = Again { client, is_bound: false, has_barrier, deadline, action, path };
            again.run(|client| read(client, path)).await
        })
    }
}
