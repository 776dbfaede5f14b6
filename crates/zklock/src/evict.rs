//! `zklock evict`: deletes the entry of a holder or a waiter.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use zk_recipes::{Client, ErrorCode};

use crate::clock::day_now;
use crate::connect::{close, connect, settled};
use crate::duration::Short;
use crate::exec::complain;
use crate::exit::{Failure, NOT_DONE};
use crate::options::Evict;
use crate::queue::{self, Entry};
use crate::show::hidden_root;
use crate::text::printable;

/// Runs the verb.
pub(crate) async fn evict(options: &Evict) -> Result<u8, Failure> {
    let client = connect(&options.connection, None).await?;
    let result = evict_with(&client, options).await;
    close(&client).await;
    result
}

async fn evict_with(client: &Client, options: &Evict) -> Result<u8, Failure> {
    let not_done = |message: String| Failure { status: NOT_DONE, message };
    let path = &options.path;
    let queue = settled(client, || queue::read(client, path)).await?;
    if queue.is_hidden {
        return Err(hidden_root(path));
    }
    let mut entries = queue.entries;
    let has_token = |it: &Entry| it.token().is_some_and(|it| it.to_string() == options.entry);
    entries.retain(|it| it.name() == options.entry || has_token(it));
    let [entry] = &entries[..] else {
        let count = entries.len();
        return Err(not_done(format!(
            "{path}: {count} entries have the token or the name {:?}; `zklock status {path}` shows \
             the tokens",
            options.entry
        )));
    };
    if !options.yes && !confirmed(entry)? {
        return Err(not_done(format!("{}: nothing was deleted", entry.path)));
    }
    // An entry does not change after its creation, except when it is asked for the lock.
    match client.delete(&entry.path, entry.facts.as_ref().map(|it| it.version)).await {
        Ok(()) => {
            complain(&format!("{}: deleted", entry.path));
            Ok(0)
        }
        Err(error) if error.is_no_node() => {
            Err(not_done(format!("{}: it has left in the meantime", entry.path)))
        }
        Err(error) if error.server_code() == Some(ErrorCode::BAD_VERSION) => {
            Err(not_done(format!("{}: it has changed in the meantime; try again", entry.path)))
        }
        Err(error) => Err(Failure::own(error.to_string())),
    }
}

/// Asks at the terminal.
fn confirmed(entry: &Entry) -> Result<bool, Failure> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        let message = "standard input is not a terminal, so nobody can be asked; use --yes";
        return Err(Failure::own(message));
    }
    let risk = match entry.holds {
        Some(false) => "It waits, and begins again at the end of the queue.",
        Some(true) | None => {
            "It may hold the lock, which then passes on while its work may still go on."
        }
    };
    let age = entry.age(day_now()).map_or_else(|| "?".to_owned(), |age| Short(age).to_string());
    let token = entry.token().map_or_else(|| "?".to_owned(), |token| token.to_string());
    let question = format!(
        "{}\n{}, for {age}, token {token}, {:?}\n{risk}\nDelete it? [y/N] ",
        printable(&entry.path),
        entry.role.as_str(),
        entry.shown()
    );
    let mut answer = String::new();
    let asked = io::stderr().write_all(question.as_bytes());
    asked
        .and_then(|()| stdin.lock().read_line(&mut answer))
        .map_err(|error| Failure::own(format!("cannot ask: {error}; use --yes")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
