//! Transactions that are applied only while a lock is held.

use std::sync::Arc;

use bytestring::ByteString;
use jute_codec::ErrorCode;
use zk_session::recipe::{Abridged, Session};
use zk_session::{ConfigError, Multi, MultiOutcome, OptionDefect};

use super::error::SettledError;
use super::write::{Applied, Write, write};
use super::{SettledClient, invalid};
use crate::engine::call::Call;
use crate::error::check_acl;
use crate::guard::Guard;
use crate::lock::error::LostReason;
use crate::lock::kind::Queued;
use crate::lock::state::LockState;

impl SettledClient {
    /// Commits writes together, and only if the lock of the guard is held when the ensemble commits
    /// them, as [`Guard::transaction`] does. Returns one result per write, or `None` if they were
    /// applied and the reply was lost. The guard must be of the same client, and its lock below the root
    /// of this handle.
    ///
    /// After a **connection loss**, the transaction is repeated in the session of the lock, and
    /// applied once. It is committed or refused by the state of the lock on the servers, not by
    /// that of the guard: a guard that is lost meanwhile does not end the call. **Cancel safe** in
    /// that the transaction is applied once or not at all. Needs READ on the znode of the lock, and
    /// the permissions of its operations.
    ///
    /// # Errors
    ///
    /// [`SettledError::LockLost`] if the lock is lost, so nothing was applied.
    /// [`SettledError::SessionEnded`] if the session of the lock ended before the outcome was known.
    /// Otherwise as for [`create`](Self::create).
    pub fn commit_under<K: Queued>(
        &self,
        guard: &Guard<K>,
        multi: Multi,
    ) -> Call<Option<Vec<MultiOutcome>>, SettledError> {
        let (profile, hold) = (self.profile.clone(), Arc::clone(guard.hold()));
        // The check comes first, so that its failure is reported even if other operations would be
        // refused too. The name is unique, so any version is fine.
        let own = Session::of(&profile.client).path_of(hold.client(), &hold.path);
        let operations =
            own.map(|path| self.operations(Multi::new().check(&path, None).append(multi)));
        self.call(&hold.path.clone(), async move |deadline| {
            check_acl("acl of the markers", &profile.client, &profile.acl)?;
            let operations = operations.ok_or_else(|| foreign(&hold.path))?.map_err(invalid)?;
            if let LockState::Lost(reason) = hold.state() {
                return Err(SettledError::LockLost(reason));
            }
            let session = Some(hold.session);
            let request = Write { operations: &operations, ancestors: None, session };
            match write(&profile, &request, deadline).await {
                Ok(Applied::Replied(results)) => {
                    Ok(Some(Session::outcomes(results).into_iter().skip(1).collect()))
                }
                Ok(Applied::Lost(_)) => Ok(None),
                Err(SettledError::Refused { index: 0, code: ErrorCode::NO_NODE, .. }) => {
                    Err(SettledError::LockLost(hold.lose(LostReason::ZnodeDeleted)))
                }
                Err(SettledError::Refused { index, code, target }) if index > 0 => {
                    // The caller does not know of the check.
                    Err(SettledError::Refused { index: index - 1, code, target })
                }
                Err(error @ SettledError::SessionEnded { .. }) => {
                    hold.lose(LostReason::SessionExpired);
                    Err(error)
                }
                Err(error) => Err(error),
            }
        })
    }
}

/// Returns the error for a guard whose znode this handle cannot name. To check another znode instead
/// would show a lock as lost that is held.
fn foreign(path: &ByteString) -> ConfigError {
    ConfigError::Option {
        option: "guard",
        value: format!("of {}", Abridged(path)),
        defect: OptionDefect::Other(
            "its lock must be one of the same client, below the root of this handle",
        ),
    }
}
