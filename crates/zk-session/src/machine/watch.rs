//! The watch registry: the one-shot watches that the server holds for us, and their owners.
//!
//! A watch is registered when the reply to its request arrives. Replies and events are processed in
//! the order of frames, so an event can never arrive before its watch is registered. A watch
//! survives the loss of the connection, because the session asks the next server to restore it
//! ([`WatchRegistry::batches`]). A watch ends with its session.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytestring::ByteString;
use jute_codec::{EventType, SetWatches, Zxid};

use super::flight::{OwnerId, WatchId, WatchNumber};

/// Maximum bytes of paths in one SetWatches request, as in `ClientCnxn`. A server refuses a request
/// that exceeds its frame limit, and closes the connection.
pub(crate) const BATCH_BYTES_MAX: usize = 128 * 1024;

/// Sorts before all ids.
const ID_MIN: WatchId = WatchId { owner: OwnerId(0), number: WatchNumber::FIRST };
/// Sorts after all ids.
const ID_MAX: WatchId = WatchId { owner: OwnerId(u64::MAX), number: WatchNumber::LAST };

/// The kind of a one-shot watch.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum WatchKind {
    /// Set by getChildren. Fires when a child is created or deleted, or the znode is deleted.
    Child,
    /// Set by getData, and by exists on an existing znode. Fires when the data changes or the znode
    /// is deleted.
    Data,
    /// Set by exists on a missing znode. Fires when the znode is created.
    Exist,
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
        let first = WatchId { owner, ..ID_MIN };
        let last = WatchId { owner, ..ID_MAX };
        let ids: Vec<_> = self.by_id.range(first..=last).map(|(id, _)| *id).collect();
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
            EventType::NODE_DELETED => &[WatchKind::Data, WatchKind::Exist, WatchKind::Child],
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

    /// Returns the requests that restore all watches, all with the same relative zxid. Each request
    /// has at most [`BATCH_BYTES_MAX`] bytes of paths, or a single path that is longer.
    pub(crate) fn batches(&self, relative_zxid: Zxid) -> Vec<SetWatches> {
        let empty = || SetWatches { relative_zxid, data: vec![], exist: vec![], child: vec![] };
        let mut batches = Vec::new();
        let mut batch = empty();
        let mut bytes = 0;
        let mut last = None;
        for (watched, _) in &self.by_path {
            // The server needs each path once, however many watches there are.
            if last.replace(watched) == Some(watched) {
                continue;
            }
            let path = ByteString::from(&*watched.path);
            let cost = path.len() + size_of::<i32>();
            if bytes > 0 && bytes + cost > BATCH_BYTES_MAX {
                batches.push(std::mem::replace(&mut batch, empty()));
                bytes = 0;
            }
            bytes += cost;
            match watched.kind {
                WatchKind::Child => batch.child.push(path),
                WatchKind::Data => batch.data.push(path),
                WatchKind::Exist => batch.exist.push(path),
            }
        }
        if bytes > 0 {
            batches.push(batch);
        }
        batches
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    proptest! {
        #[test]
        fn batches_hold_every_watch_once_and_stay_small(
            lengths in proptest::collection::vec((1_usize..3000, 0..3_u8), 0..400)
        ) {
            let mut watches = WatchRegistry::default();
            let mut expected = Vec::new();
            for (n, (length, kind)) in lengths.iter().enumerate() {
                let path = ByteString::from(format!("/{n:x<length$}"));
                let kind = [WatchKind::Child, WatchKind::Data, WatchKind::Exist][*kind as usize];
                watches.insert(id(0, n as u64 + 1), &path, kind);
                expected.push((path, kind));
            }
            let mut seen = Vec::new();
            for batch in watches.batches(Zxid(7)) {
                assert_eq!(batch.relative_zxid, Zxid(7));
                let lists = [
                    (WatchKind::Child, batch.child),
                    (WatchKind::Data, batch.data),
                    (WatchKind::Exist, batch.exist),
                ];
                let mut bytes = 0;
                for (kind, paths) in lists {
                    bytes += paths.iter().map(|path| path.len() + 4).sum::<usize>();
                    seen.extend(paths.into_iter().map(|path| (path, kind)));
                }
                assert!(0 < bytes && bytes <= BATCH_BYTES_MAX);
            }
            seen.sort();
            expected.sort();
            assert_eq!(seen, expected);
        }
    }
}
