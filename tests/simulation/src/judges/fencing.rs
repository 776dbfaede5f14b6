//! A transaction of a guard is committed only while its contender exists, or a copy of it that an
//! administrator has restored, and all levels of a holder belong to one hold.

use std::collections::{BTreeMap, BTreeSet};

use jute_codec::{ErrorCode, OpCode, SessionId};
use zk_testserver::CommitRecord;

use super::lives::{Life, lives};
use crate::history::{Event, What};

/// Returns how the promise was broken.
pub fn judge(events: &[Event], commits: &[CommitRecord]) -> Vec<String> {
    let is_create = |commit: &&CommitRecord| {
        commit.error == ErrorCode::OK
            && commit.op == OpCode::CREATE
            && commit.session == SessionId::NONE
    };
    let restored =
        commits.iter().filter(is_create).filter_map(|it| Some((it.path.as_deref()?, it.zxid.0)));
    judge_lives(events, &lives(commits), &restored.collect())
}

fn judge_lives(
    events: &[Event],
    lives: &BTreeMap<&str, Vec<Life>>,
    restored: &BTreeSet<(&str, i64)>,
) -> Vec<String> {
    let broken = |event: &Event| match &event.what {
        What::Fenced { path, contender, token } => {
            let (written, _) = lives.get(path.as_str())?.first()?;
            let mut life = lives.get(contender.as_str()).into_iter().flatten();
            let is_held = |(created, deleted): &Life| {
                // The check of a transaction knows the name only.
                let is_own = created == token || restored.contains(&(contender.as_str(), *created));
                is_own && created < written && deleted.is_none_or(|it| it > *written)
            };
            (!life.any(is_held)).then(|| {
                format!("{path} was committed as {written:#x}, and {contender} was not there")
            })
        }
        What::Validated { lock, path, token, from, to } => {
            let mut life = lives.get(path.as_str()).into_iter().flatten();
            let was_there = |(created, deleted): &Life| {
                token.is_none_or(|token| token == *created)
                    && created <= to
                    && deleted.is_none_or(|deleted| deleted > *from)
            };
            (!life.any(was_there))
                .then(|| format!("{lock} at {:?}: {path} was not there, and was proven", event.at))
        }
        What::Nested { was_lost: true, .. } => {
            Some(format!("a level of a lock that was lost before: {event}"))
        }
        What::Nested { is_same: false, .. } => Some(format!("the levels differ: {event}")),
        _ => None,
    };
    events.iter().filter_map(broken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judges::tests::history;

    fn count(written: Option<i64>, token: i64) -> usize {
        let mut lives = BTreeMap::from([("/locks/a/x", vec![(3, Some(9))])]);
        lives.extend(written.map(|zxid| ("/fenced", vec![(zxid, None)])));
        let (path, contender) = ("/fenced".to_owned(), "/locks/a/x".to_owned());
        let fenced = history(vec![What::Fenced { path, contender, token }]);
        judge_lives(&fenced, &lives, &BTreeSet::new()).len()
    }

    #[test]
    fn a_commit_with_a_copy_of_the_contender_is_excused_unless_it_is_of_another_session() {
        let lives = BTreeMap::from([
            ("/locks/a/x", vec![(3, Some(5)), (6, Some(9))]),
            ("/fenced", vec![(7, None)]),
        ]);
        let (path, contender) = ("/fenced".to_owned(), "/locks/a/x".to_owned());
        let fenced = history(vec![What::Fenced { path, contender, token: 3 }]);
        let count = |restored| judge_lives(&fenced, &lives, &restored).len();
        assert_eq!(count(BTreeSet::from([("/locks/a/x", 6)])), 0);
        assert_eq!(count(BTreeSet::new()), 1);
    }

    #[test]
    fn a_commit_without_the_contender_is_seen() {
        assert_eq!(count(None, 3), 0);
        assert_eq!(count(Some(5), 3), 0);
        assert_eq!(count(Some(10), 3), 1);
        assert_eq!(count(Some(5), 4), 1);
    }

    #[test]
    fn a_proof_without_the_contender_is_seen() {
        let lives = BTreeMap::from([("/locks/a/x", vec![(3, Some(9))])]);
        let count = |token, from, to| {
            let (lock, path) = ("/locks/a".to_owned(), "/locks/a/x".to_owned());
            let events = history(vec![What::Validated { lock, path, token, from, to }]);
            judge_lives(&events, &lives, &BTreeSet::new()).len()
        };
        assert_eq!((count(Some(3), 5, 12), count(None, 5, 12)), (0, 0));
        assert_eq!((count(Some(3), 9, 12), count(Some(2), 5, 12)), (1, 1));
    }

    #[test]
    fn levels_of_different_holds_are_seen() {
        let lock = || "/locks/a".to_owned();
        let nested = |is_same| What::Nested { lock: lock(), is_same, was_lost: false };
        let events = history(vec![nested(true), nested(false)]);
        assert_eq!(judge_lives(&events, &BTreeMap::new(), &BTreeSet::new()).len(), 1);
        let hidden = What::Nested { lock: lock(), is_same: true, was_lost: true };
        let hidden = history(vec![hidden]);
        assert_eq!(judge_lives(&hidden, &BTreeMap::new(), &BTreeSet::new()).len(), 1);
    }
}
