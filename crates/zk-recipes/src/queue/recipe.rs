//! The recipe of every lock whose contenders form a queue.

use std::sync::Arc;

use bytestring::ByteString;
use jute_codec::Response;
use zk_session::recipe::Operation;

use super::machine::attempt::QueueAttempt;
use super::machine::removal::QueueRemoval;
use super::machine::standing;
use super::profile::QueueProfile;
use crate::lock::error::LockError;
use crate::lock::recipe::{Change, Recipe};
use crate::machine::{FailedAction, list};

/// A kind of lock whose contenders form a queue. The names in its profile define all other
/// differences.
pub trait QueueKind: Send + Sync + 'static {
    /// What the lock can become while it is held.
    type Change: Change<QueueRemoval>;
}

impl<K: QueueKind> Recipe for K {
    type Profile = QueueProfile;
    type Attempt = QueueAttempt;
    type Removal = QueueRemoval;
    type Change = K::Change;

    const HAS_UNIQUE_NAMES: bool = true;

    fn path(profile: &QueueProfile) -> &ByteString {
        profile.directory()
    }

    fn attempt(profile: &Arc<QueueProfile>, id: u128, may_wait: bool) -> QueueAttempt {
        QueueAttempt::new(Arc::clone(profile), id, may_wait)
    }

    fn look(profile: &QueueProfile) -> (Operation, FailedAction) {
        (list(profile.directory(), None), FailedAction::List)
    }

    fn is_taken(profile: &QueueProfile, seen: &Response) -> Result<bool, LockError> {
        let Response::GetChildren(names) = seen else { return Ok(false) };
        standing::is_taken(profile, names)
    }
}
