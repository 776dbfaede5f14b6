//! A presence says only of its own znodes that they are there, and one that was closed is gone.

use std::collections::BTreeMap;

use jute_codec::{ErrorCode, OpCode, SessionId};
use zk_testserver::CommitRecord;

use super::lives::{Life, lives};
use crate::history::{Event, What};

/// Returns how the promise was broken.
pub fn judge(events: &[Event], commits: &[CommitRecord]) -> Vec<String> {
    let created = commits.iter().filter(|commit| {
        commit.error == ErrorCode::OK && [OpCode::CREATE, OpCode::CREATE2].contains(&commit.op)
    });
    let owners = created
        .filter_map(|commit| Some(((commit.path.as_deref()?, commit.zxid.0), commit.session)));
    judge_owners(events, &owners.collect(), &lives(commits))
}

/// Judges presences by the session that has created each znode in each transaction.
fn judge_owners(
    events: &[Event],
    owners: &BTreeMap<(&str, i64), SessionId>,
    lives: &BTreeMap<&str, Vec<Life>>,
) -> Vec<String> {
    let mut violations = Vec::new();
    for event in events {
        let broken = match &event.what {
            What::Stands { path, session, czxid } => match owners.get(&(path.as_str(), *czxid)) {
                None => Some("there was no such znode"),
                Some(owner) if owner != session => Some("another session has created it"),
                Some(_) => None,
            },
            What::Gone { path, czxid, at } => {
                let mut lives = lives.get(path.as_str()).into_iter().flatten();
                let is_gone = |(created, deleted): &Life| {
                    created == czxid && deleted.is_some_and(|deleted| deleted <= *at)
                };
                (!lives.any(is_gone)).then_some("it was still there")
            }
            _ => None,
        };
        if let Some(broken) = broken {
            violations.push(format!("{broken}: {event}"));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judges::tests::history;

    const PATH: &str = "/group/a";

    fn count(what: What) -> usize {
        let owners = BTreeMap::from([((PATH, 3), SessionId(1)), ((PATH, 7), SessionId(2))]);
        let lives = BTreeMap::from([(PATH, vec![(3, Some(5)), (7, None)])]);
        judge_owners(&history(vec![what]), &owners, &lives).len()
    }

    fn stands(session: i64, czxid: i64) -> What {
        What::Stands { path: PATH.to_owned(), session: SessionId(session), czxid }
    }

    fn gone(czxid: i64, at: i64) -> What {
        What::Gone { path: PATH.to_owned(), czxid, at }
    }

    #[test]
    fn znodes_of_ones_own_are_accepted_and_others_are_seen() {
        assert_eq!((count(stands(1, 3)), count(stands(2, 7))), (0, 0));
        assert_eq!(count(stands(1, 7)), 1, "another session has created it");
        assert_eq!(count(stands(1, 4)), 1, "it never was");
    }

    #[test]
    fn a_znode_that_outlives_the_close_of_its_presence_is_seen() {
        assert_eq!((count(gone(3, 5)), count(gone(3, 9))), (0, 0));
        assert_eq!(count(gone(3, 4)), 1, "it was deleted later");
        assert_eq!(count(gone(7, 9)), 1, "it is still there");
        assert_eq!(count(gone(4, 9)), 1, "it never was");
    }
}
