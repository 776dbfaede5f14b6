//! The keeper of a presence: a duty of the session's janitor that keeps the znode present until its
//! owner has had enough, and then removes the znode.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;
use tracing::{Instrument as _, debug_span};
use zk_session::recipe::{Abridged, Session, Slot};
use zk_session::{Client, OpError};

use super::machine::presence::Keep;
use super::machine::profile::{Fate, Profile, Report, Settled};
use super::state::{End, Status};
use crate::engine::attended::abandon;
use crate::engine::drive::{Supervisor, drive};
use crate::engine::feed::{Feed, FeedEvent};
use crate::engine::removal::{self, Ended};
use crate::error::RecipeError;
use crate::lock::outcome::Released;
use crate::machine::{Failure, Input, Repeating};

/// The data that the owner of a presence wants. When the sender is dropped, the presence ends.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) data: Bytes,
    pub(super) generation: u64,
}

/// What a keeper tells the owner of the presence.
#[derive(Clone, Debug)]
pub(super) enum News {
    /// The znode is present, or will be.
    Present(Report),
    /// The presence is over.
    Over(Over),
}

/// How a presence has ended.
#[derive(Clone, Debug)]
pub(super) enum Over {
    /// It has ended by itself.
    Fate(Fate),
    /// Its owner has ended it. The result is that of the removal of the znode.
    Left(Result<Released, RecipeError>),
}

/// Starts the keeper of a new presence.
pub(super) fn start(
    client: &Client,
    slot: Slot,
    profile: &Arc<Profile>,
    data: Bytes,
) -> (watch::Sender<Wanted>, watch::Receiver<News>) {
    let session = Session::of(client);
    let presence = Repeating::new(Keep::new(Arc::clone(profile), data.clone()));
    let (owner, wanted) = watch::channel(Wanted { data, generation: 1 });
    let (news, received) = watch::channel(News::Present(presence.machine.report()));
    let span = debug_span!("presence", path = %Abridged(&profile.path));
    slot.keep(keep(Feed::new(session.lane()), presence, wanted, news).instrument(span));
    (owner, received)
}

async fn keep(
    mut feed: Feed,
    mut presence: Repeating<Keep>,
    mut wanted: watch::Receiver<Wanted>,
    news: watch::Sender<News>,
) {
    let mut keeping = Keeping { news: &news };
    let fate = loop {
        let changed = tokio::select! {
            biased;
            changed = wanted.changed() => changed,
            fate = drive(&mut feed, &mut presence, &mut keeping) => {
                break Some(fate.unwrap_or_else(|fate| fate));
            }
        };
        if changed.is_err() {
            break None;
        }
        let Wanted { data, generation } = wanted.borrow_and_update().clone();
        presence.machine.want(data, generation);
    };
    let has_left = fate.is_none();
    if let Some(fate) = fate {
        news.send_replace(News::Over(Over::Fate(fate)));
    }
    let _due = feed.lane.due();
    let removal =
        abandon(presence.machine, &mut feed).expect("a presence may always leave its znode");
    let ended = removal::run(&mut feed, removal, tracing::Span::current(), |_| {}).await;
    if has_left {
        news.send_replace(News::Over(Over::Left(match ended {
            Ended::Removed(released) => Ok(released),
            Ended::Refused(refusal) => {
                let action = crate::machine::FailedAction::Delete;
                Err(RecipeError::of(Failure::new(action, refusal.path, refusal.error)))
            }
            Ended::Stopped => Err(RecipeError::Closed),
        })));
    }
}

/// Supervises a presence, and publishes its state.
struct Keeping<'a> {
    news: &'a watch::Sender<News>,
}

impl Supervisor<Keep> for Keeping<'_> {
    type Stop = Fate;

    fn translate(&mut self, _: &mut Feed, event: FeedEvent) -> Result<Option<Input>, Fate> {
        match event {
            FeedEvent::Input(input) => Ok(Some(input)),
            FeedEvent::AuthFailed | FeedEvent::Closed => Err(Fate::Stopped),
            FeedEvent::Connected(_) | FeedEvent::Lapsed => Ok(None),
        }
    }

    fn rejected(&mut self, _: OpError) -> Fate {
        Fate::Stopped
    }

    fn before_wait(&mut self, presence: &Keep, _: &mut Feed) {
        self.news.send_if_modified(|news| {
            let report = presence.report();
            let is_new = !matches!(news, News::Present(known) if *known == report);
            *news = News::Present(report);
            is_new
        });
    }
}

impl News {
    /// Returns the status of a presence that has begun. `None` means that its znode was never
    /// created.
    pub(super) fn status(&self) -> Option<Status> {
        match self {
            Self::Present(report) => report.standing.clone().map(Status::from),
            Self::Over(over) => Some(Status::Over(over.end())),
        }
    }

    /// Returns which data were accepted or refused, or how the presence has ended.
    pub(super) fn settled(&self) -> Result<&Settled, End> {
        match self {
            Self::Present(report) => Ok(&report.settled),
            Self::Over(over) => Err(over.end()),
        }
    }
}

impl Over {
    fn end(&self) -> End {
        match self {
            Self::Fate(Fate::NotEphemeral) => End::NotEphemeral,
            Self::Fate(Fate::Taken(session)) => End::Taken(*session),
            // Only a first create can fail, and then the presence has never begun.
            Self::Fate(Fate::Failed(_) | Fate::Stopped) => End::ClientStopped,
            Self::Left(_) => End::Left,
        }
    }
}
