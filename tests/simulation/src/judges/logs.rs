//! The log tells who is on call what has happened, and no more: nothing repeats without a bound, and
//! nothing warns while nothing is wrong. `docs/logs.md` names the bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use jute_codec::{ErrorCode, SessionId};
use zk_testserver::{Outcome, RequestRecord};

use super::{Case, refusal};
use crate::history::{Event, What};
use crate::program::Program;
use crate::world::plan::Plan;

const MINUTE: Duration = Duration::from_secs(60);
/// How many lines of a kind about single locks a client may log in a minute that begins anywhere: ten
/// are visible in each of two minutes of the client, and each has one that says that there are more.
const OF_A_KIND_MAX: usize = 22;
/// How often a client may log in such a minute that it waits for itself at a lock.
const WAITS_MAX: usize = 2;
/// How many lines a client may log in such a minute about its connections. One that is lost and made
/// again has two. There is one connection per second, after a burst of one for each server and eight
/// more, which worlds with the most faults need, and lists of servers that change all the time.
const OF_CONNECTIONS_MAX: usize = 150;
/// How many lines of all kinds a client may log in such a minute.
const LINES_MAX: usize = OF_CONNECTIONS_MAX + OF_LOCKS.len() * OF_A_KIND_MAX;

const WAITS: &str = "waiting for a znode of this client's session";
/// Lines about connections.
const OF_CONNECTIONS: [&str; 2] = ["connected", "connection lost"];
/// A line of a client that a server has refused to remove something.
const REFUSED: &str = "a server refuses to remove";
/// Lines about single locks and items.
const OF_LOCKS: [&str; 6] = [
    "the lock is at risk",
    "the lock is held again",
    "the lock is lost",
    REFUSED,
    "a watch did not report a change",
    "an item of a work queue is passed over",
];
/// Warnings about what callers do, or what they have configured: the shortest session timeouts leave a
/// part of a second for a lease, so that locks are lost on slow links.
const ABOUT_CALLERS: [&str; 6] = [
    WAITS,
    "the path of the cache does not exist",
    "there is no lease",
    "guard deadline passed",
    "the lock is at risk",
    "the lock is lost",
];
/// A warning about what a caller has cut short that closes its client: nobody waits for the marker of
/// a put any more.
const ABOUT_ENDS: &str = "the marker of a put could not be deleted";
/// A warning about servers that lag behind: all of a list may refuse a client that has seen more. A
/// client that begins without a past, and stays with its servers, does not meet them.
const ABOUT_LAG: &str = "still not connected";
/// A Keeper continues no session, so a move to another server ends one.
const ABOUT_SESSIONS: &str = "session lost";
/// The ensemble has published servers that no client can use.
const ABOUT_MEMBERS: &str = "the ensemble cannot be followed";

/// Returns how the promise was broken.
pub fn judge(case: &Case<'_>) -> Vec<String> {
    let Case { plan, program, events, requests, quiet, .. } = case;
    judge_log(events, plan, program, quiet, refused(requests))
}

/// Returns how many sessions were refused something. A client may have several. Who removes a znode may
/// also be refused to look for it.
fn refused(requests: &[RequestRecord]) -> usize {
    let is_refused = |request: &&RequestRecord| {
        refusal(request).is_some() || request.outcome == Outcome::Applied(ErrorCode::NO_AUTH)
    };
    let sessions = requests.iter().filter(is_refused).map(|request| request.session);
    sessions.collect::<BTreeSet<SessionId>>().len()
}

/// The last argument is how many sessions were refused something.
fn judge_log(
    events: &[Event],
    plan: &Plan,
    program: &Program,
    quiet: &Range<Duration>,
    refused: usize,
) -> Vec<String> {
    let used = (0..program.clients.len()).filter(|client| program.uses(*client)).count();
    let clients = used + events.iter().filter(|event| adds_client(event)).count();
    // The judges use a client of their own afterwards.
    let lines = lines(events).filter(|line| line.at < quiet.end);
    let lines: Vec<Line<'_>> = lines.collect();
    let mut violations = Vec::new();
    for line in &lines {
        let why = if line.level == "ERROR" {
            "this must never be logged"
        } else if quiet.contains(&line.at) {
            "nobody does anything"
        } else if line.level == "WARN" && !may_warn(plan, program, line.message) {
            "nothing is wrong"
        } else {
            continue;
        };
        violations.push(format!("{why}, and this is logged: {}", line.event));
    }
    violations.extend(repeated(&lines, clients, refused));
    violations
}

/// A line of the log.
struct Line<'a> {
    at: Duration,
    level: &'a str,
    message: &'a str,
    path: Option<&'a str>,
    event: &'a Event,
}

fn lines(events: &[Event]) -> impl Iterator<Item = Line<'_>> {
    events.iter().filter_map(|event| match &event.what {
        What::Logged { level, message, path } => {
            let path = path.as_deref();
            Some(Line { at: event.at, level, message, path, event })
        }
        _ => None,
    })
}

/// Returns whether a client begins to log beside those of the beginning: one that follows another one,
/// or that of somebody without credentials.
fn adds_client(event: &Event) -> bool {
    match &event.what {
        What::Followed => true,
        What::Fault { text, .. } => text.starts_with("Intruder"),
        _ => false,
    }
}

/// Returns whether a world gives a reason for a warning.
fn may_warn(plan: &Plan, program: &Program, message: &str) -> bool {
    let is_one_of = |all: &[&str]| all.iter().any(|about| message.starts_with(about));
    let lags = !plan.unapplied_max().is_zero();
    // Whoever needs another server may find that all the others lag behind what it has seen.
    let moves = program.ends.is_some() || program.moves.is_some() || plan.closes_connections();
    // Whoever may not read what it follows is warned.
    !plan.faults.is_empty()
        || plan.blind.is_some()
        || is_one_of(&ABOUT_CALLERS)
        || (program.ends.is_some() && message.starts_with(ABOUT_ENDS))
        || (lags && moves && is_one_of(&[ABOUT_LAG]))
        || (!plan.resumes() && message.starts_with(ABOUT_SESSIONS))
        || (plan.is_followed && message.starts_with(ABOUT_MEMBERS))
}

/// Returns which lines are repeated too often.
fn repeated(lines: &[Line<'_>], clients: usize, refused: usize) -> Vec<String> {
    let mut times: BTreeMap<(&str, &str), (usize, Vec<Duration>)> = BTreeMap::new();
    for line in lines {
        let mut count = |kind, path, most: usize| {
            let clients = if kind == REFUSED { refused.min(clients) } else { clients };
            let (_, times) = times.entry((kind, path)).or_insert((most * clients, Vec::new()));
            times.push(line.at);
        };
        count("lines", "", LINES_MAX);
        if OF_CONNECTIONS.contains(&line.message) {
            count("lines about connections", "", OF_CONNECTIONS_MAX);
        }
        if let Some(kind) = OF_LOCKS.iter().find(|kind| line.message.starts_with(**kind)) {
            count(kind, "", OF_A_KIND_MAX);
        }
        if line.message.starts_with(WAITS) {
            count(WAITS, line.path.unwrap_or_default(), WAITS_MAX);
        }
    }
    let too_often = times.into_iter().filter_map(|((kind, path), (most, times))| {
        // One more than there may be, within a minute.
        let minute = times.windows(most + 1).find_map(|some| {
            let [first, .., last] = some else { return None };
            (*last - *first < MINUTE).then_some(*last)
        })?;
        Some(format!("{kind} {path}: more than {most} are logged in the minute before {minute:?}"))
    });
    too_often.collect()
}

#[cfg(test)]
mod tests {
    use zk_testserver::ServerVersion;

    use super::*;
    use crate::draw::Draw;
    use crate::program::Job;
    use crate::program::ends::Ends;
    use crate::program::hosts::Moves;
    use crate::world::plan::FaultKind;

    fn logged(ms: u64, level: &'static str, message: &str, path: Option<&str>) -> Event {
        let (message, path) = (message.to_owned(), path.map(str::to_owned));
        let what = What::Logged { level, message, path };
        Event { at: Duration::from_millis(ms), who: None, what }
    }

    /// Judges the log of a client in a world with these faults, which is quiet from 100 to 160 s.
    fn count(faults: &[FaultKind], events: &[Event]) -> usize {
        let mut draw = Draw::new(1);
        let plan = Plan { faults: faults.to_vec(), ..Plan::draw(&mut draw) };
        let mut program = Program::draw(&mut draw);
        program.clients.truncate(1);
        (program.ends, program.moves) = (None, None);
        let quiet = Duration::from_secs(100)..Duration::from_secs(160);
        judge_log(events, &plan, &program, &quiet, 1).len()
    }

    #[test]
    fn ends_and_moves_are_reasons_for_some_warnings() {
        let mut draw = Draw::new(1);
        let calm = Plan { faults: Vec::new(), lag: Duration::ZERO, ..Plan::draw(&mut draw) };
        let calm = Plan { unapplied: Duration::ZERO, leader_unapplied: Duration::ZERO, ..calm };
        let calm = Plan { version: ServerVersion::V3_9, ..calm };
        let behind = Plan { lag: Duration::from_millis(1), ..calm.clone() };
        let drawn = Program { ends: None, moves: None, ..Program::draw(&mut draw) };
        let ending = Program { ends: Some(Ends::draw(&mut draw)), ..drawn.clone() };
        let moving = Program { moves: Some(Moves::draw(&mut draw)), ..drawn.clone() };
        assert!(!may_warn(&calm, &moving, ABOUT_ENDS));
        assert!(may_warn(&calm, &ending, ABOUT_ENDS));
        assert!(!may_warn(&behind, &ending, "the journal is full"));
        assert!(!may_warn(&behind, &drawn, ABOUT_LAG) && !may_warn(&calm, &moving, ABOUT_LAG));
        let following = Plan { is_followed: true, ..calm.clone() };
        assert!(may_warn(&following, &moving, ABOUT_MEMBERS));
        assert!(!may_warn(&calm, &moving, ABOUT_MEMBERS));
        assert!(may_warn(&behind, &moving, ABOUT_LAG) && may_warn(&behind, &ending, ABOUT_LAG));
        let old = Plan { version: ServerVersion::V3_5, ..behind };
        assert!(may_warn(&old, &drawn, ABOUT_LAG), "such a server closes connections");
    }

    #[test]
    fn clients_that_follow_others_log_for_themselves() {
        let line = |ms| logged(ms, "WARN", WAITS, Some("/a"));
        let follows = Event { at: Duration::ZERO, who: None, what: What::Followed };
        let lines = |number| (0..number).map(line);
        let count = |number| {
            let events: Vec<Event> = [follows.clone()].into_iter().chain(lines(number)).collect();
            count(&[FaultKind::Cut], &events)
        };
        assert_eq!((count(4), count(5)), (0, 1));
    }

    #[test]
    fn lines_in_quiet_time_are_seen() {
        let line = |ms| logged(ms, "INFO", "connected", None);
        assert_eq!(count(&[FaultKind::Cut], &[line(99_000), line(161_000)]), 0);
        assert_eq!(count(&[FaultKind::Cut], &[line(101_000)]), 1);
    }

    #[test]
    fn warnings_without_a_reason_are_seen() {
        let lost = [logged(1, "WARN", "session lost", None)];
        assert_eq!(count(&[], &lost), 1);
        assert_eq!(count(&[FaultKind::Cut], &lost), 0);
        assert_eq!(count(&[], &[logged(1, "WARN", WAITS, Some("/a"))]), 0);
        assert_eq!(count(&[], &[logged(1, "INFO", "connected", None)]), 0);
    }

    #[test]
    fn errors_are_seen_whatever_is_wrong() {
        assert_eq!(count(&[FaultKind::Cut], &[logged(1, "ERROR", "no", None)]), 1);
    }

    #[test]
    fn lines_that_are_repeated_without_a_bound_are_seen() {
        let every = |pause_ms: u64, number: u64, message: &str| {
            let line = |index| logged(index * pause_ms, "WARN", message, Some("/a"));
            count(&[FaultKind::Cut], &(0..number).map(line).collect::<Vec<_>>())
        };
        assert_eq!(every(10, 2, WAITS), 0);
        assert_eq!(every(10, 3, WAITS), 1);
        assert_eq!(every(30_000, 3, WAITS), 0);
        assert_eq!(every(10, 22, "the lock is at risk"), 0);
        assert_eq!(every(10, 23, "the lock is at risk"), 1);
        assert_eq!(every(10, 23, "a server refuses to remove the contender znode; retrying"), 1);
        assert_eq!(every(10, 150, "connected"), 0);
        assert_eq!(every(10, 151, "connected"), 1);
        assert_eq!(every(10, 282, "the journal is full"), 0);
        assert_eq!(every(10, 283, "the journal is full"), 1);
    }

    #[test]
    fn only_clients_that_were_refused_log_refusals() {
        let mut draw = Draw::new(1);
        let plan = Plan { faults: vec![FaultKind::Permission], ..Plan::draw(&mut draw) };
        let mut program = Program::draw(&mut draw);
        program.clients = vec![vec![vec![Job::Add]]; 2];
        let line = |number: u64| logged(number * 10, "INFO", "a server refuses to remove it", None);
        let lines: Vec<Event> = (0..23).map(line).collect();
        let quiet = Duration::from_secs(100)..Duration::from_secs(160);
        let count = |refused| judge_log(&lines, &plan, &program, &quiet, refused).len();
        assert_eq!((count(1), count(2)), (1, 0));
    }
}
