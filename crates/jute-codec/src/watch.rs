//! Watch events.

use bytestring::ByteString;

use crate::code::{EventType, KeeperState};

record! {
    /// Body of a frame with xid [`NOTIFICATION`](crate::xid::NOTIFICATION).
    ///
    /// The header's zxid is -1 before 3.9.0 and for events that restoring watches produced; it
    /// must never count as a zxid seen.
    pub struct WatcherEvent {
        /// What happened.
        kind: EventType,
        /// Always `SYNC_CONNECTED` from a server.
        state: KeeperState,
        /// Full path on the server, without regard to a client's chroot.
        path: ByteString,
    }
}
