//! A run as a table that people can read: a column for each client, from top to bottom what it did,
//! what it sent, what it was told, and between them what went wrong.
//!
//! It shows what concerns a violation, as far as the sentence about it names paths and a time, and
//! at most [`LINES_MAX`] lines. The whole run is in the trace.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use zk_testserver::{Outcome, RequestRecord};

use crate::history::{End, Event, Id, What, Who};
use crate::judges::Violation;
use crate::run::Report;

/// How many lines a timeline has at most, without those that a long text continues on.
pub const LINES_MAX: usize = 120;
/// How wide all columns are together, if there are not too many of them.
const WIDTH: usize = 150;
/// How narrow a column may be.
const COLUMN_MIN: usize = 36;
/// How many letters of an identity tell it from the others.
const IDENTITY: usize = 4;

/// Something that is shown.
struct Entry {
    at: Duration,
    /// The client in whose column it is. `None`: it has a line of its own.
    client: Option<usize>,
    text: String,
}

/// Returns the timeline of a violation.
pub fn timeline(report: &Report, violation: &Violation) -> String {
    let concern = Concern::of(&violation.sentence, &report.events);
    let entries: Vec<Entry> =
        entries(report, &concern).into_iter().filter(|entry| entry.at <= concern.until).collect();
    let left_out = entries.len().saturating_sub(LINES_MAX);
    let shown = entries.get(left_out..).unwrap_or_default();
    let clients: BTreeSet<usize> = entries.iter().filter_map(|entry| entry.client).collect();
    let columns: Vec<usize> = clients.into_iter().collect();
    let width = (WIDTH / columns.len().max(1)).max(COLUMN_MIN);
    let header = |client: &usize| format!("{:width$}", format!("c{client}"));
    let header = columns.iter().map(header).collect::<String>();
    let mut text = format!("{:>12}{}\n", "", header.trim_end());
    if left_out > 0 {
        text.push_str(&format!("{:>12}({left_out} lines before)\n", ""));
    }
    for entry in shown {
        let column = entry.client.and_then(|client| columns.iter().position(|it| *it == client));
        let indent = column.map_or(0, |column| column * width);
        let room = if column.is_some() { width - 2 } else { WIDTH };
        for (number, part) in wrapped(&entry.text, room).into_iter().enumerate() {
            let time = match number {
                0 => format!("{:9.3} s ", entry.at.as_secs_f64()),
                _ => String::new(),
            };
            text.push_str(format!("{time:12}{:indent$}{part}", "").trim_end());
            text.push('\n');
        }
    }
    text
}

/// What a violation is about.
#[derive(Debug)]
struct Concern {
    /// The paths. Empty: all.
    paths: BTreeSet<String>,
    /// When it was found.
    until: Duration,
}

impl Concern {
    fn of(sentence: &str, events: &[Event]) -> Self {
        let mut paths = paths(sentence);
        // A call that is named by its number has a path, too.
        for event in events {
            if let What::Begun { call, on, .. } = &event.what
                && words(sentence).any(|word| word.strip_prefix('#') == Some(&call.to_string()))
                && on.starts_with('/')
            {
                paths.insert(on.clone());
            }
        }
        // Events have a space before the unit.
        let sentence = sentence.replace(" s ", "s ");
        let until = words(&sentence).filter_map(duration).max().unwrap_or(Duration::MAX);
        // The moment of a sentence may be rounded.
        Self { paths, until: until.saturating_add(Duration::from_millis(1)) }
    }

    fn has(&self, path: &str) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|named| are_related(named, path))
    }

    fn has_all_of(&self, text: &str) -> bool {
        let paths = paths(text);
        paths.is_empty() || paths.iter().any(|path| self.has(path))
    }
}

/// Returns whether a znode matters for another one: one is above the other, or they are contenders in
/// the same directory.
fn are_related(named: &str, path: &str) -> bool {
    let is_below = |path: &str, other: &str| {
        path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let is_sequential = named.ends_with(|last: char| last.is_ascii_digit());
    let directory = named.rsplit_once('/').map(|(directory, _)| directory).unwrap_or_default();
    is_below(path, named)
        || is_below(named, path)
        || (is_sequential && !directory.is_empty() && is_below(path, directory))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_between = |letter: char| letter.is_whitespace() || "\"(){}[],;".contains(letter);
    text.split(is_between).map(|word| word.trim_end_matches([':', '.'])).filter(|it| !it.is_empty())
}

fn paths(text: &str) -> BTreeSet<String> {
    words(text).filter(|word| word.len() > 1 && word.starts_with('/')).map(str::to_owned).collect()
}

/// Reads a time as Rust prints it, such as `1.5s`.
fn duration(word: &str) -> Option<Duration> {
    let digits = word.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match word.get(digits.len()..)? {
        "s" => 1.0,
        "ms" => 1e-3,
        "µs" => 1e-6,
        _ => return None,
    };
    let number: f64 = digits.parse().ok()?;
    Duration::try_from_secs_f64(number * unit).ok()
}

/// Merges what callers were told with what the servers have received.
fn entries(report: &Report, concern: &Concern) -> Vec<Entry> {
    let mut texts = Texts::new(&report.events);
    let mut entries = Vec::new();
    let requests = report
        .requests
        .iter()
        .filter(|request| request.path.as_deref().is_none_or(|path| concern.has(path)));
    let mut requests = requests.peekable();
    for event in &report.events {
        // At the same moment, a call begins before its requests, and all else comes after them.
        let is_first = matches!(event.what, What::Begun { .. });
        let is_before = |at: Duration| if is_first { at < event.at } else { at <= event.at };
        while let Some(request) = requests.next_if(|request| is_before(request.at)) {
            entries.extend(request_entry(report, request));
        }
        entries.extend(texts.entry(event, concern));
    }
    entries.extend(requests.filter_map(|request| request_entry(report, request)));
    entries
}

/// Returns a request with its reply. Those of the judges are nobody's.
fn request_entry(report: &Report, request: &RequestRecord) -> Option<Entry> {
    let client = *report.sessions.get(&request.session)?;
    let path = request.path.as_deref().unwrap_or_default();
    let outcome = match request.outcome {
        Outcome::Applied(code) => format!("{code:?}"),
        Outcome::AppliedUnanswered(code) => format!("{code:?}, and no reply"),
        Outcome::Misreported { result, reported } => {
            format!("{result:?}, reported as {reported:?}")
        }
        Outcome::Dropped => "not processed".to_owned(),
        Outcome::Held => "committed later, and no reply".to_owned(),
        Outcome::Refused(code) => format!("refused with {code:?}"),
        other => format!("{other:?}"),
    };
    let zxid = request.zxid.map(|zxid| format!(" as {:#x}", zxid.0)).unwrap_or_default();
    let text = shortened(&format!("  > {:?} {path} -> {outcome}{zxid}", request.op));
    Some(Entry { at: request.at, client: Some(client), text })
}

/// Finds texts for events.
struct Texts<'a> {
    /// The calls, and whether they are shown.
    calls: BTreeMap<Id, (&'a str, bool)>,
    /// Who has which guard.
    guards: BTreeMap<Id, Who>,
    /// Clients with more than one task.
    crowded: BTreeSet<usize>,
}

impl<'a> Texts<'a> {
    fn new(events: &[Event]) -> Self {
        let tasks: BTreeSet<Who> = events.iter().filter_map(|event| event.who).collect();
        let is_crowded =
            |client: &usize| tasks.iter().filter(|who| who.client == *client).count() > 1;
        let crowded = tasks.iter().map(|who| who.client).filter(is_crowded).collect();
        Self { calls: BTreeMap::new(), guards: BTreeMap::new(), crowded }
    }

    fn entry(&mut self, event: &'a Event, concern: &Concern) -> Option<Entry> {
        let text = self.text(event, concern)?;
        let text = match event.who {
            Some(Who { client, task }) if self.crowded.contains(&client) => {
                format!("t{task} {text}")
            }
            _ => text,
        };
        let (at, client) = (event.at, event.who.map(|who| who.client));
        Some(Entry { at, client, text: shortened(&text) })
    }

    fn text(&mut self, event: &'a Event, concern: &Concern) -> Option<String> {
        match &event.what {
            What::Begun { call, name, on, timeout } => {
                let is_shown = concern.has_all_of(on);
                self.calls.insert(*call, (name, is_shown));
                let within = timeout.map(|it| format!(" within {it:?}")).unwrap_or_default();
                is_shown.then(|| format!("#{call} {name} {on}{within}"))
            }
            What::Ended { call, end } => {
                let (name, is_shown) = self.calls.get(call).copied().unwrap_or_default();
                let end = match end {
                    End::Done => "done".to_owned(),
                    End::Failed(failure) => format!("FAILED: {failure:?}"),
                    End::Dropped => "dropped by its caller".to_owned(),
                };
                is_shown.then(|| format!("#{call} {name}: {end}"))
            }
            What::Granted { lock, guard, path, token, is_held, .. } => {
                if let Some(who) = event.who {
                    self.guards.insert(*guard, who);
                }
                let path = path.as_deref().unwrap_or(lock);
                let token = token.map(|it| format!(", token {it:#x}")).unwrap_or_default();
                let held = if *is_held { "" } else { ", but not held" };
                concern.has(lock).then(|| format!("GRANTED guard {guard}{held}: {path}{token}"))
            }
            What::Held { lock, guards } => {
                let name = |(guard, _): &(Id, _)| match self.guards.get(guard) {
                    Some(who) => format!("guard {guard} ({who})"),
                    None => format!("guard {guard}"),
                };
                let names: Vec<String> = guards.iter().map(name).collect();
                let names = if names.is_empty() { "nobody".to_owned() } else { names.join(", ") };
                concern.has_all_of(lock).then(|| format!("== {lock} is held by {names}"))
            }
            What::Fault { number, text } => Some(format!("~~ fault {number}, {text}")),
            What::Deleted { path, .. } => Some(format!("~~ an administrator has deleted {path}")),
            What::Logged { level, message, path } => {
                let path = path.as_deref().unwrap_or_default();
                concern.has_all_of(path).then(|| format!("%% {level} {message} {path}"))
            }
            What::Suspended { duration } => Some(format!("~~ all clients stop for {duration:?}")),
            What::Calm => Some("~~ the faults stop".to_owned()),
            What::Closing => Some("== the clients are closed".to_owned()),
            What::Overdue { .. }
            | What::Outlived { .. }
            | What::Unleased { .. }
            | What::HeldByClosed { .. }
            | What::Wavered { .. }
            | What::LostSession { is_told: true, alive: Some(_) }
            | What::Late { .. }
            | What::GrantedLost { .. }
            | What::RanAtRisk { .. }
            | What::Hung { .. }
            | What::Intruded { .. }
            | What::NotContinued { .. }
            | What::Strayed { .. }
            | What::Outdated { .. }
            | What::Revived { .. }
            | What::TrustedKeeper { .. }
            | What::OtherList { .. }
            | What::Panicked(_)
            | What::Spinning => Some(format!("!! {:?}", event.what)),
            other => {
                let text = format!("{other:?}");
                concern.has_all_of(&text).then_some(text)
            }
        }
    }
}

/// Shortens the identities in the names of znodes.
fn shortened(text: &str) -> String {
    let mut short = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let is_digit = |letter: char| letter.is_ascii_hexdigit();
        let run = rest.find(|letter| !is_digit(letter)).unwrap_or(rest.len());
        let (digits, after) = rest.split_at(run);
        if run >= 24 {
            short.push_str(digits.get(..IDENTITY).unwrap_or(digits));
            short.push('…');
        } else {
            short.push_str(digits);
        }
        let next = after.find(is_digit).unwrap_or(after.len());
        let (between, after) = after.split_at(next);
        short.push_str(between);
        rest = after;
    }
    short
}

/// Breaks a text into lines, at a space where there is one. Those after the first are indented.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    let (mut lines, mut rest) = (Vec::new(), letters.as_slice());
    while !rest.is_empty() {
        let indent = if lines.is_empty() { 0 } else { 4 };
        let room = width.saturating_sub(indent).max(8);
        let space = || rest.iter().take(room + 1).rposition(|letter| *letter == ' ');
        let at = if rest.len() <= room {
            rest.len()
        } else {
            space().filter(|it| *it > 8).unwrap_or(room)
        };
        let (line, after) = rest.split_at(at);
        lines.push(format!("{:indent$}{}", "", line.iter().collect::<String>().trim_end()));
        rest = after;
        while let [' ', after @ ..] = rest {
            rest = after;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_its_paths_and_its_time() {
        let concern = Concern::of("/locks/a at 12.5s: guard 3 (\"/rw/x-1\") after 3ms", &[]);
        assert_eq!(concern.until, Duration::from_millis(12_501));
        assert!(concern.has("/locks/a/lock-1") && concern.has("/locks") && concern.has("/rw/y-2"));
        assert!(!concern.has("/locks/b") && !concern.has("/semaphore"));
        let concern = Concern::of("begun within 3s:     5.631 s  c0.t1  #3 acquire", &[]);
        assert_eq!(concern.until, Duration::from_millis(5_632));
    }

    #[test]
    fn a_sentence_without_a_path_concerns_all() {
        let concern = Concern::of("7 requests", &[]);
        assert!(concern.has("/a"));
        assert_eq!(concern.until, Duration::MAX);
    }

    #[test]
    fn identities_are_short_and_numbers_stay() {
        let path = "/a/8099f593f586919c6409f63ec8ffb883-lock-0000000012 as 0x7";
        assert_eq!(shortened(path), "/a/8099…-lock-0000000012 as 0x7");
    }

    #[test]
    fn long_texts_are_wrapped_and_nothing_is_lost() {
        let lines = wrapped("one two three four five six seven", 16);
        assert_eq!(lines, ["one two three", "    four five", "    six seven"]);
        let lines = wrapped(&"x".repeat(40), 16);
        assert_eq!(lines.concat().matches('x').count(), 40);
        assert!(lines.iter().all(|line| line.len() <= 16));
    }
}
