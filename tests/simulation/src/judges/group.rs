//! What a watch of a group reports is a path through the members that there were, and ends at those
//! that there are.

use std::collections::BTreeMap;

use zk_testserver::CommitRecord;

use super::lives::{Life, lives};
use crate::history::{Event, Id, What};
use crate::program::groups::GROUP;

/// Returns how the promise was broken.
pub fn judge(events: &[Event], commits: &[CommitRecord]) -> Vec<String> {
    judge_lives(events, &lives(commits))
}

fn judge_lives(events: &[Event], lives: &BTreeMap<&str, Vec<Life>>) -> Vec<String> {
    let mut violations = Vec::new();
    // The last member of this id that was reported, and whether it was reported as present.
    let mut last: BTreeMap<(Id, &str), (i64, bool)> = BTreeMap::new();
    for event in events {
        match &event.what {
            What::Reported { watch, id, czxid, is_joined, is_left } => {
                let before = last.insert((*watch, id), (*czxid, !is_left));
                let path = format!("{GROUP}/{id}");
                let real = lives
                    .get(path.as_str())
                    .and_then(|lives| lives.iter().find(|(created, _)| created == czxid));
                let broken = match (before, real) {
                    (_, None) => Some("there was no such member"),
                    (_, Some((_, None))) if *is_left => Some("it has not left"),
                    (Some((_, true)), _) if *is_joined => Some("it was there already"),
                    (Some((older, _)), _) if *is_joined && older >= *czxid => {
                        Some("a later one was reported before")
                    }
                    (None | Some((_, false)), _) if !is_joined => Some("it was not there"),
                    (Some((other, _)), _) if !is_joined && other != *czxid => {
                        Some("another one was there")
                    }
                    _ => None,
                };
                if let Some(broken) = broken {
                    violations.push(format!("{broken}: {event}"));
                }
            }
            What::Gathered { watch, shown, real } if shown != real => {
                violations.push(format!(
                    "watch {watch} has reported {shown:?} in the end, and there are {real:?}"
                ));
            }
            _ => {}
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judges::tests::history;

    fn report(czxid: i64, is_joined: bool, is_left: bool) -> What {
        What::Reported { watch: 1, id: "a".to_owned(), czxid, is_joined, is_left }
    }

    fn count(whats: Vec<What>) -> usize {
        let path = format!("{GROUP}/a");
        let lives = BTreeMap::from([(path.as_str(), vec![(3, Some(5)), (7, None)])]);
        judge_lives(&history(whats), &lives).len()
    }

    #[test]
    fn the_usual_life_of_members_breaks_nothing() {
        let (joined, left) = (|czxid| report(czxid, true, false), report(3, false, true));
        let changed = report(3, false, false);
        assert_eq!(count(vec![joined(3), changed, left, joined(7)]), 0);
        assert_eq!(count(vec![joined(7)]), 0);
    }

    #[test]
    fn members_that_never_were_are_seen() {
        assert_eq!(count(vec![report(4, true, false)]), 1);
    }

    #[test]
    fn a_member_that_has_not_left_is_seen() {
        assert_eq!(count(vec![report(7, true, false), report(7, false, true)]), 1);
    }

    #[test]
    fn reports_out_of_order_are_seen() {
        let joined = |czxid| report(czxid, true, false);
        assert_eq!(count(vec![joined(3), joined(7)]), 1);
        assert_eq!(count(vec![report(3, false, true)]), 1);
        assert_eq!(count(vec![report(3, false, false)]), 1);
        assert_eq!(count(vec![joined(3), report(3, false, true), joined(3)]), 1);
    }

    #[test]
    fn a_watch_that_differs_in_the_end_is_seen() {
        let gathered = |shown: i64| What::Gathered {
            watch: 1,
            shown: vec![("a".to_owned(), shown)],
            real: vec![("a".to_owned(), 7)],
        };
        assert_eq!(count(vec![gathered(7)]), 0);
        assert_eq!(count(vec![gathered(3)]), 1);
    }
}
