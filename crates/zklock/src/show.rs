//! Locks and their entries, as tables for people and as JSON for programs.

use std::io::{self, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::duration::Short;
use crate::exit::Failure;
use crate::queue::{Entry, Queue};
use crate::survey::Line;
use crate::table::Table;

/// Shows the queues of locks.
pub(crate) fn queues_in_words(queues: &[Queue], now: SystemTime) -> String {
    queues.iter().map(|queue| in_words(queue, now)).collect::<Vec<_>>().join("\n")
}

pub(crate) fn queues_in_json(queues: &[Queue], now: SystemTime) -> Value {
    json!({ "locks": queues.iter().map(|queue| in_json(queue, now)).collect::<Vec<_>>() })
}

/// Shows a list of locks.
pub(crate) fn list_in_words<'a>(
    root: &str,
    lines: impl Iterator<Item = &'a Line>,
    now: SystemTime,
) -> String {
    let table = list(lines, now);
    if table.is_empty() { format!("{root}: no locks\n") } else { table.to_string() }
}

/// Returns the list of locks as a table.
pub(crate) fn list<'a>(lines: impl Iterator<Item = &'a Line>, now: SystemTime) -> Table<5> {
    let mut table = Table::new(&["LOCK", "KIND", "LENGTH", "OLDEST WAIT", "HOLDER"], "HOLDER");
    for line in lines {
        table.row([
            line.path.clone(),
            line.kind.to_owned(),
            line.length.to_string(),
            line.oldest_wait(now).map_or_else(|| "-".to_owned(), |it| Short(it).to_string()),
            line.holder.as_ref().map_or_else(|| "-".to_owned(), |it| shown(it).to_owned()),
        ]);
    }
    table
}

pub(crate) fn list_in_json<'a>(lines: impl Iterator<Item = &'a Line>, now: SystemTime) -> Value {
    let locks = lines.map(|line| {
        json!({
            "path": line.path,
            "kind": line.kind,
            "length": line.length,
            "holder": line.holder.as_ref().map(|holder| entry_in_json(holder, now)),
            "oldest_wait_ms": line.oldest_wait(now).map(millis),
        })
    });
    json!({ "locks": locks.collect::<Vec<_>>() })
}

/// Prints a text. Returns false if the reader, such as `head`, has seen enough, which is no failure.
pub(crate) fn print(text: &str) -> Result<bool, Failure> {
    let mut stdout = io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::own(format!("cannot write to standard output: {error}"))),
    }
}

fn in_words(queue: &Queue, now: SystemTime) -> String {
    let path = &queue.path;
    let Some(kind) = queue.kind else { return format!("{path}: free, without entries\n") };
    format!(
        "{path}: {kind}, {}\n{}",
        count(queue.entries.len(), "entry", "entries"),
        entries(queue, now)
    )
}

/// Returns the entries of a lock as a table.
pub(crate) fn entries(queue: &Queue, now: SystemTime) -> Table<6> {
    let mut table =
        Table::new(&["PLACE", "KIND", "IDENTITY", "SESSION", "AGE", "TOKEN"], "IDENTITY");
    for entry in &queue.entries {
        let place = match entry.holds {
            Some(true) => "holds".to_owned(),
            Some(false) => entry.place.to_string(),
            None => format!("{}?", entry.place),
        };
        let age = Short(entry.age(now)).to_string();
        table.row([
            place,
            entry.role.as_str().to_owned(),
            shown(entry).to_owned(),
            entry.session.map_or_else(|| "-".to_owned(), |it| it.to_string()),
            age,
            entry.token.to_string(),
        ]);
    }
    table
}

/// Returns a number of things in words.
pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}

fn in_json(queue: &Queue, now: SystemTime) -> Value {
    let entries: Vec<Value> = queue.entries.iter().map(|entry| entry_in_json(entry, now)).collect();
    json!({ "path": queue.path, "kind": queue.kind, "entries": entries })
}

fn entry_in_json(entry: &Entry, now: SystemTime) -> Value {
    json!({
        "place": entry.place,
        "holds": entry.holds,
        "kind": entry.role.as_str(),
        "name": entry.name(),
        "identity": entry.identity,
        "session": entry.session.map(|it| it.to_string()),
        "since_ms": millis(entry.since.duration_since(UNIX_EPOCH).unwrap_or_default()),
        "age_ms": millis(entry.age(now)),
        "token": entry.token,
    })
}

/// Returns what identifies an entry to people: some programs store nothing.
fn shown(entry: &Entry) -> &str {
    if entry.identity.is_empty() { entry.name() } else { &entry.identity }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
