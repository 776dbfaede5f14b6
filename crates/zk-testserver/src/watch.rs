//! Watches: which connections watch which path.
//!
//! There are two tables, as in real servers. *data* contains the watches set by getData and exists,
//! *child* those set by getChildren; persistent watches can be in both. A watch belongs to a
//! connection, not to a session.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jute_codec::{EventType, WatcherType};

use crate::path;
use crate::version::ServerVersion;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    OneShot,
    Persistent,
    Recursive,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Table {
    Data,
    Child,
}

/// The kinds of watches that one connection has on one path in one table.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Kinds {
    one_shot: bool,
    persistent: bool,
    recursive: bool,
}

type Registrations = BTreeMap<Arc<str>, BTreeMap<u64, Kinds>>;

/// All watches of a server.
#[derive(Debug)]
pub(crate) struct Watches {
    version: ServerVersion,
    data: Registrations,
    child: Registrations,
    /// Where each connection has watches, so that the cost of closing a connection depends only on
    /// its own watches.
    places: BTreeMap<u64, BTreeSet<(Table, Arc<str>)>>,
    /// How many places have been visited because a connection was closed.
    #[cfg(test)]
    pub(crate) visits: usize,
}

impl Watches {
    pub(crate) fn new(version: ServerVersion) -> Self {
        Self {
            version,
            data: BTreeMap::new(),
            child: BTreeMap::new(),
            places: BTreeMap::new(),
            #[cfg(test)]
            visits: 0,
        }
    }

    fn table(&mut self, table: Table) -> &mut Registrations {
        match table {
            Table::Data => &mut self.data,
            Table::Child => &mut self.child,
        }
    }

    /// Adds a one-shot watch.
    pub(crate) fn add_one_shot(&mut self, table: Table, path: &str, connection: u64) {
        self.add(table, path, connection, Kind::OneShot);
    }

    /// Adds a persistent watch.
    pub(crate) fn add_persistent(&mut self, path: &str, connection: u64, is_recursive: bool) {
        let kind = if is_recursive { Kind::Recursive } else { Kind::Persistent };
        self.add(Table::Data, path, connection, kind);
        // Since 3.9.0 a recursive watch is in one table only.
        if !is_recursive || self.version < ServerVersion::V3_9 {
            self.add(Table::Child, path, connection, kind);
        }
    }

    fn add(&mut self, table: Table, path: &str, connection: u64, kind: Kind) {
        let is_exclusive = self.version < ServerVersion::V3_9;
        let path: Arc<str> = path.into();
        self.places.entry(connection).or_default().insert((table, Arc::clone(&path)));
        let kinds = self.table(table).entry(path).or_default().entry(connection).or_default();
        // Before 3.9.0 a connection has one kind of watch per path, and the last one replaces the
        // others.
        if is_exclusive {
            *kinds = Kinds::default();
        }
        match kind {
            Kind::OneShot => kinds.one_shot = true,
            Kind::Persistent => kinds.persistent = true,
            Kind::Recursive => kinds.recursive = true,
        }
    }

    /// Returns the connections to notify of an event, and removes their one-shot watches.
    pub(crate) fn trigger(&mut self, table: Table, at: &str, event: EventType) -> BTreeSet<u64> {
        let mut used_up = Vec::new();
        let registrations = self.table(table);
        let mut notified = BTreeSet::new();
        if let Some(watchers) = registrations.get_mut(at) {
            watchers.retain(|connection, kinds| {
                if kinds.one_shot || kinds.persistent {
                    notified.insert(*connection);
                }
                kinds.one_shot = false;
                let is_used_up = *kinds == Kinds::default();
                used_up.extend(is_used_up.then_some(*connection));
                !is_used_up
            });
            if watchers.is_empty() {
                registrations.remove(at);
            }
        }
        if event != EventType::NODE_CHILDREN_CHANGED {
            for ancestor in path::ancestry(at) {
                let watchers = registrations.get(ancestor).into_iter().flatten();
                notified.extend(watchers.filter(|(_, kinds)| kinds.recursive).map(|(c, _)| *c));
            }
        }
        for connection in used_up {
            self.remove_place(table, at, connection);
        }
        notified
    }

    /// Returns whether the connection has a watch of this type on the path. Servers before 3.9.0
    /// ignore which connection the watch belongs to.
    pub(crate) fn contains(&self, path: &str, connection: u64, which: WatcherType) -> bool {
        let has = |table: &Registrations, wanted: fn(&Kinds) -> bool| {
            if self.version < ServerVersion::V3_9 {
                return table.contains_key(path);
            }
            table.get(path).and_then(|watchers| watchers.get(&connection)).is_some_and(wanted)
        };
        match which {
            WatcherType::CHILDREN => has(&self.child, |kinds| kinds.one_shot),
            WatcherType::DATA => has(&self.data, |kinds| kinds.one_shot),
            WatcherType::PERSISTENT => has(&self.data, |kinds| kinds.persistent),
            WatcherType::PERSISTENT_RECURSIVE => has(&self.data, |kinds| kinds.recursive),
            _ => has(&self.child, |_| true) || has(&self.data, |_| true),
        }
    }

    /// Removes the watches of this type that the connection has on the path. Returns false if there
    /// were none.
    pub(crate) fn remove(&mut self, path: &str, connection: u64, which: WatcherType) -> bool {
        let is_coarse = self.version < ServerVersion::V3_9;
        let mut clear = |table: Table, kind: Option<Kind>| {
            self.clear(table, path, connection, kind.filter(|_| !is_coarse))
        };
        match which {
            WatcherType::CHILDREN => clear(Table::Child, Some(Kind::OneShot)),
            WatcherType::DATA => clear(Table::Data, Some(Kind::OneShot)),
            WatcherType::PERSISTENT => {
                clear(Table::Data, Some(Kind::Persistent))
                    | clear(Table::Child, Some(Kind::Persistent))
            }
            WatcherType::PERSISTENT_RECURSIVE => clear(Table::Data, Some(Kind::Recursive)),
            _ => clear(Table::Child, None) | clear(Table::Data, None),
        }
    }

    fn clear(&mut self, table: Table, path: &str, connection: u64, kind: Option<Kind>) -> bool {
        let registrations = self.table(table);
        let Some(watchers) = registrations.get_mut(path) else { return false };
        let Some(kinds) = watchers.get_mut(&connection) else { return false };
        let before = *kinds;
        match kind {
            None => *kinds = Kinds::default(),
            Some(Kind::OneShot) => kinds.one_shot = false,
            Some(Kind::Persistent) => kinds.persistent = false,
            Some(Kind::Recursive) => kinds.recursive = false,
        }
        let is_removed = *kinds != before;
        let is_used_up = *kinds == Kinds::default();
        if is_used_up {
            watchers.remove(&connection);
        }
        if watchers.is_empty() {
            registrations.remove(path);
        }
        if is_used_up {
            self.remove_place(table, path, connection);
        }
        is_removed
    }

    /// Records that the connection has no watch left at this place.
    fn remove_place(&mut self, table: Table, path: &str, connection: u64) {
        let Some(places) = self.places.get_mut(&connection) else { return };
        places.remove(&(table, Arc::from(path)));
        if places.is_empty() {
            self.places.remove(&connection);
        }
    }

    /// Removes all watches of a connection.
    pub(crate) fn forget(&mut self, connection: u64) {
        for (table, path) in self.places.remove(&connection).into_iter().flatten() {
            #[cfg(test)]
            {
                self.visits += 1;
            }
            let registrations = self.table(table);
            let Some(watchers) = registrations.get_mut(&path) else { continue };
            watchers.remove(&connection);
            if watchers.is_empty() {
                registrations.remove(&path);
            }
        }
    }

    /// Returns the number of watches. A persistent watch counts once.
    pub(crate) fn count(&self) -> usize {
        let data = self.data.values().flat_map(BTreeMap::values).map(|kinds| {
            usize::from(kinds.one_shot)
                + usize::from(kinds.persistent)
                + usize::from(kinds.recursive)
        });
        let child = self.child.values().flat_map(BTreeMap::values);
        data.sum::<usize>() + child.filter(|kinds| kinds.one_shot).count()
    }
}

/// Returns whether the server knows this type. It refuses requests with other types.
pub(crate) fn is_watcher_type(kind: WatcherType, version: ServerVersion) -> bool {
    match kind {
        WatcherType::CHILDREN | WatcherType::DATA | WatcherType::ANY => true,
        WatcherType::PERSISTENT | WatcherType::PERSISTENT_RECURSIVE => {
            version >= ServerVersion::V3_9
        }
        _ => false,
    }
}
