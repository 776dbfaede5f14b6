//! Nobody passes a barrier that was closed all the time, a change is applied once, and participants
//! of a double barrier enter together and leave together.

use std::collections::{BTreeMap, BTreeSet};

use zk_testserver::CommitRecord;

use super::is_tampered;
use super::lives::{Life, lives};
use crate::history::{Event, Round, What};
use crate::program::barriers::{BARRIER, MEETING};
use crate::world::plan::Plan;

/// Returns how the promise was broken.
pub fn judge(
    events: &[Event],
    commits: &[CommitRecord],
    plan: &Plan,
    deleted: &BTreeSet<String>,
) -> Vec<String> {
    if is_tampered(deleted, BARRIER) || is_tampered(deleted, MEETING) {
        return Vec::new();
    }
    let lives = lives(commits);
    let is_at_once = plan.members == 1;
    let mut violations = judge_barrier(events, lives.get(BARRIER), is_at_once);
    violations.extend(judge_meeting(events, &lives));
    violations
}

/// Servers that lag behind may show a barrier as open that was closed before.
fn judge_barrier(events: &[Event], lives: Option<&Vec<Life>>, is_at_once: bool) -> Vec<String> {
    let nothing = Vec::new();
    let lives = lives.unwrap_or(&nothing);
    let mut violations = Vec::new();
    let (mut closes, mut opens) = (0, 0);
    for event in events {
        match &event.what {
            What::Begun { name: "close_barrier", .. } => closes += 1,
            What::Begun { name: "open_barrier", .. } => opens += 1,
            What::Passed { name, is_open, from, to, .. }
                if (*name != "wait" || is_at_once) && !was(lives, *is_open, *from, *to) =>
            {
                violations.push(format!(
                    "{name} has ended at {:?}, and from {from:#x} to {to:#x} the barrier never was \
                     as the caller was told",
                    event.at
                ));
            }
            _ => {}
        }
    }
    let deletions = lives.iter().filter(|(_, deleted)| deleted.is_some()).count();
    if lives.len() > closes || deletions > opens {
        violations.push(format!(
            "{closes} closes have closed the barrier {} times, and {opens} opens have opened it \
             {deletions} times",
            lives.len()
        ));
    }
    violations
}

/// Returns whether the barrier was open, or closed, at some moment between two transactions.
fn was(lives: &[Life], is_open: bool, from: i64, to: i64) -> bool {
    let is_closed_at =
        |zxid| lives.iter().any(|(c, d)| *c <= zxid && d.is_none_or(|deleted| deleted > zxid));
    let changes = lives.iter().flat_map(|(created, deleted)| [Some(*created), *deleted]);
    let moments = changes.flatten().filter(|zxid| (from..=to).contains(zxid));
    moments.chain([from]).any(|zxid| is_closed_at(zxid) != is_open)
}

fn judge_meeting(events: &[Event], lives: &BTreeMap<&str, Vec<Life>>) -> Vec<String> {
    let mut violations = Vec::new();
    let mut told: BTreeMap<i64, usize> = BTreeMap::new();
    for event in events {
        match &event.what {
            What::Entered { participants, round: Some(round), .. } => {
                *told.entry(round.zxid).or_default() += 1;
                let is_too_often = told.get(&round.zxid).is_some_and(|told| told > participants);
                if round.names.len() != *participants || !met(lives, round) || is_too_often {
                    violations.push(format!(
                        "a participant has entered at {:?} with {participants}, and those of \
                         {round:?} were never there together, or are not so many",
                        event.at
                    ));
                }
            }
            What::Departed { round: Round { names, .. }, present } => {
                let left: Vec<&String> =
                    present.iter().filter(|name| names.contains(name)).collect();
                if !left.is_empty() {
                    violations.push(format!(
                        "a participant has left at {:?}, and {left:?} of its round are present",
                        event.at
                    ));
                }
            }
            _ => {}
        }
    }
    violations
}

/// Returns whether there was a moment before a round was formed at which all its participants were
/// there. Some may have died between the list that showed them and the round.
fn met(lives: &BTreeMap<&str, Vec<Life>>, round: &Round) -> bool {
    let life = |name: &String| lives.get(format!("{MEETING}/{name}").as_str())?.first().copied();
    let Some(all) = round.names.iter().map(life).collect::<Option<Vec<Life>>>() else {
        return false;
    };
    let last_came = all.iter().map(|(created, _)| *created).max().unwrap_or_default();
    let first_left = all.iter().filter_map(|(_, deleted)| *deleted).min().unwrap_or(i64::MAX);
    last_came < first_left && last_came < round.zxid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judges::tests::history;

    fn passed(name: &'static str, is_open: bool, from: i64, to: i64) -> What {
        What::Passed { name, barrier: BARRIER.to_owned(), is_open, from, to }
    }

    fn begun(name: &'static str) -> What {
        What::Begun { call: 1, name, on: BARRIER.to_owned(), timeout: None }
    }

    fn count(lives: &[Life], whats: Vec<What>) -> usize {
        let calls = [begun("close_barrier"), begun("close_barrier"), begun("open_barrier")];
        let events = history(calls.into_iter().chain(whats).collect());
        judge_barrier(&events, Some(&lives.to_vec()), true).len()
    }

    #[test]
    fn a_wait_that_ends_while_the_barrier_is_closed_is_seen() {
        let lives = [(5, Some(10))];
        assert_eq!(count(&lives, vec![passed("wait", true, 4, 6)]), 0);
        assert_eq!(count(&lives, vec![passed("wait", true, 6, 10)]), 0);
        assert_eq!(count(&lives, vec![passed("wait", true, 6, 9)]), 1);
        assert_eq!(count(&lives, vec![passed("close_barrier", false, 3, 4)]), 1);
        assert_eq!(count(&lives, vec![passed("close_barrier", false, 3, 5)]), 0);
    }

    #[test]
    fn a_change_that_is_applied_twice_is_seen() {
        assert_eq!(count(&[(5, Some(10)), (11, None)], vec![]), 0);
        assert_eq!(count(&[(5, Some(10)), (11, Some(12))], vec![]), 1);
        assert_eq!(count(&[(5, Some(10)), (11, None), (12, None)], vec![]), 1);
    }

    fn meeting(whats: Vec<What>) -> usize {
        let paths = ["a", "b", "c"].map(|name| format!("{MEETING}/{name}"));
        let all = [vec![(1, Some(9))], vec![(4, None)], vec![(9, None)]];
        let lives = paths.iter().map(String::as_str).zip(all).collect();
        judge_meeting(&history(whats), &lives).len()
    }

    fn round(zxid: i64) -> Round {
        Round { zxid, names: vec!["a".to_owned(), "b".to_owned()] }
    }

    fn entered(zxid: i64) -> What {
        What::Entered { number: 1, participants: 2, round: Some(round(zxid)) }
    }

    #[test]
    fn a_round_that_did_not_form_is_seen() {
        assert_eq!(meeting(vec![entered(5), entered(5)]), 0);
        assert_eq!(meeting(vec![entered(3)]), 1);
        // One of them died after the list.
        assert_eq!(meeting(vec![entered(10)]), 0);
        let with = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            let round = Some(Round { zxid: 10, names });
            meeting(vec![What::Entered { number: 1, participants: 2, round }])
        };
        assert_eq!(with(&["b", "c"]), 0);
        assert_eq!(with(&["a", "c"]), 1);
        assert_eq!(with(&["a", "x"]), 1);
        assert_eq!(with(&["b"]), 1);
    }

    #[test]
    fn more_participants_than_a_round_has_are_seen() {
        assert_eq!(meeting(vec![entered(5), entered(5), entered(5)]), 1);
    }

    #[test]
    fn a_leave_before_the_others_is_seen() {
        let departed = |name: &str| What::Departed { round: round(5), present: vec![name.into()] };
        assert_eq!(meeting(vec![departed("c")]), 0);
        assert_eq!(meeting(vec![departed("b")]), 1);
    }
}
