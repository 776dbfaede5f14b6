//! A client that ends leaves to the others what it had: a close that is confirmed has ended the
//! session, and a session that is handed over has nothing that nobody can delete any more, and
//! continues. A client that was told that its session has expired has lost it. A Keeper continues no
//! session, and the one that a client has left there lives on for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode, SessionId};
use zk_testserver::{Outcome, RequestRecord};

use super::Case;
use crate::history::{End, Event, Failure, Id, What};
use crate::program::locks::ROOT;
use crate::program::settled::SETTLED;
use crate::program::values::{MARKERS, PLAIN};
use crate::world::DIRECTORIES;
use crate::world::permissions::OTHERS;
use crate::world::plan::FaultKind;

/// How long a hand-over at least waits for what recipes still do before it gives up: for as long as a
/// session lasts, which is longer than this in all worlds.
const HAND_OVER_MIN: Duration = Duration::from_secs(3);

/// The markers of a handle of settled operations whose root is [`ROOT`].
const ROOTED_MARKERS: &str = "/locks/markers";

/// What may let a hand-over give up at once. Clients that are suspended, or whose callers are, learn of
/// the end of its time without a wait.
const HAND_OVER_ENDS: [FaultKind; 2] = [FaultKind::Suspension, FaultKind::Stop];

/// Returns how the promise was broken.
pub fn judge(case: &Case<'_>) -> Vec<String> {
    let Case { events, requests, plan, deleted, .. } = case;
    // While its commit is late, servers already call the session expired.
    let is_late =
        |outcome| matches!(outcome, Outcome::Held | Outcome::Applied(ErrorCode::SESSION_EXPIRED));
    let is_late_close =
        |request: &&RequestRecord| request.op == OpCode::CLOSE_SESSION && is_late(request.outcome);
    let late = requests.iter().filter(is_late_close).map(|request| request.session);
    let late: BTreeSet<SessionId> = late.collect();
    let mut violations = Vec::new();
    if !plan.faults.iter().any(|kind| HAND_OVER_ENDS.contains(kind)) && plan.blind.is_none() {
        violations = judge_hand_overs(events);
    }
    // A deposed leader believes that sessions have ended which have begun since. A client believes that,
    // too, of a session in which it has requested nothing.
    let has_deposed = plan.faults.contains(&FaultKind::Deposition);
    let events = events.iter().filter(|event| match event.what {
        What::LostSession { alive, .. } => {
            plan.resumes() && (!has_deposed || alive.is_some_and(|alive| is_used(requests, alive)))
        }
        What::NotContinued { .. } => plan.resumes(),
        _ => true,
    });
    violations.extend(judge_events(events, &late, deleted));
    violations
}

/// Returns whether a server has executed a request of this session.
fn is_used(requests: &[RequestRecord], session: SessionId) -> bool {
    requests.iter().any(|it| it.session == session && it.xid > 0 && it.outcome != Outcome::Dropped)
}

/// Judges how long hand-overs have waited that have failed because of what recipes still do.
fn judge_hand_overs(events: &[Event]) -> Vec<String> {
    let mut begun: BTreeMap<Id, &Event> = BTreeMap::new();
    let mut violations = Vec::new();
    for event in events {
        match &event.what {
            What::Begun { call, name: "hand_over", .. } => drop(begun.insert(*call, event)),
            What::Ended { call, end: End::Failed(Failure::Unfinished) } => {
                let Some(begun) = begun.get(call) else { continue };
                if event.at < begun.at + HAND_OVER_MIN {
                    violations.push(format!("it has not waited until {:?}: {begun}", event.at));
                }
            }
            _ => {}
        }
    }
    violations
}

fn judge_events<'a>(
    events: impl Iterator<Item = &'a Event>,
    late: &BTreeSet<SessionId>,
    deleted: &BTreeSet<String>,
) -> Vec<String> {
    // No client knows of the copy that an administrator has left in the place of a znode.
    let is_left = |path: &String| !is_of_caller(path) && !deleted.contains(path);
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
            What::HandedOver { session, left } if left.iter().any(is_left) => {
                Some(format!("at {at:?}: {session} was handed over, and nobody deletes {left:?}"))
            }
            What::Unfinished { paths } if !paths.iter().all(|path| is_known(path)) => {
                Some(format!("at {at:?}: no recipe has one of {paths:?}"))
            }
            What::NotContinued { session } => {
                Some(format!("at {at:?}: nothing went wrong, and {session} was not continued"))
            }
            _ => None,
        }
    };
    events.filter_map(broken).collect()
}

/// Returns whether a program uses this path, as the servers know it.
fn is_known(path: &str) -> bool {
    let all = DIRECTORIES.iter().chain(&OTHERS).chain(&[SETTLED, "/named", ROOTED_MARKERS]);
    let is_below = |other: &&&str| {
        path.strip_prefix(**other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    path.starts_with(PLAIN) || all.filter(|path| **path != ROOT).any(|it| is_below(&it))
}

/// Returns whether a znode may stay when its session is handed over: a handle of settled operations
/// keeps its markers until it is dropped, and what its caller has created is not of a recipe.
fn is_of_caller(path: &str) -> bool {
    [MARKERS, ROOTED_MARKERS, SETTLED].iter().any(|it| path.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judges::tests::history;

    fn count(what: What, refused: &[SessionId]) -> usize {
        let refused = refused.iter().copied().collect();
        judge_events(history(vec![what]).iter(), &refused, &BTreeSet::new()).len()
    }

    #[test]
    fn a_hand_over_that_gives_up_at_once_is_seen() {
        let count = |failure, pause: usize| {
            let (on, timeout) = ("client 0".to_owned(), None);
            let begun = What::Begun { call: 1, name: "hand_over", on, timeout };
            let ended = What::Ended { call: 1, end: End::Failed(failure) };
            let pause = std::iter::repeat_n(What::Calm, pause);
            let whats = std::iter::once(begun).chain(pause).chain([ended]);
            judge_hand_overs(&history(whats.collect())).len()
        };
        assert_eq!((count(Failure::Unfinished, 0), count(Failure::Unfinished, 4)), (1, 0));
        assert_eq!(count(Failure::SessionExpired, 0), 0);
    }

    #[test]
    fn a_path_of_a_rooted_handle_that_no_server_knows_is_seen() {
        let unfinished = |paths: &[&str]| {
            let paths = paths.iter().map(|path| (*path).to_owned()).collect();
            count(What::Unfinished { paths }, &[])
        };
        assert_eq!(unfinished(&["/locks/a", "/markers", "/plain-7"]), 0);
        assert_eq!(unfinished(&["/locks/a", "/locks/markers/marker-1"]), 0, "seed 800000090549");
        assert_eq!(unfinished(&["/locks/a", "/a"]), 1);
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
        assert_eq!(handed(&["/locks/markers/marker-1"]), 0, "so was this one");
        assert_eq!(handed(&["/markers/marker-1", "/locks/a/x-lock-0000000001"]), 1);
        let copy = "/locks/a/x-lock-0000000001".to_owned();
        let left = What::HandedOver { session, left: vec![copy.clone()] };
        let copies = BTreeSet::from([copy]);
        let excused = judge_events(history(vec![left]).iter(), &BTreeSet::new(), &copies);
        assert_eq!(excused, Vec::<String>::new());
        assert_eq!(count(What::NotContinued { session }, &[]), 1);
    }
}
