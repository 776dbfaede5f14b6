//! The requests of a recipe to servers, as its errors name them.

use std::fmt;

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
            Self::ReadChild => "read a child of",
            Self::Write => "write",
        })
    }
}
