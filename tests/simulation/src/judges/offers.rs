//! A client uses the session that a Keeper offers it in the place of the one that it asked for.

use std::collections::BTreeSet;

use jute_codec::{ErrorCode, OpCode, SessionId};

use super::Case;
use crate::history::{Event, What};
use crate::program::ends::EndKind;

/// Returns how the promise was broken. Where something goes wrong, a connection may end before its
/// session is used.
pub fn judge(case: &Case<'_>) -> Vec<String> {
    if case.plan.resumes() || !case.plan.faults.is_empty() {
        return Vec::new();
    }
    let created = case
        .commits
        .iter()
        .filter(|commit| commit.op == OpCode::CREATE_SESSION && commit.error == ErrorCode::OK);
    let created: Vec<SessionId> = created.map(|commit| commit.session).collect();
    let used = case.requests.iter().map(|request| request.session);
    let used = used.chain(case.sessions.keys().copied()).collect();
    judge_sessions(&created, &used, case.events)
}

/// Each client that ends before it is connected may leave one session, and each that hands its session
/// over: the next one may do so as well before it has sent anything.
fn judge_sessions(
    created: &[SessionId],
    used: &BTreeSet<SessionId>,
    events: &[Event],
) -> Vec<String> {
    let is_early = |event: &&Event| {
        matches!(event.what, What::EndsEarly | What::Ending { kind: EndKind::HandOver, .. })
    };
    let early = events.iter().filter(is_early).count();
    let left: Vec<&SessionId> = created.iter().filter(|session| !used.contains(session)).collect();
    if left.len() <= early {
        return Vec::new();
    }
    vec![format!("nobody has used the sessions {left:?}, and {early} clients have ended early")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judges::tests::history;

    #[test]
    fn a_session_that_was_offered_and_left_is_seen() {
        let count = |created: &[i64], early: usize| {
            let created: Vec<SessionId> = created.iter().copied().map(SessionId).collect();
            let events = history(vec![What::EndsEarly; early]);
            judge_sessions(&created, &[SessionId(1), SessionId(2)].into(), &events).len()
        };
        assert_eq!(count(&[1, 2], 0), 0);
        assert_eq!(count(&[1, 2, 3], 0), 1);
        assert_eq!(count(&[1, 2, 3], 1), 0, "that client had no time to use it");
    }
}
