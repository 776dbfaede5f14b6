//! Nobody passes a barrier that was closed all the time, a change is applied once, and participants
//! of a double barrier enter together and leave together.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode, SessionId};
use zk_testserver::CommitRecord;

use super::is_tampered;
use super::lives::{Life, lives};
use crate::history::{End, Event, Id, Round, What};
use crate::program::barriers::{BARRIER, MEETING};
use crate::world::plan::Plan;

/// How long after the end of a call its participant may appear or stay.
const GHOST_MAX: Duration = Duration::from_secs(60);

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
    // A server that is cut off shows what was true before, even if there is no other.
    let is_at_once = plan.reads_are_current();
    let mut violations = judge_barrier(events, lives.get(BARRIER), is_at_once);
    violations.extend(judge_meeting(events, &lives));
    violations.extend(judge_numbers(events, &formed(commits)));
    violations.extend(judge_presence(events));
    violations.extend(judge_missed(events, &created(commits)));
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

/// Returns when each round was formed, and its number: the version of the directory's data, which
/// begins again with each directory.
fn formed(commits: &[CommitRecord]) -> Vec<(i64, i32)> {
    let mut version = 0;
    let mut rounds = Vec::new();
    let is_meeting = |commit: &&CommitRecord| {
        commit.error == ErrorCode::OK && commit.path.as_deref() == Some(MEETING)
    };
    for commit in commits.iter().filter(is_meeting) {
        if commit.op == OpCode::SET_DATA {
            version += 1;
            rounds.push((commit.zxid.0, version));
        } else if !matches!(commit.op, OpCode::CHECK | OpCode::SET_ACL) {
            version = 0;
        }
    }
    rounds
}

/// A participant is told the number of a round that was formed while it entered, and each number is
/// told to no more callers than the round has participants. So those of a round agree, and numbers
/// grow.
fn judge_numbers(events: &[Event], rounds: &[(i64, i32)]) -> Vec<String> {
    let mut violations = Vec::new();
    let mut told: BTreeMap<i64, usize> = BTreeMap::new();
    for event in events {
        let What::Entered { number, participants, from, to, .. } = &event.what else { continue };
        let meant = rounds
            .iter()
            .filter(|(zxid, version)| version == number && (from + 1..=*to).contains(zxid));
        // The same number may have been used in two directories meanwhile.
        let meant: Vec<i64> = meant.map(|(zxid, _)| *zxid).collect();
        if let [zxid] = meant.as_slice() {
            *told.entry(*zxid).or_default() += 1;
        }
        let is_too_often =
            meant.first().and_then(|zxid| told.get(zxid)).is_some_and(|told| told > participants);
        if meant.is_empty() || is_too_often {
            violations.push(format!(
                "a participant has entered round {number} at {:?}, which was not formed between \
                 {from:#x} and {to:#x}, or has other participants",
                event.at
            ));
        }
    }
    violations
}

/// Returns who has created each participant, and when.
fn created(commits: &[CommitRecord]) -> Vec<(String, SessionId, i64)> {
    let name = |commit: &CommitRecord| {
        let name = commit.path.as_deref()?.strip_prefix(MEETING)?.strip_prefix('/')?;
        let is_create = matches!(commit.op, OpCode::CREATE | OpCode::CREATE2);
        let is_created = is_create && commit.error == ErrorCode::OK;
        is_created.then(|| (name.to_owned(), commit.session, commit.zxid.0))
    };
    commits.iter().filter_map(name).collect()
}

/// A participant that a round has counted enters that round, or is told that it may have missed one.
///
/// With two calls of one client at once, nobody knows which participant belongs to which. The
/// participant of a call that has failed may appear a while later.
fn judge_missed(events: &[Event], created: &[(String, SessionId, i64)]) -> Vec<String> {
    let mut violations = Vec::new();
    let mut rounds: Vec<(i32, &Round)> = Vec::new();
    let mut entering: BTreeMap<usize, Vec<Id>> = BTreeMap::new();
    let mut crowded: BTreeSet<usize> = BTreeSet::new();
    let mut haunted_until: BTreeMap<usize, Duration> = BTreeMap::new();
    // The end of a call is recorded right before what it has returned.
    let mut was_alone = false;
    for event in events {
        let client = event.who.map_or(usize::MAX, |who| who.client);
        match &event.what {
            What::Formed { number, round } => rounds.push((*number, round)),
            What::Begun { name: "enter", call, .. } => {
                let calls = entering.entry(client).or_default();
                calls.push(*call);
                let is_haunted = haunted_until.get(&client).is_some_and(|until| *until > event.at);
                if calls.len() > 1 || is_haunted {
                    crowded.insert(client);
                }
            }
            What::Ended { call, end } => {
                if let Some(calls) = entering.get_mut(&client)
                    && calls.contains(call)
                {
                    calls.retain(|other| other != call);
                    if *end != End::Done {
                        haunted_until.insert(client, event.at + GHOST_MAX);
                    }
                    was_alone = !crowded.contains(&client);
                    if calls.is_empty() {
                        crowded.remove(&client);
                    }
                }
            }
            What::Entered { number, from, to, sessions, .. } if was_alone => {
                let is_own = |name: &String| {
                    created.iter().any(|(other, session, zxid)| {
                        other == name && sessions.contains(session) && zxid > from
                    })
                };
                let missed = rounds.iter().find(|(other, round)| {
                    (from + 1..=*to).contains(&round.zxid)
                        && other != number
                        && round.names.iter().any(is_own)
                });
                if let Some((other, round)) = missed {
                    violations.push(format!(
                        "a participant has entered round {number} at {:?}, and round {other} has \
                         counted it before: {round:?}",
                        event.at
                    ));
                }
            }
            _ => {}
        }
    }
    violations
}

fn judge_presence(events: &[Event]) -> Vec<String> {
    let broken = |event: &Event| match event.what {
        // The session in which it has entered lives.
        What::Present { has_left: true, is_alive: true, is_same: true, has_znode } => {
            Some(format!("has left, in a session that lives, with a znode: {has_znode}"))
        }
        What::Present { has_left: false, is_alive: true, has_znode: false, .. } => {
            Some("is inside, and none of its session is".to_owned())
        }
        _ => None,
    };
    let violations = events.iter().filter_map(|event| Some((event, broken(event)?)));
    violations
        .map(|(event, text)| format!("a participant says at {:?} that it {text}", event.at))
        .collect()
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
    use crate::history::Failure;
    use crate::judges::tests::{history, on_server};

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
        entered_as(1, Some(round(zxid)), 0, zxid)
    }

    fn entered_as(number: i32, round: Option<Round>, from: i64, to: i64) -> What {
        What::Entered { number, participants: 2, round, from, to, sessions: vec![SessionId(7)] }
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
            meeting(vec![entered_as(1, round, 0, 10)])
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
    fn a_number_of_another_round_is_seen() {
        // The third round is the first one of another directory.
        let rounds = [(5, 1), (8, 2), (20, 1)];
        let count = |told: &[(i32, i64, i64)]| {
            let told = told.iter().map(|(number, from, to)| entered_as(*number, None, *from, *to));
            judge_numbers(&history(told.collect()), &rounds).len()
        };
        assert_eq!(count(&[(1, 2, 5), (1, 3, 9), (2, 5, 8), (2, 7, 30), (1, 10, 20)]), 0);
        assert_eq!(count(&[(2, 2, 5)]), 1, "it was not formed yet");
        assert_eq!(count(&[(1, 5, 9)]), 1, "it was formed before");
        assert_eq!(count(&[(3, 2, 30)]), 1, "it was never formed");
        assert_eq!(count(&[(2, 2, 9), (2, 2, 9), (2, 2, 9)]), 1, "one of them belongs to another");
    }

    #[test]
    fn a_round_that_a_participant_has_missed_is_seen() {
        let call =
            |call| What::Begun { call, name: "enter", on: MEETING.to_owned(), timeout: None };
        let ended = |call| What::Ended { call, end: End::Done };
        let formed = |number, zxid| What::Formed { number, round: round(zxid) };
        let count = |owner, whats: Vec<What>| {
            let created = [("a".to_owned(), SessionId(owner), 4)];
            judge_missed(&history(whats), &created).len()
        };
        let told = |number| entered_as(number, None, 3, 9);
        let missed = || vec![call(1), formed(4, 6), ended(1), told(5)];
        assert_eq!(count(7, missed()), 1);
        assert_eq!(count(8, missed()), 0, "another client has entered as a");
        assert_eq!(count(7, vec![call(1), formed(4, 6), ended(1), told(4)]), 0);
        assert_eq!(count(7, vec![formed(4, 2), call(1), ended(1), told(5)]), 0, "it is older");
        let two = vec![call(1), call(2), formed(4, 6), ended(1), told(5), ended(2), told(4)];
        assert_eq!(count(7, two), 0, "the other call may have entered as a");
        let failed = What::Ended { call: 9, end: End::Failed(Failure::TimedOut) };
        let late = [call(9), failed].into_iter().chain(missed()).collect();
        assert_eq!(count(7, late), 0, "the call before may have entered as a");
    }

    #[test]
    fn rounds_are_counted_from_the_creation_of_their_directory() {
        let commits = on_server(async |server| {
            for _ in 0..2 {
                server.admin_create(MEETING, b"", None);
                server.admin_set_data(MEETING, b"a");
                server.admin_set_data(MEETING, b"b");
                server.admin_delete(MEETING);
            }
            server.commits()
        });
        let versions: Vec<i32> = formed(&commits).into_iter().map(|(_, version)| version).collect();
        assert_eq!(versions, [1, 2, 1, 2]);
    }

    #[test]
    fn a_participant_that_does_not_know_whether_it_has_left_is_seen() {
        let count = |has_left, is_alive, is_same, has_znode| {
            let what = What::Present { has_left, is_alive, is_same, has_znode };
            judge_presence(&history(vec![what])).len()
        };
        assert_eq!(count(false, true, true, true), 0);
        assert_eq!(count(false, true, true, false), 1);
        assert_eq!(count(false, true, false, false), 1);
        assert_eq!(count(true, true, true, true), 1);
        assert_eq!(count(true, true, false, false), 0);
        // It does not know of the end of its session yet.
        assert_eq!(count(false, false, true, false), 0);
    }

    #[test]
    fn a_leave_before_the_others_is_seen() {
        let departed = |name: &str| What::Departed { round: round(5), present: vec![name.into()] };
        assert_eq!(meeting(vec![departed("c")]), 0);
        assert_eq!(meeting(vec![departed("b")]), 1);
    }
}
