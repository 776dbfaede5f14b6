//! What one member of the ensemble has applied: its tree, and the watches of its connections.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use jute_codec::Zxid;

use crate::commit::{self, Committed, Proposal};
use crate::config::ServerConfig;
use crate::tree::Tree;
use crate::watch::Watches;

/// How many commits a member may lag behind. It applies the oldest when there are more.
pub(crate) const BACKLOG_MAX: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) tree: Tree,
    pub(crate) watches: Watches,
    /// The last transaction that was applied.
    pub(crate) zxid: Zxid,
    /// Transactions that are committed and not applied yet, in the order of their zxids. A leader
    /// that applies at once has none.
    backlog: VecDeque<Entry>,
}

/// A committed transaction.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) zxid: Zxid,
    pub(crate) proposal: Arc<Proposal>,
    /// When the member receives it at the latest; `None` if time alone never makes it arrive.
    pub(crate) arrives: Option<Duration>,
}

impl Replica {
    /// Creates a replica that contains only the built-in znodes.
    pub(crate) fn new(config: &ServerConfig) -> Self {
        Self {
            tree: Tree::new(config),
            watches: Watches::new(config.version),
            zxid: Zxid(0),
            backlog: VecDeque::new(),
        }
    }

    /// Returns a copy of the applied state, without watches.
    pub(crate) fn snapshot(&self, config: &ServerConfig) -> Self {
        Self {
            tree: self.tree.clone(),
            watches: Watches::new(config.version),
            zxid: self.zxid,
            backlog: VecDeque::new(),
        }
    }

    /// Executes a transaction.
    pub(crate) fn apply(
        &mut self,
        config: &ServerConfig,
        proposal: &Proposal,
        zxid: Zxid,
    ) -> Committed {
        self.zxid = zxid;
        commit::commit(&mut self.tree, config, proposal, zxid)
    }

    pub(crate) fn enqueue(&mut self, entry: Entry) {
        self.backlog.push_back(entry);
    }

    /// Makes everything that was committed arrive at this time at the latest.
    pub(crate) fn receive_by(&mut self, time: Duration) {
        for entry in &mut self.backlog {
            entry.arrives = Some(entry.arrives.map_or(time, |at| at.min(time)));
        }
    }

    /// Takes the oldest transaction that must be applied by now. It is applied this long after it
    /// has arrived.
    pub(crate) fn take_due(&mut self, now: Duration, unapplied: Duration) -> Option<Entry> {
        let is_full = self.backlog.len() > BACKLOG_MAX;
        let is_due = |entry: &&Entry| entry.due(unapplied).is_some_and(|due| due <= now) || is_full;
        self.backlog.front().filter(is_due)?;
        self.backlog.pop_front()
    }

    /// Takes the oldest transaction that has not been applied.
    pub(crate) fn take_next(&mut self) -> Option<Entry> {
        self.backlog.pop_front()
    }

    /// Returns when a transaction must be applied.
    pub(crate) fn next_due(&self, unapplied: Duration) -> Option<Duration> {
        self.backlog.front()?.due(unapplied)
    }
}

impl Entry {
    fn due(&self, unapplied: Duration) -> Option<Duration> {
        self.arrives?.checked_add(unapplied)
    }
}
