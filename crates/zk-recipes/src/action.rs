//! The requests of a recipe to servers, as its errors name them.

use std::fmt;

use jute_codec::ErrorCode;

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

/// Explains the codes whose names are not enough, behind a refusal.
pub(crate) fn because(code: ErrorCode, path: &str) -> &'static str {
    match code {
        ErrorCode::NO_NODE if path == "/" => {
            " (the chroot does not exist on the servers; create it, or let `create_chroot` do that \
             when a client connects)"
        }
        ErrorCode::NO_AUTH => {
            " (the access control list of the znode, or of its parent, forbids it; check the \
             credentials of the client)"
        }
        ErrorCode::INVALID_ACL => {
            " (the access control list is malformed, or grants to the creator, and the server knows \
             no identity of this client; check its `auth`, `sasl` or certificate)"
        }
        ErrorCode::NO_CHILDREN_FOR_EPHEMERALS => {
            " (its parent is ephemeral, such as the znode of an exclusive lock)"
        }
        _ => "",
    }
}
