//! What a semaphore tells the engine.

use std::convert::Infallible;
use std::sync::Arc;

use bytestring::ByteString;
use jute_codec::Response;
use zk_session::recipe::Operation;

use super::lock::Permit;
use super::machine::attempt::SemaphoreAttempt;
use super::machine::standing;
use crate::lock::error::LockError;
use crate::lock::recipe::Recipe;
use crate::machine::{FailedAction, list};
use crate::queue::machine::removal::QueueRemoval;
use crate::queue::profile::QueueProfile;

impl Recipe for Permit {
    type Profile = QueueProfile;
    type Attempt = SemaphoreAttempt;
    type Removal = QueueRemoval;
    type Change = Infallible;

    const HAS_UNIQUE_NAMES: bool = true;

    fn path(profile: &QueueProfile) -> &ByteString {
        &profile.directory
    }

    fn attempt(profile: &Arc<QueueProfile>, id: u128, may_wait: bool) -> SemaphoreAttempt {
        SemaphoreAttempt::new(Arc::clone(profile), id, may_wait)
    }

    fn look(profile: &QueueProfile) -> (Operation, FailedAction) {
        (list(&profile.directory, None), FailedAction::List)
    }

    /// Only saves an attempt: the attempt itself compares with the stored number.
    fn is_taken(profile: &QueueProfile, seen: &Response) -> Result<bool, LockError> {
        let Response::GetChildren(names) = seen else { return Ok(false) };
        let Some(permits) = profile.permits.filter(|permits| !permits.accepts_stored) else {
            return Ok(false);
        };
        standing::is_taken(profile, names, permits.count)
    }
}
