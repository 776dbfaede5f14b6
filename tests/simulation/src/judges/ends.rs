//! A client that ends leaves to the others what it had: a close that is confirmed has ended the
//! session, and a session that is handed over has nothing that nobody can delete any more, and
//! continues. A client that was told that its session has expired has lost it. A Keeper continues no
//! session, and the one that a client has left there lives on for a while.

use std::collections::BTreeSet;

use jute_codec::{ErrorCode, OpCode, SessionId};
use zk_testserver::{Outcome, RequestRecord};

use crate::history::{Event, What};
use crate::program::settled::SETTLED;
use crate::program::values::MARKERS;
use crate::world::plan::Plan;

/// Returns how the promise was broken.
pub fn judge(events: &[Event], requests: &[RequestRecord], plan: &Plan) -> Vec<String> {
    // While its commit is late, servers already call the session expired.
    let is_late =
        |outcome| matches!(outcome, Outcome::Held | Outcome::Applied(ErrorCode::SESSION_EXPIRED));
    let is_late_close =
        |request: &&RequestRecord| request.op == OpCode::CLOSE_SESSION && is_late(request.outcome);
    let late = requests.iter().filter(is_late_close).map(|request| request.session);
    let late: BTreeSet<SessionId> = late.collect();
    let events = events.iter().filter(|event| {
        let is_of_resume =
            matches!(event.what, What::LostSession { .. } | What::NotContinued { .. });
        plan.resumes() || !is_of_resume
    });
    judge_events(events, &late)
}

fn judge_events<'a>(
    events: impl Iterator<Item = &'a Event>,
    late: &BTreeSet<SessionId>,
) -> Vec<String> {
    let broken = |event: &Event| {
        let at = event.at;
        match &event.what {
            What::HasClosed { session: Some(session), is_confirmed: true, is_alive: true }
                if !late.contains(session) =>
            {
                Some(format!("at {at:?}: a client was closed, and {session} lives"))
            }
            What::LostSession { is_told: true, alive: Some(session) }
                if !late.contains(session) =>
            {
                Some(format!("at {at:?}: a client was told of the end of {session}, which lives"))
            }
            What::HandedOver { session, left } if left.iter().any(|path| !is_of_caller(path)) => {
                Some(format!("at {at:?}: {session} was handed over, and nobody deletes {left:?}"))
            }
            What::NotContinued { session } => {
                Some(format!("at {at:?}: nothing went wrong, and {session} was not continued"))
            }
            _ => None,
        }
    };
    events.filter_map(broken).collect()
}

/// Returns whether a znode may stay when its session is handed over: a handle of settled operations
/// keeps its markers until it is dropped, and what its caller has created is not of a recipe.
fn is_of_caller(path: &str) -> bool {
    path.starts_with(MARKERS) || path.starts_with(SETTLED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judges::tests::history;

    fn count(what: What, refused: &[SessionId]) -> usize {
        judge_events(history(vec![what]).iter(), &refused.iter().copied().collect()).len()
    }

    #[test]
    fn a_session_that_survives_a_close_is_seen() {
        let session = SessionId(1);
        let closed = |is_confirmed, is_alive, refused: &[SessionId]| {
            let session = Some(session);
            count(What::HasClosed { session, is_confirmed, is_alive }, refused)
        };
        assert_eq!((closed(true, true, &[]), closed(true, false, &[])), (1, 0));
        assert_eq!(closed(false, true, &[]), 0, "no server was reached");
        assert_eq!(closed(true, true, &[session]), 0);
    }

    #[test]
    fn a_session_that_is_said_to_have_expired_and_lives_is_seen() {
        let session = SessionId(1);
        let lost =
            |is_told, alive, late: &[SessionId]| count(What::LostSession { is_told, alive }, late);
        assert_eq!((lost(true, Some(session), &[]), lost(true, None, &[])), (1, 0));
        assert_eq!(lost(false, Some(session), &[]), 0, "the client gave it up by itself");
        assert_eq!(lost(true, Some(session), &[session]), 0, "its end is in the log");
    }

    #[test]
    fn a_session_that_is_handed_over_with_a_contender_or_in_vain_is_seen() {
        let session = SessionId(1);
        let handed = |left: &[&str]| {
            let left = left.iter().map(|path| (*path).to_owned()).collect();
            count(What::HandedOver { session, left }, &[])
        };
        assert_eq!((handed(&["/locks/a/x-lock-0000000001"]), handed(&[])), (1, 0));
        assert_eq!(handed(&["/markers/marker-1"]), 0, "its handle was in use");
        assert_eq!(handed(&["/markers/marker-1", "/locks/a/x-lock-0000000001"]), 1);
        assert_eq!(count(What::NotContinued { session }, &[]), 1);
    }
}
