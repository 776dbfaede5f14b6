//! Revocation: a contender asks the holder of a lock to release it, and the holder decides.
//!
//! The request is a write of [`REVOKE`] to the holder's znode, as Curator's `Revoker` does it. The
//! keeper of a lock reads its znode when somebody waits for requests for the first time, and after
//! each change of the data. A lock for whose requests nobody waits costs no additional read.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use tokio::sync::{Notify, watch};
use zk_session::{Client, Version};

use crate::action::FailedAction;
use crate::engine::call::Call;
use crate::engine::drive::run;
use crate::error::RecipeError;
use crate::machine::{ReadAll, write};

/// The data that requests a revocation.
const REVOKE: &[u8] = b"__REVOKE__";

/// Asks the contender with this znode to release its lock or to give up waiting. Returns whether
/// the znode existed. The contender may ignore the request.
///
/// Take the path from a [`Contender`](crate::Contender), or from the contender's log. A holder
/// learns of the request through [`Guard::revocation_requested`](crate::Guard::revocation_requested),
/// and one that uses Curator through the listener of `makeRevocable`. A contender that still waits
/// learns of it after the grant.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
/// # let address = server.listen("127.0.0.1:0").await?;
/// # let client = zk_recipes::Client::connect(address.to_string()).await?;
/// use zk_recipes::{FairLock, request_revocation};
///
/// let lock = FairLock::new(&client, "/locks/billing")?;
/// let guard = lock.acquire().await?;
/// if let Some(holder) = lock.contenders().await?.first() {
///     request_revocation(&client, &holder.path).await?;
/// }
/// guard.revocation_requested().await;
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// The request replaces the contender's identity, which [`Contender`](crate::Contender) shows.
///
/// After a **connection loss**, the write is repeated, which changes nothing, because the name of
/// the znode is unique. **Cancel safe** in that the request is written or not, and so it is after a
/// [timeout](Call::timeout).
///
/// # Errors
///
/// [`RecipeError::Refused`] if the access control list of the znode denies WRITE, or the path is
/// invalid; [`RecipeError::TimedOut`]; [`RecipeError::Closed`] and similar errors if the client has
/// stopped.
pub fn request_revocation(client: &Client, contender: &str) -> Call<bool, RecipeError> {
    let (writer, path) = (client.clone(), ByteString::from(contender));
    let operation = write(path.clone(), Bytes::from_static(REVOKE), Version::ANY);
    // The write may be repeated as often as a read.
    let mut writing = ReadAll::new(vec![operation], FailedAction::Write, &path);
    Call::new(client, &path, async move |deadline| {
        let written = run(&writer, &mut writing, deadline).await?;
        Ok(written.first().is_some_and(Option::is_some))
    })
}

/// Whether the revocation of a lock was requested.
#[derive(Debug, Default)]
pub(crate) struct Revocation {
    request: watch::Sender<bool>,
    interest: Notify,
}

impl Revocation {
    /// Takes note of the data of the holder's znode.
    pub(super) fn found(&self, data: Option<&Bytes>) {
        if data.is_some_and(|data| *data == REVOKE) {
            self.request.send_replace(true);
        }
    }

    /// Completes once for all that have begun to wait for a request since the last time.
    pub(super) async fn interest(&self) {
        self.interest.notified().await;
    }

    /// Waits for a request. Never completes if the lock ends first.
    pub(super) fn requested(self: &Arc<Self>) -> impl Future<Output = ()> + Send + use<> {
        let revocation = Arc::clone(self);
        async move {
            let mut request = revocation.request.subscribe();
            revocation.interest.notify_one();
            // This cannot fail, because the sender lives as long as this future.
            let _ = request.wait_for(|is_requested| *is_requested).await;
        }
    }
}
