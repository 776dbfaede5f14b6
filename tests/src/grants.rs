//! The log of processes that contend for one lock, and its checker.
//!
//! Every process appends to the same file, each line with one write, so the order of the lines is a
//! global order of events. `grant` is written after the lock was granted, and `release` before the
//! lock is released. So the process holds the lock for the whole time between the two lines, and
//! overlaps in the log are real.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::case::{Case, names};
use crate::with_case;

/// The lock that the processes contend for, and the rules for its grants. Contenders of a shared
/// case compete with their rivals.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Contest {
    /// Name of the case.
    pub name: &'static str,
    /// Whether contenders that exclude each other are granted the lock in the order of their
    /// znodes.
    pub is_fair: bool,
    /// Whether some contenders share the lock and have no fencing token.
    pub is_shared: bool,
    /// Whether each contender has a znode with its own name.
    pub is_queued: bool,
    /// Whether a holder may continue as a reader.
    pub has_downgrade: bool,
    /// Whether sequence numbers order some of the contenders, which have no fencing token. These
    /// numbers start again at 0 when the server deletes the directory, so the directory has to
    /// stay.
    pub is_numbered: bool,
}

impl Contest {
    /// Returns the contest of a case.
    pub fn of<C: Case>() -> Self {
        Self {
            name: C::NAME,
            is_fair: C::IS_FAIR,
            is_shared: C::IS_SHARED,
            is_queued: C::MARK.is_some(),
            has_downgrade: C::HAS_DOWNGRADE || C::Rival::HAS_DOWNGRADE,
            is_numbered: !C::IS_FENCED,
        }
    }

    /// Returns the contests of all cases.
    pub fn all() -> Vec<Self> {
        let contest = |name| with_case!(name, C => Self::of::<C>()).expect("it is in the list");
        names().into_iter().map(contest).collect()
    }
}

/// A line of the log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// The event that happened.
    pub event: Event,
    /// Number of the process, from 0.
    pub process: usize,
    /// Round of the process.
    pub round: u64,
    /// The fencing token; 0 for a reader, which has none; and for another lock without tokens a
    /// number that grows with the sequence number of the znode.
    pub token: i64,
    /// Details of the event, without a space.
    pub detail: String,
    /// Number of the connection of the process at the time.
    pub connection: u64,
    /// Milliseconds of the wall clock, for human readers. No check uses them.
    pub ms: u64,
}

/// Event of a line of the log.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Event {
    /// The process is connected.
    Start,
    /// The process was granted the lock. The detail is the path of its znode.
    Grant,
    /// The process is a writer that is about to become a reader.
    Share,
    /// The process is about to release the lock. The detail is the state of the lock.
    Release,
    /// The process found the lock lost after it had written `Release`. The detail is the reason.
    Lost,
    /// The process has released the lock. The detail is the outcome.
    Done,
    /// The process gave up waiting, as planned.
    Missed,
    /// The process gave up because its session expired too often while it waited.
    Expired,
}

/// Requirements for a run.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// The lock that the processes contend for, and its rules.
    pub contest: Contest,
    /// Number of processes.
    pub processes: usize,
    /// Minimum number of grants of each process.
    pub grants_min: usize,
    /// Line after which each process must be granted the lock at least once more.
    pub mark: usize,
}

/// Figures of a run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Summary {
    /// Number of grants.
    pub grants: usize,
    /// Grants of readers.
    pub shared: usize,
    /// Writers that became readers.
    pub downgrades: usize,
    /// Grants of readers while another reader held the lock.
    pub joins: usize,
    /// Acquires that gave up waiting.
    pub missed: usize,
    /// Locks that were lost while held.
    pub losses: usize,
    /// Acquires that ended with an expired session.
    pub expired: usize,
    /// Locks that were at risk when they were released.
    pub at_risk: usize,
    /// Reconnects while waiting for the lock.
    pub cuts_waiting: u64,
    /// Reconnects while holding the lock. A short hold may end before the client reconnects, so the
    /// faults during holds are these reconnects and [`at_risk`](Self::at_risk) together.
    pub cuts_holding: u64,
    /// Reconnects while releasing the lock.
    pub cuts_releasing: u64,
    /// Longest time between one grant and the next.
    pub gap_max: Duration,
}

/// Parses the complete lines.
///
/// # Errors
///
/// The first line that cannot be parsed.
pub fn read(log: &str) -> Result<Vec<Record>, String> {
    let complete = log.rfind('\n').and_then(|end| log.get(..end)).unwrap_or("");
    complete.lines().map(str::parse).collect()
}

/// Checks a log: no two processes that exclude each other hold the lock together, grants are in
/// order, and no process starves.
///
/// # Errors
///
/// All violations.
pub fn check(log: &[Record], expected: &Expected) -> Result<Summary, Vec<String>> {
    let mut problems = Vec::new();
    let tenures = tenures(log, expected, &mut problems);
    let joins = check_overlaps(expected.contest, &tenures, &mut problems);
    check_tokens(expected.contest, &tenures, &mut problems);
    if expected.contest.is_shared && expected.contest.is_fair {
        check_passing(expected.contest, &tenures, &mut problems);
    }
    for process in 0..expected.processes {
        let own = || tenures.iter().filter(|tenure| tenure.grant.process == process);
        let count = own().count();
        if count < expected.grants_min {
            problems.push(format!("process {process} was granted the lock {count} times"));
        }
        if !own().any(|tenure| tenure.from >= expected.mark) {
            problems.push(format!("process {process} starved from line {} on", expected.mark));
        }
    }
    if problems.is_empty() {
        Ok(Summary { joins, ..summary(log, &tenures) })
    } else {
        Err(problems)
    }
}

/// Returns the figures of a log that may still grow.
pub fn progress(log: &[Record]) -> Summary {
    summary(log, &[])
}

/// The time between a grant and its release.
#[derive(Clone, Copy, Debug)]
struct Tenure<'a> {
    grant: &'a Record,
    from: usize,
    /// Line from which on the process shares the lock. For a reader this is the line of its grant,
    /// and for a writer the line of the downgrade.
    shares: usize,
    until: usize,
    is_lost: bool,
}

/// Follows each process through its rounds.
fn tenures<'a>(
    log: &'a [Record],
    expected: &Expected,
    problems: &mut Vec<String>,
) -> Vec<Tenure<'a>> {
    let mut tenures: Vec<Tenure<'a>> = Vec::new();
    // The last record of each process, and the tenure that it belongs to.
    let mut last: Vec<Option<(&Record, Option<usize>)>> = vec![None; expected.processes];
    for (line, record) in log.iter().enumerate() {
        let Some(last) = last.get_mut(record.process) else {
            problems.push(format!("line {line}: an unknown process: {record}"));
            continue;
        };
        let (before, tenure) = last.map_or((None, None), |(record, tenure)| (Some(record), tenure));
        if !follows(before, record) {
            problems.push(format!("line {line}: out of turn: {record}"));
        }
        let mut tenure = if record.event == Event::Grant { None } else { tenure };
        if record.event == Event::Grant {
            tenure = Some(tenures.len());
            let (until, is_lost) = (usize::MAX, false);
            let is_reader = expected.contest.is_shared && record.token == 0;
            let shares = if is_reader { line } else { usize::MAX };
            tenures.push(Tenure { grant: record, from: line, shares, until, is_lost });
        } else if let Some(tenure) = tenure.and_then(|index| tenures.get_mut(index)) {
            match record.event {
                Event::Share => tenure.shares = line,
                Event::Release => {
                    tenure.until = line;
                    tenure.is_lost = record.detail.starts_with("Lost");
                }
                Event::Lost => tenure.is_lost = true,
                Event::Start | Event::Grant | Event::Done | Event::Missed | Event::Expired => {}
            }
        }
        *last = Some((record, tenure));
    }
    for (process, last) in last.iter().enumerate() {
        if !last.is_some_and(|(record, _)| record.is_idle()) {
            problems.push(format!("process {process} did not come to its end: {last:?}"));
        }
    }
    tenures
}

fn follows(before: Option<&Record>, record: &Record) -> bool {
    let Some(before) = before else {
        return record.event == Event::Start;
    };
    let is_same_tenure = before.round == record.round && before.token == record.token;
    match record.event {
        Event::Start => false,
        Event::Grant | Event::Missed | Event::Expired => {
            before.is_idle() && before.round < record.round
        }
        Event::Share => before.event == Event::Grant && is_same_tenure && record.token != 0,
        Event::Release => matches!(before.event, Event::Grant | Event::Share) && is_same_tenure,
        Event::Lost => before.event == Event::Release && is_same_tenure,
        Event::Done => matches!(before.event, Event::Release | Event::Lost) && is_same_tenure,
    }
}

/// Checks the overlaps: if two contenders that exclude each other hold the lock at the same time,
/// the contender that is ahead in the queue must know that it has lost the lock. Returns the number
/// of readers that joined others.
fn check_overlaps(contest: Contest, tenures: &[Tenure<'_>], problems: &mut Vec<String>) -> usize {
    let mut joins = 0;
    let mut open: Vec<&Tenure<'_>> = Vec::new();
    for later in tenures {
        open.retain(|earlier| later.from < earlier.until);
        for earlier in &open {
            if later.shares <= later.from && earlier.shares <= later.from {
                joins += 1;
                continue;
            }
            let is_before = earlier.place(contest) < later.place(contest);
            let first = if is_before { earlier } else { &later };
            if !first.is_lost {
                problems.push(format!("two holders: {} and {}", earlier.grant, later.grant));
            }
        }
        open.push(later);
    }
    joins
}

/// Checks that the tokens grow with the grants, so that the grants follow the order in which the
/// znodes were created. Only a process that has lost the lock may have written its grant too late.
fn check_tokens(contest: Contest, tenures: &[Tenure<'_>], problems: &mut Vec<String>) {
    // In a queue without an order, a late contender may be granted the lock before an early one.
    let do_grow = contest.is_fair || !contest.is_queued;
    let mut highest = 0;
    let mut znodes = BTreeSet::new();
    let mut tokens = BTreeSet::new();
    for tenure in tenures {
        let grant = tenure.grant;
        // All znodes of an exclusive lock have the same name.
        let is_new_znode = znodes.insert(&grant.detail) || !contest.is_queued;
        let is_reader = contest.is_shared && grant.token == 0;
        let is_new_token = is_reader || tokens.insert(grant.token);
        if grant.token <= highest && !tenure.is_lost && !is_reader && do_grow {
            problems.push(format!("the token does not grow, {highest} was before: {grant}"));
        }
        if !is_new_token || !is_new_znode {
            problems.push(format!("granted twice: {grant}"));
        }
        highest = highest.max(grant.token);
    }
}

/// Checks that no contender is granted the lock after a contender that is behind it in the queue
/// and that it excludes. The tokens show this for writers only.
fn check_passing(contest: Contest, tenures: &[Tenure<'_>], problems: &mut Vec<String>) {
    let (mut highest, mut highest_writer) = (0, 0);
    for tenure in tenures {
        let place = tenure.place(contest);
        let is_reader = tenure.grant.token == 0;
        let passed = if is_reader { highest_writer } else { highest };
        if place <= passed && !tenure.is_lost {
            problems.push(format!("{passed} has passed it: {}", tenure.grant));
        }
        highest = highest.max(place);
        if !is_reader {
            highest_writer = highest_writer.max(place);
        }
    }
}

impl Tenure<'_> {
    /// Returns the number by which the ensemble orders contenders.
    fn place(&self, contest: Contest) -> i64 {
        if !contest.is_shared {
            return self.grant.token;
        }
        // Readers have no token. The sequence number of the znode works as well, because
        // `is_numbered` keeps the directory.
        let path = &self.grant.detail;
        let digits = path.len().checked_sub(SEQUENCE_DIGITS).and_then(|at| path.get(at..));
        // The first sequence number is 0, but 0 must be lower than all places.
        digits.and_then(|digits| digits.parse().ok()).map_or(0, |number: i64| number + 1)
    }
}

fn summary(log: &[Record], tenures: &[Tenure<'_>]) -> Summary {
    let mut summary = Summary {
        losses: tenures.iter().filter(|tenure| tenure.is_lost).count(),
        ..Summary::default()
    };
    let mut connections = Vec::new();
    let mut granted_ms = None;
    for record in log {
        if connections.len() <= record.process {
            connections.resize(record.process + 1, record.connection);
        }
        let cuts = connections.get_mut(record.process).map_or(0, |before| {
            record.connection.saturating_sub(std::mem::replace(before, record.connection))
        });
        match record.event {
            Event::Start => {}
            Event::Share => {
                summary.downgrades += 1;
                summary.cuts_holding += cuts;
            }
            Event::Grant => {
                let gap_ms = record.ms.saturating_sub(granted_ms.unwrap_or(record.ms));
                granted_ms = Some(record.ms);
                summary.gap_max = summary.gap_max.max(Duration::from_millis(gap_ms));
                summary.grants += 1;
                summary.shared += usize::from(record.token == 0);
                summary.cuts_waiting += cuts;
            }
            Event::Missed => {
                summary.missed += 1;
                summary.cuts_waiting += cuts;
            }
            Event::Expired => {
                summary.expired += 1;
                summary.cuts_waiting += cuts;
            }
            Event::Release | Event::Lost => {
                summary.at_risk += usize::from(record.detail == "AtRisk");
                summary.cuts_holding += cuts;
            }
            Event::Done => summary.cuts_releasing += cuts,
        }
    }
    summary
}

impl Record {
    /// Returns whether the process neither holds the lock nor releases it.
    fn is_idle(&self) -> bool {
        matches!(self.event, Event::Start | Event::Done | Event::Missed | Event::Expired)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { event, process, round, token, detail, connection, ms } = self;
        let event = event.name();
        write!(f, "{event} {process} {round} {token} {detail} {connection} {ms}")
    }
}

impl FromStr for Record {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let fields: Vec<&str> = line.split(' ').collect();
        let [event, process, round, token, detail, connection, ms] = fields[..] else {
            return Err(format!("not seven fields: {line:?}"));
        };
        let wrong = |error| format!("{line:?}: {error}");
        Ok(Self {
            event: Event::from_name(event).ok_or_else(|| format!("no such event: {line:?}"))?,
            process: process.parse().map_err(wrong)?,
            round: round.parse().map_err(wrong)?,
            token: token.parse().map_err(wrong)?,
            detail: detail.to_owned(),
            connection: connection.parse().map_err(wrong)?,
            ms: ms.parse().map_err(wrong)?,
        })
    }
}

impl fmt::Display for Contest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Event {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Grant => "grant",
            Self::Share => "share",
            Self::Release => "release",
            Self::Lost => "lost",
            Self::Done => "done",
            Self::Missed => "missed",
            Self::Expired => "expired",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        EVENTS.into_iter().find(|event| event.name() == name)
    }
}

/// Digits of a sequence number.
const SEQUENCE_DIGITS: usize = 10;

const EVENTS: [Event; 8] = [
    Event::Start,
    Event::Grant,
    Event::Share,
    Event::Release,
    Event::Lost,
    Event::Done,
    Event::Missed,
    Event::Expired,
];
