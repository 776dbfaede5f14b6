//! The locks below a root: what each of them is, who holds it, and how long its first waiter waits.
//!
//! A survey keeps a line for each lock, and none of its entries, so its size does not depend on the
//! number of waiters.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use zk_recipes::{Client, OpError};

use crate::queue::{
    Entry, Found, IN_FLIGHT, Listing, Name, Role, child, holds, is_lease, kind, list_all,
    our_exclusive, parse, permits_in, read_all,
};

/// A lock in a survey.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) path: String,
    pub(crate) kind: &'static str,
    pub(crate) length: usize,
    pub(crate) holder: Option<Entry>,
    /// When the first entry that does not hold the lock was created.
    pub(crate) waits_since: Option<SystemTime>,
}

/// What has changed below a root.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum Changed {
    #[default]
    Nothing,
    /// The locks at these paths, or what may be one.
    Locks(BTreeSet<String>),
    Everything,
}

/// What was read after changes.
#[derive(Debug)]
pub(crate) struct Update {
    /// All locks, or those at the paths that have changed.
    lines: Vec<Line>,
    changed: Changed,
    /// What this client may not list, so that locks below it are not known.
    hidden: Vec<String>,
    /// What is at the root; `None` if that was not read.
    root: Option<Root>,
}

/// What is at the root of a survey.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Root {
    #[default]
    Gone,
    Hidden,
    There,
}

/// The locks below a root, by their paths.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(crate) lines: BTreeMap<String, Line>,
    /// What this client may not list.
    pub(crate) hidden: BTreeSet<String>,
    pub(crate) root: Root,
}

impl Line {
    pub(crate) fn oldest_wait(&self, now: SystemTime) -> Option<Duration> {
        self.waits_since.map(|since| now.duration_since(since).unwrap_or_default())
    }
}

impl Changed {
    /// Adds what the event of a znode can change: the lock whose entry it is, or itself.
    pub(crate) fn add_event(&mut self, path: &str) {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = if parent.is_empty() { "/" } else { parent };
        self.add_lock(if parse(name).is_some() { parent } else { path });
        // It may also be an exclusive lock.
        if is_lease(name) {
            self.add_lock(parent);
        }
    }

    pub(crate) fn add_lock(&mut self, path: &str) {
        match self {
            Self::Nothing => *self = Self::Locks(BTreeSet::from([path.to_owned()])),
            Self::Locks(paths) => _ = paths.insert(path.to_owned()),
            Self::Everything => {}
        }
    }

    /// Adds other changes.
    pub(crate) fn add(&mut self, other: Self) {
        match other {
            Self::Nothing => {}
            Self::Locks(paths) => paths.iter().for_each(|path| self.add_lock(path)),
            Self::Everything => *self = Self::Everything,
        }
    }

    /// Returns whether it includes the lock at a path.
    pub(crate) fn includes(&self, path: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Locks(paths) => paths.contains(path),
            Self::Everything => true,
        }
    }
}

impl Survey {
    /// Replaces what has changed. Returns whether a lock was or is among it.
    pub(crate) fn apply(&mut self, update: Update) -> bool {
        let mut is_new = update.changed == Changed::Everything || !update.lines.is_empty();
        is_new |= update.root.is_some_and(|root| root != self.root);
        self.root = update.root.unwrap_or(self.root);
        let count = (self.lines.len(), self.hidden.len());
        match update.changed {
            Changed::Nothing => {}
            Changed::Locks(paths) => {
                self.lines.retain(|path, _| !paths.contains(path));
                self.hidden.retain(|path| !paths.contains(path));
            }
            Changed::Everything => {
                self.lines.clear();
                self.hidden.clear();
            }
        }
        is_new |= (self.lines.len(), self.hidden.len()) != count;
        self.hidden.extend(update.hidden);
        self.lines.extend(update.lines.into_iter().map(|line| (line.path.clone(), line)));
        is_new
    }
}

/// Reads what has changed below a root.
pub(crate) async fn read(client: &Client, root: &str, changed: Changed) -> Result<Update, OpError> {
    let mut level = match &changed {
        Changed::Nothing => Vec::new(),
        Changed::Locks(paths) => paths.iter().cloned().collect(),
        Changed::Everything => vec![root.to_owned()],
    };
    let mut update = Update { lines: Vec::new(), changed, hidden: Vec::new(), root: None };
    while !level.is_empty() {
        let mut next = Vec::new();
        for paths in level.chunks(IN_FLIGHT) {
            let mut listed: Vec<(&str, Listing)> = Vec::new();
            for (path, found) in paths.iter().zip(list_all(client, paths).await?) {
                let state = match found {
                    // Directories may disappear during the walk.
                    Found::Gone => Root::Gone,
                    Found::Hidden => {
                        update.hidden.push(path.clone());
                        Root::Hidden
                    }
                    Found::There(listing) => {
                        listed.push((path, listing));
                        Root::There
                    }
                };
                if path == root {
                    update.root = Some(state);
                }
            }
            update.lines.extend(lines(client, &listed).await?);
            if update.changed == Changed::Everything {
                let below = |(path, listing): &(&str, Listing)| -> Vec<String> {
                    listing.others.iter().map(|name| child(path, name)).collect()
                };
                next.extend(listed.iter().flat_map(below));
            }
        }
        level = next;
    }
    Ok(update)
}

/// Reads what a line shows of the directories that are locks, with all of them together, since each
/// reply takes a round trip.
async fn lines(client: &Client, listed: &[(&str, Listing)]) -> Result<Vec<Line>, OpError> {
    let has_data = |it: &&(&str, Listing)| {
        let (_, listing) = it;
        let is_exclusive = listing.stat.ephemeral_owner.is_some();
        is_exclusive || listing.has_permits() || listing.leases().next().is_some()
    };
    let paths = listed.iter().filter(has_data).map(|(path, _)| (*path).to_owned());
    let paths: Vec<String> = paths.collect();
    let read = read_all(client, &paths).await?;
    let data: BTreeMap<&str, _> = paths.iter().map(|it| &**it).zip(read).collect();

    let mut lines = Vec::new();
    let mut queues = Vec::new();
    for (path, listing) in listed {
        let data = data.get(path);
        if listing.stat.ephemeral_owner.is_some() {
            let holder = data.and_then(|found| our_exclusive(path, found));
            lines.extend(holder.map(|holder| Line {
                path: (*path).to_owned(),
                kind: "exclusive",
                length: 1,
                holder: Some(holder),
                waits_since: None,
            }));
        } else if let Some(kind) = kind(&listing.names) {
            let permits = data.and_then(permits_in);
            let roles: Vec<Role> = listing.names.iter().map(|it| it.role).collect();
            let waiter = holds(&roles, permits).position(|holds| holds == Some(false));
            let waiter = waiter.and_then(|place| listing.names.get(place));
            let first = listing.names.first().cloned().zip(holds(&roles, permits).next());
            queues.push((*path, kind, first, waiter, roles.len()));
        } else if data.and_then(permits_in).is_some() {
            let lease = |name: &str| Name { number: 0, role: Role::KazooLease, name: name.into() };
            let first = listing.leases().next().map(lease).zip(Some(Some(true)));
            queues.push((*path, "semaphore", first, None, listing.leases().count()));
        }
    }

    let entries = queues.iter().flat_map(|(path, _, first, waiter, _)| {
        [first.as_ref().map(|(name, _)| name), *waiter]
            .into_iter()
            .flatten()
            .map(|name| child(path, &name.name))
    });
    let entries: Vec<String> = entries.collect();
    let mut read = read_all(client, &entries).await?.into_iter();
    for (path, kind, first, waiter, length) in queues {
        let mut found = |name: Option<&Name>| {
            let name = name?;
            name.entry(&child(path, &name.name), &read.next()?)
        };
        let holder = first.and_then(|(name, holds)| {
            let entry = found(Some(&name))?;
            Some(Entry { holds: entry.holds.or(holds), ..entry })
        });
        let waits_since = found(waiter).and_then(|waiter| Some(waiter.facts?.since));
        lines.push(Line { path: path.to_owned(), kind, length, holder, waits_since });
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_event_of_an_entry_changes_its_lock_and_nothing_else() {
        let mut changed = Changed::default();
        changed.add_event("/a/b/0123456789abcdef0123456789abcdef-lock-0000000007");
        changed.add_event("/a/b/lease-0000000001");
        changed.add_event("/a/c");
        assert_eq!(changed, Changed::Locks(BTreeSet::from(["/a/b".into(), "/a/c".into()])));
        assert!(changed.includes("/a/b") && !changed.includes("/a"));
        changed.add(Changed::Everything);
        changed.add_event("/a");
        assert_eq!(changed, Changed::Everything);
    }

    #[test]
    fn an_update_replaces_the_lines_that_have_changed() {
        let line = |path: &str, length| Line {
            path: path.to_owned(),
            kind: "fair",
            length,
            holder: None,
            waits_since: None,
        };
        let update = |lines, changed| Update { lines, changed, hidden: Vec::new(), root: None };
        let mut survey = Survey::default();
        survey.apply(update(vec![line("/a", 1), line("/b", 1)], Changed::Everything));
        let changed = Changed::Locks(BTreeSet::from(["/a".into(), "/b".into()]));
        assert!(survey.apply(update(vec![line("/b", 2)], changed.clone())));
        assert!(survey.apply(update(vec![line("/b", 2)], changed.clone())));
        let lengths: Vec<_> = survey.lines.values().map(|it| (&*it.path, it.length)).collect();
        assert_eq!(lengths, [("/b", 2)]);
        assert!(survey.apply(update(vec![], changed.clone())), "a lock is gone");
        assert!(!survey.apply(update(vec![], changed)), "no lock has changed");
        let root = |root| Update { root: Some(root), ..update(vec![], Changed::Nothing) };
        assert!(survey.apply(root(Root::There)) && !survey.apply(root(Root::There)));
        assert!(survey.apply(root(Root::Gone)), "the root is gone");
    }
}
