//! What the outcome of an operation means for a recipe.

use jute_codec::{ErrorCode, Response};
use zk_session::{OpError, Outcome};

/// What the outcome of an operation means for a recipe.
pub(crate) enum Verdict {
    /// The operation was executed, with this response.
    Done(Response),
    /// A server refused the operation for a permanent reason.
    Refused(OpError),
    /// A server or the client cannot accept the operation at present, for this reason. The
    /// operation was not applied.
    Later(OpError),
    /// The operation was not applied, and may be issued again.
    NotApplied,
    /// The operation may have been applied, or may still be applied.
    Unknown,
    /// The session has ended, and everything that belongs to it is gone.
    SessionEnded,
}

/// Classifies an outcome. [`OpError::outcome`] decides which replies prove that nothing happened.
pub(super) fn verdict(result: Result<Response, OpError>) -> Verdict {
    match result {
        Ok(response) => Verdict::Done(response),
        Err(OpError::SessionExpired { .. }) => Verdict::SessionEnded,
        Err(
            error @ (OpError::Server {
                code: ErrorCode::THROTTLED_OP | ErrorCode::NOT_READ_ONLY,
                ..
            }
            | OpError::QueueFull { .. }),
        ) => Verdict::Later(error),
        Err(
            OpError::ConnectionLoss { outcome: Outcome::NotApplied, .. } | OpError::Recalled { .. },
        ) => Verdict::NotApplied,
        Err(error) if error.is_session_over() => Verdict::Refused(error),
        Err(error) if error.outcome() == Outcome::Unknown => Verdict::Unknown,
        Err(error) => Verdict::Refused(error),
    }
}

/// Classifies the outcome of an operation that may be issued any number of times: a read, or the
/// delete of a unique name. For these, only a lost connection leaves the result unknown, and
/// issuing the operation again resolves this.
pub(crate) fn replayable(result: Result<Response, OpError>) -> Verdict {
    match result {
        // The operation was executed, but repeating it would fail in the same way.
        Err(error @ (OpError::ResponseTooLarge { .. } | OpError::Undecodable { .. })) => {
            Verdict::Refused(error)
        }
        // The server failed. It may recover, and repeating the operation is harmless.
        Err(error @ OpError::Server { .. }) if error.outcome() == Outcome::Unknown => {
            Verdict::Later(error)
        }
        result => verdict(result),
    }
}
