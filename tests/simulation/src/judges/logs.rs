//! The log tells who is on call what has happened, and no more: nothing repeats without a bound, and
//! nothing warns while nothing is wrong. `docs/logs.md` names the bounds.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use crate::history::{Event, What};
use crate::program::Program;
use crate::world::plan::Plan;

const MINUTE: Duration = Duration::from_secs(60);
/// How many lines of a kind about single locks a client may log in a minute that begins anywhere: ten
/// are visible in each of two minutes of the client, and each has one that says that there are more.
const OF_A_KIND_MAX: usize = 22;
/// How often a client may log in such a minute that it waits for itself at a lock.
const WAITS_MAX: usize = 2;
/// How many lines a client may log in such a minute. A connection that is lost and proven again has
/// two, and worlds with the most faults have two of them per second for a moment.
const LINES_MAX: usize = 120;

const WAITS: &str = "waiting for a znode of the own session";
/// Lines about single locks.
const OF_LOCKS: [&str; 3] = ["the lock is at risk", "the lock is held again", "the lock is lost"];
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

/// Returns how the promise was broken.
pub fn judge(
    events: &[Event],
    plan: &Plan,
    program: &Program,
    quiet: &Range<Duration>,
) -> Vec<String> {
    let clients = (0..program.clients.len()).filter(|client| program.uses(*client)).count();
    // The judges use a client of their own afterwards.
    let lines = lines(events).filter(|line| line.at < quiet.end);
    let lines: Vec<Line<'_>> = lines.collect();
    let mut violations = Vec::new();
    for line in &lines {
        let why = if line.level == "ERROR" {
            "this must never be logged"
        } else if quiet.contains(&line.at) {
            "nobody does anything"
        } else if line.level == "WARN" && !may_warn(plan, line.message) {
            "nothing is wrong"
        } else {
            continue;
        };
        violations.push(format!("{why}, and this is logged: {}", line.event));
    }
    violations.extend(repeated(&lines, clients));
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

/// Returns whether a world gives a reason for a warning.
fn may_warn(plan: &Plan, message: &str) -> bool {
    !plan.faults.is_empty() || ABOUT_CALLERS.iter().any(|about| message.starts_with(about))
}

/// Returns which lines are repeated too often.
fn repeated(lines: &[Line<'_>], clients: usize) -> Vec<String> {
    let mut times: BTreeMap<(&str, &str), (usize, Vec<Duration>)> = BTreeMap::new();
    for line in lines {
        let mut count = |kind, path, most: usize| {
            let (_, times) = times.entry((kind, path)).or_insert((most * clients, Vec::new()));
            times.push(line.at);
        };
        count("lines", "", LINES_MAX);
        if let Some(kind) = OF_LOCKS.iter().find(|kind| **kind == line.message) {
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
    use super::*;
    use crate::draw::Draw;
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
        let quiet = Duration::from_secs(100)..Duration::from_secs(160);
        judge(events, &plan, &program, &quiet).len()
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
        assert_eq!(every(10, 120, "connected"), 0);
        assert_eq!(every(10, 121, "connected"), 1);
    }
}
