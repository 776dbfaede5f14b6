//! Running a machine that may leave a znode, for a caller who may drop the future at any moment.

use std::time::Duration;

use bytestring::ByteString;
use tracing::{debug, warn};
use zk_session::Client;
use zk_session::recipe::{Session, Slot};
use zk_session::{OpError, Time};

use super::drive::{Caller, ClientStopped, Unattended, before, drive};
use super::feed::Feed;
use crate::error::RecipeError;
use crate::machine::{Failure, Leaving, Machine, Remove, Repeating};

/// Pause after the first refusal of a removal.
pub(crate) const RETRY_FIRST: Duration = Duration::from_secs(1);
/// Longest pause between two retries.
pub(crate) const RETRY_MAX: Duration = Duration::from_secs(60);

/// A machine with a slot of the janitor. When it is dropped, whether the machine has ended or not,
/// the janitor removes the znode that the machine may have left.
pub(crate) struct Attended<M: Leaving> {
    /// `None` after the drop.
    parts: Option<(Repeating<M>, Feed, Slot)>,
}

impl<M: Leaving> Attended<M> {
    /// Prepares the machine. While all slots of the janitor are taken, waits for one, at most until
    /// the deadline.
    pub(crate) async fn new(
        client: &Client,
        machine: M,
        path: &ByteString,
        deadline: Option<Time>,
    ) -> Result<Self, RecipeError> {
        let session = Session::of(client);
        let slot = before(client, deadline, session.reserve_slot(path)).await?;
        let feed = Feed::new(session.lane());
        Ok(Self { parts: Some((Repeating::new(machine), feed, slot)) })
    }

    /// Runs a machine that may fail.
    pub(crate) async fn run<T>(&mut self, deadline: Option<Time>) -> Result<T, RecipeError>
    where
        M: Machine<Output = Result<T, Failure>>,
    {
        let (machine, feed, _) = self.parts.as_mut().expect("it has not been dropped");
        drive(feed, machine, &mut Caller { deadline }).await?.map_err(RecipeError::of)
    }

    /// Runs the machine to its end, and returns its output, or why it was stopped before.
    pub(crate) async fn run_to_end(
        &mut self,
        deadline: Option<Time>,
    ) -> Result<M::Output, RecipeError> {
        let (machine, feed, _) = self.parts.as_mut().expect("it has not been dropped");
        drive(feed, machine, &mut Caller { deadline }).await
    }

    /// Returns the machine, and whether its flight is pending.
    pub(crate) fn state(&self) -> (&M, bool) {
        let (machine, feed, _) = self.parts.as_ref().expect("it has not been dropped");
        (&machine.machine, feed.pending.is_some())
    }
}

impl<M: Leaving> Drop for Attended<M> {
    fn drop(&mut self) {
        let Some((machine, mut feed, slot)) = self.parts.take() else { return };
        let removal = machine.machine.abandon(feed.pending.is_some());
        let Some(mut removal) = removal.map(Repeating::new) else { return };
        if let Some(token) = feed.pending {
            // If the request has not been sent yet, there is no need to send it.
            feed.lane.recall(token);
        }
        slot.run(async move {
            let ended = drive(&mut feed, &mut removal, &mut Unattended).await;
            debug!(?ended, "removed what a recipe may have left");
            if let Ok(Err(Failure { path, error, .. })) = &ended
                && is_refusal(error)
            {
                warn!(%path, %error, "a server refuses to remove a znode of a recipe; retrying");
            }
            conclude(&feed, removal, ended, RETRY_FIRST);
        });
    }
}

/// Returns whether this refusal is an answer of a server. A client that has stopped refuses every
/// request.
fn is_refusal(error: &OpError) -> bool {
    !error.is_session_over() && *error != OpError::AuthFailed
}

/// Retries a refused removal for as long as the session lives, because others may wait for the end
/// of the znode. Keeps the session open only while a retry runs.
fn conclude(
    feed: &Feed,
    mut removal: Repeating<Remove>,
    ended: Result<Result<(), Failure>, ClientStopped>,
    pause: Duration,
) {
    let Ok(Err(Failure { path, error, .. })) = ended else { return };
    if !is_refusal(&error) {
        return;
    }
    feed.lane.after_pause(pause, &path, move |lane| async move {
        let mut feed = Feed::new(lane);
        let ended = drive(&mut feed, &mut removal, &mut Unattended).await;
        debug!(?ended, "retried the removal of what a recipe may have left");
        conclude(&feed, removal, ended, (pause * 2).min(RETRY_MAX));
    });
}
