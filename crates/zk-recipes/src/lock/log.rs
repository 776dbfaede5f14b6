//! What the log says about single locks, for the person on call. Only the first messages of each kind
//! in a minute are visible at the usual levels.

use thiserror::Error;
use tracing::{Span, debug, info, warn};
use zk_session::Client;
use zk_session::recipe::{Abridged, Notice, Session};

use super::error::LostReason;
use crate::engine::notice::is_among_first;

/// Why a lock is at risk.
#[derive(Clone, Copy, Eq, Error, PartialEq)]
pub(crate) enum Risk {
    #[error("there is no connection")]
    Disconnected,
    #[error("the server does not acknowledge requests")]
    Silent,
    #[error("there is no lease")]
    Unleased,
    #[error("nothing has proven it on the new connection yet")]
    Unproven,
}

jute_codec::debug_by_message!(Risk);

/// Logs that a lock is at risk, and why.
pub(crate) fn at_risk(client: &Client, path: &str, reason: Risk) {
    let path = Abridged(path);
    if is_visible(client, Notice::AtRisk) {
        warn!(%path, %reason, "the lock is at risk");
    } else {
        debug!(%path, %reason, "the lock is at risk");
    }
}

/// Logs that a lock that was at risk is held.
pub(crate) fn held_again(client: &Client, path: &str) {
    let path = Abridged(path);
    if is_visible(client, Notice::HeldAgain) {
        info!(%path, "the lock is held again");
    } else {
        debug!(%path, "the lock is held again");
    }
}

/// Logs that a lock is lost, and why. Callers that closed the client know it already.
pub(crate) fn lost(client: &Client, path: &str, reason: LostReason) {
    let path = Abridged(path);
    if reason != LostReason::Closed && is_visible(client, Notice::Lost) {
        warn!(%path, %reason, "the lock is lost");
    } else {
        debug!(%path, %reason, "the lock is lost");
    }
}

/// Logs that an attempt waits behind its own session, once a minute for each lock: tasks of one
/// client may queue on purpose.
pub(crate) fn behind_own_session(client: &Client, span: &Span, path: &str) {
    const WAITING: &str = "waiting for a znode of this client's session: the client already holds \
                           the lock, or waits for it";
    let number = Session::of(client).count_notice_about(Notice::OwnSession, path);
    let path = Abridged(path);
    if number.is_some_and(|number| is_among_first(Notice::OwnSession, number)) {
        warn!(parent: span, %path, "{WAITING}");
    } else {
        debug!(parent: span, %path, "{WAITING}");
    }
}

/// Logs that a check has found a change at this path.
pub(crate) fn watch_missed(client: &Client, span: &Span, path: &str) {
    const MISSED: &str = "a watch did not report a change";
    let path = Abridged(path);
    if is_visible(client, Notice::Missed) {
        warn!(parent: span, %path, "{MISSED}");
    } else {
        debug!(parent: span, %path, "{MISSED}");
    }
}

/// Counts a message. Returns whether it is one of the first.
fn is_visible(client: &Client, notice: Notice) -> bool {
    is_among_first(notice, Session::of(client).count_notice(notice))
}
