//! Step 5 of an attempt: checking for missed watches.

use jute_codec::{ErrorCode, Response};
use zk_session::OpError;

use super::{QueueAttempt, SeatStep, Wait, failed, restart};
use crate::lock::outcome::Restart;
use crate::machine::{
    Answer, Answers, FailedAction, Needs, SessionView, WatchNumber, child, exists, read,
};

impl QueueAttempt {
    /// Performs step 5. A pending watch keeps its number: the read sets the watch again in case the
    /// server has lost it.
    pub(super) fn send_check(&mut self) -> SeatStep {
        let own_watch = self.number(self.own_watch);
        let place = &self.place;
        let nearest = child(self.profile.directory(), &place.nearest);
        let ahead = if place.is_blind { exists(nearest) } else { read(nearest, place.ahead_watch) };
        let operations = vec![ahead, read(self.claim.path(), Some(own_watch))];
        // Without an answer, the next check reads again.
        self.submit(Wait::Checking(own_watch), operations, Needs::OneTry)
    }

    pub(super) fn checked(
        &mut self,
        view: SessionView,
        own_watch: WatchNumber,
        answers: Answers,
    ) -> SeatStep {
        let connection = answers.connection;
        let place = &mut self.place;
        let was_blind = place.is_blind;
        let [ahead, own] = answers.take();
        // If the watch fired while the check was pending, no event was missed.
        let mut is_changed = place.ahead_watch.is_none();
        match ahead {
            Answer::SessionEnded => return restart(Restart::SessionEnded),
            Answer::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {
                self.claim.tally.watches_missed += u32::from(!is_changed);
                is_changed = true;
            }
            // The predecessor exists: servers test that first. Before 3.8.4 and 3.9.2, they need no
            // permission to do so.
            Answer::Refused(OpError::Server { code: ErrorCode::NO_AUTH, .. }) if was_blind => {}
            Answer::Refused(OpError::Server { code: ErrorCode::NO_AUTH, .. }) => {
                place.is_blind = true;
                // From now on, this is the watch on the directory.
                place.ahead_watch = None;
                is_changed = true;
            }
            Answer::Refused(error) => {
                let path = child(self.profile.directory(), &place.nearest);
                return failed(FailedAction::Read, path, error);
            }
            Answer::Done(_) | Answer::Unknown { .. } => {}
        }
        match own {
            Answer::Done(Response::GetData(found)) if self.claim.is_znode(&found) => {
                self.own_watch = Some(own_watch);
                self.own_seen(connection);
            }
            Answer::Done(_) | Answer::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {
                self.claim.tally.watches_missed += u32::from(self.own_watch.is_some());
                self.own_watch = None;
                is_changed = true;
            }
            Answer::Refused(error) => {
                return failed(FailedAction::Read, self.claim.path(), error);
            }
            Answer::SessionEnded => return restart(Restart::SessionEnded),
            Answer::Unknown { .. } => {}
        }
        if is_changed { self.list_again(view) } else { self.wait_in_queue(view) }
    }
}
