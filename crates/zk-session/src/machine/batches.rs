//! The requests that restore watches.
//!
//! A server before 3.9 keeps one kind of watch per path, connection and table, and a later one
//! replaces it. So one-shot watches are restored first: a persistent watch that then replaces one
//! reports all that it would. A recursive watch does not report lists of children, so child watches
//! on the same path are restored after it.

use bytestring::ByteString;
use jute_codec::{Request, SetWatches, SetWatches2, Zxid};

use super::persistent::{PersistentWatches, WatchMode};
use super::watch::{WatchKind, WatchRegistry};

/// Maximum bytes of paths in one request, as in `ClientCnxn`. A server refuses a request that
/// exceeds its frame limit, and closes the connection.
pub(crate) const BATCH_BYTES_MAX: usize = 128 * 1024;

/// Returns the requests that restore all watches, all with the same relative zxid. Each request has
/// at most [`BATCH_BYTES_MAX`] bytes of paths, or a single path that is longer.
///
/// Servers before 3.6 know only the request for one-shot watches, so it is used for each batch that
/// has no others.
pub(crate) fn restoring_all(
    one_shot: &WatchRegistry,
    persistent: &PersistentWatches,
    relative_zxid: Zxid,
) -> Vec<Request> {
    let is_late = |path: &str, kind: WatchKind| {
        kind == WatchKind::Child && persistent.wanted(path) == Some(WatchMode::Recursive)
    };
    let mut batches = Batches::new(relative_zxid);
    for (path, kind) in one_shot.places().filter(|(path, kind)| !is_late(path, *kind)) {
        batches.add_one_shot(path, kind);
    }
    for (path, mode) in persistent.all_wanted() {
        batches.add_persistent(path, mode);
    }
    let mut late = one_shot.places().filter(|(path, kind)| is_late(path, *kind)).peekable();
    if late.peek().is_some() {
        batches.finish_batch();
    }
    for (path, kind) in late {
        batches.add_one_shot(path, kind);
    }
    batches.finish()
}

/// Returns the requests that restore the watches of these kinds on a path. `persistent` is the mode
/// of its persistent watch, if it has one.
pub(crate) fn restoring(
    path: &str,
    kinds: impl IntoIterator<Item = WatchKind>,
    persistent: Option<WatchMode>,
    relative_zxid: Zxid,
) -> Vec<Request> {
    let mut batches = Batches::new(relative_zxid);
    let kinds = kinds.into_iter();
    let is_late = persistent == Some(WatchMode::Recursive);
    let (late, early): (Vec<_>, Vec<_>) =
        kinds.partition(|kind| is_late && *kind == WatchKind::Child);
    for kind in early {
        batches.add_one_shot(path, kind);
    }
    if let Some(mode) = persistent {
        batches.add_persistent(path, mode);
    }
    batches.finish_batch();
    for kind in late {
        batches.add_one_shot(path, kind);
    }
    batches.finish()
}

struct Batches {
    finished: Vec<Request>,
    batch: SetWatches2,
    bytes: usize,
}

impl Batches {
    fn new(relative_zxid: Zxid) -> Self {
        Self { finished: vec![], batch: empty(relative_zxid), bytes: 0 }
    }

    fn add_one_shot(&mut self, path: &str, kind: WatchKind) {
        self.make_room(path);
        let list = match kind {
            WatchKind::Child => &mut self.batch.child,
            WatchKind::Data => &mut self.batch.data,
            WatchKind::Exist => &mut self.batch.exist,
        };
        list.push(ByteString::from(path));
    }

    fn add_persistent(&mut self, path: &str, mode: WatchMode) {
        self.make_room(path);
        let list = match mode {
            WatchMode::Persistent => &mut self.batch.persistent,
            WatchMode::Recursive => &mut self.batch.persistent_recursive,
        };
        list.push(ByteString::from(path));
    }

    fn make_room(&mut self, path: &str) {
        let cost = path.len() + size_of::<i32>();
        if self.bytes > 0 && self.bytes + cost > BATCH_BYTES_MAX {
            self.finish_batch();
        }
        self.bytes += cost;
    }

    fn finish_batch(&mut self) {
        if self.bytes == 0 {
            return;
        }
        self.bytes = 0;
        let next = empty(self.batch.relative_zxid);
        let batch = std::mem::replace(&mut self.batch, next);
        let has_persistent = !batch.persistent.is_empty() || !batch.persistent_recursive.is_empty();
        self.finished.push(if has_persistent {
            Request::SetWatches2(batch)
        } else {
            let SetWatches2 { relative_zxid, data, exist, child, .. } = batch;
            Request::SetWatches(SetWatches { relative_zxid, data, exist, child })
        });
    }

    fn finish(mut self) -> Vec<Request> {
        self.finish_batch();
        self.finished
    }
}

fn empty(relative_zxid: Zxid) -> SetWatches2 {
    SetWatches2 {
        relative_zxid,
        data: vec![],
        exist: vec![],
        child: vec![],
        persistent: vec![],
        persistent_recursive: vec![],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::machine::flight::{OwnerId, WatchId, WatchNumber};

    /// The list of a request in which a path is.
    #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
    enum List {
        OneShot(WatchKind),
        Persistent(WatchMode),
    }

    const LISTS: [List; 5] = [
        List::OneShot(WatchKind::Child),
        List::OneShot(WatchKind::Data),
        List::OneShot(WatchKind::Exist),
        List::Persistent(WatchMode::Persistent),
        List::Persistent(WatchMode::Recursive),
    ];

    fn id(number: usize) -> WatchId {
        WatchId { owner: OwnerId(number as u64 + 1), number: WatchNumber::FIRST }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "no other request restores watches")]
    fn paths_of(request: Request) -> Vec<(ByteString, List)> {
        let lists = match request.clone() {
            Request::SetWatches(batch) => {
                vec![batch.child, batch.data, batch.exist]
            }
            Request::SetWatches2(batch) => {
                assert_eq!(batch.relative_zxid, Zxid(7));
                let has_persistent = batch.persistent.len() + batch.persistent_recursive.len() > 0;
                assert!(has_persistent, "an older server would refuse it for nothing");
                let SetWatches2 { child, data, exist, persistent, persistent_recursive, .. } =
                    batch;
                vec![child, data, exist, persistent, persistent_recursive]
            }
            _ => panic!("{request:?}"),
        };
        let with_list = |(paths, list): (Vec<ByteString>, List)| {
            paths.into_iter().map(move |path| (path, list))
        };
        lists.into_iter().zip(LISTS).flat_map(with_list).collect()
    }

    proptest! {
        #[test]
        fn batches_hold_every_watch_once_and_stay_small(
            watches in proptest::collection::vec((1_usize..3000, 0..5_usize), 0..400)
        ) {
            let mut one_shot = WatchRegistry::default();
            let mut persistent = PersistentWatches::default();
            let mut expected = Vec::new();
            for (n, (length, list)) in watches.iter().enumerate() {
                let path = ByteString::from(format!("/{n:x<length$}"));
                match LISTS[*list] {
                    List::OneShot(kind) => one_shot.insert(id(n), &path, kind),
                    List::Persistent(mode) => persistent.insert(id(n), &path, mode),
                }
                expected.push((path, LISTS[*list]));
            }
            let mut seen = Vec::new();
            for request in restoring_all(&one_shot, &persistent, Zxid(7)) {
                let paths = paths_of(request);
                let bytes: usize = paths.iter().map(|(path, _)| path.len() + 4).sum();
                assert!(0 < bytes && bytes <= BATCH_BYTES_MAX);
                seen.extend(paths);
            }
            seen.sort();
            expected.sort();
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn a_child_watch_is_restored_after_the_recursive_watch_of_its_path_and_others_before() {
        let mut one_shot = WatchRegistry::default();
        let mut persistent = PersistentWatches::default();
        one_shot.insert(id(1), "/a", WatchKind::Child);
        one_shot.insert(id(2), "/a", WatchKind::Data);
        one_shot.insert(id(3), "/b", WatchKind::Child);
        persistent.insert(id(4), "/a", WatchMode::Recursive);
        persistent.insert(id(5), "/b", WatchMode::Persistent);
        let [first, second]: [Request; 2] =
            restoring_all(&one_shot, &persistent, Zxid(7)).try_into().unwrap();
        assert_eq!(
            paths_of(first),
            [
                ("/b".into(), List::OneShot(WatchKind::Child)),
                ("/a".into(), List::OneShot(WatchKind::Data)),
                ("/b".into(), List::Persistent(WatchMode::Persistent)),
                ("/a".into(), List::Persistent(WatchMode::Recursive)),
            ]
        );
        assert!(matches!(&second, Request::SetWatches(batch) if batch.child == ["/a"]));
        let alone = restoring(
            "/a",
            [WatchKind::Child, WatchKind::Data],
            Some(WatchMode::Recursive),
            Zxid(7),
        );
        assert_eq!(alone.len(), 2);
        assert_eq!(alone[1], second);
    }
}
