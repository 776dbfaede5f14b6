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

/// Path of the lock, below the chroot of the processes.
pub const LOCK: &str = "/lock";

/// What the processes fight for, which says what must hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "one for each type of lock")]
pub enum Contest {
    /// One at a time, in the order of the queue.
    Fair,
    /// Readers with readers, writers alone, and nobody passes one whom it excludes.
    ReadWrite,
    /// One at a time.
    Exclusive,
}

/// A line of the log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// What happened.
    pub event: Event,
    /// To whom; processes are numbered from 0.
    pub process: usize,
    /// In which of its rounds.
    pub round: u64,
    /// The fencing token, or 0 where there is none: readers have none.
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
    /// It holds for writing, and is about to go on as a reader.
    Share,
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
    /// What it is about.
    pub contest: Contest,
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
    /// Those of them that share with others from the beginning.
    pub shared: usize,
    /// Writers that became readers.
    pub downgrades: usize,
    /// Shared grants while somebody else shared.
    pub joins: usize,
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

/// Checks a log: nobody holds beside one whom it excludes, grants are in order, and nobody is
/// forgotten.
///
/// # Errors
///
/// Everything that is wrong.
pub fn check(log: &[Record], expected: &Expected) -> Result<Summary, Vec<String>> {
    let mut problems = Vec::new();
    let tenures = tenures(log, expected, &mut problems);
    let joins = check_overlaps(expected.contest, &tenures, &mut problems);
    check_tokens(expected.contest, &tenures, &mut problems);
    if expected.contest == Contest::ReadWrite {
        check_passing(&tenures, &mut problems);
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

/// Figures of a log that may be incomplete.
pub fn progress(log: &[Record]) -> Summary {
    summary(log, &[])
}

/// A time of holding.
#[derive(Clone, Copy, Debug)]
struct Tenure<'a> {
    grant: &'a Record,
    from: usize,
    /// From here on it shares. A reader does from the beginning, others never do.
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
            let is_reader = expected.contest == Contest::ReadWrite && record.token == 0;
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

/// Of two who exclude each other and hold at the same time, the one who came first into the queue
/// must know that it has lost the lock. How often one joined others.
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

/// Tokens grow with the grants, and so the grants follow the order in which the znodes were
/// created. Only who has lost the lock may have been too slow to write its grant down.
fn check_tokens(contest: Contest, tenures: &[Tenure<'_>], problems: &mut Vec<String>) {
    let mut highest = 0;
    let mut znodes = BTreeSet::new();
    let mut tokens = BTreeSet::new();
    for tenure in tenures {
        let grant = tenure.grant;
        // The znodes of an exclusive lock have one name.
        let is_new_znode = znodes.insert(&grant.detail) || contest == Contest::Exclusive;
        let is_reader = contest == Contest::ReadWrite && grant.token == 0;
        let is_new_token = is_reader || tokens.insert(grant.token);
        if grant.token <= highest && !tenure.is_lost && !is_reader {
            problems.push(format!("the token does not grow, {highest} was before: {grant}"));
        }
        if !is_new_token || !is_new_znode {
            problems.push(format!("granted twice: {grant}"));
        }
        highest = highest.max(grant.token);
    }
}

/// Nobody is granted the lock after one who stands behind it in the queue, and whom it excludes.
/// The tokens say it of writers alone.
fn check_passing(tenures: &[Tenure<'_>], problems: &mut Vec<String>) {
    let (mut highest, mut highest_writer) = (0, 0);
    for tenure in tenures {
        let place = tenure.place(Contest::ReadWrite);
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
    /// What the ensemble orders contenders by.
    fn place(&self, contest: Contest) -> i64 {
        match contest {
            Contest::Fair | Contest::Exclusive => self.grant.token,
            // Readers have no token. The number behind the name of the znode serves as well, as the
            // directory lasts.
            Contest::ReadWrite => {
                let path = &self.grant.detail;
                let digits = path.len().checked_sub(SEQUENCE_DIGITS).and_then(|at| path.get(at..));
                // The first is 0, and everybody is above nobody.
                digits.and_then(|digits| digits.parse().ok()).map_or(0, |number: i64| number + 1)
            }
        }
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

impl fmt::Display for Contest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fair => "fair",
            Self::ReadWrite => "read-write",
            Self::Exclusive => "exclusive",
        })
    }
}

impl FromStr for Contest {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        [Self::Fair, Self::ReadWrite, Self::Exclusive]
            .into_iter()
            .find(|contest| contest.to_string() == name)
            .ok_or_else(|| format!("no such contest: {name}"))
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

/// Digits that a server appends.
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
