//! Paths and subtrees: create what is missing, delete everything.
//!
//! Both reach a state that does not depend on how often a request is applied, so they repeat
//! requests whose outcome is unknown.

mod machine;

use std::fmt;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use zk_session::recipe::Session;
use zk_session::{Acl, Client, Time};

use self::machine::DeleteTree;
use crate::engine::call::{Call, ScopedCall};
use crate::engine::drive::run;
use crate::error::{RecipeError, check_acl, check_path};
use crate::machine::Ensure;

/// Creates missing paths and deletes subtrees, across lost connections and sessions.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
/// # let address = server.listen("127.0.0.1:0").await?;
/// use zk_recipes::{Client, Tree};
///
/// let client = Client::connect(address.to_string()).await?;
/// let tree = Tree::of(&client);
/// tree.ensure("/app/jobs/pending").await?;
/// assert_eq!(tree.delete("/app").await?, 3);
/// # Ok(()) }
/// ```
///
/// After a **connection loss** or the **end of a session**, requests are repeated, because it does
/// not matter who has created or deleted a znode. Without a
/// [timeout](Self::timeout), a call waits for as long as the client has no connection.
#[derive(Clone)]
pub struct Tree {
    client: Client,
    acl: Vec<Acl>,
    timeout: Option<Duration>,
    has_containers: bool,
}

impl Tree {
    /// Creates a handle with default options.
    pub fn of(client: &Client) -> Self {
        let (client, acl) = (client.clone(), Session::of(client).default_acl());
        Self { client, acl, timeout: None, has_containers: false }
    }

    /// Sets the access control list of all znodes that [`ensure`](Self::ensure) creates. If it lets
    /// nobody create and delete, the ancestors get that of the client. Default: that of the client
    /// ([`ClientBuilder::default_acl`](zk_session::ClientBuilder::default_acl)).
    #[must_use]
    pub fn acl(self, acl: Vec<Acl>) -> Self {
        Self { acl, ..self }
    }

    /// Makes each call give up after this time with [`RecipeError::TimedOut`], unless it has a
    /// [timeout of its own](Call::timeout). Part of the work may be done by then. Default: none.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Makes [`ensure`](Self::ensure) create missing ancestors as containers, which servers delete
    /// some time after their last child. Servers that do not know containers get persistent znodes
    /// instead. Default: ancestors are persistent.
    #[must_use]
    pub fn containers(self) -> Self {
        Self { has_containers: true, ..self }
    }

    /// Makes sure that a persistent znode exists, with all its ancestors. Existing znodes are left
    /// as they are, whatever their kind, data and permissions. New ones are empty.
    ///
    /// After a **connection loss**, requests are repeated, and no error is returned. **Cancel safe**:
    /// a dropped future may have created some of the znodes, and a request that was sent may still
    /// create one.
    ///
    /// # Errors
    ///
    /// [`RecipeError::Refused`] if a server refuses a create, for example with `NO_AUTH`, or with
    /// `NO_CHILDREN_FOR_EPHEMERALS` below an ephemeral znode; [`RecipeError::TimedOut`] if there is
    /// a timeout; [`RecipeError::Closed`] and similar errors if the client has stopped;
    /// [`RecipeError::Config`] if the path or the list is invalid.
    pub fn ensure(&self, path: &str) -> Call<(), RecipeError> {
        self.call(path, async |tree, path, deadline| {
            check_acl("acl of the znode", &tree.client, &tree.acl)?;
            if path == "/" {
                return Ok(());
            }
            check_path("path to create", &path)?;
            let mut ensure = Ensure::znode(path, Bytes::new(), tree.acl);
            if !tree.has_containers {
                ensure = ensure.with_persistent_ancestors();
            }
            run(&tree.client, &mut ensure, deadline).await
        })
    }

    /// Deletes a znode with all its descendants. Returns the number of znodes that were deleted. A
    /// znode that does not exist is not an error.
    ///
    /// Up to 64 requests of all directories are in flight at a time: about a round trip for 64 lists
    /// and deletes, and three requests for each znode that has children. Memory use grows with the
    /// number of children of the largest znodes, of which few are listed at a time, not with the
    /// number of descendants. The deletion is not atomic: others see that some of the znodes are
    /// gone and some are not. Znodes that others create meanwhile are deleted too.
    ///
    /// After a **connection loss**, requests are repeated, and no error is returned; a delete whose
    /// reply was lost may not be counted. **Cancel safe**: a dropped future stops the deletion,
    /// except for the requests that were sent.
    ///
    /// # Errors
    ///
    /// [`RecipeError::Refused`] if a server refuses a list or a delete, for example with `NO_AUTH`,
    /// or with `NOT_EMPTY` if others create children as fast as they are deleted;
    /// [`RecipeError::TimedOut`] if there is a timeout; [`RecipeError::TooLarge`] if a list of
    /// children exceeds the client's limit; [`RecipeError::Closed`] and similar errors if the
    /// client has stopped; [`RecipeError::Config`] if the path is invalid, or the root. In all
    /// cases, some of the znodes may be gone.
    pub fn delete(&self, path: &str) -> Call<u64, RecipeError> {
        self.delete_with_progress(path, |_| ())
    }

    /// Deletes like [`delete`](Self::delete), and calls `progress` after each batch of replies with
    /// the number of znodes that were deleted so far.
    ///
    /// After a **connection loss**, requests are repeated, as in `delete`. **Cancel safe** in the same
    /// way.
    ///
    /// # Errors
    ///
    /// Fails like [`delete`](Self::delete).
    pub fn delete_with_progress<'a>(
        &self,
        path: &str,
        progress: impl FnMut(u64) + Send + 'a,
    ) -> ScopedCall<'a, u64, RecipeError> {
        self.call(path, async |tree, path, deadline| {
            delete(&tree.client, path, deadline, progress).await
        })
    }

    /// Creates a call with the timeout of this handle.
    fn call<'a, T: 'a, F: Future<Output = Result<T, RecipeError>> + Send>(
        &self,
        path: &str,
        start: impl FnOnce(Self, ByteString, Option<Time>) -> F + Send + 'a,
    ) -> ScopedCall<'a, T, RecipeError> {
        let (tree, path) = (self.clone(), ByteString::from(path));
        let deadline = self.timeout.map(|timeout| self.client.now() + timeout);
        ScopedCall::new(&self.client, &path.clone(), |deadline| start(tree, path, deadline))
            .until(deadline)
    }
}

async fn delete(
    client: &Client,
    path: ByteString,
    deadline: Option<Time>,
    mut progress: impl FnMut(u64),
) -> Result<u64, RecipeError> {
    check_path("path to delete", &path)?;
    let mut machine = DeleteTree::new(path);
    loop {
        let batch = run(client, &mut machine, deadline).await?;
        progress(batch.deleted);
        if batch.is_last {
            return Ok(batch.deleted);
        }
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree")
            .field("acl", &self.acl)
            .field("timeout", &self.timeout)
            .field("containers", &self.has_containers)
            .finish_non_exhaustive()
    }
}
