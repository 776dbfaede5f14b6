//! The requests of a recipe to servers, as its errors name them.

use std::fmt;

use jute_codec::{ErrorCode, OpCode};
use zk_session::recipe::{Denied, MISSING_CHROOT};

/// What a recipe asked a server to do.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum FailedAction {
    /// Check that a znode exists.
    Check,
    /// Create a znode.
    Create,
    /// Delete a znode.
    Delete,
    /// Delete a child of a directory.
    DeleteChild,
    /// List the children of a znode.
    List,
    /// Read a znode.
    Read,
    /// Read the access control list of a znode.
    ReadAcl,
    /// Read a child of a directory.
    ReadChild,
    /// Write the data of a znode.
    Write,
}

impl fmt::Display for FailedAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Check => "check",
            Self::Create => "create",
            Self::Delete => "delete",
            Self::DeleteChild => "delete a child of",
            Self::List => "list",
            Self::Read => "read",
            Self::ReadAcl => "read the access control list of",
            Self::ReadChild => "read a child of",
            Self::Write => "write",
        })
    }
}

impl FailedAction {
    /// Returns an operation of the protocol that does this to the znode at the path of the error.
    pub(crate) fn operation(self) -> Option<OpCode> {
        Some(match self {
            Self::Check => OpCode::CHECK,
            Self::Create => OpCode::CREATE,
            Self::Delete => OpCode::DELETE,
            Self::List => OpCode::GET_CHILDREN,
            Self::Read => OpCode::GET_DATA,
            Self::ReadAcl => OpCode::GET_ACL,
            Self::Write => OpCode::SET_DATA,
            Self::DeleteChild | Self::ReadChild => return None,
        })
    }
}

/// The end of the message of a refusal, for the codes whose names are not enough.
pub(crate) struct Because<'a> {
    code: ErrorCode,
    operation: Option<OpCode>,
    path: &'a str,
}

/// Explains why a server has refused an operation at this path.
pub(crate) fn because(code: ErrorCode, operation: Option<OpCode>, path: &str) -> Because<'_> {
    Because { code, operation, path }
}

impl fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, operation, path } = *self;
        match code {
            ErrorCode::NO_NODE if path == "/" => write!(f, " ({MISSING_CHROOT})"),
            ErrorCode::NO_AUTH => {
                write!(f, " ({})", Denied { operation, path, is_at_server: false })
            }
            ErrorCode::INVALID_ACL => f.write_str(
                " (the access control list is malformed, or grants to the creator, and the server \
                 knows no identity of this client; check its `auth`, `sasl` or certificate)",
            ),
            ErrorCode::NO_CHILDREN_FOR_EPHEMERALS => {
                f.write_str(" (its parent is ephemeral, such as the znode of an exclusive lock)")
            }
            _ => Ok(()),
        }
    }
}
