//! A call that says `NotApplied` was not applied and never will be, and a call that succeeds was.

use std::collections::BTreeSet;

use jute_codec::{ErrorCode, OpCode};
use zk_testserver::CommitRecord;

use crate::history::{Event, Told, What};

/// Returns how the promise was broken. Only one call creates each of these paths.
pub fn judge(events: &[Event], commits: &[CommitRecord]) -> Vec<String> {
    let is_create = |commit: &&CommitRecord| {
        commit.error == ErrorCode::OK && matches!(commit.op, OpCode::CREATE | OpCode::CREATE2)
    };
    let created: BTreeSet<&str> =
        commits.iter().filter(is_create).filter_map(|commit| commit.path.as_deref()).collect();
    judge_created(events, &created)
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
