//! Changes that no transaction can contain: access control lists, and the configuration of the
//! ensemble. So no marker can show whether they were applied.
//!
//! What they change has a version. A change is only sent at a version that is known, which the caller
//! gives, or which is read first. If its reply was lost, what it changes is read behind a write
//! barrier, in the same session, or in the next one if that has ended:
//!
//! - The version is the same: the change was not applied, and never will be. It is sent again, at this
//!   version.
//! - Another change was made instead, at this version: the change was not applied, and never will be.
//! - What is there now is what the change makes of it: it is in force. Another client may have made
//!   the same change; servers keep nothing that would tell the two apart.
//! - Anything else: others have changed it since, and nobody can know what was there in between.
//!
//! A request of a session that has ended is *loose*: a server that swaps sessions says nothing of the
//! old one, so the request may arrive later than the barrier. But it is applied only at its version,
//! and so is the one that is sent again, so at most one of them is. As long as the version is the same,
//! a failure of the latter leaves the outcome unknown; once the version is another, the loose request
//! will never be applied.

use bytestring::ByteString;
use jute_codec::ErrorCode;
use zk_session::{Client, Op, OpError, Outcome, SessionId, SessionState, Target, Time};

use super::again::{Again, is_over, pause, until};
use super::error::SettledError;
use super::write::{not_applied, unknown};
use crate::action::FailedAction;
use crate::engine::drive::before;
use crate::error::RecipeError;
use crate::machine::{Failure, Pauses, Verdict, replayable};

/// Something that has a version, and what it is to become.
pub(super) trait Change: Send + Sync {
    /// Identifies the state that the change replaces.
    type Version: Copy + Eq + Send;
    /// What is there.
    type Found: Send;
    /// What a server replies to a change.
    type Reply: Send;
    /// What the caller gets.
    type Output: Send;

    /// Returns the operation and its path.
    fn target(&self) -> Target;

    /// Reads what is there.
    fn read(&self, client: &Client) -> Op<Self::Found>;

    fn version(&self, found: &Self::Found) -> Self::Version;

    /// Sends the change, provided that this version is there.
    fn send(&self, client: &Client, version: Self::Version) -> Op<Self::Reply>;

    /// Concludes from the reply to a change that was sent at this version.
    fn applied(
        &self,
        version: Self::Version,
        reply: Self::Reply,
    ) -> Result<Self::Output, SettledError>;

    /// Concludes from what there is after a change at this version was lost.
    fn judge(&self, version: Self::Version, found: Self::Found) -> Judged<Self::Output>;
}

/// The fate of a change whose reply was lost.
pub(super) enum Judged<T> {
    /// It was not applied, and the version is the same.
    Unchanged,
    /// It was not applied, because another change was made at its version.
    Beaten,
    /// It is in force.
    InForce(T),
    /// Nobody can know it.
    Undecidable(SettledError),
}

/// Makes a change once, or finds out why it was not made. The caller may know the version.
pub(super) async fn make<C: Change>(
    client: &Client,
    change: &C,
    known: Option<C::Version>,
    deadline: Option<Time>,
) -> Result<C::Output, SettledError> {
    let target = change.target();
    let path = &target.path;
    let (mut version, mut pauses) = (known, Pauses::default());
    let mut is_loose = false;
    // The version at which a change was sent whose session has ended, and why its reply was lost.
    let mut lost = None;
    let mut beaten_at = None;
    loop {
        let failed = |error| if is_loose { unknown(error) } else { not_applied(error) };
        let session = next_session(client, deadline).await.map_err(failed)?;
        let bound = client.in_session(session);
        let look = Look { client: &bound, path, deadline };
        let (at, error) = match lost.take() {
            Some(lost) => lost,
            None => {
                let at = match version {
                    Some(version) => version,
                    // A member that lags behind may show an older version, at which the change is
                    // refused.
                    None => match look.at(change, false).await {
                        Ok(found) => change.version(&found),
                        Err(RecipeError::SessionExpired) => continue,
                        Err(error) => return Err(failed(error)),
                    },
                };
                if is_over(client, deadline) {
                    return Err(failed(RecipeError::timed_out()));
                }
                match until(client, change.send(&bound, at), deadline).await {
                    Ok(reply) => return change.applied(at, reply),
                    Err(error) => (at, error),
                }
            }
        };
        let is_beaten = error.server_code() == Some(ErrorCode::BAD_VERSION);
        // The loose request may be the one that was faster.
        if error.outcome() == Outcome::NotApplied && !(is_beaten && is_loose) {
            if matches!(error, OpError::TimedOut { .. }) {
                return Err(failed(RecipeError::timed_out()));
            }
            if is_beaten && known.is_none() {
                version = None;
                // Others have changed it in between, so there is no reason to pause, unless the server
                // shows no change.
                if beaten_at.replace(at) == Some(at) {
                    pause(client, deadline, &mut pauses).await;
                }
                continue;
            }
            match replayable(Err(error)) {
                Verdict::Refused(error) if is_loose => return Err(unknown(failure(path, error))),
                Verdict::Refused(error) => return Err(refused(&target, error)),
                Verdict::Later(_) => pause(client, deadline, &mut pauses).await,
                Verdict::Done(_)
                | Verdict::NotApplied
                | Verdict::SessionEnded
                | Verdict::Unknown => {}
            }
            continue;
        }
        if matches!(error, OpError::Closed { .. }) {
            // The client has stopped while the request was in flight.
            return Err(unknown(failure(path, error)));
        }
        let found = match look.at(change, true).await {
            Ok(found) => found,
            Err(RecipeError::SessionExpired) if client.state() != SessionState::Expired => {
                (is_loose, lost) = (true, Some((at, error)));
                continue;
            }
            Err(error) => return Err(unknown(error)),
        };
        let now = change.version(&found);
        match change.judge(at, found) {
            Judged::InForce(output) => return Ok(output),
            Judged::Undecidable(error) => return Err(error),
            Judged::Beaten if known.is_some() => {
                return Err(refused(&target, OpError::server(ErrorCode::BAD_VERSION)));
            }
            Judged::Beaten => (is_loose, version) = (false, Some(now)),
            // The caller has given a version that is still to come.
            Judged::Unchanged if is_beaten => return Err(unknown(failure(path, error))),
            Judged::Unchanged => version = known.or(Some(now)),
        }
        if error.server_code().is_some() && !is_beaten {
            // A server has failed to make the change, and says so each time.
            if pauses.is_too_many(&error) {
                let failure = failure(path, error);
                return Err(if is_loose { unknown(failure) } else { not_applied(failure) });
            }
            pause(client, deadline, &mut pauses).await;
        }
    }
}

/// Reads what is there.
struct Look<'a> {
    client: &'a Client,
    path: &'a ByteString,
    deadline: Option<Time>,
}

impl Look<'_> {
    async fn at<C: Change>(&self, change: &C, has_barrier: bool) -> Result<C::Found, RecipeError> {
        let &Self { client, path, deadline } = self;
        let action = FailedAction::Read;
        let again = Again { client, is_bound: true, has_barrier, deadline, action, path };
        again.run(|client| change.read(client)).await
    }
}

/// Waits until the client has a session.
async fn next_session(client: &Client, deadline: Option<Time>) -> Result<SessionId, RecipeError> {
    let mut states = client.states();
    let connected = async {
        loop {
            let status = states.current();
            if let Some(session) = status.session {
                return Ok(session);
            }
            if status.state == SessionState::Expired || states.next().await.is_none() {
                return Err(RecipeError::SessionExpired);
            }
        }
    };
    before(client, deadline, connected).await?
}

fn refused(target: &Target, error: OpError) -> SettledError {
    if let OpError::Server { code, .. } = error {
        return SettledError::Refused { index: 0, code, target: target.clone() };
    }
    not_applied(failure(&target.path, error))
}

fn failure(path: &ByteString, error: OpError) -> RecipeError {
    RecipeError::of(Failure::new(FailedAction::Write, path.clone(), error))
}
