//! The watch registry: which one-shot watches the server holds for us, and for whom.
//!
//! A watch is registered when the reply that left it arrives, in the order of frames, so that an
//! event can never come before its registration. It stays over disconnects, because the session
//! asks the next server for it ([`WatchRegistry::batches`]), and ends with the session.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytestring::ByteString;
use jute_codec::{EventType, SetWatches};

use super::flight::WatchId;

/// Bytes of paths in one SetWatches request, as in `ClientCnxn`: servers refuse requests above
/// their frame limit, and the whole reconnect with them.
pub(crate) const BATCH_BYTES_MAX: usize = 128 * 1024;

/// What a watch waits for.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[allow(clippy::exhaustive_enums, reason = "the protocol's one-shot kinds")]
pub enum WatchKind {
    /// Left by getChildren: children come or go, or the znode is deleted.
    Child,
    /// Left by getData, or by exists on an existing znode: data changes, or it is deleted.
    Data,
    /// Left by exists on a missing znode: it is created.
    Exist,
}

/// One-shot watches by path. Those of one path share what is watched: in the queue of a lock each
/// znode is watched by its owner and by the next one.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchRegistry {
    by_path: BTreeSet<(Arc<Watched>, WatchId)>,
    by_id: BTreeMap<WatchId, Arc<Watched>>,
}

#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Watched {
    /// A copy: a part of a request would keep all of it in memory.
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
    pub(crate) fn remove_owner(&mut self, owner: u64) {
        let first = WatchId { owner, local: 0 };
        let last = WatchId { owner, local: u64::MAX };
        let ids: Vec<_> = self.by_id.range(first..=last).map(|(id, _)| *id).collect();
        for id in ids {
            self.remove(id);
        }
    }

    /// Takes the watches that an event fires. An event nobody waits for fires none: its watcher
    /// was dropped, or the watch was left by a reply that never came.
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

    /// The watches of one path and kind.
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

    /// Requests that restore all watches, each of at most [`BATCH_BYTES_MAX`] bytes of paths (or
    /// of one path that is longer), all with the same relative zxid.
    pub(crate) fn batches(&self, relative_zxid: i64) -> Vec<SetWatches> {
        let empty = || SetWatches { relative_zxid, data: vec![], exist: vec![], child: vec![] };
        let mut batches = Vec::new();
        let (mut batch, mut bytes) = (empty(), 0);
        let mut last = None;
        for (watched, _) in &self.by_path {
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

/// All ids lie between these.
const ID_MIN: WatchId = WatchId { owner: 0, local: 0 };
const ID_MAX: WatchId = WatchId { owner: u64::MAX, local: u64::MAX };

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(owner: u64, local: u64) -> WatchId {
        WatchId { owner, local }
    }

    #[test]
    fn two_watchers_of_one_path_both_fire_and_one_may_leave() {
        let mut watches = WatchRegistry::default();
        watches.insert(id(1, 0), "/a", WatchKind::Data);
        watches.insert(id(2, 0), "/a", WatchKind::Data);
        watches.insert(id(3, 0), "/a", WatchKind::Data);
        watches.remove(id(2, 0));
        assert_eq!(watches.fire(EventType::NODE_DELETED, "/a"), [id(1, 0), id(3, 0)]);
        assert_eq!(watches.len(), 0);
        assert!(watches.fire(EventType::NODE_DELETED, "/a").is_empty());
    }

    #[test]
    fn an_owner_leaves_with_all_its_watches() {
        let mut watches = WatchRegistry::default();
        for local in 0..5 {
            watches.insert(id(1, local), &format!("/{local}"), WatchKind::Child);
        }
        watches.insert(id(2, 0), "/0", WatchKind::Child);
        watches.remove_owner(1);
        assert_eq!(watches.len(), 1);
        assert_eq!(watches.fire(EventType::NODE_CHILDREN_CHANGED, "/0"), [id(2, 0)]);
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
                watches.insert(id(0, n as u64), &path, kind);
                expected.push((path, kind));
            }
            let mut seen = Vec::new();
            for batch in watches.batches(7) {
                assert_eq!(batch.relative_zxid, 7);
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
