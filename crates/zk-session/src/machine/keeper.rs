//! What differs if the server is a ClickHouse Keeper.
//!
//! Keeper neither says that it is one nor which operations it knows. But its sessions have no
//! password, because it never resumes one: it ignores the session that a client asks for, and opens
//! another. Source: `KeeperTCPHandler::receiveHandshake` and `sendHandshake`. A password of ZooKeeper
//! is random. The internals have a page about Keeper, with the sources of the rest.

use jute_codec::{ConnectResponse, CreateMode, MultiOp, Request};

use crate::operation::table::Facts;

/// The protocol version with which a Keeper without a leader refuses a client. The reply has a
/// session timeout, and -1 as the session.
const REFUSED: i32 = 42;

/// Returns whether a session with this password is one of a Keeper.
pub(super) fn has_opened(password: &[u8]) -> bool {
    password.iter().all(|byte| *byte == 0)
}

/// Returns whether a Keeper says that it cannot open a session now.
pub(super) fn refuses(response: &ConnectResponse) -> bool {
    response.protocol_version == REFUSED && has_opened(&response.password)
}

/// Returns whether a Keeper may not know this request. It knows some of these operations if it is
/// new, or configured for them. But one that does not know an operation closes the connection
/// without a reply, and the session cannot be resumed, so the client asks none of them.
pub(super) fn may_lack(request: &Request) -> bool {
    if let Request::Create(create) = request {
        return !is_known(create.mode);
    }
    if let Request::Multi(ops) = request {
        return ops
            .iter()
            .any(|op| matches!(op, MultiOp::Create(create) if !is_known(create.mode)));
    }
    Facts::of(request.op()).keepers_may_lack
}

fn is_known(mode: CreateMode) -> bool {
    match mode {
        CreateMode::Ephemeral
        | CreateMode::EphemeralSequential
        | CreateMode::Persistent
        | CreateMode::PersistentSequential => true,
        CreateMode::Container
        | CreateMode::PersistentTtl(_)
        | CreateMode::PersistentSequentialTtl(_) => false,
    }
}
