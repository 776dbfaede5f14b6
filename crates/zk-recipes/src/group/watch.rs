//! A stream of changes of a group.

use std::fmt;
use std::time::Duration;

use bytestring::ByteString;
use zk_session::recipe::Session;
use zk_session::{Client, Time};

use super::change::GroupChange;
use super::machine::roster::Roster;
use crate::engine::drive::{Caller, drive};
use crate::engine::feed::Feed;
use crate::engine::limited::limited;
use crate::error::RecipeError;

/// The changes of a group, beginning with a [`Joined`](GroupChange::Joined) for each present
/// member.
///
/// Changes are the differences between what was reported and what the servers show next, across
/// lost connections and renewed sessions. So no member is missed that stays, and nothing is
/// reported twice; a member that joins and leaves again between two looks is not reported. A member
/// that leaves and joins again between two looks is recognised by its czxid, and reported as `Left`
/// and `Joined`.
///
/// **Costs.** The start costs a list and a read for each member, in two round trips for up to 100
/// members. Afterwards a member that joins costs a list and a read, one that leaves a list, and one
/// that changes its data a read. Each member and the directory take one watch on the servers. A new
/// session costs as much as the start, and a write barrier. Without
/// [data watches](crate::GroupBuilder::watch_data), each member that joins or leaves costs as much
/// as the start.
///
/// A watch keeps the client's session open.
pub struct GroupWatch {
    client: Client,
    feed: Feed,
    roster: Roster,
}

impl GroupWatch {
    pub(super) fn new(client: &Client, directory: &ByteString, watches_data: bool) -> Self {
        let feed = Feed::new(Session::of(client).lane());
        let roster = Roster::new(directory.clone(), watches_data);
        Self { client: client.clone(), feed, roster }
    }

    /// Waits for the next change.
    ///
    /// After a **connection loss**, reads are repeated, and no error is returned. **Cancel safe**:
    /// no change is lost.
    ///
    /// # Errors
    ///
    /// [`RecipeError::Refused`] if the client may not read the directory or a member. The next call
    /// tries again, after a pause of 200 ms at first and at most 5 s. [`RecipeError::Closed`] and
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
        let Self { client, feed, roster } = self;
        let directory = roster.directory().clone();
        let next = async { Ok(drive(feed, roster, &mut Caller { deadline }).await??) };
        limited(client, &directory, deadline, RecipeError::timed_out, next).await
    }
}

impl fmt::Debug for GroupWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupWatch").field("roster", &self.roster).finish_non_exhaustive()
    }
}
