//! The right of a process to be listed as a member, for as long as it wants to.

use std::fmt;

use bytes::Bytes;
use zk_session::SessionId;

use super::error::GroupError;
use super::state::{Ending, MembershipState};
use crate::engine::call::{Call, ScopedCall};
use crate::lock::outcome::Released;
use crate::presence::state::{End, Standing, Status};
use crate::presence::stay::{Stay, View};

/// A member of a group, as the process that it stands for sees it.
///
/// The client keeps the member present, in this session and in later ones, until
/// [`leave`](Self::leave) or until the membership is dropped. It also keeps the client's session
/// open. Dropping it removes the znode in the background, as soon as a server is reachable and no
/// later than the end of the session.
#[must_use = "a membership that is dropped leaves the group"]
pub struct Membership {
    pub(super) stay: Stay<MembershipState>,
}

impl Membership {
    /// Returns whether this process is a member, as far as the client knows.
    pub fn state(&self) -> MembershipState {
        self.stay.state()
    }

    /// Waits until the state differs from that of the last call, or of the join, and returns it.
    /// States that follow each other fast may be skipped. After the end of the membership, every
    /// call returns at once.
    ///
    /// A lost **connection** is not a change: whether the session has survived it is only known
    /// after the next reconnect. **Cancel safe**: no change is lost.
    ///
    /// # Errors
    ///
    /// It never fails, because the end of the membership is a state.
    pub async fn changed(&mut self) -> MembershipState {
        self.stay.changed().await
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
    ///
    /// [`RecipeError::Refused`]: crate::RecipeError::Refused
    /// [`RecipeError::TimedOut`]: crate::RecipeError::TimedOut
    /// [`RecipeError::TooLarge`]: crate::RecipeError::TooLarge
    pub fn set_data(&self, data: impl Into<Bytes>) -> ScopedCall<'_, (), GroupError> {
        self.stay.set_data(data.into())
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
    ///
    /// [`RecipeError::Refused`]: crate::RecipeError::Refused
    /// [`RecipeError::TimedOut`]: crate::RecipeError::TimedOut
    pub fn leave(self) -> Call<Released, GroupError> {
        self.stay.leave()
    }

    /// Returns the path of the member's znode.
    pub fn path(&self) -> &str {
        self.stay.path()
    }
}

impl View for MembershipState {
    type Error = GroupError;

    fn of(status: Status) -> Self {
        match status {
            Status::Present(Standing { session, .. }) => Self::Member { session },
            Status::Absent(absence) => Self::Rejoining(absence),
            Status::Over(end) => Self::Ended(Ending::of(end)),
        }
    }

    fn is_over(&self) -> bool {
        matches!(self, Self::Ended(_))
    }

    fn in_the_way(path: &str, owner: Option<SessionId>) -> GroupError {
        let path = path.to_owned();
        match owner {
            Some(session) => GroupError::IdTaken { path, session },
            None => GroupError::NotEphemeral { path },
        }
    }

    fn ended(end: End) -> GroupError {
        GroupError::Ended(Ending::of(end))
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
