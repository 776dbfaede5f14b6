//! What an observer of an election is told was so at some moment, and in this order; what a caller is
//! told of a value is a path through its history. That the last report is the newest state is the
//! promise of `patience`.

use std::collections::BTreeMap;

use jute_codec::{ErrorCode, OpCode};
use zk_testserver::CommitRecord;

use super::lives::{Life, lives};
use super::turns::{SEQUENCE_END, parse};
use crate::history::{Event, Id, What};
use crate::program::values::VALUE;
use crate::program::views::ELECTION;

/// Returns how the promise was broken.
pub fn judge(events: &[Event], commits: &[CommitRecord]) -> Vec<String> {
    let lives = lives(commits);
    let candidates = lives.iter().filter_map(|(path, lives)| {
        let (directory, contender) = parse(path)?;
        // The last number gives no order, so whoever has it never leads.
        let may_lead = directory == ELECTION && contender.number < SEQUENCE_END;
        may_lead.then_some((contender.number, *path, lives))
    });
    let candidates = candidates.flat_map(|(number, path, lives)| {
        lives.iter().map(move |life| Candidate { number, path, life: *life })
    });
    let mut violations = judge_leaders(events, &candidates.collect::<Vec<_>>());
    violations.extend(judge_values(events, &states(commits)));
    violations
}

#[derive(Clone, Copy, Debug)]
struct Candidate<'a> {
    number: u32,
    path: &'a str,
    life: Life,
}

impl Candidate<'_> {
    fn exists_at(&self, zxid: i64) -> bool {
        let (created, deleted) = self.life;
        created <= zxid && deleted.is_none_or(|deleted| deleted > zxid)
    }
}

fn judge_leaders(events: &[Event], candidates: &[Candidate<'_>]) -> Vec<String> {
    let mut violations = Vec::new();
    // The last leader that was reported.
    let mut last: BTreeMap<Id, i64> = BTreeMap::new();
    for event in events {
        if let What::Named { path } = &event.what {
            let mut own = candidates.iter().filter(|it| it.path == path);
            if !own.any(|own| has_led(own, candidates)) {
                violations.push(format!("it has never led: {event}"));
            }
        }
        let What::Leads { view, leader } = &event.what else { continue };
        let before = last.get(view).copied();
        let broken = match leader {
            Some((path, token)) => {
                let own = candidates.iter().find(|it| it.path == path && it.life.0 == *token);
                last.insert(*view, *token);
                match own {
                    None => Some("there was no such candidate"),
                    Some(own) if !has_led(own, candidates) => Some("it has never led"),
                    Some(_) if before.is_some_and(|before| before >= *token) => {
                        Some("a later one was reported before")
                    }
                    Some(_) => None,
                }
            }
            None => {
                let since = before.unwrap_or(0);
                let ends = candidates.iter().filter_map(|it| it.life.1).chain([0]);
                let mut moments = ends.filter(|moment| *moment >= since);
                let is_vacant =
                    moments.any(|moment| !candidates.iter().any(|it| it.exists_at(moment)));
                (!is_vacant).then_some("somebody has led all the time")
            }
        };
        if let Some(broken) = broken {
            violations.push(format!("{broken}: {event}"));
        }
    }
    violations
}

/// Returns whether a candidate was the first at some moment.
fn has_led(own: &Candidate<'_>, candidates: &[Candidate<'_>]) -> bool {
    // Only the end of another one makes it the first.
    let ends = candidates.iter().filter_map(|it| it.life.1);
    let mut moments = ends.chain([own.life.0]).filter(|moment| own.exists_at(*moment));
    let is_ahead = |it: &Candidate<'_>, moment| it.number < own.number && it.exists_at(moment);
    moments.any(|moment| !candidates.iter().any(|it| is_ahead(it, moment)))
}

/// Returns the czxids that the value has had, with its last version, and the time of its deletion.
fn states(commits: &[CommitRecord]) -> BTreeMap<i64, (i32, Option<i64>)> {
    let mut states: BTreeMap<i64, (i32, Option<i64>)> = BTreeMap::new();
    let of_value =
        commits.iter().filter(|it| it.error == ErrorCode::OK && it.path.as_deref() == Some(VALUE));
    for commit in of_value {
        match (commit.op, states.last_entry()) {
            (OpCode::SET_DATA, Some(mut last)) => last.get_mut().0 += 1,
            (OpCode::DELETE, Some(mut last)) => last.get_mut().1 = Some(commit.zxid.0),
            (OpCode::CREATE | OpCode::CREATE2, _) => drop(states.insert(commit.zxid.0, (0, None))),
            _ => {}
        }
    }
    states
}

fn judge_values(events: &[Event], states: &BTreeMap<i64, (i32, Option<i64>)>) -> Vec<String> {
    let mut violations = Vec::new();
    let mut last: BTreeMap<Id, (i64, i32)> = BTreeMap::new();
    for event in events {
        let What::Valued { view, state } = &event.what else { continue };
        let before = last.get(view).copied();
        let broken = match state {
            Some((czxid, version)) => {
                last.insert(*view, (*czxid, *version));
                match states.get(czxid) {
                    Some((newest, _)) if (0..=*newest).contains(version) => before
                        .is_some_and(|before| before > (*czxid, *version))
                        .then_some("a newer state was reported before"),
                    _ => Some("it never was in this state"),
                }
            }
            None => {
                let is_gone = before.is_none_or(|(czxid, _)| {
                    states.get(&czxid).is_some_and(|(_, deleted)| deleted.is_some())
                });
                (!is_gone).then_some("it was not deleted")
            }
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

    const FIRST: Candidate<'_> = Candidate { number: 1, path: "/e/1", life: (3, Some(7)) };
    const SECOND: Candidate<'_> = Candidate { number: 2, path: "/e/2", life: (4, Some(6)) };
    const THIRD: Candidate<'_> = Candidate { number: 3, path: "/e/3", life: (5, None) };

    fn leaders(reports: &[Option<Candidate<'_>>]) -> usize {
        let leads = |leader: &Option<Candidate<'_>>| What::Leads {
            view: 1,
            leader: leader.map(|it| (it.path.to_owned(), it.life.0)),
        };
        let events = history(reports.iter().map(leads).collect());
        judge_leaders(&events, &[FIRST, SECOND, THIRD]).len()
    }

    #[test]
    fn leaders_that_have_not_led_are_seen() {
        assert_eq!(leaders(&[None, Some(FIRST), Some(THIRD)]), 0);
        assert_eq!(leaders(&[Some(SECOND)]), 1, "it was behind another one all the time");
        assert_eq!(leaders(&[Some(Candidate { life: (8, None), ..THIRD })]), 1);
        assert_eq!(leaders(&[Some(THIRD), Some(FIRST)]), 1, "the order is wrong");
        assert_eq!(leaders(&[Some(FIRST), Some(FIRST)]), 1, "nothing has changed");
        assert_eq!(leaders(&[Some(FIRST), None]), 1, "the third was there");
    }

    #[test]
    fn values_beside_the_history_are_seen() {
        let states = BTreeMap::from([(3, (2, Some(9))), (10, (0, None))]);
        let count = |reports: &[Option<(i64, i32)>]| {
            let valued = |state: &Option<(i64, i32)>| What::Valued { view: 1, state: *state };
            judge_values(&history(reports.iter().map(valued).collect()), &states).len()
        };
        assert_eq!(count(&[None, Some((3, 0)), Some((3, 2)), Some((3, 2)), None]), 0);
        assert_eq!(count(&[Some((3, 1)), Some((10, 0))]), 0);
        assert_eq!(count(&[Some((3, 3))]), 1, "it never had this version");
        assert_eq!(count(&[Some((4, 0))]), 1, "it never had this czxid");
        assert_eq!(count(&[Some((3, 2)), Some((3, 1))]), 1, "it goes back");
        assert_eq!(count(&[Some((10, 0)), None]), 1, "it is still there");
    }
}
