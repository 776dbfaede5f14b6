//! Step 5 of a contender: checking for missed watches.

use std::num::NonZeroU64;

use jute_codec::{ErrorCode, Response};
use zk_session::OpError;
use zk_session::machine::Reply;

use super::{Contender, State};
use crate::error::LockError;
use crate::machine::{Restart, Step, Verdict, View, child, exists, flight, read, replayable};

impl Contender {
    /// Step 5. A pending watch keeps its name: it is set again, should the server have lost it.
    pub(super) fn check(&mut self) -> Step {
        let fresh = self.fresh_watch();
        let place = self.place.as_ref().expect("only a place is waited for");
        let own_watch = place.own_watch.unwrap_or(fresh);
        let nearest = child(&self.profile.directory, &place.nearest);
        let ahead = if self.is_blind {
            exists(nearest)
        } else {
            read(nearest, place.ahead_watch.map(NonZeroU64::get))
        };
        let operations = vec![ahead, read(self.claim.path(), Some(own_watch.get()))];
        self.state = State::Checking(own_watch);
        Step::Submit(flight(Some(place.session), operations))
    }

    pub(super) fn checked(&mut self, view: View, own_watch: NonZeroU64, reply: Reply) -> Step {
        let place = self.place.as_mut().expect("a place was checked");
        let mut results = reply.results.into_iter().map(replayable);
        let (ahead, own) = (results.next(), results.next());
        let mut is_changed = place.ahead_watch.is_none();
        match ahead {
            Some(Verdict::SessionOver) => return Step::Restart(Restart::SessionOver),
            Some(Verdict::Refused(OpError::Server(ErrorCode::NO_NODE))) => {
                self.tally.watches_missed += u64::from(!is_changed);
                is_changed = true;
            }
            Some(Verdict::Refused(OpError::Server(ErrorCode::NO_AUTH))) => {
                self.is_blind = true;
                is_changed = true;
            }
            Some(Verdict::Refused(error)) => {
                let path = child(&self.profile.directory, &place.nearest);
                return Step::Failed(LockError::definite(error, "read", &path));
            }
            // What a server could not answer now is asked at the next check.
            Some(Verdict::Done(_) | Verdict::Later(_) | Verdict::NotApplied | Verdict::Unknown)
            | None => {}
        }
        match own {
            Some(Verdict::Done(Response::GetData(found))) if self.claim.is_znode(&found) => {
                place.own_watch = Some(own_watch);
                place.own_seen(reply.connection);
            }
            Some(Verdict::Done(_) | Verdict::Refused(OpError::Server(ErrorCode::NO_NODE))) => {
                self.tally.watches_missed += u64::from(place.own_watch.is_some());
                place.own_watch = None;
                is_changed = true;
            }
            Some(Verdict::Refused(error)) => {
                let path = self.claim.path();
                return Step::Failed(LockError::definite(error, "read", &path));
            }
            Some(Verdict::SessionOver) => return Step::Restart(Restart::SessionOver),
            Some(Verdict::Later(_) | Verdict::NotApplied | Verdict::Unknown) | None => {}
        }
        if is_changed { self.list_again(view) } else { self.wait_in_queue(view) }
    }
}
