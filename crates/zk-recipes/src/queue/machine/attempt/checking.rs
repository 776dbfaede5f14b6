//! Step 5 of an attempt: checking for missed watches.

use jute_codec::{ErrorCode, Response};
use zk_session::OpError;

use super::{AttemptStep, QueueAttempt, State, failed, restart};
use crate::lock::outcome::Restart;
use crate::machine::{
    Answer, Answers, FailedAction, Failure, Needs, SessionView, Step, WatchNumber, child, exists,
    flight, read,
};

impl QueueAttempt {
    /// Performs step 5. A pending watch keeps its number: the read sets the watch again in case the
    /// server has lost it.
    pub(super) fn check(&mut self) -> AttemptStep {
        let fresh = self.watches.issue();
        let place = self.place.as_ref().expect("an attempt with a place waits");
        let own_watch = place.own_watch.unwrap_or(fresh);
        let nearest = child(&self.profile.directory, &place.nearest);
        let ahead = if self.is_blind { exists(nearest) } else { read(nearest, place.ahead_watch) };
        let operations = vec![ahead, read(self.claim.path(), Some(own_watch))];
        self.state = State::Checking(own_watch);
        // Without an answer, the next check reads again.
        Step::Submit(flight(Some(place.session), operations), Needs::OneTry)
    }

    pub(super) fn checked(
        &mut self,
        view: SessionView,
        own_watch: WatchNumber,
        answers: Answers,
    ) -> AttemptStep {
        let connection = answers.connection;
        let was_blind = self.is_blind;
        let place = self.place.as_mut().expect("a place was checked");
        let [ahead, own] = answers.take();
        // If the watch fired while the check was pending, no event was missed.
        let mut is_changed = place.ahead_watch.is_none();
        match ahead {
            Answer::SessionOver => return restart(Restart::SessionOver),
            Answer::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {
                self.claim.tally.watches_missed += u32::from(!is_changed);
                is_changed = true;
            }
            // The predecessor exists: servers test that first. Before 3.8.4 and 3.9.2, they need no
            // permission to do so.
            Answer::Refused(OpError::Server { code: ErrorCode::NO_AUTH, .. }) if was_blind => {}
            Answer::Refused(OpError::Server { code: ErrorCode::NO_AUTH, .. }) => {
                self.is_blind = true;
                // From now on, this is the watch on the directory.
                place.ahead_watch = None;
                is_changed = true;
            }
            Answer::Refused(error) => {
                let path = child(&self.profile.directory, &place.nearest);
                return failed(Failure::new(FailedAction::Read, path, error));
            }
            Answer::Done(_) | Answer::Unknown { .. } => {}
        }
        match own {
            Answer::Done(Response::GetData(found)) if self.claim.is_znode(&found) => {
                place.own_watch = Some(own_watch);
                place.own_seen(connection);
            }
            Answer::Done(_) | Answer::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {
                self.claim.tally.watches_missed += u32::from(place.own_watch.is_some());
                place.own_watch = None;
                is_changed = true;
            }
            Answer::Refused(error) => {
                return failed(Failure::new(FailedAction::Read, self.claim.path(), error));
            }
            Answer::SessionOver => return restart(Restart::SessionOver),
            Answer::Unknown { .. } => {}
        }
        if is_changed { self.list_again(view) } else { self.wait_in_queue(view) }
    }
}
