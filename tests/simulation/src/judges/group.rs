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
    let mut said: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for event in events {
        match &event.what {
            What::Said { id, data } => said.entry(id).or_default().push(data),
            What::Reported { watch, id, czxid, data, is_joined, is_left } => {
                let before = last.insert((*watch, id), (*czxid, !is_left));
                let path = format!("{GROUP}/{id}");
                let real = lives
                    .get(path.as_str())
                    .and_then(|lives| lives.iter().find(|(created, _)| created == czxid));
                let is_known = said.get(id.as_str()).is_some_and(|said| said.contains(&data));
                let broken = match (before, real) {
                    (_, None) => Some("there was no such member"),
                    _ if !is_known => Some("no member with this id has said this"),
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
        says("x", czxid, is_joined, is_left)
    }

    fn says(data: &str, czxid: i64, is_joined: bool, is_left: bool) -> What {
        let (id, data) = ("a".to_owned(), data.to_owned());
        What::Reported { watch: 1, id, czxid, data, is_joined, is_left }
    }

    fn said(id: &str, data: &str) -> What {
        What::Said { id: id.to_owned(), data: data.to_owned() }
    }

    fn count(whats: Vec<What>) -> usize {
        let path = format!("{GROUP}/a");
        let lives = BTreeMap::from([(path.as_str(), vec![(3, Some(5)), (7, None)])]);
        let before = [said("a", "x"), said("a", "y"), said("b", "z")];
        judge_lives(&history(before.into_iter().chain(whats).collect()), &lives).len()
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
    fn data_that_no_member_has_said_are_seen() {
        let joined = |data: &str| says(data, 3, true, false);
        assert_eq!(count(vec![joined("x"), says("y", 3, false, false)]), 0);
        assert_eq!(count(vec![joined("x"), says("", 3, false, false)]), 1);
        assert_eq!(count(vec![joined("z")]), 1, "this is what another member has said");
        assert_eq!(count(vec![joined("later"), said("a", "later")]), 1);
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
        let member = |czxid, data: &str| vec![("a".to_owned(), czxid, Some(data.to_owned()))];
        let gathered = |shown: i64, data: &str| What::Gathered {
            watch: 1,
            shown: member(shown, data),
            real: member(7, "x"),
        };
        assert_eq!(count(vec![gathered(7, "x")]), 0);
        assert_eq!(count(vec![gathered(3, "x")]), 1);
        assert_eq!(count(vec![gathered(7, "y")]), 1);
    }
}
