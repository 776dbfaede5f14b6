//! Nobody is granted a lock before its turn: while its znode existed, and before it was granted,
//! there was a moment at which no more contenders were ahead of it than it may share the lock with.
//!
//! This needs no second holder, and it also judges a guard whose znode an administrator has
//! deleted: such a contender may be granted the lock only if its turn came before the deletion, and
//! only until it has read that the znode is gone.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode, SessionId};
use zk_testserver::{Outcome, RequestRecord};

use super::Case;
use super::lives::{Life, lives};
use crate::history::{Event, Id, Share, What};
use crate::program::Job;
use crate::program::locks::{RESIZED, RESIZED_MAX};
use crate::program::views::ELECTION;
use crate::world::plan::FaultKind;

/// Servers give this number, or one below zero, to all contenders that come last.
pub(super) const SEQUENCE_END: u32 = i32::MAX.unsigned_abs();

/// The ends of the names of contenders, before their numbers.
const MARKS: [&str; 5] = ["lock-", "latch-", PERMIT, READER, "__WRIT__"];
const PERMIT: &str = "permit-";
const READER: &str = "__READ__";
/// How many requests a waiter sends at once, to look at those ahead and at its own znode.
const FLIGHT_MAX: i32 = 4;
/// How many digits a server appends.
const DIGITS: usize = 10;

/// What the name of a contender says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contender {
    pub(crate) number: u32,
    pub(crate) is_reader: bool,
    pub(crate) is_permit: bool,
}

/// Returns how the promise was broken.
pub fn judge(case: &Case<'_>) -> Vec<String> {
    let Case { events, commits, plan, deleted, .. } = case;
    // A waiter that may not read its own znode is not told of its end, and may be granted the lock before
    // it has tested whether the znode is there.
    let is_hidden =
        |path: &str| plan.faults.contains(&FaultKind::Permission) && deleted.contains(path);
    let mut violations = judge_lives(events, &lives(commits), &changes(events), is_hidden);
    violations.extend(judge_stored(events, &changes(events)));
    violations.extend(judge_missing(events, &seen_missing(case)));
    violations
}

/// Returns the reads that have told a contender that its own znode is gone. Those who wait behind it
/// read its znode too, and then their own. They may be of the same session, like those who observe the
/// leaders.
fn seen_missing<'a>(case: &Case<'a>) -> Vec<Missing<'a>> {
    let Case { events, requests, commits, program, .. } = case;
    let looks = looks(events);
    let is_observed = |path: &str, at: Duration| {
        path.starts_with(ELECTION)
            && (program.has(Job::Observe) || looks.iter().any(|look| look.contains(&at)))
    };
    let creates = commits.iter().filter(|commit| {
        commit.error == ErrorCode::OK && matches!(commit.op, OpCode::CREATE | OpCode::CREATE2)
    });
    let owners =
        owners(creates.filter_map(|commit| Some((commit.path.as_deref()?, commit.session))));
    let reads = requests.iter().filter_map(|request| {
        let path = request.path.as_deref()?;
        let is_read = matches!(request.op, OpCode::GET_DATA | OpCode::EXISTS);
        let is_missing = request.outcome == Outcome::Applied(ErrorCode::NO_NODE);
        let is_own = owners.get(path) == Some(&request.session) && !is_observed(path, request.at);
        let RequestRecord { session, connection, xid, at, .. } = *request;
        let arrived = case.arrival(request);
        let read = OwnRead { session, connection, xid, path, is_missing, at, arrived };
        (is_read && is_own).then_some(read)
    });
    missing(&reads.collect::<Vec<_>>())
}

/// Returns when callers asked who leads. That reads the znode of the first candidate, which may be of
/// the same session.
fn looks(events: &[Event]) -> Vec<Range<Duration>> {
    let mut open: BTreeMap<Id, Duration> = BTreeMap::new();
    let mut looks = Vec::new();
    for event in events {
        match &event.what {
            What::Begun { call, name: "leader", .. } => {
                open.insert(*call, event.at);
            }
            What::Ended { call, .. } => {
                looks.extend(open.remove(call).map(|begun| begun..event.at));
            }
            _ => {}
        }
    }
    looks.extend(open.into_values().map(|begun| begun..Duration::MAX));
    looks
}

/// A read of a contender by the session that owns it.
#[derive(Clone, Copy)]
struct OwnRead<'a> {
    session: SessionId,
    connection: u64,
    xid: i32,
    path: &'a str,
    is_missing: bool,
    at: Duration,
    /// When its reply has reached the client, if it has.
    arrived: Option<Duration>,
}

/// A read that has told a contender that its znode is gone.
struct Missing<'a> {
    path: &'a str,
    at: Duration,
    arrived: Duration,
}

fn missing<'a>(reads: &[OwnRead<'a>]) -> Vec<Missing<'a>> {
    let mut missing = Vec::new();
    for (index, read) in reads.iter().enumerate().filter(|(_, read)| read.is_missing) {
        let mut later = reads.get(index + 1..).unwrap_or_default().iter();
        // A server may execute other requests between those of a flight.
        let is_of_flight = |next: &&OwnRead<'_>| {
            (next.session, next.connection) == (read.session, read.connection)
                && (1..FLIGHT_MAX).contains(&next.xid.wrapping_sub(read.xid))
        };
        let next = later.find(is_of_flight);
        let is_of_another = next.is_some_and(|next| {
            next.path != read.path && directory(next.path) == directory(read.path)
        });
        if !is_of_another && let Some(arrived) = read.arrived {
            missing.push(Missing { path: read.path, at: read.at, arrived });
        }
    }
    missing
}

fn directory(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(directory, _)| directory)
}

/// Returns who has created each path, without those that were created more than once: the numbers
/// begin again after the servers have removed the empty directory, and a read may be of the first
/// znode.
fn owners<'a>(creates: impl Iterator<Item = (&'a str, SessionId)>) -> BTreeMap<&'a str, SessionId> {
    let mut owners = BTreeMap::new();
    for (path, session) in creates {
        owners.entry(path).and_modify(|owner| *owner = None).or_insert(Some(session));
    }
    owners.into_iter().filter_map(|(path, owner)| Some((path, owner?))).collect()
}

/// An attempt waits for the reply of a read before it sends another request. So it knows of the end
/// of its znode if it has read the znode after the deletion, and the reply has arrived before it was
/// granted the lock. A guard that its caller does not know yet may learn of the end, too; then it is
/// lost.
fn judge_missing(events: &[Event], missing: &[Missing<'_>]) -> Vec<String> {
    let mut violations = Vec::new();
    let mut deleted: BTreeMap<&str, Duration> = BTreeMap::new();
    for event in events {
        match &event.what {
            What::Deleted { path, .. } => drop(deleted.insert(path, event.at)),
            What::Granted { lock, guard, path: Some(path), is_held: true, .. } => {
                // The path of an exclusive lock is used again.
                let is_unique = parse(path).is_some();
                let Some(since) = deleted.get(path.as_str()).filter(|_| is_unique) else {
                    continue;
                };
                // A guard that exists already may read its znode at the same moment.
                let knows = |read: &Missing<'_>| {
                    read.path == path && read.at >= *since && read.arrived < event.at
                };
                if missing.iter().any(knows) {
                    violations.push(format!(
                        "{lock} at {:?}: guard {guard} was granted after it had read that {path} \
                         is gone",
                        event.at
                    ));
                }
            }
            _ => {}
        }
    }
    violations
}

fn judge_lives(
    events: &[Event],
    lives: &BTreeMap<&str, Vec<Life>>,
    changes: &[Change],
    is_hidden: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut queues: BTreeMap<&str, Vec<(Contender, Life)>> = BTreeMap::new();
    for (path, lives) in lives {
        let Some((directory, contender)) = parse(path) else { continue };
        // A name is used once. Another znode of that name is a copy, made by an administrator: whoever
        // has seen the first one go need not wait for the copy.
        let first = lives.first().map(|life| (contender, *life));
        queues.entry(directory).or_default().extend(first);
    }
    let broken = |event: &Event| match &event.what {
        What::Granted { lock, guard, share, path: Some(path), zxid, .. } if !is_hidden(path) => {
            let (directory, Contender { number, .. }) = parse(path)?;
            if number >= SEQUENCE_END {
                return Some(format!("{lock} at {:?}: {path} has no order, and holds", event.at));
            }
            let queue = queues.get(directory)?;
            let mut own = lives.get(path.as_str())?.iter();
            let is_due = own.any(|life| {
                let share = match share {
                    Share::Permit(_) if lock == RESIZED => {
                        Share::Permit(most_permits(changes, life.0, *zxid))
                    }
                    other => *other,
                };
                had_turn(queue, number, *life, share, *zxid)
            });
            (!is_due).then(|| {
                format!(
                    "{lock} at {:?}: guard {guard} was granted at {zxid:#x} or before, and it \
                     never was the turn of {path}",
                    event.at
                )
            })
        }
        _ => None,
    };
    events.iter().filter_map(broken).collect()
}

/// A change of the number of permits. It is committed after `from`, and not after `to`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    permits: u32,
    from: i64,
    to: Option<i64>,
}

/// Returns the changes of the number of permits. The first contender stores the usual number, unless
/// somebody has changed it before.
pub(super) fn changes(events: &[Event]) -> Vec<Change> {
    let mut all: BTreeMap<Id, Change> = BTreeMap::new();
    all.insert(0, Change { permits: RESIZED_MAX, from: 0, to: Some(0) });
    for event in events {
        match &event.what {
            What::Resizing { change, permits, from } => {
                all.insert(*change, Change { permits: *permits, from: *from, to: None });
            }
            What::Resized { change, to } => {
                if let Some(change) = all.get_mut(change) {
                    change.to = Some(*to);
                }
            }
            _ => {}
        }
    }
    all.into_values().collect()
}

/// Returns the numbers of permits that may have been stored at some moment of this time.
pub(super) fn possible_permits(
    changes: &[Change],
    from: i64,
    to: i64,
) -> impl Iterator<Item = u32> + '_ {
    let is_possible = move |change: &&Change| {
        // Another change began after this one had ended, and ended before that time.
        let is_replaced = |other: &Change| {
            change.to.is_some_and(|end| end <= other.from)
                && other.to.is_some_and(|end| end <= from)
                && other.from >= change.from
                && (other.from, other.to) != (change.from, change.to)
        };
        change.from < to && !changes.iter().any(is_replaced)
    };
    changes.iter().filter(is_possible).map(|change| change.permits)
}

fn most_permits(changes: &[Change], from: i64, to: i64) -> usize {
    let most = possible_permits(changes, from, to).max().unwrap_or(RESIZED_MAX);
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// Returns whether the number of permits at the end is one that may be stored then.
fn judge_stored(events: &[Event], changes: &[Change]) -> Vec<String> {
    let broken = |event: &Event| match event.what {
        What::Permits { stored } => {
            let mut possible = possible_permits(changes, i64::MAX, i64::MAX);
            (!possible.any(|permits| permits == stored))
                .then(|| format!("{RESIZED} has {stored} permits in the end: {changes:?}"))
        }
        _ => None,
    };
    events.iter().filter_map(broken).collect()
}

/// Returns the directory of a contender, and what its name says.
pub(crate) fn parse(path: &str) -> Option<(&str, Contender)> {
    let (directory, name) = path.rsplit_once('/')?;
    let (form, digits) = name.split_at_checked(name.len().checked_sub(DIGITS)?)?;
    let number = digits.parse().ok()?;
    let is_contender = MARKS.iter().any(|mark| form.ends_with(mark));
    let (is_reader, is_permit) = (form.ends_with(READER), form.ends_with(PERMIT));
    is_contender.then_some((directory, Contender { number, is_reader, is_permit }))
}

/// Returns whether there was a moment of this life, at this transaction or before, at which few
/// enough were ahead.
fn had_turn(queue: &[(Contender, Life)], number: u32, own: Life, share: Share, zxid: i64) -> bool {
    let (created, deleted) = own;
    let last = deleted.map_or(zxid, |deleted| zxid.min(deleted - 1));
    let excludes = |(other, _): &&(Contender, Life)| {
        other.number < number && (share != Share::Reader || !other.is_reader)
    };
    let ahead: Vec<Life> = queue.iter().filter(excludes).map(|(_, life)| *life).collect();
    let allowed = match share {
        Share::Alone | Share::Reader => 0,
        Share::Permit(permits) => permits - 1,
    };
    let few_at = |moment: i64| {
        let is_there = |(c, d): &&Life| *c <= moment && d.is_none_or(|deleted| deleted > moment);
        ahead.iter().filter(is_there).count() <= allowed
    };
    // Only a deletion can make them few.
    let moments = ahead.iter().filter_map(|(_, deleted)| *deleted).chain([created]);
    moments.into_iter().any(|moment| (created..=last).contains(&moment) && few_at(moment))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::End;
    use crate::judges::tests::history;

    const WRITERS: [(&str, Life); 3] = [
        ("/a/1-lock-0000000001", (1, Some(5))),
        ("/a/2-lock-0000000002", (2, Some(7))),
        ("/a/3-lock-0000000003", (3, None)),
    ];

    fn count(lives: &[(&str, Life)], path: &str, share: Share, zxid: i64) -> usize {
        let lives = lives.iter().map(|(path, life)| (*path, vec![*life])).collect();
        let (lock, path) = ("/a".to_owned(), Some(path.to_owned()));
        let granted =
            What::Granted { lock, guard: 1, share, path, token: None, is_held: true, zxid };
        judge_lives(&history(vec![granted]), &lives, &[], |_| false).len()
    }

    #[test]
    fn a_grant_before_the_turn_is_seen() {
        let [_, (second, _), (third, _)] = WRITERS;
        assert_eq!(count(&WRITERS, second, Share::Alone, 5), 0);
        assert_eq!(count(&WRITERS, second, Share::Alone, 4), 1);
        assert_eq!(count(&WRITERS, third, Share::Alone, 7), 0);
        assert_eq!(count(&WRITERS, third, Share::Alone, 6), 1);
    }

    #[test]
    fn a_grant_without_a_number_is_seen() {
        let [before, last] = ["/a/1-lock-2147483646", "/a/2-lock-2147483647"];
        assert_eq!(count(&[(before, (1, None))], before, Share::Alone, 9), 0);
        assert_eq!(count(&[(last, (1, None))], last, Share::Alone, 9), 1);
    }

    #[test]
    fn a_grant_of_a_contender_whose_turn_never_came_is_seen() {
        let [first, (path, _), third] = WRITERS;
        let count_with = |life| count(&[first, (path, life), third], path, Share::Alone, 9);
        // It was deleted after its turn had come, and the news of the deletion are late.
        assert_eq!(count_with((2, Some(6))), 0);
        // It was deleted while another one was ahead of it.
        assert_eq!(count_with((2, Some(4))), 1);
    }

    #[test]
    fn a_leader_is_looked_for_from_the_call_to_its_end() {
        let begun = |call, name| What::Begun { call, name, on: ELECTION.to_owned(), timeout: None };
        let ended = |call| What::Ended { call, end: End::Done };
        let events = vec![begun(1, "acquire"), begun(2, "leader"), ended(2), begun(3, "leader")];
        let second = Duration::from_secs;
        assert_eq!(looks(&history(events)), [second(1)..second(2), second(3)..Duration::MAX]);
    }

    #[test]
    fn a_grant_to_one_that_knows_of_the_end_of_its_znode_is_seen() {
        let granted = |path: &str| {
            let (lock, share, path) = ("/a".to_owned(), Share::Alone, Some(path.to_owned()));
            What::Granted { lock, guard: 1, share, path, token: None, is_held: true, zxid: 9 }
        };
        // The znode is deleted after one second, and the lock is granted after two seconds.
        let events = |path: &str| {
            let deleted = What::Deleted { path: path.to_owned(), czxid: 1 };
            history(vec![What::Calm, deleted, granted(path)])
        };
        let count = |events: &[Event], path, ms| {
            let at = Duration::from_millis(ms);
            let arrived = at + Duration::from_millis(100);
            judge_missing(events, &[Missing { path, at, arrived }]).len()
        };
        let path = "/a/1-lock-0000000001";
        assert_eq!(count(&events(path), path, 1_500), 1);
        assert_eq!(count(&events(path), path, 500), 0, "a server lagged behind");
        assert_eq!(count(&events(path), path, 2_500), 0, "it was granted before the read");
        assert_eq!(count(&events(path), path, 1_950), 0, "the reply is on its way");
        assert_eq!(count(&events(path), "/a/2-lock-0000000002", 1_500), 0);
        assert_eq!(count(&events("/a/lock"), "/a/lock", 1_500), 0, "others use this path too");
        let alive = history(vec![What::Calm, What::Calm, granted(path)]);
        assert_eq!(count(&alive, path, 1_500), 0);
    }

    #[test]
    fn a_read_before_that_of_another_contender_of_the_session_is_that_ones() {
        let (one, two) = (SessionId(1), SessionId(2));
        let read = |session, path, xid: i32| {
            let at = Duration::from_millis(u64::from(xid.unsigned_abs()));
            let arrived = Some(at);
            OwnRead { session, connection: 1, xid, path, is_missing: true, at, arrived }
        };
        let seen = |reads: &[OwnRead<'static>]| {
            missing(reads).iter().map(|read| read.path).collect::<Vec<_>>()
        };
        assert_eq!(
            seen(&[read(one, "/a/1", 1), read(two, "/a/2", 1), read(one, "/a/3", 2)]),
            ["/a/2", "/a/3"]
        );
        assert_eq!(seen(&[read(one, "/a/1", 1), read(one, "/a/3", 3)]), ["/a/3"]);
        assert_eq!(seen(&[read(one, "/a/1", 1), read(one, "/a/3", 9)]), ["/a/1", "/a/3"]);
        assert_eq!(seen(&[read(one, "/a/1", 1), read(one, "/b/3", 2)]), ["/a/1", "/b/3"]);
        assert_eq!(seen(&[read(one, "/a/1", 1), read(two, "/a/3", 2)]), ["/a/1", "/a/3"]);
        let elsewhere = OwnRead { connection: 2, ..read(one, "/a/3", 2) };
        assert_eq!(seen(&[read(one, "/a/1", 1), elsewhere]), ["/a/1", "/a/3"]);
    }

    #[test]
    fn a_path_that_was_created_twice_is_nobodys() {
        let (one, two) = (SessionId(1), SessionId(2));
        let owners =
            owners([("/a/1", one), ("/a/2", one), ("/a/2", one), ("/a/3", two)].into_iter());
        assert_eq!(owners, BTreeMap::from([("/a/1", one), ("/a/3", two)]));
    }

    #[test]
    fn readers_wait_for_writers_only_and_permits_are_counted() {
        let lives = [
            ("/a/1-__READ__0000000001", (1, None)),
            ("/a/2-__READ__0000000002", (2, None)),
            ("/a/3-__WRIT__0000000003", (3, Some(8))),
            ("/a/4-__READ__0000000004", (4, None)),
        ];
        let [_, (second, _), (writer, _), (last, _)] = lives;
        assert_eq!(count(&lives, second, Share::Reader, 2), 0);
        assert_eq!(count(&lives, writer, Share::Alone, 7), 1);
        assert_eq!(count(&lives, last, Share::Reader, 7), 1);
        assert_eq!(count(&lives, last, Share::Reader, 8), 0);
        let permits = lives.map(|(path, life)| (path.replace("__READ__", "permit-"), life));
        let permits: Vec<(&str, Life)> =
            permits.iter().map(|(path, life)| (path.as_str(), *life)).collect();
        assert_eq!(count(&permits, "/a/4-permit-0000000004", Share::Permit(3), 7), 1);
        assert_eq!(count(&permits, "/a/4-permit-0000000004", Share::Permit(3), 8), 0);
    }

    #[test]
    fn a_writer_waits_for_the_reader_that_a_writer_has_become() {
        let lives = [
            ("/a/1-__WRIT__0000000001", (1, Some(5))),
            ("/a/1-__READ__0000000001", (5, Some(9))),
            ("/a/2-__WRIT__0000000002", (2, None)),
        ];
        let [_, (reader, _), (writer, _)] = lives;
        assert_eq!(count(&lives, writer, Share::Alone, 8), 1);
        assert_eq!(count(&lives, writer, Share::Alone, 9), 0);
        assert_eq!(count(&lives, reader, Share::Reader, 5), 0);
    }

    #[test]
    fn names_of_others_block_nobody() {
        let lives = [
            ("/a/x-0000000001", (1, None)),
            ("/a/0000000001", (1, None)),
            ("/a/2-lock-0000000002", (2, None)),
        ];
        assert_eq!(count(&lives, "/a/2-lock-0000000002", Share::Alone, 2), 0);
    }

    fn resizing(change: Id, permits: u32, from: i64, to: Option<i64>) -> Vec<What> {
        let begun = What::Resizing { change, permits, from };
        std::iter::once(begun).chain(to.map(|to| What::Resized { change, to })).collect()
    }

    #[test]
    fn a_permit_beyond_the_number_that_is_stored_is_seen() {
        let paths = [1, 2, 3].map(|number| format!("{RESIZED}/x-permit-000000000{number}"));
        let lives: BTreeMap<&str, Vec<Life>> = paths
            .iter()
            .zip([10, 20, 30])
            .map(|(path, at)| (path.as_str(), vec![(at, None)]))
            .collect();
        let count = |before: Vec<What>| {
            let (lock, path) = (RESIZED.to_owned(), paths.last().cloned());
            let share = Share::Permit(RESIZED_MAX as usize);
            let granted =
                What::Granted { lock, guard: 1, share, path, token: None, is_held: true, zxid: 40 };
            let events = history(before.into_iter().chain([granted]).collect());
            judge_lives(&events, &lives, &changes(&events), |_| false).len()
        };
        assert_eq!(count(vec![]), 0, "nobody has changed the number");
        assert_eq!(count(resizing(1, 2, 3, Some(4))), 1);
        assert_eq!(count(resizing(1, 2, 3, None)), 0, "perhaps it is not committed yet");
        assert_eq!(count(resizing(1, 2, 3, Some(35))), 0, "it came after the contender");
        let back = [resizing(1, 2, 3, Some(4)), resizing(2, 3, 5, None)].concat();
        assert_eq!(count(back), 0, "it may be three again");
    }

    #[test]
    fn a_number_of_permits_that_was_forgotten_is_seen() {
        let count = |before: Vec<What>, stored: u32| {
            let whats = before.into_iter().chain([What::Permits { stored }]).collect();
            let events = history(whats);
            judge_stored(&events, &changes(&events)).len()
        };
        let set = |change, permits, from| resizing(change, permits, from, Some(from + 1));
        assert_eq!(count(vec![], RESIZED_MAX), 0);
        assert_eq!(count(set(1, 2, 3), 2), 0);
        assert_eq!(count(set(1, 2, 3), RESIZED_MAX), 1);
        let twice = [set(1, 2, 3), set(2, 1, 5)].concat();
        assert_eq!((count(twice.clone(), 1), count(twice, 2)), (0, 1));
        let lost = [resizing(1, 2, 3, None), set(2, 1, 5)].concat();
        assert_eq!((count(lost.clone(), 1), count(lost, 2)), (0, 0));
    }
}
