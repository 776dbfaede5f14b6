//! Watches: who wants to know about which path.
//!
//! Two tables, as in real servers. *data* holds what getData, exists and the persistent modes
//! leave, *child* what getChildren and the persistent modes leave. A registration belongs to a
//! connection, not to a session.

use std::collections::{BTreeMap, BTreeSet};

use jute_codec::{EventType, WatcherType};

use crate::config::Version;
use crate::path;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    OneShot,
    Persistent,
    Recursive,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Table {
    Data,
    Child,
}

/// Kinds that one connection has on one path of one table.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Kinds {
    one_shot: bool,
    persistent: bool,
    recursive: bool,
}

type Registrations = BTreeMap<String, BTreeMap<u64, Kinds>>;

/// All watches of a server.
#[derive(Debug)]
pub(crate) struct Watches {
    version: Version,
    data: Registrations,
    child: Registrations,
}

impl Watches {
    pub(crate) fn new(version: Version) -> Self {
        Self { version, data: BTreeMap::new(), child: BTreeMap::new() }
    }

    fn table(&mut self, table: Table) -> &mut Registrations {
        match table {
            Table::Data => &mut self.data,
            Table::Child => &mut self.child,
        }
    }

    /// Leaves a one-shot watch.
    pub(crate) fn add_one_shot(&mut self, table: Table, path: &str, connection: u64) {
        self.add(table, path, connection, Kind::OneShot);
    }

    /// Leaves a persistent watch.
    pub(crate) fn add_persistent(&mut self, path: &str, connection: u64, is_recursive: bool) {
        let kind = if is_recursive { Kind::Recursive } else { Kind::Persistent };
        self.add(Table::Data, path, connection, kind);
        // From 3.9.0 a recursive watch needs one table only.
        if !is_recursive || self.version == Version::V3_8 {
            self.add(Table::Child, path, connection, kind);
        }
    }

    fn add(&mut self, table: Table, path: &str, connection: u64, kind: Kind) {
        let is_exclusive = self.version == Version::V3_8;
        let kinds =
            self.table(table).entry(path.to_owned()).or_default().entry(connection).or_default();
        // Before 3.9.0 a path has one mode per connection, and the last one set wins.
        if is_exclusive {
            *kinds = Kinds::default();
        }
        match kind {
            Kind::OneShot => kinds.one_shot = true,
            Kind::Persistent => kinds.persistent = true,
            Kind::Recursive => kinds.recursive = true,
        }
    }

    /// Uses up what fires at this change, and tells who is to be notified.
    pub(crate) fn trigger(&mut self, table: Table, at: &str, event: EventType) -> BTreeSet<u64> {
        let registrations = self.table(table);
        let mut notified = BTreeSet::new();
        if let Some(watchers) = registrations.get_mut(at) {
            watchers.retain(|connection, kinds| {
                if kinds.one_shot || kinds.persistent {
                    notified.insert(*connection);
                }
                kinds.one_shot = false;
                *kinds != Kinds::default()
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
        notified
    }

    /// True if there is such a watch. Servers before 3.9.0 do not care whose it is.
    pub(crate) fn contains(&self, path: &str, connection: u64, which: WatcherType) -> bool {
        let has = |table: &Registrations, wanted: fn(&Kinds) -> bool| match self.version {
            Version::V3_8 => table.contains_key(path),
            Version::V3_9 => {
                table.get(path).and_then(|watchers| watchers.get(&connection)).is_some_and(wanted)
            }
        };
        match which {
            WatcherType::CHILDREN => has(&self.child, |kinds| kinds.one_shot),
            WatcherType::DATA => has(&self.data, |kinds| kinds.one_shot),
            WatcherType::PERSISTENT => has(&self.data, |kinds| kinds.persistent),
            WatcherType::PERSISTENT_RECURSIVE => has(&self.data, |kinds| kinds.recursive),
            _ => has(&self.child, |_| true) || has(&self.data, |_| true),
        }
    }

    /// Removes such watches of the connection; false if there was none.
    pub(crate) fn remove(&mut self, path: &str, connection: u64, which: WatcherType) -> bool {
        let is_coarse = self.version == Version::V3_8;
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
        if *kinds == Kinds::default() {
            watchers.remove(&connection);
        }
        if watchers.is_empty() {
            registrations.remove(path);
        }
        is_removed
    }

    /// The connection has ended.
    pub(crate) fn forget(&mut self, connection: u64) {
        for table in [&mut self.data, &mut self.child] {
            table.retain(|_, watchers| {
                watchers.remove(&connection);
                !watchers.is_empty()
            });
        }
    }

    /// Number of watches; a persistent one counts once.
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
