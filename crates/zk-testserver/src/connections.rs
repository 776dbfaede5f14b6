//! All connections of a server, and which of them has something to do, and when.
//!
//! A request must not cost more because others are connected. So nothing looks at all connections
//! to find the few that matter: [`Connections::get_mut`] marks a connection as changed, and it is
//! filed again in two calendars, one for what is to be written and one for the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use crate::connection::Connection;

#[derive(Debug, Default)]
pub(crate) struct Connections {
    all: BTreeMap<u64, Entry>,
    /// When something is to be written, and where.
    transmits: BTreeSet<(Duration, u64)>,
    /// When something else is due, and where.
    chores: BTreeSet<(Duration, u64)>,
    /// Whose place in the calendars is out of date.
    touched: Vec<u64>,
    /// How many connections were looked at or changed so far.
    #[cfg(test)]
    pub(crate) visits: std::cell::Cell<usize>,
}

#[derive(Debug)]
struct Entry {
    connection: Connection,
    /// Where it stands in the calendars.
    transmit: Option<Duration>,
    chore: Option<Duration>,
    is_touched: bool,
}

impl Connections {
    pub(crate) fn insert(&mut self, id: u64, connection: Connection) {
        let entry = Entry { connection, transmit: None, chore: None, is_touched: true };
        self.remove(id);
        self.all.insert(id, entry);
        self.touched.push(id);
    }

    pub(crate) fn remove(&mut self, id: u64) {
        if let Some(entry) = self.all.remove(&id) {
            self.transmits.extract(entry.transmit, id);
            self.chores.extract(entry.chore, id);
        }
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Connection> {
        self.count_visit();
        self.all.get(&id).map(|entry| &entry.connection)
    }

    /// To change it.
    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut Connection> {
        self.count_visit();
        let entry = self.all.get_mut(&id)?;
        if !entry.is_touched {
            entry.is_touched = true;
            self.touched.push(id);
        }
        Some(&mut entry.connection)
    }

    /// Every one, in order of their numbers: for what is rare.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &Connection)> {
        self.all.iter().map(|(id, entry)| {
            self.count_visit();
            (*id, &entry.connection)
        })
    }

    /// Takes what is to be written next, and whether it is the last.
    pub(crate) fn transmit(&mut self, now: Duration) -> Option<(u64, Bytes, bool)> {
        self.settle();
        let (_, id) = self.transmits.first().filter(|(due, _)| *due <= now).copied()?;
        let (bytes, is_last) = self.get_mut(id)?.transmit(now)?;
        if is_last {
            self.remove(id);
        }
        Some((id, bytes, is_last))
    }

    /// Those for which something else is due, in order of their numbers.
    pub(crate) fn due(&mut self, now: Duration) -> Vec<u64> {
        self.settle();
        let due = self.chores.iter().take_while(|(due, _)| *due <= now);
        let mut ids: Vec<u64> = due.map(|(_, id)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// When anything is due next.
    pub(crate) fn next(&self) -> Option<Duration> {
        let is_right = |(_, id): &&(Duration, u64)| {
            self.count_visit();
            self.all.get(id).is_some_and(|entry| !entry.is_touched)
        };
        let known = [&self.transmits, &self.chores];
        let known = known.into_iter().filter_map(|calendar| calendar.iter().find(is_right));
        let touched = self.touched.iter().filter_map(|id| self.get(*id));
        let touched = touched.flat_map(|c| c.next_transmit().into_iter().chain(c.next_chore()));
        known.map(|(due, _)| *due).chain(touched).min()
    }

    /// Brings the calendars up to date.
    fn settle(&mut self) {
        while let Some(id) = self.touched.pop() {
            self.count_visit();
            let Some(entry) = self.all.get_mut(&id) else { continue };
            entry.is_touched = false;
            let (transmit, chore) =
                (entry.connection.next_transmit(), entry.connection.next_chore());
            let transmit_before = std::mem::replace(&mut entry.transmit, transmit);
            let chore_before = std::mem::replace(&mut entry.chore, chore);
            self.transmits.extract(transmit_before, id);
            self.chores.extract(chore_before, id);
            self.transmits.extend(transmit.map(|due| (due, id)));
            self.chores.extend(chore.map(|due| (due, id)));
        }
    }

    #[cfg(test)]
    fn count_visit(&self) {
        self.visits.set(self.visits.get() + 1);
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "tests count")]
    fn count_visit(&self) {}
}

trait Calendar {
    fn extract(&mut self, due: Option<Duration>, id: u64);
}

impl Calendar for BTreeSet<(Duration, u64)> {
    fn extract(&mut self, due: Option<Duration>, id: u64) {
        if let Some(due) = due {
            self.remove(&(due, id));
        }
    }
}
