//! Lists of children that many flights request: one reply serves several flights.
//!
//! Thousands of tasks may wait in one queue, and its list of children is long. A flight that marks
//! its list as shared gets a list that was requested after all operations before it in the flight.
//! So a flight never joins a request that was already sent. While a list of a path is in flight,
//! operations that request the same path are parked. When the reply arrives, one request is sent on
//! behalf of all of them.
//!
//! Each operation here either belongs to an open flight or is part of a request in flight.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytestring::ByteString;

use super::flight::Token;

/// An operation of a flight that waits for a list.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Subscriber {
    pub(crate) token: Token,
    pub(crate) index: usize,
}

/// The shared lists of one connection, by path.
#[derive(Debug, Default)]
pub(crate) struct SharedLists {
    lists: BTreeMap<ByteString, SharedList>,
    /// Paths whose list has arrived and must be requested again.
    due: VecDeque<ByteString>,
}

#[derive(Debug, Default)]
struct SharedList {
    /// Operations that the request in flight completes.
    requested: BTreeSet<Subscriber>,
    /// Operations that the next request will complete.
    parked: BTreeSet<Subscriber>,
}

impl SharedLists {
    /// Returns true if a list of the path is in flight or due, so that an operation must be parked.
    pub(crate) fn is_busy(&self, path: &str) -> bool {
        self.lists.contains_key(path)
    }

    /// Records that the operation was sent, as the first for its path.
    pub(crate) fn request(&mut self, path: ByteString, subscriber: Subscriber) {
        self.lists.entry(path).or_default().requested.insert(subscriber);
    }

    /// Records that the operation waits for the list after the one in flight.
    pub(crate) fn park(&mut self, path: ByteString, subscriber: Subscriber) {
        self.lists.entry(path).or_default().parked.insert(subscriber);
    }

    /// Discards the parked operations of a flight that is no longer open.
    pub(crate) fn remove(&mut self, path: &str, token: Token) {
        if let Some(list) = self.lists.get_mut(path) {
            let last = Subscriber { token, index: usize::MAX };
            while let Some(own) = list.parked.range(..=last).next_back().copied()
                && own.token == token
            {
                list.parked.remove(&own);
            }
        }
    }

    /// Returns the path of the list that the operation waits for.
    pub(crate) fn path_of(&self, subscriber: Subscriber) -> Option<&ByteString> {
        let is_wanted = |list: &SharedList| {
            list.requested.contains(&subscriber) || list.parked.contains(&subscriber)
        };
        self.lists.iter().find_map(|(path, list)| is_wanted(list).then_some(path))
    }

    /// Takes the operations that the list in flight completes, and schedules the next request if
    /// operations are parked.
    pub(crate) fn complete(&mut self, path: &ByteString) -> BTreeSet<Subscriber> {
        let Some(list) = self.lists.get_mut(path) else { return BTreeSet::new() };
        let completed = std::mem::take(&mut list.requested);
        if list.parked.is_empty() {
            self.lists.remove(path);
        } else {
            self.due.push_back(path.clone());
        }
        completed
    }

    /// Returns true if [`next`](Self::next) may return a list.
    pub(crate) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Returns the next list to request and the operations that it will complete. A list is skipped
    /// if all flights that waited for it were cancelled.
    pub(crate) fn next(&mut self) -> Option<(ByteString, BTreeSet<Subscriber>)> {
        while let Some(path) = self.due.pop_front() {
            let Some(list) = self.lists.get_mut(&path) else { continue };
            if list.parked.is_empty() {
                self.lists.remove(&path);
                continue;
            }
            list.requested = std::mem::take(&mut list.parked);
            return Some((path, list.requested.clone()));
        }
        None
    }

    /// Takes all operations whose list was not requested, with the paths of the lists.
    pub(crate) fn take_parked(&mut self) -> BTreeMap<Subscriber, ByteString> {
        self.due.clear();
        let mut parked = BTreeMap::new();
        self.lists.retain(|path, list| {
            let taken = std::mem::take(&mut list.parked);
            parked.extend(taken.into_iter().map(|subscriber| (subscriber, path.clone())));
            !list.requested.is_empty()
        });
        parked
    }
}
