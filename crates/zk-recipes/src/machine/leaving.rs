//! What a machine leaves behind when its caller stops waiting, and the removal of it.

use std::fmt::{self, Debug};

use bytestring::ByteString;
use zk_session::OpError;
use zk_session::recipe::Abridged;

use super::step::Machine;

/// A machine that may leave something on the servers.
pub trait Leaving: Machine {
    /// The machine that removes it.
    type Removal;

    /// Ends the machine. Returns the removal of what it may have left, unless there can be nothing,
    /// and whether the removal needs the reply to the pending flight as its first input.
    fn abandon(self, is_pending: bool) -> Option<(Self::Removal, bool)>;
}

/// A removal. It can be started again after it has ended.
pub trait Removal:
    Machine<Output = Result<Self::Removed, Refusal>> + Debug + Send + 'static
{
    /// How the removal ended, unless a server refuses it.
    type Removed: Debug + Send;

    /// What it removes, in a message.
    const REMOVED: &'static str;

    /// Makes the next start retry the operation that was refused.
    fn retry(&mut self) {}

    /// Returns the path at or below which a create with an unknown outcome may yet create a znode,
    /// so that another sweep after the next reconnect is worth its cost.
    fn must_sweep_after(&self, _: &Self::Removed) -> Option<&ByteString> {
        None
    }

    /// Makes the next start look for znodes that a lost request may have left.
    fn sweep_again(&mut self) {}
}

/// A server refuses the removal. The znode stays until a retry succeeds or the session ends.
#[derive(Clone, Eq, PartialEq)]
pub struct Refusal {
    /// The path of the znode, or of the directory.
    pub path: ByteString,
    /// The error of the refused operation.
    pub error: OpError,
}

/// For log lines.
impl Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, error } = self;
        f.debug_struct("Refusal").field("path", &Abridged(path)).field("error", error).finish()
    }
}
