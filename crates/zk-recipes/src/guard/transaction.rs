//! Writes that are committed only while the lock is held.

use std::sync::Arc;

use jute_codec::{ErrorCode, OpCode};
use thiserror::Error;
use zk_session::recipe::{Abridged, Session};
use zk_session::{ConfigError, Multi, MultiError, MultiOutcome, OpError, Outcome, Target};

use super::hold::Hold;
use crate::action::because;
use crate::engine::call::Call;
use crate::lock::error::{LockError, LostReason, Stopped};
use crate::lock::state::LockState;

/// Why a transaction of a guard was not committed, or may not have been.
///
/// After a transaction, the effect can be unknown only for [`Op`](Self::Op); see
/// [`outcome`](Self::outcome). A function that acquires a lock, commits under it and releases it can
/// return this error: `?` converts those of the other calls to [`Lock`](Self::Lock).
#[derive(Clone, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum TransactionError {
    /// The znode exists, but the server refused to check it, for example because its access control
    /// list denies reading it. Nothing was applied, and the lock is held as before.
    #[error(
        "the server refused to check {path:?}, the znode of the lock: {code}{}; nothing was applied, \
         and the lock is held as before",
        because(*.code, Some(OpCode::CHECK), .path),
        path = Abridged(.path)
    )]
    CheckRefused {
        /// The error code of the server.
        code: ErrorCode,
        /// The path of the contender znode.
        path: String,
    },
    /// A call of the lock or of its guard has failed. No transaction returns this; it is for functions
    /// that make such calls too.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The lock is lost. Nothing was applied.
    #[error("the lock is lost, so nothing was applied: {0}")]
    Lost(LostReason),
    /// The request as a whole failed; see [`OpError::outcome`].
    #[error(transparent)]
    Op(OpError),
    /// An operation was refused while the lock was held. Nothing was applied.
    #[error(
        "the server refused to {target}, operation {index} of the transaction (counted from 0): \
         {code}{}; nothing was applied",
        because(*.code, .target.operation, &.target.path)
    )]
    Refused {
        /// Index of the operation among those of the caller, from 0.
        index: usize,
        /// The error code of the server.
        code: ErrorCode,
        /// The operation and its path.
        target: Target,
    },
}

jute_codec::debug_by_message!(TransactionError);

impl TransactionError {
    /// Returns what is known about the effect of the transaction. It is unknown after
    /// [`Lock`](Self::Lock), because the error does not tell whether the call that has failed came
    /// before a transaction or after it.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::CheckRefused { .. } | Self::Lost(_) | Self::Refused { .. } => Outcome::NotApplied,
            Self::Lock(_) => Outcome::Unknown,
            Self::Op(error) => error.outcome(),
        }
    }
}

/// For what the constructors of the locks return.
impl From<ConfigError> for TransactionError {
    fn from(error: ConfigError) -> Self {
        Self::Lock(error.into())
    }
}

/// For the body of a [`run`](crate::Guard::run) that was stopped. Its transactions may have been
/// committed.
impl From<Stopped> for TransactionError {
    fn from(stopped: Stopped) -> Self {
        Self::Lock(stopped.into())
    }
}

/// Enqueues a transaction. The future returns its outcomes.
pub(crate) fn begin(hold: &Arc<Hold>, multi: Multi) -> Call<Vec<MultiOutcome>, TransactionError> {
    let begun = match hold.state() {
        LockState::Lost(reason) => Err(TransactionError::Lost(reason)),
        LockState::Held | LockState::AtRisk => {
            // The check comes first, so that its failure is reported even if other operations would
            // be refused too. The name is unique, so any version is fine.
            let checked = Multi::new().check(&hold.path, None).append(multi);
            Ok(hold.client().commit_in(hold.session, checked))
        }
    };
    let (client, path) = (hold.client(), &hold.path);
    let hold = Arc::clone(hold);
    Call::without_watchdog(client, path, (), |(), deadline| async move {
        let mut op = begun?;
        if let Some(deadline) = deadline {
            op = op.timeout(deadline.saturating_since(hold.client().now()));
        }
        tokio::select! {
            biased;
            result = &mut op => return conclude(&hold, result),
            // A request that still waits for a connection must not be sent after the lock is lost.
            _ = hold.lost() => Session::recall(&op),
        }
        conclude(&hold, op.await)
    })
}

/// Returns the outcomes of the caller's operations. If the transaction failed, determines what that
/// means for the lock.
fn conclude(
    hold: &Hold,
    result: Result<Vec<MultiOutcome>, MultiError>,
) -> Result<Vec<MultiOutcome>, TransactionError> {
    let error = match result {
        Ok(outcomes) => return Ok(outcomes.into_iter().skip(1).collect()),
        Err(MultiError::Op(error)) => error,
        Err(MultiError::Refused { index, code, target }) => match index.checked_sub(1) {
            Some(index) => return Err(TransactionError::Refused { index, code, target }),
            None if code == ErrorCode::NO_NODE => {
                hold.lose(LostReason::ZnodeDeleted);
                OpError::server(code).about(target)
            }
            None => {
                return Err(TransactionError::CheckRefused { code, path: hold.path.to_string() });
            }
        },
    };
    if matches!(error, OpError::SessionExpired { .. }) {
        hold.lose(LostReason::SessionExpired);
    }
    match hold.state() {
        LockState::Lost(reason) if error.outcome() == Outcome::NotApplied => {
            Err(TransactionError::Lost(reason))
        }
        LockState::Lost(_) | LockState::Held | LockState::AtRisk => {
            Err(TransactionError::Op(error))
        }
    }
}
