//! Receivers of one-shot watches.

use std::sync::Arc;

use bytestring::ByteString;
use thiserror::Error;
use tokio::sync::oneshot;

use crate::driver::shared::{Command, Shared};
use crate::types::WatchedEvent;

/// Why a watch ended without an event.
#[derive(Clone, Copy, Debug, Eq, Error, Hash, PartialEq)]
#[non_exhaustive]
pub enum WatchEnded {
    /// The client was closed, or its credentials were refused.
    #[error("client closed")]
    Closed,
    /// The session of the watch has expired.
    #[error("session expired")]
    SessionExpired,
}

/// Waits for the event of a one-shot watch.
///
/// The watch survives the loss of its connection: it is restored on the next one, and fires if the
/// znode changed in between. It ends with its session.
///
/// Dropping the watcher forgets the watch here. The server may still fire it once; that is ignored.
#[derive(Debug)]
#[must_use = "a dropped watcher sees no event"]
pub struct Watcher {
    pub(crate) shared: Arc<Shared>,
    pub(crate) owner: u64,
    pub(crate) path: ByteString,
    pub(crate) event: oneshot::Receiver<Result<WatchedEvent, WatchEnded>>,
}

impl Watcher {
    /// Waits for the event. Cancel safe. After the first answer it fails with
    /// [`WatchEnded::Closed`].
    ///
    /// # Errors
    ///
    /// The session has ended.
    pub async fn changed(&mut self) -> Result<WatchedEvent, WatchEnded> {
        // A receiver that has answered must not be polled again.
        if self.event.is_terminated() {
            return Err(WatchEnded::Closed);
        }
        match (&mut self.event).await {
            Ok(Ok(event)) => Ok(WatchedEvent { path: self.path.clone(), ..event }),
            Ok(Err(ended)) => Err(ended),
            Err(_) => Err(WatchEnded::Closed),
        }
    }

    /// Path of the watched znode.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.shared.commands.send(Command::ForgetOwner(self.owner));
    }
}
