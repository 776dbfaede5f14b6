//! Why a recipe could not do what its caller asked for.

use bytestring::ByteString;
use zk_session::OpError;

use crate::action::FailedAction;

/// A definite failure of an operation that a recipe cannot do without.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// What was attempted.
    pub action: FailedAction,
    /// The path of the znode, or of the directory if the action is on its children.
    pub path: ByteString,
    /// Why it failed.
    pub error: OpError,
}

impl Failure {
    pub(crate) fn new(action: FailedAction, path: impl Into<ByteString>, error: OpError) -> Self {
        Self { action, path: path.into(), error }
    }
}
