//! A stream of changes of a group.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytestring::ByteString;
use zk_session::recipe::Session;
use zk_session::{Client, Time, WatchMode};

use super::change::GroupChange;
use super::machine::roster::{Roster, Source};
use crate::engine::drive::{Caller, drive};
use crate::engine::feed::Feed;
use crate::engine::limited::limited;
use crate::engine::persistent::PersistentWatch;
use crate::error::RecipeError;
use crate::machine::{News, Repeating};
use crate::stream::stream;

/// The changes of a group, beginning with a [`Joined`](GroupChange::Joined) for each present
/// member.
///
/// Changes are the differences between what was reported and what the servers show next, across
/// lost connections and renewed sessions. So no member is missed that stays, and nothing is
/// reported twice; a member that joins and leaves again between two looks is not reported. A member
/// that leaves and joins again between two looks is recognised by its czxid, and reported as `Left`
/// and `Joined`.
///
/// **Costs.** The start costs a persistent watch, a list and a read for each member, in three round
/// trips for up to 100 members. Afterwards a member that joins or changes its data costs a read, one
/// that leaves nothing, and a lost connection a list. Every 30 s, the watch tests whether it may still
/// read the directory. Each member and the directory take one watch on the servers. A new session costs as much as the start, and a write barrier. Without
/// [data watches](crate::GroupBuilder::watch_data), one that leaves costs a read, and a lost
/// connection as much as the start.
///
/// **Old servers.** Servers before 3.6 do not know persistent watches. Each member that joins or
/// leaves then costs a list more; without data watches, it costs as much as the start.
///
/// A watch keeps the client's session open.
pub struct GroupWatch {
    client: Client,
    feed: Feed,
    /// Names the members that join.
    names: PersistentWatch,
    roster: Repeating<Roster>,
    has_ended: bool,
}

/// Waits for a future until there is news, which is returned as the error.
async fn before<T>(
    names: &mut PersistentWatch,
    future: impl Future<Output = T>,
) -> Result<T, News> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        if let Poll::Ready(news) = names.poll_next(cx) {
            return Poll::Ready(Err(news));
        }
        future.as_mut().poll(cx).map(Ok)
    })
    .await
}

fn tell(roster: &mut Roster, news: &News) {
    match news {
        News::Event(kind, path) => roster.named(*kind, path),
        News::Lost => roster.follow(None),
        News::Missed => roster.missed(),
        News::Set => roster.follow(Some(Source::Names)),
        News::Unsupported => roster.follow(Some(Source::List)),
    }
}

impl GroupWatch {
    pub(super) fn new(client: &Client, directory: &ByteString, watches_data: bool) -> Self {
        let feed = Feed::new(Session::of(client).lane());
        let roster = Repeating::new(Roster::new(directory.clone(), watches_data));
        let names = PersistentWatch::new(client, directory, WatchMode::Recursive);
        Self { client: client.clone(), feed, names, roster, has_ended: false }
    }

    /// Waits for the next change.
    ///
    /// After a **connection loss**, reads are repeated, and no error is returned. **Cancel safe**:
    /// no change is lost.
    ///
    /// # Errors
    ///
    /// [`RecipeError::Refused`] if the client may not read the directory or a member. The next call
    /// tries again, and pauses before if it was refused several times, for 200 ms at first and at most
    /// 5 s; other changes are reported late meanwhile. [`RecipeError::Closed`] and
    /// similar errors if the client has stopped.
    pub async fn next(&mut self) -> Result<GroupChange, RecipeError> {
        self.next_before(None).await
    }

    /// Waits for the next change, for at most this long. In all other respects it is like
    /// [`next`](Self::next).
    ///
    /// # Errors
    ///
    /// [`RecipeError::TimedOut`] if nothing has changed in this time, and the errors of
    /// [`next`](Self::next).
    pub async fn next_within(&mut self, timeout: Duration) -> Result<GroupChange, RecipeError> {
        let deadline = self.feed.lane.now() + timeout;
        self.next_before(Some(deadline)).await
    }

    async fn next_before(&mut self, deadline: Option<Time>) -> Result<GroupChange, RecipeError> {
        let client = self.client.clone();
        let directory = self.roster.machine.directory().clone();
        let next = pin!(self.follow(deadline));
        limited(&client, &directory, deadline, RecipeError::timed_out, next).await
    }

    /// Drives the roster, and hands it what the persistent watch reports. Interrupting the roster
    /// loses nothing.
    async fn follow(&mut self, deadline: Option<Time>) -> Result<GroupChange, RecipeError> {
        let Self { feed, names, roster, .. } = self;
        loop {
            let mut caller = Caller { deadline };
            let change = drive(feed, roster, &mut caller);
            match before(names, change).await {
                Ok(change) => return change?.map_err(RecipeError::of),
                Err(news) => tell(&mut roster.machine, &news),
            }
        }
    }
}

stream!(GroupWatch, GroupChange, RecipeError);

impl fmt::Debug for GroupWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupWatch").field("roster", &self.roster.machine).finish_non_exhaustive()
    }
}
