//! Lists of children that many flights ask for: one reply serves several of them.
//!
//! Thousands of tasks may wait in one queue, and the list of it is long. A flight that marks its
//! list as shared gets one that was sent after everything that stands before it in the flight. So
//! a flight never joins a request that has left already. While a list of a path is in flight, the
//! operations that ask for the same path are parked; when its reply has arrived, one request goes
//! out for all of them.
//!
//! Each operation here belongs to an open flight, or stands in a request in flight.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytestring::ByteString;

use super::flight::Token;

/// An operation of a flight.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Subscriber {
    pub(crate) token: Token,
    pub(crate) index: usize,
}

/// The lists of one connection, by path.
#[derive(Debug, Default)]
pub(crate) struct SharedLists {
    lists: BTreeMap<ByteString, SharedList>,
    /// Paths whose list was answered, and has to be asked for again.
    due: VecDeque<ByteString>,
}

#[derive(Debug, Default)]
struct SharedList {
    /// The request in flight answers them.
    asked: BTreeSet<Subscriber>,
    /// The request after that answers them.
    parked: BTreeSet<Subscriber>,
}

impl SharedLists {
    /// True if a list of the path is in flight or due: an operation has to be parked.
    pub(crate) fn is_busy(&self, path: &str) -> bool {
        self.lists.contains_key(path)
    }

    /// The operation was sent, as the first for its path.
    pub(crate) fn ask(&mut self, path: ByteString, subscriber: Subscriber) {
        self.lists.entry(path).or_default().asked.insert(subscriber);
    }

    /// The operation waits for the list after the one in flight.
    pub(crate) fn park(&mut self, path: ByteString, subscriber: Subscriber) {
        self.lists.entry(path).or_default().parked.insert(subscriber);
    }

    /// Nobody waits for the flight any more.
    pub(crate) fn leave(&mut self, path: &str, token: Token) {
        if let Some(list) = self.lists.get_mut(path) {
            let last = Subscriber { token, index: usize::MAX };
            while let Some(own) = list.parked.range(..=last).next_back().copied()
                && own.token == token
            {
                list.parked.remove(&own);
            }
        }
    }

    /// The list in flight was answered; whom to tell.
    pub(crate) fn answered(&mut self, path: &ByteString) -> BTreeSet<Subscriber> {
        let Some(list) = self.lists.get_mut(path) else { return BTreeSet::new() };
        let asked = std::mem::take(&mut list.asked);
        if list.parked.is_empty() {
            self.lists.remove(path);
        } else {
            self.due.push_back(path.clone());
        }
        asked
    }

    /// The next list to send, and whom it serves. A list that nobody waits for is not sent.
    pub(crate) fn next(&mut self) -> Option<(ByteString, BTreeSet<Subscriber>)> {
        while let Some(path) = self.due.pop_front() {
            let Some(list) = self.lists.get_mut(&path) else { continue };
            if list.parked.is_empty() {
                self.lists.remove(&path);
                continue;
            }
            list.asked = std::mem::take(&mut list.parked);
            return Some((path, list.asked.clone()));
        }
        None
    }

    /// Takes all operations for which nothing was sent.
    pub(crate) fn take_parked(&mut self) -> BTreeSet<Subscriber> {
        self.due.clear();
        let mut parked = BTreeSet::new();
        self.lists.retain(|_, list| {
            parked.append(&mut list.parked);
            !list.asked.is_empty()
        });
        parked
    }
}
