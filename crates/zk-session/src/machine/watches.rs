//! The watches of a session, and from when on they have to be restored.

use super::persistent::PersistentWatches;
use super::watch::WatchRegistry;
use crate::types::Zxid;

/// The watches of a session. They survive its connections.
#[derive(Debug, Default)]
pub(super) struct Watches {
    pub(super) one_shot: WatchRegistry,
    pub(super) persistent: PersistentWatches,
    /// Relative zxid of the watches to restore. It is set when the connection is lost, and kept
    /// until a server has acknowledged every batch, even if further connections are lost before
    /// that.
    restore_zxid: Option<Zxid>,
}

impl Watches {
    /// Returns the number of registered watches.
    pub(super) fn len(&self) -> usize {
        self.one_shot.len() + self.persistent.len()
    }

    /// Removes all watches at the end of the session.
    pub(super) fn clear(&mut self) {
        self.one_shot.clear();
        self.persistent.clear();
        self.restore_zxid = None;
    }

    /// Returns the zxid from which on changes were not reported, if watches have to be restored.
    pub(super) fn restore_zxid(&self) -> Option<Zxid> {
        self.restore_zxid
    }

    /// Records that changes from this zxid on are not reported. Further lost connections do not
    /// overwrite it: until watches are restored, no change since the first loss has been reported.
    pub(super) fn interrupted(&mut self, last_zxid: Zxid) {
        self.restore_zxid.get_or_insert(last_zxid);
    }

    /// Records that a server has restored all watches.
    pub(super) fn restored(&mut self) {
        self.restore_zxid = None;
    }
}
