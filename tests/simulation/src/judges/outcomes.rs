//! A call that says `NotApplied` was not applied and never will be, and a call that succeeds was.

use std::collections::{BTreeMap, BTreeSet};

use jute_codec::{ErrorCode, OpCode, SessionId};
use zk_testserver::CommitRecord;

use crate::history::{Event, Told, What};

/// Returns how the promise was broken. Only one call creates each of these paths.
pub fn judge(events: &[Event], commits: &[CommitRecord]) -> Vec<String> {
    let is_create = |commit: &&CommitRecord| {
        commit.error == ErrorCode::OK && matches!(commit.op, OpCode::CREATE | OpCode::CREATE2)
    };
    let created: BTreeSet<&str> =
        commits.iter().filter(is_create).filter_map(|commit| commit.path.as_deref()).collect();
    let mut violations = judge_created(events, &created);
    let creators = commits.iter().filter(is_create);
    violations.extend(judge_bound(
        events,
        &creators.filter_map(|it| Some((it.path.as_deref()?, it.session))).collect(),
    ));
    violations
}

/// Judges what may be created in one session only. The second argument says which session has created
/// each path.
fn judge_bound(events: &[Event], creators: &BTreeMap<&str, SessionId>) -> Vec<String> {
    let broken = |event: &Event| match &event.what {
        What::Bound { path, session } => {
            let creator = creators.get(path.as_str()).filter(|creator| *creator != session)?;
            Some(format!("{path} was bound to {session}, and {creator} has created it"))
        }
        _ => None,
    };
    events.iter().filter_map(broken).collect()
}

fn judge_created(events: &[Event], created: &BTreeSet<&str>) -> Vec<String> {
    let broken = |event: &Event| match &event.what {
        What::Wrote { path, told: Told::Applied } if !created.contains(path.as_str()) => {
            Some(format!("{path} was created, its caller was told, and it was not"))
        }
        What::Wrote { path, told: Told::NotApplied } if created.contains(path.as_str()) => {
            Some(format!("{path} was not created, its caller was told, and it was"))
        }
        _ => None,
    };
    events.iter().filter_map(broken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judges::tests::history;

    #[test]
    fn a_write_in_another_session_is_seen() {
        let (one, other) = (SessionId(1), SessionId(2));
        let bound = history(vec![What::Bound { path: "/a".to_owned(), session: one }]);
        let count = |creators: &[_]| judge_bound(&bound, &creators.iter().copied().collect()).len();
        assert_eq!((count(&[("/a", one)]), count(&[]), count(&[("/a", other)])), (0, 0, 1));
    }

    #[test]
    fn both_kinds_of_lies_are_seen() {
        let (none, some) = (BTreeSet::new(), BTreeSet::from(["/a"]));
        for (told, if_not_created, if_created) in
            [(Told::Applied, 1, 0), (Told::NotApplied, 0, 1), (Told::Unknown, 0, 0)]
        {
            let events = history(vec![What::Wrote { path: "/a".to_owned(), told }]);
            assert_eq!(judge_created(&events, &none).len(), if_not_created, "{told:?}");
            assert_eq!(judge_created(&events, &some).len(), if_created, "{told:?}");
        }
    }
}
