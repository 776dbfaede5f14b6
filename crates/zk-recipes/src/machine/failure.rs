//! Why a recipe could not do what its caller asked for.

use std::fmt;

use bytestring::ByteString;
use jute_codec::OpCode;
use zk_session::OpError;
use zk_session::recipe::Abridged;

use crate::action::FailedAction;

/// A definite failure of an operation that a recipe cannot do without.
#[derive(Clone, Eq, PartialEq)]
pub struct Failure {
    /// What was attempted.
    pub action: FailedAction,
    /// The path of the znode; without its number if it is a new one that has one.
    pub path: ByteString,
    /// Why it failed.
    pub error: OpError,
}

impl Failure {
    /// Creates a failure. If a server has refused one operation, the error knows which one, and that
    /// is what the failure names: a machine may have sent several operations, on several znodes. In
    /// all other cases, the arguments say what was attempted.
    pub(crate) fn new(action: FailedAction, path: impl Into<ByteString>, error: OpError) -> Self {
        let refused = refused(&error);
        let (action, path) = refused.unwrap_or_else(|| (action, path.into()));
        Self { action, path, error }
    }
}

/// For log lines.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { action, path, error } = self;
        let mut failure = f.debug_struct("Failure");
        failure
            .field("action", action)
            .field("path", &Abridged(path))
            .field("error", error)
            .finish()
    }
}

/// Returns what a server has refused, and where. A multi is left to its machine, because the error
/// names only its first operation.
fn refused(error: &OpError) -> Option<(FailedAction, ByteString)> {
    error.server_code()?;
    let target = error.target().filter(|target| !target.path.is_empty())?;
    let action = match target.operation? {
        OpCode::CREATE | OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => {
            FailedAction::Create
        }
        OpCode::DELETE => FailedAction::Delete,
        OpCode::CHECK | OpCode::EXISTS => FailedAction::Check,
        OpCode::GET_ACL => FailedAction::ReadAcl,
        OpCode::GET_CHILDREN | OpCode::GET_CHILDREN2 => FailedAction::List,
        OpCode::GET_DATA => FailedAction::Read,
        OpCode::SET_DATA => FailedAction::Write,
        _ => return None,
    };
    Some((action, target.path.clone()))
}

#[cfg(test)]
mod tests {
    use jute_codec::ErrorCode;
    use zk_session::{Outcome, Target};

    use super::*;

    fn named(error: OpError) -> (FailedAction, String) {
        let failure = Failure::new(FailedAction::ReadChild, "/a", error);
        (failure.action, failure.path.to_string())
    }

    #[test]
    fn a_refusal_names_the_operation_and_the_path_that_the_server_refused() {
        let refused = |op| OpError::server(ErrorCode::NO_AUTH).about(Target::new(op, "/a/b"));
        for (op, action) in [
            (OpCode::CREATE2, FailedAction::Create),
            (OpCode::CREATE_CONTAINER, FailedAction::Create),
            (OpCode::DELETE, FailedAction::Delete),
            (OpCode::EXISTS, FailedAction::Check),
            (OpCode::GET_ACL, FailedAction::ReadAcl),
            (OpCode::GET_CHILDREN, FailedAction::List),
            (OpCode::GET_DATA, FailedAction::Read),
            (OpCode::SET_DATA, FailedAction::Write),
        ] {
            assert_eq!(named(refused(op)), (action, "/a/b".to_owned()), "{op:?}");
        }
        // The first operation of a multi is not the one that was refused, and a connection that is
        // lost is no refusal.
        let lost = OpError::connection_loss(Outcome::Unknown);
        for error in [
            refused(OpCode::MULTI),
            OpError::server(ErrorCode::NO_AUTH),
            lost.about(Target::new(OpCode::GET_DATA, "/a/b")),
        ] {
            assert_eq!(named(error), (FailedAction::ReadChild, "/a".to_owned()));
        }
    }
}
