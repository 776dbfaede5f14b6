//! Running a machine that may leave a znode, for a caller who may drop the future at any moment.

use bytestring::ByteString;
use tracing::debug;
use zk_session::Client;
use zk_session::Time;
use zk_session::recipe::{Session, Slot};

use super::drive::{Caller, Unattended, drive};
use super::feed::Feed;
use crate::machine::{Interrupted, Leaving};

/// A machine with a slot of the janitor. When it is dropped, whether the machine has ended or not,
/// the janitor removes the znode that the machine may have left.
pub(crate) struct Attended<M: Leaving> {
    /// `None` after the drop.
    parts: Option<(M, Feed, Slot)>,
}

impl<M: Leaving> Attended<M> {
    /// Prepares the machine. Waits while all slots of the janitor are taken.
    pub(crate) async fn new(client: &Client, machine: M, path: &ByteString) -> Self {
        let session = Session::of(client);
        let slot = session.reserve_slot(path).await;
        Self { parts: Some((machine, Feed::new(session.lane()), slot)) }
    }

    pub(crate) async fn run(&mut self, deadline: Option<Time>) -> Result<M::Output, Interrupted> {
        let (machine, feed, _) = self.parts.as_mut().expect("it has not been dropped");
        drive(feed, machine, &mut Caller { deadline }).await
    }

    /// Returns the machine, and whether its flight is pending.
    pub(crate) fn state(&self) -> (&M, bool) {
        let (machine, feed, _) = self.parts.as_ref().expect("it has not been dropped");
        (machine, feed.pending.is_some())
    }
}

impl<M: Leaving> Drop for Attended<M> {
    fn drop(&mut self) {
        let Some((machine, mut feed, slot)) = self.parts.take() else { return };
        let Some(mut removal) = machine.abandon(feed.pending.is_some()) else { return };
        if let Some(token) = feed.pending {
            // If the request has not been sent yet, there is no need to send it.
            feed.lane.recall(token);
        }
        slot.run(async move {
            let ended = drive(&mut feed, &mut removal, &mut Unattended).await;
            debug!(?ended, "removed what a recipe may have left");
        });
    }
}
