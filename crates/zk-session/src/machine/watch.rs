//! The watch registry: the one-shot watches that the server holds for us, and their owners.
//!
//! A watch is registered when the reply to its request arrives. Replies and events are processed in
//! the order of frames, so an event can never arrive before its watch is registered. A watch
//! survives the loss of the connection, because the session asks the next server to restore it
//! (see `batches`). A watch ends with its session.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use jute_codec::EventType;

use super::flight::{OwnerId, WatchId, WatchNumber};

/// Sorts before all ids.
const ID_MIN: WatchId = WatchId { owner: OwnerId(0), number: WatchNumber::FIRST };
/// Sorts after all ids.
const ID_MAX: WatchId = WatchId { owner: OwnerId(u64::MAX), number: WatchNumber::LAST };

/// The kind of a one-shot watch.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum WatchKind {
    /// Set by getChildren. Fires when a child is created or deleted, or the znode is deleted.
    Child,
    /// Set by getData, and by exists on an existing znode. Fires when the data changes or the znode
    /// is deleted.
    Data,
    /// Set by exists on a missing znode. Fires when the znode is created.
    Exist,
}

impl WatchKind {
    pub(crate) const ALL: [Self; 3] = [Self::Child, Self::Data, Self::Exist];
}

/// One-shot watches by path. Watches with the same path and kind share the path's text: in the
/// queue of a lock, each znode is watched by its owner and by its successor.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchRegistry {
    by_path: BTreeSet<(Arc<Watched>, WatchId)>,
    by_id: BTreeMap<WatchId, Arc<Watched>>,
}

#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Watched {
    /// This is a copy, because a slice of a request would keep the whole request in memory.
    path: Box<str>,
    kind: WatchKind,
}

impl WatchRegistry {
    pub(crate) fn insert(&mut self, id: WatchId, path: &str, kind: WatchKind) {
        self.remove(id);
        let watched = Arc::new(Watched { path: path.into(), kind });
        let known = self.of(&watched).next().map(|(known, _)| Arc::clone(known));
        let watched = known.unwrap_or(watched);
        self.by_path.insert((Arc::clone(&watched), id));
        self.by_id.insert(id, watched);
    }

    pub(crate) fn remove(&mut self, id: WatchId) {
        let Some(watched) = self.by_id.remove(&id) else { return };
        self.by_path.remove(&(watched, id));
    }

    /// Removes all watches of an owner.
    pub(crate) fn remove_owner(&mut self, owner: OwnerId) {
        let ids: Vec<_> = self.by_id.range(ids_of(owner)).map(|(id, _)| *id).collect();
        for id in ids {
            self.remove(id);
        }
    }

    /// Removes and returns the watches that an event fires. There may be none, because the watcher
    /// was dropped, or because the reply that would have registered the watch was lost.
    pub(crate) fn fire(&mut self, kind: EventType, path: &str) -> Vec<WatchId> {
        let kinds: &[WatchKind] = match kind {
            EventType::NODE_CREATED | EventType::NODE_DATA_CHANGED => {
                &[WatchKind::Data, WatchKind::Exist]
            }
            // A watch on a missing znode waits for its creation. A child watch that was set again
            // behind a read that has found no znode reports a deletion, and nothing has changed.
            EventType::NODE_DELETED => &[WatchKind::Data, WatchKind::Child],
            EventType::NODE_CHILDREN_CHANGED => &[WatchKind::Child],
            _ => &[],
        };
        let mut fired = Vec::new();
        for kind in kinds {
            let watched = Arc::new(Watched { path: path.into(), kind: *kind });
            fired.extend(self.of(&watched).map(|(_, id)| *id));
        }
        for id in &fired {
            self.remove(*id);
        }
        fired
    }

    /// Returns the watches with one path and kind.
    fn of(&self, watched: &Arc<Watched>) -> impl Iterator<Item = &(Arc<Watched>, WatchId)> {
        self.by_path.range((Arc::clone(watched), ID_MIN)..=(Arc::clone(watched), ID_MAX))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn clear(&mut self) {
        self.by_path.clear();
        self.by_id.clear();
    }

    /// Returns each path and kind once, however many watches there are.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&str, WatchKind)> {
        let mut last = None;
        self.by_path.iter().filter_map(move |(watched, _)| {
            let is_new = last.replace(watched) != Some(watched);
            is_new.then_some((&*watched.path, watched.kind))
        })
    }

    /// Returns the kinds of watches that exist on a path.
    pub(crate) fn kinds_on(&self, path: &str) -> impl Iterator<Item = WatchKind> {
        WatchKind::ALL.into_iter().filter(|kind| {
            let watched = Arc::new(Watched { path: path.into(), kind: *kind });
            self.of(&watched).next().is_some()
        })
    }

    /// Removes and returns the watches of these kinds on a path.
    pub(crate) fn take_on(&mut self, path: &str, kinds: &[WatchKind]) -> Vec<(WatchId, WatchKind)> {
        let mut taken = Vec::new();
        for kind in kinds {
            let watched = Arc::new(Watched { path: path.into(), kind: *kind });
            taken.extend(self.of(&watched).map(|(_, id)| (*id, *kind)));
        }
        for (id, _) in &taken {
            self.remove(*id);
        }
        taken
    }

    /// Removes and returns all watches.
    pub(crate) fn take(&mut self) -> Vec<(WatchId, Box<str>, WatchKind)> {
        let watches = self.by_path.iter();
        let watches = watches.map(|(watched, id)| (*id, watched.path.clone(), watched.kind));
        let watches = watches.collect();
        self.clear();
        watches
    }
}

/// Returns the range of all watches of an owner.
pub(crate) fn ids_of(owner: OwnerId) -> RangeInclusive<WatchId> {
    WatchId { owner, ..ID_MIN }..=WatchId { owner, ..ID_MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(owner: u64, number: u64) -> WatchId {
        WatchId { owner: OwnerId(owner), number: WatchNumber::new(number).unwrap() }
    }

    #[test]
    fn two_watchers_of_one_path_both_fire_and_one_may_leave() {
        let mut watches = WatchRegistry::default();
        watches.insert(id(1, 1), "/a", WatchKind::Data);
        watches.insert(id(2, 1), "/a", WatchKind::Data);
        watches.insert(id(3, 1), "/a", WatchKind::Data);
        watches.remove(id(2, 1));
        assert_eq!(watches.fire(EventType::NODE_DELETED, "/a"), [id(1, 1), id(3, 1)]);
        assert_eq!(watches.len(), 0);
        assert!(watches.fire(EventType::NODE_DELETED, "/a").is_empty());
    }

    #[test]
    fn an_owner_leaves_with_all_its_watches() {
        let mut watches = WatchRegistry::default();
        for number in 1..=5 {
            watches.insert(id(1, number), &format!("/{number}"), WatchKind::Child);
        }
        watches.insert(id(2, 1), "/1", WatchKind::Child);
        watches.remove_owner(OwnerId(1));
        assert_eq!(watches.len(), 1);
        assert_eq!(watches.fire(EventType::NODE_CHILDREN_CHANGED, "/1"), [id(2, 1)]);
    }
}
