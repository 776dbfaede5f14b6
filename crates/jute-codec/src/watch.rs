//! Watch events.

use bytestring::ByteString;

use crate::numbers::{EventType, KeeperState};

record! {
    /// The record in a frame with xid [`NOTIFICATION`](crate::xid::NOTIFICATION).
    ///
    /// The zxid in the header is -1 from servers older than 3.9.0, and for events caused by
    /// restoring watches. A client must never count this zxid as seen.
    pub struct WatcherEvent {
        /// What happened to the znode.
        kind: EventType,
        /// Always `SYNC_CONNECTED` from a server.
        state: KeeperState,
        /// The full path on the server; a client's chroot is not stripped.
        path: ByteString,
    }
}
