//! Which client each task uses, and which clients have ended, or are about to.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::history::{Event, What, Who};

/// A client: its number, and how many clients of the number there were before it.
pub(super) type Used = (usize, u64);

/// Who uses which client.
#[derive(Debug, Default)]
pub(super) struct Users {
    /// The place of the client that a task uses. Without an entry, it uses the first one.
    used: BTreeMap<Who, u64>,
    ending: BTreeSet<Used>,
    /// When clients have ended with their sessions.
    stopped: BTreeMap<Used, Duration>,
}

impl Users {
    pub(super) fn see(&mut self, event: &Event) {
        let Some(who) = event.who else { return };
        match event.what {
            What::Renewed { life } => drop(self.used.insert(who, life)),
            What::Ending { life, .. } => drop(self.ending.insert((who.client, life))),
            What::GoesOn { life } => drop(self.ending.remove(&(who.client, life))),
            What::Stopped { life } => drop(self.stopped.insert((who.client, life), event.at)),
            _ => {}
        }
    }

    /// Returns the client that this task uses now.
    pub(super) fn of(&self, who: Who) -> Used {
        (who.client, self.used.get(&who).copied().unwrap_or(0))
    }

    /// Returns when the client has ended with its session, if it has.
    pub(super) fn stopped_at(&self, client: Used) -> Option<Duration> {
        self.stopped.get(&client).copied()
    }

    /// Returns whether the client has ended, or is about to.
    pub(super) fn is_ending(&self, client: Used) -> bool {
        self.ending.contains(&client) || self.stopped.contains_key(&client)
    }
}
