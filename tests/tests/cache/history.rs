//! A writer that knows each state in which a znode was, and a reader that compares.

use std::collections::BTreeMap;

use zk_recipes::{Cache, CacheEvent};
use zk_testserver::TestServer;

/// All states of all znodes, in their order. `None` means that the znode does not exist.
#[derive(Debug, Default)]
pub(crate) struct History {
    states: BTreeMap<String, Vec<Option<String>>>,
    /// The state that was shown last, for each path.
    seen: BTreeMap<String, usize>,
    writes: usize,
}

impl History {
    /// Creates a znode, or writes its data, which are unique.
    pub(crate) fn put(&mut self, server: &TestServer, path: &str) {
        self.writes += 1;
        let data = self.writes.to_string();
        if server.data(path).is_some() {
            server.admin_set_data(path, data.as_bytes());
        } else {
            server.admin_create(path, data.as_bytes(), None);
        }
        self.of(path).push(Some(data));
    }

    pub(crate) fn delete(&mut self, server: &TestServer, path: &str) {
        if server.admin_delete(path) {
            self.of(path).push(None);
        }
    }

    fn of(&mut self, path: &str) -> &mut Vec<Option<String>> {
        self.states.entry(path.to_owned()).or_insert_with(|| vec![None])
    }

    /// Checks that the cache shows a state in which the znode was, and none before the last one.
    pub(crate) fn check(&mut self, event: &CacheEvent) {
        let text = |data: &[u8]| Some(String::from_utf8_lossy(data).into_owned());
        let (path, state) = match event {
            CacheEvent::Added { path, node } | CacheEvent::Changed { path, node, .. } => {
                (path.to_string(), text(&node.data))
            }
            CacheEvent::Removed { path, .. } => (path.to_string(), None),
            CacheEvent::Complete | CacheEvent::Gap | CacheEvent::Unreadable { .. } | _ => return,
        };
        let from = self.seen.get(&path).copied().unwrap_or_default();
        let states = self.of(&path);
        let next = states.iter().skip(from + 1).position(|known| *known == state);
        let Some(next) = next else {
            panic!("{path} shown as {state:?} behind state {from} of {states:?}")
        };
        self.seen.insert(path, from + 1 + next);
    }

    /// Checks that the cache shows what the last events said.
    pub(crate) fn check_snapshot(&self, cache: &Cache) {
        let shown = super::shown(cache);
        for (path, seen) in &self.seen {
            assert_eq!(
                self.states.get(path).unwrap().get(*seen).unwrap().as_ref(),
                shown.get(path)
            );
        }
    }
}
