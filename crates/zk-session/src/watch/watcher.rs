//! Receivers of one-shot watches.

use std::fmt;
use std::sync::Arc;

use bytestring::ByteString;
use tokio::sync::oneshot;

use crate::driver::command::Command;
use crate::driver::shared::Shared;
use crate::error::WatchEnded;
use crate::machine::OwnerId;
use crate::types::WatchedEvent;

/// Waits for the event of a one-shot watch.
///
/// The watch survives the loss of its connection: the client restores it on the next one, and it
/// fires if the znode changed in between. The watch ends with its session.
///
/// From 3.8.4 and 3.9.2 on, a server discards an event about a znode that the client may not read at
/// that moment, and the watch with it, even if the client may read the znode again later. So code
/// that waits for long has to look now and then, as the recipes do.
///
/// Dropping the watcher removes the watch from the client. The server may still send the event; the
/// client then ignores it. A watcher keeps the client's session open.
#[must_use = "a dropped watcher receives no event"]
pub struct Watcher {
    pub(crate) shared: Arc<Shared>,
    pub(crate) owner: OwnerId,
    pub(crate) path: ByteString,
    pub(crate) event: oneshot::Receiver<Result<WatchedEvent, WatchEnded>>,
}

impl Watcher {
    /// Waits for the event. Returns it once; each later call fails with [`WatchEnded::Closed`].
    ///
    /// Cancel safe: the event is not lost.
    ///
    /// # Errors
    ///
    /// Fails if the session has ended.
    pub async fn changed(&mut self) -> Result<WatchedEvent, WatchEnded> {
        // A oneshot receiver panics if it is polled after completion.
        if self.event.is_terminated() {
            return Err(WatchEnded::Closed);
        }
        match (&mut self.event).await {
            Ok(Ok(event)) => Ok(WatchedEvent { path: self.path.clone(), ..event }),
            Ok(Err(ended)) => Err(ended),
            Err(_) => Err(WatchEnded::Closed),
        }
    }

    /// Returns the path of the watched znode.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.send(Command::RemoveOwner(self.owner));
    }
}
