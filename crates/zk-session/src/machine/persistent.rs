//! The registry of persistent watches: which streams want them, and which of them the server holds.
//!
//! All streams of a path share one watch at the server, because a server before 3.9 keeps one kind
//! of watch per path and connection, and a later request replaces it:
//!
//! - A recursive watch replaces a persistent one. The machine never does the reverse. While a path
//!   has a recursive watch, its persistent streams learn of children from the events of the
//!   children.
//! - A one-shot watch replaces a persistent one. So a read that sets a one-shot watch on such a path
//!   sets none at the server: the persistent watch reports all that the one-shot watch would
//!   ([`PersistentWatches::serves`]).

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytestring::ByteString;
use jute_codec::EventType;

use super::flight::{OwnerId, WatchId};
use super::watch::{WatchKind, ids_of};

/// What a persistent watch covers.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum WatchMode {
    /// The znode, whether it exists or not, and the list of its children: creation, deletion,
    /// changed data, and created or deleted children (`NODE_CHILDREN_CHANGED`).
    Persistent,
    /// The znode and all its descendants: creation, deletion and changed data of each of them.
    /// There is no `NODE_CHILDREN_CHANGED`.
    Recursive,
}

/// Persistent watches by path.
#[derive(Clone, Debug, Default)]
pub(crate) struct PersistentWatches {
    by_path: BTreeMap<Arc<str>, Place>,
    by_id: BTreeMap<WatchId, Arc<str>>,
}

/// The persistent watch of a path.
#[derive(Clone, Debug, Default)]
struct Place {
    streams: BTreeMap<WatchId, WatchMode>,
    /// What the server holds on this connection once it has executed all requests in flight.
    sent: Option<WatchMode>,
    /// What the server has confirmed.
    confirmed: Option<WatchMode>,
    /// Number of requests in flight that add the watch.
    adding: usize,
    /// One-shot watches rely on a watch that the server has not confirmed yet.
    is_relied_on: bool,
}

impl Place {
    /// Returns the mode that serves all streams.
    fn wanted(&self) -> Option<WatchMode> {
        self.streams.values().copied().max()
    }
}

impl PersistentWatches {
    /// Records a request to add a watch. Returns the mode to request, which may cover more.
    pub(crate) fn begin(&mut self, path: &str, mode: WatchMode) -> WatchMode {
        let place = self.by_path.entry(path.into()).or_default();
        let mode = place.sent.map_or(mode, |sent| sent.max(mode));
        place.sent = Some(mode);
        place.adding += 1;
        mode
    }

    /// Records the reply to a request to add a watch: the mode that the server has confirmed, or
    /// `None` if it has refused. Returns true if one-shot watches relied on a watch that was
    /// refused.
    pub(crate) fn end(&mut self, path: &str, confirmed: Option<WatchMode>) -> bool {
        let Some(place) = self.by_path.get_mut(path) else { return false };
        place.adding = place.adding.saturating_sub(1);
        place.confirmed = place.confirmed.max(confirmed);
        if place.adding > 0 {
            return confirmed.is_none() && place.is_relied_on;
        }
        place.sent = place.confirmed;
        let was_relied_on = std::mem::take(&mut place.is_relied_on);
        if place.sent.is_none() && place.streams.is_empty() {
            self.by_path.remove(path);
        }
        confirmed.is_none() && was_relied_on
    }

    /// Adds a stream.
    pub(crate) fn insert(&mut self, id: WatchId, path: &str, mode: WatchMode) {
        let path: Arc<str> = match self.by_path.get_key_value(path) {
            Some((known, _)) => Arc::clone(known),
            None => path.into(),
        };
        self.by_path.entry(Arc::clone(&path)).or_default().streams.insert(id, mode);
        self.by_id.insert(id, path);
    }

    /// Removes all streams of an owner, and returns their paths.
    pub(crate) fn remove_owner(&mut self, owner: OwnerId) -> Vec<Arc<str>> {
        let ids: RangeInclusive<WatchId> = ids_of(owner);
        let ids: Vec<_> = self.by_id.range(ids).map(|(id, _)| *id).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    fn remove(&mut self, id: WatchId) -> Option<Arc<str>> {
        let path = self.by_id.remove(&id)?;
        if let Some(place) = self.by_path.get_mut(&path) {
            place.streams.remove(&id);
            if place.streams.is_empty() && place.sent.is_none() {
                self.by_path.remove(&path);
            }
        }
        Some(path)
    }

    /// Removes the streams of these modes on a path.
    pub(crate) fn remove_modes(&mut self, path: &str, modes: &[WatchMode]) -> Vec<WatchId> {
        let Some(place) = self.by_path.get(path) else { return vec![] };
        let fits = |(_, mode): &(&WatchId, &WatchMode)| modes.contains(mode);
        let ids: Vec<_> = place.streams.iter().filter(fits).map(|(id, _)| *id).collect();
        for id in &ids {
            self.remove(*id);
        }
        ids
    }

    /// Returns the streams of a path, with their modes.
    pub(crate) fn streams_of(&self, path: &str) -> impl Iterator<Item = (WatchId, WatchMode)> {
        let streams = self.by_path.get(path).map(|place| &place.streams);
        streams.into_iter().flatten().map(|(id, mode)| (*id, *mode))
    }

    /// Returns whether a request that adds a watch on this path has no reply yet.
    pub(crate) fn is_adding(&self, path: &str) -> bool {
        self.by_path.get(path).is_some_and(|place| place.adding > 0)
    }

    /// Returns all streams.
    pub(crate) fn streams(&self) -> impl Iterator<Item = WatchId> + '_ {
        self.by_id.keys().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Returns whether the server's persistent watch reports all that a one-shot watch on this path
    /// would report, so that the one-shot watch needs none of its own.
    pub(crate) fn serves(&mut self, path: &str, kind: WatchKind) -> bool {
        let Some(place) = self.by_path.get_mut(path) else { return false };
        let is_served = match (place.sent, kind) {
            (None, _) | (Some(WatchMode::Recursive), WatchKind::Child) => false,
            (Some(_), WatchKind::Data | WatchKind::Exist) => true,
            (Some(WatchMode::Persistent), WatchKind::Child) => true,
        };
        place.is_relied_on |= is_served && place.adding > 0;
        is_served
    }

    /// Returns the streams that an event concerns, and what each of them is told.
    pub(crate) fn dispatch(
        &self,
        kind: EventType,
        path: &str,
    ) -> Vec<(WatchId, EventType, ByteString)> {
        let mut told = Vec::new();
        let mut tell = |place: &Place, mode: WatchMode, kind: EventType, path: &str| {
            let fits = place.streams.iter().filter(|(_, other)| **other == mode);
            told.extend(fits.map(|(id, _)| (*id, kind, ByteString::from(path))));
        };
        if let Some(place) = self.by_path.get(path) {
            tell(place, WatchMode::Persistent, kind, path);
        }
        if kind == EventType::NODE_CHILDREN_CHANGED {
            return told;
        }
        let mut at = Some(path);
        while let Some(covering) = at {
            if let Some(place) = self.by_path.get(covering) {
                tell(place, WatchMode::Recursive, kind, path);
            }
            at = parent(covering);
        }
        if matches!(kind, EventType::NODE_CREATED | EventType::NODE_DELETED)
            && let Some(above) = parent(path)
            && let Some(place) = self.by_path.get(above)
            && place.sent == Some(WatchMode::Recursive)
        {
            tell(place, WatchMode::Persistent, EventType::NODE_CHILDREN_CHANGED, above);
        }
        told
    }

    /// Returns whether the server holds a watch on this path that no stream wants.
    pub(crate) fn is_surplus(&self, path: &str) -> bool {
        let is_unused =
            |place: &Place| place.sent.is_some() && place.adding == 0 && place.streams.is_empty();
        self.by_path.get(path).is_some_and(is_unused)
    }

    /// Records that the server is asked to remove all watches of this path, and then to set one of
    /// this mode.
    pub(crate) fn replace(&mut self, path: &str, mode: Option<WatchMode>) {
        if let Some(place) = self.by_path.get_mut(path) {
            place.sent = mode;
            place.confirmed = mode;
            if place.streams.is_empty() && mode.is_none() {
                self.by_path.remove(path);
            }
        }
    }

    /// Forgets what the server held, because its connection has ended.
    pub(crate) fn disconnect(&mut self) {
        self.by_path.retain(|_, place| {
            *place = Place { streams: std::mem::take(&mut place.streams), ..Place::default() };
            !place.streams.is_empty()
        });
    }

    /// Records that the server is asked to restore all watches.
    pub(crate) fn restoring_all(&mut self) {
        for place in self.by_path.values_mut() {
            place.sent = place.wanted();
            place.confirmed = place.sent;
        }
    }

    /// Returns the mode that serves all streams of a path.
    pub(crate) fn wanted(&self, path: &str) -> Option<WatchMode> {
        self.by_path.get(path).and_then(Place::wanted)
    }

    /// Returns each path with the mode that serves all its streams.
    pub(crate) fn all_wanted(&self) -> impl Iterator<Item = (&str, WatchMode)> {
        self.by_path.iter().filter_map(|(path, place)| Some((&**path, place.wanted()?)))
    }

    pub(crate) fn clear(&mut self) {
        self.by_path.clear();
        self.by_id.clear();
    }
}

/// Returns the path of a znode's parent; the root has none.
fn parent(path: &str) -> Option<&str> {
    match path.rsplit_once('/')? {
        ("", "") => None,
        ("", _) => Some("/"),
        (above, _) => Some(above),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::flight::WatchNumber;

    fn id(owner: u64) -> WatchId {
        WatchId { owner: OwnerId(owner), number: WatchNumber::FIRST }
    }

    /// Adds a stream whose watch the server has confirmed.
    fn add(watches: &mut PersistentWatches, owner: u64, path: &str, mode: WatchMode) -> WatchMode {
        let sent = watches.begin(path, mode);
        watches.end(path, Some(sent));
        watches.insert(id(owner), path, mode);
        sent
    }

    fn told(watches: &PersistentWatches, kind: EventType, path: &str) -> Vec<u64> {
        watches.dispatch(kind, path).iter().map(|(id, ..)| id.owner.0).collect()
    }

    const CREATED: EventType = EventType::NODE_CREATED;
    const CHANGED: EventType = EventType::NODE_DATA_CHANGED;
    const CHILDREN: EventType = EventType::NODE_CHILDREN_CHANGED;

    #[test]
    fn recursive_streams_learn_of_descendants_and_never_of_lists_of_children() {
        let mut watches = PersistentWatches::default();
        add(&mut watches, 1, "/", WatchMode::Recursive);
        add(&mut watches, 2, "/a", WatchMode::Recursive);
        add(&mut watches, 3, "/a/b", WatchMode::Persistent);
        assert_eq!(told(&watches, CHANGED, "/a/b"), [3, 2, 1]);
        assert_eq!(told(&watches, CHILDREN, "/a/b"), [3]);
        assert_eq!(told(&watches, CHILDREN, "/a"), [0; 0]);
        assert_eq!(told(&watches, CHANGED, "/ab"), [1]);
        assert_eq!(told(&watches, CHANGED, "/"), [1]);
        assert_eq!(told(&watches, CREATED, "/a/b/c"), [2, 1]);
    }

    #[test]
    fn a_recursive_watch_serves_the_persistent_streams_of_its_path() {
        let mut watches = PersistentWatches::default();
        assert_eq!(add(&mut watches, 1, "/a", WatchMode::Persistent), WatchMode::Persistent);
        assert_eq!(add(&mut watches, 2, "/a", WatchMode::Recursive), WatchMode::Recursive);
        // A request for a persistent watch would replace the recursive one on an old server.
        assert_eq!(add(&mut watches, 3, "/a", WatchMode::Persistent), WatchMode::Recursive);
        let events = watches.dispatch(CREATED, "/a/b");
        let events: Vec<_> =
            events.iter().map(|(id, kind, path)| (id.owner.0, *kind, &**path)).collect();
        assert_eq!(events, [(2, CREATED, "/a/b"), (1, CHILDREN, "/a"), (3, CHILDREN, "/a")]);
        // The watch at the server stays recursive, until the next connection.
        watches.remove_owner(OwnerId(2));
        assert_eq!(told(&watches, CREATED, "/a/b"), [1, 3]);
        watches.disconnect();
        watches.restoring_all();
        assert_eq!(watches.all_wanted().collect::<Vec<_>>(), [("/a", WatchMode::Persistent)]);
        assert_eq!(told(&watches, CREATED, "/a/b"), [0; 0]);
    }

    #[test]
    fn a_one_shot_watch_that_relied_on_a_refused_watch_is_noticed() {
        let mut watches = PersistentWatches::default();
        assert!(!watches.serves("/a", WatchKind::Data));
        watches.begin("/a", WatchMode::Recursive);
        assert!(!watches.serves("/a", WatchKind::Child));
        assert!(!watches.end("/a", None), "nothing relied on it");
        watches.begin("/a", WatchMode::Persistent);
        assert!(watches.serves("/a", WatchKind::Child));
        assert!(watches.end("/a", None));
        assert!(!watches.serves("/a", WatchKind::Data));
        assert!(watches.by_path.is_empty());
    }

    #[test]
    fn a_watch_is_surplus_when_its_last_stream_has_left() {
        let mut watches = PersistentWatches::default();
        add(&mut watches, 1, "/a", WatchMode::Persistent);
        add(&mut watches, 2, "/a", WatchMode::Persistent);
        watches.remove_owner(OwnerId(1));
        assert!(!watches.is_surplus("/a"));
        watches.remove_owner(OwnerId(2));
        assert!(watches.is_surplus("/a"));
        // The caller of another stream may be waiting for this reply.
        watches.begin("/a", WatchMode::Persistent);
        assert!(!watches.is_surplus("/a"));
        watches.end("/a", Some(WatchMode::Persistent));
        watches.replace("/a", None);
        assert!(watches.by_path.is_empty() && watches.by_id.is_empty());
    }
}
