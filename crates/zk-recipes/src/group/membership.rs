//! The right of a process to be listed as a member, for as long as it wants to.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use zk_session::recipe::Session;
use zk_session::{Client, Time};

use super::error::GroupError;
use super::keeper::{News, Over, Wanted, start};
use super::machine::presence::{Fate, MemberProfile};
use super::state::{Absence, Ending, MembershipState};
use crate::engine::call::{Call, ScopedCall};
use crate::engine::drive::before;
use crate::error::RecipeError;
use crate::lock::outcome::Released;

/// A member of a group, as the process that it stands for sees it.
///
/// The client keeps the member present, in this session and in later ones, until
/// [`leave`](Self::leave) or until the membership is dropped. It also keeps the client's session
/// open. Dropping it removes the znode in the background, as soon as a server is reachable and no
/// later than the end of the session.
#[must_use = "a membership that is dropped leaves the group"]
pub struct Membership {
    client: Client,
    profile: Arc<MemberProfile>,
    timeout: Option<Duration>,
    wanted: watch::Sender<Wanted>,
    news: watch::Receiver<News>,
    /// The state that the owner knows.
    seen: MembershipState,
}

impl Membership {
    /// Joins a group, and waits until the member is present.
    pub(super) async fn join(
        client: &Client,
        profile: MemberProfile,
        timeout: Option<Duration>,
        deadline: Option<Time>,
        data: Bytes,
    ) -> Result<Self, GroupError> {
        let session = Session::of(client);
        let slot = before(client, deadline, session.reserve_slot(&profile.path)).await?;
        let profile = Arc::new(profile);
        let (wanted, news) = start(client, slot, &profile, data);
        // If this future is dropped, the membership is dropped with it, and leaves.
        let seen = MembershipState::Rejoining(Absence::SessionEnded);
        let mut membership = Self { client: client.clone(), profile, timeout, wanted, news, seen };
        let joined = membership.news.wait_for(|news| news.state().is_some());
        let joined = before(client, deadline, joined).await?;
        let news = joined.map(|news| news.clone());
        let path = || membership.profile.path.to_string();
        match news {
            Ok(News::Present(_)) => {
                membership.seen = membership.state();
                Ok(membership)
            }
            Ok(News::Over(Over::Fate(fate))) => Err(match fate {
                Fate::Failed(failure) => RecipeError::of(failure).into(),
                Fate::NotEphemeral => GroupError::NotEphemeral { path: path() },
                Fate::Stopped => GroupError::Recipe(RecipeError::Closed),
                Fate::Taken(session) => GroupError::IdTaken { path: path(), session },
            }),
            Ok(News::Over(Over::Left(_))) | Err(_) => Err(RecipeError::Closed.into()),
        }
    }

    /// Returns whether this process is a member, as far as the client knows.
    pub fn state(&self) -> MembershipState {
        let state = self.news.borrow().state();
        match state {
            Some(state @ MembershipState::Ended(_)) => state,
            // The keeper publishes an ending before it ends, unless its runtime has shut down.
            Some(state) if self.news.has_changed().is_ok() => state,
            Some(_) | None => MembershipState::Ended(Ending::ClientStopped),
        }
    }

    /// Waits until the state differs from that of the last call, or of the join, and returns it.
    /// States that follow each other fast may be skipped. After the end of the membership, every
    /// call returns at once.
    ///
    /// A lost **connection** is no change: whether the session has survived it is only known after
    /// the next reconnect. **Cancel safe**: no change is lost.
    ///
    /// # Errors
    ///
    /// It never fails, because the end of the membership is a state.
    pub async fn changed(&mut self) -> MembershipState {
        loop {
            // A change after this call ends the wait below.
            self.news.mark_unchanged();
            let state = self.state();
            if state != self.seen || matches!(state, MembershipState::Ended(_)) {
                self.seen = state.clone();
                return state;
            }
            // After the keeper has ended, the state says so.
            let _ = self.news.changed().await;
        }
    }

    /// Replaces the data of the member. Completes when a server has stored them or, if the member
    /// is absent at present, when it has rejoined with them. If there is nothing to wait for, the
    /// cost is one round trip.
    ///
    /// After a **connection loss**, the write is replayed behind a write barrier, and no error is
    /// returned. **Not cancel safe**: a dropped future, and one that has timed out, do not withdraw
    /// the data. A later call replaces them.
    ///
    /// # Errors
    ///
    /// [`GroupError::Ended`] if the membership has ended. [`RecipeError::Refused`] or
    /// [`RecipeError::TooLarge`] if the data were not accepted: then the member keeps its earlier
    /// data. [`RecipeError::TimedOut`] after the group's timeout, or that of the call.
    pub fn set_data(&self, data: impl Into<Bytes>) -> ScopedCall<'_, (), GroupError> {
        let data = data.into();
        let deadline = self.timeout.map(|timeout| self.client.now() + timeout);
        ScopedCall::new(&self.client, &self.profile.path, async move |deadline| {
            let mut own = 0;
            self.wanted.send_modify(|wanted| {
                wanted.generation += 1;
                wanted.data = data;
                own = wanted.generation;
            });
            let mut news = self.news.clone();
            let is_settled =
                |news: &News| news.settled().map_or(true, |settled| settled.generation >= own);
            let settled = before(&self.client, deadline, news.wait_for(is_settled)).await?;
            let Ok(news) = settled else { return Err(GroupError::Ended(Ending::ClientStopped)) };
            let settled = news.settled().map_err(GroupError::Ended)?;
            match &settled.refusal {
                Some(refusal) if settled.generation == own => Err(refusal.clone().into()),
                Some(_) | None => Ok(()),
            }
        })
        .until(deadline)
    }

    /// Leaves the group: removes the znode, and waits until a server has confirmed it.
    ///
    /// After a **connection loss**, the removal is replayed. **Cancel safe** in that the member
    /// leaves in any case; a dropped future does not wait for it.
    ///
    /// # Errors
    ///
    /// [`GroupError::Ended`] if the membership had ended before. [`RecipeError::Refused`] if the
    /// server refuses to delete the znode, which the client then tries again in the background for
    /// as long as the session lives. [`RecipeError::TimedOut`] after the group's timeout.
    pub fn leave(self) -> Call<Released, GroupError> {
        let Self { client, profile, timeout, wanted, mut news, .. } = self;
        let deadline = timeout.map(|timeout| client.now() + timeout);
        let about = client.clone();
        Call::new(&about, &profile.path, async move |deadline| {
            drop(wanted);
            let over = news.wait_for(|news| matches!(news, News::Over(_)));
            let over = before(&client, deadline, over).await?;
            let Ok(news) = over else { return Err(GroupError::Ended(Ending::ClientStopped)) };
            match &*news {
                News::Over(Over::Left(released)) => Ok(released.clone()?),
                News::Over(Over::Fate(_)) | News::Present(_) => {
                    Err(GroupError::Ended(news.settled().err().unwrap_or(Ending::Left)))
                }
            }
        })
        .until(deadline)
    }

    /// Returns the path of the member's znode.
    pub fn path(&self) -> &str {
        &self.profile.path
    }
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Membership")
            .field("path", &self.path())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
