//! `zklock status` and `zklock ls`: what the servers know of locks, as a table of 80 columns or as
//! JSON. Both read, and change nothing.

use std::io::{self, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use zk_recipes::{Client, OpError};

use crate::clock::day_now;
use crate::connect::{close, connect};
use crate::duration::Short;
use crate::exit::Failure;
use crate::options::{Ls, Status};
use crate::queue::{self, Entry, Listing, Queue, Role, child, existing};
use crate::table::Table;

/// How many directories are listed at a time.
const IN_FLIGHT: usize = 64;

/// Runs `zklock status`.
pub(crate) async fn status(options: &Status) -> Result<u8, Failure> {
    let client = connect(&options.connection, None).await?;
    let mut queues = Vec::new();
    for path in &options.paths {
        let found = queue::read(&client, path).await.map_err(failure)?;
        let nothing = || Queue { path: path.clone(), kind: None, entries: Vec::new() };
        queues.push(found.unwrap_or_else(nothing));
    }
    close(&client).await;
    let now = day_now();
    print(&if options.json {
        let locks: Vec<Value> = queues.iter().map(|queue| in_json(queue, now)).collect();
        format!("{:#}\n", json!({ "locks": locks }))
    } else {
        queues.iter().map(|queue| in_words(queue, now)).collect::<Vec<_>>().join("\n")
    })
}

fn in_words(queue: &Queue, now: SystemTime) -> String {
    let path = &queue.path;
    let Some(kind) = queue.kind else { return format!("{path}: free, without entries\n") };
    let count = match queue.entries.len() {
        1 => "1 entry".to_owned(),
        count => format!("{count} entries"),
    };
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
    format!("{path}: {kind}, {count}\n{table}")
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

/// A lock in the list of `zklock ls`.
struct Line {
    path: String,
    kind: &'static str,
    length: usize,
    holder: Option<Entry>,
    /// How long the first entry that does not hold the lock has existed.
    oldest_wait: Option<Duration>,
}

/// Runs `zklock ls`.
pub(crate) async fn ls(options: &Ls) -> Result<u8, Failure> {
    let client = connect(&options.connection, None).await?;
    let mut lines = Vec::new();
    let found = walk(&client, &options.root, &mut lines).await.map_err(failure);
    close(&client).await;
    if !found? {
        let message = format!("{}: there is no such znode", options.root);
        return Err(Failure::own(message));
    }
    lines.sort_by(|a, b| a.path.cmp(&b.path));
    if options.json {
        let now = day_now();
        let locks = lines.iter().map(|line| {
            json!({
                "path": line.path,
                "kind": line.kind,
                "length": line.length,
                "holder": line.holder.as_ref().map(|holder| entry_in_json(holder, now)),
                "oldest_wait_ms": line.oldest_wait.map(millis),
            })
        });
        return print(&format!("{:#}\n", json!({ "locks": locks.collect::<Vec<_>>() })));
    }
    let mut table = Table::new(&["LOCK", "KIND", "LENGTH", "OLDEST WAIT", "HOLDER"], "HOLDER");
    for line in &lines {
        table.row([
            line.path.clone(),
            line.kind.to_owned(),
            line.length.to_string(),
            line.oldest_wait.map_or_else(|| "-".to_owned(), |it| Short(it).to_string()),
            line.holder.as_ref().map_or_else(|| "-".to_owned(), |it| shown(it).to_owned()),
        ]);
    }
    print(&if lines.is_empty() {
        format!("{}: no locks\n", options.root)
    } else {
        table.to_string()
    })
}

/// Collects the locks at a path and below. Returns false if nothing is at the path.
async fn walk(client: &Client, root: &str, lines: &mut Vec<Line>) -> Result<bool, OpError> {
    let mut level = vec![root.to_owned()];
    let mut exists = false;
    while !level.is_empty() {
        let mut next = Vec::new();
        for paths in level.chunks(IN_FLIGHT) {
            let lists: Vec<_> = paths.iter().map(|it| client.get_children_with_stat(it)).collect();
            for (path, listed) in paths.iter().zip(lists) {
                // Directories may disappear during the walk.
                let Some((names, stat)) = existing(listed.await)? else { continue };
                exists = true;
                let listing = queue::sort(names, stat);
                lines.extend(line(client, path, &listing).await?);
                next.extend(listing.others.iter().map(|name| child(path, name)));
            }
        }
        level = next;
    }
    Ok(exists)
}

async fn line(client: &Client, path: &str, listing: &Listing) -> Result<Option<Line>, OpError> {
    if listing.stat.ephemeral_owner.is_some() {
        let holder = queue::read_our_exclusive(client, path).await?;
        let kind = "exclusive";
        let (path, oldest_wait) = (path.to_owned(), None);
        return Ok(holder.map(|it| Line { path, kind, length: 1, holder: Some(it), oldest_wait }));
    }
    let Some(kind) = queue::kind(&listing.names) else { return Ok(None) };
    let permits = queue::permits(client, path, listing).await?;
    let roles: Vec<Role> = listing.names.iter().map(|it| it.role).collect();
    let is_waiting = |place: &usize| queue::holds(&roles, *place, permits) == Some(false);
    let waiter = (0..roles.len()).find(is_waiting);
    let first = listing.names.get(..1).unwrap_or_default();
    let holder = queue::read_entries(client, path, first).await?.pop();
    let waiter = waiter.and_then(|place| listing.names.get(place..=place)).unwrap_or_default();
    let waiter = queue::read_entries(client, path, waiter).await?.pop();
    let oldest_wait = waiter.map(|waiter| waiter.age(day_now()));
    Ok(Some(Line { path: path.to_owned(), kind, length: roles.len(), holder, oldest_wait }))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Prints a text. It is no failure if the reader, such as `head`, has seen enough.
fn print(text: &str) -> Result<u8, Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::own(format!("cannot write to standard output: {error}")))
        }
        Ok(()) | Err(_) => Ok(0),
    }
}

fn failure(error: OpError) -> Failure {
    Failure::own(error.to_string())
}
