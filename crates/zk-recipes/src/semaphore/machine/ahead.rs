//! The contenders ahead of an attempt that it watches, and what is known about them.

use jute_codec::DataReply;
use zk_session::SessionId;

use crate::machine::WatchNumber;
use crate::timed_out::{self, short_identity};

/// A predecessor that has to be watched.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub(super) name: Box<str>,
    /// The watch that is pending.
    pub(super) watch: Option<WatchNumber>,
    /// The flight of step 3 or 5 reads it.
    pub(super) is_read: bool,
    /// Its session and its identity, for messages. The reply that sets the watch contains them.
    owner: Option<SessionId>,
    identity: Box<str>,
}

impl Watched {
    pub(super) fn new(name: Box<str>) -> Self {
        Self { name, watch: None, is_read: false, owner: None, identity: "".into() }
    }

    /// Remembers who it is.
    pub(super) fn seen(&mut self, found: &DataReply) {
        self.owner = Some(found.stat.ephemeral_owner);
        self.identity = short_identity(found.data.as_deref().unwrap_or_default());
    }

    /// Returns what a timeout says about it.
    pub(super) fn describe(&self, ahead: usize) -> timed_out::Predecessor {
        timed_out::Predecessor::new(ahead, &self.name, &self.identity, self.owner)
    }
}

/// Returns the predecessors with these names. What is known about the old ones is kept.
pub(super) fn update(mut old: Vec<Watched>, names: Vec<Box<str>>) -> Vec<Watched> {
    let predecessor = |name: Box<str>| match old.iter().position(|other| other.name == name) {
        Some(place) => old.swap_remove(place),
        None => Watched::new(name),
    };
    names.into_iter().map(predecessor).collect()
}

/// Returns true if all of them are known to belong to this session.
pub(super) fn belong_to(predecessors: &[Watched], session: Option<SessionId>) -> bool {
    session.is_some() && predecessors.iter().all(|predecessor| predecessor.owner == session)
}
