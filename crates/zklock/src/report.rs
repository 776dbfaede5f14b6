//! What the program says while it works: sentences on standard error, and events as lines of JSON on
//! a descriptor of their own. Nothing goes to standard output, which belongs to the command.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::time::UNIX_EPOCH;

use serde_json::{Map, Value, json};

use crate::clock::day_now;
use crate::exec::complain;
use crate::exit::Failure;

/// Where progress goes.
pub(crate) struct Reporter {
    path: String,
    is_quiet: bool,
    events: Option<File>,
}

impl Reporter {
    /// Creates a reporter about a lock. `events` is a descriptor that this process has inherited.
    pub(crate) fn new(path: &str, is_quiet: bool, events: Option<u32>) -> Result<Self, Failure> {
        let open = |number| {
            let file = OpenOptions::new().append(true).open(format!("/dev/fd/{number}"));
            file.map_err(|error| {
                let hint = format!("open it in the shell, as in `zklock … {number}>events.json`");
                Failure::own(format!("--events {number}: {error}; {hint}"))
            })
        };
        let events = events.map(open).transpose()?;
        Ok(Self { path: path.to_owned(), is_quiet, events })
    }

    /// Returns whether somebody reads the progress.
    pub(crate) fn is_heard(&self) -> bool {
        !self.is_quiet || self.events.is_some()
    }

    /// Prints a sentence about progress, unless the program is quiet.
    pub(crate) fn say(&self, sentence: &str) {
        if !self.is_quiet {
            complain(&format!("{}: {sentence}", self.path));
        }
    }

    /// Prints a sentence about something that must not be missed.
    pub(crate) fn warn(&self, sentence: &str) {
        complain(&format!("{}: {sentence}", self.path));
    }

    /// Writes an event, with the fields of an object.
    pub(crate) fn event(&mut self, name: &str, fields: Value) {
        let Some(file) = &mut self.events else { return };
        let now = day_now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut event = Map::new();
        event.insert("event".into(), name.into());
        event.insert("path".into(), self.path.clone().into());
        event.insert("at_ms".into(), json!(u64::try_from(now.as_millis()).unwrap_or(u64::MAX)));
        if let Value::Object(fields) = fields {
            event.extend(fields);
        }
        if let Err(error) = write_line(file, &Value::Object(event)) {
            self.events = None;
            self.warn(&format!("events end here, since they cannot be written: {error}"));
        }
    }
}

/// Writes a line in one call, so that lines of several processes do not mix.
fn write_line(file: &mut File, event: &Value) -> io::Result<()> {
    file.write_all(format!("{event}\n").as_bytes())
}
