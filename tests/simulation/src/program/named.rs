//! What the errors of the library mean to judges.

use zk_recipes::{
    CacheError, DowngradeError, Ending, GroupError, HandOverError, LockError, LostReason,
    MultiLockError, MultiReleaseError, OpError, Outcome, PresenceError, RecipeError, SettledError,
    Stopped, TransactionError, ValueError, WorkQueueError,
};

use jute_codec::ErrorCode;
use zk_session::{AuthError, MultiError};

use crate::history::{Failure, Told};

/// The codes with which a server refuses a marker that a lost copy of the same write has created, or
/// has written. So they say that the write was applied. Nobody else writes markers.
const DECISIVE: [ErrorCode; 2] = [ErrorCode::NODE_EXISTS, ErrorCode::BAD_VERSION];

/// An error that a call of the library returns.
pub trait Named: std::fmt::Display {
    /// Returns what has failed.
    fn failure(&self) -> Failure;

    /// Returns what the caller knows about the effect of the call.
    fn told(&self) -> Told {
        Told::Unknown
    }
}

impl Named for OpError {
    fn failure(&self) -> Failure {
        match self {
            Self::Closed { .. } => Failure::Closed,
            Self::ConnectionLoss { .. } => Failure::ConnectionLoss,
            Self::SessionExpired { .. } => Failure::SessionExpired,
            // A client that is suspended does not run.
            Self::RuntimeStopped { .. } | Self::TimedOut { .. } => Failure::TimedOut,
            Self::QueueFull { .. } => Failure::Full,
            Self::Server { code, .. } => Failure::Refused(code.0),
            Self::Unsupported { .. } => Failure::Unsupported,
            other => Failure::Other(other.to_string()),
        }
    }

    fn told(&self) -> Told {
        match self.outcome() {
            Outcome::NotApplied => Told::NotApplied,
            Outcome::Unknown => Told::Unknown,
        }
    }
}

impl Named for AuthError {
    fn failure(&self) -> Failure {
        match self {
            Self::Closed => Failure::Closed,
            Self::TimedOut { .. } => Failure::TimedOut,
            // Each of some connections in a row has ended before.
            Self::Unanswered { .. } => Failure::ConnectionLoss,
            other => Failure::Other(other.to_string()),
        }
    }
}

impl Named for LockError {
    fn failure(&self) -> Failure {
        match self {
            Self::ChrootMissing { .. } => Failure::NoRoot,
            Self::Closed => Failure::Closed,
            Self::Lost(reason) => Failure::Lost(*reason),
            Self::NoLease(slow) => Failure::NoLease(*slow),
            Self::QueueExhausted { .. } => Failure::Exhausted,
            Self::Refused { code, .. } => Failure::Refused(code.0),
            Self::TimedOut(_) => Failure::TimedOut,
            other => Failure::Other(other.to_string()),
        }
    }
}

impl Named for RecipeError {
    fn failure(&self) -> Failure {
        match self {
            Self::ChrootMissing { .. } => Failure::NoRoot,
            Self::Closed => Failure::Closed,
            Self::Refused { code, .. } => Failure::Refused(code.0),
            Self::SessionExpired => Failure::SessionExpired,
            Self::TimedOut(_) => Failure::TimedOut,
            other => Failure::Other(other.to_string()),
        }
    }
}

impl Named for WorkQueueError {
    fn failure(&self) -> Failure {
        match self {
            Self::Full { .. } => Failure::Full,
            Self::Blocked { .. } | Self::HasChildren { .. } | Self::ItemGone { .. } => {
                Failure::Changed
            }
            Self::LeaseLost(reason) => Failure::Lost(*reason),
            Self::Unknown { .. } => Failure::Undecided,
            Self::QueueExhausted { .. } => Failure::Exhausted,
            Self::Takers(error) => error.failure(),
            Self::Recipe(error) => error.failure(),
            other => Failure::Other(other.to_string()),
        }
    }

    fn told(&self) -> Told {
        match self {
            Self::Full { .. } | Self::LeaseLost(_) => Told::NotApplied,
            // An item that somebody else has deleted was not acknowledged by this caller.
            _ => Told::Unknown,
        }
    }
}

impl Named for ValueError {
    fn failure(&self) -> Failure {
        match self {
            Self::Conflict | Self::Recreated { .. } => Failure::Changed,
            Self::Undecided { .. } => Failure::Undecided,
            Self::Recipe(error) => error.failure(),
            other => Failure::Other(other.to_string()),
        }
    }

    fn told(&self) -> Told {
        match self {
            Self::Undecided { .. } | Self::Recreated { .. } => Told::Unknown,
            _ => Told::NotApplied,
        }
    }
}

impl Named for SettledError {
    fn failure(&self) -> Failure {
        match self {
            Self::Unknown { cause: RecipeError::Refused { code, .. } }
                if DECISIVE.contains(code) =>
            {
                Failure::Other("it is undecided, although its marker decides".to_owned())
            }
            Self::Recipe(error) | Self::Unknown { cause: error } => error.failure(),
            Self::Refused { code, .. } => Failure::Refused(code.0),
            Self::SessionEnded { .. } => Failure::SessionExpired,
            Self::Overtaken { .. } => Failure::Undecided,
            Self::Replaced { .. } => Failure::Changed,
            Self::LockLost(reason) => Failure::Lost(*reason),
            other => Failure::Other(other.to_string()),
        }
    }

    fn told(&self) -> Told {
        match self.outcome() {
            Outcome::NotApplied => Told::NotApplied,
            Outcome::Unknown => Told::Unknown,
        }
    }
}

impl Named for DowngradeError {
    fn failure(&self) -> Failure {
        self.error.failure()
    }
}

impl Named for TransactionError {
    fn failure(&self) -> Failure {
        match self {
            Self::Lost(reason) => Failure::Lost(*reason),
            Self::Op(error) => error.failure(),
            Self::CheckRefused { code, .. } | Self::Refused { code, .. } => {
                Failure::Refused(code.0)
            }
            other => Failure::Other(other.to_string()),
        }
    }

    fn told(&self) -> Told {
        match self.outcome() {
            Outcome::NotApplied => Told::NotApplied,
            Outcome::Unknown => Told::Unknown,
        }
    }
}

impl Named for MultiLockError {
    fn failure(&self) -> Failure {
        self.error.failure()
    }
}

impl Named for MultiReleaseError {
    fn failure(&self) -> Failure {
        let first = self.failed.first();
        first.map_or_else(|| Failure::Other(self.to_string()), Named::failure)
    }
}

impl Named for Stopped {
    fn failure(&self) -> Failure {
        match self {
            Self::AtRisk => Failure::Lost(LostReason::AtRisk),
            Self::Lost(reason) => Failure::Lost(*reason),
            Self::NoLease(slow) => Failure::NoLease(*slow),
            other => Failure::Other(other.to_string()),
        }
    }
}

impl Named for MultiError {
    fn failure(&self) -> Failure {
        match self {
            Self::Op(error) => error.failure(),
            Self::Refused { code, .. } => Failure::Refused(code.0),
        }
    }
}

impl Named for PresenceError {
    fn failure(&self) -> Failure {
        match self {
            Self::Ended => Failure::Closed,
            Self::Taken { .. } => Failure::Changed,
            Self::Recipe(error) => error.failure(),
            other => Failure::Other(other.to_string()),
        }
    }
}

impl Named for GroupError {
    fn failure(&self) -> Failure {
        match self {
            Self::Recipe(error) => error.failure(),
            Self::Ended(Ending::ClientStopped) => Failure::Closed,
            Self::Ended(Ending::IdTaken(_)) => Failure::Taken,
            Self::IdTaken { .. } => Failure::Changed,
            other => Failure::Other(other.to_string()),
        }
    }
}

impl Named for HandOverError {
    fn failure(&self) -> Failure {
        match self {
            Self::NoSession => Failure::SessionExpired,
            Self::Unfinished { .. } => Failure::Unfinished,
            other => Failure::Other(other.to_string()),
        }
    }
}

impl Named for CacheError {
    fn failure(&self) -> Failure {
        match self {
            Self::Closed => Failure::Closed,
            Self::Client(error) | Self::Unreadable { error, .. } => error.failure(),
            other => Failure::Other(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use zk_recipes::FailedAction;

    use super::*;

    #[test]
    fn a_write_whose_marker_decides_is_not_undecided() {
        let failure = |code| {
            let (action, path) = (FailedAction::Write, "/markers/marker-1".to_owned());
            let cause = RecipeError::Refused { code, action, path };
            SettledError::Unknown { cause }.failure()
        };
        assert_eq!(failure(ErrorCode::NO_AUTH), Failure::Refused(ErrorCode::NO_AUTH.0));
        for code in DECISIVE {
            assert!(matches!(failure(code), Failure::Other(_)), "{code}");
        }
    }
}
