//! What contending processes write down about one lock, and what must hold of it.
//!
//! Every process appends to the same file, a line with one write, so that the order of the lines
//! is an order of events that all agree on. `grant` is written after the lock was obtained, and
//! `release` before it is given back: the time between them is less than the time of holding, and
//! overlaps seen here are overlaps indeed.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Directory of the lock, below the chroot of the processes.
pub const DIRECTORY: &str = "/lock";

/// A line of the log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// What happened.
    pub event: Event,
    /// To whom; processes are numbered from 0.
    pub process: usize,
    /// In which of its rounds.
    pub round: u64,
    /// The fencing token, or 0 where there is none.
    pub token: i64,
    /// More about it, without a space.
    pub detail: String,
    /// Number of the connection of the process at that time.
    pub connection: u64,
    /// Milliseconds of the wall clock: for people, and for no decision.
    pub ms: u64,
}

/// What a line of the log tells.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Event {
    /// The process is connected.
    Start,
    /// It has the lock. Detail: path of its znode.
    Grant,
    /// It is about to release. Detail: state of the lock.
    Release,
    /// It found the lock lost when its `Release` was written already. Detail: the reason.
    Lost,
    /// It has released. Detail: how that ended.
    Done,
    /// It gave up waiting, as it had meant to.
    Missed,
    /// Its session expired while it waited, too often to go on.
    Expired,
}

/// What a run must reach.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Number of processes.
    pub processes: usize,
    /// Least number of grants of each of them.
    pub grants_min: usize,
    /// Line from which on each of them must have been granted the lock once more.
    pub mark: usize,
}

/// Figures of a run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Summary {
    /// Grants.
    pub grants: usize,
    /// Times somebody gave up waiting.
    pub missed: usize,
    /// Locks that were lost while they were held.
    pub losses: usize,
    /// Acquires that ended with an expired session.
    pub expired: usize,
    /// Locks that were at risk when they were released.
    pub at_risk: usize,
    /// Reconnects while waiting for the lock.
    pub cuts_waiting: u64,
    /// Reconnects while holding it. With [`at_risk`](Self::at_risk), all faults of that time: a
    /// short hold is over before the next connection.
    pub cuts_holding: u64,
    /// Reconnects while releasing it.
    pub cuts_releasing: u64,
    /// Longest time between one grant and the next.
    pub gap_max: Duration,
}

/// Reads the lines that are complete.
///
/// # Errors
///
/// The first line that is not one of a process.
pub fn read(log: &str) -> Result<Vec<Record>, String> {
    let complete = log.rfind('\n').and_then(|end| log.get(..end)).unwrap_or("");
    complete.lines().map(str::parse).collect()
}

/// Checks a log: at most one holder at a time, tokens that grow, and nobody forgotten.
///
/// # Errors
///
/// Everything that is wrong.
pub fn check(log: &[Record], expected: &Expected) -> Result<Summary, Vec<String>> {
    let mut problems = Vec::new();
    let tenures = tenures(log, expected.processes, &mut problems);
    check_overlaps(&tenures, &mut problems);
    check_tokens(&tenures, &mut problems);
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
    if problems.is_empty() { Ok(summary(log, &tenures)) } else { Err(problems) }
}

/// Figures of a log that may be incomplete.
pub fn progress(log: &[Record]) -> Summary {
    summary(log, &[])
}

/// A time of holding.
#[derive(Clone, Copy, Debug)]
struct Tenure<'a> {
    grant: &'a Record,
    from: usize,
    until: usize,
    is_lost: bool,
}

/// Follows each process through its rounds.
fn tenures<'a>(log: &'a [Record], processes: usize, problems: &mut Vec<String>) -> Vec<Tenure<'a>> {
    let mut tenures: Vec<Tenure<'a>> = Vec::new();
    // The last record of each process, and the tenure that it belongs to.
    let mut last: Vec<Option<(&Record, Option<usize>)>> = vec![None; processes];
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
            tenures.push(Tenure { grant: record, from: line, until: usize::MAX, is_lost: false });
        } else if let Some(tenure) = tenure.and_then(|index| tenures.get_mut(index)) {
            match record.event {
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
        Event::Release => before.event == Event::Grant && is_same_tenure,
        Event::Lost => before.event == Event::Release && is_same_tenure,
        Event::Done => matches!(before.event, Event::Release | Event::Lost) && is_same_tenure,
    }
}

/// Of two who hold at the same time, the one with the lower token must know that it has lost the
/// lock.
fn check_overlaps(tenures: &[Tenure<'_>], problems: &mut Vec<String>) {
    let mut open: Vec<&Tenure<'_>> = Vec::new();
    for later in tenures {
        open.retain(|earlier| later.from < earlier.until);
        for earlier in &open {
            let lower = if earlier.grant.token < later.grant.token { earlier } else { &later };
            if !lower.is_lost {
                problems.push(format!("two holders: {} and {}", earlier.grant, later.grant));
            }
        }
        open.push(later);
    }
}

/// Tokens grow with the grants, and so the grants follow the order in which the znodes were
/// created. Only who has lost the lock may have been too slow to write its grant down.
fn check_tokens(tenures: &[Tenure<'_>], problems: &mut Vec<String>) {
    let mut highest = 0;
    let mut znodes = BTreeSet::new();
    let mut tokens = BTreeSet::new();
    for tenure in tenures {
        let grant = tenure.grant;
        if grant.token <= highest && !tenure.is_lost {
            problems.push(format!("the token does not grow, {highest} was before: {grant}"));
        }
        if !tokens.insert(grant.token) || !znodes.insert(&grant.detail) {
            problems.push(format!("granted twice: {grant}"));
        }
        highest = highest.max(grant.token);
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
            Event::Grant => {
                let gap_ms = record.ms.saturating_sub(granted_ms.unwrap_or(record.ms));
                granted_ms = Some(record.ms);
                summary.gap_max = summary.gap_max.max(Duration::from_millis(gap_ms));
                summary.grants += 1;
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
    /// True if the process neither holds the lock nor releases it.
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

impl Event {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Grant => "grant",
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

const EVENTS: [Event; 7] = [
    Event::Start,
    Event::Grant,
    Event::Release,
    Event::Lost,
    Event::Done,
    Event::Missed,
    Event::Expired,
];
