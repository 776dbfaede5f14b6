//! What the owner of a znode that a keeper keeps present holds: whether it is present, its data, and
//! its end. Presences and memberships of groups are stays with names and errors of their own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use zk_session::Client;
use zk_session::Time;

use super::keeper::{News, Over, Wanted, start};
use super::machine::profile::{Fate, Profile};
use super::state::{Absence, End, Status};
use crate::engine::call::{Call, ScopedCall};
use crate::engine::drive::{before, reserve};
use crate::error::RecipeError;
use crate::lock::outcome::Released;
use crate::timed_out::MayTimeOut;

/// What the owner of a stay sees of it.
pub(crate) trait View: Clone + PartialEq + Send + Sync {
    /// Why what the owner asks for fails.
    type Error: MayTimeOut + From<RecipeError> + Send + 'static;

    /// Translates what is known of the znode.
    fn of(status: Status) -> Self;

    /// Returns whether this is the last state.
    fn is_over(&self) -> bool;

    /// Returns why the stay did not begin, unless an operation failed or the client has stopped.
    fn in_the_way(path: &str, owner: Option<zk_session::SessionId>) -> Self::Error;

    /// Returns the error of what is asked after the end.
    fn ended(end: End) -> Self::Error;
}

/// A znode that the client keeps present until the stay is dropped.
pub(crate) struct Stay<V> {
    client: Client,
    profile: Arc<Profile>,
    timeout: Option<Duration>,
    wanted: watch::Sender<Wanted>,
    news: watch::Receiver<News>,
    /// The state that the owner knows.
    seen: V,
}

impl<V: View> Stay<V> {
    /// Creates the znode, and waits until it is present.
    pub(crate) async fn begin(
        client: &Client,
        profile: Profile,
        timeout: Option<Duration>,
        deadline: Option<Time>,
        data: Bytes,
    ) -> Result<Self, V::Error> {
        let slot = reserve(client, &profile.path, deadline).await?;
        let profile = Arc::new(profile);
        let (wanted, news) = start(client, slot, &profile, data);
        // If this future is dropped, the stay is dropped with it, and removes its znode.
        let seen = V::of(Status::Absent(Absence::SessionEnded));
        let mut stay = Self { client: client.clone(), profile, timeout, wanted, news, seen };
        let begun = stay.news.wait_for(|news| news.status().is_some());
        let begun = before(client, deadline, begun).await?;
        match begun.map(|news| news.clone()) {
            Ok(News::Present(_)) => {
                stay.seen = stay.state();
                Ok(stay)
            }
            Ok(News::Over(Over::Fate(fate))) => Err(match fate {
                Fate::Failed(failure) => RecipeError::of(failure).into(),
                Fate::NotEphemeral => V::in_the_way(stay.path(), None),
                Fate::Stopped => RecipeError::Closed.into(),
                Fate::Taken(session) => V::in_the_way(stay.path(), Some(session)),
            }),
            Ok(News::Over(Over::Left(_))) | Err(_) => Err(RecipeError::Closed.into()),
        }
    }

    pub(crate) fn state(&self) -> V {
        let status = self.news.borrow().status();
        V::of(match status {
            Some(status @ Status::Over(_)) => status,
            // The keeper publishes an ending before it ends, unless its runtime has shut down.
            Some(status) if self.news.has_changed().is_ok() => status,
            Some(_) | None => Status::Over(End::ClientStopped),
        })
    }

    /// Waits until the state differs from that of the last call. Cancel safe.
    pub(crate) async fn changed(&mut self) -> V {
        loop {
            // A change after this call ends the wait below.
            self.news.mark_unchanged();
            let state = self.state();
            if state != self.seen || state.is_over() {
                self.seen = state.clone();
                return state;
            }
            // After the keeper has ended, the state says so.
            let _ = self.news.changed().await;
        }
    }

    /// Replaces the data. Completes when a server has stored or refused them.
    pub(crate) fn set_data(&self, data: Bytes) -> ScopedCall<'_, (), V::Error> {
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
            let Ok(news) = settled else { return Err(V::ended(End::ClientStopped)) };
            let settled = news.settled().map_err(V::ended)?;
            match &settled.refusal {
                Some(refusal) if settled.generation == own => Err(refusal.clone().into()),
                Some(_) | None => Ok(()),
            }
        })
        .until(deadline)
    }

    /// Removes the znode, and waits until a server has confirmed it.
    pub(crate) fn leave(self) -> Call<Released, V::Error> {
        let Self { client, profile, timeout, wanted, mut news, .. } = self;
        let deadline = timeout.map(|timeout| client.now() + timeout);
        let about = client.clone();
        Call::new(&about, &profile.path, async move |deadline| {
            drop(wanted);
            let over = news.wait_for(|news| matches!(news, News::Over(_)));
            let over = before(&client, deadline, over).await?;
            let Ok(news) = over else { return Err(V::ended(End::ClientStopped)) };
            match &*news {
                News::Over(Over::Left(released)) => Ok(released.clone()?),
                News::Over(Over::Fate(_)) | News::Present(_) => {
                    Err(V::ended(news.settled().err().unwrap_or(End::Left)))
                }
            }
        })
        .until(deadline)
    }

    pub(crate) fn path(&self) -> &str {
        &self.profile.path
    }
}
