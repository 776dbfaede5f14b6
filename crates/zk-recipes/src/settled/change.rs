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
    let mut making = Making {
        client,
        change,
        target: change.target(),
        known,
        deadline,
        version: known,
        pauses: Pauses::default(),
        refusal: None,
        is_loose: false,
        lost: None,
        beaten_at: None,
    };
    loop {
        if let Some(output) = making.round().await? {
            return Ok(output);
        }
    }
}

/// What is known of a change between two rounds, each of which sends it, or looks for it, once.
struct Making<'a, C: Change> {
    client: &'a Client,
    change: &'a C,
    target: Target,
    /// The version that the caller gives.
    known: Option<C::Version>,
    deadline: Option<Time>,
    /// The version at which the change is sent next, if it need not be read first.
    version: Option<C::Version>,
    pauses: Pauses,
    /// The code with which a server has refused the change last.
    refusal: Option<ErrorCode>,
    is_loose: bool,
    /// The version at which the change was sent in a session that has ended, and why its reply was
    /// lost.
    lost: Option<(C::Version, OpError)>,
    /// The version that was read and at which the change was refused.
    beaten_at: Option<C::Version>,
}

/// What became of a change that was to be sent.
enum Sent<C: Change> {
    Applied(C::Output),
    /// The session has ended before the version was known.
    Not,
    Failed(C::Version, OpError),
}

impl<C: Change> Making<'_, C> {
    /// Returns nothing if another round follows.
    async fn round(&mut self) -> Result<Option<C::Output>, SettledError> {
        let session = next_session(self.client, self.deadline).await;
        let bound = self.client.in_session(session.map_err(|error| self.failed(error))?);
        let (at, error) = match self.lost.take() {
            Some(lost) => lost,
            None => match self.send(&bound).await? {
                Sent::Applied(output) => return Ok(Some(output)),
                Sent::Not => return Ok(None),
                Sent::Failed(at, error) => (at, error),
            },
        };
        // The loose request may be the one that was faster.
        if error.outcome() == Outcome::NotApplied && !(is_beaten(&error) && self.is_loose) {
            self.was_refused(at, error).await?;
            return Ok(None);
        }
        if matches!(error, OpError::Closed { .. }) {
            // The client has stopped while the request was in flight.
            return Err(unknown(self.failure(error)));
        }
        self.look_for_it(&bound, at, error).await
    }

    /// Sends the change at the version that is known, or that is read.
    async fn send(&mut self, bound: &Client) -> Result<Sent<C>, SettledError> {
        let at = match self.version {
            Some(version) => version,
            // A member that lags behind may show an older version, at which the change is refused.
            None => match self.look(bound, false).await {
                Ok(found) => self.change.version(&found),
                Err(RecipeError::SessionExpired) => return Ok(Sent::Not),
                Err(error) => return Err(self.failed(error)),
            },
        };
        if is_over(self.client, self.deadline) {
            return Err(self.failed(RecipeError::timed_out()));
        }
        match until(self.client, self.change.send(bound, at), self.deadline).await {
            Ok(reply) => self.change.applied(at, reply).map(Sent::Applied),
            Err(error) => Ok(Sent::Failed(at, error)),
        }
    }

    /// Pauses if the change is to be sent again after it was not applied.
    async fn was_refused(&mut self, at: C::Version, error: OpError) -> Result<(), SettledError> {
        if matches!(error, OpError::TimedOut { .. }) {
            return Err(self.failed(RecipeError::timed_out()));
        }
        self.refusal = None;
        if is_beaten(&error) && self.known.is_none() {
            self.version = None;
            // Others have changed it in between, so there is no reason to pause, unless the server
            // shows no change.
            if self.beaten_at.replace(at) == Some(at) {
                self.pause().await;
            }
            return Ok(());
        }
        match replayable(Err(error)) {
            Verdict::Refused(error) if self.is_loose => Err(unknown(self.failure(error))),
            Verdict::Refused(error) => Err(self.refused(error)),
            Verdict::Later(error) => {
                self.refusal = error.server_code();
                self.pause().await;
                Ok(())
            }
            Verdict::Done(_) | Verdict::NotApplied | Verdict::SessionEnded | Verdict::Unknown => {
                Ok(())
            }
        }
    }

    /// Finds out whether a change is in force whose reply was lost.
    async fn look_for_it(
        &mut self,
        bound: &Client,
        at: C::Version,
        error: OpError,
    ) -> Result<Option<C::Output>, SettledError> {
        let found = match self.look(bound, true).await {
            Ok(found) => found,
            Err(RecipeError::SessionExpired) if self.client.state() != SessionState::Expired => {
                (self.is_loose, self.lost) = (true, Some((at, error)));
                return Ok(None);
            }
            Err(error) => return Err(unknown(error)),
        };
        let now = self.change.version(&found);
        match self.change.judge(at, found) {
            Judged::InForce(output) => return Ok(Some(output)),
            Judged::Undecidable(error) => return Err(error),
            Judged::Beaten if self.known.is_some() => {
                return Err(self.refused(OpError::server(ErrorCode::BAD_VERSION)));
            }
            Judged::Beaten => (self.is_loose, self.version) = (false, Some(now)),
            // The caller has given a version that is still to come.
            Judged::Unchanged if is_beaten(&error) => return Err(unknown(self.failure(error))),
            Judged::Unchanged => self.version = self.known.or(Some(now)),
        }
        if error.server_code().is_some() && !is_beaten(&error) {
            // A server has failed to make the change, and says so each time.
            if self.pauses.is_too_many(&error) {
                return Err(self.failed(self.failure(error)));
            }
            self.pause().await;
        }
        Ok(None)
    }

    async fn look(&self, bound: &Client, has_barrier: bool) -> Result<C::Found, RecipeError> {
        let (deadline, path) = (self.deadline, &self.target.path);
        let action = FailedAction::Read;
        let again = Again { client: bound, is_bound: true, has_barrier, deadline, action, path };
        again.run(|client| self.change.read(client)).await
    }

    async fn pause(&mut self) {
        pause(self.client, self.deadline, &mut self.pauses).await;
    }

    /// The error of a change of which nothing is in flight, unless a request is loose.
    fn failed(&self, mut error: RecipeError) -> SettledError {
        if let Some(code) = self.refusal {
            error.after_refusal(code);
        }
        if self.is_loose { unknown(error) } else { not_applied(error) }
    }

    fn refused(&self, error: OpError) -> SettledError {
        if let OpError::Server { code, .. } = error {
            return SettledError::Refused { index: 0, code, target: self.target.clone() };
        }
        not_applied(self.failure(error))
    }

    fn failure(&self, error: OpError) -> RecipeError {
        RecipeError::of(Failure::new(FailedAction::Write, self.target.path.clone(), error))
    }
}

fn is_beaten(error: &OpError) -> bool {
    error.server_code() == Some(ErrorCode::BAD_VERSION)
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
            if status.state == SessionState::Expired {
                return Err(RecipeError::SessionExpired);
            }
            if status.state == SessionState::AuthFailed {
                return Err(RecipeError::AuthFailed);
            }
            if states.next().await.is_none() {
                return Err(RecipeError::Closed);
            }
        }
    };
    before(client, deadline, connected).await?
}
