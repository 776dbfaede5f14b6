//! Locks and their entries, as tables for people and as JSON for programs.

use std::io::{self, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::duration::Short;
use crate::exit::Failure;
use crate::queue::{Entry, Facts, Queue};
use crate::survey::{Line, Root, Survey};
use crate::table::Table;

/// Shows the queues of locks.
pub(crate) fn queues_in_words(queues: &[Queue], now: SystemTime) -> String {
    queues.iter().map(|queue| in_words(queue, now)).collect::<Vec<_>>().join("\n")
}

pub(crate) fn queues_in_json(queues: &[Queue], now: SystemTime) -> Value {
    json!({ "locks": queues.iter().map(|queue| in_json(queue, now)).collect::<Vec<_>>() })
}

/// Shows a list of locks.
pub(crate) fn list_in_words(root: &str, survey: &Survey, now: SystemTime) -> String {
    let table = list(survey.lines.values(), now);
    match survey.root {
        Root::Gone => format!("{root}: there is no such znode\n"),
        Root::Hidden | Root::There if table.is_empty() => format!("{root}: no locks\n"),
        Root::Hidden | Root::There => table.to_string(),
    }
}

/// Says what this client may not read; `None` if that is nothing.
pub(crate) fn hidden_in_words(survey: &Survey) -> Option<String> {
    let first = survey.hidden.first()?;
    let others = match survey.hidden.len() - 1 {
        0 => String::new(),
        number => format!(" and {number} more"),
    };
    Some(format!("locks below {first}{others} are not known, since you may not read it"))
}

/// Returns the failure of a list whose root this client may not read.
pub(crate) fn hidden_root(root: &str) -> Failure {
    Failure::own(format!(
        "{root}: you may not list it, so its locks are not known; use the credentials of its owner, \
         or let the owner grant READ"
    ))
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
            line.holder.as_ref().map_or_else(|| "-".to_owned(), |it| it.shown().to_owned()),
        ]);
    }
    table
}

pub(crate) fn list_in_json(survey: &Survey, now: SystemTime) -> Value {
    let locks = survey.lines.values().map(|line| {
        json!({
            "path": line.path,
            "kind": line.kind,
            "length": line.length,
            "holder": line.holder.as_ref().map(|holder| entry_in_json(holder, now)),
            "oldest_wait_ms": line.oldest_wait(now).map(millis),
        })
    });
    json!({
        "exists": survey.root != Root::Gone,
        "locks": locks.collect::<Vec<_>>(),
        "hidden": survey.hidden,
    })
}

/// Prints a text. Returns false if the reader, such as `head`, has seen enough, which is not a
/// failure.
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
    if queue.is_hidden {
        return format!("{path}: not known, since you may not list it\n");
    }
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
        let facts = entry.facts.as_ref();
        let known = |value: Option<String>| value.unwrap_or_else(|| "?".to_owned());
        let session =
            |facts: &Facts| facts.session.map_or_else(|| "-".to_owned(), |it| it.to_string());
        table.row([
            place,
            entry.role.as_str().to_owned(),
            entry.shown().to_owned(),
            known(facts.map(session)),
            known(entry.age(now).map(|age| Short(age).to_string())),
            known(entry.token().map(|token| token.to_string())),
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
    json!({
        "path": queue.path,
        "kind": queue.kind,
        "hidden": queue.is_hidden,
        "entries": entries,
    })
}

fn entry_in_json(entry: &Entry, now: SystemTime) -> Value {
    let facts = entry.facts.as_ref();
    json!({
        "place": entry.place,
        "holds": entry.holds,
        "kind": entry.role.as_str(),
        "name": entry.name(),
        "identity": facts.map(|it| &it.identity),
        "session": facts.and_then(|it| it.session).map(|it| it.to_string()),
        "since_ms": facts.map(|it| millis(it.since.duration_since(UNIX_EPOCH).unwrap_or_default())),
        "age_ms": entry.age(now).map(millis),
        "token": entry.token(),
    })
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
