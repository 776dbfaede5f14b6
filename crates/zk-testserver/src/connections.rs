//! All connections of a server, and when each of them has something to do.
//!
//! The cost of a request must not depend on the number of connections, so nothing scans all of
//! them. [`Connections::get_mut`] marks a connection as touched. Two sorted sets, one for transmits
//! and one for other chores, are updated from the touched connections.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use crate::connection::Connection;

#[derive(Debug, Default)]
pub(crate) struct Connections {
    all: BTreeMap<u64, Entry>,
    /// When a connection has something to transmit.
    transmits: BTreeSet<(Duration, u64)>,
    /// When a connection has something else to do.
    chores: BTreeSet<(Duration, u64)>,
    /// Connections whose entries in the two sets are out of date.
    touched: Vec<u64>,
    /// How many connections have been read or changed.
    #[cfg(test)]
    pub(crate) visits: std::cell::Cell<usize>,
}

#[derive(Debug)]
struct Entry {
    connection: Connection,
    /// The entries of the connection in the two sets.
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

    /// Returns a connection to change, and marks it as touched.
    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut Connection> {
        self.count_visit();
        let entry = self.all.get_mut(&id)?;
        if !entry.is_touched {
            entry.is_touched = true;
            self.touched.push(id);
        }
        Some(&mut entry.connection)
    }

    /// Returns all connections in the order of their numbers. Only rare operations may use this.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &Connection)> {
        self.all.iter().map(|(id, entry)| {
            self.count_visit();
            (*id, &entry.connection)
        })
    }

    /// Takes the next bytes to transmit. The flag says whether they are the last of the connection.
    pub(crate) fn transmit(&mut self, now: Duration) -> Option<(u64, Bytes, bool)> {
        self.settle();
        let (_, id) = self.transmits.first().filter(|(due, _)| *due <= now).copied()?;
        let (bytes, is_last) = self.get_mut(id)?.transmit(now)?;
        if is_last {
            self.remove(id);
        }
        Some((id, bytes, is_last))
    }

    /// Returns the connections that have chores to do by now, in the order of their numbers.
    pub(crate) fn due(&mut self, now: Duration) -> Vec<u64> {
        self.settle();
        let due = self.chores.iter().take_while(|(due, _)| *due <= now);
        let mut ids: Vec<u64> = due.map(|(_, id)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// Returns when any connection has something to do next.
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

    /// Updates the two sets.
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
